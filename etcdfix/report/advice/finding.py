"""The ways out of one finding."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final, NamedTuple

from etcdfix.model import (
    GroupResource,
    Outcome,
    ReadableRevision,
    Repair,
    RepairKind,
    RepairProof,
    ServerBehaviour,
)
from etcdfix.report.advice.ways import (
    KMS_ADVICE,
    MAY_BE_CACHED,
    Way,
    WayKind,
    bound,
    configuration_ways,
    from_memory,
    other_copies,
    ranked,
    recovered_configuration,
    risks_to_accept,
    two_writers,
    with_configuration,
)
from etcdfix.report.model import Remedy
from etcdfix.rules import Rule, acceptance
from etcdfix.storagekey import api_path
from etcdfix.text import commands
from etcdfix.text.commands import GRANTED, NO_COMMAND, Command, Part, RunOptions
from etcdfix.text.safetext import is_plain, key_word
from etcdfix.verdicts.causes import Cause
from etcdfix.verdicts.damage import Damage
from etcdfix.verdicts.deletability import (
    KMS_DOUBTS,
    LOST_KEY,
    Deletability,
    deletability_of,
    key_may_be_lost,
    rests_on_others,
    risks_of,
)
from etcdfix.verdicts.examination import Examination
from etcdfix.verdicts.protected import protected_reason

_ANY_RUN = RunOptions()
_SECRETS = GroupResource("", "secrets")
_NO_KMS: Final = "--no-kms"


class Beside(NamedTuple):
    """What a look at other keys showed.

    Attributes:
        others_lost: Others of its kind have lost their encryption key; None where nobody looked.
        home_taken: The etcd key that the value belongs to holds a value.
    """

    others_lost: bool | None = None
    home_taken: bool = False


_NOT_LOOKED: Final = Beside()


def ways_out(
    found: Examination,
    run: RunOptions = _ANY_RUN,
    *,
    readable: ReadableRevision | None = None,
    breaking: bool = False,
    beside: Beside = _NOT_LOOKED,
) -> list[Way]:
    """Return the ways out for one examined key, the first to be done first; empty for what needs none.

    Args:
        found: The value.
        run: What was read, and how.
        readable: An earlier revision that still reads; None for none, or where nobody looked.
        breaking: A change may break the cluster; what its place alone says need not be told.
        beside: What a look at other keys showed.
    """
    verdict = found.verdict
    cause = verdict.cause
    if cause is None or verdict.outcome in {Outcome.READABLE, Outcome.NOT_AN_OBJECT}:
        return []
    if verdict.outcome is Outcome.INCONSISTENT:
        return ranked(_inconsistent(found, cause), run)
    repair = repair_way(found, run, breaking=breaking)
    ways = [repair] if repair is not None else []
    if verdict.outcome is Outcome.UNDETERMINED:
        return ranked([*ways, *_undetermined(cause, found, run)], run)
    ways += _cures(found, cause, run, beside)
    if readable is not None:
        earlier = readable_way(found, readable, run, breaking=breaking)
        ways.append(earlier)
        if earlier.kind is WayKind.PUT_BACK:
            save = save_command(found.stored.key, found.directory.group_resource, readable.at)
            ways.append(Way(Remedy("Or save it now, before etcd compacts it", save), WayKind.SAVE))
    if cause in MAY_BE_CACHED:
        ways += _from_memory(found, lost=cause in LOST_KEY and key_may_be_lost(found))
    if cause is not Cause.ALLOCATOR_DAMAGED:
        ways.append(other_copies(key_word(found.stored.key)))
    if cause in {Cause.ALLOCATOR_DAMAGED, Cause.ENVELOPE_DAMAGED}:
        return ranked(ways, run)
    if deletability_of(found) is Deletability.DELETABLE:
        served = verdict.apiserver is ServerBehaviour.SERVES_EMPTY
        last = [_ordinary_delete(found)] if served else _deletions(found, run, beside, breaking=breaking)
        ways += [Way(remedy, WayKind.DELETE) for remedy in last]
    return ranked(ways, run)


def _cures(found: Examination, cause: Cause, run: RunOptions, beside: Beside) -> Iterator[Way]:
    """Yield what is changed around a value, so that it reads as it is, and what is found out first."""
    key = found.stored.key
    word = key_word(key)
    recovered = recovered_configuration([cause], found.transformer, run)
    if recovered is not None:
        yield Way(recovered)
    if found.verdict.two_writers:
        yield from two_writers([word])
    yield from configuration_ways([cause], found.transformer, [word])
    match cause:
        case Cause.VALUE_MOVED:
            yield from _moved(key, found.verdict.belongs_to, taken=run.of_a_file or beside.home_taken)
        case Cause.VERSION_REMOVED:
            until = found.verdict.readable_until or "an earlier release"
            yield _advice(
                f"Start an API server that still reads it ({until}) and let it rewrite the object",
                "A storage version migration of the resource rewrites all of its objects.",
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


def _advice(action: str, note: str, command: Command = NO_COMMAND) -> Way:
    return Way(Remedy(action, command, note))


def _moved(key: bytes, home: bytes, *, taken: bool) -> Iterator[Way]:
    if not taken:
        words = ("--from-key", key_word(key))
        yield _advice(
            "If the etcd key that it belongs to is gone, put it back there: a dry run first",
            "It writes only where nothing is, and only an object with the uid that was there. This key stays as it is.",
            commands.restore(words, home, accepted=["unlisted-source"]),
        )
    yield _advice(
        "Look at the etcd key that it belongs to: it was copied from there",
        "If that key is gone, these bytes are the only copy: save a snapshot before anything else.",
        commands.scan(key_word(home)),
    )


_UNDONE = {
    RepairKind.BIT: "one bit is turned back",
    RepairKind.PREFIX: "its prefix is put back",
    RepairKind.NAME: "its key name is put back",
    RepairKind.WRAPPED_KEY: "its wrapped key is put in",
    RepairKind.TEXT_MODE: "CR LF becomes LF again",
    RepairKind.MAGIC: "its magic is put back",
    RepairKind.TRAILING_BYTES: "what follows is cut off",
}
_PROOFS = {
    RepairProof.TAG: "its tag proves it",
    RepairProof.DECODES: "the object decodes",
    RepairProof.NONE: "nothing proves it",
}
NOT_TO_KINE: Final = "etcdfix does not write to kine; an API server has to make the change."
# A newer release may have written another magic, or more behind an object.
_MAY_BE_NEWER = frozenset({RepairKind.MAGIC, RepairKind.TRAILING_BYTES})


def repair_way(found: Examination, run: RunOptions, *, breaking: bool = False) -> Way | None:
    """Return how the stored bytes are put right; None where that is not known."""
    repair = found.repair
    if repair is None:
        return None
    how = f"{repair.words[0].upper()}{repair.words[1:]}."
    if run.of_kine:
        kept = Remedy(
            f"Keep it: {_UNDONE[repair.kind]}, and it reads; {_PROOFS[repair.proof]}",
            commands.save_copy(run, "kept.db"),
            f"{how} {NOT_TO_KINE}",
        )
        return Way(bound(kept, run), WayKind.SAVE)
    risks = repair_risks(found, repair, breaking=breaking)
    proof = "no proof of the name" if repair.kind is RepairKind.NAME else _PROOFS[repair.proof]
    way = Remedy(
        f"Repair it: {_UNDONE[repair.kind]}, {proof}; a dry run first",
        commands.repair(found.stored.key, risks),
        f"{how} {_accepts(risks)}{granted(run)}The old bytes are backed up first; nothing else of the object is lost.",
    )
    return Way(bound(way, run), WayKind.REPAIR)


def _accepts(risks: Sequence[Rule]) -> str:
    return f"The command accepts {', '.join(risks)}. " if risks else ""


def granted(run: RunOptions) -> str:
    """Return what a command takes for granted where nobody told how values are encrypted; else ""."""
    return "" if run.told_of_encryption else GRANTED


def repair_risks(found: Examination, repair: Repair, *, breaking: bool = False) -> list[Rule]:
    """Return what has to be accepted before a repair is made: what nothing proves, or a newer release may have written.

    Args:
        found: The value.
        repair: Its only one.
        breaking: As in :func:`ways_out`.
    """
    newer = found.verdict.cause is Cause.UNKNOWN_ENVELOPE or repair.kind in _MAY_BE_NEWER
    risks = [Rule.NEWER_THAN_KNOWN] if newer else []
    if repair.proven:
        return risks
    breaking = breaking or bool(protected_reason(found.directory.group_resource, found.namespace))
    return [*([Rule.CLUSTER_BREAKING] if breaking else []), Rule.UNPROVEN_REPAIR, *risks]


_COMPACTS = "API servers compact it away every 5 minutes; a snapshot of etcd keeps it."
_OTHER_OBJECT = (
    "The etcd key was deleted and put again since then. Compare the objects before you use this one."
)


def readable_way(
    found: Examination,
    readable: ReadableRevision,
    run: RunOptions,
    *,
    breaking: bool = False,
    refused: bool = False,
) -> Way:
    """Return how an earlier revision that still reads is put back, or saved where it cannot be put back as it is.

    Args:
        found: The value that cannot be read.
        readable: The revision.
        run: What was read, and how.
        breaking: As in :func:`ways_out`.
        refused: A deletion of the value was refused, and for the same reason it could not be written over.
    """
    stored, same = found.stored, readable.same_object
    save = save_command(stored.key, found.directory.group_resource, readable.at)
    which = f"readable revision {readable.at}"
    # What may only be newer than this tool may be in order; a lease that ran out takes its object with it.
    # What can be repaired is newer than any earlier revision.
    better = {Rule.NEWER_THAN_KNOWN, Rule.ONLY_COPY} & set(risks_of(found))
    unsure = not same or refused or better or readable.leased or run.of_the_past
    if run.of_kine:
        action, note = (
            f"Save {which}, before kine compacts it",
            f"{NOT_TO_KINE} kine keeps only the value before.",
        )
    elif run.of_a_file:
        action, note = (
            f"Save {which}, which this file still holds",
            "A live etcd may have compacted it by now.",
        )
    elif unsure or deletability_of(found) is not Deletability.DELETABLE:
        action = f"Save {which}, before etcd compacts it"
        note = f"It cannot be put back: that would overwrite a value that etcdfix may not delete. {_COMPACTS}"
    else:
        risks = risks_to_accept(found, breaking=breaking)
        asking = [Part.ASKING] if found.verdict.damage is Damage.POSSIBLE else []
        put_back = Remedy(
            f"Put back {which}, soon compacted: a dry run first",
            commands.restore(
                ("--from-revision", str(readable.at), *asking),
                stored.key,
                replacing=stored.mod_revision,
                accepted=risks,
            ),
            f"The current value is backed up first. {_accepts(risks)}{granted(run)}{_COMPACTS}",
        )
        return Way(bound(put_back, run), WayKind.PUT_BACK)
    if not same:
        action, note = f"{action}: it may be of another object", f"{_OTHER_OBJECT} {note}"
    return Way(bound(Remedy(action, save, note), run), WayKind.SAVE)


def save_command(key: bytes, resource: GroupResource, revision: int) -> Command:
    """Return the command that shows a whole object at a revision, to be kept: a Secret that is masked is no copy."""
    return commands.get(key, *_revealed(resource), "-o", "json", revision=revision)


def _revealed(resource: GroupResource) -> Sequence[str]:
    return ["--reveal"] if resource == _SECRETS else []


def _from_memory(found: Examination, *, lost: bool) -> list[Way]:
    """Return how the memory of API servers is saved, and, where the encryption key is lost, written anew."""
    where = found.directory
    fits = where.namespaced is None or where.namespaced == bool(found.namespace)
    # The version of a custom resource is known to API servers.
    path = api_path(where.group, where.version or "v1", where.resource, found.namespace, found.name or None)
    return from_memory([key_word(found.stored.key)] if path and fits and found.name else [], lost=lost)


def unsafe_deletion(found: Examination) -> Command:
    """Return the API server's own unsafe deletion of an object; nothing where the API cannot name it."""
    path = _api_path(found)
    query = "ignoreStoreReadErrorWithClusterBreakingPotential=true"
    return Command(["kubectl", "delete", "--raw", f"{path}?{query}"]) if path else NO_COMMAND


def _api_path(found: Examination) -> str:
    """Return the object's path in the API; "" where the key is none that the API can name."""
    namespaced = found.directory.namespaced
    fits = namespaced is None or namespaced == bool(found.namespace)
    if not is_plain(found.stored.key) or not fits or not found.name or "/" in found.namespace + found.name:
        return ""
    return found.directory.api_path(found.namespace, found.name)


_LOST = (
    "It skips finalizers and graceful termination. The garbage collector then deletes what the object owned."
)


def _deletions(found: Examination, run: RunOptions, beside: Beside, *, breaking: bool) -> list[Remedy]:
    """Return the ways to delete what cannot be read: ours, and, where damage is proven, the API server's own."""
    risks = risks_to_accept(found, breaking=breaking)
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
    )
    theirs = Remedy(
        "Last: let an API server delete it the unsafe way, after you copied state.db: it keeps no backup"
        if run.of_kine
        else "Last: or let an API server delete it the unsafe way, after a snapshot of etcd: it keeps no backup",
        unsafe_deletion(found),
        "Needs the feature gate AllowUnsafeMalformedObjectDeletion and the verb unsafe-delete-ignore-read-errors. "
        + _LOST,
    )
    # An API server would not look for others that fail, so its own way needs proof.
    return [*([] if run.of_kine else [ours]), *([] if damage.is_unproven else [theirs])]


def _ordinary_delete(found: Examination) -> Remedy:
    return Remedy(
        "Last: delete it through the API in the ordinary way, after a snapshot of etcd",
        _kubectl("delete", _api_path(found)),
        "The API server reads it as an empty object, so it refuses the unsafe deletion.",
    )


def _kubectl(verb: str, path: str) -> Command:
    return Command(["kubectl", verb, "--raw", path]) if path else NO_COMMAND


def _undetermined(cause: Cause, found: Examination, run: RunOptions) -> Iterator[Way]:
    word = key_word(found.stored.key)
    if cause is Cause.NO_CONFIGURATION or cause in KMS_ADVICE:
        if cause in KMS_ADVICE:
            yield from _from_memory(found, lost=False)
        first = undetermined_way({cause}, [word], run)
        if first is not None:
            yield Way(first)
        recovered = recovered_configuration([cause], found.transformer, run)
        if recovered is not None:
            yield Way(recovered)
        return
    yield _advice(
        "Find out what writes under this path before anything else",
        "If its CustomResourceDefinition cannot be read, or waits for KMS, fix that first: this key may be whole then.",
    )


def undetermined_way(
    causes: Collection[str], words: Sequence[str], run: RunOptions, *, example: bytes | None = None
) -> Remedy | None:
    """Return what to do first about values that could not be judged; None where nothing general helps.

    Args:
        causes: Of these values.
        words: The scope that was scanned, as words of a command.
        run: What was read, and how.
        example: One of their etcd keys, where it is known.
    """
    way = None
    if Cause.NO_CONFIGURATION in causes:
        way = with_configuration(words)
    elif KMS_DOUBTS.intersection(causes) and _NO_KMS in run.reading:
        reading = [word for word in run.reading if word != _NO_KMS]
        way = Remedy("Scan again, and let the KMS plugins be asked", commands.scan(*words, reading=reading))
    elif waiting := [cause for cause in KMS_ADVICE if cause in causes]:
        action, note = KMS_ADVICE[waiting[0]]
        # Only what else its plugin opens shows what an answer is worth.
        scope = [] if waiting[0] is Cause.KMS_UNPROVEN else words
        way = Remedy(action, commands.scan(*scope), note)
    elif causes and example is not None:
        way = Remedy("See why the first of them could not be judged", commands.explain(example))
    elif causes:
        way = Remedy("See why these could not be judged", commands.scan(*words, "-o", "yaml"))
    return bound(way, run) if way is not None else None


def _only_managed_fields_break(found: Examination) -> bool:
    wrong = found.decoded.inconsistencies if found.decoded is not None else ()
    breaking = [w.field_path for w in wrong if w.breaks_responses]
    return bool(breaking) and all(path.startswith("metadata.managedFields") for path in breaking)


def _inconsistent(found: Examination, cause: Cause) -> Iterator[Way]:
    path = _api_path(found)
    if found.verdict.breaks_responses and _only_managed_fields_break(found):
        # A masked Secret would be refused, so it is revealed.
        options = ("--omit-managed-fields", "-o", "json", *_revealed(found.directory.group_resource))
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
            "Compare it with the object that its contents name, and create the right one again under this key",
            "The API server serves it under the wrong name, and refuses an ordinary update.",
            _kubectl("get", path),
        )
    else:
        yield _advice(
            "Read it through the API, correct the field, and replace it",
            "The API server accepts the object, so no unsafe deletion is needed or possible.",
            _kubectl("get", path),
        )
    last = Remedy(
        "If it cannot be healed: delete it through the API in the ordinary way",
        _kubectl("delete", path),
        "Finalizers and owner references work as usual.",
    )
    yield Way(last, WayKind.DELETE)
