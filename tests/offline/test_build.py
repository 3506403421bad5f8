"""What hinders a build is said in one line, and nothing is left that looks like an archive."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import etcdfix
from tests.support.offline_jobs import REPOSITORY

BUILD = REPOSITORY / "docs/offline/build.py"


def build(*arguments: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, BUILD, *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, **variables}
    )


def test_a_machine_without_the_programs_that_it_takes(tmp_path: Path) -> None:
    done = build("--output-dir", tmp_path / "dist", PATH="/nonexistent")
    assert done.returncode == 1
    assert done.stderr == "not installed here: ldd, objcopy, objdump (packages binutils, libc-bin)\n"
    assert not (tmp_path / "dist").exists()


def test_a_package_that_is_not_the_one_of_the_release(tmp_path: Path) -> None:
    pins = tmp_path / f"etcdfix-{etcdfix.__version__}-requirements.txt"
    pins.write_text(f"click==8.1.8 --hash=sha256:{'0' * 64}\n")
    done = build("--output-dir", tmp_path, "--only", "wheelhouse")
    assert done.returncode == 1
    assert "THESE PACKAGES DO NOT MATCH THE HASHES" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("failed, with exit code 1: ")
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == [pins]
