"""Which encryption keys open something."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from etcdfix.commands.doctoring.keys import MOST_TOLD, check_keys, check_plugins, examine_keys
from etcdfix.encryption.kms.answers import PluginReport, PluginState
from etcdfix.examine import Examiner, Reading
from etcdfix.examine_all import no_progress
from etcdfix.examine_jobs import Helpers
from etcdfix.report.doctor import Check
from etcdfix.storagekey import StorageLayout
from etcdfix.text.commands import scan
from tests.support.cluster_index_runs import HOSTILE
from tests.support.doctoring import states
from tests.support.memory_source import MemorySource
from tests.support.objects import KEY_1, KEY_2, aescbc, config_map, configuration, provider, secret
from tests.support.pool_here import PoolHere

SECRETS = "/registry/secrets/shop/"
CONFIG = configuration(provider("aescbc", key1=KEY_1), {"identity": {}})


def looked_at(
    values: Mapping[str, bytes],
    *,
    config: Any = CONFIG,
    no_encryption: bool = False,
    past: bool = True,
    **source: Any,
) -> list[Check]:
    held = MemorySource(values, **source)
    examiner = Examiner.of(Reading(layout=StorageLayout(), configuration=config))
    seen = examine_keys(held, examiner, no_progress, None)
    found = check_keys(
        seen,
        config,
        held.problems,
        prefix="/registry/",
        limited_to="",
        no_encryption=no_encryption,
        past=past,
    )
    checks = list(found)
    states(checks)
    return checks


def secrets(number: int, key: bytes = KEY_1, name: str = "key1") -> dict[str, bytes]:
    return {f"{SECRETS}{name}-{key[:1].hex()}-{n}": aescbc(secret(), key, name) for n in range(number)}


def told(checks: list[Check]) -> list[tuple[str, str]]:
    return [(check.state.value, check.what) for check in checks]


def test_a_key_that_opens_nothing_and_fails_is_a_failure() -> None:
    (fail,) = looked_at(secrets(2, KEY_2), config=configuration(provider("aescbc", key1=KEY_1, key9=KEY_2)))
    assert fail.state == "fail"
    assert "0 opened, 2 failed: it is the encryption key or the configuration" in fail.what
    assert fail.command == scan()


def test_one_that_fails_among_others_and_one_alone_are_warned_of() -> None:
    assert [state for state, _ in told(looked_at(secrets(5) | secrets(1, KEY_2)))] == ["warn"]
    (check,) = looked_at(secrets(1, KEY_2))
    assert (check.state, "nothing shows that the key is right" in check.what) == ("warn", True)


def test_a_key_that_the_configuration_does_not_have() -> None:
    (missing,) = looked_at(secrets(1, KEY_2, "key7"))
    assert missing.what == (
        "aescbc/v1/key7 for secrets: 0 opened, 1 failed, and the configuration has no key of that name"
    )


def test_without_a_configuration_it_cannot_be_told() -> None:
    clear, sealed = sorted(looked_at({**secrets(2), "/registry/configmaps/a/b": config_map()}, config=None),
                           key=lambda check: check.state)  # fmt: skip
    assert (clear.state, clear.what) == ("ok", "unencrypted: 1 value readable, 0 not")
    assert (sealed.state, "2 could not be told" in sealed.what) == ("unknown", True)


def test_what_is_stored_in_the_clear_stands_on_one_line() -> None:
    values = {
        "/registry/configmaps/a/b": config_map(),
        "/registry/secrets/a/b": secret(),
        "/registry/pods/a/b": b"x",
    }
    assert told(looked_at(values)) == [("warn", "unencrypted: 2 values readable, 1 not")]


def test_no_encryption_is_held_against_what_is_stored() -> None:
    check, *_ = looked_at(secrets(1), config=None, no_encryption=True)
    assert (check.state, "--no-encryption, and the value of" in check.what) == ("fail", True)


def test_another_prefix_is_suggested() -> None:
    found = {f"/k8s/secrets/a/{n}": secret() for n in range(3)}
    check, *_ = looked_at(found, config=None)
    assert check.what == "no key starts with /registry/: nothing was examined"
    assert "/k8s" in check.next_step
    (check,) = looked_at({}, config=None)
    assert (check.state, "check --etcd-prefix" in check.next_step) == ("fail", True)


def test_what_was_lost_midway_is_said() -> None:
    checks = looked_at(secrets(3), fails_after=2)
    assert told(checks)[0] == (
        "unknown", "not everything could be looked at: the source was lost midway: the connection was lost",
    )  # fmt: skip
    checks = looked_at(secrets(3), problems=["page 7 is broken"])
    assert told(checks)[0] == ("unknown", "not everything could be looked at: page 7 is broken")


def test_hostile_names_without_number_are_told_in_short() -> None:
    values = {f"{SECRETS}{n}": aescbc(secret(), KEY_2, f"{HOSTILE}{n}" * 20) for n in range(150)}
    checks = looked_at(values)
    assert len(checks) == MOST_TOLD + 1
    assert "150 encryption keys or more" in checks[-1].what
    assert max(len(check.what) for check in checks) <= 1001


# Plugins

KMS = configuration(
    {"kms": {"apiVersion": "v2", "name": "vault", "endpoint": "unix:///k.sock"}}, {"identity": {}}
)


@pytest.mark.parametrize(
    ("state", "came_to"),
    [
        (state, {"ok": "ok", "not-asked": "unknown", "unhealthy": "warn"}.get(state, "fail"))
        for state in PluginState
    ],
)
def test_plugins(state: PluginState, came_to: str) -> None:
    report = PluginReport(
        "v2", "vault", "unix:///k.sock", state=state, message="" if state == "ok" else "why"
    )
    (check,) = check_plugins(KMS, [report])
    assert states([check]) == [("keys", came_to)]
    assert check.what.startswith("KMS plugin of kms/v2/vault at unix:///k.sock: ")


def test_a_plugin_that_is_not_to_be_asked() -> None:
    assert states(check_plugins(KMS, None)) == [("keys", "unknown")]
    assert states(check_plugins(CONFIG, None)) == states(check_plugins(None, None)) == []


# Restarts


MEMORY = "Do not restart an API server: its memory may hold keys and objects. "
FIRST_SCAN = "Do not restart an API server until a scan of the cluster finds nothing wrong. "


def test_where_an_encryption_key_may_be_lost_the_advice_begins_with_the_restart() -> None:
    (lost,) = looked_at(secrets(20, KEY_2))
    assert (lost.state, lost.next_step.startswith(f"{FIRST_SCAN}Delete nothing; find")) == ("fail", True)
    (live,) = looked_at(secrets(20, KEY_2), past=False)
    assert live.next_step.startswith(f"{MEMORY}Delete nothing; find")
    alone = looked_at(secrets(1, KEY_2, "gone"))
    assert [check.next_step.startswith(FIRST_SCAN) for check in alone if check.state != "ok"] == [True]
    (mostly_open,) = looked_at(secrets(30) | secrets(1, KEY_2))
    assert not mostly_open.next_step.startswith("DO NOT")


def test_where_kms_does_not_answer_too() -> None:
    wrapped = {f"{SECRETS}a": b"k8s:enc:kms:v2:vault:xyz"}
    first, *_ = looked_at(wrapped, config=KMS)
    assert first.next_step.startswith(FIRST_SCAN)
    down = PluginReport("v2", "vault", "unix:///k.sock", state=PluginState.UNREACHABLE, message="why")
    assert next(check_plugins(KMS, [down])).next_step.startswith(f"{MEMORY}Check that the plugin runs")
    assert next(check_plugins(KMS, [down], past=True)).next_step.startswith(FIRST_SCAN)


@pytest.mark.parametrize("jobs", [2, 3, 8])
@pytest.mark.parametrize("config", [CONFIG, None])
def test_any_number_of_processes_says_the_same(
    jobs: int, config: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("etcdfix.examine_jobs.WorkerPool", PoolHere)
    monkeypatch.setattr("etcdfix.sources.pages.PAGE_VALUES", 3)
    values = {**secrets(20), **secrets(9, b"9" * 16), **secrets(9, b"8" * 16, "other"), "/elsewhere": b"1"}
    found = []
    for number in (1, jobs):
        held = MemorySource(values)
        request = Reading(layout=StorageLayout(), configuration=config)
        examiner = Examiner.of(request)
        helpers = Helpers(examiner, request, held, number) if number > 1 else None
        seen = examine_keys(held, examiner, no_progress, helpers)
        checks = check_keys(seen, config, [], prefix="/registry/", limited_to="", no_encryption=False)
        found.append((list(checks), seen.examined, seen.counts(), seen.enveloped))
    assert found[0] == found[1]
    assert found[0][1] == 38
