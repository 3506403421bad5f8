"""``etcdfix log``: what a person and a script see of the log."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from etcdfix.cli.about import audit_schema
from etcdfix.cli.root import run
from etcdfix.remediation.audit.log import AuditLog
from etcdfix.remediation.audit.record import NO_SUBJECT, RecordType, Verb
from etcdfix.text.safetext import quote_command
from tests.support.audit_logs import audit, entry, own_directory, subject, write_log
from tests.support.fixtures import Captured, Patch

HOSTILE = b"/registry/secrets/shop/\x1b[31mred\xe2\x80\xae"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return own_directory(tmp_path / "log") / "audit.jsonl"


def cut(path: Path, lines: int) -> None:
    """Cut so many lines off the end, and the head file with them."""
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-lines]))
    path.with_name("audit.jsonl.head").unlink()


def test_show_a_row_for_each_record(capfd: Captured, path: Path) -> None:
    write_log(path, pairs=2)
    code, out, err = audit(capfd, "show", path, "-o", "wide")
    assert (code, err) == (0, "")
    for words in ("ada@node-1", "grace", "intent 3", "  /registry/secrets/shop/db\n"):
        assert words in out
    assert len(audit(capfd, "show", path)[1].splitlines()) <= 24


def test_show_json_is_an_event_list_that_fits_the_schema(capfd: Captured, path: Path) -> None:
    write_log(path)
    with AuditLog.open(path) as log:
        log.append(entry(RecordType.REVEAL, verb=Verb.REVEAL))
        log.append(entry(RecordType.TORN_LINE, verb=Verb.RECOVER, subject=NO_SUBJECT))
    _, out, _ = audit(capfd, "show", path, "-o", "json")
    document = json.loads(out)
    written = [json.loads(line) for line in path.read_bytes().splitlines()]
    whole = {"apiVersion": "audit.k8s.io/v1", "kind": "EventList", "metadata": {}, "items": written}
    assert document == whole
    schema = audit_schema()
    for item in written:
        jsonschema.validate(item, schema)
    written[0]["annotations"]["etcdfix.io/sequence"] = 1
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(written[0], schema)


def test_show_hostile_words_spelled_out(capfd: Captured, path: Path) -> None:
    with AuditLog.open(path) as log:
        log.append(entry(subject=subject(HOSTILE), reason="\x1b]0;gone\x07\u202e" + "x" * 5000))
    # Somebody else's program may have written the characters as they are.
    raw = path.read_text(encoding="utf-8").replace("ada", "a\u202eda")
    path.write_text(raw, encoding="utf-8")
    for form in ("wide", "json", "jsonl", "yaml"):
        code, out, _ = audit(capfd, "show", path, "-o", form)
        assert code == 0
        assert "202e" in out.lower()
        assert "\u202e" not in out
        assert max(map(len, out.splitlines())) < 10000


@pytest.mark.parametrize("words", [["show"], ["verify"], ["settle"]])
def test_unreadable(capfd: Captured, path: Path, words: list[str]) -> None:
    code, out, err = audit(capfd, *words, path)
    assert (code, out) == (5, "")
    assert "No such file" in err
    assert not path.exists()


def test_verify_says_what_nothing_can_show(capfd: Captured, path: Path) -> None:
    links = write_log(path)
    cut(path, 2)
    code, out, _ = audit(capfd, "verify", path, "-o", "json")
    found = json.loads(out)
    assert (code, found["state"], found["head_missing"]) == (3, "unfinished", True)
    assert quote_command(["etcdfix", "log", "backups", "--audit-log", str(path)]) in found["next_step"]
    assert f"put this line into {path}.head: {links[3]}; else" in found["next_step"]


def test_verify_finds_a_cut_tail_by_a_head_that_was_written_down(capfd: Captured, path: Path) -> None:
    links = write_log(path)
    assert audit(capfd, "verify", path, "--expect-head", str(links[-1]))[0] == 0
    cut(path, 2)
    code, out, _ = audit(capfd, "verify", path, "--expect-head", str(links[-1]))
    assert (code, "--expect-head names record 6, the last one is 4" in out) == (1, True)


def test_verify_open_intents_and_a_torn_line(capfd: Captured, path: Path) -> None:
    with AuditLog.open(path) as log:
        for _ in range(25):
            log.append(entry())
    with path.open("ab") as file:
        file.write(b'{"kind"')
    code, out, _ = audit(capfd, "verify", path)
    assert (code, f"  etcdfix log settle {path}\n" in out) == (3, True)
    assert json.loads(audit(capfd, "verify", path, "-o", "json")[1])["open_intents"] == [*range(1, 26)]


def test_standard_output_may_be_closed(path: Path, monkeypatch: Patch) -> None:
    write_log(path)
    monkeypatch.setattr("sys.stdout", None)
    for words in (["show"], ["verify"], ["settle"]):
        assert run(["log", *words, str(path)]) == 2
