"""The rules that forbid a change, one word each, and what to do instead."""

from __future__ import annotations

from enum import StrEnum

from etcdfix.errors import RefusedByRule


class Rule(StrEnum):
    """Why a change is refused."""

    NOT_ONE_KEY = "not-one-key"
    SNAPSHOT_SOURCE = "snapshot-source"
    KINE = "kine"
    NO_CONFIGURATION = "no-configuration"
    MARKED_CONFIGURATION = "marked-configuration"
    GONE = "gone"
    EXPECTATION_DIFFERS = "expectation-differs"
    PLAN = "plan"
    READABLE = "readable"
    INCONSISTENT = "inconsistent"
    NOT_AN_OBJECT = "not-an-object"
    UNDETERMINED = "undetermined"
    NEVER_DELETABLE = "never-deletable"
    MEMBERS_DISAGREE = "members-disagree"
    MEMBER_UNCHECKED = "member-unchecked"
    CORRUPT_ALARM = "corrupt-alarm"
    NO_SPACE = "no-space"
    CURABLE_BY_CONFIGURATION = "curable-by-configuration"
    ONLY_COPY = "only-copy"
    REPAIRABLE = "repairable"
    NOT_REPAIRABLE = "not-repairable"
    SEVERAL_REPAIRS = "several-repairs"
    RISK = "risk-not-accepted"
    NEWER = "newer-than-known"
    RELEASE = "release"
    PATTERN = "pattern"
    DECLARATION = "declaration"
    CONFIGURATION_WRONG = "configuration-wrong"
    NO_API_SERVER = "no-api-server"
    ENDS_CACHED_READS = "ends-cached-reads"
    UNKNOWN_CLUSTER = "unknown-cluster"
    OTHER_CLUSTER = "other-cluster"
    OTHER_CLUSTER_ID = "other-cluster-id"
    PROTECTED = "cluster-breaking"
    MOVED = "moved"
    NOT_CONFIRMED = "not-confirmed"
    UNLISTED_SOURCE = "unlisted-source"
    OTHER_OBJECT = "other-object"
    UNKNOWN_UID = "unknown-uid"
    OBJECT_FILE = "object-file"
    LOGGED_ONLY = "logged-only"
    NOT_READABLE = "not-readable"
    PRESENT = "present"
    LEASE_EXPIRED = "lease-expired"
    WRITE_KEY = "write-key"
    NOT_HEALABLE = "not-healable"
    NOT_RESCUED = "not-rescued"
    SERVER_UNCHECKED = "server-unchecked"
    SERVER_REFUSED = "server-refused"
    BACKUP_UNLISTED = "backup-unlisted"
    BACKUP_NOT_OURS = "backup-not-ours"
    BACKUP_OPEN = "backup-open"
    BACKUP_UNDECIDED = "backup-undecided"
    BACKUP_NOT_APPLIED = "backup-not-applied"


def refuse(rule: Rule, message: str, *, hint: str = "") -> RefusedByRule:
    """Return the refusal to raise."""
    return RefusedByRule(message, rule=rule.value, hint=hint)
