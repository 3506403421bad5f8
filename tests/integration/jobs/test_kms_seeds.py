"""KMS v2 with more seeds than are kept, or a plugin that changes or errs midway: any number of jobs says the same."""

from __future__ import annotations

import io
import json
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from etcdfix.commands.scan import ScanRequest, run_scan
from etcdfix.encryption.config import parse_configuration
from etcdfix.encryption.kms import transformer
from etcdfix.encryption.kms.plugins import KMSPlugins
from etcdfix.examine import first_pass
from etcdfix.model.storagekey import StorageLayout
from etcdfix.report.render import SCAN_FORMS
from etcdfix.sources import pages
from etcdfix.text.commands import RunOptions
from tests.support.job_runs import without_times
from tests.support.kms_plugin import KMSPlugin, Wrapped
from tests.support.memory_source import MemorySource
from tests.support.objects import IDENTITY, configuration_of_rules, namespace_object, secret
from tests.support.thorough import THOROUGH, some

KEKS: Final = {"kek-1": b"1" * 32, "kek-2": b"2" * 32}
SEEDS: Final = 1_300 if THOROUGH else 90
"""More than are kept."""
ROUNDS: Final = 3
DAMAGED_EACH: Final = 9
ERRING: Final = 4


@pytest.fixture(autouse=True)
def _few_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "PAGE_VALUES", 100 if THOROUGH else 20)
    if not THOROUGH:
        monkeypatch.setattr(transformer, "MOST_WITNESSES", 64)
        monkeypatch.setattr(transformer, "_MOST_KNOWN_TAILS", 64)
        monkeypatch.setattr(first_pass, "_MOST_SEEDS", 8)


@pytest.fixture
def plugin(tmp_path: Path) -> Iterator[KMSPlugin]:
    with KMSPlugin("v2", f"@etcdfix-seeds-{os.getpid()}-{tmp_path.name}", KEKS) as running:
        yield running


class Store:
    """Secrets under many seeds, each of which wrote several; of some values the wrapped seed is damaged."""

    def __init__(self, plugin: KMSPlugin) -> None:
        drawn = random.Random(1)
        self.held: dict[str, bytes] = {"/registry/namespaces/kube-system": namespace_object("kube-system")}
        self.damaged: set[str] = set()
        seeds: list[tuple[bytes, Wrapped]] = []
        for number in range(SEEDS):
            source = drawn.randbytes(32)
            seeds.append((source, plugin.encrypt(source, "kek-1" if number % 3 else "kek-2")))
        self.wrapped = [wrapped.ciphertext for _, wrapped in seeds]
        order = [at for _ in range(ROUNDS) for at in range(SEEDS)]
        for number, at in enumerate(order):
            name = f"s-{number:05}"
            key = f"/registry/secrets/shop/{name}"
            source, wrapped = seeds[at]
            value = plugin.stored_v2(secret(name), key.encode(), source=source, wrapped=wrapped)
            if number // SEEDS == 1 and at % DAMAGED_EACH == 5:
                begin = value.rindex(wrapped.ciphertext) + 15
                value = (
                    value[:begin]
                    + bytes(byte ^ 0xFF for byte in value[begin : begin + 2])
                    + value[begin + 2 :]
                )
                self.damaged.add(key)
            self.held[key] = value


def said(store: Store, plugin: KMSPlugin, jobs: int) -> dict[str, Any]:
    kms = {"apiVersion": "v2", "name": "prov", "endpoint": plugin.endpoint, "timeout": "5s"}
    configuration = parse_configuration(
        configuration_of_rules((("secrets",), ({"kms": kms}, IDENTITY))), path="config.yaml"
    )
    request = ScanRequest(layout=StorageLayout(), configuration=configuration)
    stream = io.BytesIO()
    reporter = SCAN_FORMS["json"](stream, RunOptions())
    with KMSPlugins(max_rate=0, patience_seconds=5) as plugins, MemorySource(store.held) as source:
        run_scan(source, request, reporter, plugins=plugins, jobs=jobs)
    document = without_times(json.loads(stream.getvalue()))
    for asked in document["summary"]["kms"]:
        for field in ("calls", "unwrapped", "refused", "failed"):
            del asked[field]
    return document


def test_more_seeds_than_are_kept(plugin: KMSPlugin) -> None:
    store = Store(plugin)
    alone = said(store, plugin, 1)
    assert {finding["key"] for finding in alone["findings"]} == store.damaged
    assert {finding["cause"] for finding in alone["findings"]} == {"kms-envelope-damaged"}
    assert {finding["confidence"] for finding in alone["findings"]} == {"certain", "likely"}
    assert alone["summary"]["readable"] == 1 + ROUNDS * SEEDS - len(store.damaged)
    for jobs in (1, 4):
        assert said(store, plugin, jobs) == alone


def changing(plugin: KMSPlugin, after: int) -> Callable[[Any], None]:
    asked = 0

    def script(_request: Any) -> None:
        nonlocal asked
        asked += 1
        if asked == after:
            plugin.write_key_id = "kek-1"

    return script


def test_a_key_id_that_changes_midway(plugin: KMSPlugin) -> None:
    """What reads still reads, and what does not is judged as before; only what is stale may be seen before or after."""
    store = Store(plugin)
    expected = said(store, plugin, 1)
    for jobs in (1, 4):
        plugin.write_key_id, plugin.script = "kek-2", changing(plugin, SEEDS // 2)
        found = said(store, plugin, jobs)
        assert found["findings"] == expected["findings"]
        assert found["complete"] == expected["complete"]
        counts = ("keys", "readable", "undetermined", "decrypt_failures", "key_loss", "severity")
        assert [found["summary"][name] for name in counts] == [expected["summary"][name] for name in counts]


@pytest.mark.parametrize("how", some(["other bytes", "too short", "nothing"], of=3))
def test_a_plugin_that_errs_for_some_seeds(plugin: KMSPlugin, how: str) -> None:
    """What it makes of them opens nothing; that is never proven against a value, whichever process looked."""
    store = Store(plugin)
    drawn = random.Random(3)
    wrong = frozenset(drawn.sample(store.wrapped, ERRING))

    def script(request: Any) -> bytes | None:
        if request.ciphertext not in wrong:
            return None
        answer = {"other bytes": bytes(32), "too short": b"short", "nothing": b""}[how]
        return b"raw:" + (b"\x0a" + bytes([len(answer)]) + answer if answer else b"")

    plugin.script = script
    alone = said(store, plugin, 1)
    erring = [finding for finding in alone["findings"] if finding["key"] not in store.damaged]
    assert len(erring) >= ERRING
    sure = {finding["outcome"] for finding in erring if finding["confidence"] == "certain"}
    assert sure <= {"undetermined"}
    assert said(store, plugin, 4) == alone
