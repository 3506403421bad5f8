"""Checks that need trouble inside etcd: members, alarms, a key that moves; and the declaration of a lost key."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from etcdfix.examine.one import Examiner
from etcdfix.examine.verdicts.examination import Examination
from etcdfix.model.errors import RefusedByRule, SourceUnreachable
from etcdfix.model.model import StoredValue
from etcdfix.model.rules import Rule
from etcdfix.remediation import present as present_module
from etcdfix.remediation.change import ChangeRequest
from etcdfix.remediation.cluster import find_cluster
from etcdfix.remediation.members import MemberSurvey, survey_members
from etcdfix.remediation.present import Home, Present
from etcdfix.sources.connection import EtcdConnection
from etcdfix.sources.etcd.client import EtcdClient
from etcdfix.testing.protobytes import block, object_meta, unknown
from etcdfix.wire.etcd import ALARM, STATUS, message
from tests.support.change_runs import BROKEN, UID, Registry
from tests.support.checked_values import check_deletion
from tests.support.examinations import readable, with_verdict
from tests.support.fixtures import Patch
from tests.support.impact_objects import Cluster as Made
from tests.support.impact_objects import owner
from tests.support.kms_plugin import KMSPlugin
from tests.support.lossy_etcd import LossyProxy
from tests.support.objects import IDENTITY, KEY_1, aesgcm, provider, secret

pytestmark = pytest.mark.etcd


def _surveyed(monkeypatch: Patch, change: Callable[[MemberSurvey], MemberSurvey]) -> None:
    def survey(client: EtcdClient, key: bytes) -> MemberSurvey:
        return change(survey_members(client, key))

    monkeypatch.setattr(present_module, "survey_members", survey)


def _one_more(survey: MemberSurvey, **changes: object) -> MemberSurvey:
    second = msgspec.structs.replace(survey.copies[0], member_id=0xB0B, name="bob", **changes)
    return msgspec.structs.replace(survey, copies=(*survey.copies, second))


def test_one_readable_copy(registry: Registry, monkeypatch: Patch) -> None:
    """The same bytes everywhere, and a plugin that opens them on the second look."""
    real = Examiner.examine
    looks: list[int] = []

    def examine(self: Examiner, stored: StoredValue, **thorough: bool) -> Examination:
        looks.append(1)
        return real(self, stored, **thorough) if len(looks) == 1 else readable()

    monkeypatch.setattr(Examiner, "examine", examine)
    with registry.untouched():
        ran = registry.delete(registry.key("shop/broken"))
    registry.refused(ran, "a member holds a readable copy of", hint="replace the member that does not")


def test_half_of_the_members_is_not_enough(registry: Registry, monkeypatch: Patch) -> None:
    _surveyed(monkeypatch, lambda survey: _one_more(survey, stored=None, reason="nobody answers"))
    with registry.untouched():
        ran = registry.delete(registry.key("shop/broken"), "--accept", "unchecked-member=bob")
    registry.refused(ran, "only 1 of 2 voting members could be asked: no majority", hint="start the others")


def test_written_while_members_were_asked(registry: Registry, monkeypatch: Patch) -> None:
    def moved(survey: MemberSurvey) -> MemberSurvey:
        return msgspec.structs.replace(survey, reading=msgspec.structs.replace(survey.reading, stored=None))

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
            check_deletion(cluster, key)
    assert caught.value.rule == "moved"
    assert "was changed while it was being examined" in caught.value.message


@pytest.fixture
def alarmed(registry: Registry) -> Iterator[Callable[..., None]]:
    with LossyProxy(registry.etcd.endpoint) as proxy:
        registry.endpoints = proxy.endpoint

        def raise_alarm(kind: int, version: str = "3.5.21") -> None:
            def rewrite(path: str, answer: bytes) -> bytes:
                if path == STATUS.path:
                    status = message("StatusResponse").FromString(answer)
                    status.version = version
                    return bytes(status.SerializeToString())
                if path != ALARM.path:
                    return answer
                found = message("AlarmResponse").FromString(answer)
                found.alarms.add(memberID=0xB0B, alarm=kind)
                return bytes(found.SerializeToString())

            proxy.rewrite = rewrite

        yield raise_alarm


def test_corrupt_alarm(registry: Registry, alarmed: Callable[..., None]) -> None:
    alarmed(2)
    with registry.untouched():
        ran = registry.delete(registry.key("shop/broken"))
    registry.refused(
        ran, "member b0b has raised etcd's CORRUPT alarm", hint="replace the member whose data differs"
    )


@pytest.mark.parametrize(
    ("version", "refuses"),
    [
        *(("3.3.27", True), ("3.4.21", True), ("3.4.22", False), ("3.5.6", True), ("3.5.7", False)),
        *(("3.6.0-alpha.0", False), ("unknown", False)),
    ],
)
def test_etcd_that_is_full(
    registry: Registry, alarmed: Callable[..., None], version: str, *, refuses: bool
) -> None:
    alarmed(1, version)
    with registry.cluster() as cluster:
        if not refuses:
            assert check_deletion(cluster, registry.key("shop/broken"))
            return
        with pytest.raises(RefusedByRule, match=f"etcd {version} refuses every transaction"):
            check_deletion(cluster, registry.key("shop/broken"))


def test_an_etcd_of_any_release_that_is_full_takes_no_value(
    registry: Registry, alarmed: Callable[..., None]
) -> None:
    key = registry.key("shop/good-0")
    then = registry.mod_revision(key)
    registry.etcd.put(key, BROKEN)
    alarmed(1, "3.6.0")
    with registry.untouched():
        ran = registry.put_back(key, f"revision:{then}")
    registry.refused(ran, "has raised etcd's NOSPACE alarm", hint="etcdctl alarm disarm")


NOWHERE = EtcdConnection(endpoints=("127.0.0.1:1",))


def test_a_main_etcd_that_was_named_on_purpose_must_be_of_the_same_cluster(registry: Registry) -> None:
    """Any other is left alone where this etcd says which cluster it is."""
    with registry.cluster() as cluster:
        assert find_cluster(msgspec.structs.replace(cluster, main=NOWHERE)).uid == UID
        main = cluster.client.connection
        assert find_cluster(msgspec.structs.replace(cluster, main=main, main_named=True)).uid == UID
        with pytest.raises(SourceUnreachable):
            find_cluster(msgspec.structs.replace(cluster, main=NOWHERE, main_named=True))


@pytest.mark.parametrize(
    ("name", "rule"), [("shop/goo", Rule.GONE), ("shop", Rule.NOT_ONE_KEY), ("shop/", Rule.NOT_ONE_KEY)]
)
def test_only_at_a_slash_does_a_key_begin_others(registry: Registry, name: str, rule: Rule) -> None:
    with registry.cluster() as cluster, pytest.raises(RefusedByRule) as caught:
        assert Present(cluster, registry.key(name), ChangeRequest(reason="a test")).stored
    assert caught.value.rule == rule


class Moved:
    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        registry.configure(provider("aesgcm", key1=KEY_1), IDENTITY)
        self.home, self.copy = registry.key("shop/home"), registry.key("shop/copy")

    def put(self, copy: bytes, home: bytes | None = None) -> None:
        pairs = {self.copy: copy} | ({self.home: home} if home is not None else {})
        self.registry.etcd.put_all((at, aesgcm(value, self.home.decode())) for at, value in pairs.items())

    def put_home(self, value: bytes) -> None:
        self.registry.etcd.put(self.home, aesgcm(value, self.home.decode()))

    def check(self) -> Home:
        with self.registry.cluster() as cluster:
            present = Present(cluster, self.copy, ChangeRequest(reason="a test"), alone=True)
            present.known["first"] = with_verdict(present.first, belongs_to=self.home)
            return present.home


@pytest.fixture
def moved(registry: Registry) -> Moved:
    return Moved(registry)


@pytest.mark.parametrize(
    ("copy", "home"),
    [
        (secret("home"), None),
        (secret("home"), secret("home")[:-3]),
        (secret("home")[:-3], secret("home")[:-3]),
        # It does not decode, and so says no uid that could be compared.
        (secret("home")[:-3], secret("home")),
        # Written by the same transaction: no later state.
        (secret("home").replace(b"never", b"later"), secret("home")),
    ],
    ids=["absent", "broken", "both-broken", "copy-broken", "not-later"],
)
def test_a_moved_value_that_may_be_the_only_copy(moved: Moved, copy: bytes, home: bytes | None) -> None:
    moved.put(copy, home)
    assert moved.check() == Home()


def test_two_objects_without_a_uid_are_not_the_same(moved: Moved) -> None:
    meta = block(1, object_meta(b"home", b"shop"))
    moved.put(unknown(b"v1", b"Secret", meta + block(3, b"Opaque")))
    moved.put_home(unknown(b"v1", b"Secret", meta))
    assert moved.check() == Home()


def test_a_moved_value_whose_home_holds_a_later_state(moved: Moved) -> None:
    moved.put(secret("home").replace(b"never", b"early"))
    moved.put_home(secret("home"))
    mark, later = moved.check()
    assert mark is not None
    assert (mark.key, later) == (moved.home, True)


def test_a_moved_value_is_found_where_it_belongs(moved: Moved, monkeypatch: Patch) -> None:
    """What cannot be decrypted a second time is not the same: a plugin may go away between two looks."""
    moved.put(secret("home"), home=secret("home"))
    mark, later = moved.check()
    assert mark is not None
    assert (mark.key, later) == (moved.home, False)
    monkeypatch.setattr(Examiner, "plaintext", lambda *_: None)
    assert moved.check() == Home()


def test_the_floor_stands_without_an_assessment(registry: Registry, monkeypatch: Patch) -> None:
    monkeypatch.setattr(present_module, "assess", lambda *_: None)
    key = registry.put("kube-system/broken", BROKEN)
    with registry.cluster() as cluster:
        with pytest.raises(RefusedByRule, match="kube-system may be part of the control plane") as caught:
            check_deletion(cluster, key)
        assert caught.value.rule == Rule.CLUSTER_BREAKING
        assert check_deletion(cluster, registry.key("shop/broken")).protected == ""


@pytest.mark.thorough
def test_dependents_and_users_under_kms_count(registry: Registry, tmp_path: Path) -> None:
    """What depends on it may be under another key than it; that costs calls to a plugin, and they are made."""
    with KMSPlugin("v2", f"@etcdfix-test-{os.getpid()}-{tmp_path.name}", {"kek-1": b"1" * 32}) as plugin:
        kms = {"kms": {"apiVersion": "v2", "name": "prov", "endpoint": plugin.endpoint}}
        registry.configure(kms, provider("aescbc", key1=KEY_1), IDENTITY, resources=("*.*",))
        there = Made(registry.prefix)
        key = there.break_(there.add("apps/v1", "ReplicaSet", "web", "shop"))
        used = {"volumes": [{"name": "v", "secret": {"secretName": "broken"}}]}
        for number in range(100):  # fewer would not be cluster-breaking
            pod = there.pod(f"p-{number}", owners=(owner("ReplicaSet", "web"),), spec=used)
            there.values[pod] = plugin.stored_v2(there.values[pod], pod.encode())
        registry.etcd.put_all(there.pairs())
        registry.refused(
            registry.delete(key.encode(), "--dry-run"),
            "the garbage collector deletes 100 dependents",
            hint="--accept cluster-breaking",
        )
        ran = registry.delete(registry.key("shop/broken"), "--dry-run")
        assert (ran.code, "Used by  100 objects: " in ran.err) == (0, True)
        plugin.stop()
        ran = registry.delete(registry.key("shop/broken"), "--dry-run", "--no-kms")
        assert "Risk  low or worse: " in ran.err
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
