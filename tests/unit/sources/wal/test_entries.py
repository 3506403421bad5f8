"""Which entries count, and what is missing between them."""

from __future__ import annotations

import os
import time
from array import array
from pathlib import Path

import pytest

from etcdfix.model.errors import SourceError
from etcdfix.sources.errors import NotALog
from etcdfix.sources.wal.comparison import Claim, Points, claims_of
from etcdfix.sources.wal.entries import Run, WriteAheadLog
from etcdfix.sources.wal.model import WriteKind
from etcdfix.sources.wal.segments import Damage, Record, open_segments, records
from etcdfix.sources.wal.trace import FALLBACK, NOT_COMPARED, KeyRecord, RunTrace
from etcdfix.wire import raft
from tests.support.stopping import OPEN
from tests.support.wal_writer import PREALLOCATED, LogWriter, as_apiserver


def opened(written: Path) -> WriteAheadLog:
    return OPEN.enter_context(WriteAheadLog(written))


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
        WriteAheadLog(tmp_path)


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


def test_nothing_is_told_by_what_was_not_agreed_on_across_a_gap_or_of_either_branch() -> None:
    records = [record(1, 7), record(2, 9)]
    assert claims_of(records, 1, one_run) == []
    assert claims_of(records, 100, lambda entry: object()) == []
    assert claims_of([record(1, 7), record(2, 7, fallback=True), record(3, 9)], 100, one_run) == []
    assert claims_of([record(1, 7), record(1, 7), record(2, 9)], 100, one_run) == []


def test_a_claim_that_does_not_fit_the_others_is_dropped() -> None:
    # The first write of the log had failed, and the revision is older than the log.
    points = Points(trace("xxxxxx"), [Claim(1, 3), Claim(2, 20), Claim(3, 21), Claim(5, 23)])
    assert (points.revision(1), points.bounds(1)) == (None, (0, 19))
    assert [points.revision(entry) for entry in (2, 3, 4, 5)] == [20, 21, 22, 23]
    assert not points.fits(Claim(4, 30))
    assert not points.fits(Claim(4, 21))
    assert points.fits(Claim(4, 22))
    assert points.fits(Claim(6, 24))
    assert points.fits(Claim(5, 23))
    assert not points.fits(Claim(5, 22))


def read(directory: Path) -> list[Record | Damage]:
    segments, problems = open_segments(directory)
    assert problems == []
    for segment in segments:
        OPEN.callback(segment.close)
    return [*records(segments)]


def entries(found: list[Record | Damage]) -> list[int]:
    return [
        raft.parse_entry(one.data, 0, len(one.data)).at
        for one in found
        if isinstance(one, Record) and one.type == raft.ENTRY
    ]


def written(count: int = 12, *, cuts: tuple[int, ...] = ()) -> LogWriter:
    log = LogWriter()
    for turn in range(count):
        log.entry(as_apiserver(b"/registry/secrets/%d" % turn, 0, b"v" * (40 + turn)))
        log.commit()
        if turn in cuts:
            log.cut()
    return log


@pytest.mark.parametrize("back", range(1, 140, 17))
def test_a_log_that_was_cut_off_gives_all_before_and_is_not_damaged(tmp_path: Path, back: int) -> None:
    directory = written().write(tmp_path)
    (file,) = directory.iterdir()
    file.write_bytes(file.read_bytes()[: -PREALLOCATED - back])
    found = read(directory)
    assert entries(found) in (list(range(1, 13)), list(range(1, 12)))
    assert not [one for one in found if isinstance(one, Damage) and not one.torn]


def test_a_last_write_with_a_sector_of_zeros_is_torn(tmp_path: Path) -> None:
    log = written(2)
    log.entry(as_apiserver(b"/registry/secrets/large", 0, os.urandom(3000)))
    raw = log.segments[-1][1]
    begin = (len(raw) - 1500) // 512 * 512
    raw[begin : begin + 512] = bytes(512)
    found = read(log.write(tmp_path))
    assert entries(found) == [1, 2]
    assert [one.torn for one in found if isinstance(one, Damage)] == [True]


@pytest.mark.parametrize("bit", range(0, 8 * 150, 53))
def test_one_flipped_bit_loses_one_record(tmp_path: Path, bit: int) -> None:
    log = written(5)
    begin = len(log.segments[-1][1])
    for turn in range(8):
        log.entry(as_apiserver(b"/registry/secrets/x%d" % turn, 0, b"w" * 60))
    log.segments[-1][1][begin + bit // 8] ^= 1 << bit % 8
    found = read(log.write(tmp_path))
    lost = set(range(1, 14)) - set(entries(found))
    assert 1 <= len(lost) <= 3  # one, its neighbour, and what proves the next where the length is wrong
    assert lost <= {6, 7, 8, 9}
    assert [one.torn for one in found if isinstance(one, Damage)] == [False]


def test_a_log_inside_a_value_is_not_read_for_the_log(tmp_path: Path) -> None:
    inner = LogWriter()
    for turn in range(9):
        inner.entry(as_apiserver(b"/registry/secrets/evil", 0, b"planted %d" % turn))
    log = written(3)
    begin = len(log.segments[-1][1])
    log.entry(as_apiserver(b"/registry/secrets/copy", 0, bytes(inner.segments[0][1])))
    log.entry(as_apiserver(b"/registry/secrets/after", 0, b"w" * 60))
    log.entry(as_apiserver(b"/registry/secrets/after", 5, b"w" * 60))
    log.segments[-1][1][begin] ^= 0x40  # the length of the frame that holds it
    found = read(log.write(tmp_path))
    assert not [one for one in found if isinstance(one, Record) and b"planted" in one.data]


@pytest.mark.thorough
@pytest.mark.parametrize(
    "frames",
    [
        pytest.param(
            b"\x06\x00\x00\x00\x00\x00\x00\x82\x08\x02\x10\x05\x1a\x00\x00\x00", id="that fit each other"
        ),
        pytest.param(b"\x00\x00\x00\x02\x00\x00\x00\x00\x08\x02\x10\x05\x1a\x80\x80\x01", id="of 32 MB"),
    ],
)
def test_a_value_made_of_frames_is_searched_in_little_time(tmp_path: Path, frames: bytes) -> None:
    """Somebody may have written one, and its own frame be damaged: hours, if each were followed to its end."""
    place, name = 1, b"/registry/configmaps/evil"
    while place % 8:  # where a frame can stand
        log, name = written(2), name + b"l"
        begin = len(log.segments[-1][1])
        log.entry(as_apiserver(name, 0, frames * 8_000))
        place = bytes(log.segments[-1][1]).index(frames)
    log.entry(as_apiserver(b"/registry/secrets/good", 0, b"v"))
    log.entry(as_apiserver(b"/registry/secrets/last", 0, b"v"))
    (path,) = log.write(tmp_path).iterdir()
    content = bytearray(path.read_bytes())
    content[begin + 5] ^= 1
    with path.open("wb") as file:
        file.write(content)
        file.truncate(len(content) + (40 << 20))
    started = time.process_time()
    (damage,) = [one for one in read(tmp_path) if isinstance(one, Damage)]
    assert not damage.torn
    assert time.process_time() - started < 20


def test_zeros_over_what_was_written_are_damage_and_no_end(tmp_path: Path) -> None:
    log = written(3)
    begin = len(log.segments[-1][1])
    for turn in range(5):
        log.entry(as_apiserver(b"/registry/secrets/x%d" % turn, 0, b"w" * 600))
    log.segments[-1][1][begin : begin + 512] = bytes(512)
    found = read(log.write(tmp_path))
    assert entries(found)[:3] == [1, 2, 3]
    assert 8 in entries(found)
    assert len([one for one in found if isinstance(one, Damage)]) == 1


def test_a_segment_that_lost_its_end_is_told_by_the_next(tmp_path: Path) -> None:
    log = written(cuts=(5,))
    name, data = log.segments[0]
    whole = len(data)
    log.entry(b"")
    del data[whole - 200 :]
    found = read(log.write(tmp_path))
    assert [one.torn for one in found if isinstance(one, Damage)]
    assert 12 in entries(found)
    assert name.endswith(".wal")


def test_what_is_no_log(tmp_path: Path) -> None:
    for path, words in ((tmp_path / "none", "No such file"), (tmp_path, "no segment")):
        with pytest.raises(NotALog, match=words):
            open_segments(path)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(NotALog, match="Not a directory"):
        open_segments(tmp_path / "file")
    (tmp_path / "member" / "wal").mkdir(parents=True)
    with pytest.raises(NotALog) as caught:
        open_segments(tmp_path)
    assert caught.value.hint == f"name {tmp_path / 'member' / 'wal'}"


def test_a_segment_that_is_a_link_or_a_pipe_is_not_followed(tmp_path: Path) -> None:
    directory = written(1).write(tmp_path / "wal")
    (name,) = (path.name for path in directory.iterdir())
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / name).symlink_to(directory / name)
    with pytest.raises(SourceError) as refused:
        open_segments(tmp_path / "links")
    assert "cp -aL" in refused.value.hint
    (tmp_path / "pipes").mkdir()
    os.mkfifo(tmp_path / "pipes" / name)
    with pytest.raises(SourceError):
        open_segments(tmp_path / "pipes")


def test_missing_segments_and_repaired_ones_are_told(tmp_path: Path) -> None:
    directory = written(cuts=(3, 7)).write(tmp_path)
    names = sorted(path.name for path in directory.iterdir())
    (directory / names[1]).rename(directory / (names[1] + ".broken"))
    segments, problems = open_segments(directory)
    for segment in segments:
        OPEN.callback(segment.close)
    assert [problem.split()[0] for problem in problems] == [names[1] + ".broken"]
    missing = [found.what for found in records(segments) if isinstance(found, Damage)]
    assert missing == [f"segments are missing before {directory / names[2]}"]
