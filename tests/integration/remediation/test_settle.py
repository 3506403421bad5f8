"""What became of an open intent: every way in which the key can stand, against a real etcd."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from etcdfix.model.errors import RefusedByRule, RemediationRefused, SourceUnreachable
from etcdfix.model.model import ClusterIdentity, KnownBy, StoredValue
from etcdfix.model.rules import Rule
from etcdfix.remediation.audit.grounds import Grounds
from etcdfix.remediation.audit.log import AuditLog
from etcdfix.remediation.audit.record import Record, RecordType, Result, Subject, Verb
from etcdfix.remediation.audit.search import wrote
from etcdfix.remediation.audit.verify import ChainState, read_records, verify
from etcdfix.remediation.backup.file import MARKER_SUFFIX, confirm_backups, record_intent
from etcdfix.remediation.backup.folder import anchors_in, look_into
from etcdfix.remediation.cluster import Acceptances
from etcdfix.remediation.datastore import Datastore, EtcdNow, KeyReading
from etcdfix.remediation.durable import SafeDirectory, open_directory
from etcdfix.remediation.errors import AuditError
from etcdfix.remediation.same_etcd import Recorded, compare_with_etcd
from etcdfix.remediation.settle import (
    PatchProof,
    judge_reading,
    predict,
    refuse_other_store,
    settle_intent,
    settle_open,
)
from etcdfix.report.log import SettledIntent
from etcdfix.sources.etcd.client import EtcdClient
from etcdfix.sources.etcd.failures import CallFailed, Failure, FailureKind
from etcdfix.testing.servers import EtcdServer
from tests.support.audit_logs import CLUSTER, OPERATOR, content, entry, own_directory, subject
from tests.support.connections import connected
from tests.support.fixtures import Patch

pytestmark = pytest.mark.etcd

UID = "d4c1"
HERE = ClusterIdentity.by_uid(UID)
VALUE = b"k8s:enc:aescbc:v1:lost:" + bytes(range(64))
ABOUT = b"/registry/secrets/shop/db"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return own_directory(tmp_path / "log") / "audit.jsonl"


@pytest.fixture
def key(prefix: bytes) -> bytes:
    return prefix + b"secrets/shop/db"


def digest(value: bytes) -> str:
    return f"sha256:{hashlib.sha256(value).hexdigest()}"


def about(key: bytes, mod_revision: int, **changes: Any) -> Subject:
    return msgspec.structs.replace(subject(key, mod_revision), **changes)


def here_with(cluster_id: str) -> ClusterIdentity:
    return ClusterIdentity(uid=UID, known_by=KnownBy.VALUE, cluster_id=cluster_id)


def open_intent(
    path: Path, key: bytes, *, mod_revision: int, verb: Verb = Verb.DELETE, **changes: Any
) -> Record:
    """Leave an intent open, as a process does that died after recording it."""
    given: dict[str, Any] = {
        "subject": about(key, mod_revision),
        "header_revision": max(mod_revision, 1),
        "value_sha256": digest(VALUE),
    }
    with AuditLog.open(path) as log:
        return log.intent(log.append(msgspec.structs.replace(entry(verb=verb), **(given | changes))).sequence)


class Case:
    """A key in etcd, and a log with intents about it."""

    def __init__(self, etcd: EtcdServer, client: EtcdClient, path: Path, key: bytes) -> None:
        self.etcd, self.client, self.path, self.key = etcd, client, path, key

    def put(self, value: bytes = VALUE) -> int:
        return self.etcd.put(self.key, value)

    def put_other(self) -> int:
        return self.etcd.put(self.key + b"-other", VALUE)

    def open(self, mod_revision: int, **changes: Any) -> Record:
        return open_intent(self.path, self.key, mod_revision=mod_revision, **changes)

    def backed_up(
        self, value: bytes, revision: int, cluster_id: str = CLUSTER.cluster_id, **more: Any
    ) -> Record:
        """Leave an intent open that has a backup, which names the etcd."""
        made = msgspec.structs.replace(CLUSTER, cluster_id=cluster_id)
        backups = own_directory(self.path.parent / "backups")
        with AuditLog.open(self.path) as log, open_directory(backups) as directory:
            held = content(StoredValue(self.key, value, revision, revision, 1, 0), cluster=made)
            wanted = entry(subject=about(self.key, revision), header_revision=revision, **more)
            return record_intent(log, wanted, held, [directory])

    def predict(self, intent: Record, *words: Rule, **given: Any) -> SettledIntent:
        accepted = Acceptances(words=words)
        return predict(EtcdNow(self.client), intent, accepted=accepted, **({"cluster": HERE} | given))

    def settle(self, intent: Record, *words: Rule, **given: Any) -> SettledIntent:
        """Settle an intent of the cluster that is there."""
        given = {"cluster": HERE, "accepted": Acceptances(words=words)} | given
        with AuditLog.open(self.path) as log:
            return settle_intent(EtcdNow(self.client), log, intent, OPERATOR, **given)

    def settled(self, intent: Record, *words: Rule, **given: Any) -> Result:
        """Settle, and check what every settling has in common."""
        expected = self.predict(intent, *words, **given)
        found = self.settle(intent, *words, **given)
        assert (found.settled, expected.record) == (True, None)
        assert (found.outcome, found.detail) == (expected.outcome, expected.detail)
        event = list(read_records(self.path))[-1]
        assert (str(event.link), event.type, event.outcome) == (
            found.record,
            RecordType.SETTLED,
            found.outcome,
        )
        assert (event.detail, event.intent) == (found.detail, intent.link.sequence)
        assert event.audit_id == intent.audit_id
        assert verify(self.path).state is ChainState.WHOLE
        return Result(found.outcome)

    def stays_open(self, intent: Record, why: str, *, cluster_id: str = "") -> None:
        """Assert that an intent is refused as one of another etcd, and that nothing is recorded."""
        written = self.path.read_bytes()
        for attempt in (self.predict, self.settle):
            with pytest.raises(RefusedByRule, match=why) as caught:
                attempt(intent, cluster=here_with(cluster_id))
            assert caught.value.rule == Rule.OTHER_CLUSTER_ID
        assert self.path.read_bytes() == written


@pytest.fixture
def case(etcd: EtcdServer, path: Path, key: bytes) -> Iterator[Case]:
    with connected(etcd.endpoint) as client:
        yield Case(etcd, client, path, key)


# What one read says.

PUT = b"k8s:enc:secretbox:v1:key1:repaired"


@pytest.mark.parametrize(
    ("verb", "expected", "header", "present", "revision", "result"),
    [
        (Verb.DELETE, 41, 50, (41, 12), 90, Result.NOT_APPLIED),
        (Verb.DELETE, 41, 50, (60, 12), 90, Result.NOT_APPLIED),
        (Verb.UNDO, 0, 50, None, 90, Result.NOT_APPLIED),
        (Verb.DELETE, 41, 50, (41, 12, b"other"), 90, Result.ANOMALY),
        (Verb.DELETE, 41, 50, (40, 12), 90, Result.ANOMALY),
        (Verb.DELETE, 41, 50, (60, 60), 90, Result.APPLIED_OR_GONE),
        (Verb.DELETE, 41, 50, None, 90, Result.APPLIED_OR_GONE),
        (Verb.UNDO, 0, 50, (60, 60, b"other"), 90, Result.APPLIED_OR_GONE),
        (Verb.FIX, 41, 50, (60, 12), 90, Result.APPLIED_OR_GONE),
        (Verb.FIX, 41, 50, None, 90, Result.APPLIED_OR_GONE),
        (Verb.UNDO, 0, 50, (60, 60), 90, Result.UNDONE),
        # etcd stands before what was examined, or before its own answer of then; as far as it counts.
        (Verb.DELETE, 41, 0, None, 40, Result.ANOMALY),
        (Verb.DELETE, 41, 0, None, 41, Result.APPLIED_OR_GONE),
        (Verb.DELETE, 41, 50, None, 49, Result.ANOMALY),
        (Verb.DELETE, 41, 50, None, 50, Result.APPLIED_OR_GONE),
        # It went on from there: the key has a revision that it did not have when the intent's read found another.
        (Verb.DELETE, 41, 50, (50, 12), 90, Result.ANOMALY),
        (Verb.DELETE, 41, 50, (51, 12), 90, Result.NOT_APPLIED),
        (Verb.DELETE, 41, 50, (50, 50), 90, Result.ANOMALY),
        (Verb.UNDO, 0, 50, (50, 50), 90, Result.ANOMALY),
        (Verb.UNDO, 0, 50, (51, 51), 90, Result.UNDONE),
        (Verb.FIX, 41, 50, (42, 12), 90, Result.ANOMALY),
        (Verb.FIX, 41, 41, (42, 12), 90, Result.APPLIED_OR_GONE),
        # Made by the very write that was examined, and written since: never deleted.
        (Verb.DELETE, 41, 50, (60, 41), 90, Result.NOT_APPLIED),
        (Verb.DELETE, 41, 50, (60, 42), 90, Result.APPLIED_OR_GONE),
    ],
)
def test_every_revision_counts(
    path: Path,
    verb: Verb,
    expected: int,
    header: int,
    present: tuple[Any, ...] | None,
    revision: int,
    result: Result,
) -> None:
    """A key that stands, with the bytes of the intent or others, at (mod_revision, create_revision)."""
    intent = open_intent(path, ABOUT, mod_revision=expected, verb=verb, header_revision=header)
    stored = None
    if present is not None:
        mod, create, *other = present
        stored = StoredValue(ABOUT, other[0] if other else VALUE, mod, create, 1, 0)
    reading = KeyReading(stored=stored, revision=revision, cluster_id=1, member_id=2)
    assert judge_reading(intent, reading)[0] is result
    assert judge_reading(intent, reading, nothing_was_sent=True)[0] is Result.NOT_APPLIED


@pytest.mark.parametrize(("verb", "done"), [(Verb.UNDO, Result.UNDONE), (Verb.FIX, Result.FIXED)])
@pytest.mark.parametrize(
    "how", ["its own", "other bytes", "the second write", "no version", "the header is later"]
)
def test_next_write_with_its_bytes_is_its_own(case: Case, verb: Verb, done: Result, how: str) -> None:
    revision = case.put()
    if how == "the second write":
        case.put(b"between")
    written = case.put(b"other" if how == "other bytes" else PUT)
    case.put_other()
    later = how == "the header is later"
    intent = case.open(
        revision, verb=verb, detail=f"now {digest(PUT)}", header_revision=written if later else revision,
        subject=about(case.key, revision, version=0 if how == "no version" else 1),
    )  # fmt: skip
    found = case.settle(intent, *([Rule.OTHER_CLUSTER_ID] if later else []))
    now = StoredValue(case.key, PUT, written, revision, 2, 0)
    if how == "its own":
        assert (found.outcome, found.header_revision) == (done, written)
        assert wrote(case.path, intent, now)
        assert not wrote(case.path, intent, msgspec.structs.replace(now, value=VALUE))
    else:
        assert found.outcome in {Result.APPLIED_OR_GONE, Result.ANOMALY}
        assert not wrote(case.path, intent, now)


@pytest.mark.parametrize(
    ("way", "carries", "result"),
    [
        ("patch", PatchProof(True), Result.FIXED),
        ("patch", PatchProof(False), Result.APPLIED_OR_GONE),
        ("patch", PatchProof(None, "no plugin was asked"), Result.UNKNOWN),
        ("patch", None, Result.UNKNOWN),
        ("put", PatchProof(True), Result.APPLIED_OR_GONE),
        ("never done", PatchProof(True), Result.NOT_APPLIED),  # it did not move: what it carries is not asked
    ],
)
def test_a_patch_is_known_by_what_the_value_carries(
    case: Case, way: str, carries: PatchProof | None, result: Result
) -> None:
    intent = case.open(case.put(), verb=Verb.FIX, way="put" if way == "put" else "patch")
    if way != "never done":
        case.put(b"k8s:enc:aescbc:v1:key2:" + bytes(64))
    was_patched = None if carries is None else lambda _intent, _stored: carries
    found = case.settle(intent, was_patched=was_patched)
    assert (found.outcome, found.settled) == (result, result is not Result.UNKNOWN)
    assert bool(verify(case.path).open_intents) is not found.settled


# Is it the etcd of the intent?


def test_another_etcd_is_refused_until_it_is_accepted(case: Case) -> None:
    """The key has other bytes at its revision; or the etcd was put back."""
    intent = case.open(case.put(b"not what was examined"))
    case.stays_open(intent, "had other bytes")
    assert case.settled(intent, Rule.OTHER_CLUSTER_ID) is Result.ANOMALY
    revision = case.put()
    number = f"{case.client.cluster_id:x}"
    intent = case.open(revision, header_revision=revision + 1000, grounds=Grounds(cluster=here_with(number)))
    for cluster_id in ("", number):  # also under the same id
        case.stays_open(intent, "had come to revision", cluster_id=cluster_id)
    assert case.settled(intent, Rule.OTHER_CLUSTER_ID) is Result.ANOMALY


@pytest.mark.parametrize("by", ["grounds", "backup"])
def test_another_cluster_id(case: Case, by: str) -> None:
    """By the etcd that holds kube-system, or by the one of the key."""
    grounds = Grounds(cluster=here_with("abc")) if by == "grounds" else None
    intent = case.backed_up(VALUE, case.put(), grounds=grounds)
    if grounds is not None:
        Path(intent.backups[0]).unlink()
    told = "abc" if by == "grounds" else CLUSTER.cluster_id
    case.stays_open(intent, f"the cluster id {told}", cluster_id="def")


@pytest.mark.parametrize(
    ("how", "accept", "by_backup"),
    [
        ("other bytes", False, False), ("never there", False, True), ("another revision", False, False),
        ("gone since", False, True), ("moved since", True, False),
    ],
)  # fmt: skip
def test_what_contradicts_the_record_under_the_same_id_is_an_anomaly(
    case: Case, how: str, accept: bool, by_backup: bool
) -> None:
    """Members that disagree, or a copied data directory that went on: nobody can say what became of the intent."""
    revision = case.put_other() if how == "never there" else case.put()
    if how == "another revision":
        revision = case.put_other()
    if how == "gone since":
        case.etcd.delete(case.key)
    if how == "moved since":
        case.put()
    examined = b"other bytes" if how in {"other bytes", "gone since", "moved since"} else VALUE
    here = here_with(f"{case.client.cluster_id:x}")
    if by_backup:
        intent = case.backed_up(examined, revision, here.cluster_id)
        confirm_backups(intent)
    else:
        intent = case.open(revision, value_sha256=digest(examined), grounds=Grounds(cluster=here))
    words = [Rule.OTHER_CLUSTER_ID] if accept else []
    assert case.settled(intent, *words, cluster=here) is Result.ANOMALY


def test_what_is_compacted_is_said(case: Case) -> None:
    intent = case.open(case.put())
    case.etcd.delete(case.key)
    case.put_other()
    case.etcd.compact()
    found = case.settle(intent)
    assert found.outcome == Result.APPLIED_OR_GONE
    assert f"revision {intent.subject.mod_revision} is compacted" in found.warnings[0]


def test_an_etcd_that_does_not_say_how_the_key_stood(case: Case, monkeypatch: Patch) -> None:
    intent = case.open(case.put())
    case.etcd.delete(case.key)
    real = case.client.call

    def call(method: Any, request: Any) -> Any:
        if request.revision:
            raise CallFailed(Failure(FailureKind.DENIED, "permission denied"))
        return real(method, request)

    monkeypatch.setattr(case.client, "call", call)
    assert case.predict(intent).outcome == Result.UNKNOWN


@pytest.mark.parametrize(
    "how",
    ["nothing there", "still there", "another value", "as recorded", "compacted", "before", "all before"],
)
def test_a_deletion_at_its_revision(case: Case, how: str) -> None:
    """While it is kept: the value just before the revision of the deletion, and nothing at it."""
    put = case.put_other() if how in {"nothing there", "another value"} else case.put()
    if how == "another value":
        case.put(b"another")
    if how == "before":
        case.put_other()
    if how != "still there":
        case.etcd.delete(case.key)
    deleted = case.put_other() if how == "still there" else case.etcd.revision()
    if how == "compacted":
        case.put_other()
    if how in {"compacted", "before", "all before"}:  # the revision of the compaction can be read
        case.etcd.etcdctl("compact", str(case.etcd.revision() - (how == "before")))
    recorded = Recorded(
        key=case.key, mod_revision=put, value_sha256=digest(VALUE), revision=deleted, deleted_at=deleted,
        cluster_id="", identity=ClusterIdentity(),
    )  # fmt: skip
    now = EtcdNow(case.client)
    held = compare_with_etcd(now, recorded, ClusterIdentity(), now.read_key(case.key))
    assert bool(held.contradiction) == (how in {"nothing there", "still there", "another value"})
    compacted = {"compacted": deleted, "all before": deleted - 1}.get(how)
    assert held.unseen.startswith(f"revision {compacted} is compacted" if compacted else "")
    assert bool(held.unseen) == bool(compacted)


def test_another_cluster_is_refused_and_nothing_recorded(case: Case) -> None:
    intent = case.open(case.put())
    written = case.path.read_bytes()
    for words in ((), (Rule.UNKNOWN_CLUSTER,)):
        with pytest.raises(RemediationRefused, match=r"uid d4c1.*with kube-system uid other"):
            case.settle(intent, *words, cluster=ClusterIdentity.by_uid("other"))
    assert case.path.read_bytes() == written


@pytest.mark.parametrize(("recorded", "live"), [("", UID), (UID, ""), ("", "")])
def test_unknown_cluster_must_be_accepted(case: Case, recorded: str, live: str) -> None:
    intent = case.open(case.put(), cluster_uid=recorded)
    cluster = ClusterIdentity.by_uid(live)
    with pytest.raises(RemediationRefused) as caught:
        case.predict(intent, cluster=cluster)
    assert "etcdfix log settle LOG --accept unknown-cluster" in caught.value.hint
    assert case.settled(intent, Rule.UNKNOWN_CLUSTER, cluster=cluster) is Result.NOT_APPLIED
    before, after = read_records(case.path)
    assert after.accepted == (*before.accepted, "--accept unknown-cluster")


STATE = "/srv/k3s/my db/state.db"


@pytest.mark.parametrize(
    ("made_with", "here", "hint"),
    [
        ("10.0.0.1:2379", "", ""),  # members are interchangeable: which cluster it is, its uid says
        (STATE, STATE, ""),
        (STATE, STATE.replace("my db", "other/../my db"), ""),
        (STATE, "", f"--kine '{STATE}'"),
        (STATE, "/srv/copy/state.db", f"--kine '{STATE}'"),
        ("10.0.0.1:2379", "/srv/copy/state.db", "--endpoints"),
    ],
)
def test_an_intent_is_settled_where_it_was_made(path: Path, made_with: str, here: str, hint: str) -> None:
    place = cast("Datastore", SimpleNamespace(file=Path(here) if here else None))
    held = content(cluster=msgspec.structs.replace(CLUSTER, endpoints=(made_with,)))
    with AuditLog.open(path) as log, open_directory(own_directory(path.parent / "backups")) as directory:
        intent = record_intent(log, entry(), held, [directory])
    if hint:
        with pytest.raises(RemediationRefused) as caught:
            refuse_other_store(place, intent)
        assert hint in caught.value.hint
        # A restore where nothing was has no backup; one that is gone says nothing.
        Path(intent.backups[0]).unlink()
        refuse_other_store(place, open_intent(path, ABOUT, mod_revision=5))
    refuse_other_store(place, intent)


# Markers, and an etcd that does not answer.


def test_no_answer_leaves_the_intent_and_its_marker(case: Case, tmp_path: Path, monkeypatch: Patch) -> None:
    """The marker proves that nothing was sent, also to whoever asks again."""
    marker = own_directory(tmp_path / "one") / f"a.json{MARKER_SUFFIX}"
    marker.touch()
    intent = case.open(5, backups=(str(tmp_path / "one" / "a.json"),))

    def silent(*_: object) -> KeyReading:
        raise SourceUnreachable("nobody is there")

    monkeypatch.setattr(EtcdNow, "read_key", silent)
    found = case.settle(intent)
    assert (found.outcome, found.settled, found.header_revision) == (Result.UNKNOWN, False, 0)
    assert (found.warnings, marker.exists()) == ([], True)
    assert [event.outcome for event in read_records(case.path)] == [None, "unknown"]
    assert verify(case.path).state is ChainState.UNFINISHED


def test_unconfirmed_backup_proves_that_nothing_was_sent(case: Case, monkeypatch: Patch) -> None:
    class Killed(BaseException):
        pass

    def die(*_given: object, **_more: object) -> None:
        raise Killed

    revision = case.put()
    with monkeypatch.context() as patch:
        patch.setattr(SafeDirectory, "remove", die)  # of the marker
        with pytest.raises(Killed):
            case.backed_up(VALUE, revision, f"{case.client.cluster_id:x}")
    (intent,) = verify(case.path).open_intents.values()
    (file,) = map(Path, intent.backups)
    assert anchors_in(look_into(file.parent), case.path) == []
    case.etcd.delete(case.key)
    found = case.settle(intent)
    assert (found.outcome, found.warnings) == (Result.NOT_APPLIED, [])
    assert not file.with_name(file.name + MARKER_SUFFIX).exists()
    assert [anchor.link for anchor in anchors_in(look_into(file.parent), case.path)] == [intent.link]


def test_marker_that_cannot_be_removed_is_told(case: Case, tmp_path: Path) -> None:
    place = own_directory(tmp_path / "one")
    (place / ("a.json" + MARKER_SUFFIX)).touch()
    intent = case.open(case.put(), backups=(str(place / "a.json"),))
    place.chmod(0o777)
    found = case.settle(intent)
    assert (found.outcome, len(found.warnings)) == (Result.NOT_APPLIED, 1)


def test_backups_that_were_moved_away_need_no_confirming(case: Case, tmp_path: Path) -> None:
    intent = case.open(case.put(), backups=(str(tmp_path / "gone" / "a.json"),))
    case.etcd.delete(case.key)
    assert case.settle(intent).warnings == []
    # Once it is closed, it is not closed again.
    with pytest.raises(AuditError, match="not open"):
        case.settle(intent)


def test_open_intents_of_one_key_of_one_cluster(case: Case) -> None:
    revision = case.put()
    mine, nameless = case.open(revision), case.open(revision, cluster_uid="")
    case.open(revision, cluster_uid="another")
    open_intent(case.path, case.key + b"b", mod_revision=revision)
    said = list[str]()
    given: Any = {"cluster": HERE, "accepted": Acceptances(words=(Rule.UNKNOWN_CLUSTER,)), "say": said.append}
    with AuditLog.open(case.path) as log:
        found = [*settle_open(EtcdNow(case.client), log, {case.key}, None, **given)]
    assert [one.sequence for one in found] == [mine.link.sequence, nameless.link.sequence]
    assert said[0].startswith("the open intent 1 would be settled first: ")
    assert len(said) == 2
