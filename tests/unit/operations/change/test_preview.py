"""What a person reads: every line that a branch adds or leaves out."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import msgspec
import pytest

from etcdfix.apiserver.authorization import Authorization
from etcdfix.apiserver.objects import Answer
from etcdfix.apiserver.recovery import ServerSigns, Sign, State
from etcdfix.apiserver.servers import ServerAnswer, ServerAnswers
from etcdfix.graph.model import (
    Action,
    Assessment,
    Collection,
    LastKnown,
    LostFinalizer,
    ObjectRef,
    Risk,
    RiskReason,
    SecretState,
    Stops,
    User,
)
from etcdfix.graph.uses import Role
from etcdfix.maybe_newer import SimilarCounts
from etcdfix.model import ClusterIdentity, Confidence, Evidence, Outcome, Repair, RepairKind, RepairProof
from etcdfix.operations.change.candidate import Candidate
from etcdfix.operations.change.object_file import read_object_file
from etcdfix.operations.change.preview import (
    WARNINGS,
    after_deletion_lines,
    looked_at_lines,
    outcome_lines,
    preview_lines,
    reencrypt_preview_lines,
)
from etcdfix.operations.change.reencrypt import ReencryptPreview
from etcdfix.operations.change.restore import RestorePreview
from etcdfix.operations.change.restore_preview import restore_preview_lines
from etcdfix.operations.change.source_checks import Source
from etcdfix.remediation.audit.record import Intent, Link, Result
from etcdfix.remediation.commit import ChangeOutcome
from etcdfix.remediation.preflight.cluster import Cluster
from etcdfix.remediation.preflight.deletion import Preflight
from etcdfix.remediation.preflight.members import KeyReading, LeaseState
from etcdfix.remediation.preflight.similar_values import Alike
from etcdfix.text.commands import RepeatedOptions
from etcdfix.verdicts.causes import Cause
from etcdfix.verdicts.examination import Examination
from etcdfix.verdicts.key_loss import KeyCounts
from tests.support.examinations import examination, readable
from tests.support.object_files import json_secret, saved

KEY = b"/registry/secrets/shop/web"
HOSTILE = "\x1b[2J\u202e"
CLUSTER = cast(
    "Cluster",
    SimpleNamespace(
        source=SimpleNamespace(describe=lambda: SimpleNamespace(cluster_name="")),
        where=("a:1", "b:2"),
        no_encryption=False,
        origins=(),
    ),
)
NOWHERE = cast(
    "Cluster",
    SimpleNamespace(
        source=SimpleNamespace(describe=lambda: SimpleNamespace(cluster_name="")),
        where=(),
        no_encryption=False,
        origins=(),
    ),
)
AGAIN = RepeatedOptions(
    ("--endpoints", "a:1"), ("--etcd-prefix", "/kubernetes.io"), ("--encryption-config", "my file")
)
ALLOWED = Authorization(user_name=f"alice{HOSTILE}", server="https://api", kube_system_uid="u")
ANSWERED = ServerAnswers(
    answers=(
        ServerAnswer(server="https://api", answer=Answer.READ_ERROR),
        ServerAnswer(server="https://b", answer=Answer.NO_ANSWER, detail=f"why{HOSTILE}"),
    ),
    warnings=(f"there may be more{HOSTILE}",),
    authorization=ALLOWED,
)


def _lease(*, alive: bool) -> LeaseState:
    return LeaseState(lease=0x1F, alive=alive, remaining_seconds=42 if alive else 0)


def _alike(
    found: Examination, *counts: KeyCounts, keys: int = 5, unread: dict[str, int] | None = None
) -> Alike:
    return Alike(
        target=found,
        counts=dict(zip(found.encryption_keys, counts, strict=True)),
        transformer_opens=True,
        similar=SimilarCounts(),
        unread=unread or {},
        keys=keys,
    )


def _checked(found: Examination | None = None, **changes: object) -> Preflight:
    found = found if found is not None else examination(KEY)
    checked = Preflight(
        reading=KeyReading(stored=found.stored, revision=1, cluster_id=2, member_id=3),
        found=found,
        alike=_alike(found, *[KeyCounts(opened=3, failed=2)] * len(found.encryption_keys)),
        moved_to=None,
        identity=ClusterIdentity.by_uid("uid-1"),
        lease=None,
        servers=ServerAnswers(),
        protected="",
        assessment=None,
        warnings=(),
        declared_lost=False,
    )
    return msgspec.structs.replace(checked, **changes)


def _text(checked: Preflight) -> str:
    return "\n".join(preview_lines(CLUSTER, checked, AGAIN))


def test_a_candidate_is_shown_as_what_it_is() -> None:
    candidate = Repair(RepairKind.BIT, "bit 3 of byte 70 flipped", RepairProof.NONE)
    text = _text(_checked(candidate=candidate))
    assert (
        "May repair   bit 3 of byte 70 flipped: an object of this etcd key comes out, and nothing proves its contents\n"
    ) in text
    assert "--accept-risk unproven-repair" in text
    assert "May repair" not in _text(_checked())


def test_deletion() -> None:
    text = _text(_checked())
    assert "Cluster      kube-system uid uid-1, 5 keys, at a:1, b:2" in text
    assert "Under        aescbc/v1/key2: 3 open, 2 fail (this one included)" in text
    assert "the etcd credentials are the only gate" in text
    assert "API server: no matching key" in text
    assert "Less destructive options:\n  1. " in text
    assert "\n     etcdfix " in text
    assert all(f"  - {warning}" in text for warning in WARNINGS)
    for absent in (
        "Encryption",
        "OPEN",
        "Lease",
        "Note",
        "CLUSTER-BREAKING",
        "declared lost",
        "undetermined",
    ):
        assert absent not in text
    assert "Last: " not in text


def test_everything_that_may_be_added() -> None:
    found = examination(KEY, rule="secrets,pods", key_fingerprints=("fp:1",))
    text = _text(
        _checked(
            found,
            lease=_lease(alive=True),
            servers=ANSWERED,
            protected="secrets are what the cluster stands on",
            warnings=("one", f"two{HOSTILE}"),
            declared_lost=True,
            identity=ClusterIdentity(),
            alike=_alike(found, KeyCounts(opened=3, failed=2, damaged=1, undetermined=4), keys=1),
        )
    )
    for words in (
        "uid unknown (accepted), 1 key, at",
        (
            "Under        aescbc/v1/key2 of secrets,pods (fp:1): 3 open, 2 fail, 1 of them proven damaged, "
            "4 undetermined (this one included)"
        ),
        "declared lost for ever",
        "Lease        1f, 42 s left",
        "Allowed by   https://api, for alice",
        "API server   https://api cannot read it either\n",
        "API server   https://b gave no answer: why",
        "             there may be more",
        "Warning      one\nWarning      two",
        "CLUSTER-BREAKING, as accepted: secrets are what the cluster stands on.",
    ):
        assert words in text, words
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_no_api_server_answered() -> None:
    text = _text(_checked(servers=msgspec.structs.replace(ANSWERED, authorization=None)))
    assert (
        "Allowed by   nobody: no API server answered, as accepted; the etcd credentials are the only gate"
        in text
    )


def test_what_is_left_out() -> None:
    found = examination("/registry/minions/n1", outcome=Outcome.UNDETERMINED, cause=None, upstream_message="")
    text = _text(_checked(found, lease=_lease(alive=False)))
    assert "API server:" not in text
    assert "in namespace" not in text
    assert "Less destructive" not in text
    assert "Lease        1f, expired" in text


def test_remedy_without_a_command() -> None:
    text = _text(_checked(examination(KEY, outcome=Outcome.DECODE_FAILURE, cause=Cause.DOUBLE_ENCRYPTED)))
    assert (
        "1. Find out what encrypted it the second time; the object may be whole below that layer\n  2. "
        in text
    )


def test_no_endpoints_to_name() -> None:
    assert "keys, at \n" in "\n".join(preview_lines(NOWHERE, _checked(), AGAIN))


def test_where_it_was_named_is_shown_and_stays_inert() -> None:
    cluster = cast(
        "Cluster",
        SimpleNamespace(**vars(CLUSTER) | {"origins": (f"endpoints: x{HOSTILE}", "configuration: y")}),
    )
    shown = list(preview_lines(cluster, _checked(), AGAIN))
    at = next(number for number, line in enumerate(shown) if line.startswith("Named by"))
    assert shown[at : at + 2] == ["Named by     endpoints: x\\x1b[2J\\u202e", "             configuration: y"]


INTENT = cast("Intent", SimpleNamespace(link=Link(7, "0" * 64)))


def _restored(**changes: object) -> str:
    found = readable(KEY)
    shown = RestorePreview(
        candidate=Candidate(
            stored=found.stored, origin=f"backup /b{HOSTILE}", cluster=ClusterIdentity.by_uid("uid-1")
        ),
        found=found,
        source=Source(intent=INTENT),
        replaced=None,
        lease=0,
        identity=ClusterIdentity.by_uid("uid-1"),
        servers=ServerAnswers(),
        warnings=(),
    )
    text = "\n".join(restore_preview_lines(CLUSTER, msgspec.structs.replace(shown, **changes)))
    assert "\x1b" not in text
    return text


def test_restore_by_itself() -> None:
    text = _restored(source=Source(by_itself=f"its audit log /l{HOSTILE} is not there"))
    assert "NOT a backup that this audit log knows, as accepted" in text
    assert "by itself: its own digests fit, and the one that was given; its audit log /l\\x1b" in text


def test_restore() -> None:
    text = _restored()
    for words in (
        "a true undo",
        "There now    nothing",
        "do not come back with their owner",
        "uid uid-1, at a:1",
    ):
        assert words in text, words
    for absent in ("Lease", "Note", "Object  ", "by itself"):
        assert absent not in text


def test_restore_with_everything() -> None:
    stored = readable(KEY, lease=-5).stored
    text = _restored(
        candidate=Candidate(stored=stored, origin="snapshot", cluster=ClusterIdentity()),
        lease=-5,
        source=Source(),
        replaced=_checked(),
        servers=ANSWERED,
        identity=ClusterIdentity(),
        warnings=("one",),
    )
    for words in (
        "NOT a backup that this audit log knows, as accepted",
        "Lease        fffffffffffffffb is attached again",
        "decrypt-failure, key-name-missing; backed up first",
        "Allowed by   https://api",
        "unknown (accepted)",
        "Warning      one",
    ):
        assert words in text, words


def test_restore_of_an_object_in_a_file(tmp_path: Path) -> None:
    file = read_object_file(saved(tmp_path, json_secret()))
    sealed = Candidate(
        stored=msgspec.structs.replace(readable(KEY).stored, mod_revision=0),
        origin=f"object in /f{HOSTILE}",
        cluster=None,
        file=file,
        transformer="aesgcm/v1/key1",
        told=(f"saved from {HOSTILE}",),
    )
    text = _restored(
        candidate=sealed, source=Source(same_object=True), newer="nothing newer", proof=b"/a/other"
    )
    for words in (
        "Written with aesgcm/v1/key1, as JSON; the same object was read from it",
        "API servers write so too: /a/other is stored under it",
        "Newer        nothing newer",
        "it is of the object that is at the key, or was there last",
        "saved from \\x1b",
    ):
        assert words in text, words
    assert "was at mod_revision" not in text
    assert "password" not in text
    plain = msgspec.structs.replace(sealed, transformer="identity")
    text = _restored(candidate=plain, source=Source(), newer="n")
    assert "Written with no encryption, as JSON" in text
    assert "perhaps of ANOTHER OBJECT that had this name, as accepted" in text
    assert "API servers write so too" not in text


def test_lease_that_is_left_out() -> None:
    stored = readable(KEY, lease=5).stored
    text = _restored(candidate=Candidate(stored=stored, origin="o", cluster=ClusterIdentity()))
    assert "Lease        is left out, as accepted" in text


@pytest.mark.parametrize("proof", [b"", b"/registry/secrets/shop/other"])
def test_reencrypt(proof: bytes) -> None:
    shown = ReencryptPreview(
        reading=KeyReading(stored=None, revision=1, cluster_id=2, member_id=3),
        found=examination(KEY),
        candidate=readable(
            KEY if proof else "/registry/example.com/widgets/shop/w", transformer="aescbc/v1/key2"
        ),
        write_transformer="aescbc/v1/key1",
        proof=proof,
        identity=ClusterIdentity.by_uid("uid-1"),
        lease=_lease(alive=True) if proof else None,
        servers=ANSWERED if proof else ServerAnswers(),
        warnings=("one",) if proof else (),
    )
    text = "\n".join(reencrypt_preview_lines(CLUSTER, shown))
    assert ("/registry/secrets/shop/other is stored under it" in text) is bool(proof)
    assert ("nothing shows that API servers hold that key, as accepted" in text) is not bool(proof)
    assert ("Lease        1f, kept" in text) is bool(proof)
    assert ("Warning      one" in text) is bool(proof)
    assert "opens it with aescbc/v1/key2: a readable " + ("Secret" if proof else "object") in text


def _outcome(result: Result | None, *, recorded: bool = True, backups: tuple[str, ...] = ()) -> ChangeOutcome:
    return ChangeOutcome(
        result=result,
        detail=f"what was seen{HOSTILE}",
        revision=9,
        backups=backups,
        audit_log=Path("/log/audit.jsonl"),
        head=Link(2, "ab" * 32) if recorded else None,
        warnings=("one",),
    )


def _told(done: Result, outcome: ChangeOutcome) -> list[str]:
    lines = list(outcome_lines(KEY, done, outcome, AGAIN))
    assert all(line.isprintable() for line in lines)
    assert "Note: one" in lines
    return lines


@pytest.mark.parametrize(
    ("done", "word"),
    [(Result.DELETED, "deleted"), (Result.RESTORED, "put back"), (Result.REENCRYPTED, "rewritten")],
)
def test_dry_run(done: Result, word: str) -> None:
    lines = _told(done, _outcome(None))
    assert lines[0] == f"DRY RUN: {KEY.decode()} would be {word}. Nothing was changed."
    assert lines[-1].startswith("Audit log: /log/audit.jsonl, head 2:abab")


def test_undo_repeats_what_the_command_needs() -> None:
    lines = _told(Result.DELETED, _outcome(Result.DELETED, backups=("/b/one two.json", "/c/x.json")))
    assert (
        "Undo: etcdfix restore '/b/one two.json' --endpoints a:1 --etcd-prefix /kubernetes.io "
        "--encryption-config 'my file' --audit-log /log/audit.jsonl --reason REASON"
    ) in lines
    assert "Backup: /c/x.json" in lines
    assert lines[0] == f"DELETED {KEY.decode()} at revision 9."
    assert not [line for line in lines if line.startswith("Look again")]  # there is nothing there to look at


@pytest.mark.parametrize(
    ("result", "recorded", "settle"),
    [
        (Result.UNKNOWN, True, True),
        (Result.DELETED, False, True),
        (Result.NOT_APPLIED, True, False),
        (Result.APPLIED_OR_GONE, True, False),
        (Result.ANOMALY, True, False),
    ],
)
def test_what_is_left_to_settle(result: Result, *, recorded: bool, settle: bool) -> None:
    lines = _told(Result.DELETED, _outcome(result, recorded=recorded))
    command = (
        "Settle it when etcd answers again: etcdfix audit reconcile --endpoints a:1 --etcd-prefix /kubernetes.io "
        "--encryption-config 'my file' /log/audit.jsonl"
    )
    assert (command in lines) is settle
    assert ("Audit log: /log/audit.jsonl" in lines) is not recorded
    assert not [line for line in lines if line.startswith("Undo")]


def test_what_was_put_back_or_rewritten_is_undone_by_its_own_revision() -> None:
    for done in (Result.RESTORED, Result.REENCRYPTED):
        lines = _told(done, _outcome(done, backups=("/b c/1.json", "/d/1.json")))
        (undo,) = [line for line in lines if line.startswith("Undo")]
        assert undo.endswith("--reason REASON --backup-dir '/b c' --backup-dir /d --replace-mod-revision 9")
        assert lines[-1].startswith("Look again: etcdfix scan --endpoints a:1")
        assert not [line for line in _told(done, _outcome(done)) if line.startswith("Undo")]
        unsure = _told(done, _outcome(Result.UNKNOWN, backups=("/b/1.json",)))
        assert not [line for line in unsure if line.startswith("Undo")]


def test_what_follows_up_accepts_a_cluster_that_nothing_names() -> None:
    for result, what in ((Result.DELETED, "Undo"), (Result.UNKNOWN, "Settle it")):
        known = _outcome(result, backups=("/b/1.json",))
        for outcome in (known, msgspec.structs.replace(known, unknown_cluster=True)):
            (line,) = [line for line in _told(Result.DELETED, outcome) if line.startswith(what)]
            assert ("--accept-unknown-cluster" in line) is outcome.unknown_cluster


def test_after_an_anomaly_both_values_can_be_put_back() -> None:
    lines = _told(Result.DELETED, _outcome(Result.ANOMALY, backups=("/b/1.json", "/b/2.json")))
    assert any(line.startswith("Put back what was examined: etcdfix restore /b/1.json") for line in lines)
    assert any(line.startswith("Put back what etcd gave back: etcdfix restore /b/2.json") for line in lines)


@pytest.mark.parametrize("result", [Result.NOT_APPLIED, Result.REFUSED])
def test_what_was_not_done_needs_no_undo(result: Result) -> None:
    lines = _told(Result.DELETED, _outcome(result, backups=("/b/1.json",)))
    assert not [line for line in lines if "restore" in line]


def test_values_that_open_under_a_lost_key_are_counted() -> None:
    text = _text(_checked(declared_lost=True))
    assert "3 values OPEN under this key" in text
    found = examination(KEY, transformer="", rule="secrets")
    text = _text(_checked(found, declared_lost=True, alike=_alike(found, KeyCounts(failed=2))))
    assert "OPEN under this key" not in text
    assert "Under        no envelope that is known of secrets: 0 open" in text


def test_each_key_of_a_name_has_a_line() -> None:
    found = examination(KEY, key_fingerprints=("fp:1", "fp:2"))
    text = _text(_checked(found, alike=_alike(found, KeyCounts(failed=1), KeyCounts(opened=9, failed=1))))
    assert "aescbc/v1/key2 (fp:1): 0 open, 1 fail (this" in text
    assert "aescbc/v1/key2 (fp:2): 9 open, 1 fail (this" in text


def test_what_a_look_showed_stands_in_the_preview() -> None:
    look = Evidence("look without tag or padding", "right key: aesgcm/v1/a of secrets", f"odds{HOSTILE}")
    undone = Evidence("undo what may have happened", "ciphertext-bit")
    other = Evidence("decrypt with aesgcm/v1/a", "failed", "no")
    text = _text(_checked(examination(KEY, cause=Cause.CIPHERTEXT_DAMAGED, evidence=(other, look, undone))))
    assert "Proof        look without tag or padding: right key: aesgcm/v1/a of secrets; odds" in text
    assert "\n             undo what may have happened: ciphertext-bit\n" in text
    assert "decrypt with" not in text
    assert "\x1b" not in text


def test_what_is_said_of_a_value_as_it_stands() -> None:
    text = _text(_checked())
    for words in (
        "\nObject       secrets web in namespace shop\n",
        "\nVerdict      decrypt-failure, key-name-missing (certain)\n",
        "\nAllowed by   nobody was asked: without --kubeconfig the etcd credentials are the only gate\n",
    ):
        assert words in text, words


def test_what_was_accepted_is_shown() -> None:
    assert "Accepted " not in _text(_checked())
    flags = ("--accept-risk newer-than-known", "--accept-unchecked-member etcd-2")
    assert f"\nAccepted     {flags[0]}, {flags[1]}\n" in _text(_checked(accepted=flags))


def test_what_is_not_proven_says_so() -> None:
    found = examination(KEY, outcome=Outcome.UNDETERMINED, cause=Cause.KMS_KEY_UNKNOWN)
    assert "Verdict      NOT PROVEN (kms-key-unknown)" in _text(_checked(found))


@pytest.mark.parametrize(("key", "named"), [(KEY, True), (b"/registry/secrets/shop/\xff", False)])
def test_what_to_watch(key: bytes, *, named: bool) -> None:
    lines = list(after_deletion_lines(_checked(examination(key)), AGAIN))
    assert lines[0].startswith("Look at what is left: etcdfix scan --endpoints a:1")
    assert lines[0].endswith(" secrets")
    assert lines[1].startswith("No other value of secrets is known to fail: LIST works again at once")
    assert lines[2].startswith("/readyz of an API server that was not ready for this value recovers")
    assert lines[3].startswith("Already done; the API call") is named
    assert "Watch, on every API server:" in lines
    assert len([line for line in lines if "apiserver_" in line]) == 6
    assert all(line.isprintable() for line in lines)


def test_what_does_not_recover_yet() -> None:
    found = examination(KEY)
    unread = {"secrets": 2, "pods": 1, "widgets.example.com\x1b": 3}
    checked = _checked(found, alike=_alike(found, KeyCounts(opened=3, failed=2), unread=unread))
    lines = list(after_deletion_lines(checked, AGAIN))
    assert lines[1].startswith("2 other values of secrets cannot be read without fault")
    assert "may come from a server's memory" in lines[1]
    assert lines[2].startswith("Others are not known to be read without fault: pods (1), widgets.example.com")
    assert lines[2].isprintable()
    assert lines[3].startswith("An API server that starts may not get ready while such values are there")


def test_what_does_not_recover_yet_elsewhere() -> None:
    found = examination(KEY)
    checked = _checked(found, alike=_alike(found, KeyCounts(opened=3, failed=2), unread={"pods": 1}))
    lines = list(after_deletion_lines(checked, AGAIN))
    assert lines[1].startswith("No other value of secrets is known to fail")
    assert lines[2:4] == [
        "Others are not known to be read without fault: pods (1).",
        "An API server that starts may not get ready while such values are there (/readyz: informer-sync).",
    ]


def test_how_api_servers_were_last() -> None:
    well = ServerSigns(server="https://a:1", signs=(Sign("LIST", State.WELL, "works"),), seconds=2.4)
    assert list(looked_at_lines([well])) == ["API server https://a:1, after 2 s: LIST works"]
    bad = ServerSigns(
        server=f"https://b:1{HOSTILE}", signs=(Sign("LIST", State.FAILING, "answers 500"),), seconds=60
    )
    shown, hint = list(looked_at_lines([bad]))
    assert shown.endswith("after 60 s: LIST answers 500")
    assert shown.isprintable()
    assert hint.startswith("Not everything works yet. The usual reasons: more values that cannot be read")
    assert list(looked_at_lines([])) == []


# What a deletion sets off.


def ref(resource: str, kind: str, namespace: str, name: str) -> ObjectRef:
    key = f"/registry/{resource}/{namespace}/{name}"
    return ObjectRef(key=key, group="", resource=resource, kind=kind, namespace=namespace, name=name)


def _assessed(**changes: object) -> Assessment:
    removed = ref("secrets", "Secret", "shop", "web")
    found = Assessment(
        object=removed,
        exists=True,
        readable=False,
        last_known=LastKnown("", Confidence.POSSIBLE, "none"),
        collection=Collection(removed, (), {}, {}),
        secret=None,
        users=(),
        finalizers=(),
        node="",
        consequences=(),
        risk=Risk.NONE,
        may_be_worse=False,
        reasons=(),
        problems=(),
    )
    return msgspec.structs.replace(found, **changes)


def _secret_user(name: str, stops: Stops) -> User:
    return User(
        object=ref("pods", "Pod", "shop", name),
        role=Role.VOLUME,
        path="spec.volumes[0]",
        stops=stops,
        consequence="does not start again",
    )


def test_nothing_depends_on_it() -> None:
    text = _text(_checked(assessment=_assessed()))
    assert "RISK NONE: losing" in text
    assert "See all of it: etcdfix impact --endpoints a:1" in text
    for absent in ("cascade-deleted", "references;", "runs on", "What cannot be read"):
        assert absent not in text


def test_everything_that_depends_on_it() -> None:
    users = tuple(_secret_user(f"p{n}{HOSTILE}", Stops.YES if n else Stops.NO) for n in range(7))
    users += (_secret_user(f"p6{HOSTILE}", Stops.YES),)  # twice by the same
    removed = _assessed().object
    text = _text(
        _checked(
            assessment=_assessed(
                risk=Risk.HIGH,
                reasons=(RiskReason(Risk.HIGH, "users", f"six pods{HOSTILE} stop"),),
                collection=Collection(
                    removed,
                    (),
                    {Action.CASCADE_DELETED: 3, Action.KEPT: 0, Action.ORPHANED: 1},
                    {},
                ),
                secret=SecretState("Opaque"),
                users=users,
                finalizers=(
                    LostFinalizer("a/b", "", "the disk stays", True, Confidence.CERTAIN),
                    LostFinalizer("c/d", "", "nothing much", False, Confidence.POSSIBLE),
                ),
                node="node-1",
                consequences=("it is special",),
                may_be_worse=True,
                problems=("a page is damaged",),
            )
        )
    )
    for words in (
        "RISK HIGH OR WORSE: losing",
        "high  six pods\\x1b[2J\\u202e stop",
        "Garbage collector: 3 cascade-deleted, 1 orphaned",
        "Users: 7 objects, 8 references; 6 objects cannot go on without it",
        "  a/b  LEAKS    the disk stays",
        "  c/d  no leak  nothing much (possible: usual for its kind)",
        "  runs on node node-1",
        "  it is special",
        "What cannot be read, or waits for KMS",
    ):
        assert words in text
    assert text.count("pods shop/p") == 5
    assert HOSTILE not in text


def test_a_user_without_a_namespace() -> None:
    volume = ref("persistentvolumes", "PersistentVolume", "", "pv-1")
    user = msgspec.structs.replace(_secret_user("", Stops.NO), object=volume)
    text = _text(_checked(assessment=_assessed(secret=SecretState("Opaque"), users=(user,))))
    assert "    persistentvolumes pv-1  goes on: does not start again" in text


def test_nothing_is_worse_than_a_broken_cluster() -> None:
    found = _assessed(risk=Risk.CLUSTER_BREAKING, may_be_worse=True)
    assert "RISK CLUSTER-BREAKING: losing" in _text(_checked(assessment=found))


def test_other_users_are_counted() -> None:
    pods = [ref("pods", "Pod", "shop", f"p{n}") for n in range(12)]
    users = tuple(User(pod, Role.CLAIM, path) for pod in pods for path in ("a", "b"))
    assert "Users: 12 objects, 24 references" in _text(_checked(assessment=_assessed(users=users)))
