"""What becomes of one transaction: refused, not sent, lost, answered with something else; and records of each."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from etcdfix.errors import AuditError, BackupNotDurable, RefusedByRule
from etcdfix.remediation import commit as commit_module
from etcdfix.remediation.audit import AuditLog
from etcdfix.remediation.audit_record import Entry, Link, RecordType, Result, Verb
from etcdfix.remediation.audit_verify import verify
from etcdfix.remediation.commit import Change, Places
from etcdfix.remediation.delete import DeleteRequest, run_delete
from etcdfix.remediation.durable import default_audit_log
from etcdfix.remediation.writer import ABSENT, _message
from etcdfix.wire.etcd import RANGE, message
from tests.support.audit_logs import OPERATOR, subject
from tests.support.change_runs import BROKEN, Agreeing, Registry
from tests.support.etcd_proxy import Refusal
from tests.support.etcd_server import EtcdServer
from tests.support.lossy_etcd import TXN, LossyProxy
from tests.support.objects import aescbc, secret

pytestmark = pytest.mark.etcd

OTHER = b"k8s:enc:aescbc:v1:key1:what nobody has examined"


@pytest.fixture
def registry(etcd: EtcdServer, prefix: bytes, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Registry:
    return Registry(etcd, prefix, tmp_path, capfd)


@pytest.fixture
def lossy(registry: Registry) -> Iterator[LossyProxy]:
    with LossyProxy(registry.etcd.endpoint) as proxy:
        registry.endpoints = proxy.endpoint
        yield proxy


def _delete(
    registry: Registry, step: Callable[[str], None], *, dry_run: bool = False
) -> commit_module.Outcome:
    with registry.cluster() as cluster:
        return run_delete(
            cluster,
            DeleteRequest(
                key=registry.key("shop/broken"), reason="r", places=registry.places, dry_run=dry_run
            ),
            Agreeing(),
            preview=lambda _found: None,
            step=step,
        )


def _at(name: str, action: Callable[[], object]) -> Callable[[str], None]:
    def step(reached: str) -> None:
        if reached == name:
            action()

    return step


# Etcd says no, or nobody is there.


def test_refused_by_etcd(registry: Registry, lossy: LossyProxy) -> None:
    lossy.before = lambda path, _: (
        Refusal("PERMISSION_DENIED", "etcdserver: permission denied") if path == TXN else None
    )
    before = registry.etcd.revision()
    ran = registry.delete(registry.key("shop/broken"))
    assert (ran.code, ran.out) == (4, "")
    assert "nothing was changed" in ran.err
    assert registry.etcd.revision() == before
    assert registry.events()[-1].annotations.outcome == "refused"
    assert not verify(registry.log).open_intents


def test_never_sent(registry: Registry, lossy: LossyProxy) -> None:
    def before(path: str, request: bytes) -> Refusal | None:
        # Only the reading on the channel for the write asks for the key alone.
        asks = path == RANGE.path and message("RangeRequest").FromString(request).keys_only
        lost = asks and registry.log.exists()  # the history is read that way too, before there is an intent
        return Refusal("UNAVAILABLE", "etcdserver: no leader") if lost else None

    lossy.before = before
    ran = registry.delete(registry.key("shop/broken"))
    assert (ran.code, ran.out) == (5, "")
    assert "no transaction was sent" in ran.err
    assert TXN not in lossy.calls
    assert registry.events()[-1].annotations.outcome == "not-applied"
    assert not verify(registry.log).open_intents


# Something else comes back.


def _answer(lossy: LossyProxy, change: Callable[[Any], None]) -> None:
    def rewrite(path: str, answer: bytes) -> bytes:
        if path != TXN:
            return answer
        found = _message("TxnResponse").FromString(answer)
        change(found)
        return bytes(found.SerializeToString())

    lossy.rewrite = rewrite


def _previous(found: Any) -> Any:
    return found.responses[0].response_delete_range.prev_kvs[0]


@pytest.mark.parametrize("shift", [0, 3])
def test_another_value_was_there(registry: Registry, lossy: LossyProxy, shift: int) -> None:
    def change(found: Any) -> None:
        _previous(found).value = OTHER
        _previous(found).lease = 0x77
        _previous(found).version += shift

    _answer(lossy, change)
    key = registry.key("shop/broken")
    ran = registry.delete(key)
    assert ran.code == 3
    assert f"ANOMALY: {key.decode()}: " in ran.out
    assert "what was there was kept as a second backup" in ran.out
    assert ran.out.count("\nBackup: ") == 2
    assert "Settle it" not in ran.out
    first, second = sorted(registry.kept(), key=lambda backup: backup.content.purpose, reverse=True)
    assert (first.content.purpose, first.content.stored.value) == ("delete", BROKEN)
    assert (second.content.purpose, second.content.stored.value) == ("anomaly", OTHER)
    assert (second.content.key_base64, second.content.lease) == (key, "77")
    assert second.content.lease_ttl_seconds is None
    assert second.content.stored.version == 1 + shift
    annotations = registry.events()[-1].annotations
    assert annotations.outcome == "anomaly"
    assert str(second.path) in annotations.backups
    assert annotations.backup_sha256 == second.content_sha256
    assert not list(registry.backups.glob("*.unconfirmed"))


def test_value_of_another_key(registry: Registry, lossy: LossyProxy) -> None:
    def change(found: Any) -> None:
        _previous(found).key = b"/registry/secrets/shop/other"

    _answer(lossy, change)
    ran = registry.delete(registry.key("shop/broken"))
    assert ran.code == 3
    assert "it tells of another key" in ran.out
    kept = {backup.content.key_base64 for backup in registry.kept()}
    assert kept == {registry.key("shop/broken"), b"/registry/secrets/shop/other"}


def test_second_backup_that_fails_hides_nothing(
    registry: Registry, lossy: LossyProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    def change(found: Any) -> None:
        _previous(found).value = OTHER

    def fail(*_: object, **__: object) -> None:
        raise BackupNotDurable("no space", path=registry.backups)

    _answer(lossy, change)
    monkeypatch.setattr(commit_module, "keep_second_backup", fail)
    ran = registry.delete(registry.key("shop/broken"))
    assert ran.code == 3
    assert "ANOMALY: " in ran.out
    assert "it could not be kept: no space" in ran.out
    assert registry.events()[-1].annotations.outcome == "anomaly"


@pytest.mark.parametrize("what", ["nothing", "the same", "no answer to it"])
def test_nothing_else_to_keep(registry: Registry, lossy: LossyProxy, what: str) -> None:
    def change(found: Any) -> None:
        if what == "nothing":
            del found.responses[0].response_delete_range.prev_kvs[:]
        elif what == "the same":
            found.responses[0].response_delete_range.deleted = 2
        else:
            del found.responses[:]

    _answer(lossy, change)
    ran = registry.delete(registry.key("shop/broken"))
    assert ran.code == 3
    assert "ANOMALY: " in ran.out
    assert len(registry.kept()) == 1
    assert registry.events()[-1].annotations.outcome == "anomaly"


def test_something_was_there_although_nothing_was(registry: Registry, lossy: LossyProxy) -> None:
    backup = registry.deleted()

    def change(found: Any) -> None:
        previous = found.responses[0].response_put.prev_kv
        previous.key, previous.value = registry.key("shop/broken"), OTHER
        previous.mod_revision = previous.create_revision = previous.version = 1

    _answer(lossy, change)
    ran = registry.restore(str(backup.path))
    assert ran.code == 3
    assert "ANOMALY: " in ran.out
    assert registry.events()[-1].annotations.outcome == "anomaly"


# The record of the outcome.


def test_outcome_that_cannot_be_recorded(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    real = AuditLog.append

    def append(log: AuditLog, entry: Entry) -> Link:
        if entry.type is RecordType.OUTCOME:
            raise AuditError("no space", path=log.path)
        return real(log, entry)

    monkeypatch.setattr(AuditLog, "append", append)
    key = registry.key("shop/broken")
    ran = registry.delete(key)
    assert ran.code == 3
    assert f"DELETED {key.decode()}" in ran.out
    assert "the outcome could not be recorded: no space" in ran.out
    assert "Settle it when etcd answers again: etcdfix audit reconcile" in ran.out
    assert ", head " not in ran.out
    assert verify(registry.log).open_intents.keys() == {1}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_wait_for_the_outcome(registry: Registry, number: signal.Signals) -> None:
    before = signal.getsignal(number)
    outcome = _delete(registry, _at("transaction: before send", lambda: os.kill(os.getpid(), number)))
    assert outcome.result is Result.DELETED
    assert outcome.warnings == (f"{number.name} arrived meanwhile and waited for the outcome",)
    assert signal.getsignal(number) is before
    assert registry.events()[-1].annotations.outcome == "deleted"


def test_interruption_before_the_intent_changes_nothing(registry: Registry) -> None:
    def interrupt() -> None:
        os.kill(os.getpid(), signal.SIGINT)

    with registry.untouched(), pytest.raises(KeyboardInterrupt):
        _delete(registry, _at("confirm", interrupt))


# A rehearsal.


def test_key_that_moves_before_the_rehearsal(registry: Registry) -> None:
    key = registry.key("shop/broken")
    mended = aescbc(secret("broken"))
    with pytest.raises(RefusedByRule) as caught:
        _delete(registry, _at("rehearse: compare", lambda: registry.etcd.put(key, mended)), dry_run=True)
    assert caught.value.rule == "moved"
    assert "the key was written again" in caught.value.message
    assert registry.stored(key) == mended
    assert registry.events() == []


def test_rehearsal_with_nothing_to_back_up(registry: Registry) -> None:
    key = registry.key("shop/new")
    change = Change(
        entry=Entry(
            type=RecordType.DRY_RUN, verb=Verb.RESTORE, operator=OPERATOR, subject=subject(key, 0),
            value_sha256="sha256:" + "0" * 64,
        ),
        expected=ABSENT, content=None, value=b"x", done=Result.RESTORED,
    )  # fmt: skip
    assert change.key == key
    with registry.untouched(), registry.cluster() as cluster:
        outcome = commit_module.rehearse(cluster.source.client, change, registry.places, operator=OPERATOR)
    assert (outcome.result, outcome.backups) == (None, ())
    assert registry.events()[0].annotations.value_sha256 == "sha256:" + "0" * 64


def test_places_default_to_the_log_of_this_user(tmp_path: Path) -> None:
    assert Places().log_path == default_audit_log()
    assert Places(audit_log=tmp_path / "a").log_path == tmp_path / "a"
