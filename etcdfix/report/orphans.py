"""The published shape of keys that belong to nobody (``etcdfix/v1``, kind ``OrphansReport``)."""

from __future__ import annotations

from typing import Final

import msgspec

from etcdfix.graph.model import OrphanGroup, OrphanReason
from etcdfix.report.document import (
    Column,
    Document,
    Kind,
    Prose,
    State,
    Status,
    Step,
    Steps,
    Table,
    why_incomplete,
)
from etcdfix.report.model import SourcedReport
from etcdfix.report.namespace import look_again
from etcdfix.text.commands import explain
from etcdfix.text.words import counted

_COLUMNS: Final = (
    Column("KEYS", kind=Kind.NUMBER),
    Column("SIZE"),
    Column("REASON"),
    Column("CONFIDENCE", wide=True),
    Column("EXAMPLES", folds=True, wide=True),
    Column("PREFIX", kind=Kind.KEY),
)
_STEPS: Final = {
    OrphanReason.OWNER_ELSEWHERE: Step(
        "owner-elsewhere: correct the owner reference before kube-controller-manager runs.",
        note="The owner is there, in another namespace or under another kind or name, so nobody finds it.",
    ),
    OrphanReason.OWNER_GONE: Step(
        "owner-gone: every owner is gone. Wait: kube-controller-manager deletes them.",
        note="If it does not, look whether it can list their types: etcdfix scan.",
    ),
    OrphanReason.CRD_GONE: Step(
        "crd-gone: to keep them, re-create the CustomResourceDefinition, and stop.",
        note="Only if they were meant to go: then delete them through the API.",
    ),
    OrphanReason.NAMESPACE_GONE: Step(
        "namespace-gone: to keep them, re-create the Namespace, and stop.",
        note="Only if it was meant to go: then delete it the ordinary way, and its controller cleans up.",
    ),
    OrphanReason.UNCLAIMED: Step(
        "unclaimed: find out who wrote them before you touch any. An aggregated API may own them."
    ),
}
"""What to do about keys of each reason, what cannot wait first."""


class OrphansReport(SourcedReport, frozen=True, kw_only=True):
    """Keys that belong to nobody; a key can stand in several groups, ``count`` and ``size`` count it once.

    In no group stand ``undecided``, whose Namespace or CRD was not seen where not everything was, and ``aggregated``,
    by API group: no CRD accounts for them, and an aggregated API serves their group, so they may be its own.
    """

    kind: str = "OrphansReport"
    groups: tuple[OrphanGroup, ...]
    count: int
    size: int
    undecided: int
    aggregated: dict[str, int]
    complete: bool
    incomplete_reasons: list[str]

    def document(self) -> Document:
        """Return how much belongs to nobody, the groups, and what to do about each kind of them."""
        first = {group.reason: group for group in reversed(self.groups)}
        steps = [_step(first[reason]) for reason in _STEPS if reason in first]
        many = f"{counted(self.count, 'key')} ({_size(self.size)}) belong{'s' * (self.count == 1)} to nobody"
        state = State.FINDINGS if self.groups else State.OK
        said = []
        if self.aggregated:
            keys, apis = sum(self.aggregated.values()), [*self.aggregated]
            named = ", ".join(apis[:5]) + (", …" if len(apis) > 5 else "")
            said.append(f"{counted(keys, 'key')} of {counted(len(apis), 'aggregated API')}: {named}.")
        if self.undecided:
            unseen = counted(self.undecided, "key")
            said.append(f"{unseen} whose Namespace or CustomResourceDefinition was not seen.")
        return Document(
            status=Status(
                state if self.complete else State.INCOMPLETE,
                many if self.groups else "no orphaned keys were found",
            ),
            about=self.about(),
            next=steps[0] if steps else None,
            sections=[
                Table(columns=_COLUMNS, rows=[_row(group) for group in self.groups], noun="group", brief=6),
                Steps(title="What to do about each", steps=steps),
                Prose(title="Not counted", paragraphs=said),
                why_incomplete(self.incomplete_reasons),
            ],
        )


def _step(group: OrphanGroup) -> Step:
    """Return what to do about keys of one reason, with the command for one group of them."""
    step = _STEPS[group.reason]
    if group.reason is OrphanReason.NAMESPACE_GONE:
        return msgspec.structs.replace(step, command=look_again(group.namespace))
    if group.reason is OrphanReason.OWNER_ELSEWHERE:
        return msgspec.structs.replace(step, command=explain(group.examples[0].encode(), "--impact"))
    return step


def _row(group: OrphanGroup) -> tuple[int, str, str, str, str, str]:
    left = group.count - len(group.examples)
    examples = [*group.examples, *([f"… {left} more"] if left > 0 and group.examples else [])]
    return group.count, _size(group.size), group.reason, group.confidence, ", ".join(examples), group.prefix


def _size(size: int) -> str:
    if size < 1024:
        return counted(size, "byte")
    unit, shift = ("KiB", 10) if size < 1 << 20 else ("MiB", 20)
    return f"{size / (1 << shift):.1f} {unit}"
