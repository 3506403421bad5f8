"""Intents that were worked through: the exit code, what is advised, and that nobody is asked where none is open."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import msgspec
import pytest

from etcdfix.commands.settle import advised, exit_code_of, settle_log
from etcdfix.model.model import ClusterIdentity
from etcdfix.remediation.audit.record import Record, Result, Verb
from etcdfix.remediation.cluster import Acceptances
from etcdfix.remediation.settle import settled_intent
from etcdfix.report.log import SettledIntent
from etcdfix.text.commands import RunOptions
from tests.support.audit_logs import own_directory, write_log


@pytest.mark.parametrize("result", Result)
def test_only_what_is_certain_is_settled(result: Result) -> None:
    code = 4 if result is Result.REFUSED else 3 if result in {Result.UNKNOWN, Result.ANOMALY} else 0
    assert exit_code_of({result.value}) == code
    assert exit_code_of({result.value, "refused"}) == 4


def test_nobody_is_asked_where_no_intent_is_open(tmp_path: Path) -> None:
    def connect(_intents: Sequence[Record]) -> NoReturn:
        raise AssertionError

    log = own_directory(tmp_path / "log") / "audit.jsonl"
    write_log(log)
    before = log.read_bytes()
    for dry_run in (True, False):
        settled = settle_log(log, connect, etcd_user="", dry_run=dry_run, accepted=Acceptances(), run=ETCD)
        assert (settled.exit_code, settled.intents) == (0, [])
        assert settled.document().status.headline == "no open intents"
    assert log.read_bytes() == before


def item(
    result: Result, verb: Verb = Verb.DELETE, backups: tuple[str, ...] = ("/b/1.json",), uid: str = "u"
) -> tuple[Any, SettledIntent]:
    """Return one intent that was worked through."""
    intent: Any = SimpleNamespace(
        link=SimpleNamespace(sequence=1),
        verb=verb,
        backups=backups,
        is_patch=False,
        subject=SimpleNamespace(key=b"/registry/secrets/shop/db"),
        cluster=ClusterIdentity.by_uid(uid),
    )
    return intent, settled_intent(intent, result, "seen", header_revision=7)


ETCD, KINE = RunOptions(), RunOptions(source=("--kine", "/srv/state.db"))


def settled_one(found: tuple[Any, SettledIntent], run: RunOptions = ETCD) -> tuple[str, dict[str, str]]:
    """Return what to do about one intent: a sentence, and commands."""
    one = advised(Path("/l"), found[0], found[1], run)
    return one.next_step, {each.what: each.command.line(run) for each in one.follow_ups}


@pytest.mark.parametrize("result", Result)
@pytest.mark.parametrize("verb", [Verb.DELETE, Verb.UNDO])
@pytest.mark.parametrize("backups", [("/b/1.json",), ()])
def test_only_a_deletion_that_may_have_happened_is_to_be_undone(
    result: Result, verb: Verb, backups: tuple[str, ...]
) -> None:
    _, commands = settled_one(item(result, verb, backups))
    gone = result is Result.APPLIED_OR_GONE and verb is Verb.DELETE and bool(backups)
    assert any(line.startswith("etcdfix undo /b/1.json") for line in commands.values()) is gone
    assert ("Look at it" in commands) is (result is Result.ANOMALY)
    assert any("stays open" in what for what in commands) is (result is Result.UNKNOWN)


def test_what_stays_open_says_what_would_tell() -> None:
    """Without a revision etcd gave no answer; with one, it gave a value that could not be examined."""
    (intent, answered), unexamined = item(Result.UNKNOWN), item(Result.UNKNOWN, Verb.FIX)
    silent = intent, msgspec.structs.replace(answered, header_revision=0)
    assert "etcd answers" in settled_one(silent)[0]
    assert "the file can be read" in settled_one(silent, KINE)[0]
    assert [*settled_one(unexamined)[1].values()] == ["etcdfix explain /registry/secrets/shop/db"]
