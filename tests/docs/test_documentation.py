"""Documentation that must stay true."""

from __future__ import annotations

import re
import shlex
import subprocess
import tomllib
from pathlib import Path

from etcdfix.apiserver.permissions import VERBS

REPOSITORY = Path(__file__).parents[2]


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
