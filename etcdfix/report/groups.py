"""Findings that share cause, encryption key and way out are one group: the unit of a scan's report.

Memory is bounded: what finds no group of its own is counted in one for the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Final

import msgspec

from etcdfix.examine.verdicts.catalogue import CATALOGUE, CURABLE_BY_CONFIGURATION
from etcdfix.examine.verdicts.causes import Cause
from etcdfix.examine.verdicts.deletability import LOST_KEY
from etcdfix.examine.verdicts.severity import Rank
from etcdfix.model.model import GroupResource, Outcome
from etcdfix.model.providers import IDENTITY
from etcdfix.model.storagekey import builtin_directories
from etcdfix.report.advice.ways import WayKind
from etcdfix.report.model import Finding, FindingGroup, Remedy
from etcdfix.report.tally import OTHERS
from etcdfix.text.words import fit

MOST_GROUPS: Final = 10_000
_MOST_NAMES: Final = 100_000
"""So many names of resources and namespaces all groups keep together."""
_MOST_SHOWN: Final = 3
_LEAST_URGENT: Final[Rank] = (9, 9, 9)


class _Group(msgspec.Struct):
    """Findings of one group; the most urgent is its example, and gives the way out."""

    example: Finding
    rank: Rank
    way: Remedy | None
    cured_first: bool
    rest: bool
    count: int = 0
    known: int = 0
    by_resource: dict[str, int] = {}
    namespaces: set[str] = set()
    more_namespaces: bool = False

    @property
    def urgency(self) -> tuple[Rank, bool, bool, int, str]:
        """Sorts the worst first, then new before known, what the configuration cures, and the largest."""
        return self.rank, self.known == self.count, not self.cured_first, -self.count, self.example.key

    def published(self) -> FindingGroup:
        """Return it as a report has it."""
        example = self.example
        return FindingGroup(
            cause=OTHERS if self.rest else example.cause,
            outcome=example.outcome,
            rule=None if self.rest else example.rule,
            transformer=OTHERS if self.rest else example.transformer,
            count=self.count,
            by_resource=dict(sorted(self.by_resource.items(), key=lambda one: (-one[1], one[0]))),
            namespaces=None if self.more_namespaces else len(self.namespaces),
            first_namespaces=sorted(self.namespaces)[:_MOST_SHOWN],
            severity=example.severity,
            example=example.key,
            way=self.way,
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
        self._groups: dict[tuple[str | None, ...] | None, _Group] = {}
        self._room = _MOST_NAMES
        self.warnings = 0

    def add(
        self, finding: Finding, rank: Rank | None = None, way: Remedy | None = None, *, lost: bool = False
    ) -> None:
        """Count a finding.

        Args:
            finding: They come in the order of the etcd keys.
            rank: How bad it is; None where nothing is proven wrong.
            way: Its first way out.
            lost: Its encryption key is lost.
        """
        if finding.outcome in {Outcome.READABLE, Outcome.NOT_AN_OBJECT}:
            self.warnings += 1
            return
        place = rank or _LEAST_URGENT
        group = self._group_of(finding, place, way, lost=lost)
        if (place, finding.baseline) < (group.rank, group.example.baseline):
            group.example, group.rank, group.way = finding, place, way
        group.count += 1
        group.known += finding.baseline
        resource = str(GroupResource(finding.group, finding.resource))
        if resource not in group.by_resource and not self._has_room():
            resource = OTHERS
        group.by_resource[resource] = group.by_resource.get(resource, 0) + 1
        if finding.namespace and finding.namespace not in group.namespaces:
            if self._has_room():
                group.namespaces.add(finding.namespace)
            else:
                group.more_namespaces = True

    def _group_of(self, finding: Finding, rank: Rank, way: Remedy | None, *, lost: bool) -> _Group:
        verb = verb_of(way) or (way.verb or "" if way is not None else "")
        key: tuple[str | None, ...] | None = (
            finding.cause, finding.outcome, finding.rule, finding.transformer, finding.key_fingerprint, verb,
            "lost" if lost else "",
        )  # fmt: skip
        if key not in self._groups and len(self._groups) >= self._most:
            key = None
        group = self._groups.get(key)
        if group is None:
            curable = finding.cause in CURABLE_BY_CONFIGURATION and key is not None
            group = self._groups[key] = _Group(finding, rank, way, lost or curable, key is None)
        return group

    def _has_room(self) -> bool:
        """Say whether one more name may be kept, and count it."""
        self._room -= 1
        return self._room >= 0

    def published(self) -> list[FindingGroup]:
        """Return all groups, the most urgent first."""
        return [group.published() for group in self._in_order()]

    @property
    def first_way(self) -> Remedy | None:
        """What to do first about what is proven wrong."""
        ways = (group.way for group in self._in_order() if group.rank != _LEAST_URGENT)
        return next((way for way in ways if way), None)

    def _in_order(self) -> list[_Group]:
        return sorted(self._groups.values(), key=lambda group: group.urgency)


_MOST_NAME: Final = 40
# With the numbers before them, a line has at most 100 characters.
_WHAT: Final = 35
_WHERE: Final = 27
_TO_DO: Final = 22
_OF_A_KEY: Final[Mapping[str, str]] = {
    Cause.KEY_NAME_MISSING: "{} is not configured",
    Cause.PROVIDER_MISSING: "{} is not configured",
    Cause.RESOURCE_NOT_CONFIGURED: "{} is not configured",
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
    "Delete the key": "delete it (dry run)",
}
_CURES: Final[Mapping[str, str]] = {
    **dict.fromkeys(LOST_KEY, "etcdfix encryption try"),
    Cause.NO_CONFIGURATION: "give the configuration",
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
    if group.way.verb == WayKind.RESCUE and group.cause in LOST_KEY:
        return "rescue, encryption try"
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
