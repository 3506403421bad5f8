"""Make the archives for machines without internet: ``python3 docs/offline/build.py --output-dir dist``.

Needs Linux, an index of packages, and binutils. They are made of the wheel that lies in the directory already, with
``etcdfix-VERSION-requirements.txt``; where there is none, of one that is built as for a release. Writes the archives,
and ``SHA256SUMS`` of all that is there; README.md here says what they are.
"""

from __future__ import annotations

import argparse
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

sys.path.append(str(Path(__file__).resolve().parents[1] / "release"))  # what makes the rest of a release

from archives import write_archive
from checkout import ARCHIVES_LOCK, BUILD_LOCK, committed_at, digest_of, requirements_in, version
from environment import make_environment
from executable import build_folder
from image import build_image
from licences import UnknownLicenceError, licensed, write_notices
from wheelhouse import build_wheelhouse

PARTS: Final = ("executable", "wheelhouse", "image")


def main() -> None:
    """Make what was asked for; whatever hinders it is said in one line."""
    try:
        _make(_asked())
    except subprocess.CalledProcessError as exc:
        sys.exit(f"failed, with exit code {exc.returncode}: {' '.join(map(str, exc.cmd))}")
    except OSError as exc:
        sys.exit(f"{exc.filename}: {exc.strerror}")
    except UnknownLicenceError as exc:
        sys.exit(str(exc))


def _make(asked: argparse.Namespace) -> None:
    _check_this_machine()
    target: Path = asked.output_dir.resolve()
    target.mkdir(parents=True, exist_ok=True)
    parts = asked.only or PARTS
    machine = f"etcdfix-{version()}-linux-{platform.machine()}"
    with tempfile.TemporaryDirectory(prefix="etcdfix-build-") as folder:
        work = Path(folder)
        packages = _packages(target, work)
        environment = make_environment(work / "runtime", packages, requirements_in(packages), ARCHIVES_LOCK)
        licences = write_notices(licensed(environment.folder), work)
        executable = work / machine
        if {"executable", "image"} & {*parts}:
            (work / "freeze").mkdir()
            build_folder(environment, licences, work / "freeze", executable)
        if "executable" in parts:
            _finish(target / f"{machine}.tar.gz", executable)
        if "wheelhouse" in parts:
            python = f"python{sys.version_info.major}.{sys.version_info.minor}"
            wheelhouse = work / f"{machine}-{python}-wheels"
            build_wheelhouse(environment, licences, wheelhouse, python)
            _finish(target / f"{wheelhouse.name}.tar.gz", wheelhouse)
        if "image" in parts:
            (work / "image").mkdir()
            archive = target / f"{machine}-image.tar"
            with archive.open("wb") as file:
                build_image(executable, work / "image", file, epoch=committed_at())
            _announce(archive)
    _write_digests(target)


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output-dir", type=Path, required=True, help="where the archives go")
    parser.add_argument(
        "--only", action="append", choices=PARTS, help="this one, and no other; may be repeated"
    )
    return parser.parse_args()


def _check_this_machine() -> None:
    if sys.platform != "linux" or sys.version_info < (3, 11):
        sys.exit("the archives are made on Linux, by Python 3.11 or newer")
    missing = [program for program in ("ldd", "objcopy", "objdump") if shutil.which(program) is None]
    if missing:
        sys.exit(f"not installed here: {', '.join(missing)} (packages binutils, libc-bin)")


def _packages(target: Path, work: Path) -> Path:
    """Return the directory with the wheel: that of the release, or one that is made for this."""
    if requirements_in(target).exists():
        return target
    (made := work / "packages").mkdir()
    make_environment(work / "tools", made, BUILD_LOCK).run("docs/release/build_packages.py", made)
    return made


def _finish(archive: Path, folder: Path) -> None:
    write_archive(archive, folder, epoch=committed_at())
    _announce(archive)


def _announce(archive: Path) -> None:
    print(f"{archive} ({archive.stat().st_size / 1e6:.0f} MB)")


def _write_digests(folder: Path) -> None:
    """Write ``SHA256SUMS``, as ``sha256sum --check`` reads it."""
    files = sorted(folder.glob("etcdfix-*"))
    (folder / "SHA256SUMS").write_text("".join(f"{digest_of(file)}  {file.name}\n" for file in files))


if __name__ == "__main__":
    main()
