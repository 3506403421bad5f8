"""Other configurations on the damaged cluster: key by key what the API server called corrupt with them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from etcdfix.commands.encryption import whole
from etcdfix.commands.encryption.try_ import NamedCandidate, TryRequest, try_candidates
from etcdfix.commands.encryption.what_if import WhatIfRequest, what_if
from etcdfix.encryption.config import load_configuration
from etcdfix.model.scope import ScopeRequest
from etcdfix.model.storagekey import StorageLayout
from etcdfix.report.encryption import ConfigurationChange, WhatIfReport
from etcdfix.sources.snapshot import SnapshotSource
from tests.support.alpha_oracle import CONFIGURATIONS, ORACLE, RESOURCES, corrupt_for_the_server
from tests.support.collecting import ALPHA, alpha_plugins, ask
from tests.support.kms_plugin import KMSPlugin

UNKNOWN_KEY_ID = "/registry/secrets/infra/mail-kmsv2-1"
"""Its plugin does not know the key id: the server calls it corrupt, and nobody can know whether the key is gone."""
WRITERS = {
    "write-cbc-key1.yaml": b"k8s:enc:aescbc:v1:key1:",
    "write-cbc-key2.yaml": b"k8s:enc:aescbc:v1:key2:",
    "write-gcm.yaml": b"k8s:enc:aesgcm:v1:gcmA:",
    "write-secretbox.yaml": b"k8s:enc:secretbox:v1:sbA:",
    "write-kmsv1.yaml": b"k8s:enc:kms:v1:kmsold:",
    "write-kmsv2.yaml": b"k8s:enc:kms:v2:kmsnew:",
}
UNREADABLE_TODAY_TOO = (ConfigurationChange.STAYS_UNREADABLE, ConfigurationChange.LOSES_ITS_WAY_BACK)


@pytest.fixture(scope="module")
def plugins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, KMSPlugin]]:
    with alpha_plugins(tmp_path_factory.mktemp("kms")) as running:
        yield running


@pytest.fixture(autouse=True)
def _every_example(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole, "MOST_EXAMPLES", 1000)


def compared(today: str, new: str, plugins: dict[str, KMSPlugin]) -> WhatIfReport:
    request = WhatIfRequest(
        layout=StorageLayout(),
        configuration=load_configuration(ALPHA / today),
        kubernetes_minor=36,
        new=load_configuration(ALPHA / new),
    )
    with SnapshotSource(ALPHA / "snapshot.db.gz") as source, ask(plugins) as asked:
        return what_if(source, request, plugins=asked)[0]


def keys(report: WhatIfReport, *changes: ConfigurationChange) -> set[str]:
    return {key for change in report.changes if change.change in changes for key in change.examples}


def corrupt(config: str) -> set[str]:
    found = {key for storage in RESOURCES for key in corrupt_for_the_server(config, storage)}
    return found - {UNKNOWN_KEY_ID}


@pytest.mark.parametrize(("today", "new"), [sorted(CONFIGURATIONS), sorted(CONFIGURATIONS, reverse=True)])
def test_what_changes_is_what_changes_for_the_api_server(
    today: str, new: str, plugins: dict[str, KMSPlugin]
) -> None:
    report = compared(today, new, plugins)
    before, after = corrupt(today), corrupt(new)
    assert before != after
    assert keys(report, ConfigurationChange.BECOMES_UNREADABLE) == after - before
    assert keys(report, *UNREADABLE_TODAY_TOO) == after & before
    assert keys(report, ConfigurationChange.BECOMES_READABLE) == before - after
    assert keys(report, ConfigurationChange.UNDETERMINED) == {UNKNOWN_KEY_ID}
    assert report.counts[ConfigurationChange.BECOMES_UNREADABLE] == len(after - before)


@pytest.mark.thorough
@pytest.mark.parametrize("new", sorted(CONFIGURATIONS))
@pytest.mark.parametrize("today", sorted(WRITERS))
def test_whatever_is_today_s_what_is_unreadable_then_is_what_the_api_server_calls_corrupt(
    today: str, new: str, plugins: dict[str, KMSPlugin]
) -> None:
    report = compared(today, new, plugins)
    unreadable = keys(report, ConfigurationChange.BECOMES_UNREADABLE, *UNREADABLE_TODAY_TOO)
    assert keys(report, ConfigurationChange.UNDETERMINED) == {UNKNOWN_KEY_ID}
    assert unreadable == corrupt(new)


def test_with_no_plugin_asked_the_values_behind_it_are_not_told() -> None:
    request = WhatIfRequest(
        layout=StorageLayout(),
        configuration=load_configuration(ALPHA / "write-cbc-key2.yaml"),
        new=load_configuration(ALPHA / "config-rotated.yaml"),
    )
    with SnapshotSource(ALPHA / "snapshot.db.gz") as source:
        behind = {s.key.decode() for s in source.current(b"") if s.value.startswith(b"k8s:enc:kms:")}
        report = what_if(source, request)[0]
    assert keys(report, ConfigurationChange.UNDETERMINED) == behind
    assert not report.complete


def test_each_configuration_that_was_in_force_opens_what_was_written_with_it(
    plugins: dict[str, KMSPlugin],
) -> None:
    """And none opens what is damaged under a key that is there."""
    candidates = tuple(NamedCandidate(name, load_configuration(ALPHA / name)) for name in WRITERS)
    scope = ScopeRequest(("secrets",))
    request = TryRequest(layout=StorageLayout(), candidates=candidates, scope=scope, kubernetes_minor=36)
    with SnapshotSource(ALPHA / "snapshot.db.gz") as source, ask(plugins) as asked:
        stored = {value.key.decode(): value.value for value in source.current(b"/registry/secrets/")}
        tried = try_candidates(source, request, plugins=asked)[0]
    opened = {candidate.name: set(candidate.opened) for candidate in tried.candidates}
    for name, prefix in WRITERS.items():
        written = {key for key, value in stored.items() if value.startswith(prefix)}
        assert written - set(ORACLE["damage"]) <= opened[name] <= written
    always = set.intersection(*(set(corrupt_for_the_server(config, "secrets")) for config in CONFIGURATIONS))
    every = set.union(*opened.values())
    # Neither configuration of the oracle has the key of these.
    assert every & always == {key for key in every if "cbc-key2" in key}
