"""A way out as it is chosen among others, and what must be accepted before a value is replaced or deleted."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from etcdfix.report.model import Remedy
from etcdfix.rules import Rule
from etcdfix.verdicts.deletability import risks_of
from etcdfix.verdicts.examination import Examination
from etcdfix.verdicts.protected import protected_reason


class WayKind(StrEnum):
    """What a way out does, for whoever chooses among several; it is not published."""

    CURE = "cure"
    """It changes the configuration, or what stands around the value; or finds out more."""
    PUT_BACK = "put-back"
    """It writes an earlier revision over the value."""
    SAVE = "save"
    """It saves an earlier revision."""
    RESCUE = "rescue"
    """It saves what the memory of API servers may still hold."""
    HEAL = "heal"
    """It has an API server write the value anew from its memory."""
    COPIES = "copies"
    """It looks for every other copy."""
    REPAIR = "repair"
    """It puts the stored bytes right."""
    DELETE = "delete"
    """After it the object is gone."""


class Way(NamedTuple):
    """One way out, and what it does."""

    remedy: Remedy
    kind: WayKind = WayKind.CURE


def risks_to_accept(found: Examination, *, breaking: bool = False) -> list[Rule]:
    """Return the rules to accept before an unreadable value is replaced or deleted."""
    breaking = breaking or bool(protected_reason(found.directory.group_resource, found.namespace))
    return [*([Rule.CLUSTER_BREAKING] if breaking else []), *risks_of(found)]
