"""``etcdfix backup``: what a person and a script see of backups."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
import yaml

from etcdfix.cli import confirm
from etcdfix.cli.root import run
from etcdfix.errors import NotDurable
from etcdfix.operations.change.settle_intents import settle_intents
from etcdfix.remediation.audit.log import AuditLog
from etcdfix.remediation.audit.record import Intent, Result, Verb
from etcdfix.remediation.audit.syslog import Syslog
from etcdfix.remediation.audit.verify import verify
from etcdfix.remediation.backup import prune
from etcdfix.remediation.backup.file import encode_content, encode_document, read_backup
from etcdfix.remediation.backup.write import MARKER_SUFFIX
from etcdfix.remediation.preflight.cluster import Acceptances
from etcdfix.report.schema import SCHEMAS
from tests.support.audit_logs import own_directory
from tests.support.backups import PLAINTEXT, Ground
from tests.support.syslogs import PlayedSyslog

Captured = pytest.CaptureFixture[str]

POD = b"/registry/pods/shop/web"
HOSTILE = b"/registry/secrets/shop/\x1b[31mred\xe2\x80\xae"
AGED = ["--older-than", "2026-03-01", "--reason", "aged"]


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(own_directory(tmp_path / "state"))


def backup(capfd: Captured, ground: Ground, *words: str) -> tuple[int, str, str]:
    """Run ``etcdfix backup`` on the directories of the ground; nothing that it writes acts upon a terminal."""
    places = [word for path in ground.directories for word in ("--backup-dir", str(path))]
    log = [] if "--audit-log" in words else ["--audit-log", str(ground.log)]
    code = run(["backup", *words, *places, *log])
    captured = capfd.readouterr()
    assert all(line.isprintable() for line in (captured.out + captured.err).splitlines())
    assert "secret-of-the-test" not in captured.out + captured.err
    return code, captured.out, captured.err


def document(capfd: Captured, ground: Ground, schema: str, *words: str) -> tuple[int, Any]:
    code, out, _ = backup(capfd, ground, *words, "-o", "json")
    found = json.loads(out)
    jsonschema.validate(found, SCHEMAS[schema]())
    return code, found


class TestList:
    def test_plaintext_secrets_come_first(self, capfd: Captured, ground: Ground) -> None:
        ground.change(key=POD)
        ground.change()
        ground.change(key=POD, value=b"k8s\0pod")
        ground.change(value=PLAINTEXT)
        code, found = document(capfd, ground, "backup-list", "list")
        assert code == 0
        rows = [(row["secret"], row["stored_as_plaintext"], row["intent"]) for row in found["backups"]]
        assert rows[::2] == [(True, True, 7), (False, True, 5), (False, False, 1), (True, False, 3)]
        assert {row["log"] for row in found["backups"]} == {"listed"}
        assert {row["outcome"] for row in found["backups"]} == {"deleted"}
        _, out, err = backup(capfd, ground, "list")
        assert err == ""
        assert "PLAINTEXT SECRETS: 2." in out
        assert out.index("PLAINTEXT SECRET  ") < out.index("plaintext  ")
        assert len(out.splitlines()) <= 24
        assert len(yaml.safe_load(backup(capfd, ground, "list", "-o", "yaml")[1])["backups"]) == 8

    def test_a_secret_under_another_prefix_by_the_word_of_the_log(
        self, capfd: Captured, ground: Ground
    ) -> None:
        ground.change(key=b"/odd", value=PLAINTEXT)
        _, found = document(capfd, ground, "backup-list", "list")
        assert not [row for row in found["backups"] if row["secret"]]

    def test_what_the_log_says(self, capfd: Captured, ground: Ground, tmp_path: Path) -> None:
        ground.change(None)
        name = ground.change()
        other = Ground(own_directory(tmp_path / "other"))
        away = other.change(key=POD)
        (ground.directories[0] / away).write_bytes((other.directories[0] / away).read_bytes())
        (ground.directories[0] / away).chmod(0o600)
        (ground.directories[1] / away).write_bytes((other.directories[1] / away).read_bytes())
        (ground.directories[1] / (away + MARKER_SUFFIX)).touch(0o600)
        _, found = document(capfd, ground, "backup-list", "list")
        said = {(row["path"].split("/")[-1] == name, row["log"], row["outcome"]) for row in found["backups"]}
        assert said == {
            (True, "listed", "deleted"), (False, "listed", "open"), (False, "another-log", None),
            (False, "unconfirmed", None),
        }  # fmt: skip
        assert any("has mode" in warning for warning in found["warnings"])
        _, found = document(
            capfd, ground, "backup-list", "list", "--audit-log", str(ground.folder / "nothing")
        )
        assert {row["log"] for row in found["backups"]} == {"no-log"}
        assert found["audit_log_state"] == "missing"

    def test_a_log_that_was_made_anew(self, capfd: Captured, ground: Ground) -> None:
        ground.change()
        ground.log.unlink()
        ground.log.with_name("audit.jsonl.head").unlink()
        AuditLog.open(ground.log).close()
        code, found = document(capfd, ground, "backup-list", "list")
        assert (code, found["audit_log_state"], found["backups"][0]["log"]) == (3, "tampered", "unlisted")
        ground.log.write_bytes(b"words\n")
        assert document(capfd, ground, "backup-list", "list")[1]["audit_log_state"] == "unreadable"

    def test_files_that_are_not_ours_are_named(self, capfd: Captured, ground: Ground, tmp_path: Path) -> None:
        name = ground.change(key=HOSTILE)
        (ground.directories[0] / "\x1b[31mnotes").write_text("mine")
        (ground.directories[0] / name).write_bytes((ground.directories[0] / name).read_bytes()[:-9])
        code, out, _ = backup(capfd, ground, "list")
        assert code == 3
        assert "\nforeign " in out
        assert "\ndamaged " in out
        assert "\\x1b[31mnotes" in out

    def test_nothing(self, capfd: Captured, ground: Ground) -> None:
        code, out, err = backup(capfd, ground, "list")
        assert code == 0
        assert out.startswith("no backups: ")
        assert "there is no audit log" in err

    def test_the_default_directory_need_not_be_there(
        self, capfd: Captured, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setattr("etcdfix.remediation.places.default_directory", lambda: tmp_path / "nothing")
        monkeypatch.setattr(
            "etcdfix.remediation.places.default_audit_log", lambda: tmp_path / "nothing/audit.jsonl"
        )
        assert run(["backup", "list"]) == 0
        assert run(["backup", "verify"]) == 5
        assert "is not there" in capfd.readouterr().err

    def test_a_named_directory_that_is_not_there(self, capfd: Captured, ground: Ground) -> None:
        code, _, err = backup(capfd, ground, "list", "--backup-dir", str(ground.folder / "nothing"))
        assert code == 5
        assert "No such file" in err


def findings(found: dict[str, Any], which: str = "findings") -> list[str]:
    return [finding["reason"] for finding in found[which]]


class TestVerify:
    def test_whole(self, capfd: Captured, ground: Ground) -> None:
        ground.change()
        ground.change(Result.ANOMALY, key=POD)
        code, found = document(capfd, ground, "backup-verification", "verify")
        assert (code, found["state"], found["backups"], found["findings"], found["doubts"]) == (
            0,
            "whole",
            6,
            [],
            [],
        )
        assert found["head"] == str(verify(ground.log).head)
        assert backup(capfd, ground, "verify")[1].startswith("whole: ")

    def test_pruned_is_not_missing(self, capfd: Captured, ground: Ground) -> None:
        ground.change()
        ground.prune()
        code, found = document(capfd, ground, "backup-verification", "verify")
        assert (code, found["pruned"]) == (0, 2)

    def test_pruned_and_there_again(self, capfd: Captured, ground: Ground) -> None:
        name = ground.change()
        raw = (ground.directories[0] / name).read_bytes()
        ground.prune()
        (ground.directories[0] / name).write_bytes(raw)
        (ground.directories[0] / name).chmod(0o600)
        code, found = document(capfd, ground, "backup-verification", "verify")
        assert (code, findings(found)) == (1, ["returned"])

    def test_missing(self, capfd: Captured, ground: Ground) -> None:
        name = ground.change()
        (ground.directories[0] / name).unlink()
        code, found = document(capfd, ground, "backup-verification", "verify")
        assert (code, findings(found)) == (1, ["missing"])
        assert "a copy is" in found["findings"][0]["message"]
        _, out, _ = backup(capfd, ground, "verify")
        assert "SOMETHING IS WRONG OR MISSING" in out

    @pytest.mark.parametrize("place", [10, 1000, -100, -3])
    def test_one_changed_byte(self, capfd: Captured, ground: Ground, place: int) -> None:
        name = ground.change()
        path = ground.directories[0] / name
        raw = bytearray(path.read_bytes())
        raw[place] ^= 1
        path.write_bytes(raw)
        code, found = document(capfd, ground, "backup-verification", "verify")
        assert (code, findings(found)) == (1, ["damaged"])

    def test_a_backup_that_was_made_up(self, capfd: Captured, ground: Ground) -> None:
        """With digests that fit, and an intent that the log has: the log knows no such content."""
        name = ground.change()
        read = read_backup(ground.directories[0] / name)
        made = msgspec.structs.replace(read.content, reason="another")
        path = ground.directories[0] / name
        path.write_bytes(encode_document(encode_content(made), read.intent))
        code, found = document(capfd, ground, "backup-verification", "verify")
        assert (code, findings(found)) == (1, ["unlisted", "missing"])

    def test_a_backup_in_the_place_of_another(self, capfd: Captured, ground: Ground) -> None:
        lost, other = ground.change(), ground.change(key=POD)
        for directory in ground.directories:
            (directory / lost).write_bytes((directory / other).read_bytes())
        code, found = document(capfd, ground, "backup-verification", "verify")
        assert (code, findings(found)) == (1, ["missing"] * len(ground.directories))
        assert "another backup stands in its place" in found["findings"][0]["message"]

    def test_what_others_may_get_at(self, capfd: Captured, ground: Ground) -> None:
        name = ground.change()
        (ground.directories[0] / name).chmod(0o640)
        ground.directories[1].chmod(0o777)
        code, found = document(capfd, ground, "backup-verification", "verify")
        assert (code, findings(found)) == (1, ["unsafe-directory", "exposed"])

    def test_a_link_in_its_place(self, capfd: Captured, ground: Ground, tmp_path: Path) -> None:
        name = ground.change()
        (ground.directories[0] / name).rename(tmp_path / "away")
        (ground.directories[0] / name).symlink_to(tmp_path / "away")
        code, found = document(capfd, ground, "backup-verification", "verify")
        assert (code, findings(found)) == (1, ["link"])

    def test_a_log_that_was_cut_with_its_head(self, capfd: Captured, ground: Ground) -> None:
        ground.change()
        ground.change()
        lines = ground.log.read_bytes().splitlines(keepends=True)
        ground.log.write_bytes(b"".join(lines[:2]))
        ground.log.with_name("audit.jsonl.head").unlink()
        code, found = document(capfd, ground, "backup-verification", "verify")
        assert code == 1
        assert set(findings(found)) == {"log", "unlisted"}

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
        code, found = document(capfd, ground, "backup-verification", "verify")
        assert (code, findings(found)) == (3, [])
        assert findings(found, "doubts") == ["log"] * 3 + ["another-log", "unconfirmed", "unconfirmed"]
        _, out, _ = backup(capfd, ground, "verify")
        assert "nothing is wrong, but" in out

    def test_a_directory_that_was_not_named(self, capfd: Captured, ground: Ground) -> None:
        ground.change()
        words = ["--backup-dir", str(own_directory(ground.folder / "empty")), "--audit-log", str(ground.log)]
        assert run(["backup", "verify", *words]) == 3
        assert "was not looked at: name its directory" in " ".join(capfd.readouterr().out.split())
        # A copy of it elsewhere is as good: nothing is known to be missing.
        for file in ground.directories[0].iterdir():
            copy = ground.folder / "empty" / file.name
            copy.write_bytes(file.read_bytes())
            copy.chmod(0o600)
        assert run(["backup", "verify", *words]) == 0

    def test_a_file_that_cannot_be_read(
        self, capfd: Captured, ground: Ground, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ground.change()

        def fail(*_: object, **__: object) -> bytes:
            raise OSError(5, "Input/output error")

        monkeypatch.setattr("etcdfix.remediation.backup.directory.read_limited", fail)
        code, found = document(capfd, ground, "backup-verification", "verify")
        assert (code, findings(found, "doubts")) == (3, ["unreadable"] * 2)

    def test_no_log(self, capfd: Captured, ground: Ground) -> None:
        assert backup(capfd, ground, "verify")[0] == 5


class TestPrune:
    def test_with_a_number_typed_back(
        self, capfd: Captured, ground: Ground, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ground.change()
        ground.change()
        typed = iter(["1", "2"])
        monkeypatch.setattr(confirm, "is_terminal", lambda: True)
        monkeypatch.setattr("click.prompt", lambda *_, **__: next(typed))
        words = ["prune", *AGED, "--accept", "only-copy"]
        code, _, err = backup(capfd, ground, *words)
        assert (code, len(ground.files())) == (4, 4)
        assert "not typed back" in err
        assert "the undo of its change" in err
        code, out, _ = backup(capfd, ground, *words)
        assert (code, ground.files()) == (0, set())
        assert out.startswith("2 backups removed.\n")
        assert str(verify(ground.log).head) in out

    def test_without_a_terminal_only_yes(
        self, capfd: Captured, ground: Ground, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(confirm, "is_terminal", lambda: False)
        ground.change()
        code, found = document(capfd, ground, "backup-pruning", "prune", *AGED, "--accept", "only-copy")
        assert (code, found["refusal"]["rule"], found["exit_code"]) == (4, "not-confirmed", 4)
        code, found = document(
            capfd, ground, "backup-pruning", "prune", *AGED, "--accept", "only-copy", "--yes"
        )
        assert (code, found["refusal"], len(found["pruned"])) == (0, None, 1)
        assert found["pruned"][0]["record"] == found["audit_log_head"]
        assert found["pruned"][0]["removed"] == found["pruned"][0]["paths"]

    def test_a_dry_run_changes_nothing(self, capfd: Captured, ground: Ground) -> None:
        ground.change()
        ground.log.write_bytes(ground.log.read_bytes() + b'{"torn')
        before = {path: path.read_bytes() for path in ground.folder.rglob("*") if path.is_file()}
        code, found = document(
            capfd, ground, "backup-pruning", "prune", *AGED, "--accept", "only-copy", "--dry-run"
        )
        assert (code, found["dry_run"], len(found["pruned"]), found["audit_log_head"]) == (0, True, 1, None)
        assert (
            "DRY RUN: 1 backup would"
            in backup(capfd, ground, "prune", *AGED, "--accept", "only-copy", "--dry-run")[1]
        )
        assert {path: path.read_bytes() for path in ground.folder.rglob("*") if path.is_file()} == before

    def test_what_a_rule_keeps(self, capfd: Captured, ground: Ground) -> None:
        ground.change()
        ground.change(Result.UNDONE, verb=Verb.UNDO, key=POD)
        code, out, _ = backup(capfd, ground, "prune", *AGED, "--yes")
        assert code == 4
        assert "1 backup removed" in out
        assert "  only-copy  intent 1 ended as deleted" in out
        assert len(ground.files()) == 2

    def test_nothing_is_old_enough(self, capfd: Captured, ground: Ground) -> None:
        ground.change()
        code, out, _ = backup(capfd, ground, "prune", "--older-than", "2025-01-01", "--reason", "aged")
        assert code == 0
        assert "Not old enough  2" in out

    def test_what_was_not_finished(
        self, capfd: Captured, ground: Ground, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ground.change()
        ground.change()

        def fail(*_: object) -> None:
            raise NotDurable("the disk is gone", path=ground.log)

        monkeypatch.setattr(prune, "_remove", fail)
        code, out, _ = backup(capfd, ground, "prune", *AGED, "--accept", "only-copy", "--yes")
        assert code == 3
        assert "0 backups removed" in out
        assert out.count("the disk is gone") == 2
        assert "2 of 2 STAY" in out

    def test_a_syslog(self, capfd: Captured, ground: Ground, tmp_path: Path) -> None:
        ground.change()
        words = ["prune", *AGED, "--accept", "only-copy", "--yes", "--audit-syslog"]
        with PlayedSyslog(tmp_path / "socket") as syslog:
            code, _, _ = backup(capfd, ground, *words, str(syslog.path))
            assert (code, len(syslog.heads())) == (0, 2)
        ground.change()
        code, _, err = backup(capfd, ground, *words, str(syslog.path))
        assert code == 0
        assert err.count("did not take the head of the audit log: No such file or directory") == 1
        assert ground.files() == set()

    @pytest.mark.parametrize(
        "words",
        [
            ["--reason", "x"], ["--older-than", "2026-03-01", "--reason", " "],
            ["--older-than", "1m", "--reason", "x"], ["--older-than", "2026-03-01"],
            [*AGED, "--audit-syslog", "nowhere"],
        ],
    )  # fmt: skip
    def test_usage(self, capfd: Captured, ground: Ground, words: list[str]) -> None:
        assert backup(capfd, ground, "prune", *words)[0] == 2

    def test_ages(self, capfd: Captured, ground: Ground) -> None:
        ground.change()
        for age in ("1d", "2w", "36h"):
            words = ["prune", "--older-than", age, "--reason", "x", "--accept", "only-copy", "--dry-run"]
            assert len(document(capfd, ground, "backup-pruning", *words)[1]["pruned"]) == 1
        words = ["prune", "--older-than", "9999w", "--reason", "x", "--accept", "only-copy", "--dry-run"]
        assert document(capfd, ground, "backup-pruning", *words)[1]["younger"] == 2


class TestReconcile:
    """An open intent to prune is settled by its files, without etcd."""

    @pytest.fixture
    def intent(self, ground: Ground) -> Intent:
        ground.change()

        def die(name: str) -> None:
            if name == "backup pruned: after fsync directory":
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            ground.prune(step=die)
        with AuditLog.open(ground.log) as log:
            return log.open_intents()[0]

    def test_settled(self, capfd: Captured, ground: Ground, intent: Intent) -> None:
        code, found = document(capfd, ground, "backup-verification", "verify")
        assert (code, findings(found), findings(found, "doubts")) == (3, [], ["log", "missing"])
        for words in (["--dry-run"], []):
            assert run(["audit", "reconcile", str(ground.log), *words, "--endpoints", "127.0.0.1:1"]) == 0
            assert "pruned " in capfd.readouterr().out
        assert not verify(ground.log).open_intents
        assert document(capfd, ground, "backup-verification", "verify")[0] == 0

    def test_told_to_syslog(self, ground: Ground, intent: Intent, tmp_path: Path) -> None:
        with PlayedSyslog(tmp_path / "socket") as syslog:

            def connect(_: object) -> Any:
                raise AssertionError("etcd is not asked")

            settled = settle_intents(
                ground.log, connect, etcd_user="", dry_run=False, accepted=Acceptances(),
                syslog=Syslog(str(syslog.path)),
            )  # fmt: skip
            assert (settled.exit_code, settled.found[0].result) == (0, Result.PRUNED)
            assert syslog.heads() == [str(verify(ground.log).head)]

    def test_a_syslog_that_cannot_be_reached(
        self, capfd: Captured, ground: Ground, intent: Intent, tmp_path: Path
    ) -> None:
        words = ["audit", "reconcile", str(ground.log), "--audit-syslog", f"{tmp_path}/nothing"]
        assert run([*words, "-o", "json"]) == 0
        assert capfd.readouterr().err.endswith(f"write its head down: {verify(ground.log).head}\n")
        assert not verify(ground.log).open_intents
