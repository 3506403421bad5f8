"""Findings that share cause, encryption key and way out are one group: the unit of a scan's report.

They are counted while findings pass. Memory is bounded: what finds no group of its own is counted in one for the rest.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import msgspec

from etcdfix.model import Outcome
from etcdfix.report.group_words import verb_of
from etcdfix.report.key_loss import Lost
from etcdfix.report.model import Finding, FindingGroup, Remedy
from etcdfix.report.tally import OTHERS
from etcdfix.verdicts.causes import CURABLE_BY_CONFIGURATION
from etcdfix.verdicts.key_loss import KeyCounter
from etcdfix.verdicts.severity import Rank

MOST_GROUPS: Final = 10_000
_MOST_NAMES: Final = 100_000
"""So many names of resources and namespaces all groups keep together."""
_MOST_SHOWN: Final = 3
_LEAST_URGENT: Final = (9, 9, 9)

GroupKey = tuple[str | None, str, str, str, str, str]


class Member(msgspec.Struct, frozen=True, array_like=True):
    """What a finding means for its group.

    Attributes:
        rank: How bad it is, the worst lowest; None where nothing is proven wrong.
        first: Its first way out; None for none.
        first_of_many: The same where so many fail together that nothing may be written over.
    """

    rank: Rank | None = None
    first: Remedy | None = None
    first_of_many: Remedy | None = None


class Group:
    """Counts the findings of one group, and keeps the most urgent as its example."""

    def __init__(self, groups: Groups, finding: Finding, *, lost: bool, rest: bool) -> None:
        self._groups, self.lost, self.rest = groups, lost, rest
        self.count = self.known = 0
        self.by_resource: dict[tuple[str, str], int] = {}
        self._namespaces: set[str] = set()
        self._more_namespaces = False
        self.example, self.member = finding, Member()
        self._place: tuple[Rank, bool, str] | None = None

    def add(self, finding: Finding, member: Member) -> None:
        """Count a finding."""
        self.count += 1
        self.known += finding.baseline
        resource = finding.group, finding.resource
        if resource not in self.by_resource and not self._groups.has_room():
            resource = "", OTHERS
        self.by_resource[resource] = self.by_resource.get(resource, 0) + 1
        namespace = finding.namespace
        if namespace and namespace not in self._namespaces:
            if self._groups.has_room():
                self._namespaces.add(namespace)
            else:
                self._more_namespaces = True
        place = member.rank or _LEAST_URGENT, finding.baseline, finding.key
        if self._place is None or place < self._place:
            self._place, self.example, self.member = place, finding, member

    @property
    def urgency(self) -> tuple[Rank, bool, bool, int, str]:
        """Sorts the worst first, then new before known, what the configuration cures, and the largest."""
        cause = self.example.cause
        first = self.lost or (cause in CURABLE_BY_CONFIGURATION and not self.rest)
        rank = self.member.rank or _LEAST_URGENT
        return rank, self.known == self.count, not first, -self.count, self.example.key

    def way(self, doubtful: Collection[tuple[str, str]]) -> Remedy | None:
        """Return the way out; ``doubtful`` are rules and transformers of keys that may be to blame."""
        of_many = (self.example.rule or "", self.example.transformer) in doubtful
        return self.member.first_of_many if of_many else self.member.first

    def published(self, doubtful: Collection[tuple[str, str]]) -> FindingGroup:
        """Return it as a report has it."""
        example, way = self.example, self.way(doubtful)
        by_size = sorted(self.by_resource.items(), key=lambda one: (-one[1], one[0]))
        return FindingGroup(
            cause=OTHERS if self.rest else example.cause,
            outcome=example.outcome,
            rule=None if self.rest else example.rule,
            transformer=OTHERS if self.rest else example.transformer,
            key_fingerprint=None if self.rest else example.key_fingerprint,
            count=self.count,
            by_resource={f"{name}.{group}" if group else name: count for (group, name), count in by_size},
            namespaces=None if self._more_namespaces else len(self._namespaces),
            first_namespaces=sorted(self._namespaces)[:_MOST_SHOWN],
            severity=example.severity,
            example=example.key,
            message=example.message,
            known=self.known,
            way=way,
        )


class Groups:
    """All groups of a scan.

    Args:
        most: So many are told apart.

    Attributes:
        warnings: How many findings have nothing wrong and a warning: they belong to no group.
    """

    def __init__(self, most: int = MOST_GROUPS) -> None:
        self._most = most
        self._groups: dict[GroupKey | None, Group] = {}
        self._room = _MOST_NAMES
        self.warnings = 0

    def has_room(self) -> bool:
        """Say whether one more name may be kept, and count it."""
        self._room -= 1
        return self._room >= 0

    def add(self, finding: Finding, member: Member) -> None:
        """Count a finding in its group."""
        if finding.outcome in {Outcome.READABLE, Outcome.NOT_AN_OBJECT}:
            self.warnings += 1
        else:
            self.group_of(finding, member).add(finding, member)

    def group_of(self, finding: Finding, member: Member, *, lost: bool = False) -> Group:
        """Return the group of a finding; ``lost``: its encryption key is lost."""
        first = member.first
        kind = verb_of(first) or (first.verb or "" if first is not None else "")
        key: GroupKey | None = (
            finding.cause, finding.outcome, finding.rule or "", finding.transformer, finding.key_fingerprint or "",
            f"{kind} lost" if lost else kind,
        )  # fmt: skip
        if key not in self._groups and len(self._groups) >= self._most:
            key = None
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = Group(self, finding, lost=lost, rest=key is None)
        return group

    def summed(self, keys: KeyCounter) -> tuple[list[FindingGroup], Remedy | None]:
        """Return all groups, the most urgent first, and what to do first about what is proven wrong.

        Args:
            keys: What the values under each encryption key came to: so many may fail that no value is written over.
        """
        groups = sorted(self._groups.values(), key=lambda group: group.urgency)
        doubtful = {(name.rule, name.transformer) for name in keys.names if keys.doubts_in(name)}
        ways = (group.way(doubtful) for group in groups if group.member.rank is not None)
        return [group.published(doubtful) for group in groups], next((way for way in ways if way), None)


def member_of_lost_key(lost: Lost) -> Member:
    """Return what every finding of a lost key means for its group."""
    return Member(lost.worst.rank, lost.first, lost.first)
