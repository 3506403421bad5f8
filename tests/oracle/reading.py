"""Groups of commands that read: golden alpha, the damaged samples, and the recorded clusters of the controllers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import yaml

from tests.frozen.test_alpha import COMMANDS
from tests.oracle.comparing import Group
from tests.oracle.trees import Tree
from tests.support.attacks import LOCAL, TRUE, WRONG
from tests.support.bbolt_writer import database, put
from tests.support.controllers import cases, values_before
from tests.support.golden import golden_folder
from tests.support.kms_plugin import KMSPlugin, load_keks
from tests.support.objects import IDENTITY, configuration_of_rules, provider
from tests.vectors.test_alpha_causes import all_keys
from tests.vectors.test_damaged_samples import as_stored, placed

Commands = Iterator[tuple[str, list[str]]]


def both(trees: tuple[Tree, Tree], commands: Commands, group: Group, *, sample: int = 1) -> Group:
    """Run each command, or every so many of them, from both trees, at the same time; compare what they say."""
    with ThreadPoolExecutor(2) as pool:
        for number, (case, arguments) in enumerate(commands):
            if not number % sample:
                old, new = pool.map(lambda tree, given=arguments: tree.told(*given), trees)
                group.compare(case, old, new)
    return group


def alpha(trees: tuple[Tree, Tree], folder: Path, sample: int) -> Group:
    """Everything that is said of a damaged cluster, under four configurations."""
    group, at = Group("golden alpha"), golden_folder("alpha")
    everything = folder / "all-keys.yaml"
    everything.write_text(yaml.safe_dump(all_keys()))
    snapshot = ["--snapshot", str(at / "snapshot.db.gz")]
    with ExitStack() as stack:
        plugins = []
        for name, version, number in (("kmsnew", "v2", 1), ("kmsold", "v1", 2)):
            keks = load_keks(at / f"kms{number}.keys")
            plugin = stack.enter_context(KMSPlugin(version, folder / f"{number}.sock", keks))
            plugins.append(f"--kms-endpoint={name}={plugin.endpoint}")
        for name, more in (
            ("none", []),
            ("lost", ["--encryption-config", str(at / "config-lost.yaml"), "--no-kms"]),
            ("rotated", ["--encryption-config", str(at / "config-rotated.yaml"), *plugins]),
            ("all keys", ["--encryption-config", str(everything), *plugins]),
        ):
            both(trees, _of_alpha(name, [*snapshot, *more]), group, sample=sample)
    return group


def _of_alpha(name: str, where: list[str]) -> Commands:
    where = [*where, "-o", "json"]
    for command, arguments in COMMANDS.items():
        yield f"{name} {command}", [*arguments, *where]
    yield f"{name} scan 1.36", ["scan", *where, "--kubernetes-version", "1.36"]
    yield f"{name} status", ["scan", *where[:-1], "status"]
    yield f"{name} usage", ["encryption", "usage", *where]
    yield (
        f"{name} saved",
        ["scan", *where, "--output-file", "report.json"],
    )  # each tree's own: it runs elsewhere
    yield f"{name} plan", ["plan", "--from-report", "report.json", *where]
    for key in json.loads((golden_folder("alpha") / "oracle.json").read_bytes())["damage"]:
        yield f"{name} explain {key}", ["explain", key, *where]


def damaged(trees: tuple[Tree, Tree], folder: Path, sample: int) -> Group:
    """The damaged samples as keys of two clusters: in the clear, and under keys that are there or lost."""
    group = Group("damaged samples")
    configuration = folder / "samples.yaml"
    providers = (*(provider(kind, key1=TRUE, key2=WRONG) for kind in LOCAL), IDENTITY)
    configuration.write_bytes(configuration_of_rules((("*.*",), providers)))
    for name, stored in (("plain", lambda _at, value, _number: value), ("sealed", as_stored)):
        samples = placed(lambda number: not number % sample)
        held = {key: stored(key, value, number) for key, value, number in samples}
        snapshot = snapshot_of(held, folder / f"{name}.db")
        given = ["--snapshot", snapshot, "--encryption-config", str(configuration), "-o", "jsonl"]
        with ThreadPoolExecutor(2) as pool:
            old, new = pool.map(lambda tree, given=given: _by_key(tree.told("scan", *given)), trees)
        for key in (*sorted(held), "summary"):
            group.compare(f"{name} {key}", old.get(key), new.get(key))
    return group


def _by_key(told: dict[str, Any]) -> dict[str, Any]:
    """Return the findings by key, and what they came to under a name of its own."""
    findings = [line for line in told["told"] if "outcome" in line]
    rest = [line for line in told["told"] if "outcome" not in line]
    found = {line["key"]: line for line in findings}
    return {**found, "summary": {"exit_code": told["exit_code"], "told": rest}}


def snapshot_of(held: dict[str, bytes], path: Path) -> str:
    """Write a snapshot file that holds these keys, each with a revision of its own."""
    items = [put(number, key.encode(), value) for number, (key, value) in enumerate(held.items(), start=2)]
    path.write_bytes(database(items, trailer=True))
    return str(path)


def controllers(trees: tuple[Tree, Tree], folder: Path, sample: int) -> Group:
    """What is forecast of each recorded cluster: of the objects that were touched, of its namespaces, of the rest."""
    configuration = folder / "controllers.yaml"
    run = json.loads((golden_folder("controllers") / "run.json").read_bytes())
    configuration.write_text(json.dumps(run["encryption_configuration"]))
    group = Group("controllers")
    for case in cases()[::sample]:
        snapshot = snapshot_of(values_before(case), folder / "case.db")
        where = ["--snapshot", snapshot, "--encryption-config", str(configuration), "-o", "json"]
        both(trees, _forecasts(case, where), group)
    return group


def _forecasts(case: dict[str, Any], where: list[str]) -> Commands:
    action, name = case["action"], case["id"]
    policy = action.get("propagationPolicy")
    chosen = ["--policy", policy.lower()] if policy else []
    keys = action.get("keys") or [action["key"]] if action.get("key") else []
    for key in keys[:2]:
        yield f"{name} impact {key}", ["explain", key, "--impact", *chosen, *where]
    for key in keys or [entry["key"] for entry in case["before"]]:
        if key.startswith("/registry/namespaces/"):
            yield f"{name} {key}", ["namespace", key.rpartition("/")[2], *where]
    if not keys:
        yield f"{name} orphans", ["scan", "--orphans", *where]


GROUPS: dict[str, Callable[[tuple[Tree, Tree], Path, int], Group]] = {
    "alpha": alpha,
    "damaged": damaged,
    "controllers": controllers,
}
