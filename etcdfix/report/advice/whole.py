"""What to do about a lost encryption key, about KMS plugins, and first of all after a scan."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import msgspec

from etcdfix.examine.verdicts.causes import Cause
from etcdfix.examine.verdicts.key_loss import KeyDoubt, doubt_by_numbers
from etcdfix.report.advice.finding import undetermined_way
from etcdfix.report.advice.ways import (
    WayKind,
    configuration_ways,
    from_memory,
    in_order,
    other_copies,
    recovered_configuration,
    two_writers,
)
from etcdfix.report.model import KMSPluginSummary, Remedy, Summary, TransformerSummary
from etcdfix.report.tally import OTHERS
from etcdfix.text import commands
from etcdfix.text.commands import Part, RunOptions
from etcdfix.text.words import counted

_REPORT: Final = "REPORT"


def doubt_in(entry: TransformerSummary) -> KeyDoubt:
    """Say what the failures under one encryption key point at: the key or the configuration, or single objects."""
    opened = entry.keys - entry.failures - entry.undetermined
    return doubt_by_numbers(opened=opened, failed=entry.failures, damaged=entry.damaged)


def ways_of_lost_key(
    causes: Collection[Cause],
    transformer: str,
    words: Sequence[str],
    run: RunOptions,
    *,
    differing: bool = False,
    kept: tuple[int, Remedy] | None = None,
) -> list[Remedy]:
    """Return the ways out for all values of a lost encryption key; none of them deletes.

    Args:
        causes: Why the values do not open.
        transformer: Name of the encryption key.
        words: Their resources, as words of a command.
        run: What was read, and how.
        differing: API servers seem to write with different bytes under the key's name.
        kept: How many values have an earlier revision that reads, and how to save that of the first one.
    """
    recovered = recovered_configuration(causes, transformer, run)
    cures = [
        *([recovered] if recovered is not None else []),
        *(two_writers(words) if differing else []),
        *configuration_ways(causes, transformer, words),
    ]
    saved = []
    if kept is not None:
        count, first = kept
        have = "has" if count == 1 else "have"
        action = f"Save the readable revision that {counted(count, 'value')} of them still {have}"
        note = f"The command saves the first; etcdfix explain KEY has another. {first.note}"
        saved.append(Remedy(action, first.command, note, WayKind.SAVE))
    report = ["--from-report", _REPORT]
    memory = from_memory(words, lost=not differing)
    ways = in_order(saved, cures, memory, urgent=not differing and not run.of_a_file)
    return [*ways, other_copies(*report, many=True)]


def first_step(
    summary: Summary,
    first: Remedy | None,
    words: Sequence[str],
    run: RunOptions,
    *,
    whole: bool,
    damaged: bool = False,
    prefixes: Sequence[str] | None = None,
    elsewhere: Sequence[str] = (),
    prefix: str = "",
    differing: str = "",
) -> Remedy | None:
    """Return the one thing to do after a scan; None where nothing is wrong and everything was seen.

    Args:
        summary: All counts.
        first: The first way out of the worst that is wrong; None where nothing is.
        words: The scope that was scanned, as words of a command.
        run: What was read, and how.
        whole: Everything in scope was seen.
        damaged: The source could not show everything.
        prefixes: Where the keys seem to be, where none lies below the storage prefix; else None.
        elsewhere: Other storage prefixes that hold keys too.
        prefix: The storage prefix.
        differing: How the members of the etcd differ, where they do.
    """
    if differing:
        return Remedy(f"Change nothing, and see where {differing}", commands.compare(*words))
    if prefixes is not None:
        if not prefixes:
            return Remedy("Check --etcd-prefix, and that this is the etcd of the API servers")
        there = commands.scan(*words).line(_below(prefixes[0], run))
        return Remedy("Look where the keys of Kubernetes seem to be", commands.Command(text=there))
    undetermined = {c.cause for c in summary.by_cause if c.outcome == "undetermined"}
    if first is None or Cause.NO_CONFIGURATION in undetermined:
        examples = (entry.example for entry in summary.by_cause if entry.outcome == "undetermined")
        example = next((found for one in examples if (found := _as_named(one)) is not None), None)
        first = undetermined_way(undetermined, words, run, example=example) or first
    if first is not None:
        return first
    if summary.readable_until and "--kubernetes-version" not in run.reading:
        release = commands.scan(*words, reading=[Part.READING, "--kubernetes-version", "X.Y"])
        return Remedy(
            f"Name the release of your API servers: {summary.readable_until} is the last to read all", release
        )
    if elsewhere:
        other = elsewhere[0].rstrip("/")
        there = commands.scan(other).line(_below(other, run))
        return Remedy(f"Scan the keys under {other} too", commands.Command(text=there))
    if damaged and run.of_a_file:
        if run.of_kine or "--salvage" in run.source:
            return Remedy("This file is damaged: scan another copy of it")
        another = "Save another file with etcdctl snapshot save, or scan what is whole in this damaged one"
        return Remedy(another, commands.scan(*words, source=[Part.SOURCE, "--salvage"]))
    if not whole:
        return Remedy("See why the scan is incomplete, then scan again", commands.scan(*words))
    if words and list(words) != [prefix.rstrip("/")]:
        return Remedy("Scan everything: only this scope was scanned", commands.scan())
    return None


def _below(prefix: str, run: RunOptions) -> RunOptions:
    layout = run.layout[len(run.part(Part.PREFIX)) :]
    return msgspec.structs.replace(run, layout=("--etcd-prefix", prefix, *layout))


def _as_named(shown: str) -> bytes | None:
    """Return the etcd key that is shown so; None where it could be another one."""
    return shown.encode() if shown.startswith("/") and shown.isprintable() and "\\" not in shown else None


PLUGIN_REMEDIES: Final = {
    "no-socket": "start the plugin, or name its socket with --kms-endpoint NAME=unix:///PATH",
    "unreachable": "check that the plugin runs and answers, or name its socket with --kms-endpoint NAME=unix:///PATH",
    "socket-denied": "run as a user who may open the socket",
    "denied": "give the plugin its rights in the KMS again; the plugin's log has more",
    "wrong-version": "make the apiVersion of the provider fit the plugin",
    "unhealthy": "read the plugin's log; its refusals prove nothing until it is healthy",
    "gave-up": "find out why the plugin stopped answering, then scan again",
}
"""What to do about a plugin in each state but ``ok`` and ``not-asked``."""


def plugin_troubles(plugins: Sequence[KMSPluginSummary]) -> list[str]:
    """Return a sentence for each plugin that was not as it should be."""
    return [
        f"KMS plugin of {plugin.transformer} at {plugin.endpoint}: {plugin.message or plugin.state}; "
        f"{PLUGIN_REMEDIES[plugin.state]}"
        for plugin in plugins
        if plugin.state in PLUGIN_REMEDIES
    ]


def undecided(summary: Summary) -> list[str]:
    """Return why what was seen could not all be judged; an unhealthy plugin may still answer."""
    waiting = {entry.transformer for entry in summary.by_transformer if entry.undetermined}
    # A value may also wait for its definition.
    any_may = OTHERS in waiting or any(one.cause == Cause.OWNER_UNKNOWN for one in summary.by_cause)
    awaited = [one for one in summary.kms if any_may or one.transformer in waiting]
    reasons = plugin_troubles([one for one in awaited if one.state != "unhealthy"])
    keys = [f"undetermined: {counted(summary.undetermined, 'key')}"] if summary.undetermined else []
    return [*reasons, *keys]
