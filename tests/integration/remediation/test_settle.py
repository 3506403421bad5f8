"""What became of an open intent: every way in which the key can stand, against a real etcd."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import UTC, datetime
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
from etcdfix.remediation.durable import open_directory
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


@pytest.fixture
def client(etcd: EtcdServer) -> Iterator[EtcdClient]:
    with connected(etcd.endpoint) as opened:
        yield opened


def digest(value: bytes) -> str:
    return f"sha256:{hashlib.sha256(value).hexdigest()}"


def about(key: bytes, mod_revision: int, **changes: Any) -> Subject:
    return msgspec.structs.replace(subject(key, mod_revision), **changes)


def open_intent(
    path: Path, key: bytes, *, mod_revision: int, verb: Verb = Verb.DELETE, **changes: object
) -> Record:
    """Leave an intent open, as a process does that died after recording it."""
    given: dict[str, object] = {
        "subject": about(key, mod_revision),
        "header_revision": max(mod_revision, 1),
        "value_sha256": digest(VALUE),
    }
    with AuditLog.open(path) as log:
        return log.intent(log.append(msgspec.structs.replace(entry(verb=verb), **(given | changes))).sequence)


def here_with(cluster_id: str) -> ClusterIdentity:
    return ClusterIdentity(uid=UID, known_by=KnownBy.VALUE, cluster_id=cluster_id)


def accepting(*words: Rule) -> Acceptances:
    return Acceptances(words=words)


def settle(client: EtcdClient, path: Path, intent: Record, *words: Rule, **given: Any) -> SettledIntent:
    """Settle an intent of the cluster that is there."""
    with AuditLog.open(path) as log:
        given = {"cluster": HERE} | given
        return settle_intent(EtcdNow(client), log, intent, OPERATOR, accepted=accepting(*words), **given)


def settled(client: EtcdClient, path: Path, intent: Record, *words: Rule, **given: Any) -> Result:
    """Settle, and check what every settling has in common."""
    accepted = accepting(*words)
    expected = predict(EtcdNow(client), intent, accepted=accepted, **({"cluster": HERE} | given))
    found = settle(client, path, intent, *words, **given)
    assert verify(path).open_intents == {}
    assert expected.record is None
    assert (found.outcome, found.detail) == (expected.outcome, expected.detail)
    event = list(read_records(path))[-1]
    assert (str(event.link), event.type, event.outcome) == (found.record, RecordType.SETTLED, found.outcome)
    assert (event.detail, event.intent) == (found.detail, intent.link.sequence)
    assert event.audit_id == intent.audit_id
    assert verify(path).state is ChainState.WHOLE
    assert found.settled
    return Result(found.outcome)


def stays_open(client: EtcdClient, path: Path, intent: Record, why: str, *, cluster_id: str = "") -> None:
    """Assert that an intent is refused as one of another etcd, and that nothing is recorded."""
    written = path.read_bytes()
    cluster = here_with(cluster_id)
    with pytest.raises(RefusedByRule, match=why):
        predict(EtcdNow(client), intent, cluster=cluster)
    with pytest.raises(RefusedByRule, match=why) as caught:
        settle(client, path, intent, cluster=cluster)
    assert caught.value.rule == Rule.OTHER_CLUSTER_ID
    assert path.read_bytes() == written


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


@pytest.mark.parametrize("verb", [Verb.UNDO, Verb.FIX])
@pytest.mark.parametrize(
    "case", ["its own", "other bytes", "the second write", "no version", "the header is later"]
)
def test_next_write_with_its_bytes_is_its_own(
    etcd: EtcdServer, client: EtcdClient, path: Path, key: bytes, verb: Verb, case: str
) -> None:
    revision = etcd.put(key, VALUE)
    if case == "the second write":
        etcd.put(key, b"between")
    written = etcd.put(key, b"other" if case == "other bytes" else PUT)
    etcd.put(key + b"-other", b"later")
    intent = open_intent(
        path, key, mod_revision=revision, verb=verb, detail=f"now {digest(PUT)}",
        subject=about(key, revision, version=0 if case == "no version" else 1),
        header_revision=written if case == "the header is later" else revision,
    )  # fmt: skip
    found = settle(client, path, intent, *([Rule.OTHER_CLUSTER_ID] if case == "the header is later" else []))
    now = StoredValue(key, PUT, written, revision, 2, 0)
    if case == "its own":
        result = Result.UNDONE if verb is Verb.UNDO else Result.FIXED
        assert (found.outcome, found.header_revision) == (result, written)
        assert wrote(path, intent, now)
        assert not wrote(path, intent, msgspec.structs.replace(now, value=VALUE))
    else:
        assert found.outcome in {Result.APPLIED_OR_GONE, Result.ANOMALY}
        assert not wrote(path, intent, now)


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
    etcd: EtcdServer,
    client: EtcdClient,
    path: Path,
    key: bytes,
    way: str,
    carries: PatchProof | None,
    result: Result,
) -> None:
    way, done = ("patch", False) if way == "never done" else (way, True)
    intent = open_intent(path, key, mod_revision=etcd.put(key, VALUE), verb=Verb.FIX, way=way)
    if done:
        etcd.put(key, b"k8s:enc:aescbc:v1:key2:" + bytes(64))
    was_patched = None if carries is None else lambda _intent, _stored: carries
    found = settle(client, path, intent, was_patched=was_patched)
    assert (found.outcome, found.settled) == (result, result is not Result.UNKNOWN)
    assert bool(verify(path).open_intents) is not found.settled


# Is it the etcd of the intent?


@pytest.mark.parametrize("case", ["other bytes", "put back"])
def test_another_etcd_is_refused_until_it_is_accepted(
    etcd: EtcdServer, client: EtcdClient, path: Path, key: bytes, case: str
) -> None:
    if case == "put back":
        revision = etcd.put(key, VALUE)
        intent = open_intent(path, key, mod_revision=revision, header_revision=revision + 1000)
    else:
        intent = open_intent(path, key, mod_revision=etcd.put(key, b"not what was examined"))
    stays_open(client, path, intent, "had come to revision" if case == "put back" else "had other bytes")
    assert settled(client, path, intent, Rule.OTHER_CLUSTER_ID) is Result.ANOMALY


@pytest.mark.parametrize("by", ["grounds", "backup"])
def test_another_cluster_id(etcd: EtcdServer, client: EtcdClient, path: Path, key: bytes, by: str) -> None:
    """By the etcd that holds kube-system, or by the one of the key."""
    revision = etcd.put(key, VALUE)
    grounds = Grounds(cluster=here_with("abc")) if by == "grounds" else None
    with AuditLog.open(path) as log, open_directory(own_directory(path.parent / "backups")) as directory:
        held = content(StoredValue(key, VALUE, revision, revision, 1, 0), cluster=CLUSTER)
        wanted = entry(subject=about(key, revision), header_revision=revision, grounds=grounds)
        intent = record_intent(log, wanted, held, [directory])
        if by == "grounds":
            for file in intent.backups:
                Path(file).unlink()
    told = "abc" if by == "grounds" else "cdf818194e3a8c32"
    stays_open(client, path, intent, f"the cluster id {told}", cluster_id="def")


@pytest.mark.parametrize(
    ("case", "accept", "by_backup"),
    [
        ("other bytes", False, False), ("never there", False, True), ("another revision", False, False),
        ("gone since", False, True), ("moved since", True, False),
    ],
)  # fmt: skip
def test_what_contradicts_the_record_under_the_same_id_is_an_anomaly(
    etcd: EtcdServer, client: EtcdClient, path: Path, key: bytes, case: str, accept: bool, by_backup: bool
) -> None:
    """Members that disagree, or a copied data directory that went on: nobody can say what became of the intent."""
    revision = etcd.put(key if case != "never there" else key + b"-other", VALUE)
    if case == "another revision":
        revision = etcd.put(key + b"-other", VALUE)
    examined = b"other bytes" if case in {"other bytes", "gone since", "moved since"} else VALUE
    if case == "gone since":
        etcd.delete(key)
    if case == "moved since":
        etcd.put(key, VALUE)
    here = here_with(f"{client.cluster_id:x}")
    if by_backup:
        made = msgspec.structs.replace(CLUSTER, cluster_id=here.cluster_id)
        with AuditLog.open(path) as log, open_directory(own_directory(path.parent / "backups")) as directory:
            held = content(StoredValue(key, examined, revision, revision, 1, 0), cluster=made)
            wanted = entry(subject=about(key, revision), header_revision=revision)
            intent = record_intent(log, wanted, held, [directory])
        confirm_backups(intent)
    else:
        more: dict[str, Any] = {"value_sha256": digest(examined), "grounds": Grounds(cluster=here)}
        intent = open_intent(path, key, mod_revision=revision, **more)
    words = [Rule.OTHER_CLUSTER_ID] if accept else []
    assert settled(client, path, intent, *words, cluster=here) is Result.ANOMALY


def test_an_older_state_under_the_same_id_is_refused(
    etcd: EtcdServer, client: EtcdClient, path: Path, key: bytes
) -> None:
    number = f"{client.cluster_id:x}"
    more: dict[str, Any] = {
        "header_revision": etcd.revision() + 1000,
        "grounds": Grounds(cluster=here_with(number)),
    }
    intent = open_intent(path, key, mod_revision=etcd.put(key, VALUE), **more)
    stays_open(client, path, intent, "had come to revision", cluster_id=number)


def test_what_is_compacted_is_said(etcd: EtcdServer, client: EtcdClient, path: Path, key: bytes) -> None:
    intent = open_intent(path, key, mod_revision=etcd.put(key, VALUE))
    etcd.delete(key)
    etcd.put(key + b"-other", VALUE)
    etcd.compact()
    found = settle(client, path, intent)
    assert found.outcome == Result.APPLIED_OR_GONE
    (warning,) = found.warnings
    assert f"revision {intent.subject.mod_revision} is compacted" in warning


def test_an_etcd_that_does_not_say_how_the_key_stood(
    etcd: EtcdServer, client: EtcdClient, path: Path, key: bytes, monkeypatch: Patch
) -> None:
    intent = open_intent(path, key, mod_revision=etcd.put(key, VALUE))
    etcd.delete(key)
    now, real = EtcdNow(client), client.call

    def call(method: Any, request: Any) -> Any:
        if request.revision:
            raise CallFailed(Failure(FailureKind.DENIED, "permission denied"))
        return real(method, request)

    monkeypatch.setattr(client, "call", call)
    assert predict(now, intent, cluster=HERE).outcome == Result.UNKNOWN


@pytest.mark.parametrize(
    "case", ["nothing there", "still there", "another value", "as recorded", "compacted"]
)
def test_a_deletion_at_its_revision(etcd: EtcdServer, client: EtcdClient, key: bytes, case: str) -> None:
    """While it is kept: the value just before the revision of the deletion, and nothing at it."""
    written = key if case not in {"nothing there", "another value"} else key + b"-other"
    put = etcd.put(written, VALUE)
    if case == "another value":
        etcd.put(key, b"another")
    if case != "still there":
        etcd.delete(key)
    deleted = etcd.revision() if case != "still there" else etcd.put(key + b"-other", VALUE)
    if case == "compacted":
        etcd.put(key + b"-other", VALUE)
        etcd.compact()
    recorded = Recorded(
        key=key, mod_revision=put, value_sha256=digest(VALUE), revision=deleted, deleted_at=deleted,
        cluster_id="", identity=ClusterIdentity(),
    )  # fmt: skip
    held = compare_with_etcd(EtcdNow(client), recorded, ClusterIdentity(), EtcdNow(client).read_key(key))
    assert bool(held.contradiction) == (case not in {"as recorded", "compacted"})
    assert (f"revision {deleted} is compacted" in held.unseen) == (case == "compacted")


def test_another_cluster_is_refused_and_nothing_recorded(
    etcd: EtcdServer, client: EtcdClient, path: Path, key: bytes
) -> None:
    intent = open_intent(path, key, mod_revision=etcd.put(key, VALUE))
    written = path.read_bytes()
    for words in ((), (Rule.UNKNOWN_CLUSTER,)):
        with pytest.raises(RemediationRefused, match=r"uid d4c1.*with kube-system uid other"):
            settle(client, path, intent, *words, cluster=ClusterIdentity.by_uid("other"))
    assert path.read_bytes() == written


@pytest.mark.parametrize(("recorded", "live"), [("", UID), (UID, ""), ("", "")])
def test_unknown_cluster_must_be_accepted(
    etcd: EtcdServer, client: EtcdClient, path: Path, key: bytes, recorded: str, live: str
) -> None:
    intent = open_intent(path, key, mod_revision=etcd.put(key, VALUE), cluster_uid=recorded)
    cluster = ClusterIdentity.by_uid(live)
    with pytest.raises(RemediationRefused) as caught:
        predict(EtcdNow(client), intent, cluster=cluster)
    assert "etcdfix log settle LOG --accept unknown-cluster" in caught.value.hint
    assert settled(client, path, intent, Rule.UNKNOWN_CLUSTER, cluster=cluster) is Result.NOT_APPLIED
    before, after = read_records(path)
    assert after.accepted == (*before.accepted, "--accept unknown-cluster")


def _with_backup(path: Path, made_with: str) -> Record:
    """Leave an intent open whose backup names where the key was read."""
    held = content(cluster=msgspec.structs.replace(CLUSTER, endpoints=(made_with,)))
    with AuditLog.open(path) as log, open_directory(own_directory(path.parent / "backups")) as directory:
        return record_intent(log, entry(), held, [directory])


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
    intent = _with_backup(path, made_with)
    if hint:
        with pytest.raises(RemediationRefused) as caught:
            refuse_other_store(place, intent)
        assert hint in caught.value.hint
        # A restore where nothing was has no backup; one that is gone says nothing.
        Path(intent.backups[0]).unlink()
        refuse_other_store(place, open_intent(path, ABOUT, mod_revision=5))
    refuse_other_store(place, intent)


# Markers, and an etcd that does not answer.


def test_no_answer_leaves_the_intent_and_its_marker(
    client: EtcdClient, path: Path, key: bytes, tmp_path: Path, monkeypatch: Patch
) -> None:
    """The marker proves that nothing was sent, also to whoever asks again."""
    marker = own_directory(tmp_path / "one") / f"a.json{MARKER_SUFFIX}"
    marker.touch()
    intent = open_intent(path, key, mod_revision=5, backups=(str(tmp_path / "one" / "a.json"),))

    def silent(*_: object) -> KeyReading:
        raise SourceUnreachable("nobody is there")

    monkeypatch.setattr(EtcdNow, "read_key", silent)
    found = settle(client, path, intent)
    assert (found.outcome, found.settled, found.header_revision) == (Result.UNKNOWN, False, 0)
    assert found.warnings == []
    assert marker.exists()
    assert [event.outcome for event in read_records(path)] == [None, "unknown"]
    assert verify(path).state is ChainState.UNFINISHED


def test_unconfirmed_backup_proves_that_nothing_was_sent(
    etcd: EtcdServer, client: EtcdClient, path: Path, key: bytes, tmp_path: Path
) -> None:
    etcd.put(key, VALUE)
    own_directory(tmp_path / "one")

    class Killed(BaseException):
        pass

    def die(name: str) -> None:
        if name == "backup marker: before unlink file":
            raise Killed

    stored = EtcdNow(client).read_key(key).stored
    assert stored is not None
    of_here = msgspec.structs.replace(CLUSTER, cluster_id=f"{client.cluster_id:x}")
    kept = content(stored, at=datetime.now(UTC), cluster=of_here)
    wanted = entry(subject=about(key, stored.mod_revision), header_revision=stored.mod_revision)
    with (
        AuditLog.open(path) as log,
        open_directory(tmp_path / "one", step=die) as directory,
        pytest.raises(Killed),
    ):
        record_intent(log, wanted, kept, [directory])
    (intent,) = verify(path).open_intents.values()
    (file,) = map(Path, intent.backups)
    assert anchors_in(look_into(file.parent), path) == []
    etcd.delete(key)
    found = settle(client, path, intent)
    assert (found.outcome, found.warnings) == (Result.NOT_APPLIED, [])
    assert not file.with_name(file.name + MARKER_SUFFIX).exists()
    assert [anchor.link for anchor in anchors_in(look_into(file.parent), path)] == [intent.link]


def test_marker_that_cannot_be_removed_is_told(
    etcd: EtcdServer, client: EtcdClient, path: Path, key: bytes, tmp_path: Path
) -> None:
    place = own_directory(tmp_path / "one")
    (place / ("a.json" + MARKER_SUFFIX)).touch()
    intent = open_intent(path, key, mod_revision=etcd.put(key, VALUE), backups=(str(place / "a.json"),))
    place.chmod(0o777)
    found = settle(client, path, intent)
    assert (found.outcome, len(found.warnings)) == (Result.NOT_APPLIED, 1)


def test_backups_that_were_moved_away_need_no_confirming(
    etcd: EtcdServer, client: EtcdClient, path: Path, key: bytes, tmp_path: Path
) -> None:
    backups = (str(tmp_path / "gone" / "a.json"),)
    intent = open_intent(path, key, mod_revision=etcd.put(key, VALUE), backups=backups)
    etcd.delete(key)
    assert settle(client, path, intent).warnings == []
    # Once it is closed, it is not closed again.
    with pytest.raises(AuditError, match="not open"):
        settle(client, path, intent)


def test_open_intents_of_one_key_of_one_cluster(client: EtcdClient, path: Path, key: bytes) -> None:
    mine = open_intent(path, key, mod_revision=1)
    nameless = open_intent(path, key, mod_revision=1, cluster_uid="")
    open_intent(path, key, mod_revision=1, cluster_uid="another")
    open_intent(path, key + b"b", mod_revision=1)
    said = list[str]()
    with AuditLog.open(path) as log:
        given: Any = {"cluster": HERE, "accepted": accepting(Rule.UNKNOWN_CLUSTER), "say": said.append}
        found = [*settle_open(EtcdNow(client), log, {key}, None, **given)]
    assert [one.sequence for one in found] == [mine.link.sequence, nameless.link.sequence]
    assert said[0].startswith("the open intent 1 would be settled first: ")
