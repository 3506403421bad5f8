"""A value that its own bytes give back: scan, explain and copies say so first, and say the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from etcdfix.commands.copies import CopiesRequest, find_copies
from etcdfix.commands.explain import ExplainRequest, explain_key
from etcdfix.commands.scan import ScanRequest, run_scan
from etcdfix.encryption.config_model import EncryptionConfiguration
from etcdfix.model.scope import ScopeRequest
from etcdfix.model.storagekey import StorageLayout
from etcdfix.remediation.places import RecordPaths
from etcdfix.report.copies import CopiesReport
from etcdfix.report.explain import ExplainReport
from etcdfix.report.model import Finding, Remedy, Summary
from etcdfix.text.commands import RunOptions, fix
from tests.support.attacks import LOCAL, TRUE, WRONG, seal, secret
from tests.support.collecting import CollectingReporter
from tests.support.memory_source import MemorySource
from tests.support.objects import IDENTITY, configuration, provider

LIVE = RunOptions(source=("--endpoints", "10.0.0.1:2379"), reading=("--encryption-config", "c.yaml"))
NAMES = ("a", "b", "c", "d", "e")
TARGET = "/registry/secrets/shop/c"
NOWHERE = Path("/nonexistent/etcdfix")


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
        records=RecordPaths(audit_log=NOWHERE / "log"),
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
def test_the_colon_behind_a_name_is_put_back_first(kind: str) -> None:
    holds = written(kind)
    value = holds[TARGET]
    holds[TARGET] = flipped(value, (value.index(b"key1") + 4) * 8)
    command = UNPROVEN if kind == "aescbc" else PROVEN
    assert first_commands(holds, keyed(kind)) == [command] * 6


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
