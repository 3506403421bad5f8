"""Which finding is acted upon first, and how: found while findings pass, said when all were counted."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from etcdfix.report.advice.whole import doubt_in
from etcdfix.report.key_loss import Lost, Place
from etcdfix.report.model import Finding, Remedy, Summary
from etcdfix.verdicts.causes import CURABLE_BY_CONFIGURATION, Cause
from etcdfix.verdicts.deletability import IDENTITY
from etcdfix.verdicts.key_loss import KeyDoubt, doubt_by_numbers
from etcdfix.verdicts.severity import Rank


class _Urgent(msgspec.Struct, frozen=True):
    """A finding that something can be done about.

    Attributes:
        rank: How bad it is, the worst lowest.
        known: From the baseline.
        curable: By the configuration.
        key: Etcd key, as it is shown.
        first: Its first way out; None for none.
        first_of_many: The same where so many fail together that none may be written over.
        transformer: That wrote it.
        rule: Of the configuration, "" for none.
        resource: Group and resource.
    """

    rank: Rank
    known: bool
    curable: bool
    key: str
    first: Remedy | None
    first_of_many: Remedy | None
    transformer: str
    rule: str
    resource: tuple[str, str]

    @property
    def place(self) -> tuple[Rank, bool, bool, str]:
        """What decides: how bad it is, new before known, curable by configuration, its key."""
        return self.rank, self.known, not self.curable, self.key


class FirstStep:
    """Keeps the finding to act upon first."""

    def __init__(self) -> None:
        self._urgent: _Urgent | None = None

    def add(self, finding: Finding, rank: Rank, first: Remedy | None, first_of_many: Remedy | None) -> None:
        """Take one finding that something can be done about.

        Args:
            finding: It.
            rank: How bad it is.
            first: Its first way out.
            first_of_many: The same where so many fail together that none may be written over.
        """
        urgent = _Urgent(
            rank=rank,
            known=finding.baseline,
            curable=finding.cause is not None and Cause(finding.cause) in CURABLE_BY_CONFIGURATION,
            key=finding.key,
            first=first,
            first_of_many=first_of_many,
            transformer=finding.transformer,
            rule=finding.rule or "",
            resource=(finding.group, finding.resource),
        )
        if self._urgent is None or urgent.place < self._urgent.place:
            self._urgent = urgent

    def way_out(self, summary: Summary, lost: Mapping[Place, Lost]) -> Remedy | None:
        """Return the first way out of the worst that is wrong; None for none.

        Args:
            summary: All counts.
            lost: The encryption keys that are lost: what they explain is not acted upon one by one.
        """
        # Of what is equally bad, a lost key concerns more values than one finding.
        ways: list[tuple[tuple[Rank, bool, bool, str], Remedy | None]] = [
            ((key.worst.rank, False, False, ""), key.first) for key in lost.values()
        ]
        worst = self._urgent
        if worst is not None:
            ways.append(
                (worst.place, worst.first_of_many if _is_one_of_many(worst, summary) else worst.first)
            )
        return min(ways, key=lambda way: way[0])[1] if ways else None


def _is_one_of_many(urgent: _Urgent, summary: Summary) -> bool:
    """Say whether the numbers speak against single damage, so that a change of one value may be refused."""
    if urgent.transformer not in {IDENTITY, ""}:
        return any(
            doubt_in(entry) is not KeyDoubt.NONE
            for entry in summary.by_transformer
            if entry.transformer == urgent.transformer and urgent.rule == ",".join(entry.resources)
        )
    plain = next((entry for entry in summary.by_transformer if entry.transformer == IDENTITY), None)
    proven = plain is not None and plain.damaged == plain.failures
    for counts in summary.by_resource:
        if (counts.group, counts.resource) == urgent.resource:
            failed = counts.decrypt_failures + counts.decode_failures
            doubt = doubt_by_numbers(opened=counts.readable, failed=failed, damaged=failed if proven else 0)
            return doubt is not KeyDoubt.NONE
    return False
