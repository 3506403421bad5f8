"""The file of a kine that goes on, read again and again: each time as it stands then, and as whoever comes first."""

from __future__ import annotations

import itertools
import shutil
import sqlite3
import threading
from pathlib import Path
from typing import Any, Self

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etcdfix.errors import EtcdfixError, NotAKineFile, SourceError
from etcdfix.sources.kine import KineSource
from tests.support.kine import KineWriter, Release
from tests.support.thorough import THOROUGH

KEYS = [b"/registry/configmaps/shop/a", b"/registry/configmaps/shop/b", b"/registry/secrets/shop/c"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "db" / "state.db"


class Kine:
    """A kine that is stopped, killed, started and replaced; its file lies in a directory of its own.

    Attributes:
        path: ``state.db``.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir()
        self.path = path
        self._log = Path(f"{path}-wal")
        self._other = path.parent.with_name("other")
        self._counter = itertools.count()
        self._writer: KineWriter | None = self._opened()
        self.write(4)

    def _opened(self) -> KineWriter:
        writer = KineWriter(self.path)
        writer.connection.execute("PRAGMA synchronous=OFF")  # hundreds of checkpoints
        return writer

    def write(self, amount: int) -> None:
        """Put and delete a few keys; nothing where it is stopped."""
        if self._writer is None:
            return
        for number in range(amount + 1):
            key = KEYS[number % len(KEYS)]
            self._writer.put(key, b"%d" % next(self._counter) * 700)
        if amount % 3 == 0:
            self._writer.delete(KEYS[0])

    def do(self, what: str, amount: int) -> None:
        """Do one thing to it, where that can be done now."""
        try:
            self._do(what, amount)
        except sqlite3.DatabaseError:  # what is damaged may not be written any more
            self.stop()

    def _do(self, what: str, amount: int) -> None:
        if what in {"PASSIVE", "FULL", "RESTART", "TRUNCATE"} and self._writer is not None:
            self._writer.checkpoint(what)
        elif what == "vacuum" and self._writer is not None:
            self._writer.connection.execute("VACUUM")
        elif what == "compact" and self._writer is not None:
            self._writer.compact(max(1, self._writer.newest - amount))
        elif what == "stop":
            self.stop()
        elif what == "kill":
            self.kill()
        elif what == "start":
            self.start()
        elif what == "replace":
            self.replace(amount)
        elif what == "cut" and self._writer is None and self._log.exists():
            content = self._log.read_bytes()
            self._log.write_bytes(content[: max(0, len(content) - 1 - amount * 900)])
        elif what == "flip" and self._writer is None:
            damaged = self._log if self._log.exists() and amount % 2 else self.path
            flipped = bytearray(damaged.read_bytes())
            if flipped:
                flipped[len(flipped) * (amount + 1) // 32] ^= 0x10
            damaged.write_bytes(flipped)
        elif what == "write":
            self.write(amount)

    def start(self) -> None:
        """Open the file as k3s does: its log is brought in."""
        if self._writer is None:
            self._writer = self._opened()
            self._writer.checkpoint("TRUNCATE")

    def stop(self) -> None:
        """Close it: there is no log then."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def kill(self) -> None:
        """End it without closing: the log stays."""
        if self._writer is None:
            return
        for file in (self.path, self._log):
            shutil.copy(file, f"{file}.kept")
        self.stop()
        for file in (self.path, self._log):
            Path(f"{file}.kept").replace(file)

    def replace(self, amount: int) -> None:
        """Put another file in its place, as a restored backup is."""
        self.stop()
        self._log.unlink(missing_ok=True)
        self._other.mkdir()
        other = KineWriter(self._other / "state.db", list(Release)[amount % 3])
        for number in range(amount):
            other.put(KEYS[number % 3], b"other%d" % number)
        other.close()
        (self._other / "state.db").replace(self.path)
        self._other.rmdir()


def all_of(source: KineSource) -> dict[str, Any]:
    """Everything that a source says."""
    found: dict[str, Any] = {
        "path": source.path,
        "revision": source.revision,
        "description": source.describe(),
        "compacted": source.compacted_revision(),
    }
    for name in ("estimate", "superseded"):
        try:
            said = getattr(source, name)()
            found[name] = said if name == "estimate" else list(said)
        except EtcdfixError as exc:
            found[name] = str(exc)
    try:
        found["current"] = list(source.current(b""))
        found["history"] = {key: list(source.history(key)) for key in KEYS}
    except EtcdfixError as exc:
        found["refused"] = str(exc)
    return {**found, "problems": source.problems}


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "write", "write", "PASSIVE", "FULL", "RESTART", "TRUNCATE", "vacuum", "compact",
                "stop", "kill", "start", "start", "replace", "cut", "flip",
            ]
        ),
        st.integers(0, 30),
    ),
    max_size=14,
)  # fmt: skip


@settings(max_examples=1000 if THOROUGH else 50)
@given(STEPS)
def test_again_is_what_whoever_comes_now_reads(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]
) -> None:
    folder = tmp_path_factory.mktemp("again")
    kine = Kine(folder / "db" / "state.db")
    sources = [KineSource(kine.path)]
    said = [all_of(sources[0])]
    for what, amount in steps:
        kine.do(what, amount)
        try:
            with KineSource(kine.path) as fresh:
                expected = all_of(fresh)
        except SourceError as exc:
            with pytest.raises(SourceError) as caught:
                sources[-1].again()
            assert str(caught.value) == str(exc)  # noqa: PT017 - one refusal beside the other
            continue
        sources.append(sources[-1].again())
        said.append(all_of(sources[-1]))
        assert said[-1] == expected
    for source, then in zip(sources, said, strict=True):
        assert all_of(source) == then  # whatever happened to the file since
        source.close()
    kine.stop()
    shutil.rmtree(folder)


class Busy:
    """A kine that writes without a pause, in a thread: two keys in one transaction, and all that it does to a file.

    Attributes:
        committed: The newest revision that is committed for certain.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir()
        self._writer = KineWriter(path)
        self.committed = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._write)

    def __enter__(self) -> Self:
        self._pair(0)
        self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._stopping.set()
        self._thread.join()
        self._writer.close()

    def _pair(self, count: int) -> None:
        with self._writer._transaction():
            for key in KEYS[:2]:
                before, created, _, begins, _, held = self._writer._newest(key) or (0, 0, 0, 0, 0, None)
                fresh, begins = int(not before), before if created else begins
                self._writer._insert(key, fresh, 0, begins, before, 0, b"%d" % count * 900, held)
        self.committed = self._writer.newest

    def _write(self) -> None:
        modes = itertools.cycle(["PASSIVE", "FULL", "RESTART", "TRUNCATE", "vacuum"])
        for count in itertools.count(1):
            if self._stopping.wait(0.001):
                return
            self._pair(count)
            if count % 40 == 0:
                self._writer.compact(self._writer.newest - 2)
                mode = next(modes)
                if mode == "vacuum":
                    self._writer.connection.execute("VACUUM")
                else:
                    self._writer.checkpoint(mode)


def test_beside_a_writer_it_is_of_one_moment_and_never_older_than_the_call(
    path: Path, temporary: Path
) -> None:
    found: set[int] = set()
    refusals: list[str] = []
    with Busy(path) as kine:
        first = source = KineSource(path)
        begun = all_of(first)
        for _ in range(60):
            known = kine.committed
            try:
                later = source.again()
            except SourceError as exc:
                refusals.append(exc.message)
                continue
            assert list(temporary.iterdir()) == []
            assert later.revision >= known >= source.revision - 2
            values = [stored.value for stored in later.current(b"/registry/configmaps/")]
            assert len(values) == 2
            assert len(set(values)) == 1  # both of one transaction
            assert later.problems == []
            if source is not first:
                source.close()
            source = later
            found.add(later.revision)
    assert len(found) > 10
    assert all("began anew during each" in refusal for refusal in refusals)
    assert all_of(first) == begun
    first.close()
    source.close()
    assert list(temporary.iterdir()) == []
    assert {file.name for file in path.parent.iterdir()} == {"state.db"}


def test_it_is_at_the_newest_revision_whatever_the_one_before_was_pinned_at(path: Path) -> None:
    path.parent.mkdir()
    writer = KineWriter(path)
    for _ in range(3):
        writer.put(KEYS[0], b"1")
    with KineSource(path, revision=2) as source:
        writer.put(KEYS[0], b"2")
        assert (source.path, source.revision) == (path, 2)
        with source.again() as later:
            assert (later.path, later.revision) == (path, 5)
        assert source.revision == 2  # the one closed, the other is still there
        assert source.get(KEYS[0]) is not None
    writer.close()


def test_a_revision_costs_no_digest(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.parent.mkdir()
    KineWriter(path).close()
    with KineSource(path) as source:
        monkeypatch.setattr("hashlib.file_digest", pytest.fail)
        with source.again() as later:
            assert later.revision == 1


def test_damage_that_came_since_is_told(path: Path) -> None:
    path.parent.mkdir()
    writer = KineWriter(path)
    for number in range(400):
        writer.put(b"/registry/configmaps/shop/c%03d" % number, b"x" * 900)
    writer.close()
    whole = path.read_bytes()
    with KineSource(path) as source:
        assert source.problems == []
        damaged = bytearray(whole)
        damaged[len(damaged) // 2 : len(damaged) // 2 + 4096] = b"\xff" * 4096
        path.write_bytes(damaged)
        with source.again() as later:
            assert "the database is damaged" in later.problems[0]
            with later.again() as third:
                assert third.problems == later.problems
            path.write_bytes(whole)
            with later.again() as cured:
                assert cured.problems == []
        assert source.problems == []
        path.unlink()
        with pytest.raises(NotAKineFile, match="No such file"):
            source.again()


def test_that_no_log_is_there_is_said_when_that_is_new(path: Path) -> None:
    path.parent.mkdir()
    said: list[str] = []
    writer = KineWriter(path)
    writer.put(KEYS[0], b"1")
    with KineSource(path, on_notice=said.append) as source:
        source.again().close()
        assert said == []
        writer.close()
        with source.again() as later:
            assert len(said) == 1
            later.again().close()
    assert len(said) == 1
