"""A real cluster's data, damaged on purpose, against the API server's own verdict on every key.

``oracle.json`` holds what kube-apiserver 1.36.2 answered; it is compared key by key and word by word.
"""

from __future__ import annotations

import re

import pytest

from etcdfix.report.model import Finding
from etcdfix.sources.snapshot import SnapshotSource
from tests.support.alpha_oracle import (
    CONFIGURATIONS,
    ORACLE,
    RESOURCES,
    assert_same_message,
    corrupt_for_the_server,
    corrupt_for_us,
)
from tests.support.collecting import ALPHA, CollectingReporter, scan

# configuration -> the transformers that need a plugin under it
NEED_PLUGIN = {
    "config-lost.yaml": {"kms/v2/kmsnew"},
    "config-rotated.yaml": {"kms/v2/kmsnew", "kms/v1/kmsold"},
}

# Damage that leaves a value which differs from the original, yet is in order by every rule there is.
UNNOTICEABLE = re.compile(r"bit flipped|copied to another key: decrypts")


@pytest.fixture(scope="module", params=sorted(NEED_PLUGIN))
def scanned(request: pytest.FixtureRequest) -> tuple[str, CollectingReporter, int]:
    with SnapshotSource(ALPHA / "snapshot.db.gz") as source:
        reporter, _ = scan(source, ALPHA / request.param, kubernetes_minor=36)
    return request.param, reporter, 0


def needs_plugin(config: str, finding: Finding | None) -> bool:
    return (
        finding is not None
        and finding.transformer in NEED_PLUGIN[config]
        and finding.outcome == "undetermined"
    )


def test_the_oracle_has_fourteen_resources() -> None:
    assert len(RESOURCES) == 14
    assert len(ORACLE["damage"]) == 50


@pytest.mark.parametrize("storage", RESOURCES)
def test_corrupt_sets_and_messages_are_the_api_servers(
    scanned: tuple[str, CollectingReporter, int], storage: str
) -> None:
    config, reporter, _ = scanned
    ours = corrupt_for_us(reporter.findings, storage)
    theirs = {
        key: message
        for key, message in corrupt_for_the_server(config, storage).items()
        if not needs_plugin(config, reporter.findings.get(key))
    }
    assert set(ours) == set(theirs)
    for key, message in theirs.items():
        assert_same_message(ours[key], message)
    assert all(finding.apiserver == "corrupt" for finding in ours.values())


def test_statuses_carry_the_api_servers_causes_to_the_letter(
    scanned: tuple[str, CollectingReporter, int],
) -> None:
    config, reporter, _ = scanned
    assert reporter.conclusion is not None
    for status in reporter.conclusion.statuses:
        theirs = {}
        for entry in ORACLE["verdicts"][CONFIGURATIONS[config]].values():
            theirs.update(entry["corrupt"])
        for cause in status.details.causes:
            expected = re.sub(r"missing in '.*'", "missing in", theirs[cause.field])
            assert re.sub(r"missing in '.*'", "missing in", cause.message) == expected


def test_values_of_a_configured_kms_provider_are_undetermined(
    scanned: tuple[str, CollectingReporter, int],
) -> None:
    config, reporter, _ = scanned
    waiting = [f for f in reporter.findings.values() if f.outcome == "undetermined"]
    assert {f.transformer for f in waiting} == NEED_PLUGIN[config]
    assert {f.cause for f in waiting} == {"kms-unreachable"}
    assert all(f.transient and f.apiserver == "not-asked" for f in waiting)
    with SnapshotSource(ALPHA / "snapshot.db.gz") as source:
        stored = [
            value.key.decode()
            for value in source.current(b"/registry/secrets/")
            if value.value.startswith(
                tuple(f"k8s:enc:{t.replace('/', ':')}:".encode() for t in NEED_PLUGIN[config])
            )
        ]
    assert sorted(f.key for f in waiting) == stored


def test_what_makes_a_list_malformed_breaks_responses(scanned: tuple[str, CollectingReporter, int]) -> None:
    config, reporter, _ = scanned
    malformed = {
        entry["storage"]
        for entry in ORACLE["verdicts"][CONFIGURATIONS[config]].values()
        if entry["broken_body"] or entry["invalid_utf8_in_body"]
    }
    assert malformed == {"statefulsets", "replicasets"}
    for key in ("/registry/statefulsets/pay/db", "/registry/replicasets/shop/dep-0-abc"):
        finding = reporter.findings[key]
        assert (finding.outcome, finding.cause) == ("inconsistent", "raw-json-invalid")
        assert finding.breaks_responses
        assert finding.apiserver == "breaks-list"
    # A LIST that fails as a whole hides what else is wrong with its items, so pods may break too.
    for finding in reporter.findings.values():
        if finding.breaks_responses:
            assert finding.resource in malformed | {"pods"}


def test_undamaged_objects_are_not_findings(scanned: tuple[str, CollectingReporter, int]) -> None:
    config, reporter, _ = scanned
    for key, finding in reporter.findings.items():
        if key in ORACLE["damage"]:
            continue
        assert finding.outcome != "inconsistent", key
        # What is left are the values of the lost keys and of KMS.
        lost = finding.transformer in {"aescbc/v1/key2", "aescbc/v1/key1", "kms/v1/kmsold"}
        assert lost or finding.transformer in NEED_PLUGIN[config], key
    assert set(reporter.findings) & set(ORACLE["damage"])


def test_every_damage_is_a_finding_or_cannot_be_noticed(scanned: tuple[str, CollectingReporter, int]) -> None:
    _, reporter, _ = scanned
    silent = {key: what for key, what in ORACLE["damage"].items() if key not in reporter.findings}
    assert {what for what in silent.values() if not UNNOTICEABLE.search(what)} <= {
        # protobuf skips an unknown field, whatever is in it, and the flip made one of a known field
        "pod: tag of a nested field set to an illegal wire type"
    }
