"""What becomes of one transaction: refused, not sent, lost, answered with something else; and records of each."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from etcdfix.commands.delete import DeleteRequest, run_delete
from etcdfix.inputs import machine
from etcdfix.model.model import ClusterIdentity, KnownBy, digest_of
from etcdfix.remediation import commit as commit_module
from etcdfix.remediation import places as places_module
from etcdfix.remediation.audit.grounds import Grounds
from etcdfix.remediation.audit.log import AuditLog
from etcdfix.remediation.audit.record import Link, Record, RecordType, Result, Verb
from etcdfix.remediation.audit.verify import verify
from etcdfix.remediation.backup.file import Backup
from etcdfix.remediation.backup.folder import intent_of
from etcdfix.remediation.commit import Write
from etcdfix.remediation.datastore import Landmarks
from etcdfix.remediation.durable import Filesystem
from etcdfix.remediation.errors import AuditError, NotDurable, UnsafePlace
from etcdfix.remediation.places import RecordPaths
from etcdfix.remediation.writer import _message
from etcdfix.sources.live import LiveSource
from etcdfix.sources.pages import Page
from etcdfix.wire.etcd import RANGE, message
from tests.support.audit_logs import OPERATOR, entry, own_directory, subject
from tests.support.change_runs import BROKEN, Ran, Registry
from tests.support.etcd_proxy import Refusal
from tests.support.fixtures import Patch
from tests.support.lossy_etcd import TXN, LossyProxy
from tests.support.objects import KUBE_SYSTEM_UID, aescbc, secret
from tests.support.remediation_ground import Yes

pytestmark = pytest.mark.etcd

OTHER = b"k8s:enc:aescbc:v1:key1:what nobody has examined"


@pytest.fixture
def lossy(registry: Registry) -> Iterator[LossyProxy]:
    with LossyProxy(registry.etcd.endpoint) as proxy:
        registry.endpoints = proxy.endpoint
        yield proxy


def _delete(
    registry: Registry, step: Callable[[str], None], *, dry_run: bool = False
) -> commit_module.ChangeOutcome:
    request = DeleteRequest(
        key=registry.key("shop/broken"), reason="r", record_paths=registry.places, dry_run=dry_run
    )
    with registry.cluster() as cluster:
        return run_delete(cluster, request, Yes(), preview=lambda _found: None, step=step)


def _at(name: str, action: Callable[[], object]) -> Callable[[str], None]:
    return lambda reached: action() if reached == name else None  # type: ignore[return-value]


def test_refused_by_etcd(registry: Registry, lossy: LossyProxy) -> None:
    denied = Refusal("PERMISSION_DENIED", "etcdserver: permission denied")
    lossy.before = lambda path, _: denied if path == TXN else None
    before = registry.etcd.revision()
    ran = registry.delete(registry.key("shop/broken"))
    assert (ran.code, ran.out, registry.etcd.revision()) == (4, "", before)
    assert registry.records()[-1].outcome == "refused"
    assert not verify(registry.log).open_intents


def test_never_sent(registry: Registry, lossy: LossyProxy) -> None:
    def before(path: str, request: bytes) -> Refusal | None:
        # Once there is an intent, all reading is on the channel for the write.
        lost = path == RANGE.path and registry.log.exists() and b'"intent"' in registry.log.read_bytes()
        return Refusal("UNAVAILABLE", "etcdserver: no leader") if lost else None

    lossy.before = before
    ran = registry.delete(registry.key("shop/broken"))
    assert (ran.code, ran.out, TXN in lossy.calls) == (5, "", False)
    assert registry.records()[-1].outcome == "not-applied"
    assert not verify(registry.log).open_intents


def test_key_that_moves_while_the_transaction_is_on_its_way(registry: Registry, lossy: LossyProxy) -> None:
    key, fixed = registry.key("shop/broken"), aescbc(secret("broken"))

    def overtake(path: str, _request: bytes) -> None:
        if path == TXN:
            registry.etcd.put(key, fixed)

    lossy.before = overtake
    registry.refused(registry.delete(key), "the key was written again", hint="examine it again")
    assert (registry.stored(key), registry.records()[-1].outcome) == (fixed, "refused")


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


def test_another_value_was_there(registry: Registry, lossy: LossyProxy) -> None:
    def change(found: Any) -> None:
        _previous(found).value = OTHER
        _previous(found).lease = 0x77
        _previous(found).version += 3

    key = registry.key("shop/broken")
    ran, (second,) = anomaly(registry, lossy, change)
    assert ran.out.count("\nBackup  ") == 2
    assert f"\nIts value  {digest_of(BROKEN)}\nIts value  {digest_of(OTHER)}\nAudit log  " in ran.out
    assert "Settle it" not in ran.out
    assert second.content.stored.value == OTHER
    assert (second.content.key_base64, second.content.lease) == (key, "77")
    assert (second.content.stored_as_plaintext, second.content.verdict.outcome) == (False, "undetermined")
    assert (second.content.lease_ttl_seconds, second.content.stored.version) == (None, 4)
    recorded = registry.records()[-1]
    assert recorded.backup_sha256 == second.content_sha256
    assert str(second.path) in recorded.backups
    assert not list(registry.backups.glob("*.unconfirmed"))
    # What was really there can be put back as the first backup could be: by the word of the log, unread.
    ran = registry.undo(second.path, "--accept", "expired-lease", configured=False)
    assert ran.code == 0, ran.err
    assert registry.stored(key) == OTHER


def anomaly(registry: Registry, lossy: LossyProxy, change: Callable[[Any], None]) -> tuple[Ran, list[Backup]]:
    """Have a deletion answered otherwise; return what is said, and what was kept beside the first backup."""
    _answer(lossy, change)
    ran = registry.delete(registry.key("shop/broken"))
    assert (ran.code, ran.out.startswith("ANOMALY: ")) == (3, True)
    assert registry.records()[-1].outcome == "anomaly"
    first, *others = sorted(registry.kept(), key=lambda kept: kept.content.purpose, reverse=True)
    assert (first.content.purpose, {kept.content.purpose for kept in others} - {"anomaly"}) == (
        "delete",
        set(),
    )
    return ran, others


def test_sixteen_values_that_came_back_are_kept(registry: Registry, lossy: LossyProxy) -> None:
    keys = [f"{registry.prefix}/secrets/shop/other-{number}".encode() for number in range(17)]

    def change(found: Any) -> None:
        for key in keys:
            again = found.responses[0].response_delete_range.prev_kvs.add()
            again.CopyFrom(_previous(found))
            again.key = key

    ran, others = anomaly(registry, lossy, change)
    assert "; 1 more values came back and were not kept" in ran.out
    assert {kept.content.key_base64 for kept in others} == set(keys[:16])
    assert all(intent_of(kept, registry.log) for kept in others)


def test_what_another_cluster_gave_back_is_no_undo(registry: Registry, lossy: LossyProxy) -> None:
    def change(found: Any) -> None:
        found.header.cluster_id += 1
        _previous(found).value = OTHER

    _ran, (second,) = anomaly(registry, lossy, change)
    assert (second.content.cluster.kube_system_uid, second.content.cluster.identity) == (None, None)
    assert intent_of(second, registry.log) is None


def test_second_backup_that_fails_hides_nothing(
    registry: Registry, lossy: LossyProxy, monkeypatch: Patch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise NotDurable("no space", path=registry.backups)

    monkeypatch.setattr(commit_module, "keep_second_backup", fail)
    ran, _ = anomaly(registry, lossy, lambda found: setattr(_previous(found), "value", OTHER))
    assert "it could not be kept: no space" in ran.out


def _refused(found: Any) -> None:
    """What a refusal tells of is no value to keep, nor is that of a landmark."""
    record = _previous(found)
    found.succeeded = False
    found.responses[0].response_range.kvs.append(record)
    found.responses[0].ClearField("response_delete_range")
    found.responses.add().response_range.kvs.add(key=b"/landmark", create_revision=1)
    found.header.cluster_id += 1


@pytest.mark.parametrize(
    "change",
    [
        lambda found: found.responses[0].response_delete_range.ClearField("prev_kvs"),
        lambda found: setattr(found.responses[0].response_delete_range, "deleted", 2),
        lambda found: found.responses.clear(),
        _refused,
    ],
    ids=["nothing", "the same", "no answer to it", "a refusal"],
)
def test_nothing_else_to_keep(registry: Registry, lossy: LossyProxy, change: Callable[[Any], None]) -> None:
    assert anomaly(registry, lossy, change)[1] == []


def test_something_was_there_although_nothing_was(registry: Registry, lossy: LossyProxy) -> None:
    backup = registry.deleted()

    def change(found: Any) -> None:
        previous = found.responses[0].response_put.prev_kv
        previous.key, previous.value = registry.key("shop/broken"), OTHER
        previous.mod_revision = previous.create_revision = previous.version = 1

    _answer(lossy, change)
    ran = registry.undo(backup.path)
    assert (ran.code, "ANOMALY: " in ran.out) == (3, True)
    recorded = registry.records()[-1]
    second = next(kept for kept in registry.kept() if kept.content.purpose == "anomaly")
    assert (second.content.stored.key, second.content.stored.value) == (registry.key("shop/broken"), OTHER)
    assert second.content.cluster.kube_system_uid == KUBE_SYSTEM_UID
    assert second.content.cluster.identity == backup.content.cluster.identity
    assert (recorded.outcome, recorded.backup_sha256) == ("anomaly", second.content_sha256)


def _look_otherwise(lossy: LossyProxy, key: bytes, change: Callable[[Any], None]) -> None:
    def rewrite(path: str, answer: bytes) -> bytes:
        if path != RANGE.path or TXN not in lossy.calls:
            return answer
        found = message("RangeResponse").FromString(answer)
        for record in found.kvs:
            if record.key == key:
                change(record)
        return bytes(found.SerializeToString())

    lossy.rewrite = rewrite


def test_bytes_of_somebody_else_are_not_ours(registry: Registry, lossy: LossyProxy) -> None:
    key = registry.key("shop/broken")
    good = registry.etcd.put(key, aescbc(secret("broken")))
    registry.etcd.put(key, BROKEN[:-1])
    fixed = aescbc(secret("broken").replace(b"never-to-be-shown", b"never-to-be-found"))

    def lose(path: str, _request: bytes) -> Refusal | None:
        if path != TXN:
            return None
        registry.etcd.put(key, fixed)
        return Refusal("UNAVAILABLE", "Socket closed")

    lossy.before = lose
    ran = registry.put_back(key, f"revision:{good}")
    assert (ran.code, ran.out.startswith("APPLIED-OR-GONE: ")) == (3, True)
    assert "could arrive later" not in ran.out
    assert registry.stored(key) == fixed


def test_bytes_that_were_there_before_the_intent_are_not_ours(registry: Registry, lossy: LossyProxy) -> None:
    """They stand at a revision that the key had not reached when it was examined, at a later one."""
    key, whole = registry.key("shop/broken"), aescbc(secret("broken"))
    good = registry.etcd.put(key, whole)
    revision = registry.etcd.put(key, BROKEN[:-1])
    registry.put("shop/later", aescbc(secret("later")))
    lossy.calls.clear()
    lossy.before = lambda path, _: Refusal("UNAVAILABLE", "Socket closed") if path == TXN else None

    def change(record: Any) -> None:
        record.value, record.mod_revision, record.version = whole, revision + 1, 4

    _look_otherwise(lossy, key, change)
    ran = registry.put_back(key, f"revision:{good}")
    assert ran.code == 3
    assert ran.out.startswith("ANOMALY: ")
    assert registry.records()[-1].outcome == "anomaly"


def test_outcome_that_cannot_be_recorded(registry: Registry, monkeypatch: Patch) -> None:
    real = AuditLog.append

    def append(log: AuditLog, entry: Record) -> Link:
        if entry.type is RecordType.OUTCOME:
            raise AuditError("no space", path=log.path)
        return real(log, entry)

    monkeypatch.setattr(AuditLog, "append", append)
    key = registry.key("shop/broken")
    ran = registry.delete(key)
    assert ran.code == 3
    assert f"DELETED {key.decode()}" in ran.out
    assert "the outcome could not be recorded: no space" in ran.out
    assert "Settle it when etcd answers again\n  etcdfix log settle" in ran.out
    assert "\nHead  " not in ran.out
    assert verify(registry.log).open_intents.keys() == {1}


@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize("case", ["no room", "no directory for backups", "no directory for the log"])
def test_places_that_will_not_do_refuse_before_anything_is_sent(
    registry: Registry, lossy: LossyProxy, case: str, *, dry_run: bool
) -> None:
    """A name that is mistyped must not become a directory where nobody looks."""
    missing = registry.folder / "mistyped"
    if case == "no room":
        (registry.log.parent / f"{registry.log.name}.reserve").mkdir()  # where the room would be taken
    elif case == "no directory for backups":
        registry.backups = missing
    else:
        registry.log = missing / "audit.jsonl"
    with registry.untouched():
        ran = registry.delete(registry.key("shop/broken"), *(["--dry-run"] if dry_run else []))
    assert (ran.code, ran.out) == (4, "")
    assert (
        "there is no room for the record of the outcome" if case == "no room" else str(missing)
    ) in ran.err
    assert TXN not in lossy.calls
    assert not missing.exists()
    assert case != "no room" or registry.records() == []


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGQUIT])
def test_signals_wait_for_the_outcome(registry: Registry, number: signal.Signals) -> None:
    before = signal.getsignal(number)
    outcome = _delete(registry, _at("transaction: before send", lambda: os.kill(os.getpid(), number)))
    assert outcome.result is Result.DELETED
    assert outcome.warnings == (f"{number.name} arrived meanwhile and waited for the outcome",)
    assert signal.getsignal(number) is before


def test_time_that_is_over_while_a_change_is_made_cuts_nothing(registry: Registry) -> None:
    """From the intent on no --timeout counts, not even for what is said afterwards."""
    heard: list[int] = []
    left: list[float] = []
    before = signal.signal(signal.SIGALRM, lambda number, _frame: heard.append(number))
    signal.setitimer(signal.ITIMER_REAL, 30)
    try:
        look = _at("transaction: before send", lambda: left.append(signal.getitimer(signal.ITIMER_REAL)[0]))
        outcome = _delete(registry, look)
        assert (left, signal.getitimer(signal.ITIMER_REAL)) == ([0], (0, 0))
        assert (outcome.result, outcome.warnings, heard) == (Result.DELETED, (), [])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_look_that_did_not_see_everything(registry: Registry, monkeypatch: Patch) -> None:
    """What was lost, or is denied, may be what speaks against a deletion."""
    real = LiveSource.pages

    def cut(source: LiveSource, prefix: bytes) -> Iterator[Page]:
        yield from real(source, prefix)
        source._problems.add("lost after key /registry/secrets/shop/x: no answer for 20.0 s")

    monkeypatch.setattr(LiveSource, "pages", cut)
    with registry.untouched():
        ran = registry.delete(registry.key("shop/broken"))
    assert (ran.code, "not everything in etcd could be read: lost after key" in ran.err) == (5, True)


def _to_put(registry: Registry) -> Write:
    return Write(
        entry=Record(
            type=RecordType.INTENT, verb=Verb.UNDO, operator=OPERATOR,
            subject=subject(registry.key("shop/new"), 0), value_sha256=digest_of(b"hush"),
        ),
        landmarks=Landmarks(), content=None, value=b"hush", done=Result.UNDONE,
    )  # fmt: skip


def _open_intent(registry: Registry, **changes: Any) -> None:
    with AuditLog.open(registry.log) as log:
        key = registry.key("shop/broken")
        log.append(
            entry(
                subject=subject(key, registry.mod_revision(key)),
                value_sha256=digest_of(BROKEN),
                header_revision=0,
                **({"cluster_uid": KUBE_SYSTEM_UID} | changes),
            )
        )


def test_rehearsal_foresees_what_would_be_settled(registry: Registry) -> None:
    _open_intent(registry)
    ran = registry.delete(registry.key("shop/broken"), "--dry-run")
    assert "the open intent 1 would be settled first: not-applied" in ran.out
    assert verify(registry.log).open_intents.keys() == {1}
    ran = registry.delete(registry.key("shop/broken"))
    assert "the open intent 1 was settled: not-applied" in ran.out


def test_an_intent_of_another_etcd_stays_open(registry: Registry) -> None:
    """It has the same key and the same kube-system, and says nothing of what is done here."""
    elsewhere = ClusterIdentity(uid=KUBE_SYSTEM_UID, known_by=KnownBy.VALUE, cluster_id="abc")
    _open_intent(registry, grounds=Grounds(cluster=elsewhere))
    for arguments in (["--dry-run"], []):
        ran = registry.delete(registry.key("shop/broken"), *arguments)
        assert ran.code == 0, ran.err
        assert "intent 1, which stays open, is of another etcd: its etcd has the cluster id abc" in ran.out
        assert verify(registry.log).open_intents.keys() == {1}


@pytest.mark.parametrize("dry_run", [["--dry-run"], []])
def test_rehearsal_refuses_where_the_change_would(registry: Registry, dry_run: list[str]) -> None:
    _open_intent(registry, cluster_uid="")
    with registry.untouched():
        ran = registry.delete(registry.key("shop/broken"), *dry_run)
    registry.refused(ran, "intent 1 may be about another cluster", hint="--accept unknown-cluster")


@pytest.fixture
def default(tmp_path: Path, monkeypatch: Patch) -> RecordPaths:
    state = own_directory(tmp_path / "state")
    named = RecordPaths((state / "backups",), state / "log" / "audit.jsonl")
    monkeypatch.setattr(places_module, "default_directory", lambda: named.directories[0])
    monkeypatch.setattr(places_module, "default_audit_log", lambda: named.log_path)
    return named


def test_default_places_are_made(registry: Registry, default: RecordPaths) -> None:
    ran = registry.delete(registry.key("shop/broken"), places=False)
    assert ran.code == 0, ran.err
    assert len(registry.kept(default.directories[0])) == 1
    assert verify(default.log_path).records == 2


def test_no_default_directory_is_made_where_there_is_nothing_to_back_up(
    registry: Registry, default: RecordPaths
) -> None:
    change = _to_put(registry)
    assert "hush" not in repr(change)
    with registry.cluster() as cluster:
        commit_module.commit(cluster.now, change, RecordPaths(), operator=OPERATOR, by=None)
    assert default.log_path.exists()
    assert not default.directories[0].exists()


def test_the_record_and_the_backup_name_the_disk_that_they_share_with_etcd(
    registry: Registry, monkeypatch: Patch
) -> None:
    """The preview warns of it once, and nothing is refused."""
    machine.etcd_data().mkdir(parents=True)
    kind = Filesystem("ext4", "/dev/sda2", "/")
    monkeypatch.setattr(places_module, "filesystem_kind", lambda _path: kind)
    for arguments in (["--dry-run"], []):
        ran = registry.delete(registry.key("shop/broken"), *arguments)
        assert ran.code == 0, ran.err
        assert (ran.out + ran.err).count(str(machine.etcd_data())) == 1
    recorded = [event.grounds for event in registry.records()]
    assert [grounds and grounds.disk_of_etcd for grounds in recorded] == ["/dev/sda2"] * 3
    (backup,) = registry.kept()
    assert backup.content.grounds is not None
    assert backup.content.grounds.disk_of_etcd == "/dev/sda2"


def test_default_log_is_looked_at_again_once_it_is_made(
    registry: Registry, default: RecordPaths, monkeypatch: Patch
) -> None:
    """Before, it could not be: it was not there."""
    monkeypatch.setattr(places_module, "filesystem_kind", lambda _path: Filesystem("tmpfs", "tmpfs", "/"))
    places = RecordPaths((registry.backups,))
    with registry.cluster() as cluster, pytest.raises(UnsafePlace, match="is on tmpfs"):
        commit_module.commit(cluster.now, _to_put(registry), places, operator=OPERATOR, by=None)
    assert default.log_path.parent.exists()
