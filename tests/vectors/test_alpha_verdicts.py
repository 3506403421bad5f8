"""A real cluster's data, damaged on purpose, against the API server's own verdict on every key.

``oracle.json`` holds what kube-apiserver 1.36.2 answered; it is compared key by key and word by word, with the KMS
plugins of the cluster and without.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from etcdfix.cli.look import ExitCode, scan_exit_code
from etcdfix.commands.scan import ScanResult
from etcdfix.sources.snapshot import SnapshotSource
from tests.support.alpha_oracle import (
    CONFIGURATIONS,
    ORACLE,
    RESOURCES,
    assert_same_message,
    corrupt_for_the_server,
    corrupt_for_us,
)
from tests.support.collecting import ALPHA, CollectingReporter, alpha_plugins, ask, scan
from tests.support.kms_plugin import KMSPlugin, load_keks

# configuration -> the transformers that need a plugin under it
NEED_PLUGIN = {
    "config-lost.yaml": {"kms/v2/kmsnew"},
    "config-rotated.yaml": {"kms/v2/kmsnew", "kms/v1/kmsold"},
}
# Its key id is one that the plugin does not know: the server calls it corrupt, and no tool can know whether the
# key is gone for ever.
UNKNOWN_KEY_ID = "/registry/secrets/infra/mail-kmsv2-1"
# Damage that leaves a value which differs from the original, yet is in order by every rule there is.
UNNOTICEABLE = re.compile(r"bit flipped|copied to another key: decrypts")


class Scanned(NamedTuple):
    """One scan of alpha."""

    config: str
    asked: bool
    reporter: CollectingReporter
    result: ScanResult


@pytest.fixture(scope="module")
def plugins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, KMSPlugin]]:
    with alpha_plugins(tmp_path_factory.mktemp("kms")) as running:
        yield running


def scan_alpha(config: str, plugins: dict[str, KMSPlugin] | None) -> Scanned:
    with SnapshotSource(ALPHA / "snapshot.db.gz") as source:
        if plugins is None:
            return Scanned(config, False, *scan(source, ALPHA / config, kubernetes_minor=36))
        with ask(plugins) as asked:
            return Scanned(config, True, *scan(source, ALPHA / config, plugins=asked, kubernetes_minor=36))


ASKED, UNASKED = ([(config, asked) for config in sorted(CONFIGURATIONS)] for asked in (True, False))
with_plugins = pytest.mark.parametrize("scanned", ASKED, indirect=True)
without_plugins = pytest.mark.parametrize("scanned", UNASKED, indirect=True)


@pytest.fixture(scope="module", params=[*ASKED, *UNASKED])
def scanned(request: pytest.FixtureRequest, plugins: dict[str, KMSPlugin]) -> Scanned:
    config, asked = request.param
    return scan_alpha(config, plugins if asked else None)


def stored_under(transformers: set[str]) -> set[str]:
    prefixes = tuple(f"k8s:enc:{name.replace('/', ':')}:".encode() for name in transformers)
    with SnapshotSource(ALPHA / "snapshot.db.gz") as source:
        return {s.key.decode() for s in source.current(b"/registry/secrets/") if s.value.startswith(prefixes)}


@pytest.mark.parametrize("storage", RESOURCES)
def test_corrupt_sets_and_messages_are_the_api_servers(scanned: Scanned, storage: str) -> None:
    findings = scanned.reporter.findings
    ours = corrupt_for_us(findings, storage)
    theirs = dict(corrupt_for_the_server(scanned.config, storage))
    if storage == "secrets" and scanned.asked:
        assert_same_message(findings[UNKNOWN_KEY_ID], theirs.pop(UNKNOWN_KEY_ID))
    elif storage == "secrets":
        for key in stored_under(NEED_PLUGIN[scanned.config]):
            theirs.pop(key, None)
    assert set(ours) == set(theirs)
    for key, message in theirs.items():
        assert_same_message(ours[key], message)
        assert ours[key].apiserver == "corrupt"


@without_plugins
def test_statuses_carry_the_api_servers_causes_to_the_letter(scanned: Scanned) -> None:
    assert scanned.reporter.conclusion is not None
    theirs = {}
    for entry in ORACLE["verdicts"][CONFIGURATIONS[scanned.config]].values():
        theirs.update(entry["corrupt"])
    for status in scanned.reporter.conclusion.statuses:
        for cause in status.details.causes:
            expected = re.sub(r"missing in '.*'", "missing in", theirs[cause.field])
            assert re.sub(r"missing in '.*'", "missing in", cause.message) == expected


@with_plugins
def test_only_the_value_of_the_unknown_key_is_undetermined(scanned: Scanned) -> None:
    (finding,) = [f for f in scanned.reporter.findings.values() if f.outcome == "undetermined"]
    assert (finding.key, finding.cause, finding.transient) == (UNKNOWN_KEY_ID, "kms-key-unknown", False)
    assert scan_exit_code(scanned.result) is ExitCode.INCOMPLETE


@without_plugins
def test_without_plugins_the_values_behind_them_are_undetermined(scanned: Scanned) -> None:
    waiting = [f for f in scanned.reporter.findings.values() if f.outcome == "undetermined"]
    assert {f.cause for f in waiting} == {"kms-unreachable"}
    assert all(f.transient and f.apiserver == "not-asked" for f in waiting)
    assert {f.key for f in waiting} == stored_under(NEED_PLUGIN[scanned.config])


def test_what_makes_a_list_malformed_breaks_responses(scanned: Scanned) -> None:
    malformed = {
        entry["storage"]
        for entry in ORACLE["verdicts"][CONFIGURATIONS[scanned.config]].values()
        if entry["broken_body"] or entry["invalid_utf8_in_body"]
    }
    assert malformed == {"statefulsets", "replicasets"}
    for key in ("/registry/statefulsets/pay/db", "/registry/replicasets/shop/dep-0-abc"):
        finding = scanned.reporter.findings[key]
        assert (finding.outcome, finding.cause) == ("inconsistent", "raw-json-invalid")
        assert (finding.breaks_responses, finding.apiserver) == (True, "breaks-list")
    # A LIST that fails as a whole hides what else is wrong with its items, so pods may break too.
    broken = {f.resource for f in scanned.reporter.findings.values() if f.breaks_responses}
    assert broken <= malformed | {"pods"}


def test_what_was_damaged_is_found_and_nothing_else(scanned: Scanned) -> None:
    findings = scanned.reporter.findings
    for key in set(findings) - set(ORACLE["damage"]):
        assert findings[key].outcome != "inconsistent", key
        # What is left are the values of the lost keys and of KMS.
        lost = findings[key].transformer in {"aescbc/v1/key2", "aescbc/v1/key1", "kms/v1/kmsold"}
        assert lost or findings[key].transformer in NEED_PLUGIN[scanned.config], key
    assert {
        what
        for key, what in ORACLE["damage"].items()
        if key not in findings and not UNNOTICEABLE.search(what)
    } <= {
        # protobuf skips an unknown field, whatever is in it, and the flip made one of a known field
        "pod: tag of a nested field set to an illegal wire type"
    }


@with_plugins
def test_what_counts_against_a_value_behind_a_plugin(scanned: Scanned) -> None:
    proven = [
        finding
        for finding in scanned.reporter.findings.values()
        if finding.transformer == "kms/v2/kmsnew" and finding.outcome == "decrypt-failure"
    ]
    undone = {
        finding.cause: e.result
        for finding in proven
        for e in finding.evidence
        if e.check == "undo what may have happened"
    }
    assert undone == {"nonce-damaged": "info-bit", "kms-envelope-damaged": "data-key"}
    assert {(finding.confidence, finding.evidence[1].result) for finding in proven} == {("certain", "8")}


@pytest.mark.parametrize(
    ("stopped", "transformer"), [("kmsnew", "kms/v2/kmsnew"), ("kmsold", "kms/v1/kmsold")]
)
def test_a_stopped_plugin_makes_its_values_undetermined_and_no_others(
    stopped: str, transformer: str, plugins: dict[str, KMSPlugin]
) -> None:
    plugins[stopped].stop()
    try:
        _, _, reporter, result = scan_alpha("config-rotated.yaml", plugins)
    finally:
        plugins[stopped].start()
    its_values = stored_under({transformer})
    waiting = {key: f for key, f in reporter.findings.items() if f.outcome == "undetermined"}
    assert set(waiting) | {UNKNOWN_KEY_ID} == its_values | {UNKNOWN_KEY_ID}
    assert {(waiting[key].cause, waiting[key].transient) for key in its_values} == {("kms-unreachable", True)}
    assert scan_exit_code(result) is ExitCode.INCOMPLETE


def test_a_plugin_with_the_wrong_keyring_proves_nothing(
    plugins: dict[str, KMSPlugin], tmp_path: Path
) -> None:
    keyring = dict.fromkeys(load_keks(ALPHA / "kms1.keys"), bytes(32))
    with KMSPlugin("v2", tmp_path / "wrong.sock", keyring) as plugin:
        scanned = scan_alpha("config-lost.yaml", plugins | {"kmsnew": plugin})
    found = [f for f in scanned.reporter.findings.values() if f.transformer == "kms/v2/kmsnew"]
    assert len(found) == 11
    assert {(f.outcome, f.cause) for f in found} == {("undetermined", "kms-unproven")}
