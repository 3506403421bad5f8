"""``etcdfix audit verify --anchor-file``: a log against what an anchor outside remembers of it."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from etcdfix.remediation.audit.log import AuditLog
from etcdfix.remediation.audit.outside import parse_outside
from etcdfix.remediation.audit.record import Result
from tests.support.anchors import PlayedAnchor
from tests.support.audit_logs import OPERATOR, audit, entry, own_directory, write_log

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return own_directory(tmp_path / "log") / "audit.jsonl"


@pytest.fixture
def kept(tmp_path: Path, path: Path) -> Iterator[Path]:
    """A log of six records, and the file of a syslog daemon that was told of each."""
    with PlayedAnchor(tmp_path / "socket") as anchor:
        write_anchored(path, anchor)
        yield keep(tmp_path / "syslog", anchor.lines())


def keep(path: Path, lines: list[str]) -> Path:
    host = socket.gethostname()
    path.write_text("".join(f"Mar  1 12:00:00 {host} etcdfix[7]: {line}\n" for line in lines))
    return path


def write_anchored(path: Path, anchor: PlayedAnchor, *, pairs: int = 3) -> None:
    with AuditLog.open(path, anchor=parse_outside(anchor.target)) as log:
        for _ in range(pairs):
            intent = log.intent(log.append(entry()).sequence)
            log.append(intent.closed_by(Result.DELETED, operator=OPERATOR))


def make_anew(path: Path, *, pairs: int) -> None:
    """Write another log in its place, with a head file that fits."""
    path.unlink()
    path.with_name("audit.jsonl.head").unlink()
    write_log(path, pairs=pairs)


def test_whole(capfd: Captured, path: Path, kept: Path) -> None:
    code, out, err = audit(capfd, "verify", path, "--anchor-file", kept)
    assert (code, err) == (0, "")
    assert ": whole, 6 records" in out
    assert f"and 6 heads in {kept}" in out
    assert "stands beside the log" not in out


def test_a_cut_tail_with_its_head_file(capfd: Captured, path: Path, kept: Path) -> None:
    lines = path.read_bytes().splitlines(keepends=True)[:4]
    path.write_bytes(b"".join(lines))
    path.with_name("audit.jsonl.head").unlink()
    assert audit(capfd, "verify", path)[0] == 3
    code, out, _ = audit(capfd, "verify", path, "--anchor-file", kept)
    assert code == 1
    assert f"cut: cut off the end: line 7 of {kept} names record 6, the last one is 4" in out


@pytest.mark.parametrize("pairs", [2, 3, 5])
def test_a_log_that_was_made_anew(capfd: Captured, path: Path, kept: Path, pairs: int) -> None:
    make_anew(path, pairs=pairs)
    assert audit(capfd, "verify", path)[0] == 0
    code, out, _ = audit(capfd, "verify", path, "--anchor-file", kept)
    assert code == 1
    assert f"record 1 is not the one that line 2 of {kept} names" in out


def test_a_log_made_anew_that_was_anchored_too(
    capfd: Captured, path: Path, kept: Path, tmp_path: Path
) -> None:
    path.unlink()
    path.with_name("audit.jsonl.head").unlink()
    with PlayedAnchor(tmp_path / "again") as anchor:
        write_anchored(path, anchor)
        more = keep(tmp_path / "more", anchor.lines())
    both = tmp_path / "both"
    both.write_bytes(kept.read_bytes() + more.read_bytes())
    assert audit(capfd, "verify", path, "--anchor-file", more)[0] == 0
    choices: list[list[str | Path]] = [
        ["--anchor-file", both],
        ["--anchor-file", more, "--anchor-file", kept],
    ]
    for words in choices:
        assert audit(capfd, "verify", path, *words)[0] == 1


def test_an_edited_record_whose_chain_was_made_to_fit(capfd: Captured, path: Path, kept: Path) -> None:
    make_anew(path, pairs=3)
    code, out, _ = audit(capfd, "verify", path, "--anchor-file", kept, "-o", "json")
    assert code == 1
    assert {finding["kind"] for finding in json.loads(out)["findings"]} == {"edited"}


def test_order_and_repetition_mean_nothing(capfd: Captured, path: Path, kept: Path) -> None:
    lines = kept.read_text().splitlines(keepends=True)
    kept.write_text("".join([*reversed(lines), *lines]))
    assert audit(capfd, "verify", path, "--anchor-file", kept)[0] == 0


def test_a_file_that_ends_early_says_how_far_it_goes(capfd: Captured, path: Path, kept: Path) -> None:
    text = kept.read_text()
    kept.write_text(text[: len(text) - 20])
    code, _, err = audit(capfd, "verify", path, "--anchor-file", kept)
    assert code == 0
    assert "names records up to 5, the log goes on to 6" in err
    assert "1 line cut short" in err


def test_lines_of_another_log_and_host_prove_nothing(capfd: Captured, path: Path, kept: Path) -> None:
    text = kept.read_text()
    kept.write_text(text.replace(f"log={path}", "log=/other"))
    code, out, err = audit(capfd, "verify", path, "--anchor-file", kept)
    assert code == 3
    assert "says nothing about" in err
    assert "7 lines about other logs or hosts left out" in err
    assert "heads in" not in out
    kept.write_text(text.replace("host=", "host=x"))
    assert audit(capfd, "verify", path, "--anchor-file", kept)[0] == 3


def test_replayed_lines_of_another_log_do_not_hide_what_is_missing(
    capfd: Captured, path: Path, kept: Path, tmp_path: Path
) -> None:
    """Lines of another log, made to look like this one's, are a contradiction and no proof."""
    with PlayedAnchor(tmp_path / "again") as anchor:
        other = own_directory(tmp_path / "other") / "audit.jsonl"
        write_anchored(other, anchor)
        replayed = [line.replace(str(other), str(path)) for line in anchor.lines()]
    keep(tmp_path / "replayed", replayed)
    kept.write_bytes(kept.read_bytes() + (tmp_path / "replayed").read_bytes())
    assert audit(capfd, "verify", path, "--anchor-file", kept)[0] == 1


def test_a_copy_is_verified_with_the_names_that_it_had(
    capfd: Captured, path: Path, kept: Path, tmp_path: Path
) -> None:
    kept.write_text(kept.read_text().replace(f"host={socket.gethostname()}", "host=node-9"))
    copy = tmp_path / "copy.jsonl"
    copy.write_bytes(path.read_bytes())
    copy.with_name("copy.jsonl.head").write_bytes(path.with_name("audit.jsonl.head").read_bytes())
    assert audit(capfd, "verify", copy, "--anchor-file", kept)[0] == 3
    named: list[str | Path] = ["--anchor-log", path, "--anchor-host", "node-9"]
    assert audit(capfd, "verify", copy, "--anchor-file", kept, *named)[0] == 0


def test_an_anchor_file_that_is_not_there(capfd: Captured, path: Path, kept: Path) -> None:
    code, _, err = audit(capfd, "verify", path, "--anchor-file", kept.with_name("nothing"))
    assert code == 2
    assert "--anchor-file" in err
