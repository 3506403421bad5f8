"""The ways out of one finding."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final

from etcdfix.copies.model import Home, Place
from etcdfix.model import Outcome, ServerBehaviour
from etcdfix.report.advice.change import (
    Beside,
    api_path_of,
    deletions,
    ordinary_deletion,
    raw_request,
    revealed,
)
from etcdfix.report.advice.ways import (
    KMS_ADVICE,
    MAY_BE_CACHED,
    WayKind,
    configuration_ways,
    from_memory,
    in_order,
    other_copies,
    recovered_configuration,
    two_writers,
    with_configuration,
)
from etcdfix.report.model import Remedy
from etcdfix.storagekey import api_path
from etcdfix.text import commands
from etcdfix.text.commands import NO_COMMAND, Command, Part, RunOptions
from etcdfix.text.safetext import key_word
from etcdfix.verdicts.causes import Cause
from etcdfix.verdicts.deletability import (
    KMS_DOUBTS,
    LOST_KEY,
    Deletability,
    deletability_of,
    key_may_be_lost,
)
from etcdfix.verdicts.examination import Examination

_ANY_RUN = RunOptions()
_NO_KMS: Final = "--no-kms"


NOT_LOOKED: Final = Beside()


def ways_out(
    found: Examination,
    run: RunOptions = _ANY_RUN,
    *,
    offers: Sequence[Remedy] = (),
    breaking: bool = False,
    beside: Beside = NOT_LOOKED,
) -> list[Remedy]:
    """Return the ways out for one examined key, the first to be done first; empty for what needs none.

    Args:
        found: The value.
        run: What was read, and how.
        offers: The ways of its copies, the best first; empty for none, or where nobody looked.
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


def _cures(found: Examination, cause: Cause, run: RunOptions, beside: Beside) -> Iterator[Remedy]:
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
            "Compare it with the object that its contents name, and create the right one again under this key",
            "The API server serves it under the wrong name, and refuses an ordinary update.",
            raw_request("get", path),
        )
    else:
        yield _advice(
            "Read it through the API, correct the field, and replace it",
            "The API server accepts the object, so no unsafe deletion is needed or possible.",
            raw_request("get", path),
        )
    yield Remedy(
        "If it cannot be mended: delete it through the API in the ordinary way",
        raw_request("delete", path),
        "Finalizers and owner references work as usual.",
        WayKind.DELETE,
    )
