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
from etcdfix.model import Confidence
from etcdfix.report.document import (
    Column,
    Document,
    Facts,
    Prose,
    Section,
    State,
    Status,
    Steps,
    Table,
)
from etcdfix.report.model import Finding, Remedy, SourcedReport
from etcdfix.text.words import counted


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Who the object is or last was; ``finalizers`` is null where no readable revision told them.

    ``basis``: ``current``, ``history``, ``earlier-generation``, ``references`` or ``none``.
    """

    uid: str
    confidence: Confidence
    basis: str
    finalizers: tuple[str, ...] | None


class Dependents(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a removal sets off: the tree, depth first.

    ``caught_up``: what the garbage collector does beside that, since types can be listed again.
    """

    counts: dict[Action, int]
    tree: tuple[Decision, ...]
    caught_up: tuple[Decision, ...]
    warnings: list[str]


class ImpactReport(SourcedReport, frozen=True, kw_only=True):
    """What losing one object would set off.

    ``exists`` is null where its key was not seen in a source that could not be read whole. ``may_be_worse`` says that
    something was not seen that could depend on it: ``risk`` is the least then. ``finding`` says what is stored, null
    where nothing is; its remedies are those of the report. ``users`` are references: one object may have several.
    ``deletion`` is the forecast of an ordinary deletion through the API, of an object that can be read or where a
    policy was asked for, else null; where that is ``possible``, the grade and ``dependents`` are those of that
    deletion, else of a removal from etcd.
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
    dependents: Dependents
    secret: SecretState | None
    users: tuple[User, ...]
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
        steps = [remedy.step() for remedy in self.remedies]
        healthy = self.finding is not None and self.finding.outcome in {"readable", "not-an-object"}
        state = State.OK if healthy else State.FINDINGS
        deletion = self.deletion
        doing = "deleting" if deletion is not None and deletion.possible else "losing"
        worse = " OR WORSE" if self.may_be_worse and self.risk is not Risk.CLUSTER_BREAKING else ""
        told = f"RISK {self.risk.upper()}{worse}: {doing} {self.object}"
        return Document(
            status=Status(state if self.complete else State.INCOMPLETE, told),
            about=self.about(),
            stakes=[line for line in (self.at_stake, self.do_not_restart) if line],
            next=self.next.step() if self.next else steps[0] if steps else None,
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


def _reasons(reasons: Sequence[RiskReason]) -> Section:
    if not reasons:
        return Prose(paragraphs=["No reference that etcdfix follows leads to it."])
    rows = [(one.risk, one.text) for one in reasons]
    return Table(columns=[Column("RISK"), Column("WHY", folds=True)], rows=rows, noun="reason", brief=4)


def _facts(report: ImpactReport) -> list[tuple[str, str]]:
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
        ("node", report.node),
        ("Secret", used),
        (
            "deletion",
            f"{deletion.policy}: {deletion.result}; {deletion.text}" if deletion is not None else "",
        ),
        ("dependents", ", ".join(goes) or "nothing that can be read is owned by it"),
        ("references", f"{len(report.users)} from objects that can be read"),
        ("not counted", f"{counted(elsewhere, 'other object')} that cannot be read" if elsewhere else ""),
    ]
