"""What losing an object would set off, as ``explain`` says it."""

from __future__ import annotations

from collections.abc import Iterator

from etcdfix.graph.model import Assessment, DeletionForecast, Risk
from etcdfix.report.document import Column, Facts, Prose, Section, Table
from etcdfix.text.words import counted


class Impact(Assessment, frozen=True, kw_only=True):
    """What losing an object would set off, after a look at everything that can be read.

    Attributes:
        deletion: Forecast of an ordinary deletion through the API, of an object that can be read or where a policy was
            asked for, else null. Where that is ``possible``, the grade and ``dependents`` are those of that deletion,
            else of a removal from etcd.
        warnings: What happens beside that, and on what it depends whether any of it happens at once.
    """

    warnings: list[str]
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
            ]
        )
        notes = [*(deletion.notes if deletion is not None else ()), *self.warnings]
        yield Prose(title="What else to know", paragraphs=notes, wide=True)

    def _goes(self) -> str:
        goes = [f"{count} {action}" for action, count in self.dependents.counts.items() if count]
        return ", ".join(goes)
