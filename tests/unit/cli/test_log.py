"""``etcdfix log``: what a person and a script see of the log."""

from __future__ import annotations

import json
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

import jsonschema
import pytest

from etcdfix.cli.about import audit_schema
from etcdfix.cli.root import run
from etcdfix.remediation.audit.log import AuditLog
from etcdfix.remediation.audit.record import NO_SUBJECT, RecordType, Result, Verb
from etcdfix.remediation.backup.file import MARKER_SUFFIX, record_intent
from etcdfix.remediation.durable import open_directory
from etcdfix.text.safetext import quote_command
from tests.support.audit_logs import OPERATOR, audit, content, entry, own_directory, subject, write_log
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
    assert out.startswith("4 records, the newest first:")
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


def test_show_a_key_that_is_no_base64(capfd: Captured, path: Path) -> None:
    write_log(path, pairs=1)
    notes = json.loads(path.read_bytes().splitlines()[0])["annotations"]
    path.write_text(path.read_text().replace(notes["etcdfix.io/key-base64"], "%%%"))
    code, out, err = audit(capfd, "show", path)
    assert (code, out) == (5, "")
    assert "line 1: it is no record of etcdfix" in err


@pytest.mark.parametrize("words", [["show"], ["verify"], ["settle"]])
def test_unreadable(capfd: Captured, path: Path, words: list[str]) -> None:
    code, out, err = audit(capfd, *words, path)
    assert (code, out) == (5, "")
    assert "No such file" in err
    assert not path.exists()


def test_verify_says_what_nothing_can_show(capfd: Captured, path: Path) -> None:
    links = write_log(path)
    cut(path, 2)
    code, out, _ = audit(capfd, "verify", path)
    assert code == 3
    assert "open, 4 records" in out
    code, out, _ = audit(capfd, "verify", path, "-o", "json")
    found = json.loads(out)
    assert (code, found["state"], found["head_missing"], found["compared_with"]) == (
        3, "unfinished", True, [],
    )  # fmt: skip
    assert quote_command(["etcdfix", "log", "backups", "--audit-log", str(path)]) in found["next_step"]
    assert f"put this line into {path}.head: {links[3]}; else" in found["next_step"]
    told = " ".join(found["warnings"])
    assert "whole up to record 4; nothing here can show that later records existed" in told


def test_verify_finds_a_cut_tail_by_a_head_that_was_written_down(capfd: Captured, path: Path) -> None:
    links = write_log(path)
    assert audit(capfd, "verify", path, "--expect-head", str(links[-1]))[0] == 0
    cut(path, 2)
    code, out, _ = audit(capfd, "verify", path, "--expect-head", str(links[-1]))
    assert code == 1
    assert "TAMPERED" in out
    assert "cut off the end: --expect-head names record 6, the last one is 4" in out


def test_verify_open_intents_and_a_torn_line(capfd: Captured, path: Path) -> None:
    with AuditLog.open(path) as log:
        for _ in range(25):
            log.append(entry())
    with path.open("ab") as file:
        file.write(b'{"kind"')
    code, out, _ = audit(capfd, "verify", path)
    assert code == 3
    assert "whole, but unfinished, 25 records" in out
    assert "after 7 bytes" in out
    assert "1, 2, 3, " in out
    assert "20, …" in out
    assert f"  etcdfix log settle {path}\n" in out
    assert json.loads(audit(capfd, "verify", path, "-o", "json")[1])["open_intents"] == [*range(1, 26)]


@pytest.fixture
def with_backups(tmp_path: Path, path: Path) -> list[Path]:
    """Two deletions and then a third, each with a backup; return the backups in order."""
    own_directory(tmp_path / "backups")
    files: list[Path] = []
    with ExitStack() as stack:
        log = stack.enter_context(AuditLog.open(path))
        directory = stack.enter_context(open_directory(tmp_path / "backups"))
        for _ in range(3):
            intent = record_intent(log, entry(), content(at=datetime.now(UTC)), [directory])
            log.append(intent.closed_by(Result.DELETED, operator=OPERATOR))
            files += map(Path, intent.backups)
    return files


def test_backups_tell_of_a_log_that_was_cut(capfd: Captured, path: Path, with_backups: list[Path]) -> None:
    words = ["--backup-dir", str(with_backups[0].parent), "--audit-log", str(path)]
    assert run(["log", "backups", *words]) == 0
    cut(path, 2)
    assert audit(capfd, "verify", path)[0] == 3
    assert run(["log", "backups", *words]) == 1
    assert "names record 5, the last one is 4" in " ".join(capfd.readouterr().out.split())
    (
        with_backups[2].parent / (with_backups[2].name + MARKER_SUFFIX)
    ).touch()  # its intent was never confirmed
    assert run(["log", "backups", *words]) == 3


def test_standard_output_may_be_closed(path: Path, monkeypatch: Patch) -> None:
    write_log(path)
    monkeypatch.setattr("sys.stdout", None)
    for words in (["show"], ["verify"], ["settle"]):
        assert run(["log", *words, str(path)]) == 2
