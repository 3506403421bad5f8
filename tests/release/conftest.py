"""A release, made once in a clean clone as its page says; every test looks at what came of it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import pytest

REPOSITORY = Path(__file__).parents[2]
VERSION = "99.0.1"
WALKED = re.compile(r"^<!-- parsed: walked -->\n```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Release:
    """What the walk left: the clone, the entries of the changelog that it had, and how to run something there."""

    clone: Path
    version: str
    entries: dict[str, str]
    environment: dict[str, str]

    @property
    def dist(self) -> Path:
        return self.clone / "dist"

    @property
    def wheel(self) -> Path:
        return self.dist / f"etcdfix-{self.version}-py3-none-any.whl"

    @property
    def sdist(self) -> Path:
        return self.dist / f"etcdfix-{self.version}.tar.gz"

    def tool(self, name: str) -> str:
        return str(self.clone / "build/tools/bin" / name)

    def run(self, *words: str | Path, cwd: Path | None = None, **variables: str) -> str:
        done = subprocess.run(
            words,
            cwd=cwd or self.clone,
            env=self.environment | variables,
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert done.returncode == 0, f"{words} ended with {done.returncode}:\n{done.stdout}"
        return done.stdout

    def clone_to(self, folder: Path) -> Path:
        self.run("git", "clone", "-q", self.clone, folder)
        return folder


def no_release(reason: str) -> NoReturn:
    if os.environ.get("ETCDFIX_REQUIRE_INDEX"):
        pytest.fail(reason)
    pytest.skip(reason)


def surroundings(home: Path) -> dict[str, str]:
    """Return what a person's shell has: nothing of this environment or of ours, but the way to a package index."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("ETCDFIX_", "PYTHON", "GIT_", "COV", "PYTEST", "VIRTUAL_ENV"))
    }
    git = {
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "safe.directory",
        "GIT_CONFIG_VALUE_0": "*",
        **{f"GIT_{role}_NAME": "Somebody" for role in ("AUTHOR", "COMMITTER")},
        **{f"GIT_{role}_EMAIL": "somebody@example.com" for role in ("AUTHOR", "COMMITTER")},
    }
    # What pip is told on this machine is part of the way to an index, and lies in the real home.
    pip = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "pip/pip.conf"
    told = {"PIP_CONFIG_FILE": str(pip)} if pip.exists() and "PIP_CONFIG_FILE" not in kept else {}
    return kept | git | told | {"HOME": str(home), "PATH": f"{Path(sys.executable).parent}:{kept['PATH']}"}


def raise_the_version(clone: Path) -> None:
    """Do what the page leaves to a person; an entry of the changelog may be the only one, right after a release."""
    stated = clone / "etcdfix/__init__.py"
    stated.write_text(re.sub(r'(?m)^(__version__ = )".+"$', rf'\1"{VERSION}"', stated.read_text()))
    (clone / "docs/changelog.d/walked.fixed.md").write_text("A release was not walked.\nNow it is.\n")
    subprocess.run(["git", "add", "-A"], cwd=clone, check=True)


@pytest.fixture(scope="session")
def release(tmp_path_factory: pytest.TempPathFactory) -> Release:
    folder = tmp_path_factory.mktemp("release")
    environment = surroundings(folder)
    if not (REPOSITORY / ".git").exists():
        no_release("not a clone: a release is made of a commit")
    asked = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "-q",
        "--no-deps",
        "--dest",
        str(folder / "asked"),
        "pip",
    ]
    answered = subprocess.run(asked, env=environment, check=False, capture_output=True, text=True)
    if answered.returncode:
        no_release(f"no package index answers: {answered.stderr.strip().splitlines()[-1]}")
    clone = folder / "clone"
    subprocess.run(["git", "clone", "-q", REPOSITORY, clone], env=environment, check=True)
    raise_the_version(clone)
    subprocess.run(
        ["git", "commit", "-q", "-am", "What a person does"], cwd=clone, env=environment, check=True
    )
    entries = {path.name: path.read_text() for path in (clone / "docs/changelog.d").glob("*.md")}
    blocks = WALKED.findall((clone / "docs/release/README.md").read_text())
    script = "set -euo pipefail\n" + "".join(f"echo '+++ block {n}'\n{text}" for n, text in enumerate(blocks))
    walked = subprocess.run(
        ["bash", "-c", script],
        cwd=clone,
        env=environment,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert walked.returncode == 0, f"ended with {walked.returncode}:\n{walked.stdout}"
    return Release(clone, VERSION, entries, environment)
