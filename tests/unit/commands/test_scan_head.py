"""The head of a scan: how bad it is, what holds for a whole lost key, and the one command to run next."""

from __future__ import annotations

import io
import json
import shlex
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from etcdfix.commands.scan import ScanRequest, run_scan
from etcdfix.encryption.config_model import EncryptionConfiguration
from etcdfix.model.scope import ScopeRequest
from etcdfix.report.render import SCAN_FORMS
from etcdfix.report.saved_report import Baseline
from etcdfix.text.commands import RunOptions
from tests.support.examinations import LAYOUT
from tests.support.memory_source import MemorySource
from tests.support.objects import (
    IDENTITY,
    KEY_1,
    KEY_2,
    aesgcm,
    config_map,
    configuration,
    namespace_object,
    provider,
    secret,
)

AGAIN = RunOptions(source=("--endpoints", "etcd.example:2379"), reading=("--encryption-config", "today.yaml"))
CONFIGURATION = configuration(provider("aesgcm", key1=KEY_1), resources=("secrets", "configmaps"))
KUBE_SYSTEM = {"/registry/namespaces/kube-system": namespace_object("kube-system")}


def scan(
    values: Mapping[str, bytes],
    *scope: str,
    config: EncryptionConfiguration | None = CONFIGURATION,
    form: str = "json",
    baseline: Baseline | None = None,
    again: RunOptions = AGAIN,
    minor: int | None = None,
    **where: Any,
) -> bytes:
    stream = io.BytesIO()
    request = ScanRequest(
        layout=LAYOUT, scope=ScopeRequest(scope, **where), configuration=config, run=again, baseline=baseline,
        kubernetes_minor=minor,
    )  # fmt: skip
    run_scan(MemorySource(KUBE_SYSTEM | dict(values)), request, SCAN_FORMS[form](stream, request.run))
    return stream.getvalue()


def report(values: Mapping[str, bytes], *scope: str, **options: Any) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(scan(values, *scope, **options))
    keys = [finding["key"] for finding in document["findings"]]
    assert keys == sorted(keys)
    return document


def head(values: Mapping[str, bytes], *scope: str, **options: Any) -> list[str]:
    lines = scan(values, *scope, form="text", **options).decode().splitlines()
    return lines[: lines.index("")]


def lost(count: int, name: str = "old") -> dict[str, bytes]:
    keys = [f"/registry/secrets/shop/s-{number:04}" for number in range(count)]
    return {key: aesgcm(secret(key.rpartition("/")[2]), key, KEY_2, name) for key in keys}


def readable(count: int) -> dict[str, bytes]:
    keys = [f"/registry/secrets/shop/r-{number:04}" for number in range(count)]
    return {key: aesgcm(secret(key.rpartition("/")[2]), key) for key in keys}


DAMAGED_MAP = {"/registry/configmaps/shop/settings": config_map()[:20]}


def test_what_holds_for_a_whole_lost_key_stands_once() -> None:
    document = report(lost(300) | readable(5))
    (entry,) = document["summary"]["key_loss"]
    assert entry.pop("first_mod_revision") < entry.pop("last_mod_revision")
    remedies = entry.pop("remedies")
    assert entry == {
        "transformer": "aesgcm/v1/old", "rule": "secrets,configmaps", "resources": ["secrets"],
        "key_fingerprint": None, "failures": 300, "of": 300,
    }  # fmt: skip
    assert not any("delete" in remedy["command"] for remedy in remedies)
    findings = document["findings"]
    assert (len(findings), [finding for finding in findings if finding["remedies"]]) == (300, [])
    assert {(one["rule"], one["severity"]) for one in findings} == {("secrets,configmaps", "breaks-now")}
    (group,) = document["summary"]["groups"]
    assert (group["count"], group["by_resource"], group["namespaces"]) == (300, {"secrets": 300}, 1)
    assert group["way"] == {"verb": "rescue"} | remedies[0]
    assert document["summary"]["next"] == remedies[0]


def size(finding: dict[str, Any]) -> int:
    return len(json.dumps(finding, separators=(",", ":"), ensure_ascii=False).encode())


@pytest.mark.parametrize("name", ["old", "key1"], ids=["no-such-name", "other-bytes"])
def test_a_finding_of_a_lost_key_is_at_most_1200_bytes(name: str) -> None:
    start = "/registry/secrets/shop/"
    keys = [f"{start}{number:0{60 - len(start)}}" for number in range(30)]
    values = {key: aesgcm(secret(key[len(start) :]), key, KEY_2, name) for key in keys}
    config = configuration(provider("aesgcm", key1=KEY_1), resources=("secrets",))
    findings = report(values, config=config)["findings"]
    assert (len(findings), max(map(size, findings)) <= 1200) == (30, True)


def test_a_key_that_opens_much_and_fails_in_numbers_is_lost_too_and_damage_is_not_its() -> None:
    wrong = {key.replace("s-", "w-"): value for key, value in lost(12, "key1").items()}
    wrong = {key: aesgcm(secret(), key, KEY_2) for key in wrong}
    damaged = {"/registry/secrets/shop/x": b"k8s:enc:aesgcm:v1:key1:" + b"short"}
    document = report(wrong | readable(3) | damaged)
    (entry,) = document["summary"]["key_loss"]
    assert (entry["failures"], entry["of"]) == (13, 16)
    by_key = {finding["key"]: finding for finding in document["findings"]}
    assert by_key["/registry/secrets/shop/x"]["remedies"]
    assert all(not by_key[key]["remedies"] for key in wrong)


def test_findings_behind_a_lost_key_stay_in_order_and_keep_their_remedies() -> None:
    other = {"/registry/secrets/shop/zz": aesgcm(b"", "/registry/secrets/shop/zz")}
    document = report(lost(20) | DAMAGED_MAP | other | {"/registry/pods/shop/p": b"k8s\x00broken"})
    assert [bool(f["remedies"]) for f in document["findings"]] == [True, True] + [False] * 20 + [True]


def test_a_narrow_scope_says_no_more_than_it_saw() -> None:
    lines = head(readable(2) | lost(3), "configmaps", namespaces=("shop",))
    assert lines[0].startswith("NOTHING WAS EXAMINED")
    lines = head(readable(2) | DAMAGED_MAP, "secrets")
    assert lines[0] == "NOTHING WRONG FOUND in 2 objects in scope of the snapshot; the rest was not examined"
    assert shlex.split(lines[2]) == ["etcdfix", "scan", *AGAIN.source, *AGAIN.reading]
    (one,) = lost(1)
    assert shlex.split(head(lost(3), one)[-1])[:3] == ["etcdfix", "rescue", "secrets"]


def test_without_a_configuration_it_is_asked_for_with_the_same_scope() -> None:
    again = msgspec.structs.replace(AGAIN, reading=("--kubernetes-version", "1.36"))
    lines = head(readable(2), "secrets", namespaces=("shop",), config=None, again=again)
    assert "RESTART" not in "".join(lines)
    assert shlex.split(lines[-1]) == [
        "etcdfix", "scan", *AGAIN.source, "--encryption-config", "FILE", "--kubernetes-version", "1.36",
        "secrets", "-n", "shop",
    ]  # fmt: skip


def test_no_encryption_says_what_a_configuration_with_nothing_but_identity_does() -> None:
    none = msgspec.structs.replace(AGAIN, reading=("--no-encryption",))
    identity = configuration(IDENTITY)
    for values in (readable(18), readable(2) | DAMAGED_MAP):
        told, alike = head(values, config=None, again=none), head(values, config=identity)
        assert told[:4] == alike[:4]
    assert told[2].startswith("BREAKS NOW")
    said = report(readable(2), config=None, again=none)
    assert [found["cause"] for found in said["findings"]] == ["resource-not-configured"] * 2
    assert (said["encryption_config"], said["complete"]) == (None, True)


def test_names_that_a_stranger_chose_act_upon_nothing() -> None:
    key = "/registry/configmaps/shop/\x1b[2J\n;rm -rf"
    for values in (
        {key: config_map()[:20]},
        {
            f"/registry/secrets/shop/w{n}": aesgcm(b"x" * 90, "q", KEY_2, "\x1b[2J" + "k" * 500)
            for n in (1, 2)
        },
    ):
        lines = head(values)
        assert all(line.isprintable() for line in lines)
        assert len(lines[0]) < 130
        assert ";rm" not in lines[-1]


def test_a_scope_that_a_scan_would_not_know_is_not_proposed() -> None:
    names = [f"/registry/a;b.example.com/$(x)/w{number}" for number in range(3)]
    values = {name: aesgcm(b"x" * 90, name, KEY_2, "old") for name in names}
    config = configuration(provider("aesgcm", key1=KEY_1), {"identity": {}}, resources=("*.*",))
    document = report(values, config=config)
    for entry in document["summary"]["key_loss"]:
        assert "$(x)" not in entry["remedies"][0]["command"]
