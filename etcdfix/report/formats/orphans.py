"""``etcdfix orphans -o table``."""

from __future__ import annotations

from typing import BinaryIO

from etcdfix.report.base import Output
from etcdfix.report.formats.text import aligned, incomplete, introduction, shown
from etcdfix.report.impact_model import OrphansReport
from etcdfix.text.words import counted

_MEANINGS = {
    "owner-gone": "every owner is gone",
    "crd-gone": "their CustomResourceDefinition is gone",
    "namespace-gone": "their Namespace object is gone",
    "unclaimed": "no resource claims the prefix",
}
_NEXT = {
    "owner-gone": "wait: kube-controller-manager deletes them; if it does not, look whether it can list their types "
    "(etcdfix scan)",
    "crd-gone": "to keep them, re-create the CustomResourceDefinition, and stop; only if they were meant to go: then "
    "delete them through the API",
    "namespace-gone": "to keep them, re-create the Namespace, and stop; only if it was meant to go: then delete it the "
    "ordinary way, and its controller cleans up (etcdfix namespace NAME)",
    "unclaimed": "find out who wrote them before you touch any: an aggregated API server may own them",
    "outside-prefix": "find out who wrote them before you touch any: another program may share this etcd",
}


def write_table(report: OrphansReport, stream: BinaryIO, max_rows: int) -> None:
    """Write the groups as text, up to ``max_rows`` of them."""
    output = Output(stream)
    line = output.line
    lacks = "" if report.complete else "INCOMPLETE: "
    if report.groups:
        line(f"{lacks}{counted(report.count, 'key')} of {_size(report.size)} belong to nobody")
    else:
        line(f"{lacks}no orphaned keys were found")
    reasons = [reason for reason in _NEXT if any(group.reason == reason for group in report.groups)]
    if reasons:
        line(f"Next: {reasons[0]}: {_NEXT[reasons[0]]}")
    line()
    line(introduction(report))
    last = ""
    for group in report.groups[:max_rows]:
        if group.reason != last:
            line()
            meaning = f"{_MEANINGS[group.reason]}; " if group.reason in _MEANINGS else ""
            line(f"{group.reason.upper()}: {meaning}{shown(group.note)}")
            last = group.reason
        sure = "" if group.confidence == "certain" else f"({group.confidence})"
        row = (shown(group.prefix), counted(group.count, "key"), _size(group.size), sure)
        output.lines(aligned([row]))
        for example in group.examples:
            line(f"      {shown(example)}")
        if group.examples and group.count > len(group.examples):
            line(f"      … {group.count - len(group.examples)} more")
    if len(report.groups) > max_rows:
        line(
            f"  … {len(report.groups) - max_rows} of {counted(len(report.groups), 'group')} not shown; "
            f"--max-rows {len(report.groups)} or -o json shows them"
        )
    if report.aggregated:
        line()
        line("Not counted: served by an aggregated API, which keeps them elsewhere or here")
        rows = [(shown(group), counted(count, "key")) for group, count in report.aggregated.items()]
        for text in [
            *aligned(rows[:max_rows]),
            *([f"  … {len(rows) - max_rows} more"] if len(rows) > max_rows else []),
        ]:
            line(text)
    if report.undecided:
        line()
        line(
            f"Not counted: {counted(report.undecided, 'key')} whose Namespace or CustomResourceDefinition was not "
            "seen; not everything could be read"
        )
    line()
    output.lines(incomplete(report))
    if reasons:
        line("What to do next")
        for number, reason in enumerate(reasons, start=1):
            line(f"  {number}. {reason}: {_NEXT[reason]}")


def _size(size: int) -> str:
    if size < 1024:
        return counted(size, "byte")
    value = size / 1024
    for unit in ("KiB", "MiB"):
        if value < 1024:
            return f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"
