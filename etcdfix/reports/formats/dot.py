"""``etcdfix impact -o dot``: the graph for Graphviz; the lost object in the middle.

Nodes are numbered, so that no name has to be an identifier, and every label is one quoted string.
"""

from __future__ import annotations

from typing import BinaryIO

from etcdfix.graph.model import ObjectRef
from etcdfix.reports.base import Output
from etcdfix.reports.formats.deletion_forecast import state, verb
from etcdfix.reports.formats.text import shown
from etcdfix.reports.impact_model import ImpactReport

_COLOURS = {
    "cascade-deleted": "#d73027",
    "kept": "#1a9850",
    "reference-stripped": "#1a9850",
    "orphaned": "#4575b4",
    "frozen": "#4575b4",
    "never-collected": "#888888",
}
_STOPS = {"yes": "#d73027", "perhaps": "#fc8d59", "no": "#888888", None: "#444444"}


def write_dot(report: ImpactReport, stream: BinaryIO, _max_rows: int = 0) -> None:
    """Write owners' and users' edges: solid ones for dependents, dashed ones for users."""
    line = Output(stream).line
    numbers: dict[str, int] = {report.object.key: 0}
    line("digraph impact {")
    line("  rankdir=LR;")
    line('  node [shape=box, fontname="sans-serif", fontsize=10];')
    line('  edge [fontname="sans-serif", fontsize=9];')
    line(f"  label={_quoted(f'{verb(report)} {shown(report.object.key)}: risk {report.risk}')};")
    outcome = report.finding.outcome if report.finding is not None else "not in etcd"
    deletion = report.deletion
    told = [f"{deletion.policy}: {state(deletion)}"] if deletion is not None else []
    line(f'  n0 [label={_quoted(shown(report.object), outcome, *told)}, style=filled, fillcolor="#fee08b"];')

    def node(entry: ObjectRef, colour: str, stays: str = "") -> int:
        number = numbers.get(entry.key)
        if number is None:
            number = numbers[entry.key] = len(numbers)
            waits = [f"waits for {stays}"] if stays else []
            line(f'  n{number} [label={_quoted(shown(entry), *waits)}, color="{colour}"];')
        return number

    for entry in report.dependents.tree:
        colour = _COLOURS.get(entry.action, "#444444")
        number = node(entry.object, colour, entry.stays)
        owner = numbers[entry.below]
        label = entry.action + (f" ({entry.propagation})" if entry.propagation else "")
        line(f'  n{owner} -> n{number} [label={_quoted(label)}, color="{colour}"];')
    for group in report.users:
        for user in group.users:
            colour = _STOPS.get(user.stops, "#444444")
            number = node(user.object, colour)
            line(f'  n{number} -> n0 [label={_quoted(user.role)}, color="{colour}", style=dashed];')
            for pod in user.behind:
                line(f'  n{node(pod, colour)} -> n{number} [color="{colour}", style=dotted];')
    line("}")


def _quoted(*lines: str) -> str:
    r"""Return a string literal of the DOT language; ``\n`` of ours breaks a line, nothing else is an escape.

    Graphviz also replaces HTML entities, so that ``&#8238;`` in a name would come out as a mark that turns text.
    """
    escaped = (shown(text).replace("&", "&amp;").replace("\\", "\\\\").replace('"', '\\"') for text in lines)
    return '"' + "\\n".join(escaped) + '"'
