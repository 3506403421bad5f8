"""What another configuration would do to the damaged cluster: key by key what the API server called corrupt with it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from etcdfix.commands.encryption import whole
from etcdfix.commands.encryption.what_if import WhatIfRequest, what_if
from etcdfix.encryption.config import load_configuration
from etcdfix.encryption.kms.plugins import KMSPlugins
from etcdfix.model.storagekey import StorageLayout
from etcdfix.report.encryption import ConfigurationChange, WhatIfReport
from etcdfix.sources.snapshot import SnapshotSource
from tests.support.alpha_oracle import CONFIGURATIONS, RESOURCES, corrupt_for_the_server
from tests.support.collecting import ALPHA
from tests.support.kms_plugin import KMSPlugin, load_keks

UNKNOWN_KEY_ID = "/registry/secrets/infra/mail-kmsv2-1"
"""Its plugin does not know the key id: the server calls it corrupt, and nobody can know whether the key is gone."""
WRITERS = sorted(path.name for path in ALPHA.glob("write-*.yaml"))

UNREADABLE_TODAY_TOO = (ConfigurationChange.STAYS_UNREADABLE, ConfigurationChange.LOSES_ITS_WAY_BACK)


@pytest.fixture(scope="module")
def endpoints(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    folder = tmp_path_factory.mktemp("kms")
    with (
        KMSPlugin("v2", folder / "1.sock", load_keks(ALPHA / "kms1.keys")) as new,
        KMSPlugin("v1", folder / "2.sock", load_keks(ALPHA / "kms2.keys")) as old,
    ):
        yield {"kmsnew": new.endpoint, "kmsold": old.endpoint}


@pytest.fixture(autouse=True)
def _every_example(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole, "MOST_EXAMPLES", 1000)


def compared(today: str, new: str, endpoints: dict[str, str]) -> WhatIfReport:
    with (
        SnapshotSource(ALPHA / "snapshot.db.gz") as source,
        KMSPlugins(endpoints, max_rate=0, patience_seconds=0.5) as plugins,
    ):
        request = WhatIfRequest(
            layout=StorageLayout(),
            configuration=load_configuration(ALPHA / today),
            kubernetes_minor=36,
            new=load_configuration(ALPHA / new),
        )
        return what_if(source, request, plugins=plugins)[0]


def keys(report: WhatIfReport, *changes: ConfigurationChange) -> set[str]:
    return {key for change in report.changes if change.change in changes for key in change.examples}


def corrupt(config: str) -> set[str]:
    return {key for storage in RESOURCES for key in corrupt_for_the_server(config, storage)} - {
        UNKNOWN_KEY_ID
    }


@pytest.mark.parametrize(("today", "new"), [sorted(CONFIGURATIONS), sorted(CONFIGURATIONS, reverse=True)])
def test_what_changes_is_what_changes_for_the_api_server(
    today: str, new: str, endpoints: dict[str, str]
) -> None:
    report = compared(today, new, endpoints)
    before, after = corrupt(today), corrupt(new)
    assert before != after
    assert keys(report, ConfigurationChange.BECOMES_UNREADABLE) == after - before
    assert keys(report, *UNREADABLE_TODAY_TOO) == after & before
    assert keys(report, ConfigurationChange.BECOMES_READABLE) == before - after
    assert keys(report, ConfigurationChange.UNDETERMINED) == {UNKNOWN_KEY_ID}
    assert report.counts[ConfigurationChange.BECOMES_UNREADABLE] == len(after - before)


@pytest.mark.parametrize("new", sorted(CONFIGURATIONS))
@pytest.mark.parametrize("today", WRITERS)
def test_whatever_is_today_s_what_is_unreadable_then_is_what_the_api_server_calls_corrupt(
    today: str, new: str, endpoints: dict[str, str]
) -> None:
    report = compared(today, new, endpoints)
    unreadable = keys(report, ConfigurationChange.BECOMES_UNREADABLE, *UNREADABLE_TODAY_TOO)
    assert keys(report, ConfigurationChange.UNDETERMINED) == {UNKNOWN_KEY_ID}
    assert unreadable == corrupt(new)


def test_with_no_plugin_asked_the_values_behind_it_are_not_told() -> None:
    with SnapshotSource(ALPHA / "snapshot.db.gz") as source:
        behind = {s.key.decode() for s in source.current(b"") if s.value.startswith(b"k8s:enc:kms:")}
        request = WhatIfRequest(
            layout=StorageLayout(),
            configuration=load_configuration(ALPHA / "write-cbc-key2.yaml"),
            new=load_configuration(ALPHA / "config-rotated.yaml"),
        )
        report = what_if(source, request)[0]
    assert keys(report, ConfigurationChange.UNDETERMINED) == behind
    assert not report.complete


def test_the_same_configuration_changes_nothing(endpoints: dict[str, str]) -> None:
    report = compared("config-lost.yaml", "config-lost.yaml", endpoints)
    assert {change.change for change in report.changes} == {
        ConfigurationChange.STAYS_UNREADABLE,
        ConfigurationChange.UNDETERMINED,
    }
    assert (report.write_keys, report.warnings) == ([], [])
