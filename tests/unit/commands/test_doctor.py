"""What stored objects say of the cluster, and which encryption keys open something."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from etcdfix.commands.doctor import check_clock, check_revision
from etcdfix.commands.doctoring.keys import check_keys, check_plugins, check_source, count_keys
from etcdfix.commands.doctoring.needs import check_kubernetes
from etcdfix.encryption.kms.answers import PluginReport, PluginState
from etcdfix.encryption.transformer import Transformers
from etcdfix.examine.all import no_progress
from etcdfix.examine.first_pass import FirstPass
from etcdfix.examine.one import Examiner, Reading
from etcdfix.model.errors import RefusedByRule
from etcdfix.model.storagekey import StorageLayout
from etcdfix.report.doctor import Check
from etcdfix.report.model import Summary
from etcdfix.text.commands import RunOptions, scan
from tests.support.decoders import shared_decoder
from tests.support.doctoring import lease, states
from tests.support.fixtures import Patch
from tests.support.memory_source import REVISION, MemorySource
from tests.support.objects import (
    KEY_1,
    KEY_2,
    aescbc,
    config_map,
    configuration,
    json_object,
    provider,
    secret,
)
from tests.support.pool_here import PoolHere

NOW = datetime(2026, 11, 22, 12, 0, 0, tzinfo=UTC)


def examiner(minor: int | None = None) -> Examiner:
    config = configuration(
        provider("aescbc", key1=KEY_1), {"identity": {}}, resources=("leases.coordination.k8s.io",)
    )
    transformers = Transformers.from_configuration(config)
    return Examiner(
        StorageLayout(), transformers, shared_decoder(minor), assumed_release=f"1.{minor}" if minor else ""
    )


def node(version: str) -> MemorySource:
    found = json_object("v1", "Node", "n", "", status={"nodeInfo": {"kubeletVersion": version}})
    return MemorySource({"/registry/minions/n": found})


@pytest.mark.parametrize(
    ("source", "named", "state"),
    [
        (node("v1.34.2"), None, "ok"), (MemorySource(), None, "ok"), (node("v1.34.2"), 34, "ok"),
        (node("v1.34.2"), 36, "ok"), (node("v1.34.2"), 33, "refused"), (node("v1.30.2"), 34, "refused"),
        (MemorySource(), 34, "warn"), (node("v1.99.0"), None, "warn"), (node("v1.99.0"), 36, "warn"),
    ],
)  # fmt: skip
def test_the_release_and_the_nodes(source: MemorySource, named: int | None, state: str) -> None:
    if state == "refused":
        with pytest.raises(RefusedByRule):
            list(check_kubernetes(source, examiner(named)))
    else:
        assert states(check_kubernetes(source, examiner(named))) == [state]


def clock(**leases: bytes) -> Check:
    folders = {name: "kube-system" if name == "kcm" else "kube-node-lease" for name in leases}
    values = {f"/registry/leases/{folders[name]}/{name}": value for name, value in leases.items()}
    check = check_clock(MemorySource(values), examiner(), NOW)
    states([check])
    return check


def ago(**time: float) -> datetime:
    return NOW - timedelta(**time)


def test_what_the_newest_renewal_says() -> None:
    for renewed in (ago(seconds=4), ago(minutes=5), ago(seconds=-59), NOW):
        check = clock(a=lease(ago(hours=3)), b=lease(renewed))
        assert check.state == "ok", check
    assert clock(a=lease(ago(hours=3)), kcm=lease(ago(seconds=3), "kcm", "kube-system")).state == "ok"
    assert clock(a=aescbc(lease(ago(seconds=3)))).state == "ok"
    silent = clock(a=lease(ago(hours=3)), b=lease(ago(days=9)))
    assert (silent.state, silent.what.partition(":")[0]) == ("warn", "no Lease was renewed for 10,800 s")
    behind = clock(a=lease(ago(minutes=-10)), b=lease(ago(seconds=1)))
    assert (behind.state, "600 s in the future" in behind.what) == ("warn", True)


@pytest.mark.parametrize(
    "value",
    [
        b"junk", aescbc(lease(NOW), KEY_2), lease(None), lease("never"), lease("0001-01-01T00:00:00.000000Z"),
        lease("9999-12-31T23:59:59.999999-23:59"), json_object("coordination.k8s.io/v1", "Lease", "x", "", spec=7),
        json_object("coordination.k8s.io/v1", "Lease", "x", ""), json_object("v1", "Pod", "x", ""),
        json_object("coordination.k8s.io/v1", "Lease", "x", "", spec={"renewTime": ["2026"]}),
    ],
)  # fmt: skip
def test_what_says_no_time_counts_for_nothing(value: bytes) -> None:
    assert clock(a=value).state in {"unknown", "warn"}
    assert clock(a=value, b=lease(ago(seconds=1))).state in {"ok", "warn"}


@pytest.mark.parametrize(
    ("value", "compacted", "state"),
    [
        (None, 0, "ok"), (None, 990, "ok"), (None, None, "ok"), (b"300", 990, "ok"), (b"1000", 1000, "ok"),
        (b"2000", 0, "warn"), (b"", 990, "warn"), (b"-5", 0, "warn"), ("٣".encode(), 0, "warn"),
    ],
)  # fmt: skip
def test_how_much_history_is_kept(value: bytes | None, compacted: int | None, state: str) -> None:
    source = MemorySource({"compact_rev_key": value} if value is not None else {}, compacted=compacted)
    check = check_revision(source)
    assert states([check]) == [state]
    assert check.what.startswith(f"revision {REVISION}")


SECRETS = "/registry/secrets/shop/"
CONFIG = configuration(provider("aescbc", key1=KEY_1), {"identity": {}})
KMS = configuration(
    {"kms": {"apiVersion": "v2", "name": "vault", "endpoint": "unix:///k.sock"}}, {"identity": {}}
)


def came_to(
    values: Mapping[str, bytes], *, config: Any = CONFIG, jobs: int = 1, no_encryption: bool = False, **source: Any
) -> tuple[Summary, list[Check]]:  # fmt: skip
    held = MemorySource(values, **source)
    reading = Reading(layout=StorageLayout(), configuration=config, run=RunOptions())
    examiner = Examiner.of(reading)
    first_pass = FirstPass(examiner, reading, held, jobs) if jobs > 1 else None
    summary, ending = count_keys(held, examiner, reading, no_progress, first_pass)
    checks = [
        *check_source(held, reading, summary, ending), *check_keys(summary, no_encryption=no_encryption)
    ]  # fmt: skip
    states(checks)
    return summary, checks


def looked_at(values: Mapping[str, bytes], **options: Any) -> list[Check]:
    return came_to(values, **options)[1]


def secrets(number: int, key: bytes = KEY_1, name: str = "key1") -> dict[str, bytes]:
    return {f"{SECRETS}{name}-{key[:1].hex()}-{n}": aescbc(secret(), key, name) for n in range(number)}


def told(checks: list[Check]) -> list[tuple[str, str]]:
    return [(check.state.value, check.what) for check in checks]


def test_a_key_that_opens_nothing_and_fails_is_a_failure() -> None:
    (check,) = looked_at(secrets(2, KEY_2), config=configuration(provider("aescbc", key1=KEY_1, key9=KEY_2)))
    assert (check.state, check.command) == ("fail", scan())
    assert "0 opened, 2 failed: it is the encryption key or the configuration" in check.what


def test_without_a_configuration_it_cannot_be_told() -> None:
    values = {**secrets(2), "/registry/configmaps/a/b": config_map()}
    sealed, clear = looked_at(values, config=None)
    assert (clear.state, clear.what) == ("ok", "unencrypted: 1 value readable, 0 not")
    assert (sealed.state, "2 could not be told" in sealed.what) == ("unknown", True)
    check, *_ = looked_at(values, config=None, no_encryption=True)
    assert (check.state, "--no-encryption, and the value of" in check.what) == ("fail", True)


def test_another_prefix_is_suggested() -> None:
    found = {f"/k8s/secrets/a/{n}": secret() for n in range(3)}
    check, *_ = looked_at(found, config=None)
    assert check.what == "NOTHING WAS EXAMINED: no key starts with /registry/"
    assert "/k8s" in check.next_step
    (check,) = looked_at({}, config=None)
    assert (check.state, "check --etcd-prefix" in check.next_step) == ("fail", True)


def test_what_was_lost_midway_is_said() -> None:
    lost = "the source was lost midway: the connection was lost"
    cases: list[tuple[dict[str, Any], str]] = [
        ({"fails_after": 2}, lost), ({"problems": ["page 7 is broken"]}, "page 7 is broken"),
    ]  # fmt: skip
    for source, reason in cases:
        first, *_ = told(looked_at(secrets(3), **source))
        assert first == ("unknown", f"not everything could be looked at: {reason}")


@pytest.mark.parametrize("state", PluginState)
def test_plugins(state: PluginState) -> None:
    reading = Reading(layout=StorageLayout(), configuration=KMS)
    message = "" if state == "ok" else "why"
    report = PluginReport("v2", "vault", "unix:///k.sock", state=state, message=message)
    (check,) = check_plugins(reading, [report])
    assert states([check]) == [{"ok": "ok", "not-asked": "unknown", "unhealthy": "warn"}.get(state, "fail")]
    assert check.what.startswith("KMS plugin of kms/v2/vault at unix:///k.sock: ")
    assert states(check_plugins(reading, None)) == ["unknown"]
    for config in (CONFIG, None):
        assert states(check_plugins(Reading(layout=StorageLayout(), configuration=config), None)) == []


def test_where_an_encryption_key_may_be_lost_no_api_server_is_restarted() -> None:
    waiting = {f"{SECRETS}a": b"k8s:enc:kms:v2:vault:xyz"}
    for values, config in ((secrets(20, KEY_2), CONFIG), (secrets(1, KEY_2, "gone"), CONFIG), (waiting, KMS)):
        assert came_to(values, config=config)[0].do_not_restart
    assert came_to(secrets(3))[0].do_not_restart == ""


@pytest.mark.parametrize("jobs", [2, 8])
@pytest.mark.parametrize("config", [CONFIG, None])
def test_any_number_of_processes_says_the_same(jobs: int, config: Any, monkeypatch: Patch) -> None:
    monkeypatch.setattr("etcdfix.examine.first_pass.WorkerPool", PoolHere)
    monkeypatch.setattr("etcdfix.sources.pages.PAGE_VALUES", 3)
    values = {**secrets(20), **secrets(9, b"9" * 16), **secrets(9, b"8" * 16, "other"), "/elsewhere": b"1"}
    one = came_to(values, config=config)
    assert came_to(values, config=config, jobs=jobs) == one
    assert one[0].keys == 39
