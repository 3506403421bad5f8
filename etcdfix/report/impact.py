"""The published shape of what losing one object would set off (``etcdfix/v1``, kind ``ImpactReport``).

What it holds is :mod:`etcdfix.graph.model`: never what an object holds, no data, no values of labels or annotations.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from etcdfix.graph.deletion_model import DeletionForecast, HeldBy, Wait
from etcdfix.graph.model import (
    Action,
    Assessment,
    Collection,
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
    Cell,
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
    consequences: tuple[str, ...]
    unreadable_elsewhere: int
    undetermined_elsewhere: int
    remedies: list[Remedy]
    complete: bool
    incomplete_reasons: list[str]
    deletion: DeletionForecast | None

    def document(self) -> Document:
        """Return how bad it is and why, the one thing to do next, and who depends on the object."""
        steps = [_step(remedy) for remedy in self.remedies]
        following = _step(self.next) if self.next is not None else steps[0] if steps else None
        healthy = self.finding is not None and self.finding.outcome in {"readable", "not-an-object"}
        state = State.OK if healthy else State.FINDINGS
        deleting = self.deletion is not None and self.deletion.possible
        users = [user for group in self.users for user in group.users]
        skips = () if deleting else self.finalizers
        return Document(
            status=Status(
                state if self.complete else State.INCOMPLETE,
                _graded(self, "deleting" if deleting else "losing"),
            ),
            about=self.about(),
            stakes=[line for line in (self.at_stake, self.do_not_restart) if line],
            next=following,
            sections=[
                _reasons(self.reasons),
                Facts(facts=_facts(self)),
                *_waits(self),
                *_depends(self.dependents, users, skips, self.consequences),
                Steps(steps=steps, wide=True),
                Prose(
                    title="Not everything could be seen or decided",
                    paragraphs=self.incomplete_reasons,
                    wide=True,
                ),
            ],
        )


_BASIS: Final = {
    "current": "read now",
    "history": "read at mod_revision {0}",
    "earlier-generation": "of an earlier object of this name, at mod_revision {0}",
    "references": "as others refer to it",
    "none": "no revision can be read, and nobody refers to it by uid",
}
_OPT_OUT: Final = "secret.kubernetes.io/skip-secret-protection"
_HELD_BY: Final = {
    HeldBy.KUBELET: "kubelet",
    HeldBy.CONTENTS: "its contents",
    HeldBy.UNREADABLE_OBJECTS: "its contents",
    HeldBy.NOT_NOTICED: "garbage collector",
    HeldBy.OWNER_UNKNOWN: "dependents with an unknown owner",
    HeldBy.OWNER_INVALID: "dependents with an impossible owner",
    HeldBy.RING: "ring of owners",
}
_REASONS: Final = (Column("RISK"), Column("WHY", folds=True))
_TREE: Final = (
    Column("DEPTH", kind=Kind.NUMBER),
    Column("DEPENDENT"),
    Column("WHAT HAPPENS", folds=True),
    Column("WHY", folds=True),
)
_USERS: Final = (
    Column("USED BY"),
    Column("AS"),
    Column("WITHOUT IT", folds=True),
    Column("FIELD", folds=True),
)
_FINALIZERS: Final = (Column("FINALIZER"), Column("LEAKS"), Column("WHAT IS LEFT UNDONE", folds=True))
_WAITS: Final = (
    Column("HELD BY", folds=True),
    Column("ENDED BY", folds=True),
    Column("OBJECTS", kind=Kind.NUMBER),
    Column("WAITS FOR", folds=True),
    Column("WHICH", folds=True),
)


def _step(remedy: Remedy) -> Step:
    return Step(remedy.action, remedy.command, remedy.note)


def _graded(found: ImpactReport | Assessment, losing: str) -> str:
    """Return the grade in words: what was not seen can only make it worse."""
    worse = " OR WORSE" if found.may_be_worse and found.risk is not Risk.CLUSTER_BREAKING else ""
    return f"RISK {found.risk.upper()}{worse}: {losing} {found.object}"


def _reasons(reasons: Sequence[RiskReason]) -> Section:
    if not reasons:
        return Prose(paragraphs=["No reference that etcdfix follows leads to it."])
    return Table(columns=_REASONS, rows=[(one.risk, one.text) for one in reasons], noun="reason", brief=4)


def _facts(report: ImpactReport) -> list[tuple[str, str]]:
    """Return what is stored, who it is, and how much hangs on it."""
    known, finding, deletion = report.last_known, report.finding, report.deletion
    if finding is None:
        unseen = "not seen, and not everything could be read; others mention it"
        stored = unseen if report.exists is None else "not in etcd; others mention it"
    else:
        stored = finding.outcome + (f" ({finding.cause}): {finding.message}" if finding.cause else "")
    others = ", ".join(f"{uid} ({count})" for uid, count in [*known.conflicting_uids.items()][:3])
    goes = [f"{count} {action}" for action, count in report.dependents.counts.items() if count]
    elsewhere = report.unreadable_elsewhere + report.undetermined_elsewhere
    return [
        ("key", report.object.key),
        ("stored", stored),
        ("uid", f"{known.uid or 'unknown'} ({_BASIS[known.basis].format(known.mod_revision)})"),
        ("other uids", others),
        ("namespace", "Terminating" if report.namespace_terminating is not None else ""),
        ("node", report.node),
        ("Secret", _protection(report) if report.secret is not None else ""),
        (
            "deletion",
            f"{deletion.policy}: {deletion.result}; {deletion.text}" if deletion is not None else "",
        ),
        ("dependents", ", ".join(goes) or "nothing that can be read is owned by it"),
        ("references", f"{report.user_count} from objects that can be read"),
        ("not counted", f"{counted(elsewhere, 'other object')} that cannot be read" if elsewhere else ""),
    ]


def _protection(report: ImpactReport) -> str:
    """Return what KEP-2639 would do for a Secret."""
    secret = report.secret
    assert secret is not None
    if secret.opted_out or (not report.readable and _OPT_OUT in report.last_known.annotations):
        text = f"opted out of protection by its annotation {_OPT_OUT}"
    elif secret.protected:
        text = "in use: KEP-2639 would hold a deletion back, but no release does"
    else:
        text = "not in use by pods, volumes or snapshots that can be read"
    return f"{secret.type or 'type unknown'}; {text}"


def _waits(report: ImpactReport) -> Iterator[Section]:
    """Yield what holds up a deletion through the API."""
    if report.deletion is None:
        return
    yield Table(
        title="What the deletion waits for",
        columns=_WAITS,
        rows=[_wait(wait) for wait in report.deletion.waits],
        noun="wait",
        wide=True,
    )
    yield Prose(title="Of the deletion", paragraphs=report.deletion.notes, wide=True)


def _wait(wait: Wait) -> Sequence[Cell]:
    held_by = f"finalizer {wait.name}" if wait.held_by is HeldBy.FINALIZER else _HELD_BY[wait.held_by]
    ended_by = wait.ended_by or ("nobody" if wait.permanent else None)
    names = ", ".join(map(str, wait.objects[:3])) + (", …" if wait.count > 3 else "")
    since = f", Terminating since {wait.since}" if wait.since is not None else ""
    return held_by, ended_by, wait.count, ("FOR EVER: " if wait.permanent else "") + wait.text, names + since


def _depends(
    goes: Dependents | Collection,
    users: Sequence[User],
    finalizers: Sequence[LostFinalizer],
    consequences: Sequence[str],
) -> list[Section]:
    """Return what goes with an object, who uses it, and what its finalizers would have done."""
    trees = (
        ("What the garbage collector does", goes.tree),
        ("What the garbage collector catches up with", goes.caught_up),
    )
    return [
        *(
            Table(
                title=title, columns=_TREE, rows=[_decision(one) for one in tree], noun="dependent", wide=True
            )
            for title, tree in trees
        ),
        Prose(paragraphs=goes.warnings if isinstance(goes, Dependents) else [], wide=True),
        Table(title="Who uses it", columns=_USERS, rows=[*map(_user, users)], noun="reference", wide=True),
        Table(
            title="Finalizers that an unsafe deletion skips",
            columns=_FINALIZERS,
            rows=[(one.name, "yes" if one.leaks else "no", one.consequence) for one in finalizers],
            noun="finalizer",
            wide=True,
        ),
        Prose(title="What is special about it", paragraphs=consequences, wide=True),
    ]


def _decision(entry: Decision) -> Sequence[Cell]:
    text = entry.action + (f" ({entry.propagation})" if entry.propagation else "")
    if entry.stays:
        text += f", only Terminating: waits for {entry.stays}"
    elif entry.after_finalizers:
        text += f", after {', '.join(entry.after_finalizers)}"
    why = [f"{owner.kind} {owner.name}: {owner.reason}" for owner in entry.owners if owner.reason][:3]
    if entry.action is Action.KEPT:
        why = [f"kept by {owner.kind} {owner.name}" for owner in entry.owners if owner.state == "solid"][:3]
    because = "; ".join([*why, *filter(None, [entry.uncertain])])
    return entry.depth, str(entry.object), text, because or None


def _user(user: User) -> Sequence[Cell]:
    marks = [f"{user.stops}: {user.consequence}"] if user.stops is not None else []
    if user.optional and user.stops is None:
        marks.append("optional")
    if user.heuristic:
        marks.append("likely, not certain")
    if user.behind_count:
        marks.append(f"{counted(user.behind_count, 'pod')} behind it")
    return str(user.object), user.role, "; ".join(marks) or None, user.path
