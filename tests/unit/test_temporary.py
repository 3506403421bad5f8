"""Temporary files: nothing of them stays, wherever a signal breaks in."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from etcdfix.temporary import temporary_directory, temporary_file
from tests.support.breaking_in import break_in


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that Python has not tried yet."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def test_a_file_without_a_name(place: Path) -> None:
    with temporary_file() as file:
        file.write(b"kept")
        file.seek(0)
        assert file.read() == b"kept"
        assert list(place.iterdir()) == []
    assert temporary_directory() == str(place)


def test_without_a_buffer_all_is_written_at_once(place: Path) -> None:
    with temporary_file(buffering=0) as file:
        file.write(b"kept")
        assert os.fstat(file.fileno()).st_size == len(b"kept")
    assert list(place.iterdir()) == []


# The signal is heard when the file is there, and then nobody holds it: Python closes it, and says so.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("nameless", [True, False], ids=["no name at all", "a name for a moment"])
def test_a_signal_leaves_nothing(place: Path, monkeypatch: pytest.MonkeyPatch, *, nameless: bool) -> None:
    """A file system without O_TMPFILE gives a file a name first."""
    monkeypatch.setattr(tempfile, "_O_TMPFILE_WORKS", nameless)

    def work() -> None:
        monkeypatch.setattr(tempfile, "tempdir", None)
        temporary_file().close()

    reached, number = True, 0
    open_before = len(list(Path("/proc/self/fd").iterdir()))
    while reached:
        reached = break_in(number, work)
        assert list(place.iterdir()) == []
        assert len(list(Path("/proc/self/fd").iterdir())) == open_before
        number += 1
    assert number > 10  # Python looked for signals in between
