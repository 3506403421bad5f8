r"""``-o metrics``: the counts of a scan, for the textfile collector of Prometheus' node_exporter.

Names and labels are part of the contract (``docs/metrics.md``). No label holds the name of an object or namespace, and
the number of values of a label is bounded.

Format: Prometheus text exposition 0.0.4. In the value of a label ``\\``, ``"`` and a line feed are escaped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO, Final

from etcdfix import __version__
from etcdfix.examine.verdicts.severity import Severity
from etcdfix.model.model import GroupResource, Outcome
from etcdfix.report.model import COUNTED
from etcdfix.report.render.rows import ANY_RUN, EndWriter
from etcdfix.report.scan import ScanReport
from etcdfix.text.commands import RunOptions
from etcdfix.text.safetext import safe_text
from etcdfix.text.times import seconds_between, unix_seconds
from etcdfix.text.words import fit

_LONGEST_LABEL: Final = 200

Samples = Sequence[tuple[dict[str, str], int]]
_OUTCOMES: Final = {Outcome.READABLE: "readable", **COUNTED, Outcome.NOT_AN_OBJECT: "not_objects"}
_OF_KEYS: Final = (
    ("keys", "keys", "Keys written under an encryption key."),
    ("failures", "failing_keys", "Keys under an encryption key that do not open or do not decode."),
    ("undetermined", "undetermined_keys", "Keys under an encryption key that could not be examined."),
    ("stale", "stale_keys", "Keys under an encryption key that is not today's write key."),
)


class MetricsWriter(EndWriter):
    """Writes counts, times, and whether everything was examined. ``cluster`` is the uid of kube-system."""

    def __init__(self, stream: BinaryIO, run: RunOptions = ANY_RUN) -> None:
        super().__init__(stream, run)
        self._new: Counter[str] = Counter()
        self._severities = Counter(dict.fromkeys(map(str, Severity), 0))

    def row(self, row: Any) -> None:
        """Count a finding by its severity, and one that the baseline does not know."""
        self._new[row.outcome] += not row.baseline
        if row.severity in self._severities:
            self._severities[row.severity] += 1

    def end(self, report: ScanReport) -> None:
        """Write everything."""
        uid = report.source.kube_system_uid
        cluster = {"cluster": uid} if uid else {}
        metrics = [*_of_the_scan(report)]
        if report.summary.keys or report.complete:  # else a 0 would count what nobody examined
            new = [({"outcome": str(outcome)}, self._new[outcome]) for outcome in COUNTED]
            text = "Keys of these outcomes that --baseline does not know; without a baseline all of them."
            stakes = [({"severity": name}, number) for name, number in self._severities.items()]
            metrics += [
                *_counts(report),
                ("scan_severity_keys", "Keys with something proven wrong, by what is at stake.", stakes),
                ("scan_new_keys", text, new),
            ]
        for name, text, samples in metrics:
            added: Counter[str] = Counter()
            for labels, value in samples:
                added[_labels(cluster | labels)] += value  # two long names may have become one
            lines = [f"# HELP etcdfix_{name} {text}", f"# TYPE etcdfix_{name} gauge"]
            lines += [f"etcdfix_{name}{told} {value}" for told, value in added.items()]
            self._stream.write(("\n".join(lines) + "\n").encode())


def _of_the_scan(report: ScanReport) -> Iterator[tuple[str, str, Samples]]:
    yield "build_info", "Version of etcdfix that wrote this file.", [({"version": __version__}, 1)]
    took = seconds_between(report.generated_at, report.finished_at)
    for name, text, value in (
        ("complete", "1 if everything in scope was examined and judged; 0 if not.", report.complete),
        (
            "reached_end",
            "1 if everything in scope was examined; 0 if the scan ended early.",
            report.reached_end,
        ),
        ("timestamp_seconds", "When the scan ended.", unix_seconds(report.finished_at)),
        ("duration_seconds", "How long the scan took.", took),
    ):
        yield f"scan_{name}", text, [({}, int(value))]


def _counts(report: ScanReport) -> Iterator[tuple[str, str, Samples]]:
    source, summary = report.source, report.summary
    scope = "part" if report.scope.limits else "everything"
    what = {"source": source.type, "scope": scope, "etcd_version": source.etcd_version or ""}
    yield "scan_info", "What was scanned.", [(what, 1)]
    yield "scan_revision", "Revision of etcd that was read.", [({}, source.revision)]
    if source.file_modified_at:
        written = unix_seconds(source.file_modified_at)
        yield "scan_snapshot_timestamp_seconds", "When the snapshot was written.", [({}, written)]
    keys = [({"outcome": str(outcome)}, getattr(summary, field)) for outcome, field in _OUTCOMES.items()]
    yield "scan_keys", "Keys that were examined, by outcome.", keys
    yield "scan_stale_keys", "Readable keys not written with today's write key.", [({}, summary.stale)]
    causes = [({"outcome": one.outcome, "cause": one.cause}, one.count) for one in summary.by_cause]
    yield "scan_cause_keys", "Keys by outcome and cause; a cause that was not found has no sample.", causes
    resources = [(str(GroupResource(one.group, one.resource)), one) for one in summary.by_resource]
    by_outcome = [
        ({"resource": name, "outcome": str(outcome)}, getattr(one, field))
        for name, one in resources
        for outcome, field in _OUTCOMES.items()
        if outcome is not Outcome.NOT_AN_OBJECT
    ]
    yield "scan_resource_keys", "Keys of a resource by outcome.", by_outcome
    stale = [({"resource": name}, one.stale) for name, one in resources]
    yield "scan_resource_stale_keys", "Readable keys of a resource that are stale.", stale
    for field, name, text in _OF_KEYS:
        of_keys: Samples = [
            ({"transformer": one.transformer, "rule": ",".join(one.resources)}, getattr(one, field))
            for one in summary.by_transformer
        ]
        yield f"scan_transformer_{name}", text, of_keys


def _labels(labels: dict[str, str]) -> str:
    safe = {name: safe_text(fit(value, _LONGEST_LABEL)) for name, value in labels.items()}
    told = (f'{name}="{_escaped(value)}"' for name, value in safe.items())
    return f"{{{','.join(told)}}}" if labels else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"')
