"""Which encryption keys open something."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from etcdfix.commands.doctoring.keys import check_keys, check_plugins, check_source, count_keys
from etcdfix.encryption.kms.answers import PluginReport, PluginState
from etcdfix.examine.all import no_progress
from etcdfix.examine.first_pass import FirstPass
from etcdfix.examine.one import Examiner, Reading
from etcdfix.model.storagekey import StorageLayout
from etcdfix.report.doctor import Check
from etcdfix.report.model import Summary
from etcdfix.text.commands import RunOptions, scan
from tests.support.doctoring import states
from tests.support.fixtures import Patch
from tests.support.memory_source import MemorySource
from tests.support.objects import KEY_1, KEY_2, aescbc, config_map, configuration, provider, secret
from tests.support.pool_here import PoolHere

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
