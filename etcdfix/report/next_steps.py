"""What a tired person should do next, from the counts and the KMS plugins: said once, not ten thousand times."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import msgspec

from etcdfix.report.model import KMSPluginSummary, KMSSummary, Remedy, Summary, TransformerSummary
from etcdfix.report.remedies import KMS_ADVICE, with_configuration
from etcdfix.report.tally import OTHERS
from etcdfix.report.ways import Way, WayKind
from etcdfix.text.commands import NO_COMMAND, Command, RepeatedOptions
from etcdfix.text.words import counted
from etcdfix.verdicts.causes import CURABLE_BY_CONFIGURATION, Cause
from etcdfix.verdicts.deletability import IDENTITY, KMS_DOUBTS
from etcdfix.verdicts.key_loss import BY_NUMBERS, KeyDoubt, doubt_by_numbers


def doubt_in(entry: TransformerSummary) -> KeyDoubt:
    """Say what the failures under one encryption key point at: the key or the configuration, or single objects."""
    opened = entry.keys - entry.failures - entry.undetermined
    return doubt_by_numbers(opened=opened, failed=entry.failures, damaged=entry.damaged)


def _named(entry: TransformerSummary) -> str:
    of = f" of {', '.join(entry.resources)}" if entry.resources else ""
    return f"{entry.transformer}{of}"


def _kms_steps(summary: Summary, undetermined: set[str]) -> Iterator[str]:
    plugins = summary.kms.plugins if summary.kms is not None else []
    for cause, (action, note) in KMS_ADVICE.items():
        if cause not in undetermined:
            continue
        if cause is Cause.KMS_UNREACHABLE and not plugins:
            yield (
                "Values under KMS were not examined, since no plugin was asked: scan again with the encryption "
                "configuration, where its plugin answers (--kms-endpoint). Delete none of them."
            )
        else:
            yield f"{action}. {note}"


def next_steps(summary: Summary, *, of_kine: bool = False) -> list[str]:
    """Return sentences in the order in which they should be acted upon; empty when nothing is wrong.

    Args:
        summary: What was found.
        of_kine: It was found in the database of kine.
    """
    steps: list[str] = []
    causes = {c.cause for c in summary.by_cause}
    undetermined = {c.cause for c in summary.by_cause if c.outcome == "undetermined"}
    # Plaintext that is refused has no key to look for: it is counted among what the configuration can cure.
    keys = [entry for entry in summary.by_transformer if entry.transformer != IDENTITY]
    patterns = [entry for entry in keys if doubt_in(entry) in BY_NUMBERS]
    if Cause.NO_CONFIGURATION in undetermined:
        steps.append(
            "Encrypted values were not examined: scan again with --encryption-config and the API servers' "
            "EncryptionConfiguration."
        )
    steps += [
        f"{entry.failures} of {entry.keys} values under {_named(entry)} do not open: that is the "
        "configuration, not the objects. Do not delete any of them; find the key."
        for entry in patterns
    ]
    steps += [
        f"{entry.failures} of {entry.keys} values under {_named(entry)} are damaged, and the key is right: find out "
        "what damages them before anything is deleted."
        for entry in keys
        if doubt_in(entry) is KeyDoubt.MASS_DAMAGE
    ]
    likely = [entry for entry in keys if doubt_in(entry) is KeyDoubt.NONE]
    in_between = [entry for entry in likely if KeyDoubt.IN_BETWEEN in entry.likely_doubts]
    steps += [
        f"{entry.likely_damaged} values under {_named(entry)} do not open, and values written before and after them "
        "do: the key may have had other bytes for a time. Do not delete any of them; find those bytes."
        for entry in in_between
    ]
    steps += [
        f"{entry.likely_damaged} values under {_named(entry)} do not open although the key is right: they may have "
        "been written with other associated data for a time. Find out what happened before anything is deleted."
        for entry in likely
        if KeyDoubt.UNFITTING in entry.likely_doubts
    ]
    doubtful = undetermined & KMS_DOUBTS
    steps += _kms_steps(summary, undetermined)
    if Cause.OWNER_UNKNOWN in undetermined:
        steps.append(
            "Some keys have no known owner: their CustomResourceDefinitions may come back with the KMS. Touch nothing."
            if doubtful
            else "Some keys have no known owner: fix unreadable CustomResourceDefinitions first, then scan again."
        )
    if Cause.RAW_JSON_INVALID in causes or Cause.INT_OR_STRING_INVALID in causes:
        steps.append(
            "Objects that -o wide marks breaks-list make whole JSON LISTs fail, large ones although the server "
            "answers 200: heal these first."
        )
    curable = [c for c in summary.by_cause if Cause(c.cause) in CURABLE_BY_CONFIGURATION]
    if curable and not patterns:
        number = sum(c.count for c in curable)
        steps.append(
            f"The configuration alone can cure {counted(number, 'finding')}: change it before anything else."
        )
    if summary.readable_revisions:
        steps.append(
            f"An earlier revision of {counted(summary.readable_revisions, 'finding')} is still kept and can be read; a "
            "live etcd keeps it only until it is compacted, which an API server has done every five minutes: save it "
            "first. etcdfix explain KEY gives the command, etcdfix history KEY every revision that is kept."
        )
    if summary.readable_revisions_not_sought:
        steps.append(
            f"For {counted(summary.readable_revisions_not_sought, 'finding')} not all that etcd keeps was looked at: "
            "etcdfix explain KEY looks for a readable revision of one."
        )
    if summary.decrypt_failures or summary.decode_failures or summary.inconsistent:
        steps.append(
            "Copy the file before you change anything: sqlite3 .backup does it while k3s runs. Do not stop k3s for it: "
            "that ends what its API server has in memory."
            if of_kine
            else "Take a snapshot of etcd before you change anything: etcdctl snapshot save FILE."
        )
        steps.append(
            "See everything about one key: etcdfix explain KEY; about all: the same scan with -o yaml, or -o json."
        )
    return steps


def next_way_out(
    summary: Summary,
    first: Remedy | None,
    words: Sequence[str],
    again: RepeatedOptions,
    *,
    whole: bool,
    prefixes: Sequence[str] | None = None,
    elsewhere: Sequence[str] = (),
    prefix: str = "",
) -> Remedy | None:
    """Return the one thing to do next, with its command; None where nothing is wrong and everything was seen.

    Args:
        summary: All counts.
        first: The first way out of the worst that is wrong; None where nothing is.
        words: The scope that was scanned, as words of a command.
        again: What a command must repeat.
        whole: Everything in scope was seen.
        prefixes: Where the keys seem to be, where none lies below the storage prefix; else None.
        elsewhere: Other storage prefixes that hold keys too.
        prefix: The storage prefix.
    """
    if prefixes is not None:
        if not prefixes:
            return Remedy("Check --etcd-prefix, and that this is the etcd of the API servers", NO_COMMAND, "")
        return Remedy(
            "Look where the keys of Kubernetes seem to be",
            Command(text=_below(prefixes[0], again).scan_of(words)),
            "",
        )
    undetermined = {c.cause for c in summary.by_cause if c.outcome == "undetermined"}
    way = first
    if way is None or Cause.NO_CONFIGURATION in undetermined:
        examples = (entry.example for entry in summary.by_cause if entry.outcome == "undetermined")
        example = next((found for one in examples if (found := _as_named(one)) is not None), None)
        way = next_for_undetermined(undetermined, words, again, example=example) or way
    if way is None and elsewhere:
        other = elsewhere[0].rstrip("/")
        return Remedy(
            f"Scan the keys under {other} too", Command(text=_below(other, again).scan_of([other])), ""
        )
    if way is None and not whole:
        what = "the reasons stand below" if summary.keys else "the reason stands above"
        return Remedy(
            f"See why not everything was seen ({what}), then scan again",
            Command(text=again.scan_of(words)),
            "",
        )
    if way is None and words and list(words) != [prefix.rstrip("/")]:
        return Remedy("Scan everything: only this scope was looked at", Command(text=again.scan_of()), "")
    return way


def _below(prefix: str, again: RepeatedOptions) -> RepeatedOptions:
    return msgspec.structs.replace(again, layout=("--etcd-prefix", prefix, *again.layout_but_prefix))


def _as_named(shown: str) -> bytes | None:
    """Return the etcd key that is shown so; None where it could be another one."""
    return shown.encode() if shown.startswith("/") and shown.isprintable() and "\\" not in shown else None


def first_way_out(ways: Sequence[Way]) -> Remedy | None:
    """Return the first way out that has a command, else the first; None where there is none.

    Never a deletion; and what only saves copies comes after what cures, since a warning of its own keeps them. An
    earlier revision that is only saved comes after a repair, which brings back what is newer.
    """
    left = [way for way in ways if way.kind is not WayKind.DELETE]
    repairable = any(way.kind is WayKind.REPAIR for way in left)
    later = {WayKind.RESCUE, WayKind.HEAL, *({WayKind.SAVE} if repairable else ())}
    cures = [way for way in left if way.kind not in later]
    first = next((way for way in [*cures, *left] if way.remedy.command), left[0] if left else None)
    return first.remedy if first is not None else None


def next_for_undetermined(
    causes: Collection[str], words: Sequence[str], again: RepeatedOptions, *, example: bytes | None = None
) -> Remedy | None:
    """Return what to do first about values that could not be judged; None where nothing general helps.

    Args:
        causes: Of these values.
        words: The scope that was scanned, as words of a command.
        again: What a command must repeat.
        example: One of their etcd keys, where it is known.
    """
    if Cause.NO_CONFIGURATION in causes:
        return with_configuration(again.scan_of(words, reading=again.with_configuration))
    if set(causes) & KMS_DOUBTS and NO_KMS in again.reading:
        reading = [word for word in again.reading if word != NO_KMS]
        return Remedy(
            "Scan again, and let the KMS plugins be asked",
            Command(text=again.scan_of(words, reading=reading)),
            "",
        )
    for cause, (action, note) in KMS_ADVICE.items():
        if cause in causes:
            # Only what else its plugin opens shows what an answer is worth.
            scope = [] if cause is Cause.KMS_UNPROVEN else words
            return Remedy(action, Command(text=again.scan_of(scope)), note)
    if not causes:
        return None
    if example is not None:
        return Remedy(
            "See why it could not be judged, the first of them", Command(text=again.explain(example)), ""
        )
    return Remedy(
        "See why these could not be judged", Command(text=again.scan_of([*words, "-o", "yaml"])), ""
    )


NO_KMS = "--no-kms"

WELL = frozenset({"ok", "not-asked"})
"""States of a plugin about which nothing is to be done."""

PLUGIN_REMEDIES = {
    "no-socket": "start it, or say where its socket is: --kms-endpoint NAME=unix:///PATH",
    "unreachable": "see that it runs and answers there, or say where it listens: --kms-endpoint NAME=unix:///PATH",
    "socket-denied": "run as a user who may open the socket",
    "denied": "give it back its rights in the KMS, or us ours with it; the plugin's own log tells more",
    "wrong-version": "the provider's apiVersion and the plugin must fit; look at both",
    "unhealthy": "ask the plugin's own log; its refusals prove nothing until it is healthy",
    "gave-up": "see why it stopped answering, then scan again",
}
"""What to do about a plugin in each state but ``ok`` and ``not-asked``."""


def plugin_troubles(kms: KMSSummary | None) -> list[str]:
    """Return a sentence for each plugin that was not as it should be."""
    return [_trouble(plugin) for plugin in _troubled(kms)]


def undetermined_problem(summary: Summary) -> str:
    """Return why a report with undetermined keys is not complete; "" where there are none."""
    return f"undetermined: {counted(summary.undetermined, 'key')}" if summary.undetermined else ""


def plugin_problems(kms: KMSSummary | None) -> list[str]:
    """Return those of :func:`plugin_troubles` that leave values undetermined: an unhealthy plugin may still answer."""
    return [_trouble(plugin) for plugin in _troubled(kms) if plugin.state != "unhealthy"]


def awaited_plugins(summary: Summary) -> KMSSummary | None:
    """Return the plugins for which something that was looked at waits; a value may also wait for its definition."""
    kms = summary.kms
    if kms is None or any(c.cause == Cause.OWNER_UNKNOWN for c in summary.by_cause):
        return kms
    awaited = {entry.transformer for entry in summary.by_transformer if entry.undetermined}
    if OTHERS in awaited:
        return kms
    return msgspec.structs.replace(kms, plugins=[one for one in kms.plugins if one.transformer in awaited])


def _troubled(kms: KMSSummary | None) -> list[KMSPluginSummary]:
    return [plugin for plugin in kms.plugins if plugin.state not in WELL] if kms is not None else []


def _trouble(plugin: KMSPluginSummary) -> str:
    return (
        f"KMS plugin of {plugin.transformer} at {plugin.endpoint}: {plugin.message or plugin.state}; "
        f"{PLUGIN_REMEDIES[plugin.state]}"
    )
