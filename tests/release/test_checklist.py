"""``docs/release/README.md`` is walked in a clean clone, and what comes of it is what a release promises."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from referencing import Registry, Resource

from tests.release.conftest import REPOSITORY, Release
from tests.release.test_locks import LOCKS, RUNTIME, pins, same_name

pytestmark = pytest.mark.release

LONG_AGO = 1_000_000_000


def digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def tracked(release: Release, *folders: str) -> set[str]:
    return set(release.run("git", "ls-files", *folders).splitlines())


# --- the same commit makes the same bytes -----------------------------------------------------------------------------


def test_another_folder_other_times_modes_and_left_overs_change_nothing(
    release: Release, tmp_path: Path
) -> None:
    clone = release.clone_to(tmp_path / "a folder of another name")
    for path in sorted(clone.rglob("*")):
        if ".git" not in path.relative_to(clone).parts:
            path.chmod(path.stat().st_mode & 0o700)
            os.utime(path, (LONG_AGO, LONG_AGO))
    (clone / "etcdfix/left_over.py").write_text("left = 1\n")
    (clone / "etcdfix/__pycache__").mkdir()
    (clone / "etcdfix/__pycache__/errors.cpython-311.pyc").write_bytes(b"left")
    (clone / "docs/causes/left-over.md").write_text("left\n")
    build = 'umask 077; export TZ=Pacific/Chatham LC_ALL=C; exec "$0" docs/release/build_packages.py "$1"'
    release.run("bash", "-c", build, release.tool("python"), tmp_path / "dist", cwd=clone)
    built = {file.name: digest(file) for file in (tmp_path / "dist").iterdir()}
    assert built == {name: digest(release.dist / name) for name in built}
    assert len(built) == 3


def test_a_wheel_of_the_tree_is_the_wheel_of_the_sdist(release: Release, tmp_path: Path) -> None:
    clone = release.clone_to(tmp_path / "clone")
    epoch = release.run("git", "log", "-1", "--format=%ct").strip()
    with tarfile.open(release.sdist) as sdist:
        assert {member.mtime for member in sdist} == {int(epoch)}
        sdist.extractall(tmp_path, filter="data")
    trees = {"tree": clone, "sdist": tmp_path / f"etcdfix-{release.version}"}
    for name, tree in trees.items():
        words = ("-m", "build", "--no-isolation", "--wheel", "--outdir", tmp_path / name, tree)
        release.run(release.tool("python"), *words, SOURCE_DATE_EPOCH=epoch)
        assert digest(tmp_path / name / release.wheel.name) == digest(release.wheel)


def test_what_is_not_committed_is_refused(release: Release, tmp_path: Path) -> None:
    clone = release.clone_to(tmp_path / "clone")
    (clone / "README.md").write_text("other words\n")
    words = [release.tool("python"), "docs/release/build_packages.py"]
    done = subprocess.run(
        words, cwd=clone, env=release.environment, check=False, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "commit it first:\n M README.md" in done.stderr


# --- what is in the files ---------------------------------------------------------------------------------------------


def test_the_wheel_holds_the_package_its_pages_and_its_licence(release: Release) -> None:
    with zipfile.ZipFile(release.wheel) as wheel:
        names = set(wheel.namelist())
        modes = {info.external_attr >> 16 & 0o777 for info in wheel.infolist()}
    about = f"etcdfix-{release.version}.dist-info"
    pages = {f"etcdfix/cause_pages/{Path(page).name}" for page in tracked(release, "docs/causes")}
    assert pages
    expected = tracked(release, "etcdfix") | pages
    expected |= {
        f"{about}/{name}" for name in ("METADATA", "WHEEL", "entry_points.txt", "RECORD", "licenses/LICENSE")
    }
    assert names == expected
    assert {"etcdfix/py.typed", "etcdfix/reports/formats/templates/page.html"} <= names
    assert modes <= {0o644, 0o755}


def test_the_sdist_holds_what_the_wheel_is_made_of_and_its_tests(release: Release) -> None:
    with tarfile.open(release.sdist) as sdist:
        names = {member.name.partition("/")[2] for member in sdist if member.isfile()}
        owners = {(member.uid, member.gid, member.uname, member.gname) for member in sdist}
    wanted = tracked(
        release, "etcdfix", "tests", "fixtures", "docs", "README.md", "LICENSE", "pyproject.toml"
    )
    assert names == wanted | {"PKG-INFO", ".gitignore"}
    assert owners == {(0, 0, "", "")}


def test_every_entry_of_the_changelog_is_in_the_page_and_gone_from_its_folder(release: Release) -> None:
    page = (release.clone / "docs/CHANGELOG.md").read_text()
    assert re.findall(r"^## (\S+) \(\d{4}-\d\d-\d\d\)$", page, re.MULTILINE)[0] == release.version
    words = " ".join(page.split())
    assert [name for name, text in release.entries.items() if " ".join(text.split()) not in words] == []
    assert page.count("\n- ") >= len(release.entries)
    assert list((release.clone / "docs/changelog.d").glob("*.md")) == []
    assert release.run("git", "status", "--porcelain") == ""


def test_every_file_has_its_digest(release: Release) -> None:
    lines = (release.dist / "SHA256SUMS").read_text().splitlines()
    listed = {name: told for told, _, name in (line.partition("  ") for line in lines)}
    assert listed == {file.name: digest(file) for file in release.dist.iterdir() if file.name != "SHA256SUMS"}
    node = f"-linux-{platform.machine()}"
    wheels = f"{node}-python{sys.version_info.major}.{sys.version_info.minor}-wheels.tar.gz"
    kinds = ("-py3-none-any.whl", ".tar.gz", "-requirements.txt", ".cdx.json", "-licences.txt")
    expected = (*kinds, f"{node}.tar.gz", wheels, f"{node}-image.tar")
    assert set(listed) == {f"etcdfix-{release.version}{kind}" for kind in expected}


# --- what it is made of, and under which licences ---------------------------------------------------------------------


@pytest.fixture
def sbom(release: Release) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((release.dist / f"etcdfix-{release.version}.cdx.json").read_text())
    return document


def validator(release: Release) -> jsonschema.Draft7Validator:
    (folder,) = (release.clone / "build/tools").glob("lib/python3*/site-packages/cyclonedx/schema/_res")
    schemas = {file.name: json.loads(file.read_text()) for file in folder.glob("*.schema.json")}
    registry: Registry[Any] = Registry().with_resources(
        (f"http://cyclonedx.org/schema/{name}", Resource.from_contents(schema))
        for name, schema in schemas.items()
        if "$schema" in schema
    )
    return jsonschema.Draft7Validator(schemas["bom-1.6.SNAPSHOT.schema.json"], registry=registry)


def test_the_sbom_fits_the_schema_of_cyclonedx(release: Release, sbom: dict[str, Any]) -> None:
    assert [error.message for error in validator(release).iter_errors(sbom)] == []
    assert list(validator(release).iter_errors(sbom | {"components": [{"name": "nameless type"}]}))


def test_the_sbom_has_what_is_pinned_and_what_needs_what(release: Release, sbom: dict[str, Any]) -> None:
    found = {same_name(part["name"]): part["version"] for part in sbom["components"]}
    assert found == {name: version for name, (version, _, _) in pins(RUNTIME).items()}
    assert all(len(part["licenses"]) == 1 for part in sbom["components"])
    ours = sbom["metadata"]["component"]
    assert (ours["name"], ours["version"]) == ("etcdfix", release.version)
    needs = {entry["ref"]: entry.get("dependsOn", []) for entry in sbom["dependencies"]}
    direct = {same_name(ref.partition("==")[0]) for ref in needs[ours["bom-ref"]]}
    assert direct == {name for name, (_, by, _) in pins(RUNTIME).items() if "etcdfix (pyproject.toml)" in by}


def test_the_sbom_is_made_the_same_again_and_knows_nothing_of_this_machine(
    release: Release, tmp_path: Path, sbom: dict[str, Any]
) -> None:
    release.run(release.tool("python"), "docs/release/sbom.py", "build/runtime", tmp_path)
    name = f"etcdfix-{release.version}.cdx.json"
    assert digest(tmp_path / name) == digest(release.dist / name)
    assert str(release.clone) not in (release.dist / name).read_text()
    assert "serialNumber" not in sbom


def test_the_licences_of_all_that_is_pinned_are_there(release: Release) -> None:
    text = (release.dist / f"etcdfix-{release.version}-licences.txt").read_text()
    parts = re.split(r"^=+\n(\S+) (\S+): .+\n=+$", text, flags=re.MULTILINE)
    found = dict(zip(map(same_name, parts[1::3]), parts[2::3], strict=True))
    assert found == {name: version for name, (version, _, _) in pins(RUNTIME).items()}
    assert all(len(said) > 200 for said in parts[3::3])


@pytest.mark.parametrize(
    "words",
    [
        ("docs/release/licences.py", "{release}/build/runtime"),
        ("docs/offline/build.py", "--output-dir", "dist", "--only", "wheelhouse"),
    ],
)
def test_a_licence_that_is_not_on_the_list_is_refused(
    release: Release, tmp_path: Path, words: tuple[str, ...]
) -> None:
    clone = release.clone_to(tmp_path / "clone")
    script = clone / "docs/release/licences.py"
    script.write_text(script.read_text().replace('"MPL-2.0", ', ""))
    (clone / "dist").mkdir()
    for file in (release.wheel, release.dist / f"etcdfix-{release.version}-requirements.txt"):
        shutil.copy(file, clone / "dist")
    command = [release.tool("python"), *(word.format(release=release.clone) for word in words)]
    done = subprocess.run(
        command, cwd=clone, env=release.environment, check=False, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert re.match(r"certifi \S+: 'MPL-2.0' is not one of ", done.stderr.splitlines()[-1])
    assert len(list((clone / "dist").iterdir())) == 2


# --- the archives are made of the release -----------------------------------------------------------------------------


def held(archive: Path, name: str) -> bytes:
    with tarfile.open(archive) as tar:
        (member,) = (entry for entry in tar if entry.name.partition("/")[2] == name)
        content = tar.extractfile(member)
        assert content is not None
        return content.read()


def archives(folder: Path) -> tuple[Path, Path]:
    """The executable's and the wheelhouse."""
    (wheelhouse,) = folder.glob("*-wheels.tar.gz")
    (executable,) = set(folder.glob("*-linux-*.tar.gz")) - {wheelhouse}
    return executable, wheelhouse


def test_wheel_licences_and_digests_of_the_archives_are_those_of_the_release(release: Release) -> None:
    executable, wheelhouse = archives(release.dist)
    assert held(wheelhouse, f"wheels/{release.wheel.name}") == release.wheel.read_bytes()
    pins_of_all = (release.dist / f"etcdfix-{release.version}-requirements.txt").read_bytes()
    assert held(wheelhouse, "requirements.txt").endswith(b"\n\n" + pins_of_all)
    licences = release.dist / f"etcdfix-{release.version}-licences.txt"
    assert held(wheelhouse, licences.name) == licences.read_bytes()
    assert held(executable, f"licences/{licences.name}") == licences.read_bytes()


def test_an_archive_that_is_made_without_a_release_is_the_same(release: Release, tmp_path: Path) -> None:
    clone = release.clone_to(tmp_path / "clone")
    release.run("python3", "docs/offline/build.py", "--output-dir", "dist", "--only", "wheelhouse", cwd=clone)
    (made,) = (clone / "dist").glob("etcdfix-*")
    assert digest(made) == digest(release.dist / made.name)
    assert (clone / "dist/SHA256SUMS").read_text() == f"{digest(made)}  {made.name}\n"


# --- installing -------------------------------------------------------------------------------------------------------


def test_a_wheel_with_other_bytes_is_not_installed(release: Release, tmp_path: Path) -> None:
    folder = tmp_path / "dist"
    shutil.copytree(release.dist, folder)
    with zipfile.ZipFile(folder / release.wheel.name, "a") as wheel:
        wheel.writestr("etcdfix/another.py", "")
    lines = (folder / f"etcdfix-{release.version}-requirements.txt").read_text()
    ours = tmp_path / "ours.txt"
    ours.write_text(lines[lines.index("\netcdfix==") + 1 :])
    words = [
        "install",
        "-q",
        "--dry-run",
        "--no-deps",
        "--require-hashes",
        "--no-index",
        "--only-binary",
        ":all:",
    ]
    words += ["--ignore-installed", "-r", str(ours), "--find-links"]
    release.run(release.tool("pip"), *words, release.dist)
    done = subprocess.run(
        [release.tool("pip"), *words, folder],
        env=release.environment,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "DO NOT MATCH THE HASHES" in done.stderr


def test_the_smoke_test_notices_another_version(release: Release, tmp_path: Path) -> None:
    clone = release.clone_to(tmp_path / "clone")
    (clone / "etcdfix/__init__.py").write_text('__version__ = "9.9.9"\n')
    words = [release.tool("python"), str(clone / "docs/release/smoke.py")]
    done = subprocess.run(
        [*words, str(release.clone / "build/fresh/bin/etcdfix")],
        env=release.environment,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "not 9.9.9" in done.stderr


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize("python", ["3.11", "3.12"])
def test_wheels_of_all_that_is_pinned_are_there_for(
    release: Release, tmp_path: Path, python: str, machine: str
) -> None:
    """So that a node needs no compiler. 2.28: the C library of RHEL 8 and Debian 10, and every later one."""
    platforms = [f"--platform=manylinux_2_{minor}_{machine}" for minor in range(5, 29)]
    words = [
        "install",
        "-q",
        "--dry-run",
        "--ignore-installed",
        "--no-deps",
        "--only-binary=:all:",
        *platforms,
    ]
    words += [f"--python-version={python}", f"--target={tmp_path}", "--require-hashes"]
    release.run(release.tool("pip"), *words, "-r", "docs/release/requirements.txt")


def test_the_locks_are_what_pyproject_comes_to(release: Release) -> None:
    before = {lock: pins(lock) for lock in LOCKS}
    release.run(release.tool("python"), "docs/release/lock.py")
    for lock in LOCKS:
        text = (release.clone / lock).read_text()
        found = dict(re.findall(r"^(\S+)==(\S+)", text, re.MULTILINE))
        assert found == {name: version for name, (version, _, _) in before[lock].items()}
        release.run("git", "checkout", "-q", "--", lock)


def test_every_block_of_the_page_is_walked_or_left_to_a_person() -> None:
    page = (REPOSITORY / "docs/release/README.md").read_text()
    marks = re.findall(r"^(.*)\n```sh$", page, re.MULTILINE)
    assert set(marks) == {"<!-- parsed -->", "<!-- parsed: walked -->"}
    scripts = {path.name for path in (REPOSITORY / "docs/release").glob("*.py")} - {"checkout.py"}
    assert [name for name in scripts if f"docs/release/{name}" not in page] == []


def test_the_wheel_asks_for_what_pyproject_asks_for(release: Release) -> None:
    with zipfile.ZipFile(release.wheel) as wheel:
        metadata = wheel.read(f"etcdfix-{release.version}.dist-info/METADATA").decode()
    project = tomllib.loads((release.clone / "pyproject.toml").read_text())["project"]
    asked = re.findall(r"^Requires-Dist: ([^;\n]+)$", metadata, re.MULTILINE)
    assert sorted(map(str.lower, asked)) == sorted(wanted.lower() for wanted in project["dependencies"])
    assert "License-File: LICENSE" in metadata
