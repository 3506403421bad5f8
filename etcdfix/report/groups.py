"""Findings that share cause, encryption key and way out are one group: the unit of a scan's report.

They are counted while findings pass. Memory is bounded: what finds no group of its own is counted in one for the rest.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import cache
from typing import Final

import msgspec

from etcdfix.examine.verdicts.causes import CATALOGUE, CURABLE_BY_CONFIGURATION, Cause
from etcdfix.examine.verdicts.key_loss import KeyCounter
from etcdfix.examine.verdicts.severity import Rank
from etcdfix.model.model import Outcome
from etcdfix.model.providers import IDENTITY
from etcdfix.model.storagekey import builtin_directories
from etcdfix.report.key_loss import Lost
from etcdfix.report.model import Finding, FindingGroup, Remedy
from etcdfix.report.tally import OTHERS
from etcdfix.text.words import fit

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


_MOST_NAME: Final = 40
# With the numbers before them, a line has at most 100 characters.
_WHAT: Final = 35
_WHERE: Final = 27
_TO_DO: Final = 22
_OF_A_KEY: Final[Mapping[str, str]] = {
    Cause.KEY_NAME_MISSING: "{} is not configured",
    Cause.PROVIDER_MISSING: "{} is not configured",
    Cause.WRONG_KEY: "{} has other bytes",
    Cause.AUTHENTICATION_FAILED: "does not open with {}",
    Cause.KEY_RENAMED: "{} was renamed or moved",
    Cause.NO_CONFIGURATION: "{}, without a configuration",
    Cause.KMS_UNREACHABLE: "no answer from {}",
    Cause.KMS_DENIED: "{} may not decrypt",
    Cause.KMS_KEY_UNKNOWN: "{} does not know the key",
    Cause.KMS_UNPROVEN: "only {} says so",
}
_SHORTER: Final[Mapping[str, str]] = {
    Cause.PLAINTEXT_NOT_ALLOWED: "plaintext, and identity is missing",
    Cause.CONVERSION_FAILED: "no conversion to today's version",
    Cause.UNKNOWN_ENVELOPE: "an unknown envelope",
    Cause.STORAGE_PREFIX_CHANGED: "written under another prefix",
    Cause.ASSOCIATED_DATA_UNKNOWN: "whole, but bound to something else",
    Cause.VERSION_REMOVED: "its version was removed",
    Cause.CIPHERTEXT_DAMAGED: "damaged",
    Cause.IV_DAMAGED: "IV damaged",
    Cause.KMS_ENVELOPE_DAMAGED: "envelope damaged",
    Cause.VALUE_MOVED: "copied here",
}
_VERBS: Final[Mapping[str, str]] = {
    "fix": "put a copy back",
    "save": "save a copy",
    "rescue": "rescue from memory",
    "copies": "look for copies",
    "delete": "delete it, last of all",
}
_FIXES: Final[Mapping[str, str]] = {
    "Put the value right": "put it right",
    "Have the API server": "fix it from memory",
}
_CURES: Final[Mapping[str, str]] = {
    Cause.NO_CONFIGURATION: "give the configuration",
    Cause.RESOURCE_NOT_CONFIGURED: "add the resource again",
    Cause.PROVIDER_MISSING: "add the provider again",
    Cause.KEY_NAME_MISSING: "find the old key",
    Cause.WRONG_KEY: "find the old key",
    Cause.AUTHENTICATION_FAILED: "find the old key",
    Cause.PLAINTEXT_NOT_ALLOWED: "add identity",
    Cause.KEY_RENAMED: "rename the key back",
    Cause.STORAGE_PREFIX_CHANGED: "read its old prefix",
    Cause.ASSOCIATED_DATA_UNKNOWN: "find its old etcd key",
    Cause.VALUE_MOVED: "look at its own key",
    Cause.KMS_UNREACHABLE: "start the KMS plugin",
    Cause.KMS_DENIED: "let the plugin decrypt",
    Cause.KMS_KEY_UNKNOWN: "find the KMS key",
    Cause.KMS_UNPROVEN: "check the KMS plugin",
    Cause.VERSION_REMOVED: "use an older server",
    Cause.CRD_VERSION_MISSING: "put the version back",
    Cause.KIND_NOT_REGISTERED: "name the release",
    Cause.OWNER_UNKNOWN: "find out who writes it",
    Cause.IDENTITY_MISMATCH: "compare and re-create",
    Cause.INVALID_UTF8: "correct it by the API",
    Cause.RAW_JSON_INVALID: "correct it by the API",
    Cause.INT_OR_STRING_INVALID: "correct it by the API",
}


def what_is_wrong(group: FindingGroup) -> str:
    """Return what is wrong with the objects of a group."""
    if group.cause == OTHERS:
        return "other causes"
    cause = group.cause or group.outcome
    encrypted = group.outcome != Outcome.INCONSISTENT and group.transformer not in {IDENTITY, ""}
    transformer = group.transformer if encrypted else ""
    if transformer and cause in _OF_A_KEY:
        return fit(_OF_A_KEY[cause].format(fit(transformer, _MOST_NAME)), _WHAT)
    known = CATALOGUE.get(Cause(cause)) if cause in set(Cause) else None
    title = _SHORTER.get(cause) or (known.title if known is not None else cause)
    return fit(f"{title} ({transformer})", _WHAT) if transformer else fit(title, _WHAT)


def where(group: FindingGroup) -> str:
    """Return the resources and namespaces of a group."""
    names = {("others" if name == OTHERS else name): count for name, count in group.by_resource.items()}
    if len(names) > 1:
        return fit(", ".join(f"{name} {count}" for name, count in names.items()), _WHERE, end=True)
    resource = next(iter(group.by_resource), "")
    if resource == OTHERS:
        return "resources not counted"
    if group.count == 1:
        resource = f"{resource}/{group.example.rpartition('/')[2]}"
    if group.namespaces is None:
        named = group.first_namespaces[:1]
        place = f"{named[0]} and others" if named else "some namespaces"
    elif group.namespaces == 1:
        place = group.first_namespaces[0]
    else:
        place = f"{group.namespaces} namespaces" if group.namespaces else ""
    return fit(f"{resource} in {place}" if place else resource, _WHERE, end=True)


def verb_of(way: Remedy | None) -> str:
    """Return what a way out does in a few words that groups share; "" for what its cause says better."""
    if way is None:
        return ""
    special = (words for start, words in _FIXES.items() if way.action.startswith(start))
    return next(special, _VERBS.get(way.verb or "", ""))


def what_to_do(group: FindingGroup) -> str:
    """Return the way out of a group."""
    if group.way is None:
        return "etcdfix explain KEY"
    if group.way.action.startswith("Compare the encryption configurations"):
        return "compare configurations"
    return verb_of(group.way) or _CURES.get(group.cause or "") or fit(group.way.action, _TO_DO, end=True)


def objects_by_kind(counts: Iterable[tuple[str, str, int]], most: int) -> str:
    """Return numbers of objects with their kinds, the largest first: ``54 Secrets, 15 Pods, 2 others``."""
    ordered = sorted((one for one in counts if one[2]), key=lambda one: (-one[2], one[1], one[0]))
    shown = ordered if len(ordered) <= most + 1 else ordered[:most]
    parts = [_kind(*one) for one in shown]
    rest = sum(number for _, _, number in ordered[len(shown) :])
    return ", ".join([*parts, f"{rest} others"] if rest else parts)


def _kind(group: str, resource: str, number: int) -> str:
    kind = _kinds().get((group, resource))
    if kind is None:
        return f"{number} {fit(f'{resource}.{group}' if group else resource, _MOST_NAME)}"
    if number == 1 or kind.endswith("points"):
        return f"{number} {kind}"
    plural = f"{kind[:-1]}ies" if kind.endswith("cy") else f"{kind}es" if kind.endswith("s") else f"{kind}s"
    return f"{number} {plural}"


@cache
def _kinds() -> Mapping[tuple[str, str], str]:
    return {(one.group, one.resource): one.kind for one in builtin_directories() if one.kind}
