"""The published shape of what losing one object would set off (``etcdfix/v1``, kind ``ImpactReport``).

What it holds is :mod:`etcdfix.graph.model`: never what an object holds, no data, no values of labels or annotations.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from etcdfix.graph.deletion_model import DeletionForecast
from etcdfix.graph.model import (
    Action,
    Decision,
    LostFinalizer,
    ObjectRef,
    Risk,
    RiskReason,
    SecretState,
    User,
)
from etcdfix.graph.uses import Role
from etcdfix.model import Confidence
from etcdfix.report.document import (
    Column,
    Document,
    Facts,
    Prose,
    Section,
    State,
    Status,
    Step,
    Steps,
    Table,
)
from etcdfix.report.model import Finding, Remedy, SourcedReport
from etcdfix.text.words import counted


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Who the object is or last was.

    ``basis``: ``current``, ``history``, ``earlier-generation``, ``references`` or ``none``. ``finalizers`` is null
    where no readable revision told them. ``labels`` and ``annotations`` are names only.
    """

    uid: str
    confidence: Confidence
    basis: str
    mod_revision: int
    finalizers: tuple[str, ...] | None
    labels: list[str]
    annotations: tuple[str, ...]
    conflicting_uids: dict[str, int]


class Dependents(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a removal sets off: the tree, depth first.

    ``caught_up``: what the garbage collector does beside that, since types can be listed again (``listable``).
    ``unlistable``: the types that cannot even then, with how many objects are the reason. ``namespaces``: those that
    are being deleted, and that finish once it is gone.
    """

    counts: dict[Action, int]
    deleted_by_resource: dict[str, int]
    tree: tuple[Decision, ...]
    caught_up: tuple[Decision, ...]
    listable: tuple[str, ...]
    unlistable: dict[str, int]
    namespaces: list[str]
    warnings: list[str] = []


class UserGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Users that use it in the same way."""

    role: Role
    count: int
    users: tuple[User, ...]


class ImpactReport(SourcedReport, frozen=True, kw_only=True):
    """What losing one object would set off.

    ``exists`` is null where its key was not seen in a source that could not be read whole. ``may_be_worse`` says that
    something was not seen that could depend on it: ``risk`` is the least then. ``finding`` says what is stored, null
    where nothing is. ``user_count`` counts references: one user may have several. ``namespace_terminating`` is when its
    namespace was marked for deletion ("" for not known), null where it was not. ``deletion`` is the forecast of an
    ordinary deletion through the API, of an object that can be read or where a policy was asked for, else null;
    where that is ``possible``, the grade and ``dependents`` are those of that deletion, else of a removal from etcd.
    ``at_stake``, ``do_not_restart`` and ``next`` are as in the summary of a scan.
    """

    kind: str = "ImpactReport"
    at_stake: str = ""
    do_not_restart: str = ""
    next: Remedy | None = None
    object: ObjectRef
    exists: bool | None
    readable: bool
    risk: Risk
    may_be_worse: bool
    reasons: tuple[RiskReason, ...]
    finding: Finding | None
    last_known: Identity
    namespace_terminating: str | None
    dependents: Dependents
    secret: SecretState | None
    users: list[UserGroup]
    user_count: int
    finalizers: tuple[LostFinalizer, ...]
    node: str
    unreadable_elsewhere: int
    undetermined_elsewhere: int
    remedies: list[Remedy]
    complete: bool
    incomplete_reasons: list[str]
    deletion: DeletionForecast | None

    def document(self) -> Document:
        """Return how bad it is and why, the one thing to do next, and how much depends on the object."""
        steps = [Step(remedy.action, remedy.command, remedy.note) for remedy in self.remedies]
        first = self.next
        healthy = self.finding is not None and self.finding.outcome in {"readable", "not-an-object"}
        state = State.OK if healthy else State.FINDINGS
        deletion = self.deletion
        deleting = deletion is not None and deletion.possible
        return Document(
            status=Status(
                state if self.complete else State.INCOMPLETE,
                _graded(self, "deleting" if deleting else "losing"),
            ),
            about=self.about(),
            stakes=[line for line in (self.at_stake, self.do_not_restart) if line],
            next=Step(first.action, first.command, first.note) if first else steps[0] if steps else None,
            sections=[
                _reasons(self.reasons),
                Facts(facts=_facts(self)),
                Prose(
                    title="What else to know",
                    paragraphs=[
                        *(deletion.notes if deletion is not None else ()),
                        *self.dependents.warnings,
                        *self.incomplete_reasons,
                    ],
                    wide=True,
                ),
                Steps(steps=steps, wide=True),
            ],
        )


def _graded(found: ImpactReport, losing: str) -> str:
    """Return the grade in words: what was not seen can only make it worse."""
    worse = " OR WORSE" if found.may_be_worse and found.risk is not Risk.CLUSTER_BREAKING else ""
    return f"RISK {found.risk.upper()}{worse}: {losing} {found.object}"


def _reasons(reasons: Sequence[RiskReason]) -> Section:
    if not reasons:
        return Prose(paragraphs=["No reference that etcdfix follows leads to it."])
    rows = [(one.risk, one.text) for one in reasons]
    return Table(columns=[Column("RISK"), Column("WHY", folds=True)], rows=rows, noun="reason", brief=4)


def _facts(report: ImpactReport) -> list[tuple[str, str]]:
    """Return what is stored, who it is, and how much hangs on it."""
    known, finding, deletion, secret = report.last_known, report.finding, report.deletion, report.secret
    if finding is None:
        unseen = "not seen, and not everything could be read; others mention it"
        stored = unseen if report.exists is None else "not in etcd; others mention it"
    else:
        stored = finding.outcome + (f" ({finding.cause}): {finding.message}" if finding.cause else "")
    goes = [f"{count} {action}" for action, count in report.dependents.counts.items() if count]
    elsewhere = report.unreadable_elsewhere + report.undetermined_elsewhere
    used = "in use: KEP-2639 would keep it" if secret is not None and secret.protected else ""
    return [
        ("key", report.object.key),
        ("stored", stored),
        ("uid", f"{known.uid or 'unknown'} ({known.basis})"),
        ("namespace", "Terminating" if report.namespace_terminating is not None else ""),
        ("node", report.node),
        ("Secret", used),
        (
            "deletion",
            f"{deletion.policy}: {deletion.result}; {deletion.text}" if deletion is not None else "",
        ),
        ("dependents", ", ".join(goes) or "nothing that can be read is owned by it"),
        ("references", f"{report.user_count} from objects that can be read"),
        ("not counted", f"{counted(elsewhere, 'other object')} that cannot be read" if elsewhere else ""),
    ]
