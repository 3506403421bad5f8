"""What becomes of one value under another configuration, from what today's and the new one make of it."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from etcdfix.model import GroupResource, Outcome, ServerBehaviour
from etcdfix.report.encryption import ConfigurationChange
from etcdfix.verdicts.causes import CURABLE_BY_CONFIGURATION, Cause
from etcdfix.verdicts.deletability import FAILED, LOST_KEY
from etcdfix.verdicts.examination import Examination, KeyName


class State(Enum):
    """What API servers do with a value."""

    READS = 1
    CORRUPT = 2
    UNKNOWN = 3


class Seen(NamedTuple):
    """A few words on one value under one configuration; ``name`` is the key that it counts under."""

    state: State
    stale: bool
    opened: bool
    resource: GroupResource
    name: KeyName
    cause: Cause | None
    repairable: bool


def seen_of(found: Examination) -> Seen:
    """Return what one configuration makes of a value."""
    verdict, keys = found.verdict, found.encryption_keys
    state = State.READS
    if verdict.outcome is Outcome.UNDETERMINED:
        state = State.UNKNOWN
    elif verdict.outcome in FAILED and verdict.apiserver is not ServerBehaviour.SERVES_EMPTY:
        state = State.CORRUPT
    name = KeyName(found.rule, found.transformer, keys[0].key if len(keys) == 1 else "")
    resource, repairable = found.directory.group_resource, found.repair is not None
    return Seen(state, found.stale, found.opened, resource, name, verdict.cause, repairable)


def _loses_its_way_back(before: Seen, after: Seen) -> bool:
    """Say of a value that is unreadable under both whether a key goes with which something can be done about it."""
    if before.cause is Cause.KEY_RENAMED:
        return after.cause is not Cause.KEY_RENAMED
    maybe_right_key = before.cause not in LOST_KEY or before.cause is Cause.AUTHENTICATION_FAILED
    return (before.repairable and not after.repairable) or (
        maybe_right_key and after.cause in LOST_KEY and after.cause is not before.cause
    )


def change_of(before: Seen, after: Seen) -> ConfigurationChange | None:
    """Return what another configuration does to a value; None for nothing."""
    states = before.state, after.state
    if State.UNKNOWN in states:
        if before.opened and after.opened and before.name[1:] == after.name[1:]:
            return None  # what comes out is the same, whatever it is
        if states == (State.UNKNOWN, State.READS):
            return ConfigurationChange.BECOMES_READABLE
        if states == (State.UNKNOWN, State.CORRUPT) and after.cause in CURABLE_BY_CONFIGURATION:
            # Its plugin may open it today; the new configuration has nothing that could.
            return ConfigurationChange.BECOMES_UNREADABLE
        return ConfigurationChange.UNDETERMINED
    if State.CORRUPT in states:
        if before.state is State.READS:
            return ConfigurationChange.BECOMES_UNREADABLE
        if after.state is State.READS:
            return ConfigurationChange.BECOMES_READABLE
        lost = _loses_its_way_back(before, after)
        return ConfigurationChange.LOSES_ITS_WAY_BACK if lost else ConfigurationChange.STAYS_UNREADABLE
    if before.stale == after.stale:
        return None
    return ConfigurationChange.BECOMES_STALE if after.stale else ConfigurationChange.NO_LONGER_STALE
