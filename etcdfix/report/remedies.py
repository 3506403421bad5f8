"""What to do about a finding: ordered, least destructive first, each with a command to paste."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final, NamedTuple

from etcdfix.model import (
    Outcome,
    ReadableRevision,
    Repair,
    RepairKind,
    RepairProof,
    ServerBehaviour,
)
from etcdfix.report.earlier_revision import NOT_TO_KINE, readable_way, revealed
from etcdfix.report.model import Remedy
from etcdfix.report.ways import Way, WayKind, risks_to_accept
from etcdfix.rules import Rule, acceptance
from etcdfix.storagekey import api_path
from etcdfix.text.commands import GRANTED, NO_COMMAND, Command, RepeatedOptions, piped
from etcdfix.text.safetext import is_plain, key_word, quote_command
from etcdfix.verdicts.causes import Cause
from etcdfix.verdicts.damage import Damage
from etcdfix.verdicts.deletability import (
    LOST_KEY,
    Deletability,
    deletability_of,
    key_may_be_lost,
    rests_on_others,
)
from etcdfix.verdicts.examination import Examination
from etcdfix.verdicts.protected import protected_reason

_ANYWHERE = RepeatedOptions()


class Beside(NamedTuple):
    """What a look at other keys showed.

    Attributes:
        others_lost: Others of its kind have lost their encryption key; None where nobody looked.
        home_taken: The etcd key that the value belongs to holds a value.
    """

    others_lost: bool | None = None
    home_taken: bool = False


_NOT_LOOKED: Final = Beside()

DO_NOT_RESTART = "Do not restart the API servers"
"""With this begin the ways out that save what the memory of API servers may still hold."""


# An API server that ran before may still hold the object, whatever became of the key or the value.
_MAY_BE_CACHED = LOST_KEY | {
    Cause.UNKNOWN_ENVELOPE,
    Cause.KEY_RENAMED,
    Cause.STORAGE_PREFIX_CHANGED,
    Cause.ASSOCIATED_DATA_UNKNOWN,
}

_COPY = "Change what API servers read only once the copy opens the values."
_CONFIGURATION_TEXT: dict[Cause, tuple[str, str]] = {
    Cause.RESOURCE_NOT_CONFIGURED: (
        "Give the resource an entry in the EncryptionConfiguration again, with the provider that wrote it",
        "Add it before any wildcard that would mask it, keep identity in the list, and reload every API server.",
    ),
    Cause.PROVIDER_MISSING: (
        "Add the missing provider to a COPY of the configuration, and try that",
        f"Behind the provider that writes today; a KMS provider has the name in the value; its plugin runs. {_COPY}",
    ),
    Cause.KEY_NAME_MISSING: (
        "Find the original key in a backup, add it to a COPY of the file, try that",
        f"Under its old name and with its old bytes, behind the key that writes today; see backups of it. {_COPY}",
    ),
    Cause.PLAINTEXT_NOT_ALLOWED: (
        "Add identity as the last provider of the resource, then rewrite the objects",
        "Rewriting encrypts them with today's write key; identity can go afterwards.",
    ),
    Cause.KEY_RENAMED: (
        "Give the key that wrote the value its old name and place in the configuration",
        "The message says where in the configuration it stands now; put it behind the key that writes today.",
    ),
    Cause.WRONG_KEY: (
        "Find the original key in a backup: this one has other bytes; try that file",
        f"The bytes of this one most likely do not fit: see other control-plane nodes, and its backups. {_COPY}",
    ),
    Cause.AUTHENTICATION_FAILED: (
        "Find the original key in a backup: this one has other bytes; try that file",
        "Too little of the value can be seen to tell a wrong key from damage.",
    ),
    Cause.STORAGE_PREFIX_CHANGED: (
        "Let API servers read it below the storage prefix under which it was written",
        "The message names that prefix. The value is in order; it only stands in another place.",
    ),
    Cause.ASSOCIATED_DATA_UNKNOWN: (
        "Find out under which complete etcd key it was written: a proxy with a namespace, another --etcd-prefix",
        "The encryption key is right and the object whole. Read below the old prefix, it opens.",
    ),
}

# What no command helps with.
_ADVICE: dict[Cause, tuple[str, str]] = {
    Cause.DOUBLE_ENCRYPTED: (
        "Find out what encrypted it the second time; the object may be whole below that layer",
        "The inner value begins with k8s:enc: like any other and opens with the key that wrote it.",
    ),
    Cause.ENVELOPE_DAMAGED: (
        "Do not delete it: what follows the damaged prefix may decrypt once the prefix is whole again",
        "Take a snapshot of etcd before anything else, so that these bytes stay.",
    ),
    Cause.ALLOCATOR_DAMAGED: (
        "Put back the value from a snapshot that was taken before the damage",
        (
            "Never delete it: API servers rebuild what they can from Services at start-up, but only with a readable "
            "record."
        ),
    ),
}

KMS_ADVICE: Final[dict[Cause, tuple[str, str]]] = {
    Cause.KMS_KEY_UNKNOWN: (
        "Find the KMS key, cancel its deletion if one is scheduled, delete nothing",
        (
            "It may be disabled, or in another region or account. The summary has the SHA-256 digest of its key id, as "
            "the metrics of API servers have."
        ),
    ),
    Cause.KMS_DENIED: (
        "Let the KMS plugin decrypt again (policy, credentials), delete nothing, scan again",
        "Look at the policy of the key that the values name, and at what the plugin runs as.",
    ),
    Cause.KMS_UNREACHABLE: (
        "Bring the KMS plugin back, delete nothing, and scan again",
        "--kms-endpoint NAME=unix:///PATH says where it listens. What waits for it is most likely in order.",
    ),
    Cause.KMS_UNPROVEN: (
        "See that the KMS plugin has this cluster's keyring, delete nothing, scan again",
        (
            "Scan everything under its provider: the verdict waits for other values under the same key id that open, "
            "after a refusal for such as were written before and after this one."
        ),
    ),
}
"""What to do about values that wait for KMS, by cause, the first to be done first; and what to know about it."""
_KEY_MISSING = frozenset(
    {
        Cause.NO_CONFIGURATION,
        Cause.PROVIDER_MISSING,
        Cause.KEY_NAME_MISSING,
        Cause.WRONG_KEY,
        Cause.AUTHENTICATION_FAILED,
    }
)
# Behind a plugin there are no key bytes to compare: it is the plugin's keyring that may be another one.
_OTHER_BYTES = frozenset({Cause.WRONG_KEY, Cause.AUTHENTICATION_FAILED})


_RESTART_LATER = "Restart no API server for it before its memory was read: it may hold the object."


def ways_out(
    found: Examination,
    again: RepeatedOptions = _ANYWHERE,
    *,
    readable: ReadableRevision | None = None,
    breaking: bool = False,
    beside: Beside = _NOT_LOOKED,
) -> list[Way]:
    """Return the ways out for one examined key; empty for what needs none.

    Args:
        found: The value.
        again: Options that a command must repeat.
        readable: An earlier revision of it that still reads; None for none, or where none was looked for.
        breaking: It is known that a change of it may break the cluster; by its place alone it is known in any case.
        beside: What a look at other keys showed.
    """
    verdict = found.verdict
    cause = verdict.cause
    if cause is None or verdict.outcome in {Outcome.READABLE, Outcome.NOT_AN_OBJECT}:
        return []
    if verdict.outcome is Outcome.UNDETERMINED:
        return [*_repairs(found, again, breaking=breaking), *_undetermined(cause, found, again)]
    if verdict.outcome is Outcome.INCONSISTENT:
        return [Way(remedy) for remedy in _inconsistent(found, cause, again)]
    ways = list(_repairs(found, again, breaking=breaking))
    ways += [Way(remedy) for remedy in _cures(found, cause, again, home_taken=beside.home_taken)]
    if readable is not None:
        ways.append(readable_way(found, readable, again, breaking=breaking))
    if cause in _MAY_BE_CACHED:
        ways += _from_memory(found, again, lost=cause in LOST_KEY and key_may_be_lost(found))
    ways += _other_sources(found, cause, again)
    if cause in {Cause.ALLOCATOR_DAMAGED, Cause.ENVELOPE_DAMAGED}:
        return ways
    if deletability_of(found) is Deletability.DELETABLE:
        served = verdict.apiserver is ServerBehaviour.SERVES_EMPTY
        last = [_ordinary_delete(found)] if served else _deletions(found, again, beside, breaking=breaking)
        ways += [Way(remedy, WayKind.DELETE) for remedy in last]
    return ways


def recovered_configuration(
    causes: Collection[Cause], transformer: str, again: RepeatedOptions
) -> Remedy | None:
    """Return how a configuration is had back that a server of k3s or RKE2 keeps; None where it would not help.

    Args:
        causes: Of values that do not open.
        transformer: Under which they were written.
        again: Says whether one is kept.
    """
    if not again.keeps_configuration or transformer.startswith("kms/") or _KEY_MISSING.isdisjoint(causes):
        return None
    return Remedy(
        "Recover the EncryptionConfiguration that a server of k3s or RKE2 keeps in this datastore, with its token",
        Command(text=again.recover(["FILE"])),
        "FILE is server/token of a server, or a copy of it. It says which values each configuration opens, and writes "
        "nothing.",
    )


def two_writers(again: RepeatedOptions, words: Sequence[str]) -> Iterator[Remedy]:
    """Yield what to do where API servers seem to write with different bytes under one key name.

    Args:
        again: Options that a command must repeat.
        words: The values, as words of a command.
    """
    yield Remedy(
        "Compare the encryption configurations of all API servers: two of them seem to write with different keys",
        Command(text=again.encryption_check()),
        "Copy the file from every control-plane node; add a FILE for each further one.",
    )
    yield Remedy(
        "Then see which values the file of another API server opens",
        Command(text=again.encryption_try(words)),
        "Both keys are needed until every value is written anew: give each a name of its own, in one file for all.",
    )


def _cures(found: Examination, cause: Cause, again: RepeatedOptions, *, home_taken: bool) -> Iterator[Remedy]:
    """Yield what is changed around a value, so that it reads as it is."""
    recovered = recovered_configuration([cause], found.transformer, again)
    if recovered is not None:
        yield recovered
    if found.verdict.two_writers:
        yield from two_writers(again, [key_word(found.stored.key)])
    reading = again.with_configuration
    # What a plugin says of one value is proven by what it does for others.
    everything = cause in _OTHER_BYTES and found.transformer.startswith("kms/")
    command = again.scan_of(reading=reading) if everything else again.scan(found.stored.key, reading=reading)
    configuration = configuration_remedy(cause, found.transformer, command)
    if configuration is not None:
        yield configuration
    if cause is Cause.VALUE_MOVED:
        home = found.verdict.belongs_to
        back = "" if again.of_a_file or home_taken else again.restore_from_key(found.stored.key, home)
        if back:
            yield Remedy(
                "Where the etcd key that it belongs to is gone, put it back there: a dry run first",
                Command(text=back),
                "It writes only where nothing is, and only an object with the uid that was there; this key stays as it "
                "is.",
            )
    if cause is Cause.VERSION_REMOVED:
        until = found.verdict.readable_until or "an earlier release"
        yield Remedy(
            f"Start an API server that still reads it ({until}) and let it rewrite the object",
            NO_COMMAND,
            "A storage version migration of the resource rewrites all of its objects.",
        )
    if cause is Cause.CRD_VERSION_MISSING:
        group, plural = found.directory.group, found.directory.resource
        yield Remedy(
            "Put the version back into the CustomResourceDefinition, with served: false",
            Command(
                text=quote_command(["kubectl", "edit", "customresourcedefinitions", f"{plural}.{group}"])
            ),
            "Then rewrite the objects, and take the version out once status.storedVersions no longer lists it.",
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


def _repairs(found: Examination, again: RepeatedOptions, *, breaking: bool) -> Iterator[Way]:
    way = repair_way(found, again, breaking=breaking)
    if way is not None:
        yield way


def repair_way(found: Examination, again: RepeatedOptions, *, breaking: bool = False) -> Way | None:
    """Return how the stored bytes are put right; None where that is not known."""
    repair = found.repair
    if repair is None:
        return None
    if again.of_kine:
        kept = Remedy(
            f"Keep it: {_UNDONE[repair.kind]}, and it reads; {_PROOFS[repair.proof]}",
            Command(text=again.save_snapshot("kept.db")),
            f"{repair.words[0].upper()}{repair.words[1:]}. {NOT_TO_KINE}",
        )
        return Way(kept, WayKind.SAVE)
    risks = repair_risks(found, repair, breaking=breaking)
    proof = "no proof of the name" if repair.kind is RepairKind.NAME else _PROOFS[repair.proof]
    granted = "" if again.told_of_encryption else GRANTED
    accepts = f"It accepts what must be accepted: {', '.join(risks)}. " if risks else ""
    return Way(
        Remedy(
            f"Repair it: {_UNDONE[repair.kind]}, {proof}; a dry run first",
            Command(text=again.repair(found.stored.key, risks)),
            f"{repair.words[0].upper()}{repair.words[1:]}. {accepts}{granted}The old bytes are backed up first, and "
            "nothing else of the object is lost.",
        ),
        WayKind.REPAIR,
    )


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


# A newer release may have written another magic, or more behind an object.
_MAY_BE_NEWER = frozenset({RepairKind.MAGIC, RepairKind.TRAILING_BYTES})


def _other_sources(found: Examination, cause: Cause, again: RepeatedOptions) -> Iterator[Way]:
    """Yield where else the object may be, and what has to be found out first."""
    key = found.stored.key
    if cause in _ADVICE:
        action, note = _ADVICE[cause]
        look = again.scan(key, source=["--snapshot", "FILE"]) if cause is Cause.ALLOCATOR_DAMAGED else ""
        yield Way(Remedy(action, Command(text=look), note))
    if cause is Cause.ALLOCATOR_DAMAGED:
        return
    if cause is Cause.KIND_NOT_REGISTERED and "--kubernetes-version" not in again.reading:
        yield Way(
            Remedy(
                "Name the release of the API servers, so that it is certain which kinds they know",
                Command(text=again.scan(key, reading=[*again.reading, "--kubernetes-version", "X.Y"])),
                "Without it, a kind that is newer than this etcdfix looks like a damaged one.",
            )
        )
    if cause is Cause.VALUE_MOVED:
        yield Way(
            Remedy(
                "Look at the etcd key that it belongs to: it was copied from there",
                Command(text=again.scan(found.verdict.belongs_to)),
                "Where that key is gone, these bytes are the only copy: take a snapshot before anything else.",
            )
        )
    yield other_copies(again.copies(key, *again.other_places))


def other_copies(command: str, *, many: bool = False) -> Way:
    """Return how every other copy is looked for; ``many``: of all values of a lost key."""
    look = Remedy(
        f"Look for every other copy of {'them' if many else 'it'}: in etcd's log, older snapshots, backups",
        Command(text=command),
        "It says of each how it is put back. Leave out what there is not. A manifest, or the controller that made "
        f"{'an object' if many else 'it'}, may bring it back too.",
    )
    return Way(look, WayKind.COPIES)


def configuration_remedy(cause: Cause, transformer: str, command: str) -> Remedy | None:
    """Return what has to be changed in the configuration, or behind its plugin; None where that is not the cause.

    Args:
        cause: Of a value that does not open.
        transformer: Under which it was written.
        command: Looks again with another configuration.
    """
    text = _CONFIGURATION_TEXT.get(cause)
    if cause in _OTHER_BYTES and transformer.startswith("kms/"):
        text = KMS_ADVICE[Cause.KMS_UNPROVEN]
    if text is None:
        return None
    return Remedy(
        text[0], Command(text=command), f"{text[1]} {_RESTART_LATER}" if cause in _MAY_BE_CACHED else text[1]
    )


def less_destructive_remedies(
    found: Examination,
    again: RepeatedOptions = _ANYWHERE,
    *,
    readable: ReadableRevision | None = None,
    breaking: bool = False,
) -> list[Remedy]:
    """Return the ways out that delete nothing; what it takes is as in :func:`ways_out`."""
    ways = ways_out(found, again, readable=readable, breaking=breaking)
    return [way.remedy for way in ways if way.kind is not WayKind.DELETE]


def unsafe_deletion_request(found: Examination) -> str:
    """Return the API server's own unsafe deletion of an object as a command; "" where the API cannot name it."""
    path = _api_path(found)
    query = "ignoreStoreReadErrorWithClusterBreakingPotential=true"
    return quote_command(["kubectl", "delete", "--raw", f"{path}?{query}"]) if path else ""


def _api_path(found: Examination) -> str:
    """Return the object's path in the API; "" where the key is none that the API can name."""
    namespaced = found.directory.namespaced
    fits = namespaced is None or namespaced == bool(found.namespace)
    if not is_plain(found.stored.key) or not fits or not found.name or "/" in found.namespace + found.name:
        return ""
    return found.directory.api_path(found.namespace, found.name)


def _from_memory(found: Examination, again: RepeatedOptions, *, lost: bool) -> Iterator[Way]:
    """Yield how the memory of API servers is saved, and, where the encryption key is lost, written anew."""
    where = found.directory
    fits = where.namespaced is None or where.namespaced == bool(found.namespace)
    # The version of a custom resource is known to API servers.
    path = api_path(where.group, where.version or "v1", where.resource, found.namespace, found.name or None)
    words = [key_word(found.stored.key)] if path and fits and found.name else []
    yield from from_memory(words, again, lost=lost)


def from_memory(words: Sequence[str], again: RepeatedOptions, *, lost: bool) -> Iterator[Way]:
    """Yield the same for what words of a command name; for no words, the ways have no command.

    Args:
        words: Keys, or ``--from-report`` and a file.
        again: Options that a command must repeat.
        lost: The encryption key of the values is lost.
    """
    many = words[:1] == ["--from-report"]
    as_it_was, it, its = ("them as they were", "them", "their") if many else ("it as it was", "it", "its")
    save = Remedy(
        f"{DO_NOT_RESTART}: save what they still have in memory, before anything else",
        Command(text=again.rescue(words) if words else ""),
        f"One that has run since before the key was lost may still hold {as_it_was}. A restart, or the deletion of one "
        "unreadable object of the kind, throws that away.",
    )
    yield Way(save, WayKind.RESCUE)
    if lost and words:
        heal = Remedy(
            f"Then have an API server write {it} anew from memory, under {its} own key and uid: a dry run first",
            Command(text=again.heal(words)),
            "Where the key is lost for ever. Everything of the kind has to be saved first, in DIR.",
        )
        yield Way(heal, WayKind.HEAL)


def _deletions(found: Examination, again: RepeatedOptions, beside: Beside, *, breaking: bool) -> list[Remedy]:
    """Return the ways to delete what cannot be read: ours, and, where damage is proven, the API server's own."""
    risks = risks_to_accept(found, breaking=breaking)
    needs = "".join(f"Needs {acceptance(risk)}. " for risk in risks)
    if beside.others_lost:
        needs += "First save the objects whose encryption key is lost: etcdfix rescue writes DIR. "
    elif beside.others_lost is None and found.rule:
        needs += "It is refused while other objects of its kind have lost their key and are not rescued. "
    lost = "Skips finalizers and graceful termination, and the garbage collector then deletes what it owned."
    granted = "" if again.told_of_encryption else GRANTED
    damage = found.verdict.damage
    unproven = damage.is_unproven
    if damage is Damage.POSSIBLE:
        needs = (
            f"Only if no API server reads it: each is asked, since one with a new key looks the same. {needs}"
        )
    elif rests_on_others(found.verdict):
        needs = (
            f"Only if no other value under its key fails like this: the key may have had other bytes. {needs}"
        )
    ours = Remedy(
        "Last: delete it on the live etcd, after this dry run, with a backup and a record",
        Command(
            text=again.delete(
                found.stored.key,
                risks,
                asking=damage is Damage.POSSIBLE,
                rescued=bool(beside.others_lost),
            )
        ),
        needs + granted + lost,
    )
    if unproven:
        # An API server would not look for others that fail.
        return [] if again.of_kine else [ours]
    theirs = Remedy(
        "Last: let an API server delete it the unsafe way, after a copy of state.db: it keeps no backup"
        if again.of_kine
        else "Last: or let an API server delete it the unsafe way, after a snapshot of etcd: it keeps no backup",
        Command(text=unsafe_deletion_request(found)),
        "Needs the feature gate AllowUnsafeMalformedObjectDeletion and the verb unsafe-delete-ignore-read-errors. "
        + lost,
    )
    return [theirs] if again.of_kine else [ours, theirs]


def _ordinary_delete(found: Examination) -> Remedy:
    path = _api_path(found)
    return Remedy(
        "Last: delete it through the API in the ordinary way, after a snapshot of etcd",
        Command(text=quote_command(["kubectl", "delete", "--raw", path]) if path else ""),
        "The API server takes it for an empty object that it can read, so it refuses the unsafe deletion.",
    )


def _undetermined(cause: Cause, found: Examination, again: RepeatedOptions) -> list[Way]:
    key = found.stored.key
    if cause is Cause.NO_CONFIGURATION:
        ways = [Way(with_configuration(again.scan(key, reading=again.with_configuration)))]
        recovered = recovered_configuration([cause], found.transformer, again)
        return [*ways, Way(recovered)] if recovered is not None else ways
    if cause in KMS_ADVICE:
        action, note = KMS_ADVICE[cause]
        command = again.scan_of() if cause is Cause.KMS_UNPROVEN else again.scan(key)
        return [*_from_memory(found, again, lost=False), Way(Remedy(action, Command(text=command), note))]
    return [
        Way(
            Remedy(
                "Find out what writes under this path before anything else",
                NO_COMMAND,
                "Where its CustomResourceDefinition is itself unreadable, fix that first (one that waits for KMS comes "
                "back with it); this key may then be in order.",
            )
        )
    ]


def with_configuration(command: str) -> Remedy:
    """Return what to do where no configuration was given for encrypted values."""
    return Remedy(
        "Scan again with the EncryptionConfiguration of the API servers",
        Command(text=command),
        "The path stands in the API server's flag --encryption-provider-config.",
    )


def _only_managed_fields_break(found: Examination) -> bool:
    wrong = found.decoded.inconsistencies if found.decoded is not None else ()
    breaking = [w.field_path for w in wrong if w.breaks_responses]
    return bool(breaking) and all(path.startswith("metadata.managedFields") for path in breaking)


def _heal(found: Examination, again: RepeatedOptions) -> Remedy:
    """Replace an object by itself without managedFields: a masked Secret would be refused, so it is revealed."""
    options = ("--omit-managed-fields", "-o", "json", *revealed(found.directory.group_resource))
    return Remedy(
        "Heal it through the API: replace it by itself without metadata.managedFields",
        Command(text=piped(again.get(found.stored.key, *options), ["kubectl", "replace", "-f", "-"])),
        "Nothing else is lost. If the object has changed in the meantime, the API server refuses with a conflict. "
        "kubectl apply, edit and patch fail on the object as it is.",
    )


def _inconsistent(found: Examination, cause: Cause, again: RepeatedOptions) -> list[Remedy]:
    path = _api_path(found)
    get = quote_command(["kubectl", "get", "--raw", path]) if path else ""
    if found.verdict.breaks_responses and _only_managed_fields_break(found):
        first = _heal(found, again)
    elif found.verdict.breaks_responses:
        accept, url = "Accept: application/vnd.kubernetes.protobuf", f"http://127.0.0.1:8001{path}"
        first = Remedy(
            "Heal it through the API: read it as protobuf, correct the broken field, and PUT it back whole",
            Command(text=quote_command(["curl", "-H", accept, url]) if path else ""),
            "The command goes through kubectl proxy, to be started first. kubectl apply and PATCH fail on it.",
        )
    elif cause is Cause.IDENTITY_MISMATCH:
        first = Remedy(
            "Compare it with the object that its contents name, and re-create the right one under this key",
            Command(text=get),
            "The API server serves it under the wrong name; an ordinary update through the API is refused.",
        )
    else:
        first = Remedy(
            "Read it through the API, correct the field, and replace it",
            Command(text=get),
            "The API server accepts it, so no unsafe deletion is needed or possible.",
        )
    last = Remedy(
        "If it cannot be healed: delete it through the API in the ordinary way",
        Command(text=quote_command(["kubectl", "delete", "--raw", path]) if path else ""),
        "Finalizers and owner references work as usual.",
    )
    return [first, last]
