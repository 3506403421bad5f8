"""What is said of filters, to a person who must not take a part for the whole."""

from __future__ import annotations

import pytest

from etcdfix.reports.filter_words import filter_words, hidden_lines
from etcdfix.reports.model import Filters, HiddenFindings, RevisionBound

NOTHING = HiddenFindings(0, {})


def bound(before: int | None, after: int | None, given: str = "3d") -> RevisionBound:
    return RevisionBound(given=given, time="2026-03-01T12:00:00Z", before=before, after=after)


def test_filters_as_they_are_typed() -> None:
    filters = Filters(
        outcomes=["decrypt-failure", "undetermined"],
        causes=["wrong-key"],
        severities=["one-object"],
        newer_than=RevisionBound(given="10", before=10, after=11),
        older_than=bound(1, 2, "2026-03-01 12:00"),
        stale=True,
        sort_by="size",
        limit=5,
    )
    assert filter_words(filters) == (
        "--outcome decrypt-failure,undetermined --cause wrong-key --severity one-object --newer-than 10 "
        "--older-than '2026-03-01 12:00' --stale --sort-by size --limit 5"
    )
    assert filter_words(Filters()) == ""


def test_what_is_hidden() -> None:
    hidden = HiddenFindings(3, {"decrypt-failure": 2, "inconsistent": 1}, beyond_limit=1)
    (line,) = hidden_lines(Filters(limit=2), hidden)
    assert line == (
        "3 findings are not shown (decrypt-failure 2, inconsistent 1), 1 of them beyond the limit: --limit 2. "
        "What is counted is everything."
    )
    (line,) = hidden_lines(Filters(stale=True), HiddenFindings(1, {"inconsistent": 1}))
    assert line.startswith("1 finding is not shown (inconsistent 1): --stale.")


def test_where_nothing_is_hidden() -> None:
    assert list(hidden_lines(Filters(limit=9), NOTHING)) == ["No finding is hidden by --limit 9."]
    assert list(hidden_lines(Filters(sort_by="size"), NOTHING)) == []


@pytest.mark.parametrize(
    ("around", "said"),
    [
        (bound(None, None), "which revision etcd had then is not known, so nothing is hidden for its age"),
        (bound(7, None), "values up to mod revision 7 are older, by the times that objects state"),
        (bound(None, 9), "values from 9 on are newer, by the times that objects state"),
        (
            bound(7, 9),
            "values up to mod revision 7 are older, those from 9 on are newer, by the times that objects",
        ),
    ],
)
def test_what_is_known_of_a_time(around: RevisionBound, said: str) -> None:
    lines = list(hidden_lines(Filters(older_than=around), HiddenFindings(0, {}, time_unknown=2)))
    assert lines[1].startswith(f"--older-than 3d is 2026-03-01T12:00:00Z: {said}")
    assert lines[2].startswith(
        "Of 2 findings it is not known whether the value was written before or after that"
    )


def test_a_revision_needs_no_words() -> None:
    filters = Filters(newer_than=RevisionBound(given="10", before=10, after=11))
    assert len(list(hidden_lines(filters, NOTHING))) == 1


def test_text_of_a_stranger_is_spelled_out() -> None:
    filters = Filters(newer_than=bound(None, None, "\x1b[2J"))
    assert "\x1b" not in "".join(hidden_lines(filters, HiddenFindings(1, {"\x1b": 1})))
