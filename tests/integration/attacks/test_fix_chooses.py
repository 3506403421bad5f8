"""``fix`` without ``--from`` would take a copy of another object, of a clone, or one that nobody chose; it may not."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path

import pytest

from etcdfix.model.rules import Rule
from tests.support.attacks import TRUE, Attacked
from tests.support.audit_logs import own_directory
from tests.support.change_runs import BROKEN, Registry, candidate_config
from tests.support.kms_plugin import KMSPlugin
from tests.support.objects import (
    IDENTITY,
    KEY_1,
    KEY_2,
    UID,
    aescbc,
    aesgcm,
    namespace_object,
    provider,
    secret,
)

pytestmark = [pytest.mark.etcd, pytest.mark.usefixtures("no_variables")]


def changed(value: bytes) -> bytes:
    return value.replace(b"never-to-be-shown", b"never-to-be-found")


ANOTHER = aescbc(secret("good-0").replace(UID, b"99999999-2222-3333-4444-555555555555"))
WHOLE = aescbc(secret("good-0"))
CHANGED = aescbc(changed(secret("good-0")))


@pytest.fixture(autouse=True)
def under_aescbc(registry: Registry) -> None:
    registry.configure(provider("aescbc", key1=KEY_1), IDENTITY)


@pytest.fixture
def key(registry: Registry) -> bytes:
    registry.put("shop/good-1", aescbc(secret("good-1")))
    return registry.put("shop/good-0", WHOLE)


def saved(registry: Registry, name: str = "older.db") -> Path:
    path = registry.folder / name
    registry.etcd.etcdctl("snapshot", "save", path)
    return path


def test_it_takes_the_newest_of_the_same_object_and_says_why(registry: Registry, key: bytes) -> None:
    """Or else no refusal below would prove anything."""
    registry.etcd.put(key, CHANGED)
    newer = registry.mod_revision(key)
    registry.etcd.put(key, BROKEN)
    with registry.untouched():
        ran = registry.put_back(key, "", "--dry-run")
        assert ran.code == 0, ran.err
    ran = registry.put_back(key)
    assert ran.code == 0, ran.err
    assert f"From  revision {newer}, the best of " in ran.err
    assert registry.stored(key) == CHANGED


def test_a_refusal_that_a_word_lifts_prints_one_command_and_it_goes_through(
    registry: Registry, key: bytes
) -> None:
    registry.etcd.put(key, b"k8s:enc:new:v9:key1:" + bytes(40))
    with registry.untouched():
        ran = registry.put_back(key, "", "--dry-run")
        assert ran.code == 4
        (command,) = [line.strip() for line in ran.err.splitlines() if "etcdfix fix " in line]
        assert command.endswith(" --accept newer-than-known")
        assert registry.run(*shlex.split(command)[1:]).code == 0


def test_a_copy_of_an_earlier_object(registry: Registry, key: bytes) -> None:
    """The key was deleted, and made again by somebody: the value that reads is of the one before."""
    registry.etcd.delete(key)
    registry.etcd.put(key, BROKEN)
    with registry.untouched():
        ran = registry.put_back(key)
    registry.refused(ran, hint="--accept unknown-uid")
    registry.etcd.put(key, ANOTHER)
    registry.etcd.put(key, b"k8s:enc:aescbc:v1:key1:cut")
    ran = registry.put_back(key)
    assert ran.code == 0, ran.err
    assert registry.stored(key) == ANOTHER


def test_what_somebody_deleted_comes_back_only_by_name(registry: Registry, key: bytes) -> None:
    then = registry.mod_revision(key)
    registry.etcd.delete(key)
    with registry.untouched():
        ran = registry.put_back(key)
    registry.refused(ran, hint=f"--from revision:{then}")
    assert registry.put_back(key, f"revision:{then}").code == 0
    assert registry.stored(key) == WHOLE


def test_a_backup_only_where_the_audit_log_knows_it(registry: Registry, key: bytes) -> None:
    """It is what an undo took away; etcd has compacted everything else."""
    registry.etcd.put(key, BROKEN)
    assert registry.put_back(key).code == 0
    put_by_us = str(registry.mod_revision(key))
    assert registry.undo(registry.kept()[-1].path, "--expect-mod-revision", put_by_us).code == 0
    assert registry.stored(key) == BROKEN
    registry.etcd.compact()
    log = registry.log
    registry.log = own_directory(registry.folder / "other-log") / "audit.jsonl"
    with registry.untouched():
        registry.refused(registry.put_back(key), hint="--accept unlisted-source")
    registry.log = log
    ran = registry.put_back(key)
    assert ran.code == 0, ran.err
    assert f"From  backup {registry.kept()[-2].path}" in ran.err
    assert registry.stored(key) == WHOLE


def test_a_snapshot_alone_does_not_say_whose_value_it_is(registry: Registry, key: bytes) -> None:
    """etcd has compacted what tells the uid: a clone may have another object of that generation."""
    first = saved(registry)
    registry.etcd.put(key, BROKEN)
    registry.etcd.compact()
    for source, given in (("", ("--in", f"snapshot:{first}")), (f"snapshot:{first}", ())):
        with registry.untouched():
            ran = registry.put_back(key, source, *given)
        registry.refused(ran, hint="--accept unknown-uid")
    ran = registry.put_back(key, f"snapshot:{first}", "--accept", "unknown-uid")
    assert ran.code == 0, ran.err
    assert registry.stored(key) == WHOLE
    backup = registry.kept()[-1]
    ran = registry.undo(backup.path, "--expect-mod-revision", str(registry.mod_revision(key)))
    assert ran.code == 0, ran.err
    assert registry.stored(key) == BROKEN


def test_a_snapshot_of_another_cluster(registry: Registry, key: bytes) -> None:
    path = saved(registry)
    registry.etcd.put(key, BROKEN)
    registry.put("kube-system", namespace_object("kube-system", uid="another"), "namespaces")
    with registry.untouched():
        ran = registry.put_back(key, f"snapshot:{path}", "--accept", "unknown-uid")
    registry.refused(ran, hint="explain")


def test_a_candidate_that_is_the_configuration_of_today(registry: Registry) -> None:
    key = registry.put("shop/old", aescbc(secret("old"), KEY_2, "key2"))
    registry.put("shop/newest", aescbc(secret("newest")))
    with registry.untouched():
        ran = registry.put_back(key, f"candidate:{registry.config}")
    registry.refused(ran, hint="--encryption-config")
    path = candidate_config(registry.folder)
    ran = registry.put_back(key, "", "--in", f"candidate:{path}")
    assert ran.code == 0, ran.err


@pytest.mark.parametrize("named", [True, False])
def test_a_candidate_while_the_plugin_of_today_is_silent(registry: Attacked, named: bool) -> None:
    """An outage: today's configuration may read the value again tomorrow."""
    with KMSPlugin("v2", f"@etcdfix-outage-{os.getpid()}-{named}", {"kek-1": b"1" * 32}) as plugin:
        kms = {"apiVersion": "v2", "name": "prov", "endpoint": "unix:///nowhere", "timeout": "1s"}
        registry.rules(("secrets", (provider("aesgcm", key1=TRUE), {"kms": kms}, IDENTITY)))
        key = registry.key("shop/target")
        registry.etcd.put(key, plugin.stored_v2(secret("target"), key, key_id="kek-1"))
        registry.secrets("aesgcm", ["good-0", "good-1"])
        live = {"kms": {**kms, "endpoint": plugin.endpoint, "timeout": "5s"}}
        candidate = f"candidate:{candidate_config(registry.folder, live)}"
        how = (candidate,) if named else ("", "--in", candidate)
        with registry.nothing_changes():
            ran = registry.put_back(key, *how, "--accept", "no-api-server")
        registry.refused(ran, hint="may answer later")
        reading = (*registry.common(places=False, reason=None), "--in", candidate)
        ran = registry.run("explain", key.decode(), *reading)
        assert "good, but it cannot be put back" in ran.out
        assert "--from candidate" not in ran.out
        (group,) = json.loads(registry.run("encryption", "try", key.decode(), *reading, "-o", "json").out)[
            "groups"
        ]
        assert (group["opened"], "Add the key" in str(group["next"])) == (1, True), group


def test_a_bit_before_an_earlier_revision(registry: Registry) -> None:
    """What is put right is newer than any copy of it."""
    registry.configure(provider("aesgcm", key1=KEY_1), IDENTITY)
    key = registry.key("shop/good-0")
    values = [aesgcm(value, key.decode()) for value in (secret("good-0"), changed(secret("good-0")))]
    for value in values:
        registry.etcd.put(key, value)
    newest = registry.key("shop/good-1")
    registry.etcd.put(newest, aesgcm(secret("good-1"), newest.decode()))
    registry.etcd.put(key, values[1][:-20] + bytes([values[1][-20] ^ 1]) + values[1][-19:])
    ran = registry.put_back(key)
    assert ran.code == 0, ran.err
    assert registry.stored(key) == values[1]
    backup = registry.kept()[-1]
    assert (backup.content.purpose, registry.records()[-1].verb) == ("fix", "fix")
    assert registry.records()[-1].way == "put"
    ran = registry.undo(backup.path, configured=False)
    assert ran.code == 0, ran.err
    assert registry.stored(key) == backup.content.stored.value


def test_a_value_that_reads_is_never_replaced(registry: Registry, key: bytes) -> None:
    with registry.untouched():
        for source in ("", "revision:1", "bit", f"candidate:{registry.config}", f"backup:{registry.config}"):
            ran = registry.put_back(key, source, "-o", "json")
            assert (ran.code, Rule.READABLE in ran.out) == (4, True), (source, ran)
