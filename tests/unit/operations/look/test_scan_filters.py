from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from etcdfix.errors import ConfigurationError
from etcdfix.operations.look.revision_times import Landmark
from etcdfix.operations.look.scan_filters import ScanFilters, SortBy, Written, parse_written
from etcdfix.reports.model import Filters, RevisionBound

NOW = datetime(2026, 3, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "revision", "time"),
    [
        ("4711", 4711, None),
        ("0", 0, None),
        ("3d", None, NOW - timedelta(days=3)),
        ("2w", None, NOW - timedelta(weeks=2)),
        ("36h", None, NOW - timedelta(hours=36)),
        ("1h30m", None, NOW - timedelta(minutes=90)),
        ("2026-03-30", None, datetime(2026, 3, 30, tzinfo=UTC)),
        ("2026-03-30T01:00:00+02:00", None, datetime(2026, 3, 29, 23, tzinfo=UTC)),
        ("2026-03-30T01:00:00Z", None, datetime(2026, 3, 30, 1, tzinfo=UTC)),
    ],
)
def test_a_point(text: str, revision: int | None, time: datetime | None) -> None:
    assert parse_written("--newer-than", text, NOW) == Written(text, revision, time)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "-3d",
        "-1",
        "0h",
        "-1h",
        "2026-13-01",
        "2026-04-01",
        "9" * 20,
        "999999w",
        "0001-01-01T00:00:00+14:00",
    ],
)
def test_what_is_no_point(text: str) -> None:
    with pytest.raises(ConfigurationError, match="--older-than"):
        parse_written("--older-than", text, NOW)


def no_landmarks() -> list[Landmark]:
    raise AssertionError("a revision needs none")


def test_a_revision_is_exact() -> None:
    filters = ScanFilters(newer_than=Written("10", revision=10), older_than=Written("20", revision=20))
    assert filters.published(no_landmarks) == Filters(
        newer_than=RevisionBound(given="10", before=10, after=11),
        older_than=RevisionBound(given="20", before=19, after=20),
    )


def test_a_time_is_what_objects_make_of_it() -> None:
    written = Written("3d", time=NOW)
    marks = [Landmark(n, NOW + timedelta(days=n - 10)) for n in range(20)]
    assert ScanFilters(newer_than=written).published(lambda: marks).newer_than == RevisionBound(
        given="3d", time="2026-03-31T12:00:00Z", before=8, after=12
    )


def test_whether_there_is_any() -> None:
    assert not ScanFilters()
    assert ScanFilters(limit=1)
    assert ScanFilters(sort_by=SortBy.SIZE)
