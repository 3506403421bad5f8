"""Ways out: one ranked list, least destructive first, and nothing deleted without proof."""

from __future__ import annotations

import shlex
from itertools import product
from typing import Any

import msgspec
import pytest

from etcdfix.cli.keys import named_key
from etcdfix.copies.model import Home
from etcdfix.examine.verdicts.catalogue import CATALOGUE
from etcdfix.examine.verdicts.causes import Cause
from etcdfix.examine.verdicts.damage import Damage
from etcdfix.examine.verdicts.deletability import Deletability, deletability_of
from etcdfix.examine.verdicts.examination import Examination
from etcdfix.model.model import (
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
from etcdfix.remediation.offers import ways_at_hand
from etcdfix.report.advice.finding import Surroundings
from etcdfix.report.advice.ways import WayKind, first_way, is_warning
from etcdfix.report.advice.whole import first_step, ways_of_lost_key
from etcdfix.report.model import CauseSummary, Remedy, Summary
from etcdfix.text.commands import ACKNOWLEDGEMENT, RunOptions
from tests.support.documented_commands import check
from tests.support.examinations import examination

KEY = "/registry/secrets/shop/web"
UNSAFE = "ignoreStoreReadErrorWithClusterBreakingPotential"
NOW = ReadableRevision(11, 2, True, create_revision=1, version=1, uid="u-1")
LIVE = RunOptions(source=("--endpoints", "e:1"), reading=("--encryption-config", "c.yaml"))
KINE = RunOptions(source=("--kine", "state.db"), reading=("--encryption-config", "c.yaml"))
FILE = RunOptions(source=("--snapshot", "old.db"))
CASES = [
    (cause, outcome)
    for cause, info in CATALOGUE.items()
    for outcome in info.outcomes
    if outcome is not Outcome.READABLE
]
HOSTILE_KEYS = [
    b"/registry/secrets/shop/$(reboot)", b"/registry/secrets/shop/a b;c'd\"e`f`",
    b"/registry/secrets/-n/--help", b"/registry/secrets/shop/\xff\xfe",
    b"/registry/secrets/shop/a\n\x1b]0;x\x07", "/registry/secrets/shop/\u202egnp.exe".encode(),
    b"/registry/secrets/shop/a?b=c&d#e%2f",
]  # fmt: skip
TAG = Repair(RepairKind.BIT, "bit 3 of byte 9 of the ciphertext turned back", RepairProof.TAG)
UNPROVEN = Repair(RepairKind.PREFIX, "one bit of the prefix k8s:enc:… put back", RepairProof.NONE)


def found_with(
    cause: Cause, outcome: Outcome = Outcome.DECRYPT_FAILURE, key: bytes | str = KEY
) -> Examination:
    """Return an examination as the judge would have made it."""
    return examination(
        key,
        outcome=outcome,
        cause=cause,
        breaks_responses=cause is Cause.RAW_JSON_INVALID,
        belongs_to=examination(key).stored.key if cause is Cause.VALUE_MOVED else b"",
    )


def lines(found: Examination, run: RunOptions = LIVE, **options: Any) -> dict[WayKind, str]:
    """Return the command of the first way out of each kind."""
    ways = reversed(ways_at_hand(found, run, **options))
    return {WayKind(way.verb or ""): way.command.line(run) for way in ways}


def accepted(line: str) -> list[str]:
    words = shlex.split(line)
    return [words[at + 1] for at, word in enumerate(words) if word == "--accept"]


@pytest.mark.parametrize(("cause", "outcome"), CASES)
@pytest.mark.parametrize("run", [LIVE, KINE, FILE, RunOptions()])
def test_the_least_destructive_comes_first_and_deletion_last(
    cause: Cause, outcome: Outcome, run: RunOptions
) -> None:
    ways = ways_at_hand(found_with(cause, outcome), run, readable=NOW)
    first = first_way(ways)
    assert first is not None
    assert (first.verb == WayKind.DELETE) is (cause is Cause.NOT_AN_OBJECTS_KEY)  # it holds no object
    assert not any(is_warning(way) or way.command for way in ways[: ways.index(first)])
    assert all(bool(way.command) is bool(way.command.line(run)) for way in ways)
    deletes = [way.verb == WayKind.DELETE for way in ways]
    assert deletes == sorted(deletes)
    assert len({way.action for way in ways}) == len(ways)


@pytest.mark.parametrize("cause", [Cause.ENVELOPE_DAMAGED, Cause.UNKNOWN_ENVELOPE])
def test_what_not_to_do_is_next_though_it_has_no_command(cause: Cause) -> None:
    first = first_way(ways_at_hand(found_with(cause, key="/registry/example.org/things/-/a/b"), LIVE))
    assert first is not None
    assert is_warning(first)
    assert not first.command


@pytest.mark.parametrize(("cause", "outcome"), CASES)
def test_only_what_is_proven_and_not_curable_is_offered_for_deletion(cause: Cause, outcome: Outcome) -> None:
    found = found_with(cause, outcome)
    offered = any(ACKNOWLEDGEMENT in way.command.line(LIVE) for way in ways_at_hand(found, LIVE))
    never = cause in {Cause.ALLOCATOR_DAMAGED, Cause.ENVELOPE_DAMAGED}
    assert offered is (deletability_of(found) is Deletability.DELETABLE and not never)
    if outcome is Outcome.UNDETERMINED or CATALOGUE[cause].curable_by_configuration:
        assert not any("delete" in way.command.line(LIVE) for way in ways_at_hand(found, LIVE))


@pytest.mark.parametrize(("cause", "outcome"), CASES)
def test_every_command_is_one_that_click_takes(cause: Cause, outcome: Outcome) -> None:
    for key, run in product([KEY.encode(), *HOSTILE_KEYS], [LIVE, KINE, FILE]):
        found = msgspec.structs.replace(found_with(cause, outcome, key), repair=UNPROVEN)
        for way in ways_at_hand(found, run, readable=NOW):
            line = way.command.line(run)
            assert line.isprintable()
            words = shlex.split(line)
            whole = cause is Cause.KMS_UNPROVEN or words[1:2] == [
                "rescue"
            ]  # of everything, of the whole kind
            if words[:1] == ["etcdfix"] and not whole:
                assert any(named_key(word) == key for word in words if word.startswith(("/", "base64:")))
            if key == KEY.encode():
                check(words[: words.index("|")] if "|" in words else words)


@pytest.mark.parametrize(("cause", "outcome"), CASES)
def test_nothing_that_etcdfix_writes_is_offered_for_kine(cause: Cause, outcome: Outcome) -> None:
    found = msgspec.structs.replace(found_with(cause, outcome), repair=TAG)
    ways = ways_at_hand(found, KINE, readable=NOW)
    assert ways
    for way in ways:
        words = shlex.split(way.command.line(KINE))
        assert words[:1] != ["etcdctl"]
        assert words[:1] != ["etcdfix"] or words[1] != "delete"
        assert words[:2] != ["etcdfix", "fix"] or way.command.place == "memory"


@pytest.mark.parametrize(
    "run", [FILE, msgspec.structs.replace(LIVE, source=("--endpoints", "e:1", "--revision", "7"))]
)
def test_a_change_is_made_to_the_live_cluster_as_it_is_now(run: RunOptions) -> None:
    found = found_with(Cause.ZEROED_VALUE, Outcome.DECODE_FAILURE)
    told = lines(found, run, readable=NOW)
    assert told[WayKind.DELETE].startswith(f"etcdfix delete {KEY} ")
    for line in (told[WayKind.DELETE], lines(msgspec.structs.replace(found, repair=TAG), run)[WayKind.FIX]):
        assert "--snapshot" not in line
        assert "--revision" not in line
        assert line.split(" --dry-run")[0].endswith(("--reason REASON", ACKNOWLEDGEMENT))
    if run is FILE:  # its revisions show the object, so that its copy may be put back
        assert " --from snapshot:old.db " in told[WayKind.FIX]
        return
    assert WayKind.FIX not in told
    assert told[WayKind.SAVE].startswith("etcdfix get")
    assert "--revision 11" in told[WayKind.SAVE]
    assert "--revision 7" not in told[WayKind.SAVE]


@pytest.mark.parametrize(
    "cause", [Cause.PROVIDER_MISSING, Cause.KEY_NAME_MISSING, Cause.AUTHENTICATION_FAILED, Cause.WRONG_KEY]
)
def test_of_a_lost_key_the_memory_is_saved_before_the_key_is_looked_for(cause: Cause) -> None:
    ways = ways_at_hand(found_with(cause), LIVE)
    assert [way.verb for way in ways] == [WayKind.RESCUE, WayKind.CURE, WayKind.FIX, WayKind.COPIES]
    of_a_file = [way.verb for way in ways_at_hand(found_with(cause), FILE)]
    assert of_a_file == [WayKind.CURE, WayKind.RESCUE, WayKind.FIX, WayKind.COPIES]
    assert lines(found_with(cause))[WayKind.CURE].startswith("etcdfix encryption try ")
    same = ways_of_lost_key([cause], "aescbc/v1/key2", ["secrets"], LIVE, kept=(2, Remedy("Save it")))
    assert [way.verb for way in same] == [
        WayKind.RESCUE, WayKind.CURE, WayKind.FIX, WayKind.SAVE, WayKind.COPIES,
    ]  # fmt: skip
    for way in same:
        if way.command:
            check(shlex.split(way.command.line(LIVE)))


def test_of_two_writers_nothing_is_said_to_be_lost() -> None:
    found = found_with(Cause.WRONG_KEY)
    found = msgspec.structs.replace(found, verdict=msgspec.structs.replace(found.verdict, two_writers=True))
    ways = ways_at_hand(found, LIVE)
    assert ways[0].command.line(LIVE) == "etcdfix encryption check c.yaml FILE"
    assert WayKind.FIX not in {way.verb for way in ways}
    assert WayKind.FIX not in {way.verb for way in ways_of_lost_key([], "a", [], LIVE, differing=True)}


@pytest.mark.parametrize(
    "cause", [Cause.KMS_UNREACHABLE, Cause.KMS_KEY_UNKNOWN, Cause.KMS_UNPROVEN, Cause.KMS_DENIED]
)
def test_what_waits_for_kms_is_scanned_again_and_saved(cause: Cause) -> None:
    told = lines(found_with(cause, Outcome.UNDETERMINED))
    # What a plugin answers is proven by what it does for others: a scan of this one would prove nothing.
    assert told[WayKind.CURE].endswith(KEY) is (cause is not Cause.KMS_UNPROVEN)
    assert WayKind.RESCUE in told
    unasked = msgspec.structs.replace(LIVE, reading=(*LIVE.reading, "--no-kms"))
    assert "--no-kms" not in lines(found_with(cause, Outcome.UNDETERMINED), unasked)[WayKind.CURE]


def test_a_moved_value_is_put_back_only_where_nothing_stands() -> None:
    found = examination(cause=Cause.VALUE_MOVED, belongs_to=b"/registry/secrets/shop/a b")
    back, look, *rest = ways_at_hand(found, LIVE)
    assert back.command.line(LIVE).startswith(f"etcdfix fix '/registry/secrets/shop/a b' --from key:{KEY}")
    assert look.command.line(LIVE).endswith("'/registry/secrets/shop/a b'")
    assert WayKind.DELETE not in {way.verb for way in rest}
    for ways in (ways_at_hand(found, LIVE, beside=Surroundings(home=Home.TAKEN)), ways_at_hand(found, FILE)):
        assert not any("--from key:" in way.command.line(LIVE) for way in ways)


@pytest.mark.parametrize(
    ("home", "accepts"), [(Home.FREE, None), (Home.TAKEN, None), (Home.LATER, ["only-copy"]), (Home.SAME, [])]
)
def test_moved_value_goes_only_where_its_own_key_holds_object(home: Home, accepts: list[str] | None) -> None:
    found = examination(cause=Cause.VALUE_MOVED, belongs_to=b"/registry/secrets/shop/a")
    told = lines(found, beside=Surroundings(home=home))
    assert (WayKind.DELETE in told) is (accepts is not None)
    if accepts is not None:
        assert accepted(told[WayKind.DELETE]) == accepts


@pytest.mark.parametrize(
    ("key", "breaking", "risks"),
    [
        ("/registry/namespaces/shop", False, ["cluster-breaking"]),
        ("/registry/secrets/kube-system/web", False, ["cluster-breaking"]),
        (KEY, True, ["cluster-breaking"]),
        (KEY, False, []),
    ],
)
def test_what_is_protected_is_accepted_in_the_command(key: str, breaking: bool, risks: list[str]) -> None:
    told = lines(examination(key, cause=Cause.VALUE_TRUNCATED), readable=NOW, breaking=breaking)
    assert accepted(told[WayKind.FIX]) == accepted(told[WayKind.DELETE]) == risks
    repaired = msgspec.structs.replace(examination(key), repair=UNPROVEN)
    assert accepted(lines(repaired, breaking=breaking)[WayKind.FIX]) == [*risks, "unproven-repair"]
    assert accepted(lines(msgspec.structs.replace(repaired, repair=TAG))[WayKind.FIX]) == []


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
    ways = ways_at_hand(examination(cause=Cause.CIPHERTEXT_DAMAGED, **change), LIVE)
    ours, *theirs = [way for way in ways if way.verb == WayKind.DELETE]
    assert accepted(ours.command.line(LIVE)) == needs
    assert all(f"--accept {word}" in ours.note for word in needs)
    # An API server would not look for others under that key, so its own way is not offered without proof.
    assert any(UNSAFE in way.command.line(LIVE) for way in theirs) is ("unproven-damage" not in needs)


@pytest.mark.parametrize("damage", [Damage.LIKELY, Damage.POSSIBLE, Damage.PROVEN])
def test_possible_damage_has_every_api_server_asked(damage: Damage) -> None:
    found = found_with(Cause.NONCE_DAMAGED)
    found = msgspec.structs.replace(found, verdict=msgspec.structs.replace(found.verdict, damage=damage))
    told = lines(found, readable=NOW)
    for kind in (WayKind.DELETE, WayKind.FIX):
        assert ("--kubeconfig FILE" in told[kind]) is (damage is Damage.POSSIBLE)
    asked = msgspec.structs.replace(LIVE, servers=("--kubeconfig", "admin.conf"))
    assert ("admin.conf" in lines(found, asked)[WayKind.DELETE]) is (damage is Damage.POSSIBLE)


@pytest.mark.parametrize("lost", [True, False])
def test_a_deletion_beside_lost_keys_names_the_directory_of_what_was_rescued(lost: bool) -> None:
    told = lines(examination(cause=Cause.VALUE_TRUNCATED), beside=Surroundings(others_lost=lost))
    assert (" --rescued DIR" in told[WayKind.DELETE]) is lost


@pytest.mark.parametrize(
    "change", [{"same_object": False, "create_revision": 0}, {"uid": "", "create_revision": 0}]
)
def test_a_revision_that_may_not_fit_is_saved_and_never_put_back(change: dict[str, bool]) -> None:
    told = lines(examination(cause=Cause.VALUE_TRUNCATED), readable=msgspec.structs.replace(NOW, **change))
    assert WayKind.FIX not in told
    assert shlex.split(told[WayKind.SAVE])[-3:] == ["--reveal", "-o", "json"]
    newer = examination(cause=Cause.VALUE_TRUNCATED, maybe_newer=True)
    assert WayKind.FIX not in lines(newer, readable=NOW)
    for cause in (Cause.KEY_RENAMED, Cause.ENVELOPE_DAMAGED):
        assert WayKind.FIX not in lines(found_with(cause), readable=NOW)
    lost = [way.command.line(LIVE) for way in ways_at_hand(found_with(Cause.WRONG_KEY), LIVE, readable=NOW)]
    assert ["--declare-key-lost" in line for line in lost] == ["--from revision:2 " in line for line in lost]


def test_the_value_put_right_comes_before_everything_else() -> None:
    for cause in (Cause.KEY_RENAMED, Cause.CIPHERTEXT_DAMAGED):
        ways = ways_at_hand(msgspec.structs.replace(examination(cause=cause), repair=TAG), LIVE, readable=NOW)
        assert [way.command.place for way in ways if way.verb == WayKind.FIX][:1] == ["bit"]
        assert ways[0].verb == WayKind.FIX
        assert not any(way.command.place.startswith("revision") for way in ways)
    ours = next(way for way in ways if way.verb == WayKind.DELETE)
    assert "--accept only-copy" in ours.note


def test_what_the_server_serves_empty_is_not_to_be_deleted_the_unsafe_way() -> None:
    """The server refuses that: to it the object is readable."""
    found = examination(
        outcome=Outcome.DECODE_FAILURE, cause=Cause.EMPTY_VALUE, apiserver=ServerBehaviour.SERVES_EMPTY
    )
    assert lines(found)[WayKind.DELETE] == "kubectl delete --raw /api/v1/namespaces/shop/secrets/web"


def test_a_kind_that_may_be_newer_asks_for_the_release_first() -> None:
    found = examination(outcome=Outcome.DECODE_FAILURE, cause=Cause.KIND_NOT_REGISTERED, maybe_newer=True)
    assert "--kubernetes-version X.Y" in ways_at_hand(found, LIVE, readable=NOW)[0].command.line(LIVE)
    named = RunOptions(reading=("--kubernetes-version", "1.36"))
    assert not any("X.Y" in line for line in lines(found, named).values())


@pytest.mark.parametrize("paths", [("metadata.managedFields[0].fieldsV1",), ("data",), ()])
def test_what_breaks_lists_is_healed_before_it_is_deleted(paths: tuple[str, ...]) -> None:
    wrong = tuple(Inconsistency("raw-json-invalid", path, "no JSON", breaks_responses=True) for path in paths)
    gvk = GroupVersionKind("", "v1", "Secret")
    found = msgspec.structs.replace(
        found_with(Cause.RAW_JSON_INVALID, Outcome.INCONSISTENT),
        decoded=DecodedObject(gvk, b"web", b"shop", b"u", "protobuf", inconsistencies=wrong),
    )
    heal, delete = ways_at_hand(found, FILE)
    assert delete.verb == WayKind.DELETE
    line = heal.command.line(FILE)
    if paths[:1] == ("data",) or not paths:
        assert line.startswith("curl ")
    else:
        get = f"etcdfix get --snapshot old.db {KEY} --omit-managed-fields -o json --reveal"
        assert line == f"{get} | kubectl replace -f -"


def test_k3s_keeps_its_configuration() -> None:
    kept = msgspec.structs.replace(KINE, keeps_configuration=True)
    assert "etcdfix encryption recover" in lines(found_with(Cause.WRONG_KEY), kept)[WayKind.CURE]
    known = found_with(Cause.RESOURCE_NOT_CONFIGURED)
    assert "recover" not in lines(known, kept)[WayKind.CURE]


def summary(*causes: tuple[Cause, Outcome]) -> Summary:
    return Summary(by_cause=[CauseSummary(cause.value, outcome.value, 1, KEY) for cause, outcome in causes])


def test_the_first_step_after_a_scan() -> None:
    """What is wrong first; else what could not be judged, other prefixes, what was not seen, and a wider scope."""
    way = Remedy("Do it")

    def line(found: Summary, first: Remedy | None = None, words: tuple[str, ...] = (), **told: Any) -> str:
        step = first_step(found, first, words, LIVE, **({"whole": True} | told))
        return step.command.line(LIVE) if step is not None else ""

    undetermined = summary((Cause.OWNER_UNKNOWN, Outcome.UNDETERMINED))
    assert first_step(undetermined, way, (), LIVE, whole=True) == way
    assert line(undetermined).endswith(KEY)
    unread = summary((Cause.NO_CONFIGURATION, Outcome.UNDETERMINED))
    assert "--encryption-config FILE" in line(unread, way)
    assert line(summary(), prefixes=["/kubernetes.io"], words=("secrets",)).endswith(
        "--etcd-prefix /kubernetes.io --encryption-config c.yaml secrets"
    )
    assert line(summary(), elsewhere=["/other/"]).endswith(" /other")
    scan = "etcdfix scan --endpoints e:1 --encryption-config c.yaml"
    assert line(summary(), whole=False) == scan
    assert line(summary(), words=("secrets",)) == scan
    assert line(summary()) == ""
