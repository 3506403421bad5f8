"""What the pages on a release and on machines without internet say, done in a clean clone."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.command_blocks import DOCS, REPOSITORY, blocks_of

pytestmark = pytest.mark.thorough

ALPHA = REPOSITORY / "fixtures/snapshots/alpha"
SCAN = ("--snapshot", str(ALPHA / "snapshot.db.gz"), "--encryption-config", str(ALPHA / "config-lost.yaml"))


def done(clone: Path, script: str) -> str:
    environment = {name: os.environ[name] for name in os.environ if not name.startswith("ETCDFIX_")}
    command = ["bash", "-euo", "pipefail", "-c", script]
    run = subprocess.run(command, cwd=clone, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, f"{run.stdout[-3000:]}\n{run.stderr[-3000:]}"
    return run.stdout


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("walked") / "etcdfix"
    subprocess.run(["git", "clone", "-q", str(REPOSITORY), str(folder)], check=True)
    pages = (DOCS / "contributing.md", DOCS / "install.md")
    blocks = [block for page in pages for block in blocks_of(page)]
    done(folder, "".join(block.text for block in blocks if block.mark and block.mark.journey == "walked"))
    return folder


def test_the_one_file_scans_with_workers_and_without_a_network(clone: Path) -> None:
    program = f"SHIV_ROOT={clone}/shiv build/fresh/bin/python dist/etcdfix.pyz"
    expected = done(clone, f"build/fresh/bin/etcdfix scan -o name {' '.join(SCAN)} || test $? = 3")
    assert done(clone, f"{program} scan -o name --jobs 2 {' '.join(SCAN)} || test $? = 3") == expected != ""


def test_wheels_install_without_an_index(clone: Path) -> None:
    script = "python3 -m venv build/carried && build/carried/bin/pip install -q --no-index --find-links dist/wheels"
    done(clone, f"{script} 'etcdfix[kubernetes]' && build/carried/bin/etcdfix version")


def test_the_image_is_built_and_saved(clone: Path) -> None:
    if subprocess.run(["docker", "info"], capture_output=True, check=False).returncode:
        pytest.skip("no Docker engine answers")
    image = [
        block for block in blocks_of(DOCS / "install.md") if block.mark and block.mark.journey == "image"
    ]
    done(clone, image[0].text)
    assert (clone / "dist/etcdfix-image.tar").stat().st_size > 10_000_000
