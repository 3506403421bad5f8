"""The wheelhouse: installed without network, by what stands in its own file, with Python alone."""

from __future__ import annotations

import hashlib
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from etcdfix.testing.places import find_tools
from tests.offline.conftest import only
from tests.support.nowhere import Nowhere, bare, completed
from tests.support.offline_jobs import (
    REPOSITORY,
    Run,
    check_a_deletion,
    check_the_scan,
    etcd_arguments,
    restored_alpha,
    running,
)

PLACE = "/opt/etcdfix"


def documented(requirements: Path, venv: Path) -> list[list[str]]:
    """The commands that the file gives, into another directory."""
    lines = re.findall(r"^#   (\S.*)$", requirements.read_text(), re.MULTILINE)
    return [shlex.split(line.replace(PLACE, str(venv))) for line in lines]


def digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def wheelhouse(archives: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheelhouse")
    subprocess.run(["tar", "xzf", only(archives, "*-wheels.tar.gz"), "-C", folder], check=True)
    (found,) = folder.iterdir()
    return found


@pytest.fixture(scope="module")
def variables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Only Python, by the name that the file has for it."""
    folder = tmp_path_factory.mktemp("path")
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    (folder / name).symlink_to(Path(sys.base_prefix) / "bin" / name)
    return bare(PATH=f"{folder}:/usr/sbin:/usr/bin:/bin", PIP_CONFIG_FILE="/dev/null")


@pytest.fixture(scope="module")
def run(
    wheelhouse: Path, place: Nowhere, variables: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Run:
    venv = tmp_path_factory.mktemp("installed") / "etcdfix"
    commands = documented(wheelhouse / "requirements.txt", venv)
    assert len(commands) == 3
    for command in commands:
        done = completed(place.within(*command, directory=wheelhouse), env=variables)
        assert done.returncode == 0, done

    def run_it(*arguments: str) -> subprocess.CompletedProcess[str]:
        return completed(place.within(venv / "bin/etcdfix", *arguments, directory=REPOSITORY), env=variables)

    return run_it


def test_alpha_is_scanned_as_from_source(run: Run) -> None:
    check_the_scan(run)


@pytest.fixture
def _etcd(place: Nowhere, tmp_path: Path) -> Iterator[None]:
    restored_alpha(tmp_path)
    command = place.within(find_tools().etcd, *etcd_arguments(str(tmp_path)))
    with running(command, tmp_path / "log"):
        yield


@pytest.mark.usefixtures("_etcd")
def test_one_object_of_a_live_etcd_is_deleted(run: Run, tmp_path: Path) -> None:
    (tmp_path / "records").mkdir(mode=0o700)
    check_a_deletion(run, str(tmp_path / "records"))


def test_a_changed_wheel_is_refused(
    wheelhouse: Path, place: Nowhere, variables: dict[str, str], tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(wheelhouse, copy)
    wheel = only(copy / "wheels", "click-*.whl")
    wheel.write_bytes(wheel.read_bytes() + b"\0")
    make, install, _ = documented(copy / "requirements.txt", tmp_path / "etcdfix")
    assert completed(place.within(*make, directory=copy), env=variables).returncode == 0
    refused = completed(place.within(*install, directory=copy), env=variables)
    assert refused.returncode == 1
    assert "click" in refused.stderr
    assert "HASHES" in refused.stderr or "hash" in refused.stderr
    assert not (tmp_path / "etcdfix/bin/etcdfix").exists()


def test_everything_in_it_is_named_with_its_digest(wheelhouse: Path) -> None:
    text = (wheelhouse / "requirements.txt").read_text()
    wheels = {path.name.split("-")[0].lower(): path for path in (wheelhouse / "wheels").iterdir()}
    assert {"etcdfix", "kubernetes"} <= set(wheels)
    del wheels["pip"]
    assert set(wheels) == {name.replace("-", "_") for name in re.findall(r"^(\S+)==", text, re.MULTILINE)}
    assert [path.name for path in wheels.values() if f"--hash=sha256:{digest(path)}" not in text] == []


def test_its_licences_are_those_of_the_executable(wheelhouse: Path, executable: Path) -> None:
    (here,) = wheelhouse.glob("etcdfix-*-licences.txt")
    assert here.read_bytes() == (executable / "licences" / here.name).read_bytes()
    said = re.findall(r"^=+\n(\S+) \S+: .+\n=+$", here.read_text(), re.MULTILINE)
    held = {path.name.split("-")[0].lower() for path in (wheelhouse / "wheels").iterdir()}
    assert {name.lower().replace("-", "_") for name in said} == held - {"pip", "etcdfix"}
