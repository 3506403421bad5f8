"""Make the archives for machines without internet: ``python docs/offline/build.py --output-dir dist``.

Needs Linux, an index of packages, and binutils. Writes each archive with its digest beside it; README.md here says what
they are.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from archives import write_archive, write_digest
from environment import ROOT, make_environment
from executable import build_folder
from image import build_image
from wheelhouse import build_wheelhouse

PARTS: Final = ("executable", "wheelhouse", "image")
LOCK: Final = ROOT / "docs/release/requirements.txt"
_FIRST_TIME: Final = 315_532_800  # 1980: the oldest that a wheel can say


def main() -> None:
    """Make what was asked for; whatever hinders it is said in one line."""
    try:
        _make(_asked())
    except subprocess.CalledProcessError as exc:
        sys.exit(f"failed, with exit code {exc.returncode}: {' '.join(map(str, exc.cmd))}")
    except OSError as exc:
        sys.exit(f"{exc.filename}: {exc.strerror}")


def _make(asked: argparse.Namespace) -> None:
    _check_this_machine()
    lock = _lock(asked.requirements)
    asked.output_dir.mkdir(parents=True, exist_ok=True)
    parts = asked.only or PARTS
    epoch = _epoch()
    with tempfile.TemporaryDirectory(prefix="etcdfix-build-") as folder:
        work = Path(folder)
        environment = make_environment(work, lock, epoch)
        version = environment.wheel.name.split("-")[1]
        machine = f"etcdfix-{version}-linux-{platform.machine()}"
        executable = work / machine
        if {"executable", "image"} & {*parts}:
            (work / "freeze").mkdir()
            build_folder(environment, work / "freeze", executable)
        if "executable" in parts:
            _finish(asked.output_dir / f"{machine}.tar.gz", executable, epoch)
        if "wheelhouse" in parts:
            python = f"python{sys.version_info.major}.{sys.version_info.minor}"
            wheelhouse = work / f"{machine}-{python}-wheels"
            build_wheelhouse(environment, wheelhouse, python)
            _finish(asked.output_dir / f"{wheelhouse.name}.tar.gz", wheelhouse, epoch)
        if "image" in parts:
            (work / "image").mkdir()
            target = asked.output_dir / f"{machine}-image.tar"
            with target.open("wb") as file:
                build_image(executable, work / "image", file, version=version, epoch=epoch)
            _announce(target)


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output-dir", type=Path, required=True, help="where the archives go")
    parser.add_argument(
        "--only", action="append", choices=PARTS, help="this one, and no other; may be repeated"
    )
    parser.add_argument(
        "--requirements", type=Path, metavar="FILE",
        help="versions and digests of what etcdfix needs; docs/release/requirements.txt if it is there",
    )  # fmt: skip
    return parser.parse_args()


def _check_this_machine() -> None:
    if sys.platform != "linux" or sys.version_info < (3, 11):
        sys.exit("the archives are made on Linux, by Python 3.11 or newer")
    missing = [program for program in ("ldd", "objcopy", "objdump") if shutil.which(program) is None]
    if missing:
        sys.exit(f"not installed here: {', '.join(missing)} (packages binutils, libc-bin)")


def _lock(named: Path | None) -> Path | None:
    if named is not None:
        return named.resolve(strict=True)
    if LOCK.exists():
        return LOCK
    print(f"{LOCK.relative_to(ROOT)} is not there: versions are what the index has today", file=sys.stderr)
    return None


def _epoch() -> int:
    """Return the time of everything in the archives: SOURCE_DATE_EPOCH, or that of the last commit."""
    if given := os.environ.get("SOURCE_DATE_EPOCH"):
        return max(int(given), _FIRST_TIME)
    asked = subprocess.run(
        ["git", "-C", ROOT, "log", "-1", "--format=%ct"], capture_output=True, text=True, check=False
    )
    return int(asked.stdout) if asked.returncode == 0 and asked.stdout.strip() else _FIRST_TIME


def _finish(archive: Path, folder: Path, epoch: int) -> None:
    write_archive(archive, folder, epoch=epoch)
    _announce(archive)


def _announce(archive: Path) -> None:
    write_digest(archive)
    print(f"{archive} ({archive.stat().st_size / 1e6:.0f} MB)")


if __name__ == "__main__":
    main()
