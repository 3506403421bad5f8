"""Files that somebody names: regular ones, and no more of them than their kind may have."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from etcdfix.apiserver.kubeconfig import APIAccess, open_access
from etcdfix.encryption.config import load_configuration
from etcdfix.inputs.inputfile import STANDARD_INPUT, mapped_input, open_input, read_input
from etcdfix.inputs.manifest import load_manifest
from etcdfix.model.errors import EtcdfixError
from etcdfix.remediation.backup.file import read_backup
from etcdfix.report.planfile import load_plan
from etcdfix.report.saved_report import load_baseline, load_report
from etcdfix.sources.etcd import tls
from etcdfix.sources.snapshot import SnapshotSource
from tests.support.reports import header

FIELDS = {
    name: value for name, value in msgspec.structs.asdict(header()).items() if value is not msgspec.UNSET
}
HEADER = msgspec.json.encode({**FIELDS, "apiVersion": "etcdfix/v1", "kind": "ScanHeader"}) + b"\n"

READERS: dict[str, Callable[[Path], object]] = {
    "baseline": load_baseline,
    "report": load_report,
    "plan": load_plan,
    "configuration": load_configuration,
    "manifest": load_manifest,
    "backup": read_backup,
    "certificate": lambda path: tls._read(str(path), "--cacert"),
    "kubeconfig": lambda path: open_access(APIAccess(path)),
    "snapshot": SnapshotSource,
}


def _pipe(folder: Path) -> Path:
    os.mkfifo(folder / "pipe")
    return folder / "pipe"


def _socket(folder: Path) -> Path:
    # A path of a socket is short.
    with socket.socket(socket.AF_UNIX) as listening, contextlib.chdir(folder):
        listening.bind("socket")
    return folder / "socket"


NO_FILES: dict[str, Callable[[Path], Path]] = {
    "pipe": _pipe,
    "socket": _socket,
    "zero": lambda _: Path("/dev/zero"),
    "null": lambda _: Path("/dev/null"),
    "terminal": lambda _: Path("/dev/ptmx"),
    "directory": lambda folder: folder,
    "missing": lambda folder: folder / "missing",
}


@pytest.mark.parametrize(
    ("reader", "what"), [*((reader, "pipe") for reader in READERS), *(("report", what) for what in NO_FILES)]
)
def test_what_is_no_file_is_one_clear_line(reader: str, what: str, tmp_path: Path) -> None:
    """Nothing is waited for, and nothing eats the memory."""
    path = NO_FILES[what](tmp_path)
    with pytest.raises(EtcdfixError) as caught:
        READERS[reader](path)
    assert "\n" not in caught.value.message
    assert str(path) in caught.value.message


def test_a_link_leads_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"text")
    (tmp_path / "link").symlink_to("file")
    assert read_input(tmp_path / "link", most_bytes=4) == b"text"
    with pytest.raises(OSError, match="symbolic") as caught:
        read_input(tmp_path / "link", most_bytes=4, follow=False)
    assert caught.value.errno == errno.ELOOP


def test_a_sparse_file_is_not_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "sparse"
    with path.open("wb") as stream:
        stream.truncate(1 << 40)
    for reader in ("manifest", "configuration", "certificate", "kubeconfig"):
        with pytest.raises(EtcdfixError, match="larger than"):
            READERS[reader](path)


def test_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"text")))
    assert read_input(STANDARD_INPUT, most_bytes=4, standard_input=True) == b"text"
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError):
        read_input(STANDARD_INPUT, most_bytes=4)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a longer text")))
    with pytest.raises(OSError, match="larger"):
        read_input(STANDARD_INPUT, most_bytes=4, standard_input=True)
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(OSError, match="standard input is closed"), open_input(STANDARD_INPUT):
        pass


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (HEADER + b'{"kind"\n', "cannot be used as a report"),
        (b'{"kind":"Other"}', "its kind is Other"),
        (b"", "cannot be used as a report"),
    ],
)
def test_a_baseline_that_is_none(text: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "report"
    path.write_bytes(text)
    with pytest.raises(EtcdfixError, match=words):
        load_baseline(path)


def test_a_mapped_file_is_a_copy_that_nobody_cuts_short(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_bytes(b"x" * 5000)
    with mapped_input(path, most_bytes=5000) as mapped:
        path.write_bytes(b"")
        assert mapped[:] == b"x" * 5000
        part = memoryview(mapped)[10:20]
    assert bytes(part) == b"x" * 10
    with mapped_input(path, most_bytes=5000) as mapped:
        assert mapped == b""
    path.write_bytes(b"x" * 5001)
    with pytest.raises(OSError, match="larger than 5000 bytes"), mapped_input(path, most_bytes=5000):
        pass
