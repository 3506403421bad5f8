"""Formats of ``report merge``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import BinaryIO, Final

from etcdfix.reports.base import Output, fit
from etcdfix.reports.fleet_model import FleetCluster, FleetReport, SharedKey
from etcdfix.reports.formats.machine import kind_line
from etcdfix.reports.formats.text import shown, shown_transformer
from etcdfix.text.safetext import safe_text
from etcdfix.text.words import counted
from etcdfix.verdicts.severity import CAPITALS

_MOST_NAMED: Final = 3
_MOST_NAME: Final = 60
_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "m"))
TYPES: Final[Mapping[str, str]] = {"kms-key-id": "KMS key id", "encryption-key": "encryption key"}


def write_fleet(report: FleetReport, stream: BinaryIO, max_rows: int, *, wide: bool = False) -> None:
    """Write what is worst in a few lines, then a row for each cluster, then the keys that several of them use.

    Args:
        report: What to write.
        stream: Where to.
        max_rows: So many rows of each list.
        wide: Every row with its uid, revision, and first findings.
    """
    output = Output(stream)
    for text in fleet_head(report):
        output.prose(text)
    output.line()
    if report.clusters:
        _clusters(output, report, max_rows, wide=wide)
    if report.shared_keys:
        _shared(output, report, max_rows)
    if report.same_clusters:
        _same(output, report, max_rows)
    if report.left_out:
        _left_out(output, report, max_rows)
    if wide:
        _findings(output, report, max_rows)
    if not report.complete:
        output.line("INCOMPLETE: not every cluster was seen, or not all of it could be decided.")
        for reason in report.incomplete_reasons:
            output.prose(f"- {shown(reason)}", "  ")


def fleet_head(report: FleetReport) -> Iterator[str]:
    """Yield what is worst, a sentence each."""
    summary, counts = report.summary, report.summary.counts
    lacking = summary.expected - summary.clusters
    start = "" if report.complete else "INCOMPLETE: "
    clusters = counted(summary.clusters, "cluster")
    if not summary.clusters:
        yield f"NOTHING WAS READ: none of {counted(summary.expected, 'report')} could be taken."
    elif summary.with_findings:
        bad = counts.decrypt_failures + counts.decode_failures + counts.inconsistent
        yield (
            f"{start}{counted(bad, 'key')} unreadable or inconsistent in {summary.with_findings} of {clusters}"
            f"{_new(report)}."
        )
    elif counts.undetermined:
        yield f"{start}{counted(counts.undetermined, 'key')} in {clusters} could not be judged{_new(report)}."
    else:
        yield f"{start}NOTHING WRONG FOUND in {clusters}{_limited(report)}."
    if lacking:
        yield f"LACKING: {lacking} of {counted(summary.expected, 'report')} {'has' if lacking == 1 else 'have'} no row."
    if summary.severity is not None:
        worst = [row.name for row in islice(report.clusters, summary.by_severity[summary.severity])]
        yield f"{summary.severity.upper()}: {_named(worst)}."
    if summary.do_not_restart:
        warned = [row.name for row in report.clusters if row.do_not_restart]
        yield f"{CAPITALS} of {_named(warned)}."
    first = next(iter(report.clusters), None)
    if first is not None and first.severity is not None:
        yield f"Next: read {shown(first.report)}, the report of {_cut(first.name)}, and what it says to do next."


def _new(report: FleetReport) -> str:
    new, without = report.summary.new, report.summary.without_baseline
    if without == report.summary.clusters:
        return ""
    fresh = new.decrypt_failures + new.decode_failures + new.inconsistent + new.undetermined
    have = "has" if without == 1 else "have"
    return f"; {fresh} not known from a baseline" + (f" ({without} {have} none)" if without else "")


def _limited(report: FleetReport) -> str:
    """Say of how many clusters a scan left something out: of that, nothing is known."""
    limited = sum(1 for row in report.clusters if row.limited_to)
    return f"; of {limited} of them only a part was looked at" if limited else ""


def _named(names: Iterable[str]) -> str:
    """Name the first of some clusters; a stranger may have chosen a name, of any length."""
    found = [_cut(name) for name in names]
    if len(found) > _MOST_NAMED:
        return f"{', '.join(found[:_MOST_NAMED])} and {len(found) - _MOST_NAMED} more"
    return " and ".join([", ".join(found[:-1]), found[-1]]) if len(found) > 1 else "".join(found)


def _cut(name: str) -> str:
    return safe_text(fit(name, _MOST_NAME)) or '""'


def _clusters(output: Output, report: FleetReport, max_rows: int, *, wide: bool) -> None:
    columns = [
        "CLUSTER", "SEVERITY", "UNREADABLE", "INCONSISTENT", "UNDETERMINED", "NEW", "LOST KEYS", "KEYS", "AGE",
        "COMPLETE",
    ]  # fmt: skip
    scope = wide or any(row.limited_to for row in report.clusters)
    columns += ["SCOPE"] if scope else []
    columns += ["REVISION", "KUBE-SYSTEM UID"] if wide else []
    rows = [_row(row, wide=wide, scope=scope) for row in islice(report.clusters, max_rows)]
    output.table([*columns, "REPORT"], rows, key="REPORT", spare=("KEYS", "INCONSISTENT", "LOST KEYS"))
    _more(output, len(report.clusters), max_rows, "cluster")
    output.line()


def _row(row: FleetCluster, *, wide: bool, scope: bool) -> list[str]:
    counts, new = row.counts, row.new
    fresh = new.decrypt_failures + new.decode_failures + new.inconsistent + new.undetermined
    cells = [
        _cut(row.name),
        shown(row.severity or "-"),
        _number(counts.decrypt_failures + counts.decode_failures),
        _number(counts.inconsistent),
        _number(counts.undetermined),
        _number(fresh) if row.baseline is not None else "no baseline",
        _number(row.key_losses),
        str(counts.keys),
        age(row.data_age_seconds),
        "yes" if row.complete else "NO",
    ]
    if scope:
        cells.append(shown(", ".join(row.limited_to) or "everything"))
    if wide:
        cells += [str(row.revision), shown(row.kube_system_uid or "unknown")]
    return [*cells, shown(row.report)]


def _number(value: int) -> str:
    return str(value) if value else "-"


def age(seconds: int | None) -> str:
    """Return how old something is, in one unit."""
    if seconds is None:
        return "unknown"
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def _shared(output: Output, report: FleetReport, max_rows: int) -> None:
    output.line("Keys that several clusters use, by their digest and never by their name")
    for key in islice(report.shared_keys, max_rows):
        _shared_key(output, key, max_rows)
    _more(output, len(report.shared_keys), max_rows, "key")
    output.line()


def _shared_key(output: Output, key: SharedKey, max_rows: int) -> None:
    kms = key.type == "kms-key-id"
    verb, decode = ("opens", "") if kms else ("reads", " or decode")
    unread = f"{counted(key.unreadable, 'value')} did not open{decode}, or could not be tried"
    reads = {
        "everywhere": f"{verb} everywhere",
        "nowhere": f"{verb.upper()} NOWHERE: {unread}",
    }.get(key.reads, f"{verb} {key.readable} of {counted(key.keys, 'value')}")
    unknown = f" (of {key.without_uid} the uid is not known)" if key.without_uid else ""
    clusters = f"{counted(key.clusters, 'cluster')}{unknown}"
    output.prose(f"{TYPES[key.type]} {safe_text(key.id)}: {clusters}; {reads}", "  ")
    rows = [
        (
            "   ", _cut(use.cluster), shown_transformer(use.transformer), shown(",".join(use.resources) or "-"),
            str(use.keys), _number(use.readable), _number(use.unreadable), shown(use.report),
        )
        for use in islice(key.uses, max_rows)
    ]  # fmt: skip
    counts = ("OPENED", "UNOPENED") if kms else ("READABLE", "UNREADABLE")
    columns = ("   ", "CLUSTER", "CALLED THERE", "RESOURCES", "VALUES", *counts, "REPORT")
    output.table(columns, rows, key="REPORT", spare=("RESOURCES",))
    _more(output, key.uses_in_all, min(max_rows, len(key.uses)), "use", "    ")


def _same(output: Output, report: FleetReport, max_rows: int) -> None:
    output.line("Reports with one kube-system uid: of one cluster, or of what was restored from its snapshot")
    for same in report.same_clusters[:max_rows]:
        output.prose(f"{shown(same.kube_system_uid)}: {shown(', '.join(same.reports))}", "  ")
    _more(output, len(report.same_clusters), max_rows, "uid")
    output.line()


def _left_out(output: Output, report: FleetReport, max_rows: int) -> None:
    output.line("Without a row")
    rows = [
        (shown(one.report), _cut(one.cluster) if one.cluster else "-",
         str(one.index) if one.index is not None else "-", one.reason, shown(one.message))
        for one in report.left_out[:max_rows]
    ]  # fmt: skip
    columns = ("REPORT", "CLUSTER", "INDEX", "REASON", "WHY")
    output.table(columns, rows, key="WHY", prose=True)
    _more(output, len(report.left_out), max_rows, "report")
    output.line()


def _findings(output: Output, report: FleetReport, max_rows: int) -> None:
    for row in islice(report.clusters, max_rows):
        if not row.first_findings:
            continue
        counts = row.counts
        findings = (
            counts.decrypt_failures + counts.decode_failures + counts.inconsistent + counts.undetermined
        )
        output.line(
            f"{_cut(row.name)}: the first {len(row.first_findings)} of {counted(findings, 'finding')}"
        )
        rows = [
            (shown(one.outcome), shown(one.cause or "-"), _known(row, known=one.baseline), shown(one.key))
            for one in row.first_findings
        ]
        output.table(("OUTCOME", "CAUSE", "BASELINE", "KEY"), rows, key="KEY")
        output.line()


def _known(row: FleetCluster, *, known: bool) -> str:
    return "-" if row.baseline is None else "known" if known else "new"


def _more(output: Output, number: int, most: int, noun: str, indent: str = "") -> None:
    if number > most:
        output.line(f"{indent}... and {counted(number - most, f'more {noun}')}: see -o json, or --max-rows")


def write_fleet_lines(report: FleetReport, stream: BinaryIO, _max_rows: int) -> None:
    """Write a ``FleetHeader``, each ``FleetCluster`` and ``SharedKey`` on its line, and a ``FleetSummary``."""
    stream.write(kind_line("FleetHeader", {"tool": report.tool, "generated_at": report.generated_at}))
    stream.writelines(kind_line("FleetCluster", row) for row in report.clusters)
    stream.writelines(kind_line("SharedKey", key) for key in report.shared_keys)
    rest = ("same_clusters", "left_out", "summary", "complete", "incomplete_reasons")
    stream.write(kind_line("FleetSummary", {name: getattr(report, name) for name in rest}))
