"""The image archive, as each engine takes it: without network, read-only, without rights, and not as root."""

from __future__ import annotations

import contextlib
import filecmp
import hashlib
import json
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from etcdfix.testing.places import find_tools
from tests.offline.conftest import only
from tests.support.nowhere import NOBODY, completed
from tests.support.offline_jobs import (
    ALPHA,
    REPOSITORY,
    Run,
    check_a_deletion,
    check_the_scan,
    etcd_arguments,
    restored_alpha,
    running,
)

NAME = "localhost/etcdfix"
OURS = dict(os.environ)  # where the engine is
_CAPPED = (
    "--ulimit=nofile=1024:1024",
    "--ulimit=nproc=1024:1024",
)  # podman asks for more than it may have here


def _docker(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return completed(["docker", *arguments], env=OURS)


@pytest.fixture(scope="module")
def image(archives: Path) -> Path:
    return only(archives, "*-image.tar")


@pytest.fixture(scope="module")
def name(image: Path) -> str:
    with tarfile.open(image) as tar:
        index = tar.extractfile("index.json")
        assert index is not None
        (manifest,) = json.load(index)["manifests"]
    named: str = manifest["annotations"]["org.opencontainers.image.ref.name"]
    assert named.startswith(f"{NAME}:")
    return named


@pytest.fixture(scope="module")
def engine(image: Path, name: str) -> Iterator[Callable[..., subprocess.CompletedProcess[str]]]:
    """Docker, which has taken the image."""
    if shutil.which("docker") is None or _docker("info").returncode:
        pytest.skip("no Docker engine answers")
    loaded = _docker("load", "--input", image)
    assert loaded.returncode == 0, loaded
    assert loaded.stdout.strip().endswith(name)
    yield _docker
    _docker("image", "rm", "--force", name)


def _confined(network: str = "none") -> list[str]:
    return [
        f"--network={network}", "--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges",
        "--tmpfs=/tmp:noexec", f"--volume={REPOSITORY / ALPHA}:/data/{ALPHA}:ro", "--workdir=/data",
    ]  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Mounted as ``/records``, for the user of the image."""
    made = tmp_path / "records"
    made.mkdir(mode=0o700)
    os.chown(made, NOBODY, NOBODY)
    return made


def test_docker_takes_it_and_scans_alpha(engine: Callable[..., object], name: str) -> None:
    assert engine is _docker
    check_the_scan(lambda *arguments: _docker("run", "--rm", *_confined(), name, *arguments))


def test_it_says_its_help_and_is_not_root(engine: Callable[..., object], name: str) -> None:
    assert engine is _docker
    assert _docker("run", "--rm", *_confined(), name).stdout.startswith("Usage: etcdfix ")
    config = json.loads(_docker("image", "inspect", name).stdout)[0]["Config"]
    assert config["User"] == f"{NOBODY}:{NOBODY}"
    assert config["Entrypoint"] == ["etcdfix"]


def test_one_object_of_a_live_etcd_is_deleted(
    engine: Callable[..., object], name: str, folder: Path, tmp_path: Path
) -> None:
    """etcd is a static program: it runs in a container of the same image, whose loopback ours shares."""
    assert engine is _docker
    restored_alpha(tmp_path)
    etcd = f"etcdfix-test-{os.getpid()}"
    command = [
        "docker", "run", "--rm", f"--name={etcd}", "--network=none", "--user=0:0", "--entrypoint=/etcd",
        f"--volume={find_tools().etcd}:/etcd:ro", f"--volume={tmp_path / 'data'}:/data", name, *etcd_arguments(""),
    ]  # fmt: skip

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        mounted = f"--volume={folder}:/records"
        return _docker("run", "--rm", *_confined(f"container:{etcd}"), mounted, name, *arguments)

    try:
        with running(command, tmp_path / "log"):
            check_a_deletion(run, "/records")
    finally:
        _docker("rm", "--force", etcd)


def test_podman_takes_it_and_scans_alpha(image: Path, name: str) -> None:
    if shutil.which("podman") is None:
        pytest.skip("podman is not installed")
    with tempfile.TemporaryDirectory(prefix="pod-") as folder:  # podman takes no long path
        podman = [
            "podman", f"--root={folder}/root", f"--runroot={folder}/run", f"--tmpdir={folder}/tmp",
            "--storage-driver=vfs", "--events-backend=file", "--cgroup-manager=cgroupfs",
        ]  # fmt: skip
        loaded = completed([*podman, "load", "--input", image], env=OURS)
        assert loaded.returncode == 0, loaded
        assert loaded.stdout.strip().endswith(name)

        def run(*arguments: str) -> subprocess.CompletedProcess[str]:
            return completed([*podman, "run", "--rm", *_CAPPED, *_confined(), name, *arguments], env=OURS)

        check_the_scan(run)


@contextlib.contextmanager
def _containerd(folder: Path) -> Iterator[Run]:
    """Give ``ctr`` of a containerd of our own."""
    socket = folder / "sock"
    command = [
        "containerd",
        f"--root={folder / 'root'}",
        f"--state={folder / 'state'}",
        f"--address={socket}",
    ]
    (folder / "config.toml").write_text('version = 2\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]\n')
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen([*command, f"--config={folder / 'config.toml'}"], stdout=log, stderr=log) as process,
    ):
        try:
            ctr = ["ctr", f"--address={socket}", "--connect-timeout=30s"]
            while not socket.exists():
                assert process.poll() is None, (folder / "log").read_text()
            yield lambda *arguments: completed([*ctr, *arguments], env=OURS)
        finally:
            process.terminate()


def test_containerd_takes_it_and_scans_alpha(image: Path, name: str, tmp_path: Path) -> None:
    """As ``ctr images import`` does; the network of a container that asks for none is its own loopback, and down."""
    if shutil.which("containerd") is None or shutil.which("ctr") is None:
        pytest.skip("containerd is not installed")
    mount = f"type=bind,src={REPOSITORY / ALPHA},dst=/data/{ALPHA},options=rbind:ro"
    with _containerd(tmp_path) as ctr:
        imported = ctr("images", "import", "--snapshotter=native", str(image))
        assert imported.returncode == 0, imported
        assert name in ctr("images", "list", "--quiet").stdout.splitlines()

        def run(*arguments: str) -> subprocess.CompletedProcess[str]:
            return ctr(
                "run", "--rm", "--snapshotter=native", "--read-only", "--cwd=/data", "--mount", mount,
                "--mount", "type=tmpfs,src=tmpfs,dst=/tmp,options=noexec", name, "scan-of-alpha", "etcdfix", *arguments,
            )  # fmt: skip

        check_the_scan(run)


def test_the_layout_names_each_blob_by_its_digest(image: Path) -> None:
    with tarfile.open(image) as tar:
        blobs = [entry for entry in tar.getmembers() if entry.isfile() and entry.name.startswith("blobs/")]
        assert len(blobs) == 3
        for entry in blobs:
            content = tar.extractfile(entry)
            assert content is not None
            assert hashlib.file_digest(content, "sha256").hexdigest() == Path(entry.name).name  # type: ignore[arg-type]


def test_it_holds_the_executable_and_says_what_else(image: Path, executable: Path, tmp_path: Path) -> None:
    with tarfile.open(image) as tar:
        layer = max(tar.getmembers(), key=lambda entry: entry.size)
        tar.extract(layer, tmp_path, filter="data")
    with tarfile.open(tmp_path / layer.name) as tar:
        tar.extractall(tmp_path / "root", filter="data")
    held = tmp_path / "root/opt/etcdfix"
    differs = filecmp.dircmp(executable, held, ignore=["docs", "man1"])
    assert (differs.left_only, differs.right_only, differs.diff_files) == ([], [], ["BUILD"])
    inside = filecmp.dircmp(executable / "_internal", held / "_internal")
    assert (inside.left_only, inside.right_only, inside.diff_files) == ([], [], [])
    said = (held / "BUILD").read_text().removeprefix((executable / "BUILD").read_text())
    assert re.search(r"^  libc\.so\.6 of libc6 \S+$", said, re.MULTILINE)
    assert "licence was not found" not in said
    assert (held / "licences/libraries/libc6").exists()
