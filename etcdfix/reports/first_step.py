"""Which finding is acted upon first, and how: found while findings pass, said when all were counted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from etcdfix.reports.key_loss import Lost, Place
from etcdfix.reports.model import Finding, Remedy, Summary
from etcdfix.reports.next_steps import doubt_in
from etcdfix.reports.tally import MAX_NAMES
from etcdfix.verdicts.causes import CURABLE_BY_CONFIGURATION, Cause
from etcdfix.verdicts.deletability import IDENTITY
from etcdfix.verdicts.key_loss import KeyDoubt, doubt_by_numbers
from etcdfix.verdicts.severity import Rank


class Urgent(msgspec.Struct, frozen=True):
    """The finding to act upon first among those that the same lost keys would explain.

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
    """Keeps the finding to act upon first, for each set of keys whose loss may explain it: that is known at the end."""

    def __init__(self) -> None:
        self._urgent: dict[tuple[Place, ...], Urgent] = {}

    def add(
        self,
        finding: Finding,
        rank: Rank,
        first: Remedy | None,
        first_of_many: Remedy | None,
        lost_with: tuple[Place, ...],
    ) -> None:
        """Take one finding that something can be done about.

        Args:
            finding: It.
            rank: How bad it is.
            first: Its first way out.
            first_of_many: The same where so many fail together that none may be written over.
            lost_with: Encryption keys whose loss may be why the value does not open.
        """
        self._keep(
            lost_with,
            Urgent(
                rank=rank,
                known=finding.baseline,
                curable=finding.cause is not None and Cause(finding.cause) in CURABLE_BY_CONFIGURATION,
                key=finding.key,
                first=first,
                first_of_many=first_of_many,
                transformer=finding.transformer,
                rule=finding.rule or "",
                resource=(finding.group, finding.resource),
            ),
        )

    def _keep(self, lost_with: tuple[Place, ...], urgent: Urgent) -> None:
        kept = self._urgent.get(lost_with)
        if kept is None and lost_with and len(self._urgent) >= MAX_NAMES:
            # So many keys are not counted one by one either, and none of these is ever called lost.
            lost_with, kept = (), self._urgent.get(())
        if kept is None or urgent.place < kept.place:
            self._urgent[lost_with] = urgent

    def rest(self) -> list[tuple[tuple[Place, ...], Urgent]]:
        """Return all that is kept, for :meth:`absorb`."""
        return sorted(self._urgent.items(), key=lambda item: item[0])

    def absorb(self, rest: Iterable[tuple[tuple[Place, ...], Urgent]]) -> None:
        """Add what was kept elsewhere."""
        for lost_with, urgent in rest:
            self._keep(lost_with, urgent)

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
        left = [
            urgent
            for lost_with, urgent in self._urgent.items()
            if not any(place in lost for place in lost_with)
        ]
        if left:
            worst = min(left, key=lambda urgent: urgent.place)
            ways.append(
                (worst.place, worst.first_of_many if _is_one_of_many(worst, summary) else worst.first)
            )
        return min(ways, key=lambda way: way[0])[1] if ways else None


def _is_one_of_many(urgent: Urgent, summary: Summary) -> bool:
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
