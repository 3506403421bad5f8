"""What ``etcdfix scan`` can be asked to show alone, and how a time among that becomes revisions."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final

import msgspec

from etcdfix.errors import ConfigurationError
from etcdfix.golang.gotime import parse_duration
from etcdfix.operations.look.revision_times import Landmark, revisions_around
from etcdfix.reports.model import Filters, RevisionBound
from etcdfix.reports.origin import shown_word, timestamp
from etcdfix.text.ages import age_of

_REVISION: Final = re.compile(r"[0-9]{1,19}", re.ASCII)
_HINT: Final = "a revision (4711), an age (30m, 36h, 3d, 2w), or a time (2026-03-31, 2026-03-31T12:00:00Z)"


class SortBy(StrEnum):
    """In which order findings stand: by etcd key or resource, or the worst, largest or newest first."""

    KEY = "key"
    RESOURCE = "resource"
    CAUSE = "cause"
    SEVERITY = "severity"
    SIZE = "size"
    REVISION = "revision"


class Written(msgspec.Struct, frozen=True):
    """A point in the history of etcd.

    Attributes:
        given: As it was typed.
        revision: Of etcd; None where a time was given.
        time: In UTC; None where a revision was given.
    """

    given: str
    revision: int | None = None
    time: datetime | None = None


class ScanFilters(msgspec.Struct, frozen=True, kw_only=True):
    """Which findings to show; empty is all of them.

    Attributes:
        outcomes: Of these alone.
        causes: Of these alone.
        severities: Of these alone.
        newer_than: Written after this.
        older_than: Written before this.
        stale: Values that read and are not written with today's write key, which are no findings else.
        sort_by: In which order.
        limit: So many at most; 0 for no limit.
    """

    outcomes: tuple[str, ...] = ()
    causes: tuple[str, ...] = ()
    severities: tuple[str, ...] = ()
    newer_than: Written | None = None
    older_than: Written | None = None
    stale: bool = False
    sort_by: SortBy = SortBy.KEY
    limit: int = 0

    def __bool__(self) -> bool:
        """Say whether there is any."""
        return self != ScanFilters()

    def published(self, landmarks: Callable[[], Sequence[Landmark]]) -> Filters:
        """Return them as a report has them.

        Args:
            landmarks: Gives what objects state about times; asked for only where a time was given.
        """
        bounds = [bound for bound in (self.newer_than, self.older_than) if bound is not None]
        known = landmarks() if any(bound.time is not None for bound in bounds) else ()
        newer, older = self.newer_than, self.older_than
        return Filters(
            outcomes=list(self.outcomes),
            causes=list(self.causes),
            severities=list(self.severities),
            newer_than=_bound(newer, known, newer.revision) if newer is not None else None,
            older_than=_bound(older, known, (older.revision or 0) - 1) if older is not None else None,
            stale=self.stale,
            sort_by="" if self.sort_by is SortBy.KEY else self.sort_by.value,
            limit=self.limit,
        )


def _bound(written: Written, landmarks: Sequence[Landmark], last_before: int | None) -> RevisionBound:
    """Return a point as revisions: the last one that lies before it, and the first one that does not."""
    given = shown_word(written.given)
    if written.time is None:
        assert last_before is not None  # it is a revision
        return RevisionBound(given=given, before=last_before, after=last_before + 1)
    around = revisions_around(written.time, landmarks)
    return RevisionBound(given=given, time=timestamp(written.time), before=around.before, after=around.after)


def parse_written(option: str, text: str, now: datetime) -> Written:
    """Return the point that a revision, an age or a time names.

    Args:
        option: That it is the value of.
        text: As it was typed.
        now: The time now.

    Raises:
        ConfigurationError: It is none, or lies ahead.
    """
    if _REVISION.fullmatch(text):
        return Written(text, revision=int(text))
    time = _ago(text, now) or _time(text)
    if time is None:
        raise ConfigurationError(
            f"{option} {shown_word(text)!r} is no revision, age or time", hint=f"give {_HINT}"
        )
    if time > now:
        raise ConfigurationError(f"{option} {shown_word(text)} lies ahead", hint=f"give {_HINT}")
    return Written(text, time=time)


def _ago(text: str, now: datetime) -> datetime | None:
    age = age_of(text)
    if age is None:
        nanoseconds = parse_duration(text)
        if nanoseconds is None or nanoseconds <= 0:
            return None
        age = timedelta(microseconds=nanoseconds / 1000)
    try:
        return now - age
    except OverflowError:
        return None


def _time(text: str) -> datetime | None:
    try:
        time = datetime.fromisoformat(text)
        return time.astimezone(UTC) if time.tzinfo is not None else time.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None
