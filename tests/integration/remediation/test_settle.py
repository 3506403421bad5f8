"""What became of an open intent: every way in which the key can stand, against a real etcd."""

from __future__ import annotations

import hashlib
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
from etcdfix.sources.etcd.failures import CallFailed, Failure, FailureKind
from etcdfix.testing.servers import EtcdServer
from tests.support.audit_logs import CLUSTER, OPERATOR, content, entry, own_directory, subject
from tests.support.connections import connected
from tests.support.fixtures import Patch, StartEtcd

pytestmark = pytest.mark.etcd

UID = "d4c1"
VALUE = b"k8s:enc:aescbc:v1:lost:" + bytes(range(64))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return own_directory(tmp_path / "log") / "audit.jsonl"


@pytest.fixture
def key(prefix: bytes) -> bytes:
    return prefix + b"secrets/shop/db"


def digest(value: bytes) -> str:
    return f"sha256:{hashlib.sha256(value).hexdigest()}"


def about(key: bytes, mod_revision: int) -> Subject:
    return subject(key, mod_revision)


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


def settled(
    etcd: EtcdServer, path: Path, intent: Record, *accepting: Rule, cluster: ClusterIdentity | None = None
) -> Result:
    """Settle, and check what every settling has in common."""
    before = etcd.revision()
    cluster = cluster or ClusterIdentity.by_uid(UID)
    accepted = Acceptances(words=accepting)
    with connected(etcd.endpoint) as client, AuditLog.open(path) as log:
        expected = predict(EtcdNow(client), intent, cluster=cluster, accepted=accepted)
        found = settle_intent(EtcdNow(client), log, intent, OPERATOR, cluster=cluster, accepted=accepted)
        assert log.open_intents() == ()
    assert expected.record is None
    assert (found.outcome, found.detail, found.header_revision) == (
        expected.outcome, expected.detail, expected.header_revision,
    )  # fmt: skip
    assert etcd.revision() == before == found.header_revision
    event = list(read_records(path))[-1]
    assert str(event.link) == found.record
    assert event.type == RecordType.SETTLED
    assert event.outcome == found.outcome
    assert event.detail == found.detail
    assert event.intent == intent.link.sequence
    assert event.audit_id == intent.audit_id
    assert verify(path).state is ChainState.WHOLE
    assert found.settled
    return Result(found.outcome)


def settle_one(etcd: EtcdServer, path: Path, intent: Record, **given: Any) -> SettledIntent:
    """Settle an intent of the cluster that is there."""
    with connected(etcd.endpoint) as client, AuditLog.open(path) as log:
        here = ClusterIdentity.by_uid(UID)
        return settle_intent(EtcdNow(client), log, intent, OPERATOR, cluster=here, **given)


def test_key_that_stands_as_examined_was_not_deleted(etcd: EtcdServer, path: Path, key: bytes) -> None:
    intent = open_intent(path, key, mod_revision=etcd.put(key, VALUE))
    assert settled(etcd, path, intent) is Result.NOT_APPLIED


def test_other_bytes_at_the_same_revision_are_an_anomaly(etcd: EtcdServer, path: Path, key: bytes) -> None:
    intent = open_intent(path, key, mod_revision=etcd.put(key, b"not what was examined"))
    stays_open(etcd, path, intent, "had other bytes")
    assert settled(etcd, path, intent, Rule.OTHER_CLUSTER_ID) is Result.ANOMALY


def test_etcd_that_was_put_back_cannot_tell(etcd: EtcdServer, path: Path, key: bytes) -> None:
    intent = open_intent(path, key, mod_revision=etcd.put(key, VALUE), header_revision=etcd.revision() + 1000)
    stays_open(etcd, path, intent, "had come to revision")
    assert settled(etcd, path, intent, Rule.OTHER_CLUSTER_ID) is Result.ANOMALY


@pytest.mark.parametrize("by", ["grounds", "backup"])
def test_another_cluster_id(etcd: EtcdServer, path: Path, key: bytes, by: str) -> None:
    """By the etcd that holds kube-system, or by the one of the key."""
    revision = etcd.put(key, VALUE)
    here = ClusterIdentity(uid=UID, known_by=KnownBy.VALUE, cluster_id="abc")
    grounds = Grounds(cluster=here) if by == "grounds" else None
    with AuditLog.open(path) as log, open_directory(own_directory(path.parent / "backups")) as directory:
        held = content(StoredValue(key, VALUE, revision, revision, 1, 0), cluster=CLUSTER)
        wanted = entry(subject=about(key, revision), header_revision=revision, grounds=grounds)
        intent = record_intent(log, wanted, held, [directory])
        if by == "grounds":
            for file in intent.backups:
                Path(file).unlink()
    told = "abc" if by == "grounds" else "cdf818194e3a8c32"
    stays_open(etcd, path, intent, f"the cluster id {told}", cluster_id="def")


@pytest.mark.parametrize(
    "case", ["other bytes", "never there", "another revision", "gone since", "moved since"]
)
@pytest.mark.parametrize("accept", [False, True])
@pytest.mark.parametrize("by", ["grounds", "backup"])
def test_what_contradicts_the_record_under_the_same_id_is_an_anomaly(
    etcd: EtcdServer, path: Path, key: bytes, case: str, accept: bool, by: str
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
    with connected(etcd.endpoint) as client:
        here = ClusterIdentity(uid=UID, known_by=KnownBy.VALUE, cluster_id=f"{client.cluster_id:x}")
    intent = open_intent(
        path, key, mod_revision=revision, value_sha256=digest(examined), grounds=Grounds(cluster=here)
    )
    if by == "backup":
        backups = own_directory(path.parent / "backups")
        made = msgspec.structs.replace(CLUSTER, cluster_id=here.cluster_id)
        with AuditLog.open(path) as log, open_directory(backups) as directory:
            log.append(intent.closed_by(Result.NOT_APPLIED, operator=OPERATOR))
            held = content(StoredValue(key, examined, revision, revision, 1, 0), cluster=made)
            wanted = entry(subject=about(key, revision), header_revision=revision)
            intent = record_intent(log, wanted, held, [directory])
        confirm_backups(intent)
    words = [Rule.OTHER_CLUSTER_ID] if accept else []
    assert settled(etcd, path, intent, *words, cluster=here) is Result.ANOMALY


def test_an_older_state_under_the_same_id_is_refused(etcd: EtcdServer, path: Path, key: bytes) -> None:
    with connected(etcd.endpoint) as client:
        number = f"{client.cluster_id:x}"
    here = ClusterIdentity(uid=UID, known_by=KnownBy.VALUE, cluster_id=number)
    intent = open_intent(
        path,
        key,
        mod_revision=etcd.put(key, VALUE),
        header_revision=etcd.revision() + 1000,
        grounds=Grounds(cluster=here),
    )
    stays_open(etcd, path, intent, "had come to revision", cluster_id=number)


def test_what_is_compacted_is_said(etcd: EtcdServer, path: Path, key: bytes) -> None:
    intent = open_intent(path, key, mod_revision=etcd.put(key, VALUE))
    etcd.delete(key)
    etcd.put(key + b"-other", VALUE)
    etcd.compact()
    found = settle_one(etcd, path, intent)
    assert found.outcome == Result.APPLIED_OR_GONE
    (warning,) = found.warnings
    assert f"revision {intent.subject.mod_revision} is compacted" in warning


def test_an_etcd_that_does_not_say_how_the_key_stood(
    etcd: EtcdServer, path: Path, key: bytes, monkeypatch: Patch
) -> None:
    intent = open_intent(path, key, mod_revision=etcd.put(key, VALUE))
    etcd.delete(key)
    with connected(etcd.endpoint) as client:
        now = EtcdNow(client)
        real = client.call

        def call(method: Any, request: Any) -> Any:
            if request.revision:
                raise CallFailed(Failure(FailureKind.DENIED, "permission denied"))
            return real(method, request)

        monkeypatch.setattr(client, "call", call)
        found = predict(now, intent, cluster=ClusterIdentity.by_uid(UID))
    assert (found.outcome, "permission denied" in found.detail) == (Result.UNKNOWN, True)


@pytest.mark.parametrize(
    "case", ["nothing there", "still there", "another value", "as recorded", "compacted"]
)
def test_a_deletion_at_its_revision(etcd: EtcdServer, key: bytes, case: str) -> None:
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
    with connected(etcd.endpoint) as client:
        held = compare_with_etcd(EtcdNow(client), recorded, ClusterIdentity(), EtcdNow(client).read_key(key))
    assert bool(held.contradiction) == (case not in {"as recorded", "compacted"})
    assert (f"revision {deleted} is compacted" in held.unseen) == (case == "compacted")


def stays_open(etcd: EtcdServer, path: Path, intent: Record, why: str, *, cluster_id: str = "") -> None:
    """Assert that an intent is refused as one of another etcd, and that nothing is recorded."""
    cluster = ClusterIdentity(uid=UID, known_by=KnownBy.VALUE, cluster_id=cluster_id)
    written = path.read_bytes()
    with connected(etcd.endpoint) as client, AuditLog.open(path) as log:
        with pytest.raises(RefusedByRule, match=why) as caught:
            predict(EtcdNow(client), intent, cluster=cluster)
        with pytest.raises(RefusedByRule, match=why):
            settle_intent(EtcdNow(client), log, intent, OPERATOR, cluster=cluster)
    assert caught.value.rule == Rule.OTHER_CLUSTER_ID
    assert "--accept other-cluster-id" in caught.value.hint
    assert path.read_bytes() == written


PUT = b"k8s:enc:secretbox:v1:key1:repaired"
PUTS = {Verb.UNDO: Result.UNDONE, Verb.FIX: Result.FIXED}


@pytest.mark.parametrize("verb", PUTS)
def test_next_write_with_its_bytes_is_its_own(etcd: EtcdServer, path: Path, key: bytes, verb: Verb) -> None:
    revision = etcd.put(key, VALUE)
    about_it = msgspec.structs.replace(about(key, revision), version=1)
    intent = open_intent(
        path, key, mod_revision=revision, verb=verb, subject=about_it, detail=f"now {digest(PUT)}"
    )
    written = etcd.put(key, PUT)
    etcd.put(key + b"-other", b"later")
    found = settle_one(etcd, path, intent)
    assert (found.outcome, found.header_revision) == (PUTS[verb], written)
    now = StoredValue(key, PUT, written, revision, 2, 0)
    assert wrote(path, intent, now)
    assert not wrote(path, intent, msgspec.structs.replace(now, value=VALUE))


@pytest.mark.parametrize("verb", PUTS)
@pytest.mark.parametrize("case", ["other bytes", "the second write", "no version", "the header is later"])
def test_what_may_be_somebody_elses_is_not_its_own(
    etcd: EtcdServer, path: Path, key: bytes, verb: Verb, case: str
) -> None:
    revision = etcd.put(key, VALUE)
    about_it = msgspec.structs.replace(about(key, revision), version=0 if case == "no version" else 1)
    if case == "the second write":
        etcd.put(key, b"between")
    written = etcd.put(key, b"other" if case == "other bytes" else PUT)
    header = written if case == "the header is later" else revision
    intent = open_intent(
        path, key, mod_revision=revision, verb=verb, subject=about_it, header_revision=header,
        detail=f"now {digest(PUT)}",
    )  # fmt: skip
    found = settle_one(
        etcd,
        path,
        intent,
        accepted=Acceptances(words=(Rule.OTHER_CLUSTER_ID,) if case == "the header is later" else ()),
    )
    assert found.outcome in {Result.APPLIED_OR_GONE, Result.ANOMALY}
    assert not wrote(path, intent, StoredValue(key, PUT, written, revision, 2, 0))


def test_every_sentence_is_its_own(path: Path) -> None:
    """Different findings must not read alike: the sentence is what a person decides by."""
    key = b"/registry/secrets/shop/db"

    def stored(mod: int, create: int, value: bytes = VALUE) -> StoredValue:
        return StoredValue(key, value, mod, create, 1, 0)

    def said(
        verb: Verb, expected: int, present: StoredValue | None, *, revision: int = 90, unsent: bool = False
    ) -> tuple[Result, str]:
        intent = open_intent(path, key, mod_revision=expected, verb=verb, header_revision=50)
        reading = KeyReading(stored=present, revision=revision, cluster_id=1, member_id=2)
        return judge_reading(intent, reading, nothing_was_sent=unsent)

    known = {
        Result.NOT_APPLIED: [
            said(Verb.DELETE, 41, stored(41, 12)),
            said(Verb.DELETE, 41, stored(60, 12)),
            said(Verb.DELETE, 41, None, revision=49, unsent=True),
            said(Verb.DELETE, 41, stored(60, 12), unsent=True),
            said(Verb.UNDO, 0, None),
        ],
        Result.ANOMALY: [
            said(Verb.DELETE, 41, stored(41, 12, b"other")),
            said(Verb.DELETE, 41, stored(40, 12)),
            said(Verb.DELETE, 41, None, revision=49),
        ],
        Result.APPLIED_OR_GONE: [
            said(Verb.DELETE, 41, stored(60, 60)), said(Verb.DELETE, 41, None),
            said(Verb.UNDO, 0, stored(60, 60, b"other")), said(Verb.FIX, 41, stored(60, 12)),
            said(Verb.FIX, 41, None),
        ],
        Result.UNDONE: [said(Verb.UNDO, 0, stored(60, 60))],
    }  # fmt: skip
    assert all(found == result for result, all_found in known.items() for found, _ in all_found)
    details = [detail for all_found in known.values() for _, detail in all_found]
    assert len(set(details)) == len(details)


@pytest.mark.parametrize(
    ("way", "carries", "result"),
    [
        ("patch", PatchProof(True), Result.FIXED),
        ("patch", PatchProof(False), Result.APPLIED_OR_GONE),
        ("patch", PatchProof(None, "no plugin was asked"), Result.UNKNOWN),
        ("patch", None, Result.UNKNOWN),
        ("put", PatchProof(True), Result.APPLIED_OR_GONE),
    ],
)
def test_a_patch_is_known_by_what_the_value_carries(
    etcd: EtcdServer, path: Path, key: bytes, way: str, carries: PatchProof | None, result: Result
) -> None:
    intent = open_intent(path, key, mod_revision=etcd.put(key, VALUE), verb=Verb.FIX, way=way)
    written = etcd.put(key, b"k8s:enc:aescbc:v1:key2:" + bytes(64))
    was_patched = None if carries is None else lambda _intent, _stored: carries
    with connected(etcd.endpoint) as client, AuditLog.open(path) as log:
        found = settle_intent(
            EtcdNow(client),
            log,
            intent,
            OPERATOR,
            cluster=ClusterIdentity.by_uid(UID),
            was_patched=was_patched,
        )
        assert log.open_intents() == (() if found.settled else (intent,))
    assert found.outcome == result
    assert found.settled == (result is not Result.UNKNOWN)
    assert f"mod_revision {written}" in found.detail
    assert (carries.why if carries is not None else "only its value tells") in found.detail


def test_a_patch_that_was_never_done(etcd: EtcdServer, path: Path, key: bytes) -> None:
    intent = open_intent(path, key, mod_revision=etcd.put(key, VALUE), verb=Verb.FIX, way="patch")
    with connected(etcd.endpoint) as client:
        found = predict(
            EtcdNow(client),
            intent,
            cluster=ClusterIdentity.by_uid(UID),
            was_patched=lambda _intent, _stored: PatchProof(True),
        )
    assert found.outcome == Result.NOT_APPLIED  # it did not move: what it carries is not asked
    assert "could arrive later" in found.detail


def _judged(
    path: Path, verb: Verb, expected: int, header: int, present: tuple[int, int] | None, revision: int
) -> Result:
    """Judge a key that stands, with the bytes of the intent, at (mod_revision, create_revision)."""
    key = b"/registry/secrets/shop/db"
    intent = open_intent(path, key, mod_revision=expected, verb=verb, header_revision=header)
    stored = None if present is None else StoredValue(key, VALUE, *present, 1, 0)
    return judge_reading(intent, KeyReading(stored=stored, revision=revision, cluster_id=1, member_id=2))[0]


@pytest.mark.parametrize(
    ("verb", "expected", "header", "present", "revision", "result"),
    [
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
    present: tuple[int, int] | None,
    revision: int,
    result: Result,
) -> None:
    assert _judged(path, verb, expected, header, present, revision) is result


def test_marker_stays_while_nobody_knows(
    etcd: EtcdServer, path: Path, key: bytes, tmp_path: Path, monkeypatch: Patch
) -> None:
    """It proves that nothing was sent, also to whoever asks again."""
    marker = own_directory(tmp_path / "one") / f"a.json{MARKER_SUFFIX}"
    marker.touch()
    intent = open_intent(path, key, mod_revision=5, backups=(str(tmp_path / "one" / "a.json"),))

    def silent(*_: object) -> KeyReading:
        raise SourceUnreachable("nobody is there")

    monkeypatch.setattr(EtcdNow, "read_key", silent)
    found = settle_one(etcd, path, intent)
    assert (found.outcome, found.warnings) == (Result.UNKNOWN, [])
    assert marker.exists()


def test_no_answer_leaves_the_intent_open(start_etcd: StartEtcd, path: Path, key: bytes) -> None:
    server = start_etcd()
    intent = open_intent(path, key, mod_revision=server.put(key, VALUE))
    with connected(server.endpoint, dial_timeout_seconds=0.5, command_timeout_seconds=0.5) as client:
        server.stop()
        with AuditLog.open(path) as log:
            found = settle_intent(EtcdNow(client), log, intent, OPERATOR, cluster=ClusterIdentity.by_uid(UID))
            assert [i.link for i in log.open_intents()] == [intent.link]
    assert found.outcome == Result.UNKNOWN
    assert not found.settled
    assert found.header_revision == 0
    assert [event.outcome for event in read_records(path)] == [None, "unknown"]
    assert verify(path).state is ChainState.UNFINISHED


def test_another_cluster_is_refused_and_nothing_recorded(etcd: EtcdServer, path: Path, key: bytes) -> None:
    intent = open_intent(path, key, mod_revision=etcd.put(key, VALUE))
    written = path.read_bytes()
    with connected(etcd.endpoint) as client, AuditLog.open(path) as log:
        for accept in (False, True):
            with pytest.raises(
                RemediationRefused,
                match=r"kube-system uid d4c1.*holds the cluster with kube-system uid other",
            ):
                settle_intent(
                    EtcdNow(client),
                    log,
                    intent,
                    OPERATOR,
                    cluster=ClusterIdentity.by_uid("other"),
                    accepted=Acceptances(words=(Rule.UNKNOWN_CLUSTER,) if accept else ()),
                )
    assert path.read_bytes() == written


@pytest.mark.parametrize(
    ("recorded", "live", "whose"),
    [("", UID, "of intent 1 is"), (UID, "", "of this etcd is"), ("", "", "of intent 1 is")],
)
def test_unknown_cluster_must_be_accepted(
    etcd: EtcdServer, path: Path, key: bytes, recorded: str, live: str, whose: str
) -> None:
    intent = open_intent(path, key, mod_revision=etcd.put(key, VALUE), cluster_uid=recorded)
    with connected(etcd.endpoint) as client:
        with pytest.raises(RemediationRefused, match=whose) as caught:
            predict(EtcdNow(client), intent, cluster=ClusterIdentity.by_uid(live))
        assert "etcdfix log settle LOG --accept unknown-cluster" in caught.value.hint
        accepted = Acceptances(words=(Rule.UNKNOWN_CLUSTER,))
        cluster = ClusterIdentity.by_uid(live)
        found = predict(EtcdNow(client), intent, cluster=cluster, accepted=accepted)
        with AuditLog.open(path) as log:
            settle_intent(EtcdNow(client), log, intent, OPERATOR, cluster=cluster, accepted=accepted)
    assert found.outcome == Result.NOT_APPLIED
    before, after = read_records(path)
    assert after.accepted == (*before.accepted, "--accept unknown-cluster")


def _with_backup(path: Path, made_with: str) -> Record:
    """Leave an intent open whose backup names where the key was read."""
    held = content(cluster=msgspec.structs.replace(CLUSTER, endpoints=(made_with,)))
    with AuditLog.open(path) as log, open_directory(own_directory(path.parent / "backups")) as directory:
        return record_intent(log, entry(), held, [directory])


def _place(file: str) -> Datastore:
    return cast("Datastore", SimpleNamespace(file=Path(file) if file else None))


@pytest.mark.parametrize(
    ("made_with", "here"),
    [
        ("10.0.0.1:2379", ""),  # members are interchangeable: which cluster it is, its uid says
        ("/srv/k3s/db/state.db", "/srv/k3s/db/state.db"),
        ("/srv/k3s/db/state.db", "/srv/k3s/other/../db/state.db"),
    ],
)
def test_an_intent_is_settled_where_it_was_made(path: Path, made_with: str, here: str) -> None:
    refuse_other_store(_place(here), _with_backup(path, made_with))


@pytest.mark.parametrize(
    ("made_with", "here", "says", "hint"),
    [
        ("/srv/k3s/db/state.db", "", "an etcd does not say", "--kine /srv/k3s/db/state.db"),
        (
            "/srv/k3s/db/state.db", "/srv/copy/state.db", "/srv/copy/state.db does not say",
            "--kine /srv/k3s/db/state.db",
        ),
        (
            "/srv/k3s/my db", "/srv/copy/state.db", "/srv/copy/state.db does not say",
            "--kine '/srv/k3s/my db'",
        ),
        ("10.0.0.1:2379", "/srv/copy/state.db", "/srv/copy/state.db does not say", "--endpoints"),
    ],
)  # fmt: skip
def test_an_intent_that_was_made_elsewhere_is_not_settled(
    path: Path, made_with: str, here: str, says: str, hint: str
) -> None:
    with pytest.raises(RemediationRefused, match=says) as caught:
        refuse_other_store(_place(here), _with_backup(path, made_with))
    assert hint in caught.value.hint


@pytest.mark.parametrize("here", ["", "/srv/copy/state.db"])
def test_where_an_intent_was_made_need_not_be_known(path: Path, here: str) -> None:
    """A restore where nothing was has no backup; one that is gone says nothing."""
    refuse_other_store(_place(here), open_intent(path, b"/registry/secrets/a/b", mod_revision=5))
    gone = _with_backup(path, "10.0.0.1:2379")
    Path(gone.backups[0]).unlink()
    refuse_other_store(_place(here), gone)


def test_unconfirmed_backup_proves_that_nothing_was_sent(
    etcd: EtcdServer, path: Path, key: bytes, tmp_path: Path
) -> None:
    etcd.put(key, VALUE)
    own_directory(tmp_path / "one")

    class Killed(BaseException):
        pass

    def die(name: str) -> None:
        if name == "backup marker: before unlink file":
            raise Killed

    with connected(etcd.endpoint) as client:
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
        with AuditLog.open(path) as log:
            found = settle_intent(EtcdNow(client), log, intent, OPERATOR, cluster=ClusterIdentity.by_uid(UID))
    assert found.outcome == Result.NOT_APPLIED
    assert "before anything was sent" in found.detail
    assert found.warnings == []
    assert not file.with_name(file.name + MARKER_SUFFIX).exists()
    assert [anchor.link for anchor in anchors_in(look_into(file.parent), path)] == [intent.link]


def test_marker_that_cannot_be_removed_is_told(
    etcd: EtcdServer, path: Path, key: bytes, tmp_path: Path
) -> None:
    place = own_directory(tmp_path / "one")
    (place / ("a.json" + MARKER_SUFFIX)).touch()
    intent = open_intent(path, key, mod_revision=etcd.put(key, VALUE), backups=(str(place / "a.json"),))
    place.chmod(0o777)
    found = settle_one(etcd, path, intent)
    assert found.outcome == Result.NOT_APPLIED
    (warning,) = found.warnings
    assert "keeps its marker" in warning


def test_backups_that_were_moved_away_need_no_confirming(
    etcd: EtcdServer, path: Path, key: bytes, tmp_path: Path
) -> None:
    file = tmp_path / "gone" / "a.json"
    intent = open_intent(path, key, mod_revision=etcd.put(key, VALUE), backups=(str(file),))
    etcd.delete(key)
    found = settle_one(etcd, path, intent)
    assert (found.outcome, found.warnings) == (Result.APPLIED_OR_GONE, [])


def test_open_intents_of_one_key_of_one_cluster(etcd: EtcdServer, path: Path) -> None:
    wanted = b"/registry/secrets/a/b"
    mine = open_intent(path, wanted, mod_revision=5)
    nameless = open_intent(path, wanted, mod_revision=6, cluster_uid="")
    open_intent(path, wanted, mod_revision=7, cluster_uid="another")
    open_intent(path, b"/registry/secrets/a/bb", mod_revision=8)
    here, said = ClusterIdentity.by_uid(UID), list[str]()
    accepted = Acceptances(words=(Rule.UNKNOWN_CLUSTER,))
    with connected(etcd.endpoint) as client, AuditLog.open(path) as log:
        now = EtcdNow(client)
        found = [*settle_open(now, log, {wanted}, None, cluster=here, accepted=accepted, say=said.append)]
    assert [one.sequence for one in found] == [mine.link.sequence, nameless.link.sequence]
    assert said[0].startswith("the open intent 1 would be settled first: ")


def test_intent_that_is_closed_already_is_not_closed_again(etcd: EtcdServer, path: Path, key: bytes) -> None:
    intent = open_intent(path, key, mod_revision=etcd.put(key, VALUE))
    with connected(etcd.endpoint) as client, AuditLog.open(path) as log:
        settle_intent(EtcdNow(client), log, intent, OPERATOR, cluster=ClusterIdentity.by_uid(UID))
        with pytest.raises(AuditError, match="not open"):
            settle_intent(EtcdNow(client), log, intent, OPERATOR, cluster=ClusterIdentity.by_uid(UID))
