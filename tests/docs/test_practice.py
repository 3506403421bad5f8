"""Clusters to practise on: what stands in ``fixtures/practice``, and the program that starts them."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest

from etcdfix.testing.places import NoEtcdError, find_tools

REPOSITORY = Path(__file__).parents[2]
PROGRAM = REPOSITORY / "fixtures" / "practice.py"
PRACTICE = REPOSITORY / "fixtures" / "practice"

Run = Callable[..., subprocess.CompletedProcess[str]]


def _module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("practice", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextmanager
def practising(folder: Path, *, path: str) -> Iterator[Run]:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, PROGRAM, *words],
            cwd=folder,
            env={"HOME": str(folder), "PATH": path},
            capture_output=True,
            text=True,
            check=False,
        )

    try:
        yield run
    finally:
        run("stop")


@pytest.fixture
def etcd_path(tmp_path: Path) -> str:
    try:
        tools = find_tools()
    except NoEtcdError as exc:
        pytest.skip(str(exc))
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "etcd").symlink_to(tools.etcd)
    (folder / "etcdctl").symlink_to(tools.ctl)
    if tools.utl is not None:
        (folder / "etcdutl").symlink_to(tools.utl)
    return str(folder)


def test_the_files_are_those_of_the_manifest() -> None:
    entries = tomllib.loads((PRACTICE / "MANIFEST.toml").read_text())["file"]
    found = {path.name for path in PRACTICE.iterdir()} - {"MANIFEST.toml"}
    assert {entry["path"] for entry in entries} == found
    for entry in entries:
        digest = hashlib.sha256((PRACTICE / entry["path"]).read_bytes()).hexdigest()
        assert digest == entry["sha256"], entry["path"]
        assert entry["test_keys_only"] is True


@pytest.mark.etcd
def test_it_starts_once_and_stops(tmp_path: Path, etcd_path: str) -> None:
    with practising(tmp_path, path=etcd_path) as run:
        started = run("start", "lost-key")
        assert started.returncode == 0, started.stderr
        folder = tmp_path / "practice"
        settings = (folder / "settings").read_text()
        endpoint = re.search(r"ETCDCTL_ENDPOINTS=(127\.0\.0\.1:\d+)", settings)
        assert endpoint is not None
        health = subprocess.run(
            [Path(etcd_path) / "etcdctl", f"--endpoints={endpoint[1]}", "endpoint", "health"],
            env={**os.environ, "ETCDCTL_API": "3"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert health.returncode == 0, health.stderr
        assert {path.name for path in folder.rglob("*.yaml")} == {
            "enc.yaml",
            "node-2.yaml",
            "old-backup.yaml",
        }
        assert oct(folder.stat().st_mode & 0o777) == "0o700"
        again = run("start", "lost-key")
        assert again.returncode == 2
        assert "is there already. To go on with it: source practice/settings && cd practice. " in again.stderr
        stopped = run("stop")
        assert stopped.returncode == 0, stopped.stderr
        assert run("stop").stderr == "practice: its etcd does not run any more\n"


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_what_leads_to_another_cluster_is_forgotten(shell: str) -> None:
    """Who practises at a terminal from which a cluster was looked at must not change that one."""
    other = {
        "ETCDFIX_ENDPOINTS": "10.0.0.1:2379",
        "ETCDCTL_CACERT": "ca.crt",
        "ETCDFIX_CONFIG": "a b",
        "OTHER": "kept",
    }
    done = subprocess.run(
        [shell, "-ec", f"{_module().FORGET}\nenv | cut -d= -f1"],
        env={"PATH": os.environ["PATH"], **other},
        capture_output=True,
        text=True,
        check=True,
    )
    assert [name for name in done.stdout.split() if name in other] == ["OTHER"]


def test_another_process_is_never_ended(tmp_path: Path) -> None:
    """Only the etcd on the data of this very folder: no other program, and no other folder's."""
    (tmp_path / "practice").mkdir()
    other = f"--data-dir={tmp_path / 'practice' / 'etcd-2'}"
    waits = "import sys; sys.stdin.read()"
    with (
        subprocess.Popen([sys.executable, "-c", waits, other], stdin=subprocess.PIPE) as process,
        practising(tmp_path, path=os.environ["PATH"]) as run,
    ):
        assert run("stop").stderr == "practice: its etcd does not run any more\n"
        assert process.poll() is None
