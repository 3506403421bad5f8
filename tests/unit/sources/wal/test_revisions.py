"""Which revisions follow from compares alone."""

from __future__ import annotations

from array import array

from etcdfix.sources.wal.entries import Run
from etcdfix.sources.wal.model import WriteKind
from etcdfix.sources.wal.revisions import Claim, Points, claims_of
from etcdfix.sources.wal.trace import FALLBACK, NOT_COMPARED, KeyRecord, RunTrace


def record(
    entry: int, expected: int = NOT_COMPARED, kind: WriteKind = WriteKind.PUT, *, fallback: bool = False
) -> KeyRecord:
    return KeyRecord(entry, 0, [*WriteKind].index(kind), FALLBACK * fallback, expected)


def one_run(_entry: int) -> object:
    return None


def trace(changes: str, first: int = 1) -> RunTrace:
    run = Run(first, "")
    run.places = array("Q", range(len(changes)))
    found = RunTrace(run)
    for place in range(len(changes)):
        found.candidates[place] = changes[: place + 1].count("x")
    return found


def test_a_compare_tells_the_revision_of_the_write_before_it() -> None:
    records = [record(1, 0), record(5, 20), record(9, 25, WriteKind.DELETE), record(12, 0), record(13, 40)]
    assert claims_of(records, 100, one_run) == [Claim(1, 20), Claim(5, 25), Claim(12, 40)]


def test_of_two_writes_that_want_the_same_revision_nothing_is_told() -> None:
    assert claims_of([record(1, 7), record(2, 9), record(3, 9), record(4, 12)], 100, one_run) == [Claim(1, 9)]


def test_nothing_is_told_by_what_was_not_agreed_on_across_a_gap_or_of_either_branch() -> None:
    records = [record(1, 7), record(2, 9)]
    assert claims_of(records, 1, one_run) == []
    assert claims_of(records, 100, lambda entry: object()) == []
    assert claims_of([record(1, 7), record(2, 7, fallback=True), record(3, 9)], 100, one_run) == []
    assert claims_of([record(1, 7), record(1, 7), record(2, 9)], 100, one_run) == []


def test_between_two_claims_that_leave_no_room_each_revision_is_known() -> None:
    points = Points(trace("xxxxx"), [Claim(1, 10), Claim(5, 14)])
    assert [points.revision(entry) for entry in range(1, 6)] == [10, 11, 12, 13, 14]


def test_where_one_was_refused_the_others_lie_between() -> None:
    points = Points(trace("xxxxx"), [Claim(1, 10), Claim(5, 13)])
    assert (points.revision(3), points.bounds(3)) == (None, (11, 12))
    assert (points.revision(5), points.bounds(5)) == (13, (13, 13))


def test_a_claim_that_does_not_fit_the_others_is_dropped() -> None:
    # The first write of the log had failed, and the revision is older than the log.
    points = Points(trace("xxxxxx"), [Claim(1, 3), Claim(2, 20), Claim(3, 21), Claim(5, 23)])
    assert (points.revision(1), points.bounds(1)) == (None, (0, 19))
    assert [points.revision(entry) for entry in (2, 3, 5)] == [20, 21, 23]
    assert not points.fits(Claim(4, 30))
    assert not points.fits(Claim(4, 21))
    assert points.fits(Claim(4, 22))
    assert points.fits(Claim(6, 24))
    assert points.fits(Claim(5, 23))
    assert not points.fits(Claim(5, 22))


def test_two_claims_for_one_entry_are_none() -> None:
    points = Points(trace("xx"), [Claim(1, 5), Claim(1, 6), Claim(2, 7)])
    assert (points.revision(1), points.revision(2), points.newest) == (None, 7, 7)


def test_without_claims_nothing_is_known() -> None:
    points = Points(trace("xx"), [])
    assert (points.revision(1), points.bounds(2), points.newest) == (None, (0, None), None)
    assert points.fits(Claim(1, 5))


def test_revisions_that_do_not_grow_contradict_each_other() -> None:
    points = Points(trace("x..x"), [Claim(1, 9), Claim(2, 9), Claim(4, 10)])
    assert points.revision(4) == 10
    assert points.revision(1) is None
    assert Points(trace("xxx"), [Claim(1, 9)]).bounds(3) == (10, 11)
