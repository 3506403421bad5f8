"""A scan with four jobs under a lost key where there is no room to keep what waits, or for further processes."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.job_runs import (
    JOBS,
    Command,
    Ended,
    adopting,
    configuration_file,
    local_etcd,
    without_loss,
    without_times,
)
from tests.support.objects import KEY_2, aesgcm, namespace_object, secret

pytestmark = pytest.mark.etcd

FINDINGS, INCOMPLETE = 1, 3
LOST: Final = 6_000
"""Of a lost key: what waits of them takes more than is kept in memory."""

NOBODY: Final = 65_534
ROOM: Final = (0, 64, 400)
"""KiB of a temporary directory; all that waits needs more."""


class Ground:
    """A store whose key is lost, and what a scan of it with one job and all the room says."""

    def __init__(self, endpoint: str, folder: Path) -> None:
        self.temporary = folder / "temporary"
        self.temporary.mkdir()
        self.arguments = (
            "scan", "-o", "json", "--endpoints", endpoint, "--encryption-config", configuration_file(folder),
        )  # fmt: skip
        self.expected = without_times(self.scan(jobs=1).finish(120).document)

    def scan(self, *more: str | Path, jobs: int = JOBS, temporary: Path | None = None, **how: Any) -> Command:
        return Command(temporary or self.temporary, (*self.arguments, "--jobs", str(jobs), *more), **how)


def lost_pairs() -> Iterator[tuple[bytes, bytes]]:
    yield b"/registry/namespaces/kube-system", namespace_object("kube-system")
    for number in range(LOST):
        key = f"/registry/secrets/shop/s-{number:05}"
        yield key.encode(), aesgcm(secret(f"s-{number:05}"), key, KEY_2)


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    with adopting(), local_etcd() as start_etcd:
        server = start_etcd()
        server.put_all(lost_pairs())
        found = Ground(server.endpoint, tmp_path_factory.mktemp("ground"))
        assert found.expected["summary"]["decrypt_failures"] == LOST
        assert found.expected["summary"]["key_loss"]
        yield found


@contextmanager
def small(folder: Path, kibibytes: int) -> Iterator[Path]:
    """Mount a file system of this size; of size 0 one that is full."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={max(kibibytes, 4)}k,mode=1777", "none", str(folder)]
    if os.getuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        place = folder / "temporary"
        place.mkdir()
        if not kibibytes:
            with (folder / "filled").open("wb") as stream:
                stream.write(bytes(shutil.disk_usage(folder).free))
        yield place
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def check_honest(ended: Ended, ground: Ground) -> None:
    """Fail unless the report says all that it would with more room, or that it does not, and why."""
    assert "Traceback" not in ended.err
    if ended.code == FINDINGS:
        assert without_times(ended.document) == ground.expected
        return
    assert ended.code in {INCOMPLETE, 5, 6}
    assert ended.err
    if ended.out and ended.out.rstrip().endswith(b"}"):
        document = ended.document
        assert not document["complete"]
        assert document["incomplete_reasons"]
        known = {finding["key"]: finding["cause"] for finding in ground.expected["findings"]}
        assert all(known[finding["key"]] == finding["cause"] for finding in document["findings"])
        if document["summary"]["keys"] == ground.expected["summary"]["keys"]:
            assert without_loss(document)["summary"]["by_cause"] == ground.expected["summary"]["by_cause"]


@pytest.mark.parametrize("kibibytes", ROOM)
@pytest.mark.parametrize("jobs", [1, JOBS])
def test_a_small_file_system(ground: Ground, tmp_path: Path, kibibytes: int, jobs: int) -> None:
    """Also for the report: it goes to another one."""
    with small(tmp_path / "small", kibibytes) as place:
        check_honest(ground.scan(jobs=jobs, temporary=place).finish(120), ground)


def test_a_small_file_system_for_the_report_too(ground: Ground, tmp_path: Path) -> None:
    """No report is better than a part of one that looks whole."""
    with small(tmp_path / "small", 400) as place:
        target = place.parent / "report.json"
        ended = ground.scan("--output-file", target, temporary=place).finish(120)
        assert "Traceback" not in ended.err
        assert ended.code not in {0, FINDINGS}
        assert "No space left on device" in ended.err
        assert [entry.name for entry in place.parent.iterdir()] == ["temporary"]
