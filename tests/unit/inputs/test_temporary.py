"""Temporary files: nothing of them stays, wherever a signal breaks in."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from etcdfix.inputs.temporary import Seal, temporary_directory, temporary_file
from tests.support.breaking_in import Heard, heard


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
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


def test_what_is_sealed_opens_with_its_own_seal_alone_and_whole() -> None:
    seal = Seal()
    one, other = seal.close(b"decrypted"), seal.close(bytearray(b"decrypted"))
    assert one != other
    assert b"decrypted" not in one + other
    assert seal.open(one) == seal.open(other) == b"decrypted"
    for damaged in (b"", one[:-1], one[:11], bytes([one[0] ^ 1]) + one[1:], Seal().close(b"decrypted")):
        with pytest.raises(OSError, match="not as it was written"):
            seal.open(damaged)


@pytest.mark.parametrize("nameless", [True, False], ids=["no name at all", "a name for a moment"])
@pytest.mark.parametrize("made", [temporary_directory, temporary_file])
def test_a_signal_leaves_nothing(
    place: Path, monkeypatch: pytest.MonkeyPatch, made: Callable[[], object], *, nameless: bool
) -> None:
    """A file system without O_TMPFILE gives a file a name first; the directory is tried with one in any case."""
    monkeypatch.setattr(tempfile, "_O_TMPFILE_WORKS", nameless)
    opened = os.open

    def interrupted(*where: Any, **how: Any) -> int:
        descriptor = opened(*where, **how)
        signal.raise_signal(signal.SIGTERM)
        return descriptor

    monkeypatch.setattr(os, "open", interrupted)
    with heard(), pytest.raises(Heard):
        made()
    assert list(place.iterdir()) == []
