"""``etcdfix fix`` against a real etcd: revisions, snapshots, backups, candidate configurations; every refusal."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from etcdfix.remediation.audit.verify import ChainState, verify
from etcdfix.wire.etcd import ALARM, STATUS, message
from tests.support.audit_logs import own_directory
from tests.support.change_runs import BROKEN, UID, Registry, candidate_config, holds
from tests.support.kms_plugin import KMSPlugin
from tests.support.kubernetes_api import KubernetesAPI
from tests.support.lossy_etcd import TXN, LossyProxy
from tests.support.objects import IDENTITY, KEY_1, KEY_2, aescbc, namespace_object, provider, secret
from tests.support.objects import UID as UID_OF_SECRETS

pytestmark = [pytest.mark.etcd, pytest.mark.usefixtures("no_variables")]

KEK = {"kek-1": b"1" * 32}
OLD = aescbc(secret("old"), KEY_2, "key2")
WHOLE = aescbc(secret("good-0"))
OTHER_UID = b"99999999-2222-3333-4444-555555555555"
OF_ANOTHER = aescbc(secret("good-0").replace(UID_OF_SECRETS, OTHER_UID))


@pytest.fixture
def good(registry: Registry) -> bytes:
    return registry.key("shop/good-0")


@pytest.mark.parametrize("deleted", [True, False])
def test_from_revision(registry: Registry, good: bytes, deleted: bool) -> None:
    """etcd itself is the list of its revisions, whether the key is there or gone."""
    then = registry.mod_revision(good)
    registry.etcd.delete(good) if deleted else registry.etcd.put(good, BROKEN)
    ran = registry.put_back(good, f"revision:{registry.etcd.revision() - 1}")
    assert ran.code == 0, ran.err
    for words in (
        f"From  revision {then}, as you named it",
        "Proof  it has the uid of the object at the key",
        "Now  nothing is there" if deleted else "Recorded  backup in ",
        "do not come back with their owner",
        f"kube-system uid {UID}, at {registry.endpoints}",
        "the etcd credentials are the only gate",
    ):
        assert words in ran.err, words
    assert f"FIXED {good.decode()} at revision " in ran.out
    assert ran.err.count("\n") <= 30
    assert registry.stored(good) == WHOLE
    assert not registry.records()[0].accepted
    assert [backup.content.stored.value for backup in registry.kept()] == ([] if deleted else [BROKEN])


def test_from_revision_over_our_own_undo(registry: Registry) -> None:
    """Deleted and put back, the key has a new create_revision and the same bytes: it is the same object."""
    key = registry.key("shop/broken")
    then = registry.etcd.put(key, aescbc(secret("broken")))
    registry.etcd.put(key, aescbc(secret("broken"))[:-5])
    assert registry.undo(registry.deleted().path).code == 0
    ran = registry.put_back(key, f"revision:{then}")
    assert ran.code == 0, ran.err
    assert registry.stored(key) == aescbc(secret("broken"))


def test_from_revision_of_the_object_before_the_last(registry: Registry, good: bytes) -> None:
    """Whatever is accepted, an old object never comes back over a newer one of the same name."""
    then = registry.mod_revision(good)
    registry.etcd.delete(good)
    newer = registry.etcd.put(good, OF_ANOTHER)
    registry.etcd.put(good, BROKEN)
    for _ in range(2):
        with registry.untouched():
            ran = registry.put_back(good, f"revision:{then}", "--accept", "unknown-uid")
        registry.refused(ran, "its uid is", OTHER_UID.decode(), hint="explain")
        registry.etcd.delete(good)
    assert registry.put_back(good, f"revision:{newer}").code == 0


@pytest.mark.parametrize("case", ["the present one", "compacted", "before the deletion"])
def test_a_revision_that_holds_no_copy(registry: Registry, good: bytes, case: str) -> None:
    then = registry.mod_revision(good)
    if case == "before the deletion":
        registry.etcd.delete(good)
        then = registry.etcd.revision()
    registry.etcd.put(good, BROKEN)
    if case == "the present one":
        then = registry.mod_revision(good)
    elif case == "compacted":
        registry.etcd.compact()
    with registry.untouched():
        ran = registry.put_back(good, f"revision:{then}", "--accept", "unknown-uid")
    registry.refused(ran, f"revision:{then} holds no copy of", hint="explain")


def test_from_revision_with_a_protected_kind(registry: Registry) -> None:
    key = registry.put("shop", namespace_object("shop", "u-4"), "namespaces")
    source = f"revision:{registry.mod_revision(key)}"
    registry.etcd.put(key, namespace_object("shop", "u-4")[:-3])
    with registry.untouched():
        ran = registry.put_back(key, source)
    registry.refused(ran, "putting another value over this key may break", hint="--accept cluster-breaking")
    assert "deleting" not in ran.err
    ran = registry.put_back(key, source, "--accept", "cluster-breaking")
    assert ran.code == 0, ran.err
    assert "CLUSTER-BREAKING, as accepted" in ran.err
    assert registry.stored(key) == namespace_object("shop", "u-4")


def _saved(registry: Registry) -> Path:
    path = registry.folder / "saved.db"
    registry.etcd.etcdctl("snapshot", "save", path)
    return path


@pytest.mark.parametrize("damaged", [False, True])
def test_from_snapshot(registry: Registry, good: bytes, damaged: bool) -> None:
    """A snapshot keeps earlier revisions as etcd does: where its newest value is damaged, the one before is taken."""
    then = registry.mod_revision(good)
    if damaged:
        registry.etcd.put(good, BROKEN)
    path = _saved(registry)
    if not damaged:
        registry.etcd.delete(good)
    ran = registry.put_back(good, f"snapshot:{path}")
    assert ran.code == 0, ran.err
    assert f"From  revision {then} in snapshot {path}" in ran.err
    assert registry.stored(good) == WHOLE


def test_from_snapshot_of_another_object(registry: Registry, good: bytes) -> None:
    """Of the same name, and made since: what was deleted before does not come back over it."""
    path = _saved(registry)
    registry.etcd.delete(good)
    registry.etcd.put(good, OF_ANOTHER)
    registry.etcd.put(good, BROKEN)
    with registry.untouched():
        ran = registry.put_back(good, f"snapshot:{path}", "--accept", "unknown-uid")
    registry.refused(ran, OTHER_UID.decode(), hint="explain")
    with registry.untouched():
        ran = registry.put_back(registry.key("shop/never"), f"snapshot:{path}")
    registry.refused(ran, f"snapshot:{path} holds no copy", hint="explain")


def test_a_backup_of_another_machine_is_a_copy_like_any_other(registry: Registry) -> None:
    """Nothing of the first machine is there but the file; it comes back where it reads."""
    key = registry.put("shop/found", aescbc(secret("found"), KEY_2, "key2"))
    ran = registry.delete(key, "--accept", "no-api-server", "--declare-key-lost", "aescbc/v1/key2")
    assert ran.code == 0, ran.err
    taken = registry.folder / "from-another-machine.json"
    registry.kept()[0].path.rename(taken)
    registry.backups = own_directory(registry.folder / "fresh")
    registry.log = own_directory(registry.folder / "fresh-log") / "audit.jsonl"
    with registry.untouched():
        ran = registry.put_back(key, f"backup:{taken}")
        registry.refused(ran, "no key of that name is configured", hint="--encryption-config")
        ran = registry.put_back(registry.key("shop/other"), f"backup:{taken}")
        registry.refused(ran, "is of ", hint="name the key")
    registry.configure(provider("aescbc", key1=KEY_1, key2=KEY_2), IDENTITY)
    with registry.untouched():
        ran = registry.put_back(key, f"backup:{taken}", configured=False)
        registry.refused(ran, "no encryption configuration was given", hint="--encryption-config FILE")
    ran = registry.put_back(key, f"backup:{taken}")
    assert ran.code == 0, ran.err
    assert registry.stored(key) == aescbc(secret("found"), KEY_2, "key2")
    assert not holds(taken.read_bytes())


def test_lease_of_a_copy(registry: Registry) -> None:
    key = registry.key("shop/leased")
    lease = registry.grant(key, aescbc(secret("leased")))
    source = f"revision:{registry.mod_revision(key)}"
    registry.etcd.put(key, BROKEN)
    assert registry.put_back(key, source).code == 0
    assert registry.lease(key) == int(lease, 16)
    registry.etcd.etcdctl("lease", "revoke", lease)
    with registry.untouched():
        ran = registry.put_back(key, source)
    registry.refused(ran, "which has expired", hint="--accept expired-lease")
    ran = registry.put_back(key, source, "--accept", "expired-lease")
    assert ran.code == 0, ran.err
    assert registry.lease(key) == 0


def _server_writes(registry: Registry) -> None:
    registry.put("shop/good-0", WHOLE)


@pytest.fixture
def key(registry: Registry) -> bytes:
    key = registry.put("shop/old", OLD)
    _server_writes(registry)
    return key


@pytest.fixture
def candidate(registry: Registry) -> str:
    return f"candidate:{candidate_config(registry.folder)}"


@pytest.fixture
def plugin(tmp_path: Path) -> Iterator[KMSPlugin]:
    with KMSPlugin("v2", f"@etcdfix-test-{os.getpid()}-{tmp_path.name}", KEK) as running:
        yield running


def _kms(plugin: KMSPlugin) -> dict[str, Any]:
    return {"kms": {"apiVersion": "v2", "name": "prov", "endpoint": plugin.endpoint, "timeout": "5s"}}


def test_rewritten_under_the_key_of_today(registry: Registry, key: bytes, candidate: str) -> None:
    before = registry.etcd.revision()
    ran = registry.put_back(key, candidate)
    assert ran.code == 0, ran.err
    written = registry.stored(key)
    assert written is not None
    assert written.startswith(b"k8s:enc:aescbc:v1:key1:")
    assert registry.etcd.revision() == before + 1
    # Today's configuration reads it now, and says what the old one said.
    assert registry.run("scan", key.decode(), *registry.common(places=False, reason=None)).code == 0
    for words in (
        "decrypt-failure, key-name-missing",
        "opened with aescbc/v1/key2 of ",
        "Written with  aescbc/v1/key1",
        "/secrets/shop/good-0 is stored under it",
    ):
        assert words in ran.err, words
    backup = registry.kept()[0]
    assert (backup.content.purpose, backup.content.stored.value) == ("fix", OLD)
    assert not holds(backup.path.read_bytes())
    assert not holds(registry.log.read_bytes())
    assert not holds((ran.out + ran.err).encode())
    assert [(event.verb, event.way) for event in registry.records()] == [("fix", "seal")] * 2
    assert verify(registry.log).state is ChainState.WHOLE


@pytest.mark.parametrize(
    ("name", "value", "words", "hint"),
    [
        ("shop/inside", aescbc(secret("inside")[:-9]), "today's configuration opens", "see every copy and every way"),
        ("shop/broken", BROKEN, "too short", "--encryption-config"),
        ("shop/other", OLD, "another object than the one that its etcd key names", "name another copy"),
    ],
)  # fmt: skip
def test_what_the_candidate_does_not_open(
    registry: Registry, candidate: str, name: str, value: bytes, words: str, hint: str
) -> None:
    key = registry.put(name, value)
    with registry.untouched():
        ran = registry.put_back(key, candidate)
    registry.refused(ran, words, hint=hint)
    assert "kubectl" not in ran.err


@pytest.mark.parametrize("lacking", [True, False])
def test_ciphertext_is_never_turned_into_plaintext(
    registry: Registry, key: bytes, candidate: str, lacking: bool
) -> None:
    registry.put("shop/plain", secret("plain"))
    if lacking:
        registry.configure(provider("aescbc", key1=KEY_1), resources=("configmaps",))
    else:
        registry.configure(IDENTITY, provider("aescbc", key1=KEY_1))
    with registry.untouched():
        ran = registry.put_back(key, candidate, "--accept", "undeployed-write-key")
    registry.refused(ran, "would leave its contents unencrypted", hint="that the API servers use today")
    assert not registry.log.exists()


def test_undone_although_the_answer_never_came(registry: Registry, key: bytes, candidate: str) -> None:
    with LossyProxy(registry.etcd.endpoint) as lossy:
        registry.endpoints = lossy.endpoint
        lossy.lost = {TXN}
        assert registry.put_back(key, candidate).code == 0
    registry.endpoints = registry.etcd.endpoint
    assert registry.records()[-1].header_revision == registry.mod_revision(key)
    assert registry.undo(registry.kept()[0].path).code == 0


def test_no_space(registry: Registry, key: bytes, candidate: str) -> None:
    def alarm(path: str, answer: bytes) -> bytes:
        if path == STATUS.path:
            status = message("StatusResponse").FromString(answer)
            status.version = "3.6.0"  # the first that lets a deletion pass; 3.4.22 and 3.5.7 do too
            return bytes(status.SerializeToString())
        if path != ALARM.path:
            return answer
        found = message("AlarmResponse").FromString(answer)
        for kind in (9, 1):  # one of a later release, and NOSPACE
            found.alarms.append(message("AlarmMember")(memberID=5, alarm=kind))
        return bytes(found.SerializeToString())

    backup = registry.deleted("shop/broken", "--accept", "ends-cached-reads")
    with LossyProxy(registry.etcd.endpoint) as lossy:
        lossy.rewrite = alarm
        registry.endpoints = lossy.endpoint
        records = len(registry.records())
        for ran in (
            registry.put_back(key, candidate),
            registry.put_back(key, candidate, "--dry-run"),
            registry.undo(backup.path),
        ):
            registry.refused(ran, "has raised etcd's NOSPACE alarm", hint="etcdctl alarm disarm")
        assert len(registry.records()) == records
        # A deletion is what makes room.
        broken = registry.put("shop/broken", BROKEN)
        ran = registry.delete(broken, "--accept", "ends-cached-reads")
        assert ran.code == 0, ran.err
        assert "NOSPACE" in ran.err


def test_candidate_with_a_kms_provider(registry: Registry, plugin: KMSPlugin) -> None:
    """Its endpoint is named by a flag that both configurations hear of, and only one of them has such a provider."""
    key = registry.key("shop/behind")
    registry.etcd.put(key, plugin.stored_v2(secret("behind"), key))
    _server_writes(registry)
    ran = registry.put_back(key, f"candidate:{candidate_config(registry.folder, _kms(plugin))}", "--dry-run")
    assert ran.code == 0, ran.err
    assert "opened with kms/v2/prov" in ran.err
    moved = {"kms": {"apiVersion": "v2", "name": "prov", "endpoint": "unix:///nowhere", "timeout": "5s"}}
    source = f"candidate:{candidate_config(registry.folder, moved)}"
    ran = registry.put_back(key, source, "--kms-endpoint", f"prov={plugin.endpoint}")
    assert ran.code == 0, ran.err
    ran = registry.put_back(key, source, "--kms-endpoint", f"nobody={plugin.endpoint}")
    assert (ran.code, "'nobody', which --encryption-config does not have" in ran.err) == (4, True), ran


def test_a_server_that_reads_it(registry: Registry, key: bytes, candidate: str, api: KubernetesAPI) -> None:
    """Before, it speaks against today's configuration; of what we wrote ourselves it may be read, to be undone."""
    asked = ("--kubeconfig", str(api.kubeconfig(registry.folder)))
    api.reads = True
    with registry.untouched():
        ran = registry.put_back(key, candidate, *asked)
    registry.refused(
        ran, f"the API server at {api.url} reads secrets shop/old", hint="compare with that server's"
    )
    api.reads = False
    assert registry.put_back(key, candidate, *asked).code == 0
    api.reads = True
    ran = registry.undo(registry.kept()[0].path, *asked)
    assert ran.code == 0, ran.err
    assert f"API server  {api.url} reads it" in ran.err
    assert registry.stored(key) == OLD


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("revision:x", "needs a number from 1"), ("nowhere", "names no place"),
        ("snapshot:", "is not complete"), ("bit:1", "is not complete"),
        ("snapshot:/nowhere.db", "/nowhere.db"), ("object:/nowhere.json", "/nowhere.json"),
    ],
)  # fmt: skip
def test_a_place_that_makes_no_sense(registry: Registry, source: str, words: str) -> None:
    ran = registry.put_back(registry.key("shop/broken"), source, "--accept", "no-api-server")
    assert ran.code in {2, 4, 5}, ran
    assert words in ran.err
