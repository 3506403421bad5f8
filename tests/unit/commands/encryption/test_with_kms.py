"""The same questions where keys stand behind a KMS plugin: one session for all configurations."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from etcdfix.commands.encryption.try_ import NamedCandidate, TryRequest, try_candidates
from etcdfix.commands.encryption.usage import UsageRequest, encryption_usage
from etcdfix.commands.encryption.what_if import WhatIfRequest, what_if
from etcdfix.encryption.config_model import EncryptionConfiguration
from etcdfix.encryption.kms.plugins import KMSPlugins
from etcdfix.model.model import key_id_digest
from etcdfix.model.storagekey import StorageLayout
from etcdfix.report.encryption import EncryptionTryReport, EncryptionUsageReport, WhatIfReport
from etcdfix.sources.base import Source
from tests.support.kms_plugin import KMSPlugin
from tests.support.memory_source import MemorySource
from tests.support.objects import IDENTITY, KEY_1, configuration, namespace_object, provider, secret

KEKS = {"kek-old": b"1" * 32, "kek-new": b"2" * 32}
BASE = {"/registry/namespaces/kube-system": namespace_object("kube-system")}
LOCAL = configuration(provider("aesgcm", local=KEY_1), IDENTITY)


def name(number: int) -> str:
    return f"/registry/secrets/shop/web-{number}"


@pytest.fixture(params=["v1", "v2"])
def plugin(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[KMSPlugin]:
    with KMSPlugin(request.param, tmp_path / "kms.sock", KEKS) as running:
        yield running


def config(plugin: KMSPlugin, *after: dict[str, object]) -> EncryptionConfiguration:
    kms = {"kms": {"apiVersion": plugin.api_version, "name": "prov", "endpoint": plugin.endpoint}}
    return configuration(kms, *after, IDENTITY)


def values(plugin: KMSPlugin, ids: list[str]) -> dict[str, bytes]:
    store = plugin.stored_v1 if plugin.api_version == "v1" else plugin.stored_v2
    return {name(n): store(secret(f"web-{n}"), name(n).encode(), key_id=kek) for n, kek in enumerate(ids)}


def asked() -> KMSPlugins:
    return KMSPlugins(max_rate=0, patience_seconds=0.5)


def no_snapshot(_path: Path) -> Source:
    raise AssertionError("no other snapshot was named")


def used(plugin: KMSPlugin, found: dict[str, bytes]) -> EncryptionUsageReport:
    request = UsageRequest(
        layout=StorageLayout(), configuration=config(plugin, provider("aesgcm", local=KEY_1))
    )
    with asked() as plugins:
        source = MemorySource({**BASE, **found})
        return encryption_usage(source, request, open_snapshot=no_snapshot, plugins=plugins)[0]


def foreseen(
    today: EncryptionConfiguration, new: EncryptionConfiguration, found: dict[str, bytes]
) -> WhatIfReport:
    request = WhatIfRequest(layout=StorageLayout(), configuration=today, new=new)
    with asked() as plugins:
        return what_if(MemorySource({**BASE, **found}), request, plugins=plugins)[0]


def tried(plugin: KMSPlugin, found: dict[str, bytes]) -> EncryptionTryReport:
    candidate = NamedCandidate("kms.yaml", config(plugin))
    request = TryRequest(layout=StorageLayout(), configuration=LOCAL, candidates=(candidate,))
    with asked() as plugins:
        return try_candidates(MemorySource({**BASE, **found}), request, plugins=plugins)[0]


def test_usage_tells_the_key_ids_apart(plugin: KMSPlugin) -> None:
    report = used(plugin, values(plugin, ["kek-old", "kek-old", "kek-new"]))
    keys = {
        key.kms_key_id_sha256: (key.objects, key.stale, key.write_key, key.safe_to_remove)
        for key in report.keys
        if key.transformer.startswith("kms/")
    }
    old, new = key_id_digest("kek-old"), key_id_digest("kek-new")
    apart = {old: (2, 2, False, False), new: (1, 0, True, False)}
    assert keys == ({None: (3, 0, True, False)} if plugin.api_version == "v1" else apart)
    assert (report.safe_to_remove, report.complete) == (1, True)  # the local one
    plugin.stop()
    report = used(plugin, values(plugin, ["kek-old"]))
    assert (report.safe_to_remove, report.complete) == (0, False)


def test_what_if_asks_a_plugin_of_both_configurations_once(plugin: KMSPlugin) -> None:
    found = values(plugin, ["kek-new"] * 5)
    both = config(plugin, provider("aesgcm", local=KEY_1))
    report = foreseen(config(plugin), both, found)
    assert (report.changes, report.complete) == ([], True)
    assert plugin.count("Decrypt") == 5


def test_what_if_a_plugin_is_away_what_the_new_file_has_nothing_for_is_lost(plugin: KMSPlugin) -> None:
    """And what the new one alone has a provider for cannot be told."""
    found = values(plugin, ["kek-new"] * 3)
    plugin.stop()
    for today, new, change in (
        (config(plugin), LOCAL, "becomes-unreadable"),
        (LOCAL, config(plugin), "undetermined"),
    ):
        report = foreseen(today, new, found)
        assert [(one.change.value, one.count) for one in report.changes] == [(change, 3)]


def test_try_asks_the_plugin_of_a_candidate(plugin: KMSPlugin) -> None:
    report = tried(plugin, values(plugin, ["kek-new"] * 20))
    assert (report.findings, report.opened, report.complete) == (20, 20, True)
    assert plugin.count("Decrypt") == 20


def test_try_a_plugin_that_refuses_is_undetermined(plugin: KMSPlugin) -> None:
    found = values(plugin, ["kek-new"] * 3)
    del plugin.keks["kek-new"]
    report = tried(plugin, found)
    assert (report.opened, report.candidates[0].undetermined, report.complete) == (0, 3, False)
