"""What another configuration would do: each change told once, and no loss that is not told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from etcdfix.commands.encryption.what_if import WhatIfRequest, what_if
from etcdfix.encryption.config_model import EncryptionConfiguration
from etcdfix.model.errors import EndedEarly
from etcdfix.model.storagekey import StorageLayout
from etcdfix.report.encryption import WhatIfReport
from tests.support.memory_source import MemorySource
from tests.support.objects import (
    IDENTITY,
    KEY_1,
    KEY_2,
    aesgcm,
    configuration,
    namespace_object,
    provider,
    secret,
)
from tests.support.reports import line

BASE = {"/registry/namespaces/kube-system": namespace_object("kube-system")}
KMS = {"kms": {"apiVersion": "v2", "name": "prov", "endpoint": "unix:///nowhere.sock"}}


def name(number: int) -> str:
    return f"/registry/secrets/shop/web-{number}"


def plain(*numbers: int) -> dict[str, bytes]:
    return {name(n): secret(f"web-{n}") for n in numbers}


def sealed(*numbers: int, key: bytes = KEY_1, called: str = "one") -> dict[str, bytes]:
    return {name(n): aesgcm(secret(f"web-{n}"), name(n), key=key, name=called) for n in numbers}


def compared(
    values: Mapping[str, bytes] | MemorySource,
    today: EncryptionConfiguration | None,
    new: EncryptionConfiguration,
    **settings: Any,
) -> WhatIfReport:
    source = values if isinstance(values, MemorySource) else MemorySource({**BASE, **values})
    request = WhatIfRequest(layout=StorageLayout(), configuration=today, new=new, **settings)
    return what_if(source, request)[0]


def told(report: WhatIfReport) -> list[tuple[str, str, int, str | None]]:
    return [
        (change.change.value, change.transformer, change.count, change.cause) for change in report.changes
    ]


ONE = configuration(provider("aesgcm", one=KEY_1), IDENTITY)


def test_a_stale_value_can_be_written_again_before_its_key_goes() -> None:
    today = configuration(provider("aesgcm", two=KEY_2, one=KEY_1))
    report = compared(sealed(1), today, configuration(provider("aesgcm", two=KEY_2)))
    assert told(report) == [("becomes-unreadable", "aesgcm/v1/one", 1, "key-name-missing")]
    assert report.next is not None
    assert line(report.next) == "kubectl get secrets -A -o json | kubectl replace -f -"


ENVELOPED = {name(1): b"k8s:enc:kms:v2:prov:" + b"\x0a\x20" + b"c" * 32 + b"\x12\x02id\x1a\x03dek"}


def test_what_a_plugin_that_was_not_asked_would_say_is_not_told() -> None:
    with_kms = configuration(provider("aesgcm", one=KEY_1), KMS, IDENTITY)
    report = compared(ENVELOPED, ONE, with_kms)
    assert [(one.change.value, one.count) for one in report.changes] == [("undetermined", 1)]
    assert not report.complete
    # What its plugin may open today, the new configuration has nothing for.
    report = compared(ENVELOPED, with_kms, ONE)
    assert told(report) == [("becomes-unreadable", "kms/v2/prov", 1, "provider-missing")]
    assert (report.complete, report.counts["undetermined"]) == (True, 0)
    assert report.next is not None
    assert (report.next.action[:13], line(report.next)) == ("Do not deploy", "")


@pytest.mark.parametrize(
    ("providers", "resources"),
    [
        ((IDENTITY,), ("secrets",)),
        ((provider("aesgcm", one=KEY_1), IDENTITY), ("secrets",)),
        (({"kms": {**KMS["kms"], "name": "other"}}, IDENTITY), ("secrets",)),
        ((KMS, IDENTITY), ("configmaps",)),
    ],
)
def test_what_nobody_could_judge_and_the_new_configuration_has_nothing_for_is_lost(
    providers: tuple[dict[str, Any], ...], resources: tuple[str, ...]
) -> None:
    """A version, a name, a provider, an entry of the resource: whatever lacks, an API server could not read it then."""
    today = configuration(KMS, IDENTITY)
    report = compared({**ENVELOPED, **plain(2)}, today, configuration(*providers, resources=resources))
    assert (report.counts["becomes-unreadable"], report.counts["undetermined"], report.complete) == (
        1, 0, True,
    )  # fmt: skip
    assert any("has nothing that opens them" in warning for warning in report.warnings)


@pytest.mark.parametrize(
    ("failure", "reason"),
    [(EndedEarly("interrupted", 130, 130), "interrupted before the end"), (None, "lost midway")],
)
def test_what_ends_early_gives_what_was_seen(failure: BaseException | None, reason: str) -> None:
    source = MemorySource({**BASE, **sealed(1, 2, 3)}, fails_after=3, failure=failure)
    found = compared(source, ONE, configuration(provider("aesgcm", two=KEY_2)))
    assert reason in found.incomplete_reasons[0]
    assert (found.values, found.counts["becomes-unreadable"]) == (3, 2)


TWO = configuration(provider("aesgcm", two=KEY_2, one=KEY_1), IDENTITY)
OTHER = "/kubernetes.io/secrets/shop/x"
OVERRIDES = {"secrets": ("https://10.0.0.9:2379",), "events": ("https://10.0.0.8:2379",)}


@pytest.mark.parametrize(
    ("values", "new", "settings", "reason"),
    [
        (MemorySource({**BASE, **sealed(1)}, limited_to="/registry/"), ONE, {}, "keys outside /registry/"),
        (plain(1), TWO, {"overrides": OVERRIDES}, "the etcd of secrets was not read: https://10.0.0.9:2379"),
        (plain(1), ONE, {"main_not_read": True}, "the main etcd was not read, but another one"),
        ({**sealed(1), OTHER: aesgcm(secret("x"), OTHER, name="one"), "/other/thing": b"x"}, ONE, {},
         "1 encrypted value outside the storage prefix /registry"),
    ],
    ids=["a user who may not read everything", "an etcd whose providers change", "not the main one", "another prefix"],
)  # fmt: skip
def test_what_was_not_seen_is_not_called_safe(
    values: Mapping[str, bytes] | MemorySource,
    new: EncryptionConfiguration,
    settings: dict[str, Any],
    reason: str,
) -> None:
    (told,) = compared(values, ONE, new, **settings).incomplete_reasons
    assert reason in told


def test_an_etcd_whose_providers_stay_need_not_be_read() -> None:
    assert compared(plain(1), ONE, ONE, overrides=OVERRIDES).complete


WITHOUT_ONE = configuration(provider("aesgcm", two=KEY_2), IDENTITY)


@pytest.mark.parametrize(
    "at", [3, 9, 16, 19, -30, -1], ids=["colon", "provider", "version", "name", "ciphertext", "tag"]
)
def test_a_value_that_a_key_of_today_alone_can_repair_loses_its_way_back(at: int) -> None:
    value = bytearray(sealed(1)[name(1)])
    value[at] ^= 1
    damaged = {name(1): bytes(value)}
    report = compared({**damaged, **sealed(2, key=KEY_2, called="two")}, TWO, WITHOUT_ONE)
    kinds = ("loses-its-way-back", "stays-unreadable", "becomes-unreadable")
    assert [report.counts[kind] for kind in kinds] == [1, 0, 0]
    assert report.changes[0].change == "loses-its-way-back"
    assert report.next is not None
    assert report.next.action.startswith("Do not deploy")
    assert name(1) in line(report.next)
    kept = compared(damaged, TWO, TWO)
    assert (kept.counts["loses-its-way-back"], kept.counts["stays-unreadable"]) == (0, 1)
