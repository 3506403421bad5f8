"""What is pinned: everything that ``pyproject.toml`` asks for, nothing else, and from no index that is named."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

REPOSITORY = Path(__file__).parents[2]
OURS = "etcdfix (pyproject.toml)"
RUNTIME = "docs/release/requirements.txt"
LOCKS = {
    RUNTIME: OURS,
    "docs/release/build-requirements.txt": "-r docs/release/build-requirements.in",
    "docs/offline/build-requirements.txt": "-r docs/offline/build-requirements.in",
}
PIN = re.compile(r"(?P<name>[a-z0-9-]+)==(?P<version>\S+) \\")
DIGEST = re.compile(r"    --hash=sha256:[0-9a-f]{64}(?: \\)?")


def pyproject() -> dict[str, Any]:
    return tomllib.loads((REPOSITORY / "pyproject.toml").read_text())


def asked_for(lock: str) -> list[Requirement]:
    if lock == RUNTIME:
        project = pyproject()["project"]
        return [
            *map(Requirement, project["dependencies"]),
            *map(Requirement, project["optional-dependencies"]["kubernetes"]),
        ]
    lines = (REPOSITORY / lock).with_suffix(".in").read_text().splitlines()
    return [Requirement(line) for line in lines if line and not line.startswith("#")]


def pins(lock: str) -> dict[str, tuple[str, set[str], int]]:
    """Return what a lock pins: version, who needs it, and how many digests it has; by name."""
    found: dict[str, tuple[str, set[str], int]] = {}
    for part in re.split(r"^(?=\S+==)", (REPOSITORY / lock).read_text(), flags=re.MULTILINE)[1:]:
        pin = PIN.match(part)
        assert pin is not None, part.splitlines()[0]
        comments = [line.strip("# ") for line in part.splitlines() if line.startswith("    #")]
        needed_by = {comment.removeprefix("via").strip() for comment in comments} - {""}
        found[pin["name"]] = pin["version"], needed_by, part.count("--hash=")
    return found


def same_name(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_has_pins_digests_and_remarks_only(lock: str) -> None:
    lines = (REPOSITORY / lock).read_text().splitlines()
    others = [line for line in lines if line and not line.lstrip().startswith("#")]
    assert [line for line in others if not PIN.fullmatch(line) and not DIGEST.fullmatch(line)] == []
    assert [line for line in lines if "://" in line or re.search(r"(^|\s)/\w", line)] == []
    assert all(digests for _, _, digests in pins(lock).values())


@pytest.mark.parametrize("lock", LOCKS)
def test_everything_asked_for_is_pinned_in_a_version_that_will_do(lock: str) -> None:
    pinned = pins(lock)
    wrong = [
        str(wanted)
        for wanted in asked_for(lock)
        if same_name(wanted.name) not in pinned or pinned[same_name(wanted.name)][0] not in wanted.specifier
    ]
    assert wrong == []


@pytest.mark.parametrize(("lock", "source"), LOCKS.items())
def test_nothing_is_pinned_that_nobody_needs(lock: str, source: str) -> None:
    pinned = pins(lock)
    direct = {name for name, (_, needed_by, _) in pinned.items() if source in needed_by}
    assert direct == {same_name(wanted.name) for wanted in asked_for(lock)}
    reached, before = set(direct), set[str]()
    while reached != before:
        before = set(reached)
        reached |= {name for name, (_, needed_by, _) in pinned.items() if needed_by & before}
    assert reached == set(pinned)


def test_a_package_has_the_same_version_in_every_lock() -> None:
    """They are installed beside each other, and a wheel is built with one hatchling only."""
    found: dict[str, set[str]] = {}
    for name, (version, _, _) in (pin for lock in LOCKS for pin in pins(lock).items()):
        found.setdefault(name, set()).add(version)
    assert {name: versions for name, versions in found.items() if len(versions) > 1} == {}
    assert len(found) < sum(len(pins(lock)) for lock in LOCKS)


def test_the_page_of_licences_lists_what_is_pinned() -> None:
    rows = re.findall(
        r"^\| (\S+) \| (\S+) \| .+ \|$", (REPOSITORY / "docs/release/licences.md").read_text(), re.MULTILINE
    )
    listed = {same_name(name): version for name, version in rows[1:] if name != "---"}
    assert listed == {name: version for name, (version, _, _) in pins(RUNTIME).items()}
