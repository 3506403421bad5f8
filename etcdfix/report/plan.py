"""The published shape of a plan (``etcdfix/v1``, kind ``DeletionPlan``), field by field and in order.

Beside it the flags that a deletion of a plan asks for beyond its command, which leaves them to be typed by a person.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from itertools import islice
from typing import ClassVar, Final

import msgspec

from etcdfix.graph.model import RiskReason
from etcdfix.model import GroupResource, Outcome, ServerBehaviour
from etcdfix.report.document import (
    Column,
    Document,
    Facts,
    Kind,
    Prose,
    Section,
    State,
    Status,
    Step,
    Steps,
    Table,
)
from etcdfix.report.model import ReportConfiguration, Tool
from etcdfix.rules import MEANINGS, Rule, acceptance
from etcdfix.text.commands import Command
from etcdfix.text.safetext import quote_command
from etcdfix.text.words import counted
from etcdfix.verdicts.causes import Cause
from etcdfix.verdicts.severity import Severity, Stake, headline, is_conditional, restart_warning


class PlanSource(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the plan looked.

    Attributes:
        newest: At the newest revision of a live etcd; a deletion refuses any other plan.
        cluster_id: etcd's own id, lower-case hex; null for a snapshot.
    """

    type: str
    path: str | None
    endpoints: list[str] | None
    revision: int
    newest: bool
    cluster_id: str | None = None


class PlanReport(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The scan report that the plan was made from."""

    path: str
    sha256: str
    generated_at: str


class PlanEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One broken object.

    Attributes:
        order: Its turn, from 1.
        key: Complete etcd key; ``key_base64`` is there when it is not plain text, and is authoritative then.
        outcome: Its outcome now, not that of the report.
        what: What it is, in a clause, as far as names and references tell.
        users: How many objects refer to it.
        users_stopped: How many of them cannot start or work without it.
        cascade: How many dependents the garbage collector deletes after it.
        recreated_by: Who makes it again, or ``by hand``.
        recreate_confidence: Of that; null for ``by hand``.
        comes_back: ``by-itself``, ``after-a-step``, ``not-needed`` or ``no``.
        recreate_basis: Why that is thought.
        recreate_how: What has to be done, and what differs afterwards.
        readable_revision: A revision of etcd at which its newest readable value can be read, 0 where none is known or
            it had a lease, which may have expired.
        repair: How its own stored bytes can be put right; "" where nothing was found.
        repair_needs: As ``needs``, of that repair.
        protected: Why the cluster may depend on it: then the deletion needs ``--accept cluster-breaking``.
        risk: The worst of ``reasons``.
        needs: Flags that its command lacks, and without which it is refused: a person has to type them.
        command: The dry run of its deletion.
        refused: Why it is refused today whatever flag is given; "" where it is not.
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
    transformer: str
    kms_key_id_sha256: str
    what: str
    users: int
    users_stopped: int
    cascade: int
    recreated_by: str
    recreate_confidence: str | None
    comes_back: str
    recreate_basis: str
    recreate_how: str
    readable_revision: int
    protected: str
    risk: str
    reasons: list[RiskReason]
    needs: list[str] = []
    command: str
    refused: str = ""
    repair: str = ""
    repair_needs: list[str] = []


class LeftOut(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A finding of the report that is no part of the plan, and why.

    ``why`` is ``gone``, ``changed``, ``readable``, ``inconsistent``, ``undetermined``, ``curable-by-configuration``,
    ``value-moved`` or ``never-deletable``.
    """

    key: str
    key_base64: str | None = None
    why: str
    detail: str


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


class PlanMaker(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Entries that one party makes again."""

    recreated_by: str
    comes_back: str
    count: int
    how: str


class PlanStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One thing to do; commands are ready to paste."""

    title: str
    text: str
    commands: list[str] = []


class Decision(StrEnum):
    """What is to be done to the object of an entry."""

    REPAIR = "repair"
    RESTORE = "restore"
    DELETE = "delete"
    NONE = "none"


class PlanDecision(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is to be done to the object of one entry, and what came of it: the part of a plan that people may edit.

    Attributes:
        order: Of the entry.
        key: Etcd key of the entry.
        key_base64: As in the entry.
        decision: One of ``allowed``. The plan proposes the least destructive one; ``none`` where it has to wait.
        allowed: What may be decided.
        outcome: What came of it in a run, one word of the audit log; "" for nothing yet.
        detail: One sentence, or "".
        record: Sequence of the record of the outcome in the audit log; 0 for none.
    """

    order: int
    key: str
    key_base64: str | None = None
    decision: str
    allowed: list[str]
    outcome: str = ""
    detail: str = ""
    record: int = 0


def decision_on(entry: PlanEntry) -> PlanDecision:
    """Return what a plan proposes for an entry: the least destructive way, and nothing where it has to wait."""
    allowed = [Decision.REPAIR] if entry.repair else []
    if entry.readable_revision:
        allowed.append(Decision.RESTORE)
    if not entry.refused:
        allowed.append(Decision.DELETE)
    # A key that turns up makes a repair no worse; what an earlier revision or a deletion replaces would be lost.
    waits = deletion_waits(entry) and not entry.repair
    proposed = Decision.NONE if waits or not allowed else allowed[0]
    return PlanDecision(
        order=entry.order,
        key=entry.key,
        key_base64=entry.key_base64,
        decision=proposed.value,
        allowed=[each.value for each in (*allowed, Decision.NONE)],
    )


class DeletionPlan(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    rename={"api_version": "apiVersion"},
):
    """The whole document.

    Attributes:
        generated_at: When the source was begun to be read; the plan's age counts from here.
        kube_system_uid: Which cluster; null where that namespace cannot be read.
        complete: Everything was seen, by the report and by the plan.
        incomplete_reasons: Why not.
        not_in_report: Broken values that the source has and the report does not.
        content_sha256: Of the rest but for ``decisions`` and ``audit_log``: shows an edit, not an enemy.
        decisions: One for each entry, in their order.
        audit_log: The log of the runs that have begun; "" before the first.
    """

    ROWS: ClassVar[str] = "entries"

    api_version: str
    kind: str
    tool: Tool
    generated_at: str
    source: PlanSource
    kube_system_uid: str | None
    encryption_config: ReportConfiguration | None
    etcd_prefix: str
    kubernetes_version: str | None
    report: PlanReport
    complete: bool
    incomplete_reasons: list[str]
    groups: list[PlanGroup]
    recreated_by: list[PlanMaker]
    steps: list[PlanStep]
    not_in_report: int
    left_out: Sequence[LeftOut]
    entries: Sequence[PlanEntry]
    content_sha256: str = ""
    audit_log: str = ""
    decisions: Sequence[PlanDecision]

    def document(self) -> Document:
        """Return what is at stake, the first step, the groups and the objects in the order of their turns."""
        number, left = len(self.entries), len(self.left_out)
        told = f"{counted(number, 'broken object')} to decide about, {left} of the report left out"
        state = State.FINDINGS if number else State.OK
        if not self.complete:
            state, told = State.INCOMPLETE, f"INCOMPLETE: {told}"
        source = self.source
        where = source.path if source.path is not None else ", ".join(source.endpoints or [])
        about = [
            ("report", f"plan from {self.report.path} (scan of {self.report.generated_at})"),
            ("revision", f"revision {source.revision} of {where}"),
            ("cluster", f"kube-system uid {self.kube_system_uid or 'unknown'}"),
            (
                "encryption",
                "" if self.encryption_config else "nothing is encrypted at rest (--no-encryption)",
            ),
            ("version", f"{self.tool.name} {self.tool.version}"),
        ]
        return Document(
            status=Status(state, told),
            about=Facts(facts=about),
            stakes=[*self._stakes()],
            next=self._next(),
            sections=[*self._sections()],
        )

    def _stakes(self) -> Iterator[str]:
        stakes: dict[Stake, None] = {}
        undetermined: dict[str, None] = {}
        for entry in self.entries:  # on disk: one pass
            if entry.outcome == Outcome.UNDETERMINED:
                undetermined[entry.cause] = None
            else:
                stakes[entry_stake(entry)] = None
        for say in (headline, restart_warning):
            text = say([*stakes], [*undetermined], past=not self.source.newest)
            if text:
                yield text
        if self.not_in_report:
            broken = counted(self.not_in_report, "broken value")
            yield f"{broken} are not in the report. Scan again to see them."

    def _next(self) -> Step | None:
        """Return the first step before any deletion that has a command of ours, else the first dry run.

        Never the dry run of a deletion that is refused, or that declares an encryption key lost: another look then.
        """
        first = self.entries[0] if self.entries else None
        waits = first is not None and deletion_waits(first)
        for step in self.steps if waits else self.steps[:-1]:
            command = next((command for command in step.commands if command.startswith("etcdfix ")), "")
            if command:
                return Step(step.title, Command(text=command))
        if first is None or waits:
            return None
        return Step("Read what the first deletion would do", Command(text=first.command))

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
        makers = [(one.count, one.recreated_by, one.comes_back, one.how) for one in self.recreated_by]
        yield Table(title="Who makes them again", columns=_MAKERS, rows=makers, noun="maker", wide=True)
        steps = [step for one in self.steps for step in _steps(one)]
        yield Steps(title="What to do, in this order", steps=steps, wide=True)
        flags = dict.fromkeys(flag for entry in islice(self.entries, MOST_SHOWN) for flag in entry.needs)
        meant = [(flag, f"if {meaning(flag)}") for flag in flags]
        yield Facts(title="What a person has to accept", facts=meant, wide=True)
        left = [(one.why, one.detail, one.key) for one in islice(self.left_out, MOST_SHOWN)]
        total = len(self.left_out)
        yield Table(title="Left out", columns=_LEFT, rows=left, total=total, noun="finding", wide=True)
        yield Prose(title="Not everything was seen", paragraphs=self.incomplete_reasons, wide=True)


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
_MAKERS: Final = (
    Column("COUNT", kind=Kind.NUMBER),
    Column("BY"),
    Column("COMES BACK"),
    Column("HOW", folds=True),
)
_LEFT: Final = (Column("WHY"), Column("DETAIL", folds=True), Column("ETCD KEY", kind=Kind.KEY))


def _row(entry: PlanEntry) -> tuple[str | int | Command, ...]:
    why = entry.reasons[0].text if entry.reasons else entry.protected
    needs = f"refused: {entry.refused}" if entry.refused else " ".join(entry.needs)
    unproven = " (unproven)" if entry.outcome == Outcome.UNDETERMINED else ""
    return (
        entry.order, decision_on(entry).decision, f"{entry.risk}{unproven}", entry.recreated_by, entry.what, why,
        entry.cascade, needs, Command(text=entry.command), entry.key,
    )  # fmt: skip


def _steps(step: PlanStep) -> Iterator[Step]:
    first, *others = step.commands or [""]
    yield Step(f"{step.title}. {step.text}", Command(text=first))
    yield from (Step("The same for the next one", Command(text=command)) for command in others)


def entry_stake(entry: PlanEntry) -> Stake:
    """Return what is at stake with a broken object of a plan; of one that could not be judged it is not known."""
    empty = entry.cause in {Cause.EMPTY_VALUE, Cause.EMPTY_OBJECT}
    return Stake(
        Severity.ONE_OBJECT if empty else Severity.BREAKS_NOW,
        GroupResource(entry.group, entry.resource),
        ServerBehaviour.SERVES_EMPTY if empty else ServerBehaviour.CORRUPT,
        namespaced=bool(entry.namespace),
        conditional=is_conditional(entry.cause),
    )


NOT_SEALED: Final = frozenset({"decisions", "audit_log"})
"""Fields that the digest leaves out."""

DECLARE_KEY_LOST: Final = "--declare-key-lost"


def declaration(transformer: str, kms_key_id_sha256: str) -> str:
    """Return the flag that declares a key lost, as a deletion under it takes it.

    Under KMS it names the key id too: other key ids of the same provider may well answer.
    """
    key = f"{transformer}/{kms_key_id_sha256}" if kms_key_id_sha256 else transformer
    return quote_command([DECLARE_KEY_LOST, key])


def deletion_waits(entry: PlanEntry) -> bool:
    """Say whether a deletion is not to be thought of yet: nothing is proven, it is refused, or a key may turn up."""
    declares = any(flag.startswith(f"{DECLARE_KEY_LOST} ") for flag in entry.needs)
    return declares or bool(entry.refused) or entry.outcome == Outcome.UNDETERMINED


_MEANINGS: Final = {acceptance(rule): words for rule, words in MEANINGS.items()}

_LOST: Final = (
    "its key is gone for ever, and you are certain of that; with --kubeconfig, so that an API server can contradict, "
    f"or {acceptance(Rule.NO_API_SERVER)}"
)


def meaning(flag: str) -> str:
    """Return what somebody says who types a flag."""
    return _MEANINGS.get(flag, _LOST)
