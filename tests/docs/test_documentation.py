"""Documentation that must stay true."""

from __future__ import annotations

import re
import shlex
import subprocess
import tomllib
from pathlib import Path

import pytest

from etcdfix.apiserver.permissions import VERBS
from tests.support.command_blocks import REPOSITORY, pages


def test_the_runbook_grants_what_is_asked_of_the_api_servers() -> None:
    page = (REPOSITORY / "docs" / "runbooks" / "denied.md").read_text()
    granted = set()
    for line in re.findall(r"^ *(kubectl create (?:clusterrole|role) .*)$", page, re.MULTILINE):
        options = dict(word[2:].split("=", 1) for word in shlex.split(line) if word.startswith("--"))
        granted |= {
            (verb, options["resource"], options["resource-name"]) for verb in options["verb"].split(",")
        }
    assert granted == {
        *((verb, "secrets", "db") for verb in ("get", *VERBS)),
        ("get", "namespaces", "kube-system"),
        ("get", "endpoints", "kubernetes"),
    }


def anchors(page: Path) -> set[str]:
    """Return the names of the headings of a page, as GitHub makes them."""
    heads = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_no_link_is_dead(page: Path) -> None:
    text = re.sub(r"^ *```.*?^ *```|`[^`\n]*`", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    for target in re.findall(r"\]\(<?([^)>\s]+)>?\)", text):
        path, _, name = target.partition("#")
        if "://" not in target and not target.startswith("mailto:"):
            there = (page.parent / path) if path else page
            assert there.exists(), target
            assert not name or there.suffix != ".md" or name in anchors(there), target


def test_fixture_manifests_name_every_file() -> None:
    for manifest in (REPOSITORY / "fixtures").rglob("MANIFEST.toml"):
        text = manifest.read_text()
        tomllib.loads(text)
        for file in manifest.parent.rglob("*"):
            if file.is_file() and file.name not in {"MANIFEST.toml", "README.md"}:
                assert file.name in text, f"{manifest}: {file.name}"


def test_each_path_that_the_checks_name_is_there() -> None:
    checks = (REPOSITORY / ".ci/run").read_text()
    named = re.findall(r"\b(?:tests|etcdfix|docs)/[\w.{},/-]+|(?<= )\.ci/[\w.-]+", checks)
    assert len(named) >= 9
    expanded = subprocess.run(
        ["bash", "-c", f"printf '%s\\n' {' '.join(named)}"], capture_output=True, text=True, check=True
    )
    assert [path for path in expanded.stdout.split() if not (REPOSITORY / path).exists()] == []
