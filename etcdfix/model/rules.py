"""The rules that forbid a change, one word each, and what it says to accept one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final

from etcdfix.model.errors import RefusedByRule
from etcdfix.text.safetext import quote_command


class Rule(StrEnum):
    """Why a change is refused."""

    NOT_ONE_KEY = "not-one-key"
    KINE = "kine"
    NO_CONFIGURATION = "no-configuration"
    GONE = "gone"
    EXPECTATION_DIFFERS = "expectation-differs"
    PLAN = "plan"
    READABLE = "readable"
    INCONSISTENT = "inconsistent"
    NOT_AN_OBJECT = "not-an-object"
    UNDETERMINED = "undetermined"
    NEVER_DELETABLE = "never-deletable"
    MEMBERS_DISAGREE = "members-disagree"
    UNCHECKED_MEMBER = "unchecked-member"
    CORRUPT_ALARM = "corrupt-alarm"
    NO_SPACE = "no-space"
    CURABLE_BY_CONFIGURATION = "curable-by-configuration"
    ONLY_COPY = "only-copy"
    VALUE_MOVED = "value-moved"
    NOT_REPAIRABLE = "not-repairable"
    SEVERAL_REPAIRS = "several-repairs"
    SEVERAL_COPIES = "several-copies"
    FAILS_LIKE_OTHERS = "fails-like-others"
    UNPROVEN_DAMAGE = "unproven-damage"
    UNPROVEN_REPAIR = "unproven-repair"
    NEWER_THAN_KNOWN = "newer-than-known"
    RELEASE = "release"
    UNKNOWN_RELEASE = "unknown-release"
    PATTERN = "pattern"
    MASS_DAMAGE = "mass-damage"
    DECLARATION = "declaration"
    CONFIGURATION_WRONG = "configuration-wrong"
    NO_API_SERVER = "no-api-server"
    ENDS_CACHED_READS = "ends-cached-reads"
    UNKNOWN_CLUSTER = "unknown-cluster"
    OTHER_CLUSTER = "other-cluster"
    OTHER_CLUSTER_ID = "other-cluster-id"
    CLUSTER_BREAKING = "cluster-breaking"
    MOVED = "moved"
    NOT_CONFIRMED = "not-confirmed"
    UNLISTED_SOURCE = "unlisted-source"
    OTHER_OBJECT = "other-object"
    UNKNOWN_UID = "unknown-uid"
    OBJECT_FILE = "object-file"
    LOGGED_ONLY = "logged-only"
    NOT_READABLE = "not-readable"
    PRESENT = "present"
    EXPIRED_LEASE = "expired-lease"
    WRITE_KEY = "write-key"
    UNDEPLOYED_WRITE_KEY = "undeployed-write-key"
    NOT_FROM_MEMORY = "not-from-memory"
    NOT_RESCUED = "not-rescued"
    UNCHECKED_SERVER = "unchecked-server"
    SERVER_REFUSED = "server-refused"
    BACKUP_UNLISTED = "backup-unlisted"
    BACKUP_OPEN = "backup-open"


MEANINGS: Final[Mapping[Rule, str]] = {
    Rule.CLUSTER_BREAKING: "the cluster may depend on the object",
    Rule.UNPROVEN_DAMAGE: "the damage is only likely",
    Rule.NEWER_THAN_KNOWN: "you know that your release cannot read it",
    Rule.MASS_DAMAGE: "you know what damages many values",
    Rule.ENDS_CACHED_READS: "nobody needs the objects in API server memory",
    Rule.ONLY_COPY: "you do not need this state of the object",
    Rule.UNPROVEN_REPAIR: "you check the object yourself",
    Rule.UNKNOWN_UID: "you know that it is the same object",
    Rule.UNLISTED_SOURCE: "you have looked at the value",
    Rule.UNKNOWN_CLUSTER: "you know that it is this cluster",
    Rule.OTHER_CLUSTER_ID: "this etcd was restored from the other one",
    Rule.UNKNOWN_RELEASE: "you are sure of the release",
    Rule.NO_API_SERVER: "no API server can be asked, not even for permission",
    Rule.UNDEPLOYED_WRITE_KEY: "API servers hold the current write key",
    Rule.EXPIRED_LEASE: "you want the value without its expired lease",
    Rule.UNCHECKED_MEMBER: "the member NAME cannot be asked",
    Rule.UNCHECKED_SERVER: "the API server at URL may not read the new value",
}
"""What it says to accept a rule; no other rule can be accepted."""

NAMED: Final[Mapping[Rule, str]] = {Rule.UNCHECKED_MEMBER: "NAME", Rule.UNCHECKED_SERVER: "URL"}
"""Rules that are accepted for one thing, which stands behind the word."""


def acceptance(rule: Rule, name: str = "") -> str:
    """Return the option that accepts a rule, for one thing where a name is given."""
    return quote_command(["--accept", f"{rule}={name}" if name else rule.value])


def refuse(rule: Rule, message: str, *, hint: str = "", lift: Iterable[str] = ()) -> RefusedByRule:
    """Return the refusal to raise; ``lift`` are the options that lift it."""
    return RefusedByRule(message, rule=rule.value, hint=hint, lift=tuple(lift))


def unless_accepted(rule: Rule, message: str, *, hint: str = "", name: str = "") -> RefusedByRule:
    """Return the refusal of a rule that its own word lifts; ``hint`` is what else would, a clause."""
    offer = f"{'; ' if hint else ''}if you accept that: {acceptance(rule, name)}"
    lift = ("--accept", f"{rule}={name}" if name else rule.value)
    return RefusedByRule(message, rule=rule.value, hint=hint + offer, lift=lift, offer=offer)
