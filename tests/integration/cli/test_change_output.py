"""What a change came to: one document a run, nothing else on standard output; its head may go to syslog too."""

from __future__ import annotations

import json
import os
import pty
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

import jsonschema
import pytest
import yaml

from etcdfix.cli import changing
from etcdfix.remediation.audit.record import Result
from etcdfix.remediation.audit.verify import ChainState, verify
from etcdfix.report.schema import SCHEMAS
from tests.support.audit_logs import own_directory
from tests.support.change_runs import ACKNOWLEDGED, Ran, Registry, follow_up
from tests.support.fixtures import Patch
from tests.support.syslogs import PlayedSyslog

pytestmark = [pytest.mark.etcd, pytest.mark.usefixtures("no_variables")]


def told(ran: Ran) -> dict[str, Any]:
    """Return the document, which keeps to its schema."""
    document: dict[str, Any] = json.loads(ran.out)
    jsonschema.validate(document, json.loads(json.dumps(SCHEMAS["change"](), default=list)))
    assert document["exit_code"] == ran.code
    return document


def test_deleted_and_put_back(registry: Registry) -> None:
    key = registry.key("shop/broken")
    document = told(registry.delete(key, "--dry-run", "-o", "json"))
    assert (document["result"], document["dry_run"], document["backups"]) == ("dry-run", True, [])
    (step,) = document["follow_ups"]
    assert step["command"].startswith(f"etcdfix delete {key.decode()} ")
    assert "--dry-run" not in step["command"]
    shown = registry.delete(key, "--dry-run", "--user=ada:never-shown", "--password", "never-shown").out
    assert ("--user ada" in shown, "never-shown" in shown) == (True, False)
    ran = registry.delete(key, "-o", "json")
    document = told(ran)
    assert (document["command"], document["key"], document["key_base64"]) == ("delete", key.decode(), None)
    assert (document["result"], document["refusal"]) == ("deleted", None)
    (kept,) = registry.kept()
    assert document["backups"] == [str(kept.path)]
    assert document["value_sha256s"] == [kept.content.value_sha256]
    assert document["audit_log"] == str(registry.log)
    assert [step["what"] for step in document["follow_ups"]] == ["Undo", "See what is left"]
    assert str(kept.path) in document["follow_ups"][0]["command"]
    assert "Verdict" in ran.err  # the preview
    document = told(registry.undo(kept.path, "-o", "json"))
    assert (document["command"], document["result"]) == ("undo", "undone")
    assert document["revision"] == registry.etcd.revision()


def test_a_refusal_has_the_word_of_its_rule(registry: Registry) -> None:
    key = registry.key("shop/good-0")
    with registry.untouched():
        ran = registry.delete(key, "-o", "json")
    document = told(ran)
    assert ran.code == 4
    assert (document["result"], document["refusal"]["rule"]) == ("refused", "readable")
    assert document["refusal"]["next_step"]
    # A person reads the same on standard error.
    assert document["refusal"]["message"] in ran.err
    with registry.untouched():
        ran = registry.delete(key, "-o", "yaml")
    assert yaml.safe_load(ran.out)["refusal"]["rule"] == "readable"


def test_what_is_no_rule_has_the_name_of_its_error(registry: Registry, tmp_path: Path) -> None:
    ran = registry.undo(tmp_path / "nothing.json", "-o", "json")
    document = told(ran)
    assert ran.code == 5
    assert (document["result"], document["refusal"]["rule"], document["key"]) == ("failed", None, None)
    assert document["refusal"]["code"] == "backup-unreadable"


def test_paths_that_are_not_text(registry: Registry) -> None:
    """The change is made by then: what it came to must not get lost over a name."""
    registry.log = own_directory(registry.folder / "l\udcffg") / "audit.jsonl"
    registry.backups = own_directory(registry.folder / "l\udcffg-backups")
    document = told(registry.delete(registry.key("shop/broken"), "-o", "json"))
    assert document["result"] == "deleted"
    assert "l\\udcffg/audit.jsonl" in document["audit_log"]
    assert "l\\udcffg-backups" in document["backups"][0]


def test_what_was_done_is_told_whatever_happens(registry: Registry, monkeypatch: Patch) -> None:
    def fail(*_args: object, **_named: object) -> NoReturn:
        raise UnicodeError

    monkeypatch.setattr(changing, "show_change", fail)
    ran = registry.delete(registry.key("shop/broken"), "-o", "json")
    assert ran.code == 0
    assert ran.out == ""
    assert "DELETED " in ran.err
    assert f"etcdfix undo {registry.kept()[0].path}\n" in ran.err


def test_nobody_reads_any_more_what_it_came_to(registry: Registry) -> None:
    """As in ``2>&1 | head``: the change is made and recorded, and ends with its own exit code."""
    key = registry.key("shop/broken")
    words = ["delete", os.fsdecode(key), ACKNOWLEDGED, *registry.common()]
    master, terminal = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "etcdfix", *words],
        stdin=terminal, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        shown = b""
        while not shown.endswith(b"\n> "):
            read = os.read(process.stdout.fileno(), 1000)
            assert read, shown
            shown += read
        process.stdout.close()
        os.write(master, key + b"\n")
        assert process.wait(60) == 0
    os.close(terminal)
    os.close(master)
    assert registry.stored(key) is None
    assert [record.outcome for record in registry.records()] == [None, Result.DELETED]


@pytest.mark.parametrize(("words", "code"), [(["get", "no-such-thing", "--endpoints", ":"], 2), (["fix"], 2)])
def test_nobody_reads_why_it_was_not_begun(words: list[str], code: int) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "etcdfix", *words], stdout=writer, stderr=writer, check=False, timeout=60
    )
    os.close(writer)
    assert done.returncode == code


def test_a_deletion_and_its_undo(registry: Registry, tmp_path: Path) -> None:
    key = registry.key("shop/broken")
    with PlayedSyslog(tmp_path / "socket") as syslog:
        ran = registry.delete(key, "--audit-syslog", str(syslog.path))
        assert ran.code == 0
        sent = syslog.lines()
        assert len(sent) == len(registry.records()) == 2
        assert f"audit head {verify(registry.log).head} of {registry.log}" in sent[-1]
        assert not any("broken" in line for line in sent)
        undo = follow_up(ran.out, "Undo")
        assert registry.run(*shlex.split(undo)[1:], "--yes").code == 0
        assert syslog.heads()[-1] == str(verify(registry.log).head)
    assert registry.stored(key) is not None


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_a_syslog_that_cannot_be_reached(registry: Registry, tmp_path: Path, more: tuple[str, ...]) -> None:
    key = registry.key("shop/broken")
    ran = registry.delete(key, "--audit-syslog", f"{tmp_path}/nothing", *more)
    assert ran.code == 0
    said = f"syslog at {tmp_path}/nothing did not take the head of the audit log: No such file or directory"
    assert (ran.out + ran.err).count(said) == 1
    assert (registry.stored(key) is None) is not bool(more)
    assert verify(registry.log).state is ChainState.WHOLE
