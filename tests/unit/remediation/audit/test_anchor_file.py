"""What an anchor has kept, as anybody may have written it."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from etcdfix.errors import ConfigurationError
from etcdfix.remediation.audit import anchor_file
from etcdfix.remediation.audit.anchor_file import AnchorFile, read_anchor_file
from etcdfix.remediation.audit.record import Link

LOG, HOST = "/var/lib/etcdfix/audit.jsonl", "node-1"


def line(sequence: int, digest: str = "ab", *, log: str = LOG, host: str = HOST) -> str:
    return (
        f"etcdfix-audit-head v=1 seq={sequence} sha256={digest * 32} type=intent log={log} host={host} key=-"
    )


def journal(message: object, **fields: object) -> str:
    return json.dumps({"MESSAGE": message, "SYSLOG_IDENTIFIER": "etcdfix", **fields})


def read(tmp_path: Path, text: str | bytes) -> AnchorFile:
    path = tmp_path / "kept"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_anchor_file(path, log=LOG, hosts=[HOST])


def sequences(found: AnchorFile) -> list[int]:
    return [anchor.link.sequence for anchor in found.anchors]


@pytest.mark.parametrize(
    "before",
    [
        "", "Mar  1 12:00:00 node-1 etcdfix[123]: ", "2026-03-01T12:00:00+00:00 node-1 etcdfix[7]: ",
        "<85>1 2026-03-01T12:00:00Z node-1 etcdfix 123 audit-head - ", "etcdfix: ",
    ],
)  # fmt: skip
def test_what_syslog_daemons_write(tmp_path: Path, before: str) -> None:
    found = read(tmp_path, f"other words\n{before}{line(3)}\r\n{before}{line(4)}\n")
    assert [anchor.link for anchor in found.anchors] == [Link(3, "ab" * 32), Link(4, "ab" * 32)]
    assert found.anchors[0].source == f"line 2 of {tmp_path}/kept"
    assert (found.newest, found.others, found.malformed, found.too_long) == (4, 0, 0, 0)


def test_the_journal(tmp_path: Path) -> None:
    lines = [
        journal(line(1)),
        journal(list(line(2).encode())),  # how journalctl gives what is not printable
        journal(None),
        journal("started"),
        json.dumps({"MESSAGE": line(9), "SYSLOG_IDENTIFIER": "sshd"}),
        journal([10**30]),
        '{"MESSAGE": 7}',
        '{"cut',
        "{" * 5000,
    ]
    found = read(tmp_path, "\n".join(lines))
    assert sequences(found) == [1, 2]


@pytest.mark.parametrize(
    "text",
    [
        f"Mar 1 12:00:00 node-1 sshd[3]: Invalid user {line(9)}",
        f"Mar 1 12:00:00 node-1 app: said etcdfix-audit-head of {line(9)}",
        f"xetcdfix[1]: {line(9)}",
        f"Mar 1 12:00:00 node-1 etcdfix[1]: see also {line(9)}",
    ],
)
def test_what_other_programs_repeat_is_not_ours(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, text + "\n").anchors == ()


def test_other_logs_and_hosts_do_not_count(tmp_path: Path) -> None:
    lines = [line(1, log="/other"), line(2, host="node-2"), line(3), line(4, log=LOG + "%2e")]
    found = read(tmp_path, "\n".join(lines))
    assert (sequences(found), found.others) == ([3], 3)


def test_what_was_cut_or_goes_on_otherwise_is_counted(tmp_path: Path) -> None:
    lines = [line(1)[:-5], line(2) + " more", line(3).replace("v=1", "v=9"), line(4)]
    found = read(tmp_path, "\n".join([*lines, line(5)[:60]]))
    assert (sequences(found), found.malformed) == ([4], 4)


def test_each_head_counts_once_in_any_order_and_a_contradiction_twice(tmp_path: Path) -> None:
    lines = [line(7), line(3), line(7), line(3, "cd"), line(0, "00")]
    found = read(tmp_path, "\n".join(lines))
    assert [str(anchor.link)[:4] for anchor in found.anchors] == ["7:ab", "3:ab", "3:cd"]
    assert found.newest == 7


def test_hostile_bytes(tmp_path: Path) -> None:
    text = b"\x00\xff\x1b[31m" + b"x" * (1 << 19) + b"\n" + line(2).encode() + b"\n" + b"y" * (1 << 19)
    found = read(tmp_path, text)
    assert (sequences(found), found.too_long) == ([2], 2)
    assert found.anchors[0].source.startswith("line 2 ")


def test_no_more_heads_than_any_log_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(anchor_file, "MAX_ANCHORS", 2)
    assert sequences(read(tmp_path, "\n".join([line(1), line(2), line(1)]))) == [1, 2]
    with pytest.raises(ConfigurationError, match="more than 2 heads"):
        read(tmp_path, "\n".join([line(1), line(2), line(3)]))


def test_what_cannot_be_read(tmp_path: Path) -> None:
    for path in (tmp_path / "nothing", tmp_path):
        with pytest.raises(ConfigurationError, match="--anchor-file"):
            read_anchor_file(path, log=LOG, hosts=[HOST])


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(line(5).encode())))
    assert sequences(read_anchor_file(Path("-"), log=LOG, hosts=[HOST])) == [5]


def test_nothing_in_it(tmp_path: Path) -> None:
    assert read(tmp_path, "").newest == 0


def test_several_hosts(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("\n".join([line(1), line(2, host="node-2"), line(3, host="node-3")]))
    found = read_anchor_file(tmp_path / "kept", log=LOG, hosts=[HOST, "node-3"])
    assert (sequences(found), found.others) == ([1, 3], 1)
