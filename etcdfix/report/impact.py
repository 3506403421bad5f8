"""The published shape of what losing an object would set off, as ``explain`` says it.

What it holds is :mod:`etcdfix.graph.model`: never what an object holds, no data, no values of labels or annotations.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from etcdfix.graph.model import (
    Action,
    Decision,
    DeletionForecast,
    LostFinalizer,
    ObjectRef,
    Risk,
    RiskReason,
    SecretState,
    User,
)
from etcdfix.model import Confidence
from etcdfix.report.document import Column, Facts, Prose, Section, Table
from etcdfix.text.words import counted


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Who the object is or last was; ``finalizers`` is null where no readable revision told them.

    ``basis``: ``current``, ``history``, ``references`` or ``none``.
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


class Impact(msgspec.Struct, frozen=True, kw_only=True):
    """What losing an object would set off, after a look at everything that can be read.

    Attributes:
        exists: Null where its key was not seen in a source that could not be read whole.
        may_be_worse: Something was not seen that could depend on it, so ``risk`` is the least.
        users: References; one object may have several.
        deletion: Forecast of an ordinary deletion through the API, of an object that can be read or where a policy was
            asked for, else null. Where that is ``possible``, the grade and ``dependents`` are those of that deletion,
            else of a removal from etcd.
    """

    object: ObjectRef
    exists: bool | None
    readable: bool
    risk: Risk
    may_be_worse: bool
    reasons: tuple[RiskReason, ...]
    last_known: Identity
    dependents: Dependents
    secret: SecretState | None
    users: tuple[User, ...]
    finalizers: tuple[LostFinalizer, ...]
    node: str
    unreadable_elsewhere: int
    undetermined_elsewhere: int
    deletion: DeletionForecast | None
    incomplete_reasons: list[str]

    @property
    def headline(self) -> str:
        """The grade, and of what."""
        doing = "deleting" if self.deletion is not None and self.deletion.possible else "losing"
        worse = " OR WORSE" if self.may_be_worse and self.risk is not Risk.CLUSTER_BREAKING else ""
        return f"RISK {self.risk.upper()}{worse}: {doing} {self.object}"

    def brief(self) -> list[tuple[str, str]]:
        """Return it in three lines, name and value."""
        why = self.reasons[0].text if self.reasons else "no reference that etcdfix follows leads to it"
        worse = " or worse" if self.may_be_worse and self.risk is not Risk.CLUSTER_BREAKING else ""
        return [
            ("deletion: risk", f"{self.risk}{worse}: {why}"),
            ("goes with it", self._goes()),
            ("referred to by", f"{counted(len(self.users), 'object')}; --impact shows all"),
        ]

    def sections(self) -> Iterator[Section]:
        """Yield why it is so bad, how much depends on the object, and what else to know."""
        rows = [(one.risk, one.text) for one in self.reasons]
        yield Table(columns=[Column("RISK"), Column("WHY", folds=True)], rows=rows, noun="reason", brief=4)
        if not rows:
            yield Prose(paragraphs=["No reference that etcdfix follows leads to it."])
        known, deletion = self.last_known, self.deletion
        elsewhere = self.unreadable_elsewhere + self.undetermined_elsewhere
        protected = self.secret is not None and self.secret.protected
        told = f"{deletion.policy}: {deletion.result}; {deletion.text}" if deletion is not None else ""
        unseen = "not seen, and not everything could be read" if self.exists is None else "not in etcd"
        yield Facts(
            facts=[
                ("stored", "" if self.exists else f"{unseen}; others mention it"),
                ("uid", f"{known.uid or 'unknown'} ({known.basis})"),
                ("node", self.node),
                ("Secret", "in use: KEP-2639 would keep it" if protected else ""),
                ("deletion", told),
                ("dependents", self._goes() or "nothing that can be read is owned by it"),
                ("references", f"{len(self.users)} from objects that can be read"),
                (
                    "not counted",
                    f"{counted(elsewhere, 'other object')} that cannot be read" if elsewhere else "",
                ),
            ]
        )
        notes = [*(deletion.notes if deletion is not None else ()), *self.dependents.warnings]
        yield Prose(title="What else to know", paragraphs=notes, wide=True)

    def _goes(self) -> str:
        goes = [f"{count} {action}" for action, count in self.dependents.counts.items() if count]
        return ", ".join(goes)
