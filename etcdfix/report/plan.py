"""The published shape of a plan (``etcdfix/v1``, kind ``DeletionPlan``), field by field and in order."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterator, Sequence
from enum import StrEnum
from itertools import islice
from typing import ClassVar, Final

import msgspec

from etcdfix.copies.model import THE_VALUE, Place
from etcdfix.examine.verdicts.causes import Cause
from etcdfix.examine.verdicts.severity import Severity, Stake, is_conditional
from etcdfix.graph.model import Risk, RiskReason
from etcdfix.model.model import GroupResource, Outcome, ServerBehaviour
from etcdfix.model.rules import MEANINGS, Rule, acceptance
from etcdfix.report.document import (
    Column,
    Document,
    Facts,
    Kind,
    Section,
    State,
    Status,
    Step,
    Steps,
    Table,
    why_incomplete,
)
from etcdfix.report.model import ReportBaseline, SourcedReport
from etcdfix.report.tally import Stakes
from etcdfix.text.commands import Command, explain
from etcdfix.text.safetext import quote_command
from etcdfix.text.words import counted


class PlanEntry(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"source": "from"}
):
    """One broken object.

    Attributes:
        order: Its turn, from 1.
        key: Complete etcd key; ``key_base64`` is there when it is not plain text, and is authoritative then.
        outcome: Its outcome now, not that of the report.
        severity: What is at stake with it, as a report of ``scan`` says it; "" where it could not be judged.
        what: What it is, in a clause, as far as names and references tell.
        cascade: How many dependents the garbage collector deletes after it.
        recreate_confidence: Of that; null for ``by hand``.
        comes_back: ``by-itself``, ``after-a-step``, ``not-needed`` or ``no``.
        recreate_how: What has to be done, and what differs afterwards.
        source: ``from``: what ``etcdfix fix --from`` takes to put that back; "" where it cannot be.
        fix_needs: The flags without which that is refused.
        protected: Why the cluster may depend on it: then the deletion needs ``--accept cluster-breaking``.
        risk: The worst of ``reasons``.
        command: The dry run of the way back where ``source`` names one, else of its deletion.
        needs: Flags without which its deletion is refused, and that no command has: a person has to type them.
        refused: Why its deletion is refused today whatever flag is given; "" where it is not.
    """

    order: int
    key: str
    key_base64: str | None = None
    group: str
    resource: str
    namespace: str
    name: str
    mod_revision: int
    value_sha256: str
    outcome: str
    cause: str
    severity: str
    transformer: str
    kms_key_id_sha256: str
    what: str
    users: int
    cascade: int
    recreated_by: str
    recreate_confidence: str | None
    comes_back: str
    recreate_basis: str
    recreate_how: str
    protected: str
    risk: str
    reasons: list[RiskReason]
    needs: list[str] = []
    command: str
    refused: str = ""
    copy: str = ""
    source: str = ""
    fix_needs: list[str] = []
    save: str = ""


class LeftOut(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A finding of the report that is no part of the plan, and why.

    ``why`` is ``gone``, ``changed``, ``readable``, ``inconsistent``, ``undetermined``, ``curable-by-configuration``,
    ``value-moved`` or ``never-deletable``.
    """

    key: str
    key_base64: str | None = None
    why: str
    detail: str


class Decision(StrEnum):
    """What is to be done to the object of an entry."""

    FIX = "fix"
    DELETE = "delete"
    LEAVE = "leave"


class PlanDecision(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is to be done to the object of one entry: the part of a plan that people may edit.

    Attributes:
        decision: One of ``allowed``. The plan proposes the least destructive one; ``leave`` where it has to wait.
        allowed: What may be decided.
    """

    order: int
    key: str
    key_base64: str | None = None
    decision: str
    allowed: list[str]


def decision_on(entry: PlanEntry) -> PlanDecision:
    """Return what a plan proposes for an entry: the least destructive way, and nothing where it has to wait."""
    allowed = [Decision.FIX] if entry.source else []
    if not entry.refused:
        allowed.append(Decision.DELETE)
    # Of what only a person can put back, nothing is deleted unasked.
    waits = deletion_waits(entry) or (entry.save and not entry.source)
    proposed = allowed[0] if allowed and (loses_nothing(entry) or not waits) else Decision.LEAVE
    return PlanDecision(
        order=entry.order,
        key=entry.key,
        key_base64=entry.key_base64,
        decision=proposed.value,
        allowed=[each.value for each in (*allowed, Decision.LEAVE)],
    )


def loses_nothing(entry: PlanEntry) -> bool:
    """Say whether its copy is of the newest write: then an encryption key that turns up makes the fix no worse."""
    return entry.source in {*THE_VALUE, Place.MEMORY}


def entry_stake(entry: PlanEntry) -> Stake:
    """Return what is at stake with a broken object of a plan; of one that could not be judged it is not known."""
    severity = Severity(entry.severity)
    return Stake(
        severity,
        GroupResource(entry.group, entry.resource),
        # The only broken ones that fail no LIST.
        ServerBehaviour.SERVES_EMPTY if severity is Severity.ONE_OBJECT else ServerBehaviour.CORRUPT,
        namespaced=bool(entry.namespace),
        conditional=is_conditional(entry.cause),
    )


def is_breaking(entry: PlanEntry) -> bool:
    """Say whether the cluster may depend on an object, so that its deletion needs ``--accept cluster-breaking``."""
    return bool(entry.protected) or entry.risk == Risk.CLUSTER_BREAKING


DECLARE_KEY_LOST: Final = "--declare-key-lost"


def declaration(transformer: str, kms_key_id_sha256: str) -> str:
    """Return the flag that declares a key lost, as a deletion under it takes it.

    Under KMS it names the key id too: other key ids of the same provider may well answer.
    """
    key = f"{transformer}/{kms_key_id_sha256}" if kms_key_id_sha256 else transformer
    return quote_command([DECLARE_KEY_LOST, key])


def deletion_waits(entry: PlanEntry) -> bool:
    """Say whether a deletion has to wait: nothing is proven, or a key that turns up or an older server may read it."""
    declares = any(flag.startswith(f"{DECLARE_KEY_LOST} ") for flag in entry.needs)
    whole = entry.cause == Cause.VERSION_REMOVED
    return declares or whole or bool(entry.refused) or entry.outcome == Outcome.UNDETERMINED


_MEANINGS: Final = {acceptance(rule): words for rule, words in MEANINGS.items()}

_LOST: Final = f"its key is gone for ever; with --kubeconfig, or {acceptance(Rule.NO_API_SERVER)}"


def meaning(flag: str) -> str:
    """Return what somebody says who types a flag."""
    return _MEANINGS.get(flag, _LOST)


class PlanGroup(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Entries with one cause under one encryption key of one rule.

    ``advice`` is what holds for all of them, "" for nothing; ``declaration`` the flag without which a deletion of one
    of them is refused, "" for none.
    """

    outcome: str
    cause: str
    transformer: str
    rule: str
    kms_key_id_sha256: str
    count: int
    opened: int
    pattern: bool
    advice: str
    declaration: str = ""


class PlanStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One thing to do; the command, "" for none, is ready to paste."""

    title: str
    text: str
    command: str = ""


class DeletionPlan(SourcedReport, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole document. Its age counts from ``generated_at``, when the source was begun to be read.

    Attributes:
        newest: Made at the newest revision of a live etcd; a deletion refuses any other plan.
        report: The scan report that the plan was made from.
        complete: Everything was seen, by the report and by the plan.
        not_in_report: Broken values that the source has and the report does not.
        content_sha256: Of the rest but for ``decisions``: shows an edit, not an enemy.
        decisions: One for each entry, in their order.
    """

    ROWS: ClassVar[str] = "entries"

    kind: str = "DeletionPlan"
    newest: bool
    etcd_prefix: str
    kubernetes_version: str | None
    report: ReportBaseline
    complete: bool
    incomplete_reasons: list[str]
    groups: list[PlanGroup]
    steps: list[PlanStep]
    not_in_report: int
    left_out: Sequence[LeftOut]
    entries: Sequence[PlanEntry]
    content_sha256: str = ""
    decisions: Sequence[PlanDecision]

    def document(self) -> Document:
        """Return what is at stake, the first step, the groups and the objects in the order of their turns."""
        number, left = len(self.entries), len(self.left_out)
        told = f"{counted(number, 'broken object')} to decide about, {left} of the report left out"
        whys = Counter(one.why for one in self.left_out)  # on disk: one pass
        state = State.FINDINGS if number or self.not_in_report or whys.keys() - SETTLED else State.OK
        if not self.complete:
            state = State.INCOMPLETE
        plain = "" if self.encryption_config else "nothing is encrypted at rest (--no-encryption)"
        of = f"plan from {self.report.path} (scan of {self.report.generated_at})"
        about = [("report", of), *self.about().facts, ("encryption", plain)]
        return Document(
            status=Status(state, told),
            about=Facts(facts=about),
            stakes=[*self._stakes(whys)],
            next=self._next(),
            sections=[*self._sections()],
        )

    def _stakes(self, whys: Counter[str]) -> Iterator[str]:
        stakes = Stakes(past=not self.newest)
        for entry in self.entries:  # on disk: one pass
            known = entry.outcome != Outcome.UNDETERMINED
            stakes.note(entry_stake(entry) if known else None, None if known else entry.cause)
        yield from stakes.lines()
        if whys:
            yield f"Left out: {', '.join(f'{number} {why}' for why, number in whys.most_common())}."
        if self.not_in_report:
            broken = counted(self.not_in_report, "broken value")
            yield f"{broken} are not in the report. Scan again to see them."

    def _next(self) -> Step | None:
        """Return the first step that has a command of ours, else the way to what is left out: never a change."""
        for step in self.steps:
            if step.command.startswith("etcdfix "):
                return Step(step.title, Command(text=step.command))
        for left in () if self.entries else self.left_out:
            if left.why not in SETTLED:
                key = base64.b64decode(left.key_base64) if left.key_base64 else left.key.encode()
                return Step("See why the first is left out, and every way out", explain(key))
        return None

    def _sections(self) -> Iterator[Section]:
        groups = [
            (one.count, one.cause, one.transformer or "unknown envelope", one.opened, one.rule, one.advice)
            for one in self.groups
        ]
        number = len(self.entries)
        yield Table(
            columns=_GROUPS, rows=groups, noun="group", brief=4, counted=0, sum=number, counts="object"
        )
        entries = [_row(entry) for entry in islice(self.entries, MOST_SHOWN)]
        yield Table(columns=_ENTRIES, rows=entries, total=number, noun="object", brief=6)
        steps = [Step(f"{one.title}. {one.text}", Command(text=one.command)) for one in self.steps]
        yield Steps(title="Before any change, in this order", steps=steps, wide=True)
        shown = islice(self.entries, MOST_SHOWN)
        flags = dict.fromkeys(flag for entry in shown for flag in (*entry.fix_needs, *entry.needs))
        meant = [(flag, f"if {meaning(flag)}") for flag in flags]
        yield Facts(title="What a person has to accept", facts=meant, wide=True)
        left = [(one.why, one.detail, one.key) for one in islice(self.left_out, MOST_SHOWN)]
        total = len(self.left_out)
        yield Table(title="Left out", columns=_LEFT, rows=left, total=total, noun="finding", wide=True)
        yield why_incomplete(self.incomplete_reasons)


SETTLED: Final = frozenset({"gone", "readable"})
"""Why something is left out of which nothing is broken any more."""
MOST_SHOWN: Final = 10_000
"""So many objects a document has at most; the plan itself has all."""
_GROUPS: Final = (
    Column("COUNT", kind=Kind.NUMBER),
    Column("CAUSE"),
    Column("ENCRYPTION KEY"),
    Column("OPEN", kind=Kind.NUMBER),
    Column("RULE", wide=True),
    Column("ADVICE", folds=True, wide=True),
)
_ENTRIES: Final = (
    Column("TURN", kind=Kind.NUMBER),
    Column("PROPOSED"),
    Column("RISK"),
    Column("MADE AGAIN BY"),
    Column("WHAT", folds=True, wide=True),
    Column("WHY", folds=True, wide=True),
    Column("CASCADE", kind=Kind.NUMBER, wide=True),
    Column("NEEDS", folds=True, wide=True),
    Column("COMMAND", kind=Kind.COMMAND, wide=True),
    Column("ETCD KEY", kind=Kind.KEY),
)
_LEFT: Final = (Column("WHY"), Column("DETAIL", folds=True), Column("ETCD KEY", kind=Kind.KEY))


def _row(entry: PlanEntry) -> tuple[str | int, ...]:
    why = entry.reasons[0].text if entry.reasons else entry.protected
    decision: str = decision_on(entry).decision
    fixes = decision == Decision.FIX
    needs = " ".join(entry.fix_needs if fixes else entry.needs)
    if entry.refused and not fixes:
        needs = f"refused: {entry.refused}"
    unproven = " (unproven)" if entry.outcome == Outcome.UNDETERMINED else ""
    return (
        entry.order, f"fix from {entry.source}" if fixes else decision, f"{entry.risk}{unproven}",
        entry.recreated_by, entry.what, why, entry.cascade, needs, entry.command, entry.key,
    )  # fmt: skip
