r"""``--metrics-file``: what a scan came to, for the textfile collector of Prometheus' node_exporter.

Names and labels are part of the contract (``docs/metrics.md``). Labels hold what reports say of types, causes and
encryption keys, never the name of an object or namespace; how many values a label has is bounded, whatever was
scanned.

Format:
    Prometheus text exposition 0.0.4: ``# HELP``, ``# TYPE``, then the samples of that metric. In the value of a label
    ``\\``, ``"`` and a line feed are escaped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from etcdfix import __version__
from etcdfix.model import GroupResource, Outcome
from etcdfix.reports.base import fit
from etcdfix.reports.formats.text import shown_transformer
from etcdfix.reports.model import COUNTED, ReportSource, ResourceSummary, Summary, TransformerSummary
from etcdfix.reports.tally import OTHERS
from etcdfix.text.safetext import safe_text
from etcdfix.verdicts.severity import Severity

MOST_RESOURCES: Final = 500
MOST_TRANSFORMERS: Final = 100
MOST_BYTES: Final = 16 << 20
"""No file of ours is larger."""
BEGINNING: Final = b"# HELP etcdfix_build_info "
"""How each begins."""

_LONGEST_LABEL: Final = 200
_LAST_COMPLETE: Final = "etcdfix_scan_last_complete_timestamp_seconds"

Labels = dict[str, str]
Sample = tuple[Labels, int | float]


class Examined(msgspec.Struct, frozen=True, kw_only=True):
    """What is counted; only of a scan that examined anything.

    Attributes:
        source: Where it was.
        scope: ``everything``, ``part`` of it, or all or part of a ``past`` revision.
        snapshot_at: When the file of a snapshot was last written, in seconds since 1970; None for no such file.
        summary: All counts.
        new: Failing and undetermined keys that no baseline knows, by outcome.
    """

    source: ReportSource
    scope: str
    snapshot_at: int | None
    summary: Summary
    new: Mapping[Outcome, int]


class ScanMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt to scan.

    Attributes:
        cluster_name: What ``--cluster-name`` said; "" for nothing.
        ended_at: In seconds since 1970.
        seconds: How long it took.
        exit_code: Of the command.
        complete: Everything in scope was seen and decided.
        reached_end: Everything in scope was seen.
        last_complete: When the last one ended that was complete, in seconds since 1970; 0 where none is known.
        examined: What was counted; None where nothing was examined, so that no 0 stands for what nobody looked at.
    """

    cluster_name: str
    ended_at: int
    seconds: float
    exit_code: int
    complete: bool
    reached_end: bool
    last_complete: int
    examined: Examined | None = None


def metrics_text(scan: ScanMetrics) -> bytes:
    """Return the contents of the file."""
    common = _common(scan.cluster_name)
    lines: list[str] = []
    for name, help_text, samples in _metrics(scan):
        lines += [f"# HELP {name} {help_text}", f"# TYPE {name} gauge"]
        added: dict[str, int | float] = {}
        for labels, value in samples:
            told = _labels(common | labels)
            added[told] = added.get(told, 0) + value  # two long names may have become one
        lines += [f"{name}{told} {value}" for told, value in added.items()]
    return ("\n".join(lines) + "\n").encode()


def last_complete_in(contents: bytes, cluster_name: str) -> int:
    """Return when the last complete scan of a cluster ended, as an earlier file says; 0 where it says nothing."""
    told = re.escape(f"{_LAST_COMPLETE}{_labels(_common(cluster_name))} ".encode())
    found = re.search(rb"^%b([0-9]{1,12})$" % told, contents, re.MULTILINE)
    return int(found[1]) if found else 0


def cluster_name_in(contents: bytes) -> str:
    """Return of which cluster an earlier file is; "" where it names none."""
    found = re.search(rb'^etcdfix_scan_complete\{cluster="((?:[^"\\\n]|\\.)*)"\} ', contents, re.MULTILINE)
    return re.sub(r"\\(.)", r"\1", found[1].decode("utf-8", "replace")) if found else ""


def _metrics(scan: ScanMetrics) -> Iterator[tuple[str, str, Iterable[Sample]]]:
    yield "etcdfix_build_info", "Version of etcdfix that wrote this file.", [({"version": __version__}, 1)]
    yield (
        "etcdfix_scan_complete",
        "1 if the scan saw everything in scope, and could decide about all of it; 0 if not, or if it failed.",
        [({}, int(scan.complete))],
    )
    yield (
        "etcdfix_scan_reached_end",
        "1 if the scan saw everything in scope; 0 if it failed, was ended early, or something could not be read.",
        [({}, int(scan.reached_end))],
    )
    yield "etcdfix_scan_exit_code", "Exit code of the command.", [({}, scan.exit_code)]
    yield (
        "etcdfix_scan_timestamp_seconds",
        "When the last attempt to scan ended, whatever came of it.",
        [({}, scan.ended_at)],
    )
    yield (
        _LAST_COMPLETE,
        "When the last complete scan ended; 0 if this file does not know of any.",
        [({}, scan.last_complete)],
    )
    yield "etcdfix_scan_duration_seconds", "How long the scan took.", [({}, round(scan.seconds, 3))]
    if scan.examined is not None:
        yield from _counts(scan.examined)


def _counts(examined: Examined) -> Iterator[tuple[str, str, Iterable[Sample]]]:
    source, summary = examined.source, examined.summary
    yield "etcdfix_scan_info", "What was scanned.", [(_what(examined), 1)]
    yield "etcdfix_scan_revision", "Revision of etcd that was read.", [({}, source.revision)]
    if examined.snapshot_at is not None:
        yield (
            "etcdfix_scan_snapshot_timestamp_seconds",
            "When the snapshot file that was read was last written.",
            [({}, examined.snapshot_at)],
        )
    yield "etcdfix_scan_keys", "Keys that were examined, by outcome.", _by_outcome(summary)
    yield (
        "etcdfix_scan_new_keys",
        "Keys of these outcomes that --baseline does not know; without a baseline all of them.",
        [({"outcome": outcome}, examined.new.get(Outcome(outcome), 0)) for outcome in COUNTED],
    )
    yield (
        "etcdfix_scan_stale_keys",
        "Readable keys not written with today's write key.",
        [({}, summary.stale)],
    )
    yield (
        "etcdfix_scan_severity_keys",
        "Keys with something proven wrong, by what is at stake.",
        [
            *(({"severity": one.value}, 0) for one in Severity),
            *(({"severity": one.severity}, one.count) for one in summary.by_severity),
        ],
    )
    yield (
        "etcdfix_scan_cause_keys",
        "Keys by outcome and cause; a cause that was not found has no sample.",
        [({"outcome": one.outcome, "cause": one.cause}, one.count) for one in summary.by_cause],
    )
    resources = [*_resources(summary.by_resource)]
    yield (
        "etcdfix_scan_resource_keys",
        "Keys of a resource by outcome.",
        [
            ({"resource": name, "outcome": outcome}, getattr(one, field))
            for name, one in resources
            for outcome, field in ((Outcome.READABLE, "readable"), *COUNTED.items())
        ],
    )
    yield (
        "etcdfix_scan_resource_stale_keys",
        "Readable keys of a resource not written with today's write key.",
        [({"resource": name}, one.stale) for name, one in resources],
    )
    transformers = [*_transformers(summary.by_transformer)]
    for field, name, help_text in (
        ("keys", "keys", "Keys written under an encryption key."),
        (
            "failures",
            "failing_keys",
            "Keys written under an encryption key that do not open or do not decode.",
        ),
        (
            "undetermined",
            "undetermined_keys",
            "Keys written under an encryption key that could not be examined.",
        ),
        ("stale", "stale_keys", "Keys under an encryption key that is not today's write key."),
    ):
        samples = [(labels, getattr(one, field)) for labels, one in transformers]
        yield f"etcdfix_scan_transformer_{name}", help_text, samples


def _what(examined: Examined) -> Labels:
    source = examined.source
    return {
        "source": source.type,
        "scope": examined.scope,
        "kube_system_uid": source.kube_system_uid or "",
        "etcd_version": source.etcd_version or "",
    }


def _by_outcome(summary: Summary) -> list[Sample]:
    return [
        ({"outcome": Outcome.READABLE.value}, summary.readable),
        *(({"outcome": outcome}, getattr(summary, field)) for outcome, field in COUNTED.items()),
        ({"outcome": Outcome.NOT_AN_OBJECT.value}, summary.not_objects),
    ]


def _resources(counted: Iterable[ResourceSummary]) -> Iterator[tuple[str, ResourceSummary]]:
    """Yield resources by name; of very many the first by what is wrong with them, and by their keys."""
    ranked = sorted(counted, key=lambda one: (one.readable - one.keys, -one.keys, one.resource, one.group))
    named = [(str(GroupResource(one.group, one.resource)), one) for one in ranked[:MOST_RESOURCES]]
    yield from sorted(named, key=lambda one: one[0])
    yield from ((OTHERS, one) for one in ranked[MOST_RESOURCES:])


def _transformers(counted: Iterable[TransformerSummary]) -> Iterator[tuple[Labels, TransformerSummary]]:
    """Yield encryption keys by name and rule, likewise; the keys of one name in one rule stand together."""
    ranked = sorted(
        counted, key=lambda one: (-one.failures - one.undetermined, -one.keys, one.transformer, one.resources)
    )
    named = [
        ({"transformer": shown_transformer(one.transformer), "rule": ",".join(one.resources)}, one)
        for one in ranked[:MOST_TRANSFORMERS]
    ]
    yield from sorted(named, key=lambda one: (one[0]["transformer"], one[0]["rule"]))
    yield from (({"transformer": OTHERS, "rule": ""}, one) for one in ranked[MOST_TRANSFORMERS:])


def _common(cluster_name: str) -> Labels:
    return {"cluster": cluster_name} if cluster_name else {}


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    told = (f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return f"{{{','.join(told)}}}"


def _escaped(value: str) -> str:
    # A line feed is spelled out by then.
    return safe_text(fit(value, _LONGEST_LABEL)).replace("\\", "\\\\").replace('"', '\\"')
