"""Documentation that must stay true: links, rights, files, rules, and what an API server says."""

from __future__ import annotations

import gzip
import json
import re
import shlex
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest

from etcdfix.apiserver.permissions import VERBS
from etcdfix.cli.root import cli
from etcdfix.model.rules import MEANINGS, Rule
from etcdfix.remediation.change import DELETE, PATCH, PUT, UNDO
from tests.support.collecting import scan
from tests.support.command_blocks import REPOSITORY, pages
from tests.support.golden import golden_folder, needs_golden
from tests.support.memory_source import MemorySource


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


RULES_PAGE = Path(__file__).parents[2] / "docs" / "reference" / "rules.md"
ASKED = {
    "delete": DELETE,
    "fix": (*PUT, *PATCH),
    "undo": UNDO,
}
# Whoever names a plan accepts another etcd; the choice of a copy asks by itself.
BESIDES = {
    "delete": {Rule.OTHER_CLUSTER_ID},
    "fix": {Rule.UNLISTED_SOURCE},
    "undo": set[Rule](),
}


def rule_of(name: str) -> Rule:
    return Rule(name.replace("_", "-"))


def test_every_rule_is_explained_once() -> None:
    page = RULES_PAGE.read_text(encoding="utf-8")
    for check in (check for asked in ASKED.values() for check in asked):
        assert check.__doc__, check.__name__
        assert check.__doc__.split("\n")[0] in page
    for rule in Rule:
        assert f"- `{rule}`: " in page


@pytest.mark.parametrize("command", ASKED)
def test_a_command_takes_the_words_that_its_checks_ask_for(command: str) -> None:
    with click.Context(cli) as context:
        found = cli.get_command(context, command)
    assert found is not None
    (accept,) = (param for param in found.params if "--accept" in param.opts)
    words = set(accept.type._rules)  # type: ignore[attr-defined]
    asked = {rule_of(check.__name__) for check in ASKED[command]} & set(MEANINGS)
    assert words == asked | BESIDES[command]


REPORT_PAGE = Path(__file__).parents[2] / "docs/report.md"


def ours() -> dict[str, Any]:
    reporter, _ = scan(MemorySource({"/registry/secrets/shop/web": b"k8s\x00broken"}))
    assert reporter.conclusion is not None
    (status,) = reporter.conclusion.statuses
    built: dict[str, Any] = msgspec.to_builtins(status)
    return built


def said_of_a_server() -> str:
    found = re.search(
        r"`details.name` is the etcd prefix[^;]*; a kube-apiserver says `(.*)` there", REPORT_PAGE.read_text()
    )
    assert found is not None
    return found[1]


def recorded() -> list[dict[str, Any]]:
    with gzip.open(golden_folder("apiserver-http") / "exchanges.jsonl.gz", "rt") as lines:
        bodies = [
            json.loads(line).get("response", {}).get("body") or ""
            for line in lines
            if "StorageReadError" in line
        ]
    return [
        status for body in bodies if body and (status := json.loads(body)).get("reason") == "StorageReadError"
    ]


@needs_golden
def test_the_name_is_all_in_which_a_server_differs() -> None:
    statuses, own = recorded(), ours()
    assert len(statuses) == 11
    for status in statuses:
        assert status["details"].pop("name") == said_of_a_server()
        assert status.keys() == own.keys()
        assert {*status["details"], "name"} == own["details"].keys()
        plain = {field: value for field, value in status.items() if field != "details"}
        assert plain == {field: own[field] for field in plain}
        assert status["details"]["kind"] == own["details"]["kind"]
        for cause in status["details"]["causes"]:
            assert cause.keys() == own["details"]["causes"][0].keys()
            assert cause["reason"] == own["details"]["causes"][0]["reason"]
            assert cause["message"].startswith(
                f"StorageError: corrupt object, Code: 7, Key: {cause['field']}, "
            )
