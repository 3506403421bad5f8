"""The ways out of one finding."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final, NamedTuple

from etcdfix.copies.model import Home, Place
from etcdfix.examine.verdicts.causes import Cause
from etcdfix.examine.verdicts.damage import Damage
from etcdfix.examine.verdicts.deletability import (
    KMS_DOUBTS,
    LOST_KEY,
    Deletability,
    deletability_of,
    key_may_be_lost,
    protected_reason,
    rests_on_others,
)
from etcdfix.examine.verdicts.examination import Examination
from etcdfix.model.model import GroupResource, Outcome, Repair, RepairKind, ServerBehaviour
from etcdfix.model.rules import Rule, acceptance
from etcdfix.model.storagekey import api_path
from etcdfix.report.advice.ways import (
    KMS_ADVICE,
    MAY_BE_CACHED,
    WayKind,
    configuration_ways,
    from_memory,
    in_order,
    other_copies,
    recovered_configuration,
    risks_to_accept,
    two_writers,
    with_configuration,
)
from etcdfix.report.model import Remedy
from etcdfix.text import commands
from etcdfix.text.commands import GRANTED, NO_COMMAND, Command, Part, RunOptions
from etcdfix.text.safetext import is_plain, key_word

_ANY_RUN = RunOptions()
_NO_KMS: Final = "--no-kms"
_SECRETS = GroupResource("", "secrets")


class Surroundings(NamedTuple):
    """What a look at other keys showed.

    Attributes:
        others_lost: Others of its kind have lost their encryption key; None where nobody looked.
        home: What stands at the etcd key that the value belongs to.
    """

    others_lost: bool | None = None
    home: Home = Home.FREE


NOT_LOOKED: Final = Surroundings()


def ways_out(
    found: Examination,
    run: RunOptions = _ANY_RUN,
    *,
    offers: Sequence[Remedy] = (),
    breaking: bool = False,
    beside: Surroundings = NOT_LOOKED,
) -> list[Remedy]:
    """Return the ways out for one examined key, the first to be done first; empty for what needs none.

    Args:
        found: The value.
        run: What was read, and how.
        offers: How its copies are put back, the best first; empty where nobody looked.
        breaking: A change may break the cluster; what its place alone says need not be told.
        beside: What a look at other keys showed.
    """
    verdict = found.verdict
    cause = verdict.cause
    if cause is None or verdict.outcome in {Outcome.READABLE, Outcome.NOT_AN_OBJECT}:
        return []
    if verdict.outcome is Outcome.INCONSISTENT:
        return [*_inconsistent(found, cause)]
    if verdict.outcome is Outcome.UNDETERMINED:
        memory = _from_memory(found, lost=False) if cause in KMS_ADVICE else []
        return in_order(offers, _undetermined(cause, found, run), memory, urgent=False)
    if cause is Cause.NOT_AN_OBJECTS_KEY:
        return [_without_an_object(found, run, breaking=breaking)]
    lost = cause in LOST_KEY and key_may_be_lost(found)
    memory = _from_memory(found, lost=lost) if cause in MAY_BE_CACHED else []
    cures = _cures(found, cause, run, beside)
    ways = in_order(offers, cures, memory, urgent=lost and not run.of_a_file)
    if cause is Cause.ALLOCATOR_DAMAGED:
        return ways
    ways.append(other_copies(key_word(found.stored.key)))
    if cause is not Cause.ENVELOPE_DAMAGED and may_be_deleted(found, beside.home):
        served = verdict.apiserver is ServerBehaviour.SERVES_EMPTY
        ways += [ordinary_deletion(found)] if served else deletions(found, run, beside, breaking=breaking)
    return ways


def may_be_deleted(found: Examination, home: Home) -> bool:
    """Say whether nothing in a value, or at the etcd key that it belongs to, speaks against its deletion."""
    deletability = deletability_of(found)
    elsewhere = deletability is Deletability.MOVED and home in {Home.SAME, Home.LATER}
    return elsewhere or deletability is Deletability.DELETABLE


def _cures(found: Examination, cause: Cause, run: RunOptions, beside: Surroundings) -> Iterator[Remedy]:
    """Yield what is changed around a value, so that it reads as it is, and what is found out first."""
    key = found.stored.key
    word = key_word(key)
    recovered = recovered_configuration([cause], found.transformer, run)
    if recovered is not None:
        yield recovered
    if found.verdict.two_writers:
        yield from two_writers([word])
    yield from configuration_ways([cause], found.transformer, [word])
    match cause:
        case Cause.VALUE_MOVED:
            yield from _moved(
                key, found.verdict.belongs_to, taken=run.of_a_file or beside.home is not Home.FREE
            )
        case Cause.VERSION_REMOVED:
            until = found.verdict.readable_until or "an earlier release"
            shown = ("kubectl", "get", str(found.directory.group_resource), "--all-namespaces", "-o", "json")
            yield _advice(
                f"Start an API server of {until} on this etcd, and have it rewrite all objects of the type",
                "It is the last that reads them. kubectl must talk to that server. The values are whole.",
                Command(shown, feeds=["kubectl", "replace", "-f", "-"]),
            )
        case Cause.CRD_VERSION_MISSING:
            name = f"{found.directory.resource}.{found.directory.group}"
            yield _advice(
                "Put the version back into the CustomResourceDefinition, with served: false",
                "Then rewrite the objects. Remove the version once status.storedVersions no longer lists it.",
                Command(["kubectl", "edit", "customresourcedefinitions", name]),
            )
        case Cause.KIND_NOT_REGISTERED if "--kubernetes-version" not in run.reading:
            yield _advice(
                "Name the release of the API servers, to be certain which kinds they know",
                "Without it, a kind that is newer than this etcdfix looks like a damaged one.",
                commands.scan(word, reading=[Part.READING, "--kubernetes-version", "X.Y"]),
            )
        case Cause.DOUBLE_ENCRYPTED:
            yield _advice(
                "Find out what encrypted it a second time: the object may be whole below that layer",
                "The inner value begins with k8s:enc: like any other, and opens with the key that wrote it.",
            )
        case Cause.ENVELOPE_DAMAGED:
            yield _advice(
                "Do not delete it: what follows the damaged prefix may decrypt once the prefix is whole again",
                "Save a snapshot of etcd first, so that these bytes stay.",
            )
        case Cause.ALLOCATOR_DAMAGED:
            yield _advice(
                "Put back the value from a snapshot that was taken before the damage",
                "Never delete it: API servers rebuild from Services only what a readable record lets them.",
                commands.scan(word, source=("--snapshot", "FILE")),
            )


def _advice(action: str, note: str, command: Command = NO_COMMAND) -> Remedy:
    return Remedy(action, command, note, WayKind.CURE)


def _moved(key: bytes, home: bytes, *, taken: bool) -> Iterator[Remedy]:
    if not taken:
        yield _advice(
            "If the etcd key that it belongs to is gone, put it back there: a dry run first",
            "It writes only where nothing is, and only an object with the uid that was there. This key stays as it is.",
            commands.fix(home, f"{Place.KEY}:{key_word(key)}"),
        )
    yield _advice(
        "Look at the etcd key that it belongs to: it was copied from there",
        "If that key is gone, these bytes are the only copy: save a snapshot before anything else.",
        commands.scan(key_word(home)),
    )


def _from_memory(found: Examination, *, lost: bool) -> list[Remedy]:
    """Return how the memory of API servers is saved, and, where the encryption key is lost, written anew."""
    where = found.directory
    fits = where.namespaced is None or where.namespaced == bool(found.namespace)
    # The version of a custom resource is known to API servers.
    path = api_path(where.group, where.version or "v1", where.resource, found.namespace, found.name or None)
    named = [str(where.group_resource)] if path and fits and found.name else []
    return from_memory(named, found.stored.key, lost=lost)


def _without_an_object(found: Examination, run: RunOptions, *, breaking: bool) -> Remedy:
    delete = commands.delete(found.stored.key, risks_to_accept(found, breaking=breaking))
    return Remedy(
        "Delete the key, after this dry run, with a backup and a record: it holds no object",
        NO_COMMAND if run.of_kine else delete,
        f"{NOT_TO_KINE if run.of_kine else granted(run)}Web UIs for etcd mark directories so: keep yours out.",
        WayKind.DELETE,
    )


def _undetermined(cause: Cause, found: Examination, run: RunOptions) -> Iterator[Remedy]:
    word = key_word(found.stored.key)
    if cause is Cause.NO_CONFIGURATION or cause in KMS_ADVICE:
        first = undetermined_way({cause}, [word], run)
        if first is not None:
            yield first
        recovered = recovered_configuration([cause], found.transformer, run)
        if recovered is not None:
            yield recovered
        return
    yield _advice(
        "Find out what writes under this path before anything else",
        "If its CustomResourceDefinition cannot be read, or waits for KMS, fix that first: this key may be whole then.",
    )


def undetermined_way(
    causes: Collection[str], words: Sequence[str], run: RunOptions, *, example: bytes | None = None
) -> Remedy | None:
    """Return what to do first about values that could not be judged; None where nothing general helps."""
    if Cause.NO_CONFIGURATION in causes:
        return with_configuration(words, run)
    if KMS_DOUBTS.intersection(causes) and _NO_KMS in run.reading:
        reading = [word for word in run.reading if word != _NO_KMS]
        action, note, command = (
            "Scan again, and let the KMS plugins be asked",
            "",
            commands.scan(*words, reading=reading),
        )
    elif waiting := [cause for cause in KMS_ADVICE if cause in causes]:
        action, note = KMS_ADVICE[waiting[0]]
        # Only what else its plugin opens shows what an answer is worth.
        command = commands.scan(*([] if waiting[0] is Cause.KMS_UNPROVEN else words))
    elif causes and example is not None:
        action, note, command = "See why the first of them could not be judged", "", commands.explain(example)
    elif causes:
        action, note, command = "See why these could not be judged", "", commands.scan(*words, "-o", "yaml")
    else:
        return None
    return Remedy(action, command, note, WayKind.CURE)


def _only_managed_fields_break(found: Examination) -> bool:
    wrong = found.decoded.inconsistencies if found.decoded is not None else ()
    breaking = [w.field_path for w in wrong if w.breaks_responses]
    return bool(breaking) and all(path.startswith("metadata.managedFields") for path in breaking)


def _inconsistent(found: Examination, cause: Cause) -> Iterator[Remedy]:
    path = api_path_of(found)
    if found.verdict.breaks_responses and _only_managed_fields_break(found):
        # A masked Secret would be refused, so it is revealed.
        options = ("--omit-managed-fields", "-o", "json", *revealed(found.directory.group_resource))
        shown = commands.get(found.stored.key, *options)
        yield _advice(
            "Heal it through the API: replace it by itself without metadata.managedFields",
            "Nothing else is lost. The API server refuses with a conflict if the object has changed since.",
            Command(shown.words, feeds=["kubectl", "replace", "-f", "-"]),
        )
    elif found.verdict.breaks_responses:
        accept, url = "Accept: application/vnd.kubernetes.protobuf", f"http://127.0.0.1:8001{path}"
        yield _advice(
            "Heal it through the API: read it as protobuf, correct the broken field, and PUT it back whole",
            "Start kubectl proxy first. kubectl apply, edit and patch fail on the object.",
            Command(["curl", "-H", accept, url]) if path else NO_COMMAND,
        )
    elif cause is Cause.IDENTITY_MISMATCH:
        yield _advice(
            "Look for the object that its contents name: if it is whole under its own key, delete this one",
            "Else create the right one again under this key. An ordinary update of this one is refused.",
            raw_request("get", path),
        )
    else:
        yield _advice(
            "Read it through the API, correct the field, and replace it",
            "The API server accepts the object, so no unsafe deletion is needed or possible.",
            raw_request("get", path),
        )
    # The cache of an API server goes by the name inside: it loses that object, whatever etcd still has of it.
    seen_as_gone = "API servers then show the one of the name inside as gone, until it is written again."
    yield Remedy(
        "If it cannot be mended: delete it through the API in the ordinary way",
        raw_request("delete", path),
        seen_as_gone
        if cause is Cause.IDENTITY_MISMATCH
        else "Finalizers and owner references work as usual.",
        WayKind.DELETE,
    )


NOT_TO_KINE: Final = "etcdfix does not write to kine; an API server has to make the change."
# A newer release may have written another magic, or more behind an object.
_MAY_BE_NEWER = frozenset({RepairKind.MAGIC, RepairKind.TRAILING_BYTES})


def granted(run: RunOptions) -> str:
    """Return what a command takes for granted where nobody told how values are encrypted; else ""."""
    return "" if run.told_of_encryption else GRANTED


def repair_risks(found: Examination, repair: Repair, *, breaking: bool = False) -> list[Rule]:
    """Return the rules to accept before a repair: nothing proves it, or a newer release may have written the value."""
    newer = found.verdict.cause is Cause.UNKNOWN_ENVELOPE or repair.kind in _MAY_BE_NEWER
    risks = [Rule.NEWER_THAN_KNOWN] if newer else []
    if repair.proven:
        return risks
    breaking = breaking or bool(protected_reason(found.directory.group_resource, found.namespace))
    return [*([Rule.CLUSTER_BREAKING] if breaking else []), Rule.UNPROVEN_REPAIR, *risks]


def revealed(resource: GroupResource) -> Sequence[str]:
    return ["--reveal"] if resource == _SECRETS else []


def unsafe_deletion(found: Examination) -> Command:
    """Return the API server's own unsafe deletion of an object; nothing where the API cannot name it."""
    path = api_path_of(found)
    query = "ignoreStoreReadErrorWithClusterBreakingPotential=true"
    return Command(["kubectl", "delete", "--raw", f"{path}?{query}"]) if path else NO_COMMAND


def api_path_of(found: Examination) -> str:
    """Return the object's path in the API; "" where the key is none that the API can name."""
    namespaced = found.directory.namespaced
    fits = namespaced is None or namespaced == bool(found.namespace)
    if not is_plain(found.stored.key) or not fits or not found.name or "/" in found.namespace + found.name:
        return ""
    return found.directory.api_path(found.namespace, found.name)


_LOST = "The deletion skips finalizers and graceful termination. The garbage collector then deletes what it owned."


def deletions(found: Examination, run: RunOptions, beside: Surroundings, *, breaking: bool) -> list[Remedy]:
    """Return the ways to delete what cannot be read: ours, and, where damage is proven, the API server's own."""
    only_here = [Rule.ONLY_COPY] if beside.home is Home.LATER else []
    risks = [*risks_to_accept(found, breaking=breaking), *only_here]
    needs = "".join(f"Needs {acceptance(risk)}. " for risk in risks)
    if beside.others_lost:
        needs += "First save the objects whose encryption key is lost: etcdfix rescue writes DIR. "
    elif beside.others_lost is None and found.rule:
        needs += "It is refused while other objects of its kind have lost their key and are not rescued. "
    damage = found.verdict.damage
    if damage is Damage.POSSIBLE:
        needs = f"Only if no API server reads it: each of them is asked. {needs}"
    elif rests_on_others(found.verdict):
        needs = (
            f"Only if no other value under its key fails like this: the key may have had other bytes. {needs}"
        )
    ours = Remedy(
        "Last: delete it on the live etcd, after this dry run, with a backup and a record",
        commands.delete(
            found.stored.key, risks, asking=damage is Damage.POSSIBLE, rescued=bool(beside.others_lost)
        ),
        f"{needs}{granted(run)}{_LOST}",
        WayKind.DELETE,
    )
    theirs = Remedy(
        "Last: let an API server delete it the unsafe way, after you copied state.db: it keeps no backup"
        if run.of_kine
        else "Last: or let an API server delete it the unsafe way, after a snapshot of etcd: it keeps no backup",
        unsafe_deletion(found),
        "Needs the feature gate AllowUnsafeMalformedObjectDeletion and the verb unsafe-delete-ignore-read-errors. "
        + _LOST,
        WayKind.DELETE,
    )
    # An API server would not look for others that fail, so its own way needs proof.
    return [*([] if run.of_kine else [ours]), *([] if damage.is_unproven else [theirs])]


def ordinary_deletion(found: Examination) -> Remedy:
    return Remedy(
        "Last: delete it through the API in the ordinary way, after a snapshot of etcd",
        raw_request("delete", api_path_of(found)),
        "The API server reads it as an empty object, so it refuses the unsafe deletion.",
        WayKind.DELETE,
    )


def raw_request(verb: str, path: str) -> Command:
    return Command(["kubectl", verb, "--raw", path]) if path else NO_COMMAND
