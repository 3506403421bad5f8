"""OpenShift's own trees: other API servers write them, with keys of their own, into the same etcd."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from etcdfix.cli.look import ExitCode, scan_exit_code
from etcdfix.cli.root import run
from etcdfix.commands.scan import ScanRequest, ScanResult, run_scan
from etcdfix.model.scope import ScopeRequest
from etcdfix.model.storagekey import StorageLayout
from tests.support.collecting import CollectingReporter
from tests.support.fixtures import CapturedBytes
from tests.support.memory_source import MemorySource
from tests.support.objects import (
    IDENTITY,
    KEY_1,
    aescbc,
    aesgcm,
    configuration,
    json_object,
    provider,
    secret,
)

CASES = Path(__file__).parents[3] / "fixtures/cases"
ROUTE_KEY = "/openshift.io/routes/shop/r1"
TOKEN_KEY = "/openshift.io/oauth/accesstokens/sha256~abc"
ROUTE = json_object("route.openshift.io/v1", "Route", "r1", namespace="shop")
OWN = ("secrets", "routes.route.openshift.io", "oauthaccesstokens.oauth.openshift.io")


def config(*providers: dict[str, Any], resources: tuple[str, ...] = OWN) -> Any:
    return configuration(*providers, resources=resources)


def scan(
    holds: dict[str, bytes], settings: Any, *words: str, prefix: str = "/openshift.io"
) -> tuple[CollectingReporter, ScanResult]:
    reporter = CollectingReporter()
    request = ScanRequest(layout=StorageLayout(prefix), configuration=settings, scope=ScopeRequest(words))
    return reporter, run_scan(MemorySource(holds), request, reporter)


def of_case(
    capsysbinary: CapturedBytes, which: str, *words: str
) -> tuple[int, dict[str, Any], list[dict[str, Any]]]:
    """Scan the case; return the exit code, the summary and the findings."""
    snapshot, settings = str(CASES / "08-openshift.db"), str(CASES / f"08-enc-{which}.json")
    code = run(["scan", "--snapshot", snapshot, "--encryption-config", settings, "-o", "json", *words])
    report = json.loads(capsysbinary.readouterr().out)
    return code, report, report["findings"]


def test_with_the_right_key_everything_is_readable(capsysbinary: CapturedBytes) -> None:
    code, report, findings = of_case(capsysbinary, "right", "--etcd-prefix", "/openshift.io", "/openshift.io")
    assert (code, report["complete"], report["summary"]["readable"]) == (0, True, 2)
    assert {(f["resource"], f["group"], f["namespace"], f["outcome"], f["cause"]) for f in findings} == {
        ("routes", "route.openshift.io", "shop", "readable", "owner-unknown"),
        ("oauthaccesstokens", "oauth.openshift.io", "", "readable", "owner-unknown"),
    }


def test_with_the_key_lost_they_are_decrypt_failures(capsysbinary: CapturedBytes) -> None:
    code, _, findings = of_case(capsysbinary, "lost", "--etcd-prefix", "/openshift.io", "/openshift.io")
    rule = "secrets,configmaps,routes.route.openshift.io,oauthaccesstokens.oauth.openshift.io"
    assert code == 1
    assert {(f["outcome"], f["cause"], f["rule"]) for f in findings} == {
        ("decrypt-failure", "key-name-missing", rule)
    }
    assert len(findings) == 2
    assert not any("etcdfix delete" in (r["command"] or "") for f in findings for r in f["remedies"])


@pytest.mark.parametrize(
    ("prefix", "other", "readable"),
    [("kubernetes.io", "/openshift.io", 3), ("/openshift.io", "/kubernetes.io", 2)],
)
def test_keys_under_another_known_prefix_are_never_passed_over(
    prefix: str, other: str, readable: int, capsysbinary: CapturedBytes
) -> None:
    code, report, _ = of_case(capsysbinary, "right", "--etcd-prefix", prefix)
    assert (code, report["complete"], report["summary"]["readable"]) == (3, False, readable)
    (reason,) = report["incomplete_reasons"]
    assert f" under {other}/" in reason
    words = report["summary"]["next"]["command"].split()
    assert words[words.index("--etcd-prefix") + 1] == words[-1] == other


@pytest.mark.parametrize("prefix", ["/kubernetes.io", "/kubernetes.io/tenant", "/"])
def test_a_prefix_that_holds_or_is_within_the_other_one_is_the_same_cluster(prefix: str) -> None:
    holds = {
        "/kubernetes.io/tenant/secrets/a/b": secret("b", "a"),
        "/kubernetes.io/other/secrets/a/b": secret("b", "a"),
    }
    _, result = scan(holds, None, prefix=prefix)
    assert result.problems == []


def test_the_associated_data_is_the_whole_etcd_key() -> None:
    holds = {ROUTE_KEY: aesgcm(ROUTE, ROUTE_KEY), TOKEN_KEY: aesgcm(ROUTE, ROUTE_KEY)}
    reporter, result = scan(holds, config(provider("aesgcm", key1=KEY_1)))
    assert result.report.summary.readable == 1
    moved = reporter.findings[TOKEN_KEY]
    assert (moved.outcome, moved.cause) == ("undetermined", "owner-unknown")


@pytest.mark.parametrize("resources", [("secrets", "configmaps"), ("*.apps",)])
def test_the_file_of_another_api_server_says_nothing_about_them(resources: tuple[str, ...]) -> None:
    """Three API servers, three files: what this one has no entry for, it cannot be wrong about."""
    settings = config(provider("aescbc", key1=KEY_1), IDENTITY, resources=resources)
    reporter, result = scan({ROUTE_KEY: aescbc(ROUTE), TOKEN_KEY: ROUTE}, settings)
    finding = reporter.findings[ROUTE_KEY]
    assert (finding.outcome, finding.cause) == ("undetermined", "no-configuration")
    assert (reporter.findings[TOKEN_KEY].outcome, result.report.summary.readable) == ("readable", 1)
    assert scan_exit_code(result) is ExitCode.INCOMPLETE


def test_what_cannot_be_proven_damaged_is_undetermined() -> None:
    sealed = aesgcm(ROUTE, ROUTE_KEY)
    for value in (sealed[:-40], sealed[:18], b"no object", b"", aesgcm(b"no object", ROUTE_KEY)):
        reporter, _ = scan({ROUTE_KEY: value}, config(provider("aesgcm", key1=KEY_1), IDENTITY))
        finding = reporter.findings[ROUTE_KEY]
        assert (finding.outcome, finding.cause) == ("undetermined", "owner-unknown")
