"""A group of findings in the few words of a table: what is wrong, where, and what to do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Final

from etcdfix.model import Outcome
from etcdfix.report.model import FindingGroup, Remedy
from etcdfix.report.tally import OTHERS
from etcdfix.storagekey import builtin_directories
from etcdfix.text.words import fit
from etcdfix.verdicts.causes import CATALOGUE, Cause
from etcdfix.verdicts.deletability import IDENTITY

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
