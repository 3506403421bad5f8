"""The damaged cluster with its KMS plugins back: the API server's verdicts, and no outage that looks like damage."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from etcdfix.cli.look import ExitCode, scan_exit_code
from etcdfix.commands.scan import ScanResult
from etcdfix.encryption.kms.plugins import KMSPlugins
from etcdfix.sources.snapshot import SnapshotSource
from tests.support.alpha_oracle import (
    CONFIGURATIONS,
    RESOURCES,
    assert_same_message,
    corrupt_for_the_server,
    corrupt_for_us,
)
from tests.support.collecting import ALPHA, CollectingReporter, scan
from tests.support.kms_plugin import KMSPlugin, load_keks

# Its key id is one that the plugin does not know: the server calls it corrupt, and no tool can know whether the
# key is gone for ever.
UNKNOWN_KEY_ID = "/registry/secrets/infra/mail-kmsv2-1"
TRANSFORMERS = {"kmsnew": "kms/v2/kmsnew", "kmsold": "kms/v1/kmsold"}


@pytest.fixture(scope="module")
def alpha_plugins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, KMSPlugin]]:
    folder = tmp_path_factory.mktemp("kms")
    with (
        KMSPlugin("v2", folder / "1.sock", load_keks(ALPHA / "kms1.keys")) as new,
        KMSPlugin("v1", folder / "2.sock", load_keks(ALPHA / "kms2.keys")) as old,
    ):
        yield {"kmsnew": new, "kmsold": old}


def scan_alpha(config: str, plugins: dict[str, KMSPlugin]) -> tuple[CollectingReporter, ScanResult]:
    endpoints = {name: plugin.endpoint for name, plugin in plugins.items()}
    with (
        SnapshotSource(ALPHA / "snapshot.db.gz") as source,
        KMSPlugins(endpoints, max_rate=0, patience_seconds=0.5) as asked,
    ):
        return scan(source, ALPHA / config, plugins=asked, kubernetes_minor=36)


@pytest.fixture(scope="module", params=sorted(CONFIGURATIONS))
def answered(
    request: pytest.FixtureRequest, alpha_plugins: dict[str, KMSPlugin]
) -> tuple[str, CollectingReporter, ScanResult]:
    return request.param, *scan_alpha(request.param, alpha_plugins)


@pytest.mark.parametrize("storage", RESOURCES)
def test_corrupt_sets_and_messages_are_the_api_servers(
    answered: tuple[str, CollectingReporter, ScanResult], storage: str
) -> None:
    config, reporter, _ = answered
    ours = corrupt_for_us(reporter.findings, storage)
    theirs = corrupt_for_the_server(config, storage)
    if storage == "secrets":
        assert_same_message(reporter.findings[UNKNOWN_KEY_ID], theirs.pop(UNKNOWN_KEY_ID))
    assert set(ours) == set(theirs)
    for key, message in theirs.items():
        assert_same_message(ours[key], message)


def test_only_the_value_of_the_unknown_key_is_undetermined(
    answered: tuple[str, CollectingReporter, ScanResult],
) -> None:
    _, reporter, result = answered
    (finding,) = [f for f in reporter.findings.values() if f.outcome == "undetermined"]
    assert (finding.key, finding.cause, finding.transient) == (UNKNOWN_KEY_ID, "kms-key-unknown", False)
    assert "NOT_FOUND" in finding.message
    assert scan_exit_code(result) is ExitCode.INCOMPLETE


def test_a_damaged_length_is_proven_by_the_one_that_opens(alpha_plugins: dict[str, KMSPlugin]) -> None:
    reporter, _ = scan_alpha("config-rotated.yaml", alpha_plugins)
    finding = reporter.findings["/registry/secrets/shop/tls-kmsv1-9"]
    assert (finding.outcome, finding.cause) == ("decrypt-failure", "kms-envelope-damaged")
    assert "its length is damaged" in finding.message
    assert finding.upstream_message == "rpc error: code = NotFound desc = key not found"


def test_what_counts_against_a_value_names_its_controls(
    answered: tuple[str, CollectingReporter, ScanResult],
) -> None:
    _, reporter, _ = answered
    proven = [
        finding
        for finding in reporter.findings.values()
        if finding.transformer == "kms/v2/kmsnew" and finding.outcome == "decrypt-failure"
    ]
    undone = {
        finding.cause: e.result
        for finding in proven
        for e in finding.evidence
        if e.check == "undo what may have happened"
    }
    assert undone == {"nonce-damaged": "info-bit", "kms-envelope-damaged": "data-key"}
    assert {finding.confidence for finding in proven} == {"certain"}
    for finding in proven:
        control = finding.evidence[1]
        assert control.check == "other values that the plugin of kms/v2/kmsnew opened in this run"
        assert control.result == "8"
        assert control.detail.startswith("8 of them under the same key id")


@pytest.mark.parametrize("stopped", ["kmsnew", "kmsold"])
def test_a_stopped_plugin_makes_its_values_undetermined_and_no_others(
    stopped: str, alpha_plugins: dict[str, KMSPlugin]
) -> None:
    with SnapshotSource(ALPHA / "snapshot.db.gz") as source:
        prefix = f"k8s:enc:{TRANSFORMERS[stopped].replace('/', ':')}:".encode()
        its_values = {
            s.key.decode() for s in source.current(b"/registry/secrets/") if s.value.startswith(prefix)
        }
    alpha_plugins[stopped].stop()
    try:
        reporter, result = scan_alpha("config-rotated.yaml", alpha_plugins)
    finally:
        alpha_plugins[stopped].start()
    waiting = {key: f for key, f in reporter.findings.items() if f.outcome == "undetermined"}
    assert set(waiting) - {UNKNOWN_KEY_ID} == its_values - {UNKNOWN_KEY_ID}
    assert {waiting[key].cause for key in its_values} == {"kms-unreachable"}
    assert all(waiting[key].transient for key in its_values)
    assert not [
        f for f in reporter.findings.values()
        if f.transformer == TRANSFORMERS[stopped] and f.outcome != "undetermined"
    ]  # fmt: skip
    assert scan_exit_code(result) is ExitCode.INCOMPLETE
    assert reporter.conclusion is not None
    assert reporter.conclusion.incomplete_reasons[0].startswith(
        f"KMS plugin of {TRANSFORMERS[stopped]} at unix://"
    )


def test_a_plugin_with_the_wrong_keyring_proves_nothing(
    alpha_plugins: dict[str, KMSPlugin], tmp_path: Path
) -> None:
    keyring = dict.fromkeys(load_keks(ALPHA / "kms1.keys"), bytes(32))
    with KMSPlugin("v2", tmp_path / "wrong.sock", keyring) as plugin:
        reporter, _ = scan_alpha("config-lost.yaml", alpha_plugins | {"kmsnew": plugin})
    found = [f for f in reporter.findings.values() if f.transformer == "kms/v2/kmsnew"]
    assert len(found) == 11
    assert {(f.outcome, f.cause) for f in found} == {("undetermined", "kms-unproven")}
