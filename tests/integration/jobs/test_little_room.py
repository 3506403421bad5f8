"""A scan with four jobs under a lost key where there is no room to keep what waits, or for further processes."""

from __future__ import annotations

import ctypes
import os
import resource
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from etcdfix.testing.servers import EtcdServer
from tests.support.job_runs import JOBS, Ended, Ground, adopting, without_loss, without_times
from tests.support.objects import KEY_2, aesgcm, namespace_object, secret
from tests.support.thorough import some

pytestmark = pytest.mark.etcd

FINDINGS, INCOMPLETE, SOURCE = 1, 3, 5
LOST: Final = 6_000
"""Of a lost key: what waits of them takes more than is kept in memory."""

# <linux/prctl.h>, <linux/capability.h>: to read what root may, and nothing else of root's.
_PR_SET_KEEPCAPS, _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE = 8, 47, 2
_CAPABILITY_VERSION_3: Final = 0x2008_0522
_MAY_READ: Final = (1, 2)
USER: Final = 61_000
SNAPSHOT: Final = "snapshot.db"
ROOM: Final = (0, 64, 400)
"""KiB of a temporary directory; all that waits needs more."""


def lost_pairs() -> Iterator[tuple[bytes, bytes]]:
    yield b"/registry/namespaces/kube-system", namespace_object("kube-system")
    for number in range(LOST):
        key = f"/registry/secrets/shop/s-{number:05}"
        yield key.encode(), aesgcm(secret(f"s-{number:05}"), key, KEY_2)


@pytest.fixture(scope="module")
def ground(start_local_etcd: Callable[..., EtcdServer]) -> Iterator[Ground]:
    # Other users must reach it.
    with adopting(), tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        server = start_local_etcd()
        server.put_all(lost_pairs())
        found = Ground(server.endpoint, Path(folder))
        assert found.expected["summary"]["decrypt_failures"] == LOST
        assert found.expected["summary"]["key_loss"]
        server.etcdctl("snapshot", "save", found.folder / SNAPSHOT)
        for path in (found.folder / SNAPSHOT, found.configuration):
            path.chmod(0o644)
        yield found


@contextmanager
def small(folder: Path, kibibytes: int) -> Iterator[Path]:
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
    assert "Traceback" not in ended.err
    if ended.code == FINDINGS:
        assert without_times(ended.document) == ground.expected
        return
    assert ended.code in {INCOMPLETE, SOURCE, 6}
    assert ended.err
    if ended.out and ended.out.rstrip().endswith(b"}"):
        document = ended.document
        assert not document["complete"]
        assert document["incomplete_reasons"]
        known = {finding["key"]: finding["cause"] for finding in ground.expected["findings"]}
        assert all(known[finding["key"]] == finding["cause"] for finding in document["findings"])
        if document["summary"]["keys"] == ground.expected["summary"]["keys"]:
            assert without_loss(document)["summary"]["by_cause"] == ground.expected["summary"]["by_cause"]


@pytest.mark.parametrize(("kibibytes", "jobs"), some([(s, j) for s in ROOM for j in (JOBS, 1)], of=2))
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


def few_processes(user: int, most: int) -> Callable[[], None]:
    capability = sum(1 << number for number in _MAY_READ)
    head = struct.pack("=Ii", _CAPABILITY_VERSION_3, 0)
    sets = struct.pack("=6I", capability, capability, capability, 0, 0, 0)

    def become() -> None:
        libc = ctypes.CDLL(None)
        libc.prctl(_PR_SET_KEEPCAPS, 1, 0, 0, 0)
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
        libc.capset(head, sets)
        for number in _MAY_READ:  # this checkout may lie where others cannot read
            libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, number, 0, 0)
        resource.setrlimit(resource.RLIMIT_NPROC, (most, most))

    return become


@pytest.mark.parametrize("where", ["etcd", "file"])
@pytest.mark.parametrize("most", some([1, 2, 4, 8, 16, 24, 60], of=4))
def test_a_user_who_may_have_few_processes(ground: Ground, where: str, most: int) -> None:
    """The kernel's own limit: threads count as well. What needs none is done in the first process."""
    if os.getuid() != 0:
        pytest.skip("only root can be somebody else")
    place: tuple[str | Path, ...] = ()
    expected = ground.expected
    if where == "file":
        place = ("--snapshot", ground.folder / SNAPSHOT)
        expected = without_times(ground.scan(jobs=1, where=place).finish(120).document)
    temporary = ground.folder / f"of-{where}-{most}"
    temporary.mkdir(mode=0o777)
    os.chown(temporary, USER + most, USER + most)
    options = {"preexec_fn": few_processes(USER + most, most)}
    ended = ground.scan(where=place, temporary=temporary, options=options).finish(120)
    if where == "etcd" and most < 10:
        assert (ended.code, ended.out) == (SOURCE, b"")
        assert "the system gives this process too few threads" in ended.err
        return
    assert ended.code in {FINDINGS, INCOMPLETE}, ended.err
    assert without_loss(ended.document) == without_loss(expected)
