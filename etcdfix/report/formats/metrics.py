r"""``-o metrics``: what a scan came to, for the textfile collector of Prometheus' node_exporter.

Names and labels are part of the contract (``docs/metrics.md``). Labels hold what reports say of types, causes and
encryption keys, never the name of an object or namespace; how many values a label has is bounded, whatever was
scanned.

Format:
    Prometheus text exposition 0.0.4: ``# HELP``, ``# TYPE``, then the samples of that metric. In the value of a label
    ``\\``, ``"`` and a line feed are escaped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import BinaryIO, Final

from etcdfix import __version__
from etcdfix.model import GroupResource, Outcome
from etcdfix.report.base import Reporter, fit
from etcdfix.report.formats.text import shown_transformer
from etcdfix.report.head import lost_midway
from etcdfix.report.model import (
    COUNTED,
    Conclusion,
    Finding,
    Header,
    ResourceSummary,
    SharedWords,
    Summary,
    TransformerSummary,
)
from etcdfix.report.tally import OTHERS
from etcdfix.text.safetext import safe_text
from etcdfix.text.times import seconds_between, unix_seconds
from etcdfix.verdicts.severity import Severity

MOST_RESOURCES: Final = 500
MOST_TRANSFORMERS: Final = 100

_LONGEST_LABEL: Final = 200

Labels = dict[str, str]
Sample = tuple[Labels, int]
Metric = tuple[str, str, Iterable[Sample]]


class MetricsReporter(Reporter):
    """Writes counts, times, and whether everything was seen. Each series has the cluster's uid as its ``cluster``."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._header: Header | None = None
        self._new: Counter[str] = Counter()

    def begin(self, header: Header) -> None:
        """Keep the header: it says when the scan began."""
        self._header = header

    def finding(self, finding: Finding) -> None:
        """Count what the baseline does not know."""
        self._new[finding.outcome] += not finding.baseline

    def finding_of_lost_key(self, finding: Finding, _shared: SharedWords) -> None:
        """Count it likewise."""
        self._new[finding.outcome] += not finding.baseline

    def end(self, conclusion: Conclusion) -> None:
        """Write everything."""
        assert self._header is not None  # begin() comes first
        uid = conclusion.source.kube_system_uid
        cluster = {"cluster": uid} if uid else {}
        lines: list[str] = []
        for name, help_text, samples in self._metrics(self._header, conclusion):
            lines += [f"# HELP {name} {help_text}", f"# TYPE {name} gauge"]
            added: Counter[str] = Counter()
            for labels, value in samples:
                added[_labels(cluster | labels)] += value  # two long names may have become one
            lines += [f"{name}{told} {value}" for told, value in added.items()]
        self._stream.write(("\n".join(lines) + "\n").encode())

    def _metrics(self, header: Header, conclusion: Conclusion) -> Iterator[Metric]:
        summary = conclusion.summary
        yield (
            "etcdfix_build_info",
            "Version of etcdfix that wrote this file.",
            [({"version": __version__}, 1)],
        )
        yield (
            "etcdfix_scan_complete",
            "1 if the scan saw everything in scope, and could decide about all of it; 0 if not.",
            [({}, int(conclusion.complete))],
        )
        yield (
            "etcdfix_scan_reached_end",
            "1 if the scan saw everything in scope; 0 if it was ended early, or something could not be read.",
            [({}, int(not lost_midway(summary, conclusion.incomplete_reasons)))],
        )
        yield (
            "etcdfix_scan_timestamp_seconds",
            "When the scan ended.",
            [({}, unix_seconds(conclusion.finished_at))],
        )
        yield (
            "etcdfix_scan_duration_seconds",
            "How long the scan took.",
            [({}, seconds_between(header.generated_at, conclusion.finished_at))],
        )
        # No 0 stands for what nobody looked at.
        if summary.keys or conclusion.complete:
            yield from _counts(header, conclusion)
            yield (
                "etcdfix_scan_new_keys",
                "Keys of these outcomes that --baseline does not know; without a baseline all of them.",
                [({"outcome": outcome}, self._new[outcome]) for outcome in COUNTED],
            )


def _counts(header: Header, conclusion: Conclusion) -> Iterator[Metric]:
    source, summary = conclusion.source, conclusion.summary
    what = {
        "source": source.type,
        "scope": "part" if header.scope.limits else "everything",
        "etcd_version": source.etcd_version or "",
    }
    yield "etcdfix_scan_info", "What was scanned.", [(what, 1)]
    yield "etcdfix_scan_revision", "Revision of etcd that was read.", [({}, source.revision)]
    if source.file_modified_at:
        yield (
            "etcdfix_scan_snapshot_timestamp_seconds",
            "When the snapshot file that was read was last written.",
            [({}, unix_seconds(source.file_modified_at))],
        )
    yield "etcdfix_scan_keys", "Keys that were examined, by outcome.", _by_outcome(summary)
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


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    told = (f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return f"{{{','.join(told)}}}"


def _escaped(value: str) -> str:
    # A line feed is spelled out by then.
    return safe_text(fit(value, _LONGEST_LABEL)).replace("\\", "\\\\").replace('"', '\\"')
