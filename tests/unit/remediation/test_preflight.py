"""Checks that need trouble inside etcd: members, alarms, a key that moves; and the declaration of a lost key."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from etcdfix.errors import RefusedByRule
from etcdfix.impact.assess import Assessment
from etcdfix.impact.grades import Risk, RiskReason
from etcdfix.model import StoredValue
from etcdfix.remediation import preflight
from etcdfix.remediation.backup_file import digest
from etcdfix.remediation.expectation import Expectation
from etcdfix.remediation.members import CopyState, MemberSurvey, read_key, survey_members
from etcdfix.remediation.preflight import Acceptances, Cluster, check_deletion
from etcdfix.remediation.rules import Rule
from etcdfix.sources.etcd.client import EtcdClient
from etcdfix.verdicts.examination import Examination
from etcdfix.verdicts.standing import AcceptRisk
from etcdfix.wire.etcd import ALARM, message
from tests.support.change_runs import BROKEN, UID, Registry
from tests.support.examinations import readable
from tests.support.impact_objects import Cluster as Made
from tests.support.impact_objects import owner
from tests.support.kms_plugin import KMSPlugin
from tests.support.lossy_etcd import LossyProxy
from tests.support.objects import IDENTITY, KEY_1, provider, secret

pytestmark = pytest.mark.etcd


# Members; with real ones in tests/integration.


def _surveyed(monkeypatch: pytest.MonkeyPatch, change: Callable[[MemberSurvey], MemberSurvey]) -> None:
    """Let the survey come to something else than it does with the one member that there is."""

    def survey(client: EtcdClient, key: bytes) -> MemberSurvey:
        return change(survey_members(client, key))

    monkeypatch.setattr(preflight, "survey_members", survey)


def _one_more(survey: MemberSurvey, **changes: object) -> MemberSurvey:
    second = dataclasses.replace(survey.copies[0], member_id=0xB0B, name="bob", **changes)  # type: ignore[arg-type]
    return dataclasses.replace(survey, copies=(*survey.copies, second))


@pytest.mark.parametrize(
    "other",
    [
        {"value": b"k8s:enc:aescbc:v1:key1:other"},
        {"mod_revision": 7},
        {"create_revision": 7},
        {"version": 3},
        {"lease": 7},
        None,
    ],
)
def test_members_disagree(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, other: dict[str, object] | None
) -> None:
    def change(survey: MemberSurvey) -> MemberSurvey:
        stored = survey.copies[0].stored
        assert stored is not None
        changed = None if other is None else msgspec.structs.replace(stored, **other)
        return _one_more(survey, stored=changed, value_sha256="ab" * 32)

    _surveyed(monkeypatch, change)
    with registry.untouched():
        ran = registry.delete(registry.key("shop/broken"))
    registry.refused(
        ran,
        "members do not hold the same for",
        "bob (b0b): ",
        hint="replace that member (etcdctl member remove",
    )


def test_one_readable_copy(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same bytes everywhere, and a plugin that opens them on the second look."""
    real = Cluster.examine
    looks: list[int] = []

    def examine(cluster: Cluster, stored: StoredValue) -> Examination:
        looks.append(1)
        return real(cluster, stored) if len(looks) == 1 else readable()

    monkeypatch.setattr(Cluster, "examine", examine)
    with registry.untouched():
        ran = registry.delete(registry.key("shop/broken"))
    registry.refused(ran, "a member holds a readable copy of", hint="replace the member that does not")


def _half_unchecked(survey: MemberSurvey) -> MemberSurvey:
    return _one_more(survey, state=CopyState.UNCHECKED, stored=None, value_sha256="", reason="nobody answers")


def _unchecked(survey: MemberSurvey) -> MemberSurvey:
    made = _half_unchecked(survey)
    third = dataclasses.replace(made.copies[0], name="dora", member_id=0xD0)
    return dataclasses.replace(made, copies=(*made.copies, third))


def test_half_of_the_members_is_not_enough(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    _surveyed(monkeypatch, _half_unchecked)
    with registry.untouched():
        ran = registry.delete(registry.key("shop/broken"), "--accept-unchecked-member", "bob")
    registry.refused(ran, "only 1 of 2 voting members could be asked: no majority", hint="start the others")


def test_member_that_cannot_be_asked(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    _surveyed(monkeypatch, _unchecked)
    key = registry.key("shop/broken")
    for accepted in ((), ("--accept-unchecked-member", "alice")):
        with registry.untouched():
            ran = registry.delete(key, *accepted)
        registry.refused(
            ran, "not every member could be asked: bob (b0b): not checked: nobody answers",
            hint="name its address in --endpoints, or --accept-unchecked-member bob",
        )  # fmt: skip
    ran = registry.delete(key, "--accept-unchecked-member", "bob", "--accept-unchecked-member", "carol")
    assert ran.code == 0, ran.err
    assert "member bob (b0b) was not asked, as accepted" in ran.err
    assert "--accept-unchecked-member carol was not needed, or fits no member" in ran.err
    assert registry.events()[0].annotations.accepted == (
        '["--accept-unchecked-member bob","--accept-unchecked-member carol"]'
    )


def test_member_without_a_name(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    def nameless(survey: MemberSurvey) -> MemberSurvey:
        made = _unchecked(survey)
        return dataclasses.replace(
            made, copies=(made.copies[0], dataclasses.replace(made.copies[1], name=""), made.copies[2])
        )

    _surveyed(monkeypatch, nameless)
    key = registry.key("shop/broken")
    with registry.untouched():
        ran = registry.delete(key)
    registry.refused(ran, "not every member could be asked", hint="--accept-unchecked-member b0b")
    assert registry.delete(key, "--accept-unchecked-member", "b0b").code == 0


def test_written_while_members_were_asked(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    def moved(survey: MemberSurvey) -> MemberSurvey:
        return dataclasses.replace(survey, reading=dataclasses.replace(survey.reading, stored=None))

    _surveyed(monkeypatch, moved)
    with registry.untouched():
        ran = registry.delete(registry.key("shop/broken"))
    registry.refused(ran, "was changed while it was being examined", hint="examine it again")


def test_written_after_everything_else_was_read(registry: Registry) -> None:
    """All others are read at one revision; where the target is newer than that, they say nothing about it."""
    key = registry.key("shop/broken")
    with registry.cluster() as cluster:
        cluster.examiner.learn_custom_resources(cluster.source)
        registry.etcd.put(key, BROKEN)
        with pytest.raises(RefusedByRule) as caught:
            check_deletion(cluster, key, Acceptances())
    assert caught.value.rule == "moved"
    assert "was changed while it was being examined" in caught.value.message


# Alarms.


@pytest.fixture
def alarmed(registry: Registry) -> Iterator[Callable[[int], None]]:
    """Let etcd say that an alarm is up."""
    with LossyProxy(registry.etcd.endpoint) as proxy:
        registry.endpoints = proxy.endpoint

        def raise_alarm(kind: int) -> None:
            def rewrite(path: str, answer: bytes) -> bytes:
                if path != ALARM.path:
                    return answer
                found = message("AlarmResponse").FromString(answer)
                found.alarms.add(memberID=0xB0B, alarm=kind)
                return bytes(found.SerializeToString())

            proxy.rewrite = rewrite

        yield raise_alarm


def test_corrupt_alarm(registry: Registry, alarmed: Callable[[int], None]) -> None:
    alarmed(2)
    with registry.untouched():
        ran = registry.delete(registry.key("shop/broken"))
    registry.refused(
        ran, "member b0b has raised etcd's CORRUPT alarm", hint="replace the member whose data differs"
    )


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (1, "has raised the alarm NOSPACE; a restore would fail until there is room"),
        (9, "has raised the alarm unknown"),
    ],
)
def test_other_alarm(registry: Registry, alarmed: Callable[[int], None], kind: int, words: str) -> None:
    alarmed(kind)
    ran = registry.delete(registry.key("shop/broken"), "--dry-run")
    assert ran.code == 0, ran.err
    assert f"Note         member b0b {words}" in ran.err


# From the first check to the last.


def test_steps_are_told_in_order(registry: Registry) -> None:
    seen: list[str] = []
    with registry.cluster() as cluster:
        checked = check_deletion(cluster, registry.key("shop/broken"), Acceptances(), step=seen.append)
    assert seen == [
        f"check: {name}"
        for name in (
            "configuration", "read the key", "expectations", "examine", "members", "alarms", "cluster", "release",
            "everything else", "proof", "API servers", "floor", "lease",
        )
    ]  # fmt: skip
    assert checked.stored.value == BROKEN
    assert (checked.declared_lost, checked.warnings, checked.lease) == (False, (), None)


def test_what_is_found_to_break_the_cluster_needs_the_same_word(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = preflight.assess

    def breaking(*arguments: Any, **options: Any) -> Assessment | None:
        found = original(*arguments, **options)
        assert found is not None
        reason = RiskReason(Risk.CLUSTER_BREAKING, "x", "a hundred objects hang on it")
        return msgspec.structs.replace(found, risk=Risk.CLUSTER_BREAKING, reasons=(reason,))

    monkeypatch.setattr(preflight, "assess", breaking)
    with registry.cluster() as cluster:
        with pytest.raises(RefusedByRule, match="a hundred objects hang on it") as caught:
            check_deletion(cluster, registry.key("shop/broken"), Acceptances())
        assert caught.value.rule == Rule.FLOOR
        accepted = Acceptances(risks=(AcceptRisk.CLUSTER_BREAKING,))
        assert (
            check_deletion(cluster, registry.key("shop/broken"), accepted).floor
            == "a hundred objects hang on it"
        )


def test_dependents_and_users_under_kms_count(registry: Registry, tmp_path: Path) -> None:
    """What hangs on it may be under another key than it; that costs calls to a plugin, and they are made."""
    with KMSPlugin("v2", f"@etcdfix-test-{os.getpid()}-{tmp_path.name}", {"kek-1": b"1" * 32}) as plugin:
        kms = {"kms": {"apiVersion": "v2", "name": "prov", "endpoint": plugin.endpoint}}
        registry.configure(kms, provider("aescbc", key1=KEY_1), IDENTITY, resources=("*.*",))
        there = Made(registry.prefix)
        key = there.break_(there.add("apps/v1", "ReplicaSet", "web", "shop"))
        used = {"volumes": [{"name": "v", "secret": {"secretName": "broken"}}]}
        for number in range(100):
            pod = there.pod(f"p-{number}", owners=(owner("ReplicaSet", "web"),), spec=used)
            there.values[pod] = plugin.stored_v2(there.values[pod], pod.encode())
        registry.etcd.put_all(there.pairs())
        registry.refused(
            registry.delete(key.encode(), "--dry-run"),
            "the garbage collector deletes 100 dependents",
            hint="--accept-risk cluster-breaking",
        )
        ran = registry.delete(key.encode(), "--dry-run", "--accept-risk", "cluster-breaking")
        assert (ran.code, "Risk         CLUSTER-BREAKING" in ran.err) == (0, True)
        ran = registry.delete(registry.key("shop/broken"), "--dry-run")
        assert (ran.code, "Used by      100 objects" in ran.err) == (0, True)
        plugin.stop()
        ran = registry.delete(registry.key("shop/broken"), "--dry-run", "--no-kms")
        assert "Risk         LOW OR WORSE" in ran.err
        assert "101 other objects cannot be read" in ran.err


def test_an_earlier_revision_under_kms_is_waited_for(registry: Registry, tmp_path: Path) -> None:
    with KMSPlugin("v2", f"@etcdfix-test-{os.getpid()}-{tmp_path.name}", {"kek-1": b"1" * 32}) as plugin:
        kms = {"kms": {"apiVersion": "v2", "name": "prov", "endpoint": plugin.endpoint}}
        registry.configure(kms, provider("aescbc", key1=KEY_1), IDENTITY)
        key = registry.key("shop/broken")
        registry.etcd.put(key, plugin.stored_v2(secret("broken"), key))
        registry.etcd.put(key, BROKEN)
        ran = registry.delete(key, "--dry-run")
        assert ran.code == 0, ran.err


def test_nobody_was_asked_is_no_ground_for_a_declaration(registry: Registry) -> None:
    registry.configure(
        {"kms": {"apiVersion": "v2", "name": "prov", "endpoint": "unix:///nowhere.sock"}}, {"identity": {}}
    )
    key = registry.put("shop/kms", b"k8s:enc:kms:v2:prov:x")
    ran = registry.delete(key, "--no-kms", "--accept-no-api-server", "--declare-key-lost", "kms/v2/prov")
    registry.refused(ran, "no plugin was asked", hint="leave --no-kms out")


# A plan.


def _expected(cluster: Cluster, key: bytes, **changes: Any) -> Expectation:
    """Return what a plan says that fits."""
    stored = read_key(cluster.source.client, key).stored
    assert stored is not None
    found = cluster.examine(stored)
    assert found.verdict.cause is not None
    expected = Expectation(
        kube_system_uid=UID,
        mod_revision=stored.mod_revision,
        value_sha256=digest(stored.value),
        outcome=found.verdict.outcome.value,
        cause=found.verdict.cause.value,
        transformer=found.transformer,
        kms_key_id_sha256="",
        again="etcdfix plan AGAIN",
    )
    return msgspec.structs.replace(expected, **changes)


def test_a_plan_that_fits_changes_nothing(registry: Registry) -> None:
    key = registry.key("shop/broken")
    with registry.cluster() as cluster:
        steps: list[str] = []
        checked = check_deletion(
            cluster, key, Acceptances(), expected=_expected(cluster, key), step=steps.append
        )
        assert checked == check_deletion(cluster, key, Acceptances())
    # Whatever the plan is refused for without everything being looked at, is refused before that.
    assert steps[steps.index("check: plan") + 1] == "check: release"


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"kube_system_uid": "another"}, Rule.PLAN),
        ({"mod_revision": 1}, Rule.EXPECTATION_DIFFERS),
        ({"value_sha256": "sha256:00"}, Rule.EXPECTATION_DIFFERS),
        ({"cause": "ciphertext-damaged"}, Rule.PLAN),
    ],
)
def test_a_plan_that_differs_refuses(registry: Registry, changes: dict[str, Any], rule: Rule) -> None:
    key = registry.key("shop/broken")
    with registry.cluster() as cluster:
        expected = _expected(cluster, key, **changes)
        with registry.untouched(), pytest.raises(RefusedByRule) as caught:
            check_deletion(cluster, key, Acceptances(), expected=expected)
    assert caught.value.rule == rule
