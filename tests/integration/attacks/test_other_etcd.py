"""Records of one etcd are taken to another that came of the same snapshot, or of a copy of its data.

Production is restored into staging, and both go on: one kube-system uid, one past, two etcds. What was deleted in the
one says nothing of the other.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from etcdfix.model.rules import Rule
from etcdfix.remediation.audit.record import Result
from etcdfix.remediation.audit.verify import verify
from etcdfix.testing.servers import EtcdServer
from tests.support.audit_logs import own_directory
from tests.support.change_runs import BROKEN, Ran, Registry
from tests.support.objects import IDENTITY, KEY_1, KEY_2, UID, aescbc, provider, secret
from tests.support.plan_runs import not_written, planned

pytestmark = [pytest.mark.etcd, pytest.mark.usefixtures("no_variables")]

OTHER_ID = "--accept=other-cluster-id"
PREFIX = b"/registry/"
ANOTHER_UID = b"99999999-2222-3333-4444-555555555555"

Restored = Callable[..., Registry]


@pytest.fixture
def production(
    start_etcd: Callable[..., EtcdServer], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> Registry:
    return Registry(start_etcd(token="production"), PREFIX, own_directory(tmp_path / "places"), capfd)


@pytest.fixture
def restored(start_etcd: Callable[..., EtcdServer], tmp_path: Path) -> Restored:
    def restore(origin: Registry, *, copied: bool = False, bump: int = 0) -> Registry:
        path = tmp_path / "snapshot.db"
        origin.etcd.etcdctl("snapshot", "save", path)
        server = start_etcd(snapshot=path, token="production" if copied else "staging")
        other = copy.copy(origin)
        other.etcd, other.endpoints = server, server.endpoint
        for number in range(bump):
            server.put(b"elsewhere", str(number).encode())
        return other

    return restore


def refusal(ran: Ran) -> str:
    assert ran.code == 4, ran
    return str(json.loads(ran.out)["refusal"]["rule"])


def undo(registry: Registry, backup: Path, *arguments: str) -> Ran:
    return registry.undo(backup, "-o", "json", *arguments)


def later(registry: Registry) -> None:
    for _ in range(20):
        registry.put("shop/later", aescbc(secret("later")))


def test_the_undo_of_the_same_etcd_needs_nothing(production: Registry) -> None:
    """Or else no refusal below would prove anything."""
    backup = production.deleted()
    production.put("shop/later", aescbc(secret("later")))
    ran = production.undo(backup.path, "--dry-run", configured=False)
    assert ran.code == 0, ran.err
    production.etcd.compact()
    ran = production.undo(backup.path, configured=False)
    assert ran.code == 0, ran.err
    assert production.stored(production.key("shop/broken")) == BROKEN


def test_staging_from_production(production: Registry, restored: Restored) -> None:
    """A value that was deleted in staging is absent in production too, for a reason of its own."""
    staging = restored(production)
    backup = staging.deleted()
    key = production.key("shop/broken")
    production.etcd.delete(key)
    with production.untouched():
        assert refusal(undo(production, backup.path)) == Rule.OTHER_CLUSTER_ID


def test_an_accepted_id_does_not_make_another_past_a_true_undo(
    production: Registry, restored: Restored
) -> None:
    """Production deleted the key at another revision: what cannot be read does not go there, whatever is accepted."""
    staging = restored(production, bump=5)
    backup = staging.deleted()
    key = production.key("shop/broken")
    production.etcd.delete(key)
    later(production)
    accepted = (OTHER_ID, "--accept", "unlisted-source", "--accept", "unknown-cluster")
    digest = ("--expect-value-sha256", backup.content.value_sha256)
    for more in ((), digest):
        with production.untouched():
            assert refusal(undo(production, backup.path, *accepted, *more)) == Rule.OTHER_CLUSTER


def test_an_etcd_that_stands_further_back(production: Registry, restored: Restored) -> None:
    staging = restored(production, copied=True, bump=20)
    backup = staging.deleted()
    production.etcd.delete(production.key("shop/broken"))
    with production.untouched():
        assert refusal(undo(production, backup.path)) == Rule.OTHER_CLUSTER_ID


@pytest.mark.parametrize("listed", [True, False])
def test_a_copied_data_directory(production: Registry, restored: Restored, listed: bool) -> None:
    """The same ids; the key was made in the copy, and was never in production."""
    staging = restored(production, copied=True)
    staging.put("shop/of-staging", BROKEN)
    backup = staging.deleted("shop/of-staging")
    later(production)
    if not listed:
        production.log = own_directory(production.folder / "another") / "audit.jsonl"
    given = ("--accept", "unlisted-source", "--expect-value-sha256", backup.content.value_sha256)
    with production.untouched():
        assert refusal(undo(production, backup.path, *given)) == Rule.OTHER_CLUSTER_ID


def test_a_copy_where_the_same_key_has_another_past(production: Registry, restored: Restored) -> None:
    """Both wrote the key at the same revision, and both deleted it: the value tells."""
    staging = restored(production, copied=True)
    staging.put("shop/of-both", BROKEN)
    production.put("shop/of-both", aescbc(secret("of-both")))
    backup = staging.deleted("shop/of-both")
    production.etcd.delete(production.key("shop/of-both"))
    with production.untouched():
        assert refusal(undo(production, backup.path)) == Rule.OTHER_CLUSTER_ID


def test_a_cluster_that_came_back_from_its_own_snapshot(production: Registry, restored: Restored) -> None:
    """After a disaster: another cluster id and the same past. It is said once, and then it is a true undo."""
    backup = production.deleted()
    again = restored(production, bump=3)
    assert refusal(undo(again, backup.path)) == Rule.OTHER_CLUSTER_ID
    ran = again.undo(backup.path, OTHER_ID, configured=False)
    assert ran.code == 0, ran.err
    assert again.stored(again.key("shop/broken")) == BROKEN
    assert "--accept other-cluster-id" in str(again.records()[-2].accepted)


@pytest.mark.parametrize("same_object", [True, False])
def test_a_readable_value_of_another_etcd_goes_the_road_of_every_source(
    production: Registry, restored: Restored, same_object: bool
) -> None:
    """Its key was found since. Accepted or not, its uid must be that of the object that was here."""
    key = production.put("shop/old", aescbc(secret("old"), KEY_2, "key2"))
    staging = restored(production, bump=5)
    lost = ("--declare-key-lost", "aescbc/v1/key2", "--accept", "no-api-server")
    backup = staging.deleted("shop/old", *lost)
    production.configure(provider("aescbc", key1=KEY_1, key2=KEY_2), IDENTITY)
    if not same_object:
        production.put("shop/old", aescbc(secret("old").replace(UID, ANOTHER_UID)))
    production.etcd.delete(key)
    later(production)
    with production.untouched():
        assert refusal(undo(production, backup.path)) == Rule.OTHER_CLUSTER_ID
    if not same_object:
        with production.untouched():
            ran = production.put_back(key, f"backup:{backup.path}", OTHER_ID, "-o", "json")
            assert refusal(ran) == Rule.OTHER_OBJECT
        return
    ran = production.put_back(key, f"backup:{backup.path}", OTHER_ID)
    assert ran.code == 0, ran.err
    assert production.stored(key) == backup.content.stored.value


def test_copies_does_not_say_that_it_is_of_this_etcd(production: Registry, restored: Restored) -> None:
    staging = restored(production)
    backup = staging.deleted()
    kept = ("--backup-dir", str(backup.path.parent), "--audit-log", str(staging.log))
    for registry, doubt in ((production, "history is not known"), (staging, "")):
        registry.etcd.put(registry.key("shop/broken"), BROKEN[:-1])
        where = (*registry.where, "--encryption-config", str(registry.config), "-o", "json")
        objects = json.loads(registry.run("copies", *kept, *where).out)["objects"]
        copies = [copy for one in objects for copy in one["copies"] if copy["place"] == "backup"]
        assert copies
        assert all(copy["doubt"].endswith(doubt) and bool(copy["doubt"]) == bool(doubt) for copy in copies)


def left_open(registry: Registry, monkeypatch: pytest.MonkeyPatch, name: str = "shop/broken") -> None:
    not_written(monkeypatch, 2)
    assert registry.delete(registry.key(name)).code == 3
    monkeypatch.undo()
    assert len(verify(registry.log).open_intents) == 1


def reconcile(registry: Registry, *arguments: str) -> Ran:
    where = registry.common(places=False, reason=None)
    return registry.run("log", "settle", str(registry.log), *where, *arguments)


@pytest.mark.parametrize("copied", [False, True])
@pytest.mark.parametrize("there", [True, False])
def test_an_intent_of_the_other_etcd_is_not_settled_as_of_this_one(
    production: Registry, restored: Restored, monkeypatch: pytest.MonkeyPatch, copied: bool, there: bool
) -> None:
    """With another id; with the same one, production never saw the revision, or had something else at it."""
    staging = restored(production, copied=copied)
    name = "shop/broken"
    if copied:
        name = "shop/of-staging"
        staging.put(name, BROKEN)
        for _ in range(20):
            production.put(name, aescbc(secret("of-staging")))
    left_open(staging, monkeypatch, name)
    if not there:
        production.etcd.delete(production.key(name))
    before = production.log.read_bytes()
    if copied:
        # Whether it is a copy, or members disagree, nobody can say here: it is an anomaly, and no outcome.
        ran = reconcile(production, "-o", "json")
        assert (ran.code, json.loads(ran.out)["intents"][0]["outcome"]) == (3, Result.ANOMALY)
        assert not verify(production.log).open_intents
        return
    for more in ((), ("--dry-run",)):
        ran = reconcile(production, "-o", "json", *more)
        assert ran.code == 4, ran
        document = json.loads(ran.out)
        assert [one["outcome"] for one in document["intents"]] == ["refused"]
    assert production.log.read_bytes() == before
    assert len(verify(production.log).open_intents) == 1
    assert "--accept other-cluster-id" in reconcile(production).out
    # The etcd that it is about settles it.
    ran = reconcile(staging, "-o", "json")
    assert (ran.code, json.loads(ran.out)["intents"][0]["outcome"]) == (0, Result.APPLIED_OR_GONE)


def test_an_intent_is_settled_by_the_etcd_that_takes_its_place(
    production: Registry, restored: Restored, monkeypatch: pytest.MonkeyPatch
) -> None:
    left_open(production, monkeypatch)
    again = restored(production)
    assert reconcile(again).code == 4
    ran = reconcile(again, OTHER_ID)
    assert (ran.code, "applied-or-gone" in ran.out) == (0, True), ran
    (line,) = [line for line in ran.out.splitlines() if "etcdfix undo" in line]
    assert " --accept other-cluster-id " in line
    assert not verify(again.log).open_intents


@pytest.mark.parametrize("copied", [False, True])
def test_a_deletion_takes_the_others_intent_for_no_outcome(
    production: Registry, restored: Restored, monkeypatch: pytest.MonkeyPatch, copied: bool
) -> None:
    """The same key is broken in both; the deletion here goes on, and says why the intent stays open."""
    staging = restored(production, copied=copied)
    key = staging.put("shop/broken", BROKEN + b"!")
    production.etcd.put(key, BROKEN + b"?")
    left_open(staging, monkeypatch)
    (number,) = verify(staging.log).open_intents
    for more in (("--dry-run",), ()):
        ran = production.delete(key, *more)
        assert ran.code == 0, ran
    assert list(verify(production.log).open_intents) == ([] if copied else [number])


def test_a_plan_of_the_other_etcd(production: Registry, restored: Restored) -> None:
    plan = planned(production)
    staging = restored(production)
    key = staging.key("shop/broken")
    with staging.untouched():
        assert refusal(staging.delete(key, "--plan", str(plan), "-o", "json")) == Rule.OTHER_CLUSTER_ID
    ran = staging.delete(key, "--plan", str(plan), OTHER_ID)
    assert ran.code == 0, ran.err


def test_a_plan_of_a_copy_that_had_gone_on(production: Registry, restored: Restored) -> None:
    staging = restored(production, copied=True, bump=20)
    plan = planned(staging)
    with production.untouched():
        ran = production.delete(production.key("shop/broken"), "--plan", str(plan), "-o", "json")
        assert refusal(ran) == Rule.OTHER_CLUSTER_ID


def test_the_word_goes_with_a_plan(production: Registry) -> None:
    with production.untouched():
        assert production.delete(production.key("shop/broken"), OTHER_ID).code == 2
