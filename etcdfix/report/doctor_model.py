"""The published shape of what a doctor found (``etcdfix/v1``, kind ``DoctorReport``), field by field."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from etcdfix.report.model import SourcedReport


class State(StrEnum):
    """What a check came to."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    UNKNOWN = "unknown"


class Check(msgspec.Struct, frozen=True):
    """One thing that was looked at.

    Attributes:
        name: Which check, one word that does not change; several things can stand under one name.
        state: ``ok``; ``warn`` where work can go on; ``fail`` where something would not; ``unknown`` where it could not
            be told.
        what: What was found, for people.
        next_step: What to do about it, for people; "" where there is nothing to do.
        command: To paste; "" where there is none.
    """

    name: str
    state: State
    what: str
    next_step: str = ""
    command: str = ""


class CheckCounts(msgspec.Struct, frozen=True):
    """How many checks came to what."""

    ok: int
    warn: int
    fail: int
    unknown: int


class DoctorReport(SourcedReport, frozen=True, kw_only=True):
    """What would keep etcdfix from its work on a cluster, or make it doubtful.

    Attributes:
        source: Where the data comes from; of an etcd that was not reached, its endpoints alone.
        encryption_config: Path and digest of the EncryptionConfiguration; null where none was given.
        checks: In a fixed order.
        counts: Of ``checks``.
        ended: What ended the look early, as a clause; null where nothing did.
        do_not_restart: Why no API server should be restarted, in one line; "" where no check speaks against it.
    """

    kind: str = "DoctorReport"
    checks: list[Check]
    counts: CheckCounts
    ended: str | None = None
    do_not_restart: str = ""
