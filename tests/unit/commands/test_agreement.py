"""Commands that look at the same values say the same: of a key, of a repair, with any number of processes."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from etcdfix.commands.copies import CopiesRequest, find_copies
from etcdfix.commands.encryption.try_ import NamedCandidate, TryRequest, try_candidates
from etcdfix.commands.encryption.usage import UsageRequest, encryption_usage
from etcdfix.commands.explain import ExplainRequest, explain_key
from etcdfix.commands.plan import build_plan
from etcdfix.commands.scan import ScanRequest, run_scan
from etcdfix.encryption.config import load_configuration
from etcdfix.encryption.config_model import EncryptionConfiguration
from etcdfix.encryption.kms.plugins import KMSPlugins
from etcdfix.examine import first_pass
from etcdfix.examine.all import no_progress
from etcdfix.examine.one import Reading
from etcdfix.examine.verdicts.key_loss import BY_NUMBERS
from etcdfix.graph.cluster import index_cluster
from etcdfix.model.providers import IDENTITY as UNENCRYPTED
from etcdfix.model.rules import MEANINGS, Rule
from etcdfix.model.scope import ScopeRequest
from etcdfix.model.storagekey import StorageLayout
from etcdfix.remediation.places import RecordPaths
from etcdfix.remediation.surroundings import look_at_all
from etcdfix.report.advice.whole import doubt_in
from etcdfix.report.copies import CopiesReport
from etcdfix.report.explain import ExplainReport
from etcdfix.report.model import Finding, Remedy, Summary, TransformerSummary
from etcdfix.report.plan import DECLARE_KEY_LOST
from etcdfix.sources import mvcc, pages
from etcdfix.sources.base import Source
from etcdfix.text.commands import RunOptions, fix
from tests.support.attacks import LOCAL, TRUE, WRONG, seal, secret
from tests.support.checked_values import judged
from tests.support.collecting import ALPHA, CollectingReporter
from tests.support.fixtures import Patch
from tests.support.impact_objects import Cluster
from tests.support.lost_key import base, examiner_of, request_for, scan_to
from tests.support.memory_source import MemorySource
from tests.support.objects import (
    IDENTITY,
    KEY_1,
    KEY_2,
    aescbc,
    aesgcm,
    config_map,
    configuration,
    provider,
)
from tests.support.pool_here import PoolHere
from tests.support.rendering import rendered
from tests.support.thorough import some

CONFIG = configuration(provider("aesgcm", key1=KEY_1), IDENTITY)
NOWHERE = b"0" * 16
Written = tuple[str, int, Callable[[bytes, str], bytes]]


def secrets(cluster: Cluster, name: str, count: int, write: Callable[[bytes, str], bytes]) -> None:
    """Add Secrets that are written in a certain way."""
    for number in range(count):
        key = cluster.secret(f"{name}-{number}")
        cluster.values[key] = write(cluster.values[key], key)


def cut(value: bytes, key: str) -> bytes:
    return aesgcm(value, key)[:-40]


def under_another_key(value: bytes, key: str) -> bytes:
    return aesgcm(value, key, NOWHERE)


def under_a_name_that_is_gone(value: bytes, key: str) -> bytes:
    return aesgcm(value, key, NOWHERE, name="gone")


def elsewhere(value: bytes, _key: str) -> bytes:
    return aesgcm(value, "/registry/secrets/elsewhere/x")


def zeroed(value: bytes, _key: str) -> bytes:
    return bytes(len(value))


LOST: list[Written] = [("gone", 12, under_a_name_that_is_gone)]
CASES: dict[str, tuple[list[Written], set[str]]] = {
    "a lost key": (LOST, {"declared"}),
    "one of many is damaged": ([("good", 5, aesgcm), ("cut", 1, cut)], {"nothing"}),
    "many are damaged": ([("good", 5, aesgcm), ("cut", 10, cut)], {"mass-damage"}),
    "other bytes": ([("other", 12, under_another_key)], {"declared"}),
    "many under other bytes and one whose key is right": (
        [("other", 10, under_another_key), ("cut", 1, cut)], {"declared", "refused"},
    ),
    "other bytes for a time": (
        [("a", 3, aesgcm), ("other", 2, under_another_key), ("z", 3, aesgcm)], {"declared, unproven-damage"},
    ),
    "other associated data for a time": (
        [("a", 3, aesgcm), ("moved", 2, elsewhere), ("z", 3, aesgcm)], {"mass-damage, unproven-damage"},
    ),
    "one that is likely damaged": (
        [("a", 3, aesgcm), ("other", 1, under_another_key), ("z", 3, aesgcm)], {"unproven-damage"},
    ),
    "many unencrypted are zeroed": ([("zero", 10, zeroed)], {"mass-damage"}),
    "a few unencrypted are zeroed": ([("good", 12, aesgcm), ("zero", 3, zeroed)], {"nothing"}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_they_agree(name: str, tmp_path: Path) -> None:
    written, expected = CASES[name]
    cluster = base()
    for group, count, write in written:
        secrets(cluster, group, count, write)
    source = cluster.source()
    report = scan_to(tmp_path / "report.json", cluster, config=CONFIG)
    plan = build_plan(source, examiner_of(cluster, source, CONFIG), request_for(report, CONFIG))
    found = index_cluster(
        source, Reading(layout=cluster.layout, configuration=CONFIG), keep=lambda _found: True
    )
    patterns = lost_by(json.loads(report.read_text()))
    asked = set()
    for entry in plan.entries:
        examined = found.kept[entry.key.encode()]
        key_looks_lost = found.key_looks_lost(examined)
        needs = dict(word.split(" ") for word in entry.needs if word.startswith(DECLARE_KEY_LOST))
        declared = needs.get(DECLARE_KEY_LOST, "")
        risks = {word.split(" ")[1] for word in entry.needs if not word.startswith(DECLARE_KEY_LOST)}
        risks.discard(Rule.ENDS_CACHED_READS)  # it is asked of the others of a kind, and of no value
        words = sorted(risks) if not declared else ["declared", *sorted(risks)]
        asked.add("refused" if entry.refused else ", ".join(words) or "nothing")
        if entry.transformer != UNENCRYPTED:
            assert key_looks_lost >= (entry.transformer in patterns), entry.name
            assert key_looks_lost <= (bool(declared) or bool(entry.refused)), entry.name
        deletable = deletion(cluster, CONFIG, entry.key)
        if entry.refused:
            assert not deletable(f"{entry.transformer}", set(MEANINGS))
            continue
        assert deletable(declared, risks), entry.name
        if declared:
            assert not deletable("", set(MEANINGS)), entry.name
        for fewer in combinations(sorted(risks), max(len(risks) - 1, 0)):
            if risks:
                assert not deletable(declared, set(fewer)), entry.name
    assert asked == expected


def lost_by(report: dict[str, Any]) -> set[str]:
    """Return the transformers whose key or configuration a scan blames."""
    entries = msgspec.convert(report["summary"]["by_transformer"], list[TransformerSummary])
    return {
        one.transformer for one in entries if one.transformer != "identity" and doubt_in(one) in BY_NUMBERS
    }


def deletion(
    cluster: Cluster, config: EncryptionConfiguration, key: str
) -> Callable[[str, set[str] | set[Rule]], bool]:
    """Return what says whether a deletion finds its proof, with a declaration and accepted risks."""
    source = cluster.source()
    examiner = examiner_of(cluster, source, config)
    stored = source.get(key.encode())
    assert stored is not None
    alike = look_at_all(source, examiner, examiner.examine(stored), no_progress, see=lambda _found: None)
    target = alike.target
    assert target is not None

    def passes(declared: str, risks: set[str] | set[Rule]) -> bool:
        return judged(target, alike, declared=declared, risks=risks).refusal is None

    return passes


JOBS = some([3, 2, 8], of=3)
NAMED = ("/registry/secrets/shop/s-3", "/registry/secrets/shop/s-4", "/registry/secrets/shop/absent")


@pytest.fixture(autouse=True)
def small_pages_without_processes(monkeypatch: Patch) -> None:
    monkeypatch.setattr(first_pass, "WorkerPool", PoolHere)
    monkeypatch.setattr(pages, "PAGE_VALUES", 3)
    monkeypatch.setattr(mvcc, "PAGE_RECORDS", 7)
    monkeypatch.setattr("etcdfix.remediation.places.default_directory", lambda: Path("/nonexistent/etcdfix"))


class Asked(NamedTuple):
    """What a report is about, and by how many processes it is made; the usage is always that of everything."""

    source: Source
    config: EncryptionConfiguration | None
    jobs: int
    plugins: KMSPlugins | None = None
    scope: tuple[str, ...] = ()

    def how(self) -> dict[str, Any]:
        return {"plugins": self.plugins, "jobs": self.jobs}


def usage(asked: Asked) -> dict[str, Any]:
    request = UsageRequest(layout=StorageLayout(), configuration=asked.config)
    report, _ = encryption_usage(asked.source, request, open_snapshot=lambda _: MemorySource(), **asked.how())
    return shown(report)


def tried(asked: Asked) -> dict[str, Any]:
    candidates = (NamedCandidate("rotated", load_configuration(ALPHA / "config-rotated.yaml")),)
    request = TryRequest(
        layout=StorageLayout(),
        configuration=asked.config,
        candidates=candidates,
        scope=ScopeRequest(asked.scope),
    )
    return shown(try_candidates(asked.source, request, **asked.how())[0])


def copies(asked: Asked) -> dict[str, Any]:
    request = CopiesRequest(
        layout=StorageLayout(),
        configuration=asked.config,
        scope=ScopeRequest(asked.scope),
        records=RecordPaths(audit_log=Path("/nonexistent/etcdfix/log")),
    )
    return shown(find_copies(asked.source, request, **asked.how()).report)


def shown(report: Any) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(rendered(report, "json"))
    del document["generated_at"]
    return document


Report = Callable[[Asked], dict[str, Any]]
REPORTS: list[Report] = [usage, tried, copies]


ROTATING = configuration(provider("aescbc", key1=KEY_1, key2=KEY_2))


def cluster() -> MemorySource:
    """Return stale values, cut ones, and some of a key that nobody has."""
    keys = (KEY_1, KEY_2, b"3" * 16)
    values = {"/registry/configmaps/shop/plain": config_map("plain")}
    for number in range(40):
        name = f"s-{number}"
        value = aescbc(secret(name), keys[number % 3], name=f"key{number % 3 + 1}")
        values[f"/registry/secrets/shop/{name}"] = value[:-5] if number % 10 == 9 else value
    return MemorySource(values)


@pytest.mark.parametrize("report", REPORTS)
@pytest.mark.parametrize("scope", [(), ("secrets",), NAMED, ("/registry/secrets/shop/s-3", "configmaps")])
def test_what_is_named_is_told_also_where_it_is_plain(report: Report, scope: tuple[str, ...]) -> None:
    found = [report(Asked(cluster(), ROTATING, jobs, scope=scope)) for jobs in (1, *JOBS)]
    assert found[1:] == found[:1] * len(JOBS)
    if report is copies and NAMED[0] in scope:
        state = {one["key"]: one["state"] for one in found[0]["objects"]}
        assert state[NAMED[0]] == "readable"


@pytest.mark.parametrize("report", REPORTS)
def test_a_worker_that_was_lost_is_named(report: Report, monkeypatch: Patch) -> None:
    class Losing(PoolHere):
        def __init__(self, *arguments: Any, **settings: Any) -> None:
            super().__init__(*arguments, **settings)
            self.lost.append("a worker process was ended by SIGKILL")

    one = report(Asked(cluster(), ROTATING, 1))
    monkeypatch.setattr(first_pass, "WorkerPool", Losing)
    less = report(Asked(cluster(), ROTATING, 2))
    assert not less["complete"]
    assert "a worker process was ended by SIGKILL" in less["incomplete_reasons"]
    assert not any(key["safe_to_remove"] for key in less.get("keys", ()))
    for name in ("keys", "complete", "incomplete_reasons"):
        one.pop(name, None), less.pop(name, None)
    assert one == less


LIVE = RunOptions(source=("--endpoints", "10.0.0.1:2379"), reading=("--encryption-config", "c.yaml"))
NAMES = ("a", "b", "c", "d", "e")
TARGET = "/registry/secrets/shop/c"
NO_FOLDER = Path("/nonexistent/etcdfix")


def written(kind: str, *, names: tuple[str, ...] = NAMES, **named: str) -> dict[str, bytes]:
    """Return Secrets under key1, but for those whose value has another name of the key."""
    return {
        f"/registry/secrets/shop/{name}": seal(
            kind, secret(name), f"/registry/secrets/shop/{name}", name=named.get(name, "key1")
        )
        for name in names
    }


def keyed(kind: str, key: bytes = TRUE) -> EncryptionConfiguration:
    return configuration(provider(kind, key1=key), IDENTITY)


def flipped(value: bytes, bit: int) -> bytes:
    at = bit // 8
    return value[:at] + bytes([value[at] ^ 1 << bit % 8]) + value[at + 1 :]


def scanned(holds: dict[str, bytes], config: EncryptionConfiguration, *words: str) -> tuple[Finding, Summary]:
    reporter = CollectingReporter()
    request = ScanRequest(layout=StorageLayout(), configuration=config, scope=ScopeRequest(words), run=LIVE)
    summary = run_scan(MemorySource(holds), request, reporter).report.summary
    return reporter.findings[TARGET], summary


def explained(holds: dict[str, bytes], config: EncryptionConfiguration) -> ExplainReport:
    request = ExplainRequest(layout=StorageLayout(), configuration=config, key=TARGET.encode(), run=LIVE)
    report = explain_key(MemorySource(holds), request).report
    assert report is not None
    return report


def copied(holds: dict[str, bytes], config: EncryptionConfiguration, *words: str) -> CopiesReport:
    request = CopiesRequest(
        layout=StorageLayout(),
        configuration=config,
        scope=ScopeRequest(words),
        run=LIVE,
        records=RecordPaths(audit_log=NO_FOLDER / "log"),
    )
    return find_copies(MemorySource(holds), request).report


def first_commands(holds: dict[str, bytes], config: EncryptionConfiguration) -> list[str]:
    """Return what each command says first of the target: of all, of the key alone, of the key whole."""
    whole, summary = scanned(holds, config)
    alone, summary_alone = scanned(holds, config, TARGET)
    told = explained(holds, config)
    steps: list[Remedy | None] = [whole.remedies[0], summary.next, alone.remedies[0], summary_alone.next]
    steps += [told.remedies[0], told.next]
    return [step.command.line(LIVE) if step is not None else "" for step in steps]


UNPROVEN = fix(TARGET.encode(), "bit", ["unproven-repair"]).line(LIVE)
PROVEN = fix(TARGET.encode(), "bit", []).line(LIVE)


@pytest.mark.parametrize("kind", LOCAL)
def test_one_bit_of_a_name_is_put_back_first(kind: str) -> None:
    """Nobody is told to give every API server a key of the misspelt name."""
    holds, config = written(kind, c="key3"), keyed(kind)
    assert first_commands(holds, config) == [UNPROVEN] * 6
    for words in ((), (TARGET,)):
        report = copied(holds, config, *words)
        steps = [one.next for one in report.objects if one.key == TARGET] + [report.next]
        assert [step.command.line(LIVE) if step else "" for step in steps] == [UNPROVEN] * 2, words


@pytest.mark.parametrize("kind", LOCAL)
@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"c": "key3", "e": "key3"}, id="a name that two have is the name of a key"),
        pytest.param({"names": ("c",), "c": "key3"}, id="a key that opens nothing may have had the other name"),
        pytest.param({"c": "key2"}, id="two bits of a name are those of another name"),
        pytest.param({}, id="another key one bit away is another key, which is lost"),
    ],
)  # fmt: skip
def test_nothing_is_said_of_a_repair(kind: str, change: dict[str, Any]) -> None:
    holds, config = written(kind, **change), keyed(kind)
    if not change:
        holds[TARGET] = seal(kind, secret("c"), TARGET, WRONG, "key3")
    told = explained(holds, config)
    said = [scanned(holds, config, *words) for words in ((), (TARGET,))]
    commands = [remedy.command.line(LIVE) for finding, _ in said for remedy in finding.remedies]
    commands += [summary.next.command.line(LIVE) for _, summary in said if summary.next is not None]
    commands += [remedy.command.line(LIVE) for remedy in told.remedies]
    commands += [one.next.command.line(LIVE) for one in copied(holds, config).objects if one.next is not None]
    assert not [command for command in commands if "--from bit" in command]
    assert not told.copies


# Under AES-CBC every bit is tried by itself.
@pytest.mark.parametrize("names", [NAMES, ("c",)], ids=["many", "alone"])
@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.thorough] if kind == "aescbc" else []) for kind in LOCAL]
)
def test_one_bit_of_a_body_is_put_back_first(kind: str, names: tuple[str, ...]) -> None:
    """Whatever a scan of everything, one of the key and a look at it call it, all say the same way out first."""
    whole = written(kind, names=names)
    config, repaired = keyed(kind), 0
    start = whole[TARGET].index(b"key1:") + 5
    for bit in range(start * 8, len(whole[TARGET]) * 8, 71 * 8 + 5):
        holds = {**whole, TARGET: flipped(whole[TARGET], bit)}
        told = explained(holds, config)
        assert told.finding is not None
        if told.finding.outcome not in {"decrypt-failure", "decode-failure"}:
            continue
        looked = [scanned(holds, config, *words)[0].cause for words in ((), (TARGET,))]
        assert looked == [told.finding.cause] * 2, bit
        commands = first_commands(holds, config)
        repaired += bool(told.copies)
        if not told.copies:
            assert kind == "aescbc"
            assert len(set(commands)) == 1, bit
        else:
            assert commands == [UNPROVEN if kind == "aescbc" else PROVEN] * 6, bit
    assert repaired > 1
