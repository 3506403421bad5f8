"""Ways out: what each of them does, how they are ranked, and those that one value and many values share."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from enum import StrEnum
from itertools import takewhile
from typing import Final

from etcdfix.copies.model import THE_VALUE, Place
from etcdfix.examine.verdicts.causes import Cause
from etcdfix.examine.verdicts.deletability import LOST_KEY, protected_reason, risks_of
from etcdfix.examine.verdicts.examination import Examination
from etcdfix.model.providers import facts_of
from etcdfix.model.rules import Rule
from etcdfix.report.model import Remedy
from etcdfix.text import commands
from etcdfix.text.commands import NO_COMMAND, Part, RunOptions


class WayKind(StrEnum):
    """What a way out does."""

    FIX = "fix"
    """It puts a copy back: the value put right, what an API server remembers, an earlier value."""
    CURE = "cure"
    """It changes the configuration, or what stands around the value; or it finds out more."""
    SAVE = "save"
    """It saves a copy."""
    RESCUE = "rescue"
    """It saves what API servers may still hold in memory."""
    COPIES = "copies"
    """It looks for every other copy."""
    DELETE = "delete"
    """After it the object is gone."""


def warnings_first(ways: Iterable[Remedy]) -> list[Remedy]:
    """Return ways of one kind in the order in which they are tried: what not to do, and what has a command."""
    return sorted(ways, key=lambda way: (not is_warning(way), not way.command))


def in_order(
    offers: Sequence[Remedy], cures: Iterable[Remedy], memory: Sequence[Remedy], *, urgent: bool
) -> list[Remedy]:
    """Return ways out in their one order, up to the search for other copies and the deletion.

    The value itself put right comes first, then the configuration, the memory of API servers, and other copies.

    Args:
        offers: The ways of copies, the best first.
        cures: The configuration, and what stands around the value.
        memory: How to save what API servers may still hold, and to have it written anew.
        urgent: A restart of API servers would lose it: it is saved before anything else is tried.
    """
    right = [*takewhile(lambda way: way.command.place in THE_VALUE, offers)]
    remembered = [way for way in offers if way.command.place == Place.MEMORY]
    others = [way for way in offers if way not in right and way not in remembered]
    early, late = (memory[:1], memory[1:]) if urgent else ((), memory)
    if remembered:  # what was looked at takes the place of what was not
        late = [way for way in late if way.verb != WayKind.FIX]
    return [*right, *early, *warnings_first(cures), *late, *remembered, *others]


def is_warning(way: Remedy) -> bool:
    """Say whether a way out has to be seen even without a command: what not to do, and what the next restart ends."""
    return way.action.startswith("Do not ") or way.verb == WayKind.RESCUE


def first_way(ways: Sequence[Remedy]) -> Remedy | None:
    """Return the first of ranked ways out with a warning or a command, else the first: a deletion only if all are."""
    kept = [way for way in ways if way.verb != WayKind.DELETE] or ways
    return next((way for way in kept if way.command or is_warning(way)), kept[0] if kept else None)


def risks_to_accept(found: Examination, *, breaking: bool = False) -> list[Rule]:
    """Return the rules to accept before an unreadable value is replaced or deleted."""
    breaking = breaking or bool(protected_reason(found.directory.group_resource, found.namespace))
    return [*([Rule.CLUSTER_BREAKING] if breaking else []), *risks_of(found)]


MAY_BE_CACHED: Final = LOST_KEY | {
    Cause.UNKNOWN_ENVELOPE,
    Cause.KEY_RENAMED,
    Cause.STORAGE_PREFIX_CHANGED,
    Cause.ASSOCIATED_DATA_UNKNOWN,
}
"""An API server that ran before may still hold the object."""

_TRY = "Find the old configuration file, on other control-plane nodes or in backups. Try each file"
_COPY = "Change the file of the API servers only after a COPY of it opens the values."
_CONFIGURATION: dict[Cause, tuple[str, str]] = {
    Cause.RESOURCE_NOT_CONFIGURED: (
        _TRY,
        f"It has the resource, with the provider that wrote the value. Add that above any wildcard. {_COPY}",
    ),
    Cause.PROVIDER_MISSING: (
        _TRY,
        f"It has the provider that wrote the value. Put it below the current one; KMS needs the same name. {_COPY}",
    ),
    Cause.KEY_NAME_MISSING: (
        _TRY,
        f"Once a file opens the values, copy its key under the same name, below the current write key. {_COPY}",
    ),
    Cause.PLAINTEXT_NOT_ALLOWED: (
        "Add identity as the last provider of the resource, then rewrite the objects",
        "Rewriting encrypts them with the current write key. After that you can remove identity.",
    ),
    Cause.KEY_RENAMED: (
        "Give the key that wrote the value its old name and place in the configuration",
        "The message says where the key stands now. Put it below the current write key.",
    ),
    Cause.WRONG_KEY: (_TRY, f"It has the original key under this name, with other bytes. {_COPY}"),
    Cause.AUTHENTICATION_FAILED: (
        _TRY,
        f"The value does not show whether the key is wrong or the value is damaged. {_COPY}",
    ),
    Cause.STORAGE_PREFIX_CHANGED: (
        "Let API servers read the value below the storage prefix under which it was written",
        "The message names that prefix. The value is whole, but it stands in another place.",
    ),
    Cause.ASSOCIATED_DATA_UNKNOWN: (
        "Find the complete etcd key under which it was written: a proxy's namespace, another --etcd-prefix",
        "The encryption key is right and the object is whole. It opens when it is read below the old prefix.",
    ),
}

KMS_ADVICE: Final[dict[Cause, tuple[str, str]]] = {
    Cause.KMS_KEY_UNKNOWN: (
        "Find the KMS key and cancel its deletion if one is scheduled; delete no objects",
        "The key may be disabled, or in another region or account. The summary has the SHA-256 of its key id.",
    ),
    Cause.KMS_DENIED: (
        "Let the KMS plugin decrypt again (policy, credentials), then scan again; delete no objects",
        "Look at the policy of the key that the values name, and at the user that the plugin runs as.",
    ),
    Cause.KMS_UNREACHABLE: (
        "Start the KMS plugin again, then scan again; delete no objects",
        "--kms-endpoint NAME=unix:///PATH says where it listens. The values are most likely whole.",
    ),
    Cause.KMS_UNPROVEN: (
        "Check that the KMS plugin has the keyring of this cluster, then scan again; delete no objects",
        "Scan everything under its provider. The verdict needs other values under the same key id that open.",
    ),
}
"""What to do about values that wait for KMS, by cause, the first to be done first; and what to know about it."""

_KEY_MISSING = frozenset({Cause.NO_CONFIGURATION, *LOST_KEY} - {Cause.RESOURCE_NOT_CONFIGURED})
# Behind a plugin there are no key bytes to compare: it is the plugin's keyring that may be another one.
_OTHER_BYTES = frozenset({Cause.WRONG_KEY, Cause.AUTHENTICATION_FAILED})


def recovered_configuration(causes: Collection[Cause], transformer: str, run: RunOptions) -> Remedy | None:
    """Return how to recover a configuration that a server of k3s or RKE2 keeps; None where it would not help."""
    if not run.keeps_configuration or facts_of(transformer).under_kms or _KEY_MISSING.isdisjoint(causes):
        return None
    return Remedy(
        "Recover the EncryptionConfiguration that k3s or RKE2 keeps in this datastore, with the server's token",
        commands.recover(["FILE"]),
        "FILE is server/token of a server, or a copy of it. The command writes nothing.",
        WayKind.CURE,
    )


def two_writers(words: Sequence[str]) -> list[Remedy]:
    """Return what to do where API servers seem to write with different bytes under one key name."""
    compare = Remedy(
        "Compare the encryption configurations of all API servers: two of them seem to use different keys",
        commands.encryption_check(),
        "Copy the file from every control-plane node, and add a FILE for each further one.",
        WayKind.CURE,
    )
    see = Remedy(
        "Then see which values the file of another API server opens",
        commands.encryption_try(words),
        "Both keys are needed until every value is rewritten. Give each its own name, in one file for all servers.",
        WayKind.CURE,
    )
    return [compare, see]


def configuration_ways(causes: Iterable[Cause], transformer: str, words: Sequence[str]) -> list[Remedy]:
    """Return what to change in the configuration, or behind its plugin; empty where that is not the cause."""
    ways: dict[str, Remedy] = {}
    for cause in causes:
        text, command = _CONFIGURATION.get(cause), commands.scan(*words, reading=[Part.CONFIGURATION])
        if cause in _OTHER_BYTES and facts_of(transformer).under_kms:
            # What a plugin says of one value is proven by what it does for others.
            text, command = KMS_ADVICE[Cause.KMS_UNPROVEN], commands.scan(reading=[Part.CONFIGURATION])
        elif cause in LOST_KEY:
            command = commands.encryption_try(words)
        if text is not None:
            action, note = text
            later = (
                " Do not restart API servers before you save their memory." if cause in MAY_BE_CACHED else ""
            )
            ways.setdefault(action, Remedy(action, command, f"{note}{later}", WayKind.CURE))
    return [*ways.values()]


def from_memory(words: Sequence[str], key: bytes | None = None, *, lost: bool) -> list[Remedy]:
    """Return how to save what API servers hold in memory, and to write it anew where the encryption key is lost.

    Args:
        words: The resources; empty where the API cannot name it. The whole kind is saved: one change ends the memory of
            all.
        key: The one etcd key; None for all that does not open.
        lost: The encryption key is lost.
    """
    save = Remedy(
        "Save the objects that API servers hold in memory, before anything else",
        commands.rescue(words) if words else NO_COMMAND,
        "API servers that have run since before the loss may hold them. A restart, or deleting one unreadable object, "
        "loses them all.",
        WayKind.RESCUE,
    )
    if not lost or not words:
        return [save]
    note = "Use it where the key is lost for ever. First save everything of the kind in DIR."
    if key is None:
        again = Remedy(
            "Then make a plan: API servers can write the objects again from memory",
            commands.plan("REPORT", "PLAN", rescued="DIR"),
            f"{note} REPORT is a scan of everything, saved with -o json.",
            WayKind.FIX,
        )  # fmt: skip
    else:
        again = Remedy(
            "Then have an API server write it anew from its memory: a dry run first",
            commands.fix_from_memory(key),
            f"It keeps its key and uid. {note}",
            WayKind.FIX,
        )
    return [save, again]


def other_copies(*words: str, many: bool = False) -> Remedy:
    """Return how to look for every other copy of a key, or of all values of a lost key."""
    return Remedy(
        f"Look for every other copy of {'them' if many else 'it'}: in etcd's log, older snapshots, backups",
        commands.copies(*words, options=[Part.OTHER_PLACES]),
        "It prints the command for each copy. Drop the options that you have no file for.",
        WayKind.COPIES,
    )


def with_configuration(words: Sequence[str], run: RunOptions) -> Remedy:
    """Return what to do where no configuration was given for encrypted values."""
    lost = "; if it is lost: etcdfix encryption recover" if run.keeps_configuration else ""
    return Remedy(
        f"Scan again with the EncryptionConfiguration of the API servers{lost}",
        commands.scan(*words, reading=[Part.CONFIGURATION]),
        "The API server's flag --encryption-provider-config has its path.",
        WayKind.CURE,
    )
