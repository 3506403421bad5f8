"""Ways out: one for everything that can be done, least destructive first, and nothing deleted without proof."""

from __future__ import annotations

import base64
import shlex
from typing import Any
from urllib.parse import unquote

import msgspec
import pytest

from etcdfix.cli.keys import named_key
from etcdfix.model import (
    DecodedObject,
    GroupVersionKind,
    Inconsistency,
    Outcome,
    ReadableRevision,
    Repair,
    RepairKind,
    RepairProof,
    ServerBehaviour,
)
from etcdfix.report.model import Remedy
from etcdfix.report.next_steps import first_way_out
from etcdfix.report.remedies import Beside, ways_out
from etcdfix.report.ways import WayKind
from etcdfix.text.commands import ACKNOWLEDGEMENT, RepeatedOptions
from etcdfix.verdicts.causes import CATALOGUE, Cause
from etcdfix.verdicts.damage import Damage
from etcdfix.verdicts.examination import Examination
from tests.support.examinations import examination

UNSAFE = "ignoreStoreReadErrorWithClusterBreakingPotential"
# Ordered by what they destroy; a remedy's first words tell its class.
DESTRUCTIVE = ("Last: ", "If it cannot be healed: delete")
CASES = [
    (cause, outcome)
    for cause, info in CATALOGUE.items()
    for outcome in info.outcomes
    if outcome is not Outcome.READABLE
]
NEVER_DELETABLE = {
    Cause.ALLOCATOR_DAMAGED,
    Cause.VALUE_MOVED,
    Cause.CRD_VERSION_MISSING,
    Cause.DOUBLE_ENCRYPTED,
    Cause.ENVELOPE_DAMAGED,
}
HOSTILE_KEYS = [
    b"/registry/secrets/shop/$(reboot)",
    b"/registry/secrets/shop/a b;c'd\"e`f`",
    b"/registry/secrets/-n/--help",
    b"/registry/secrets/shop/\xff\xfe",
    b"/registry/secrets/shop/a\n\x1b]0;x\x07",
    "/registry/secrets/shop/\u202egnp.exe".encode(),
    b"/registry/secrets/shop/a?b=c&d#e%2f",
]


def remedies_for(*arguments: Any, **options: Any) -> list[Remedy]:
    return [way.remedy for way in ways_out(*arguments, **options)]


def found_with(
    cause: Cause, outcome: Outcome, key: bytes | str = "/registry/secrets/shop/web"
) -> Examination:
    """Return an examination as the judge would have made it."""
    return examination(
        key,
        outcome=outcome,
        cause=cause,
        breaks_responses=cause is Cause.RAW_JSON_INVALID,
        belongs_to=examination(key).stored.key if cause is Cause.VALUE_MOVED else b"",
    )


def is_deletion(remedy: Remedy) -> bool:
    return remedy.action.startswith(DESTRUCTIVE)


@pytest.mark.parametrize(("cause", "outcome"), CASES)
def test_something_can_be_done_about_every_finding(cause: Cause, outcome: Outcome) -> None:
    remedies = remedies_for(found_with(cause, outcome))
    assert remedies
    for remedy in remedies:
        assert remedy.action
        assert remedy.note.endswith(".")
        assert not remedy.action.endswith(".")
    assert len({r.action for r in remedies}) == len(remedies)


@pytest.mark.parametrize(("cause", "outcome"), CASES)
def test_what_destroys_comes_last(cause: Cause, outcome: Outcome) -> None:
    deletions = [is_deletion(r) for r in remedies_for(found_with(cause, outcome))]
    assert deletions == sorted(deletions)
    assert sum(deletions) <= 2
    assert not deletions[0]


@pytest.mark.parametrize(("cause", "outcome"), CASES)
def test_no_unsafe_deletion_without_proof_or_where_the_configuration_cures(
    cause: Cause, outcome: Outcome
) -> None:
    remedies = remedies_for(found_with(cause, outcome))
    unsafe = any(ACKNOWLEDGEMENT in r.command.text for r in remedies)
    proven = outcome in {Outcome.DECRYPT_FAILURE, Outcome.DECODE_FAILURE}
    forbidden = CATALOGUE[cause].curable_by_configuration or cause in NEVER_DELETABLE
    assert unsafe is (proven and not forbidden)


@pytest.mark.parametrize("cause", [c for c, o in CASES if o is Outcome.UNDETERMINED])
def test_nothing_undetermined_is_ever_to_be_deleted(cause: Cause) -> None:
    assert not any("delete" in r.command.text for r in remedies_for(found_with(cause, Outcome.UNDETERMINED)))


@pytest.mark.parametrize("cause", [c for c, info in CATALOGUE.items() if info.curable_by_configuration])
def test_what_the_configuration_cures_is_not_to_be_deleted(cause: Cause) -> None:
    assert not any(
        "delete" in r.command.text for r in remedies_for(found_with(cause, Outcome.DECRYPT_FAILURE))
    )


@pytest.mark.parametrize(
    "cause",
    [
        Cause.RESOURCE_NOT_CONFIGURED,
        Cause.PROVIDER_MISSING,
        Cause.KEY_NAME_MISSING,
        Cause.AUTHENTICATION_FAILED,
        Cause.WRONG_KEY,
        Cause.KEY_RENAMED,
    ],
)
def test_a_lost_key_begins_with_the_configuration_and_then_the_caches(cause: Cause) -> None:
    first, second, *rest = remedies_for(found_with(cause, Outcome.DECRYPT_FAILURE))
    assert second.action.startswith("Do not restart the API servers")
    assert "Restart no API server" in first.note
    saving = "--kubeconfig FILE --save-dir DIR --reveal"
    assert second.command.text == f"etcdfix rescue /registry/secrets/shop/web {saving}"
    third = rest[0]
    healed = "etcdfix heal /registry/secrets/shop/web --saved DIR --kubeconfig FILE "
    assert third.command.text.startswith(healed) is (cause is not Cause.KEY_RENAMED)
    assert third.command.text.endswith("--reason REASON --dry-run") is (cause is not Cause.KEY_RENAMED)
    assert any(word in first.action for word in ("onfigur", "original key", "missing provider"))


@pytest.mark.parametrize(
    ("cause", "last"),
    [
        (Cause.KMS_UNREACHABLE, "Bring the KMS plugin back"),
        (Cause.KMS_KEY_UNKNOWN, "Find the KMS key"),
        (Cause.KMS_UNPROVEN, "See that the KMS plugin has this cluster's keyring"),
    ],
)
def test_a_kms_key_that_is_not_there_begins_with_hands_off(cause: Cause, last: str) -> None:
    first, second = remedies_for(found_with(cause, Outcome.UNDETERMINED))
    assert first.action.startswith("Do not restart the API servers")
    assert second.action.startswith(last)
    # What a plugin answers is proven by what it does for others: a scan of this one would prove nothing.
    alone = "" if cause is Cause.KMS_UNPROVEN else " /registry/secrets/shop/web"
    assert second.command.text == f"etcdfix scan{alone}"


def test_a_moved_value_points_at_the_key_that_it_belongs_to() -> None:
    found = examination(cause=Cause.VALUE_MOVED, belongs_to=b"/registry/secrets/shop/a b")
    back, look, *rest = remedies_for(found)
    assert back.command.text.startswith(
        "etcdfix restore --from-key /registry/secrets/shop/web '/registry/secrets/shop/a b' --accept unlisted-source"
    )
    assert back.command.text.endswith("--reason REASON --dry-run")
    assert look.command.text == "etcdfix scan '/registry/secrets/shop/a b'"
    assert "only copy" in look.note
    assert not any(is_deletion(remedy) for remedy in rest)
    (first, *_rest) = remedies_for(found, RepeatedOptions(source=("--snapshot", "s.db")))
    assert first.command.text.startswith("etcdfix scan")  # a file cannot be changed
    strange = msgspec.structs.replace(
        found, stored=msgspec.structs.replace(found.stored, key=b"/registry/secrets/a/\xff")
    )
    assert remedies_for(strange)[0].command.text.startswith(
        "etcdfix restore --from-key base64:L3JlZ2lzdHJ5L3NlY3JldHMvYS// "
    )


NOW = ReadableRevision(11, 9, True)


def kept(remedies: list[Remedy]) -> Remedy:
    """Return the way out that an earlier revision is."""
    (found,) = [remedy for remedy in remedies if "readable revision" in remedy.action]
    return found


@pytest.mark.parametrize(("cause", "outcome"), CASES)
def test_a_readable_revision_stands_after_the_configuration_and_before_all_else(
    cause: Cause, outcome: Outcome
) -> None:
    found = found_with(cause, outcome)
    remedies = remedies_for(found, readable=NOW)
    if outcome not in {Outcome.DECRYPT_FAILURE, Outcome.DECODE_FAILURE}:
        assert remedies == remedies_for(found)
        return
    at = remedies.index(kept(remedies))
    assert [*remedies[:at], *remedies[at + 1 :]] == remedies_for(found)
    before = [remedy.action for remedy in remedies[:at]]
    assert len(before) <= 1
    assert not any(
        action.startswith(("Do not restart", "Take the object", *DESTRUCTIVE)) for action in before
    )


def test_a_readable_revision_is_put_back_by_a_command_that_accepts_what_it_must() -> None:
    again = RepeatedOptions(("--endpoints", "a:1"), (), ("--encryption-config", "c.yaml"))
    remedy = kept(remedies_for(examination(cause=Cause.VALUE_TRUNCATED), again, readable=NOW))
    words = shlex.split(remedy.command.text)
    assert words[:4] == ["etcdfix", "restore", "--from-revision", "11"]
    assert words[words.index("--replace-mod-revision") + 1] == str(examination().stored.mod_revision)
    assert "--accept" not in words
    assert words[-1] == "--dry-run"
    assert "--revision 11" in remedy.note
    assert "compact" in remedy.note
    assert "--reveal -o json" in remedy.note


def test_what_stands_there_now_is_not_known_from_an_older_revision() -> None:
    again = RepeatedOptions(("--endpoints", "a:1", "--revision", "7"), (), ("--encryption-config", "c.yaml"))
    remedy = kept(remedies_for(examination(cause=Cause.VALUE_TRUNCATED), again, readable=NOW))
    assert remedy.action.startswith("Save ")
    assert "--revision 11" in remedy.command.text
    assert "--revision 7" not in remedy.command.text + remedy.note


@pytest.mark.parametrize("leased", [False, True])
def test_what_may_only_be_newer_or_had_a_lease_is_not_written_over(leased: bool) -> None:
    found = examination(cause=Cause.VALUE_TRUNCATED)
    found = msgspec.structs.replace(
        found, verdict=msgspec.structs.replace(found.verdict, maybe_newer=not leased)
    )
    remedy = kept(remedies_for(found, readable=msgspec.structs.replace(NOW, leased=leased)))
    assert remedy.action.startswith("Save ")
    assert "restore" not in remedy.command.text


@pytest.mark.parametrize(
    ("key", "settings", "risks"),
    [
        ("/registry/namespaces/shop", {}, ["cluster-breaking"]),
        ("/registry/secrets/kube-system/web", {}, ["cluster-breaking"]),
        ("/registry/secrets/shop/web", {"breaking": True}, ["cluster-breaking"]),
        ("/registry/secrets/shop/web", {}, []),
    ],
)
def test_what_is_protected_is_accepted_in_the_command_and_said(
    key: str, settings: dict[str, Any], risks: list[str]
) -> None:
    found = examination(key, cause=Cause.VALUE_TRUNCATED)
    remedies = remedies_for(found, readable=NOW, **settings)
    words = shlex.split(kept(remedies).command.text)
    assert [words[at + 1] for at, word in enumerate(words) if word == "--accept"] == risks
    assert all(risk in kept(remedies).note for risk in risks)
    ours = next(remedy for remedy in remedies if remedy.action.startswith("Last: delete it on"))
    assert ("--accept cluster-breaking" in ours.note) == bool(risks)
    words = shlex.split(ours.command.text)
    assert [words[at + 1] for at, word in enumerate(words) if word == "--accept"] == risks


@pytest.mark.parametrize("cause", [Cause.WRONG_KEY, Cause.KEY_RENAMED, Cause.ENVELOPE_DAMAGED])
def test_what_cannot_make_room_has_its_readable_revision_saved(cause: Cause) -> None:
    remedy = kept(remedies_for(found_with(cause, Outcome.DECRYPT_FAILURE), readable=NOW))
    assert remedy.action.startswith("Save readable revision 11")
    words = shlex.split(remedy.command.text)
    assert words[:4] == ["etcdfix", "get", "--revision", "11"]
    assert words[-3:] == ["--reveal", "-o", "json"]


def test_a_revision_that_may_be_of_another_object_is_never_put_back() -> None:
    other = msgspec.structs.replace(NOW, same_object=False)
    remedy = kept(remedies_for(examination(cause=Cause.VALUE_TRUNCATED), readable=other))
    assert "another object" in remedy.action
    assert remedy.command.text.startswith("etcdfix get --revision 11 ")
    assert "restore" not in remedy.command.text + remedy.note


@pytest.mark.parametrize("key", HOSTILE_KEYS)
def test_a_readable_revision_of_a_hostile_key_is_quoted(key: bytes) -> None:
    remedy = kept(remedies_for(examination(key, cause=Cause.VALUE_TRUNCATED), readable=NOW))
    assert remedy.command.text.isprintable()
    assert remedy.note.isprintable()
    words = shlex.split(remedy.command.text)
    assert key.decode("latin-1") in words or any(word.startswith("base64:") for word in words)


def test_a_deletion_is_decided_by_what_stands_there_now() -> None:
    again = RepeatedOptions(("--endpoints", "a:1", "--revision", "7"), (), ("--no-encryption",))
    last = [
        r
        for r in remedies_for(examination(cause=Cause.VALUE_TRUNCATED), again)
        if " delete " in r.command.text
    ]
    assert "--endpoints a:1" in last[0].command.text
    assert "--revision" not in last[0].command.text


ONLY_ONE = "Only if no other value under its key fails like this: the key may have had other bytes. "


@pytest.mark.parametrize(
    ("change", "needs"),
    [
        ({}, []),
        ({"damage": Damage.LIKELY}, ["unproven-damage"]),
        ({"maybe_newer": True}, ["newer-than-known"]),
        ({"damage": Damage.LIKELY, "maybe_newer": True}, ["unproven-damage", "newer-than-known"]),
    ],
)
def test_a_deletion_accepts_what_has_to_be_accepted_and_says_so(
    change: dict[str, Any], needs: list[str]
) -> None:
    found = examination(cause=Cause.CIPHERTEXT_DAMAGED, **change)
    remedies = remedies_for(found, RepeatedOptions(reading=("--encryption-config", "c.yaml")))
    (ours,) = [remedy for remedy in remedies if remedy.command.text.startswith("etcdfix delete")]
    # An API server would not look for others under that key, so its own way is not offered without proof.
    likely = "unproven-damage" in needs
    assert any("ignoreStoreReadError" in remedy.command.text for remedy in remedies) is not likely
    assert ours.note.startswith(ONLY_ONE) is likely
    assert [word for word in needs if word in ours.note] == needs
    assert ours.command.text.partition(" --dry-run")[2] == "".join(f" --accept {risk}" for risk in needs)


def test_a_deletion_beside_lost_keys_names_the_directory_of_what_was_rescued() -> None:
    again = RepeatedOptions(reading=("--encryption-config", "c.yaml"))
    for lost in (True, False):
        ways = ways_out(examination(cause=Cause.VALUE_TRUNCATED), again, beside=Beside(others_lost=lost))
        (ours,) = (way.remedy for way in ways if way.remedy.command.text.startswith("etcdfix delete"))
        assert (" --rescued DIR" in ours.command.text) is lost
        assert ("etcdfix rescue" in ours.note) is lost


def test_a_moved_value_is_not_put_back_over_another_one() -> None:
    found = examination(cause=Cause.VALUE_MOVED, belongs_to=b"/registry/secrets/shop/home")
    for taken in (True, False):
        commands = [way.remedy.command.text for way in ways_out(found, beside=Beside(home_taken=taken))]
        assert any("--from-key" in command for command in commands) is not taken


def test_without_proof_of_damage_nothing_is_offered_for_deletion() -> None:
    for cause in (Cause.CIPHERTEXT_DAMAGED, Cause.VALUE_TRUNCATED, Cause.UNKNOWN_ENVELOPE):
        assert not any(is_deletion(r) for r in remedies_for(examination(cause=cause, damage=Damage.NONE)))


def test_deletion_is_a_dry_run_first() -> None:
    again = RepeatedOptions(source=("--endpoints", "e:1"), reading=("--encryption-config", "c.yaml"))
    ours, theirs = remedies_for(found_with(Cause.ZEROED_VALUE, Outcome.DECODE_FAILURE), again)[-2:]
    assert shlex.split(ours.command.text) == [
        "etcdfix", "delete", "/registry/secrets/shop/web", "--endpoints", "e:1", "--encryption-config", "c.yaml",
        "--reason", "REASON", ACKNOWLEDGEMENT, "--dry-run",
    ]  # fmt: skip
    assert shlex.split(theirs.command.text) == [
        "kubectl", "delete", "--raw", f"/api/v1/namespaces/shop/secrets/web?{UNSAFE}=true",
    ]  # fmt: skip
    assert "finalizers" in ours.note


def test_a_deletion_says_what_it_takes_for_granted_where_nobody_told() -> None:
    found = found_with(Cause.ZEROED_VALUE, Outcome.DECODE_FAILURE)
    doubt = (
        "--no-encryption holds only where nothing is encrypted at rest; else give --encryption-config FILE. "
    )
    assert remedies_for(found, RepeatedOptions(source=("--endpoints", "e:1")))[-2].note.startswith(doubt)
    for told in (("--no-encryption",), ("--encryption-config", "c.yaml")):
        assert doubt not in remedies_for(found, RepeatedOptions(reading=told))[-2].note


def test_a_deletion_never_names_a_snapshot() -> None:
    again = RepeatedOptions(source=("--snapshot", "old.db"))
    ours = remedies_for(found_with(Cause.ZEROED_VALUE, Outcome.DECODE_FAILURE), again)[-2]
    assert "old.db" not in ours.command.text


def test_what_the_server_serves_empty_is_not_to_be_deleted_the_unsafe_way() -> None:
    """The server refuses that: to it the object is readable."""
    found = examination(
        outcome=Outcome.DECODE_FAILURE, cause=Cause.EMPTY_VALUE, apiserver=ServerBehaviour.SERVES_EMPTY
    )
    remedies = remedies_for(found)
    assert not any(ACKNOWLEDGEMENT in r.command.text for r in remedies)
    assert shlex.split(remedies[-1].command.text) == [
        "kubectl", "delete", "--raw", "/api/v1/namespaces/shop/secrets/web",
    ]  # fmt: skip


def test_a_kind_that_may_be_newer_asks_for_the_release_first() -> None:
    found = examination(outcome=Outcome.DECODE_FAILURE, cause=Cause.KIND_NOT_REGISTERED, maybe_newer=True)
    remedies = remedies_for(found)
    assert "--kubernetes-version X.Y" in remedies[0].command.text
    assert remedies[-2].note.startswith("Needs --accept newer-than-known. ")
    named = RepeatedOptions(reading=("--kubernetes-version", "1.36"))
    assert not any("X.Y" in remedy.command.text for remedy in remedies_for(found, named))


def breaking(key: str, *paths: str) -> Examination:
    """An examination of an object whose raw JSON is broken in these places."""
    found = examination(
        key,
        outcome=Outcome.INCONSISTENT,
        cause=Cause.RAW_JSON_INVALID,
        breaks_responses=True,
        apiserver=ServerBehaviour.BREAKS_LIST,
    )
    wrong = tuple(Inconsistency("raw-json-invalid", path, "no JSON", breaks_responses=True) for path in paths)
    gvk = GroupVersionKind("apps", "v1", "StatefulSet")
    decoded = DecodedObject(gvk, b"db", b"shop", b"u", "protobuf", inconsistencies=wrong)
    return msgspec.structs.replace(found, decoded=decoded)


MANAGED = "metadata.managedFields[0].fieldsV1"


def test_healing_comes_before_deleting_what_breaks_lists() -> None:
    again = RepeatedOptions(source=("--snapshot", "a b.db"), reading=("--encryption-config", "enc.yaml"))
    heal, delete = remedies_for(breaking("/registry/statefulsets/shop/db", MANAGED), again)
    assert "without metadata.managedFields" in heal.action
    assert heal.command.text == (
        "etcdfix get --snapshot 'a b.db' --encryption-config enc.yaml /registry/statefulsets/shop/db "
        "--omit-managed-fields -o json | kubectl replace -f -"
    )
    assert is_deletion(delete)
    assert UNSAFE not in delete.command.text


def test_a_key_that_cannot_be_typed_heals_by_its_base64() -> None:
    command = remedies_for(breaking("/registry/statefulsets/shop/d\u202eb", MANAGED))[0].command
    key = base64.b64encode("/registry/statefulsets/shop/d\u202eb".encode()).decode()
    assert f"base64:{key} --omit-managed-fields" in command.text


@pytest.mark.parametrize("paths", [("data",), (MANAGED, "data"), ()])
def test_what_is_broken_elsewhere_is_not_healed_by_leaving_managed_fields_out(paths: tuple[str, ...]) -> None:
    heal, _delete = remedies_for(breaking("/registry/statefulsets/shop/db", *paths))
    assert "correct the broken field" in heal.action
    assert shlex.split(heal.command.text)[-1].endswith("/apis/apps/v1/namespaces/shop/statefulsets/db")


@pytest.mark.parametrize("key", HOSTILE_KEYS)
@pytest.mark.parametrize(("cause", "outcome"), CASES)
def test_commands_hold_together_whatever_the_key(cause: Cause, outcome: Outcome, key: bytes) -> None:
    for remedy in remedies_for(found_with(cause, outcome, key)):
        assert remedy.command.text.isprintable()
        if not remedy.command:
            continue
        words = shlex.split(remedy.command.text)
        assert shlex.join(words) == remedy.command.text
        assert words[0] in {"etcdfix", "kubectl", "curl"}
        if words[:2] == ["etcdfix", "restore"]:
            assert named_key(words[words.index("--from-key") + 1]) == key
        elif words == ["etcdfix", "scan"]:
            assert cause is Cause.KMS_UNPROVEN
        elif words[:2] == ["etcdfix", "scan"]:
            assert named_key(words[-1]) == key
        elif words[:2] == ["etcdfix", "copies"]:
            assert key in map(named_key, words)
        elif words[0] == "etcdfix":
            assert words[1] in {"delete", "rescue", "heal"}
            assert named_key(words[2]) == key
        elif words[:3] == ["kubectl", "edit", "customresourcedefinitions"]:
            assert cause is Cause.CRD_VERSION_MISSING
        else:
            path, _, query = words[-1].removeprefix("http://127.0.0.1:8001").partition("?")
            namespace, name = key.decode().split("/")[-2:]
            assert unquote(path) == f"/api/v1/namespaces/{namespace}/secrets/{name}"
            assert query in {"", f"{UNSAFE}=true"}


def test_commands_repeat_where_and_how_and_never_a_password() -> None:
    again = RepeatedOptions(
        source=("--endpoints", "10.0.0.1:2379", "--user", "root"),
        layout=("--etcd-prefix", "/kubernetes.io"),
        reading=("--encryption-config", "enc.yaml"),
    )
    lines = [
        r.command.text
        for r in remedies_for(found_with(Cause.AUTHENTICATION_FAILED, Outcome.DECRYPT_FAILURE), again)
    ]
    key = "/registry/secrets/shop/web"
    where = "--endpoints 10.0.0.1:2379 --user root --etcd-prefix /kubernetes.io"
    assert f"etcdfix scan {where} --encryption-config FILE {key}" in lines
    places = "--wal DIR --older-snapshot FILE --kubeconfig FILE"
    assert f"etcdfix copies {where} --encryption-config enc.yaml {key} {places}" in lines
    assert any(
        line.startswith(f"etcdfix rescue {key} --etcd-prefix /kubernetes.io --kubeconfig") for line in lines
    )


def test_the_allocator_is_put_back_never_deleted() -> None:
    found = found_with(Cause.ALLOCATOR_DAMAGED, Outcome.DECODE_FAILURE, "/registry/ranges/serviceips")
    (only,) = remedies_for(found)
    assert "snapshot" in only.action
    assert "Never delete" in only.note


TAG = Repair(
    RepairKind.BIT, "bit 3 of byte 9 of the ciphertext turned back (byte 44 of the value)", RepairProof.TAG
)
UNPROVEN = Repair(RepairKind.PREFIX, "one bit of the prefix k8s:enc:… put back", RepairProof.NONE)


def with_repair(
    repair: Repair | None, key: str = "/registry/secrets/shop/web", **settings: Any
) -> Examination:
    return msgspec.structs.replace(examination(key, **settings), repair=repair)


def test_a_repair_comes_before_everything_else() -> None:
    found = with_repair(TAG, cause=Cause.KEY_RENAMED)
    kinds = [way.kind for way in ways_out(found, readable=NOW)]
    assert kinds == [WayKind.REPAIR, WayKind.CURE, WayKind.SAVE, WayKind.RESCUE, WayKind.COPIES]
    damaged = with_repair(TAG, cause=Cause.CIPHERTEXT_DAMAGED)
    kinds = [way.kind for way in ways_out(damaged, readable=NOW)]
    assert kinds == [WayKind.REPAIR, WayKind.SAVE, WayKind.COPIES, WayKind.DELETE, WayKind.DELETE]
    assert first_way_out(ways_out(damaged, readable=NOW)) == ways_out(damaged, readable=NOW)[0].remedy


def test_a_repair_says_what_proves_it_and_what_it_accepts() -> None:
    told = RepeatedOptions(source=("--endpoints", "e:1"), reading=("--encryption-config", "c.yaml"))
    (remedy,) = [w.remedy for w in ways_out(with_repair(TAG), told) if w.kind is WayKind.REPAIR]
    assert remedy.action == "Repair it: one bit is turned back, its tag proves it; a dry run first"
    assert remedy.note.startswith("Bit 3 of byte 9 of the ciphertext turned back")
    assert remedy.command.text == (
        "etcdfix repair /registry/secrets/shop/web --endpoints e:1 --encryption-config c.yaml --reason REASON --dry-run"
    )
    system = with_repair(UNPROVEN, "/registry/secrets/kube-system/web")
    (remedy,) = [w.remedy for w in ways_out(system) if w.kind is WayKind.REPAIR]
    assert "nothing proves it" in remedy.action
    assert "--accept cluster-breaking --accept unproven-repair" in remedy.command.text
    assert "It accepts what must be accepted: cluster-breaking, unproven-repair." in remedy.note
    assert "--no-encryption holds only where nothing is encrypted" in remedy.note


def test_a_deletion_of_what_can_be_repaired_says_what_it_needs() -> None:
    (ours, _theirs) = [
        way.remedy
        for way in ways_out(with_repair(TAG, cause=Cause.CIPHERTEXT_DAMAGED))
        if way.kind is WayKind.DELETE
    ]
    assert ours.note.startswith("Needs --accept only-copy.")


KINE = RepeatedOptions(source=("--kine", "state.db"), reading=("--encryption-config", "c.yaml"))


@pytest.mark.parametrize(("cause", "outcome"), CASES)
def test_nothing_that_etcdfix_writes_is_offered_for_kine(cause: Cause, outcome: Outcome) -> None:
    remedies = remedies_for(found_with(cause, outcome), KINE, readable=NOW)
    assert remedies
    for remedy in remedies:
        words = shlex.split(remedy.command.text)
        assert not {"delete", "restore", "repair", "reencrypt"} & set(words[1:2]) or words[0] == "kubectl"
        assert words[:1] != ["etcdctl"]


def test_of_kine_a_readable_revision_is_saved_whatever_may_be_deleted() -> None:
    found = found_with(Cause.CIPHERTEXT_DAMAGED, Outcome.DECRYPT_FAILURE)
    (way,) = [way for way in ways_out(found, KINE, readable=NOW) if "readable revision" in way.remedy.action]
    assert way.kind is WayKind.SAVE
    assert way.remedy.command.text.startswith(f"etcdfix get --kine state.db --revision {NOW.at} ")
    assert "--reveal" in way.remedy.command.text
    assert "writes nothing to kine" in way.remedy.note
    other = msgspec.structs.replace(NOW, same_object=False)
    (way,) = [
        way for way in ways_out(found, KINE, readable=other) if "readable revision" in way.remedy.action
    ]
    assert "compare before you use it" in way.remedy.note


def test_of_kine_an_api_server_deletes_and_only_what_is_proven() -> None:
    found = found_with(Cause.VALUE_TRUNCATED, Outcome.DECODE_FAILURE)
    deletions = [way.remedy for way in ways_out(found, KINE) if way.kind is WayKind.DELETE]
    assert [UNSAFE in remedy.command.text for remedy in deletions] == [True]
    likely = msgspec.structs.replace(
        found_with(Cause.NONCE_DAMAGED, Outcome.DECRYPT_FAILURE),
        verdict=msgspec.structs.replace(
            found_with(Cause.NONCE_DAMAGED, Outcome.DECRYPT_FAILURE).verdict, damage=Damage.LIKELY
        ),
    )
    assert [way for way in ways_out(likely, KINE) if way.kind is WayKind.DELETE] == []


@pytest.mark.parametrize("damage", [Damage.LIKELY, Damage.POSSIBLE, Damage.PROVEN])
def test_what_is_not_proven_is_printed_with_all_that_it_needs(damage: Damage) -> None:
    found = found_with(Cause.NONCE_DAMAGED, Outcome.DECRYPT_FAILURE)
    found = msgspec.structs.replace(found, verdict=msgspec.structs.replace(found.verdict, damage=damage))
    again = RepeatedOptions(source=("--endpoints", "e:1"), reading=("--encryption-config", "c.yaml"))
    ways = ways_out(found, again, readable=NOW)
    for kind in (WayKind.DELETE, WayKind.PUT_BACK):
        command = next(way.remedy.command.text for way in ways if way.kind is kind)
        assert ("--accept unproven-damage" in command) is (damage is not Damage.PROVEN)
        assert ("--kubeconfig FILE" in command) is (damage is Damage.POSSIBLE)
    # Which API servers were asked is repeated.
    asked = msgspec.structs.replace(again, servers=("--kubeconfig", "admin.conf"))
    assert ("--kubeconfig admin.conf" in ways_out(found, asked)[-1].remedy.command.text) is (
        damage is Damage.POSSIBLE
    )


def test_what_two_writers_leave_begins_with_their_configurations() -> None:
    found = found_with(Cause.WRONG_KEY, Outcome.DECRYPT_FAILURE)
    found = msgspec.structs.replace(found, verdict=msgspec.structs.replace(found.verdict, two_writers=True))
    first, second, *_ = remedies_for(found, RepeatedOptions(source=("--snapshot", "s.db")))
    assert first.command.text == "etcdfix encryption check FILE FILE"
    assert (
        second.command.text
        == "etcdfix encryption try --snapshot s.db --candidate-config FILE /registry/secrets/shop/web"
    )
    # No command is offered that then says that the key is not lost.
    live = RepeatedOptions(source=("--endpoints", "https://a:2379"))
    for two, heals in ((True, False), (False, True)):
        one = msgspec.structs.replace(found, verdict=msgspec.structs.replace(found.verdict, two_writers=two))
        assert any("etcdfix heal" in way.command.text for way in remedies_for(one, live)) is heals
