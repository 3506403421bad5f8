"""``report merge -o html``: many clusters, the worst first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO, Final

from etcdfix.reports.fleet_model import FleetCluster, FleetReport, SharedKey
from etcdfix.reports.formats.fleet import TYPES, age, fleet_head
from etcdfix.reports.formats.page import (
    SEVERITIES,
    Block,
    Column,
    Grid,
    Page,
    Section,
    Text,
    badge_of,
    write_page,
)
from etcdfix.reports.formats.text import shown_transformer
from etcdfix.reports.model import Remedy
from etcdfix.text.words import counted
from etcdfix.verdicts.severity import CAPITALS

_COLUMNS: Final = (
    Column("Severity", "mark", choose=True, order=SEVERITIES),
    Column("Cluster, and what is at stake", "key"),
    Column("Unreadable", "number"),
    Column("Undetermined", "number", minor=True),
    Column("New", "number"),
    Column("Lost keys", "number"),
    Column("Keys", "number", minor=True),
    Column("Age", minor=True),
    Column("Complete", choose=True),
)
_FACTS: Final = (
    "Report", "Report's digest", "Scanned", "Data from", "Source", "Revision", "Kube-system uid", "Name from", "Scope",
    "Restart", "Inconsistent", "Baseline",
)  # fmt: skip


def write_fleet_page(report: FleetReport, stream: BinaryIO, _max_rows: int = 0) -> None:
    """Write the report as a page of its own."""
    head = list(fleet_head(report))
    summary = report.summary
    badge, tone = badge_of(
        summary.severity, undecided=not report.complete or bool(summary.counts.undetermined)
    )
    following = next((text.removeprefix("Next: ") for text in head if text.startswith("Next: ")), "")
    page = Page(
        title=f"etcdfix fleet: {badge}",
        badge=badge,
        tone=tone,
        headline=head[0],
        lines=[text for text in head[1:] if not text.startswith(("Next: ", CAPITALS))],
        warning=next((text for text in head if text.startswith(CAPITALS)), ""),
        next=Remedy(following[0].upper() + following[1:], "", "") if following else None,
        incomplete=None if report.complete else report.incomplete_reasons,
        sections=list(_sections(report)),
        foot=[f"etcdfix {report.tool.version}", report.generated_at],
    )
    write_page(page, stream)


def _sections(report: FleetReport) -> Iterator[Section]:
    clusters = Grid("clusters", "Clusters", _COLUMNS, facts=_FACTS, sort="Severity")
    for row in report.clusters:
        _add(clusters, row)
    if clusters.count:
        yield Section("Clusters", [clusters])
    keys = Grid(
        "keys",
        "Keys that several clusters use",
        (
            Column("Reads", "mark", choose=True, order=("nowhere", "in-part", "everywhere")),
            Column("What it is", choose=True),
            Column("Digest, and who uses it", "key"),
            Column("Clusters", "number"),
            Column("Values", "number"),
            Column("Unreadable", "number"),
        ),
        sort="Reads",
    )
    for key in report.shared_keys:
        _add_key(keys, key)
    if keys.count:
        yield Section("Keys that several clusters use, by their digest and never by their name", [keys])
    if report.same_clusters:
        lines = [f"{same.kube_system_uid}: {', '.join(same.reports)}" for same in report.same_clusters]
        title = "Reports with one kube-system uid: of one cluster, or of what was restored from its snapshot"
        yield Section(title, [Text(lines)])
    left_out = Grid(
        "left-out",
        "Without a row",
        (Column("Reason", choose=True), Column("Cluster"), Column("Report, and why", "key"), Column("Index")),
    )
    for one in report.left_out:
        index = str(one.index) if one.index is not None else ""
        left_out.add((one.reason, one.cluster, (one.report, one.message), index))
    if left_out.count:
        yield Section("Without a row", [left_out])


def _add(grid: Grid, row: FleetCluster) -> None:
    counts, new = row.counts, row.new
    fresh = new.decrypt_failures + new.decode_failures + new.inconsistent + new.undetermined
    baseline = row.baseline
    found = counts.decrypt_failures + counts.decode_failures + counts.inconsistent + counts.undetermined
    findings = [
        (
            one.outcome,
            one.cause or "",
            "known" if one.baseline else "new" if baseline else "",
            one.key,
            one.message,
        )
        for one in row.first_findings
    ]
    lost = [
        f"{one.failures} of {counted(one.of, 'value')} under {shown_transformer(one.transformer)} cannot be read: "
        f"{', '.join(one.resources)}."
        for one in row.key_loss
    ]
    if row.key_losses > len(lost):
        lost.append(f"And {row.key_losses - len(lost)} more: see the report.")
    title = f"The first {len(findings)} of {counted(found, 'finding')}"
    grid.add(
        (
            row.severity or "", (row.name or '""', row.at_stake), counts.decrypt_failures + counts.decode_failures,
            counts.undetermined, fresh, row.key_losses, counts.keys, age(row.data_age_seconds),
            "yes" if row.complete else "no",
        ),
        (
            row.report, row.report_sha256, row.generated_at, row.data_from, row.source_type, str(row.revision),
            row.kube_system_uid or "unknown", row.named_by, ", ".join(row.limited_to) or "everything",
            "its report warns against restarting an API server" if row.do_not_restart else "",
            str(counts.inconsistent), f"of {baseline.generated_at}" if baseline else "none",
        ),
        [
            Block("text", "Why it is not complete", [(reason,) for reason in row.incomplete_reasons]),
            Block("text", "Lost encryption keys", [(line,) for line in lost]),
            Block("table", title, [("Outcome", "Cause", "Baseline", "Etcd key", "What is wrong"), *findings]
                  if findings else []),
        ],
    )  # fmt: skip


def _add_key(grid: Grid, key: SharedKey) -> None:
    names = [use.cluster for use in key.uses[:3]]
    more = f" and {key.uses_in_all - len(names)} more" if key.uses_in_all > len(names) else ""
    uses = [
        (use.cluster, shown_transformer(use.transformer), ", ".join(use.resources), str(use.keys), str(use.readable),
         str(use.unreadable), use.report)
        for use in key.uses
    ]  # fmt: skip
    heads = ("Cluster", "Called there", "Resources", "Values", "Readable", "Unreadable", "Report")
    grid.add(
        (
            key.reads,
            TYPES.get(key.type, key.type),
            (key.id, ", ".join(names) + more),
            key.clusters,
            key.keys,
            key.unreadable,
        ),
        (),
        [Block("table", "Who uses it", [heads, *uses])],
    )
