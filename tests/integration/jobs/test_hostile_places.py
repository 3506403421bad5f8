"""A scan with four jobs where the system gives little, where others put their code, and with secrets all about."""

from __future__ import annotations

import base64
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from etcdfix.testing.servers import EtcdServer
from tests.support.collecting import REPOSITORY
from tests.support.job_runs import JOBS, Ended, Ground, adopting, pairs, without_times
from tests.support.objects import KEY_1

pytestmark = pytest.mark.etcd
FINDINGS, INCOMPLETE = 1, 3
PLAINTEXT = b"never-to-be-shown"


@pytest.fixture(scope="module")
def ground(
    start_local_etcd: Callable[..., EtcdServer], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Ground]:
    with adopting():
        server = start_local_etcd()
        server.put_all(pairs())
        yield Ground(server.endpoint, tmp_path_factory.mktemp("ground"))


def check_whole(ended: Ended, ground: Ground) -> None:
    assert (ended.code, ended.err) == (FINDINGS, "")
    assert without_times(ended.document) == ground.expected


def test_code_of_others_is_not_imported_by_workers(ground: Ground, tmp_path: Path) -> None:
    """The first process is started as its user likes; its workers import from where it does, and nowhere else."""
    hostile, seen = tmp_path / "hostile", tmp_path / "seen"
    (hostile / "etcdfix" / "examine" / "workers").mkdir(parents=True)
    (hostile / "multiprocessing").mkdir()
    text = f"import os; open({str(seen)!r}, 'a').write(str(os.getpid()) + '\\n')\n"
    for name in ("json.py", "msgspec.py", "mmap.py", "sitecustomize.py", "usercustomize.py", "startup.py",
                 "etcdfix/__init__.py", "etcdfix/examine/workers/__init__.py", "etcdfix/examine/workers/pool.py",
                 "multiprocessing/__init__.py"):  # fmt: skip
        (hostile / name).write_text(text)
    started = (
        f"import sys; sys.path.insert(0, {str(REPOSITORY)!r}); from etcdfix.cli.root import main; main()"
    )
    command = ground.scan(
        interpreter=(sys.executable, "-I", "-c", started),
        options={"cwd": hostile},
        environment={
            "PYTHONPATH": str(hostile),
            "PYTHONSTARTUP": str(hostile / "startup.py"),
            "PYTHONUSERBASE": str(hostile),
            "PYTHONHOME": "",
        },
    )
    check_whole(command.finish(), ground)
    assert not seen.exists()


def is_code(name: str) -> bool:
    installed = Path(name).is_relative_to(sys.prefix) or Path(name).is_relative_to(sys.base_prefix)
    return installed or name.endswith((".py", ".pyc", ".so")) or Path(name).is_dir()


def test_secrets_are_in_no_place_of_a_worker(ground: Ground) -> None:
    """Neither in arguments nor in the environment nor in a file that it holds; it holds none."""
    forbidden = [KEY_1, base64.b64encode(KEY_1), KEY_1.hex().encode(), PLAINTEXT, b"pass:word-of-etcd"]
    command = ground.scan(environment={"ETCDCTL_PASSWORD": "pass:word-of-etcd", "ETCDCTL_USER": ""})
    seen: dict[int, bytes] = {}
    files: set[str] = set()
    while command.process.poll() is None and (len(seen) < JOBS or len(files) < 1):
        for pid in command.workers():
            try:
                proc = Path(f"/proc/{pid}")
                if b"spawn_main" in (words := (proc / "cmdline").read_bytes()):
                    seen[pid] = words + (proc / "environ").read_bytes()
                    files |= {str(entry.readlink()) for entry in (proc / "fd").iterdir()}
            except OSError:
                continue
        if any(list(ground.temporary.iterdir())):
            raise AssertionError("a temporary file has a name")
    ended = command.finish()
    assert len(seen) == JOBS
    for data in (*seen.values(), ended.err.encode(), ended.out):
        assert not any(word in data for word in forbidden)
    assert not {name for name in files if name.startswith("/") and name != "/dev/null" and not is_code(name)}
