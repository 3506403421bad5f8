"""Whatever happened to an etcd and to its log, no wrong value and no wrong revision is called certain."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Sequence
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from etcdfix.model.model import Confidence
from etcdfix.sources.errors import NotALog
from etcdfix.sources.snapshot import SnapshotSource
from etcdfix.sources.wal.entries import WriteAheadLog
from etcdfix.sources.wal.history import LogHistory
from tests.support.wal_writer import ModelEtcd, as_apiserver

KEYS = [b"/registry/secrets/a/%d" % n for n in range(4)]
LEASES = [b"/registry/leases/%d" % n for n in range(3)]

steps = st.lists(
    st.tuples(
        st.sampled_from(
            ["update", "update", "update", "beat", "beat", "stale", "refused", "retry", "delete", "put", "range",
             "grant", "revoke", "leased", "dead", "alarm", "calm", "commit", "cut", "superseded", "base"]
        ),
        st.integers(0, 3),
    ),
    max_size=60,
)  # fmt: skip


class Story:
    """Plays steps on a model."""

    def __init__(self, folder: Path) -> None:
        self.etcd = ModelEtcd()
        self.folder = folder
        self.bases: list[Path] = []
        self._count = 0

    def _value(self) -> bytes:
        self._count += 1
        return b"value %d, never written twice" % self._count

    def beat(self, times: int = 1) -> None:
        for _ in range(times):
            self.etcd.update(LEASES[self._count % len(LEASES)], self._value())

    def play(self, step: str, which: int) -> None:
        etcd, key = self.etcd, KEYS[which]
        held = etcd.keys.get(key)
        if step == "update":
            etcd.update(key, self._value())
        elif step == "beat":
            self.beat()
        elif step == "stale":
            etcd.update(key, self._value(), expected=max((held.mod if held else 0) - 1, 0))
        elif step == "refused":
            etcd.update(key, self._value(), refused=True)
        elif step == "retry":
            etcd.update(key, self._value(), refused=True)
            etcd.update(key, self._value())
        elif step == "delete":
            etcd.delete(key) if which % 2 else etcd.update(key, None)
        elif step == "put":
            etcd.put(key, self._value())
        elif step == "range":
            etcd.delete(b"/registry/secrets/", KEYS[which])
        elif step == "grant":
            etcd.grant(which + 1)
        elif step == "revoke":
            etcd.revoke(which + 1)
        elif step == "leased":
            etcd.update(key, self._value(), lease=which + 1)
        elif step == "dead":
            etcd.put(key, self._value(), lease=99)
        elif step == "alarm":
            etcd.alarm(on=True)
        elif step == "calm":
            etcd.alarm(on=False)
        elif step == "commit":
            etcd.log.commit()
        elif step == "cut":
            etcd.log.commit()
            etcd.log.cut()
        elif step == "superseded":
            self._superseded(which)
        elif step == "base":
            self.bases.append(etcd.database(self.folder / f"db{len(self.bases)}", term=bool(which % 2)))

    def _superseded(self, many: int) -> None:
        log = self.etcd.log
        log.commit()
        index = log.index
        for _ in range(many):
            log.entry(as_apiserver(KEYS[many], 0, self._value()))
        log.index = index
        log.term += 1


def check(directory: Path, etcd: ModelEtcd, others: Sequence[SnapshotSource] = ()) -> None:
    with WriteAheadLog(directory) as log:
        found = LogHistory(log, etcd.store(), others=others)
        for key in list(found.keys()):
            for one in found.writes(key):
                assert one.mod_revision is None or one.confidence is not Confidence.POSSIBLE
                if one.confidence is Confidence.CERTAIN:
                    assert not one.refused
                    assert etcd.truth.get((one.entry_index, key)) == (one.mod_revision, one.value)
        found.close()


@given(steps, st.integers(0, 2), st.booleans(), st.booleans())
def test_nothing_wrong_is_certain(steps: list[tuple[str, int]], keep: int, older: bool, whole: bool) -> None:
    with tempfile.TemporaryDirectory() as name:
        story = Story(Path(name))
        story.beat(4)
        for step, which in steps:
            story.play(step, which)
        etcd = story.etcd
        if whole:
            etcd.nospace = False
            etcd.alarm(on=False)
            story.beat(6)
        etcd.log.commit()
        directory = etcd.log.write(Path(name) / "wal", keep=min(keep, len(etcd.log.segments) - 1))
        sources = [SnapshotSource(path) for path in story.bases]
        check(directory, etcd, sources if older else ())
        for source in sources:
            source.close()


@given(steps, st.data())
def test_a_log_that_is_cut_or_damaged_neither_crashes_nor_lies(
    steps: list[tuple[str, int]], data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as name:
        story = Story(Path(name))
        story.beat(6)
        for step, which in steps:
            story.play(step, which)
        story.beat(6)
        etcd = story.etcd
        etcd.log.commit()
        directory = etcd.log.write(Path(name) / "wal")
        files = sorted(directory.iterdir())
        target = data.draw(st.sampled_from(files))
        raw = bytearray(target.read_bytes())
        filled = len(raw) - 4096
        if data.draw(st.booleans()):
            raw = raw[: data.draw(st.integers(0, filled))]
        else:
            for _ in range(data.draw(st.integers(1, 3))):
                bit = data.draw(st.integers(0, filled * 8 - 1))
                raw[bit // 8] ^= 1 << bit % 8
        target.write_bytes(raw)
        with contextlib.suppress(NotALog):
            check(directory, etcd)


@given(steps, st.integers(3, 40))
def test_of_a_copy_that_went_its_own_way_nothing_is_certain_beyond_the_fork(
    steps: list[tuple[str, int]], more: int
) -> None:
    with tempfile.TemporaryDirectory() as name:
        story, other = Story(Path(name)), Story(Path(name))
        for told in (story, other):
            told.beat(6)
            for step, which in steps:
                if step != "base":
                    told.play(step, which)
        fork = other.etcd.log.index
        other._count += 1000
        for _ in range(8):
            other.play("update", 1)
            other.beat()
        story.beat(more)
        other.etcd.log.commit()
        with WriteAheadLog(other.etcd.log.write(Path(name) / "wal")) as log:
            found = LogHistory(log, story.etcd.store())
            for key in list(found.keys()):
                for one in found.writes(key):
                    assert one.entry_index <= fork or one.confidence is not Confidence.CERTAIN
                    stood = one.mod_revision is not None and one.mod_revision <= story.etcd.revision
                    assert one.entry_index <= fork or not stood
            found.close()


@given(steps, steps, st.integers(0, 12))
def test_a_base_of_another_history_makes_nothing_wrong_certain(
    steps: list[tuple[str, int]], others: list[tuple[str, int]], before: int
) -> None:
    with tempfile.TemporaryDirectory() as name:
        story, other = Story(Path(name)), Story(Path(name))
        other._count = 1000
        story.beat(4)
        other.beat(before)
        for step, which in steps:
            story.play(step, which)
        for step, which in others:
            if step != "base":
                other.play(step, which)
        base = other.etcd.database(Path(name) / "other", term=False)
        story.etcd.log.commit()
        story.etcd.log.cut()
        for step, which in reversed(steps):
            story.play(step, which)
        story.beat(6)
        story.etcd.log.commit()
        log_of = story.etcd.log
        directory = log_of.write(Path(name) / "wal", keep=1 if len(log_of.segments) > 1 else 0)
        with SnapshotSource(base) as source:
            check(directory, story.etcd, [source])
