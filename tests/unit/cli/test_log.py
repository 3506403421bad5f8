"""``etcdfix log``: records and backups, as a person and a script see them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from etcdfix.cli import output
from etcdfix.cli.about import audit_schema
from etcdfix.cli.root import run
from etcdfix.remediation.audit.log import AuditLog
from etcdfix.remediation.audit.record import NO_SUBJECT, RecordType, Result, Verb
from etcdfix.remediation.audit.verify import verify
from etcdfix.remediation.backup.file import MARKER_SUFFIX, encode_content, encode_document, read_backup
from etcdfix.report.schema import SCHEMAS
from etcdfix.text.safetext import quote_command
from tests.support.audit_logs import audit, entry, own_directory, subject, write_log
from tests.support.backups import PLAINTEXT, Ground
from tests.support.fixtures import Captured, Patch

HOSTILE = b"/registry/secrets/shop/\x1b[31mred\xe2\x80\xae"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return own_directory(tmp_path / "log") / "audit.jsonl"


def cut(path: Path, lines: int) -> None:
    """Cut so many lines off the end, and the head file with them."""
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-lines]))
    path.with_name("audit.jsonl.head").unlink()


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


POD = b"/registry/pods/shop/web"
AGED = ["--older-than", "90d", "--reason", "aged"]


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(own_directory(tmp_path / "state"))


def backup(capfd: Captured, ground: Ground, *words: str) -> tuple[int, str, str]:
    """Run ``etcdfix log`` on the directories of the ground; nothing that it writes acts upon a terminal."""
    places = [word for path in ground.directories for word in ("--backup-dir", str(path))]
    log = [] if "--audit-log" in words else ["--audit-log", str(ground.log)]
    code = run(["log", *words, *places, *log])
    captured = capfd.readouterr()
    assert all(line.isprintable() for line in (captured.out + captured.err).splitlines())
    assert "secret-of-the-test" not in captured.out + captured.err
    return code, captured.out, captured.err


def document(capfd: Captured, ground: Ground, schema: str, *words: str) -> tuple[int, Any]:
    code, out, _ = backup(capfd, ground, *words, "-o", "json")
    found = json.loads(out)
    jsonschema.validate(found, SCHEMAS[schema]())
    return code, found


def reasons(found: dict[str, Any], *, wrong: bool = True) -> list[str]:
    return [finding["reason"] for finding in found["findings"] if finding["wrong"] is wrong]


class TestList:
    def listed(self, capfd: Captured, ground: Ground, *words: str) -> tuple[int, Any]:
        return document(capfd, ground, "log-backups", "backups", *words)

    def test_plaintext_secrets_come_first(self, capfd: Captured, ground: Ground) -> None:
        ground.change(key=POD)
        ground.change()
        ground.change(key=POD, value=b"k8s\0pod")
        ground.change(value=PLAINTEXT)
        code, found = self.listed(capfd, ground)
        assert (code, found["findings"]) == (0, [])
        assert found["audit_log_head"] == str(verify(ground.log).head)
        rows = [(row["secret"], row["stored_as_plaintext"], row["intent"]) for row in found["backups"]]
        assert rows[::2] == [(True, True, 7), (False, True, 5), (False, False, 1), (True, False, 3)]
        assert {(row["log"], row["outcome"]) for row in found["backups"]} == {("listed", "deleted")}
        _, out, err = backup(capfd, ground, "backups")
        assert (err, "PLAINTEXT SECRETS: 2." in out, len(out.splitlines()) <= 24) == ("", True, True)

    def test_nothing(self, capfd: Captured, ground: Ground, monkeypatch: Patch) -> None:
        """A missing log is one doubt; a default directory need not be there, one that is named has to."""
        ground.change()
        code, found = self.listed(capfd, ground, "--audit-log", str(ground.folder / "nothing"))
        assert (code, reasons(found), reasons(found, wrong=False)) == (3, [], ["log"])
        assert {row["log"] for row in found["backups"]} == {"no-log"}
        missing = ground.folder / "nothing"
        assert backup(capfd, ground, "backups", "--backup-dir", str(missing))[0] == 5
        monkeypatch.setattr("etcdfix.remediation.places.default_directory", lambda: missing)
        assert run(["log", "backups", "--audit-log", str(ground.log)]) == 3
        assert run(["log", "backups", "--audit-log", str(missing / "audit.jsonl")]) == 3
        capfd.readouterr()
        ground.log.unlink()
        assert reasons(self.listed(capfd, ground)[1]) == ["log"]

    def test_names_of_strangers_are_safe(self, capfd: Captured, ground: Ground) -> None:
        name = ground.change(key=HOSTILE)
        path = ground.directories[0] / name
        path.write_bytes(path.read_bytes()[:-9])
        (ground.directories[0] / "\x1b[31mnotes").write_text("mine")
        code, out, _ = backup(capfd, ground, "backups")
        assert (code, "damaged" in out, "notes" in out) == (1, True, False)

    def test_what_was_pruned_is_not_missing_and_may_not_come_back(
        self, capfd: Captured, ground: Ground
    ) -> None:
        name = ground.change()
        ground.change(Result.ANOMALY, key=POD)
        raw = (ground.directories[0] / name).read_bytes()
        ground.prune()
        code, found = self.listed(capfd, ground)
        assert (code, found["pruned"], len(found["backups"])) == (0, 2, 4)
        (ground.directories[0] / name).write_bytes(raw)
        (ground.directories[0] / name).chmod(0o600)
        code, found = self.listed(capfd, ground)
        assert (code, reasons(found), reasons(found, wrong=False)) == (3, [], ["pruned"])

    def test_missing(self, capfd: Captured, ground: Ground) -> None:
        name = ground.change()
        (ground.directories[0] / name).unlink()
        code, found = self.listed(capfd, ground)
        assert (code, reasons(found)) == (1, ["missing"])

    def test_a_backup_that_was_made_up(self, capfd: Captured, ground: Ground) -> None:
        """With digests that fit, and an intent that the log has: the log knows no such content."""
        path = ground.directories[0] / ground.change()
        read = read_backup(path)
        made = msgspec.structs.replace(read.content, reason="another")
        path.write_bytes(encode_document(encode_content(made), read.intent))
        code, found = self.listed(capfd, ground)
        assert (code, reasons(found)) == (1, ["unlisted", "missing"])

    def test_what_others_may_get_at(self, capfd: Captured, ground: Ground) -> None:
        (ground.directories[0] / ground.change()).chmod(0o640)
        ground.directories[1].chmod(0o777)
        code, found = self.listed(capfd, ground)
        assert (code, reasons(found)) == (1, ["unsafe-directory", "exposed"])

    def test_what_cannot_be_told(self, capfd: Captured, ground: Ground, tmp_path: Path) -> None:
        name = ground.change(None)
        other = Ground(own_directory(tmp_path / "other"))
        away = other.change(key=POD)
        (ground.directories[0] / away).write_bytes((other.directories[0] / away).read_bytes())
        (ground.directories[0] / away).chmod(0o600)
        (ground.directories[1] / ("x" + name)).write_bytes((ground.directories[1] / name).read_bytes()[:99])
        (ground.directories[1] / ("x" + name + MARKER_SUFFIX)).touch(0o600)
        marked = ground.directories[1] / ("y" + away)
        marked.write_bytes((other.directories[0] / away).read_bytes())
        marked.chmod(0o600)
        marked.with_name(marked.name + MARKER_SUFFIX).touch(0o600)
        ground.log.write_bytes(ground.log.read_bytes() + b'{"torn')
        ground.log.with_name("audit.jsonl.head").unlink()
        code, found = self.listed(capfd, ground)
        assert (code, reasons(found)) == (3, [])
        assert reasons(found, wrong=False) == ["log"] * 3 + ["another-log", "unconfirmed", "unconfirmed"]
        said = {(row["path"].split("/")[-1], row["log"], row["outcome"]) for row in found["backups"]}
        assert said == {
            (name, "listed", "open"), (away, "another-log", None), ("y" + away, "unconfirmed", None),
        }  # fmt: skip

    def test_a_directory_that_was_not_named(self, capfd: Captured, ground: Ground) -> None:
        ground.change()
        words = ["--backup-dir", str(own_directory(ground.folder / "empty")), "--audit-log", str(ground.log)]
        assert run(["log", "backups", *words]) == 3
        # A copy of it elsewhere is as good: nothing is known to be missing.
        for file in ground.directories[0].iterdir():
            copy = ground.folder / "empty" / file.name
            copy.write_bytes(file.read_bytes())
            copy.chmod(0o600)
        assert run(["log", "backups", *words]) == 0


class TestPrune:
    def test_with_a_number_typed_back(self, capfd: Captured, ground: Ground, monkeypatch: Patch) -> None:
        ground.change()
        ground.change()
        typed = iter(["1", "2"])
        monkeypatch.setattr(output, "is_terminal", lambda: True)
        monkeypatch.setattr("click.prompt", lambda *_, **__: next(typed))
        words = ["prune", *AGED, "--accept", "only-copy"]
        code, _, err = backup(capfd, ground, *words)
        assert (code, len(ground.files()), "not typed back" in err) == (4, 4, True)
        code, out, _ = backup(capfd, ground, *words)
        assert (code, ground.files(), str(verify(ground.log).head) in out) == (0, set(), True)

    def test_without_a_terminal_only_yes(self, capfd: Captured, ground: Ground, monkeypatch: Patch) -> None:
        monkeypatch.setattr(output, "is_terminal", lambda: False)
        ground.change()
        code, found = document(capfd, ground, "log-pruning", "prune", *AGED, "--accept", "only-copy")
        assert (code, found["refusal"]["rule"], found["exit_code"]) == (4, "not-confirmed", 4)
        code, found = document(capfd, ground, "log-pruning", "prune", *AGED, "--accept", "only-copy", "--yes")
        assert (code, found["refusal"], len(found["backups"])) == (0, None, 2)
        assert {(one["record"], one["removed"]) for one in found["backups"]} == {
            (found["audit_log_head"], True)
        }

    def test_a_dry_run_changes_nothing(self, capfd: Captured, ground: Ground) -> None:
        ground.change()
        ground.log.write_bytes(ground.log.read_bytes() + b'{"torn')
        before = {path: path.read_bytes() for path in ground.folder.rglob("*") if path.is_file()}
        words = ("prune", *AGED, "--accept", "only-copy", "--dry-run")
        code, found = document(capfd, ground, "log-pruning", *words)
        assert (code, found["dry_run"], len(found["backups"]), found["audit_log_head"]) == (0, True, 2, None)
        assert {path: path.read_bytes() for path in ground.folder.rglob("*") if path.is_file()} == before

    @pytest.mark.parametrize(
        "words",
        [
            ["--reason", "x"], ["--older-than", "90d", "--reason", " "],
            *(["--older-than", age, "--reason", "x"] for age in ("1m", "0d", "7", "-1d", "1.5d", "100000d", "\u0661d")),
            ["--older-than", "90d"],
            [*AGED, "--audit-syslog", "nowhere"],
        ],
    )  # fmt: skip
    def test_usage(self, capfd: Captured, ground: Ground, words: list[str]) -> None:
        assert backup(capfd, ground, "prune", *words)[0] == 2
