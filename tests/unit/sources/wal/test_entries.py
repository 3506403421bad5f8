"""Which entries count, what is missing between them, and the logs of several members."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from etcdfix.errors import LogsDisagree, NotALog
from etcdfix.sources.wal.entries import WriteAheadLog
from tests.support.wal_writer import LogWriter, as_apiserver

OPENED: list[WriteAheadLog] = []


@pytest.fixture(autouse=True)
def close() -> Iterator[None]:
    yield
    while OPENED:
        OPENED.pop().close()


def opened(*written: Path) -> WriteAheadLog:
    found = WriteAheadLog.open(*written)
    OPENED.append(found)
    return found


def write(log: LogWriter, count: int, word: bytes = b"v") -> None:
    for _ in range(count):
        log.entry(as_apiserver(b"/registry/secrets/%d" % log.index, 0, word))


def values(log: WriteAheadLog) -> dict[int, bytes]:
    return {
        entry.at: data[entry.data_at : entry.data_end] for run in log.runs for entry, data in log.entries(run)
    }


def test_the_last_entry_of_an_index_counts_and_drops_those_after_it(tmp_path: Path) -> None:
    log = LogWriter()
    write(log, 3)
    log.commit()
    write(log, 4, b"old leader")
    log.entry(as_apiserver(b"/registry/secrets/new", 0, b"new leader"), index=5, term=3)
    log.commit()
    found = opened(log.write(tmp_path))
    assert [(run.first, run.last) for run in found.runs] == [(1, 5)]
    assert b"new leader" in values(found)[5]
    assert b"old leader" in values(found)[4]
    assert found.committed == 5


def test_what_a_lagging_member_held_beyond_the_last_commit_is_dropped_when_it_is_sent_a_snapshot(
    tmp_path: Path,
) -> None:
    log = LogWriter()
    write(log, 3)
    log.commit()
    write(log, 2, b"never agreed on")
    log.snapshot(50, 3)
    log.commit(50)
    log.index = 50
    write(log, 2)
    log.commit()
    found = opened(log.write(tmp_path))
    assert [(run.first, run.last) for run in found.runs] == [(1, 3), (51, 52)]
    assert [problem[:15] for problem in found.problems] == ["entries 4 to 50"]


def test_behind_damage_nothing_that_was_not_agreed_on_counts(tmp_path: Path) -> None:
    log = LogWriter()
    write(log, 3)
    log.commit()
    write(log, 2, b"perhaps superseded")
    begin = len(log.segments[0][1])
    log.entry(as_apiserver(b"/registry/secrets/x", 0, b"the one that took its place"), index=5, term=3)
    write(log, 3)
    log.commit()
    log.segments[0][1][begin + 40] ^= 1
    found = opened(log.write(tmp_path))
    assert [(run.first, run.last) for run in found.runs] == [(1, 3), (6, 8)]
    assert [problem.partition(": ")[2][:4] for problem in found.problems] == ["byte", "byte"]


def test_an_entry_that_was_agreed_on_and_is_written_again_is_told(tmp_path: Path) -> None:
    log = LogWriter()
    write(log, 5)
    log.commit()
    log.entry(b"", index=3, term=9)
    found = opened(log.write(tmp_path))
    assert [(run.first, run.last) for run in found.runs] == [(1, 2), (3, 3)]
    assert "written again although it had been agreed on" in found.problems[0]


def test_files_without_a_record_are_no_log(tmp_path: Path) -> None:
    (tmp_path / "0000000000000000-0000000000000000.wal").write_bytes(b"not a log" * 100)
    with pytest.raises(NotALog, match="no record"):
        WriteAheadLog.open(tmp_path)


def two(tmp_path: Path) -> tuple[LogWriter, LogWriter]:
    both = LogWriter(node=1), LogWriter(node=2)
    for log in both:
        write(log, 6)
        log.commit()
        log.cut()
    return both


def test_two_members_make_one_log(tmp_path: Path) -> None:
    first, second = two(tmp_path)
    write(first, 9)
    first.commit()
    write(second, 3)
    second.commit()
    joined = opened(second.write(tmp_path / "2"), first.write(tmp_path / "1", keep=1))
    assert [(run.first, run.last) for run in joined.runs] == [(1, 15)]
    assert joined.committed == 15
    assert sorted(values(joined)) == list(range(1, 16))
    assert joined.place_of(16) is None
    assert joined.directory_of(1) == tmp_path / "2"


def test_members_that_differ_in_an_entry_that_was_agreed_on_are_refused_with_its_index(
    tmp_path: Path,
) -> None:
    first, second = two(tmp_path)
    write(first, 3)
    write(second, 3, b"another")
    for log in (first, second):
        log.commit()
    with pytest.raises(LogsDisagree, match="differ in entry 7"):
        opened(first.write(tmp_path / "1"), second.write(tmp_path / "2"))


def test_members_may_differ_beyond_the_last_commit(tmp_path: Path) -> None:
    first, second = two(tmp_path)
    write(first, 3)
    first.commit()
    write(second, 3, b"of an old leader")
    joined = opened(first.write(tmp_path / "1"), second.write(tmp_path / "2"))
    assert not [value for value in values(joined).values() if b"old leader" in value]


def test_logs_with_nothing_in_common_are_refused(tmp_path: Path) -> None:
    first, second = two(tmp_path)
    write(second, 5)
    second.commit()
    first.segments.pop()
    with pytest.raises(LogsDisagree, match="no entry in common"):
        opened(first.write(tmp_path / "1"), second.write(tmp_path / "2", keep=1))
    other = LogWriter(cluster=0xBEEF)
    write(other, 6)
    other.commit()
    with pytest.raises(LogsDisagree, match="is of cluster"):
        opened(first.write(tmp_path / "3"), other.write(tmp_path / "4"))
