"""What a change came to, as a document: one for each run, whatever happens, and nothing else on standard output."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NoReturn

import jsonschema
import pytest
import yaml

from etcdfix.cli import changing
from etcdfix.cli.changing import Teller
from etcdfix.remediation.audit.record import Result, Verb
from etcdfix.remediation.commit import ChangeOutcome
from etcdfix.report.schema import SCHEMAS
from etcdfix.text.commands import RunOptions
from tests.support.audit_logs import own_directory
from tests.support.change_runs import Ran, Registry
from tests.support.fixtures import Captured, Patch

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
    assert (step["what"], step["command"].startswith(f"etcdfix delete {key.decode()} ")) == ("Do it", True)
    assert "--dry-run" not in step["command"]
    shown = registry.delete(key, "--dry-run", "--user=ada:never-shown", "--password", "never-shown").out
    assert f"Next: Do it\n  etcdfix delete {key.decode()} " in shown
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


ODD = "l\udcffg"
"""A name that is not UTF-8, as the shell may pass it."""


def test_paths_that_are_not_text(registry: Registry) -> None:
    """The change is made by then: what it came to must not get lost over a name."""
    registry.log = own_directory(registry.folder / ODD) / "audit.jsonl"
    registry.backups = own_directory(registry.folder / f"{ODD}-backups")
    document = told(registry.delete(registry.key("shop/broken"), "-o", "json"))
    assert document["result"] == "deleted"
    assert "l\\udcffg/audit.jsonl" in document["audit_log"]
    assert "l\\udcffg-backups" in document["backups"][0]


@pytest.mark.parametrize("name", ["outcome_report", "show_change"])
def test_what_was_done_is_told_whatever_happens(registry: Registry, monkeypatch: Patch, name: str) -> None:
    def fail(*_args: object, **_named: object) -> NoReturn:
        raise UnicodeError

    monkeypatch.setattr(changing, name, fail)
    ran = registry.delete(registry.key("shop/broken"), "-o", "json")
    assert ran.code == 0
    assert ran.out == ""
    assert "no document could be written (UnicodeError)" in ran.err
    assert "DELETED " in ran.err
    (kept,) = registry.kept()
    assert f"Backup {kept.path}\nIts value {kept.content.value_sha256}\n" in ran.err
    assert f"To put it back: etcdfix undo {kept.path}\n" in ran.err


def test_without_a_document_an_unknown_outcome_is_told_whole(monkeypatch: Patch, capfd: Captured) -> None:
    def fail(*_args: object, **_named: object) -> NoReturn:
        raise UnicodeError

    monkeypatch.setattr(changing, "outcome_report", fail)
    outcome = ChangeOutcome(
        result=Result.UNKNOWN, detail="etcd did not answer.", backups=("b.json",), values=("sha256:1",),
        audit_log=Path("audit.jsonl"), warnings=("Wait before you try again.",),
    )  # fmt: skip
    teller = Teller(Verb.DELETE, "json", dry_run=False)
    teller.key = b"/registry/secrets/shop/a"
    assert teller.tell(outcome, RunOptions(source=("--endpoints", "e:1"))) == 3
    err = capfd.readouterr().err
    for told in (
        "UNKNOWN /registry/secrets/shop/a", outcome.detail, *outcome.warnings, "Backup b.json", "Its value sha256:1",
        "To put it back: etcdfix undo b.json", "Audit log audit.jsonl, head unknown",
    ):  # fmt: skip
        assert told in err


def test_an_error_is_told_whatever_happens(registry: Registry, monkeypatch: Patch) -> None:
    def fail(*_args: object, **_named: object) -> NoReturn:
        raise UnicodeError

    monkeypatch.setattr(changing, "refusal_report", fail)
    ran = registry.delete(registry.key("shop/good-0"), "-o", "json")
    assert ran.code == 4
    assert "the object is readable" in ran.err
