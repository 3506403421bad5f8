"""``etcdfix restore`` against a real etcd: its three forms, every refusal, and what a lease makes of it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from etcdfix.remediation.audit.verify import ChainState, verify
from etcdfix.remediation.backup.file import encode_content, encode_document
from tests.support.audit_logs import own_directory
from tests.support.change_runs import BROKEN, UID, Ran, Registry, holds, typing
from tests.support.kubernetes_api import KubernetesAPI
from tests.support.objects import (
    IDENTITY,
    KEY_1,
    KEY_2,
    aescbc,
    namespace_object,
    provider,
    secret,
)
from tests.support.objects import UID as UID_OF_SECRETS

pytestmark = [pytest.mark.etcd, pytest.mark.usefixtures("no_variables")]


# A backup by itself: its log is lost, broken, or another one.

_ALONE = ("--accept", "unlisted-source", "--expect-value-sha256")


def _printed(registry: Registry) -> str:
    """Delete the broken Secret; return the digest that was printed for whoever writes it down."""
    ran = registry.delete(registry.key("shop/broken"))
    assert ran.code == 0, ran.err
    (digest,) = re.findall("^Its value  (sha256:[0-9a-f]{64})$", ran.out, re.MULTILINE)
    assert digest == f"sha256:{hashlib.sha256(BROKEN).hexdigest()}"
    return str(digest)


def _nothing_said(ran: Ran, digest: str) -> None:
    assert digest.removeprefix("sha256:") not in ran.out + ran.err


def _lose(log: Path) -> None:
    for path in log.parent.iterdir():
        path.unlink()


def _damage(log: Path) -> None:
    log.write_bytes(log.read_bytes().replace(b"its key is lost", b"its key is lOst", 1))


def _behead(log: Path) -> None:
    log.with_name(f"{log.name}.head").unlink()


def _cut(log: Path) -> None:
    log.write_bytes(b"")


def _only_head(log: Path) -> None:
    log.unlink()


@pytest.mark.parametrize("configured", [True, False])
def test_backup_whose_log_is_lost_restores_by_itself(registry: Registry, configured: bool) -> None:
    digest = _printed(registry)
    backup = str(registry.kept()[0].path)
    _lose(registry.log)
    # Neither the acceptance nor the digest is enough, and no refusal says what the digest would be.
    for given in ([], ["--expect-value-sha256", digest], ["--accept", "unlisted-source"]):
        with registry.untouched():
            ran = registry.restore(backup, *given, configured=configured)
        assert ran.code == 4
        if digest not in given:
            _nothing_said(ran, digest)
    with registry.untouched():
        other = "sha256:" + "0" * 64
        ran = registry.restore(backup, *_ALONE, other, configured=configured)
    registry.refused(ran, f"does not have the digest {other}", hint="the one that the deletion printed")
    _nothing_said(ran, digest)
    with registry.untouched():
        ran = registry.restore(backup, *_ALONE, digest, "--dry-run", configured=configured)
    assert ran.code == 0, ran.err
    ran = registry.restore(backup, *_ALONE, digest.removeprefix("sha256:"), configured=configured)
    assert ran.code == 0, ran.err
    assert "by itself: its own digests fit, and the one that was given" in ran.err
    assert registry.stored(registry.key("shop/broken")) == BROKEN
    intent = registry.events()[1].annotations
    assert json.loads(intent.accepted) == ["--accept unlisted-source", f"--expect-value-sha256 {digest}"]
    assert f"by itself, for its audit log {registry.log} does not list it, {digest}" in intent.detail
    assert verify(registry.log).state is ChainState.WHOLE


@pytest.mark.parametrize(
    ("harm", "why"),
    [
        (_damage, "is not the one that record 2 was chained to"),
        (_behead, "its head file is missing"),
        (_cut, "cut off the end: the head file names record 2"),
        (_only_head, "the log is gone, and its head file is still there"),
    ],
)
def test_broken_log_says_how_to_go_on_and_hinders_nothing(
    registry: Registry, harm: Callable[[Path], None], why: str
) -> None:
    digest = _printed(registry)
    backup = str(registry.kept()[0].path)
    harm(registry.log)
    left = {path: path.read_bytes() for path in registry.log.parent.iterdir()}
    for given in ([], [*_ALONE, digest]):
        with registry.untouched():
            ran = registry.restore(backup, *given)
        registry.refused(ran, why, hint="begin a new one with --audit-log; a backup restores by itself")
        if not given:
            _nothing_said(ran, digest)
    broken, registry.log = registry.log, own_directory(registry.folder / "anew") / "audit.jsonl"
    ran = registry.restore(backup, *_ALONE, digest, configured=False)
    assert ran.code == 0, ran.err
    assert registry.stored(registry.key("shop/broken")) == BROKEN
    assert {path: path.read_bytes() for path in broken.parent.iterdir()} == left
    detail = registry.events()[0].annotations.detail
    assert f"by itself, for its audit log {broken} has a broken chain: " in detail
    assert why in detail


def test_another_log_than_the_one_that_lists_it(registry: Registry) -> None:
    digest = _printed(registry)
    backup = str(registry.kept()[0].path)
    first, registry.log = registry.log, own_directory(registry.folder / "anew") / "audit.jsonl"
    ran = registry.restore(backup, *_ALONE, digest)
    assert ran.code == 0, ran.err
    assert (
        f"its audit log {first} lists it, but another one was named"
        in registry.events()[0].annotations.detail
    )


def test_listed_backup_is_held_against_the_digest_too(registry: Registry) -> None:
    digest = _printed(registry)
    backup = str(registry.kept()[0].path)
    with registry.untouched():
        ran = registry.restore(backup, "--expect-value-sha256", "ab" * 32)
    registry.refused(ran, "does not have the digest", hint="another value")
    _nothing_said(ran, digest)
    ran = registry.restore(backup, "--expect-value-sha256", digest)
    assert ran.code == 0, ran.err
    assert "a true undo" in ran.err


def test_by_itself_only_where_nothing_is(registry: Registry) -> None:
    digest = _printed(registry)
    backup = str(registry.kept()[0].path)
    _lose(registry.log)
    key = registry.put("shop/broken", b"k8s:enc:aescbc:v1:key1:other")
    there = str(registry.mod_revision(key))
    for given in ([], ["--replace-mod-revision", there]):
        with registry.untouched():
            ran = registry.restore(backup, *_ALONE, digest, *given)
        registry.refused(ran, "is put only where nothing is", hint="--audit-log")


def test_by_itself_only_in_the_cluster_that_it_names(registry: Registry) -> None:
    digest = _printed(registry)
    (kept,) = registry.kept()
    _lose(registry.log)
    registry.lose_kube_system()
    with registry.untouched():
        ran = registry.restore(str(kept.path), *_ALONE, digest, "--accept", "unknown-cluster")
    registry.refused(
        ran, "only in the cluster that it names; that cannot be read here", hint="--encryption-config"
    )
    registry.put("kube-system", namespace_object("kube-system", uid="another"), "namespaces")
    with registry.untouched():
        ran = registry.restore(str(kept.path), *_ALONE, digest, "--accept", "unknown-cluster")
    registry.refused(ran, "comes from the cluster with kube-system uid", hint="--endpoints")
    registry.put("kube-system", namespace_object("kube-system"), "namespaces")
    nameless = registry.folder / "nameless.json"
    cluster = msgspec.structs.replace(kept.content.cluster, kube_system_uid=None, identity=None)
    content = encode_content(msgspec.structs.replace(kept.content, cluster=cluster))
    nameless.write_bytes(encode_document(content, kept.intent))
    with registry.untouched():
        ran = registry.restore(str(nameless), *_ALONE, digest, "--accept", "unknown-cluster")
    registry.refused(ran, "it names none", hint="--audit-log")


def test_protected_kind_by_itself_needs_the_risk_accepted(registry: Registry) -> None:
    key = registry.put("kube-system/broken", BROKEN)
    assert registry.delete(key, "--accept", "cluster-breaking").code == 0
    (kept,) = registry.kept()
    _lose(registry.log)
    given = (str(kept.path), *_ALONE, kept.content.value_sha256)
    with registry.untouched():
        ran = registry.restore(*given)
    registry.refused(ran, "may be part of the control plane", hint="--accept cluster-breaking")
    # Under another storage prefix the same key would be no object, and so unprotected.
    registry.etcd.put(f"{registry.prefix}x/namespaces/kube-system".encode(), namespace_object("kube-system"))
    real, registry.prefix = registry.prefix, f"{registry.prefix}x"
    with registry.untouched():
        ran = registry.restore(*given)
    registry.prefix = real
    registry.refused(ran, "holds no object of the API", hint="--etcd-prefix")
    ran = registry.restore(*given, "--accept", "cluster-breaking")
    assert ran.code == 0, ran.err
    assert "--accept cluster-breaking" in registry.events()[0].annotations.accepted


def test_digest_opens_no_other_source(registry: Registry) -> None:
    """Only a backup file restores unread; a value of a snapshot or a revision must be readable, digest or not."""
    key = registry.key("shop/broken")
    then = registry.mod_revision(key)
    digest = _printed(registry)
    with registry.untouched():
        ran = registry.restore("--from-revision", str(then), key.decode(), *_ALONE, digest)
    registry.refused(ran, "is decrypt-failure", hint="only a readable value may be put back")
    assert "--expect-value-sha256" not in ran.err


# The undo.


def test_undo_needs_no_configuration(registry: Registry) -> None:
    key, backup = registry.key("shop/broken"), registry.deleted()
    before = registry.etcd.revision()
    ran = registry.restore(str(backup.path), configured=False)
    assert ran.code == 0, ran.err
    assert registry.stored(key) == BROKEN
    assert registry.etcd.revision() == before + 1
    for words in (
        f"From  backup {backup.path}",
        "a true undo: this audit log lists these bytes at this key",
        f"Value  28 bytes, was at mod_revision {backup.content.mod_revision}",
        "Examined  undetermined",
        "There now  nothing",
        f"kube-system uid {UID}, at {registry.endpoints}",
        "the etcd credentials are the only gate",
        "do not come back with their owner",
    ):
        assert words in ran.err, words
    assert f"RESTORED {key.decode()} at revision {before + 1}." in ran.out
    assert "Undo" not in ran.out
    intent, outcome = registry.events()[2:]
    assert (intent.verb, outcome.annotations.outcome) == ("restore", "restored")
    assert intent.annotations.backups == ""
    assert verify(registry.log).state is ChainState.WHOLE


def test_not_confirmed(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    backup = registry.deleted()
    with registry.untouched():
        ran = registry.restore(str(backup.path), yes=False)
    registry.refused(ran, "was not typed back; nothing was changed", hint="--yes")
    with typing(monkeypatch, registry.key("shop/broken").decode()):
        assert registry.restore(str(backup.path), yes=False).code == 0


def test_key_that_was_created_again(registry: Registry) -> None:
    backup = registry.deleted()
    key = registry.put("shop/broken", aescbc(secret("broken")))
    there = registry.mod_revision(key)
    with registry.untouched():
        ran = registry.restore(str(backup.path))
    registry.refused(
        ran, f"{key.decode()} exists: created at revision {there}", hint=f"--replace-mod-revision {there}"
    )
    # It is readable: that is never replaced.
    with registry.untouched():
        ran = registry.restore(str(backup.path), "--replace-mod-revision", str(there))
    registry.refused(
        ran, "the object is readable", hint="nothing has to be put back; what differs can be changed"
    )


def test_replacing_what_is_broken_keeps_it_first(registry: Registry) -> None:
    backup = registry.deleted()
    other = b"k8s:enc:aescbc:v1:key1:other"
    key = registry.put("shop/broken", other)
    there = registry.mod_revision(key)
    with registry.untouched():
        ran = registry.restore(str(backup.path), "--replace-mod-revision", str(there + 1))
    registry.refused(ran, f"stands at mod_revision {there}, not at {there + 1}", hint="examine it again")
    with registry.untouched():
        ran = registry.restore(str(backup.path), "--replace-mod-revision", str(there), configured=False)
    registry.refused(ran, "no encryption configuration was given", hint="--encryption-config FILE")
    with registry.untouched():
        ran = registry.restore(str(backup.path), "--replace-mod-revision", str(there))
    registry.refused(ran, "nothing that etcd keeps, and no backup, shows", hint="--accept unknown-uid")
    ran = registry.restore(str(backup.path), "--replace-mod-revision", str(there), "--accept", "unknown-uid")
    assert ran.code == 0, ran.err
    assert f"There now  28 bytes at mod_revision {there}, decrypt-failure, value-truncated" in ran.err
    assert registry.stored(key) == BROKEN
    second = registry.kept()[-1]
    assert (second.content.purpose, second.content.stored.value) == ("restore", other)
    # And that can be fixed in its turn.
    again = registry.restore(str(second.path), "--replace-mod-revision", str(registry.mod_revision(key)))
    assert again.code == 0, again.err
    assert registry.stored(key) == other


def test_nothing_there_to_replace(registry: Registry) -> None:
    backup = registry.deleted()
    with registry.untouched():
        ran = registry.restore(str(backup.path), "--replace-mod-revision", "5")
    registry.refused(ran, "there is nothing to replace", hint="leave --replace-mod-revision out")


def test_authorization_is_asked_and_shown(registry: Registry, api: KubernetesAPI) -> None:
    backup = registry.deleted()
    kubeconfig = str(api.kubeconfig(registry.folder))
    api.denied = {"delete"}
    with registry.untouched():
        ran = registry.restore(str(backup.path), "--kubeconfig", kubeconfig)
    registry.refused(ran, "denies the permission to delete secrets shop/broken", hint="auth can-i")
    api.denied = set()
    api.reads = True
    with registry.untouched():
        ran = registry.restore(str(backup.path), "--kubeconfig", kubeconfig)
    registry.refused(ran, "or this is not that server's etcd", hint="--etcd-servers")
    api.reads = False
    ran = registry.restore(str(backup.path), "--kubeconfig", kubeconfig)
    assert ran.code == 0, ran.err
    assert f"Allowed by  {api.url}, for alice@example.org" in ran.err
    assert registry.events()[-2].annotations.authorization == "allowed"


# Another machine, another cluster.


def test_backup_of_another_log_is_a_source_like_any_other(registry: Registry) -> None:
    """Nothing of the first machine is there but the file."""
    key = registry.put("shop/found", aescbc(secret("found"), KEY_2, "key2"))
    ran = registry.delete(key, "--accept", "no-api-server", "--declare-key-lost", "aescbc/v1/key2")
    assert ran.code == 0, ran.err
    taken = registry.folder / "from-another-machine.json"
    registry.kept()[0].path.rename(taken)
    registry.backups = own_directory(registry.folder / "fresh")
    registry.log = own_directory(registry.folder / "fresh-log") / "audit.jsonl"
    with registry.untouched():
        ran = registry.restore(str(taken))
    registry.refused(
        ran, f"is no backup that this audit log ({registry.log}) knows", hint="or --accept unlisted-source"
    )
    with registry.untouched():
        ran = registry.restore(str(taken), "--accept", "unlisted-source")
    registry.refused(ran, "is decrypt-failure: ", hint="give the --encryption-config that reads it")
    with registry.untouched():
        ran = registry.restore(str(taken), "--accept", "unlisted-source", configured=False)
    registry.refused(ran, "is undetermined: ", hint="give the --encryption-config that reads it")
    registry.configure(provider("aescbc", key1=KEY_1, key2=KEY_2), IDENTITY)
    ran = registry.restore(str(taken), "--accept", "unlisted-source")
    assert ran.code == 0, ran.err
    assert "NOT a backup that this audit log knows, as accepted" in ran.err
    assert "Object  v1 Secret shop/found" in ran.err
    assert registry.stored(key) == aescbc(secret("found"), KEY_2, "key2")
    assert registry.events()[0].annotations.accepted == '["--accept unlisted-source"]'
    assert not holds(taken.read_bytes())


def test_backup_of_another_cluster(registry: Registry) -> None:
    backup = registry.deleted()
    other = "11111111-0000-0000-0000-000000000000"
    registry.put("kube-system", namespace_object("kube-system", other), resource="namespaces")
    with registry.untouched():
        ran = registry.restore(str(backup.path), "--accept", "unlisted-source")
    registry.refused(
        ran, f"comes from the cluster with kube-system uid {UID}", f"holds the cluster with kube-system uid {other}",
        hint="name the etcd of that cluster with --endpoints",
    )  # fmt: skip


def test_unknown_cluster(registry: Registry) -> None:
    backup = registry.deleted()
    registry.lose_kube_system()
    with registry.untouched():
        ran = registry.restore(str(backup.path))
    registry.refused(ran, "there is no namespace kube-system here", hint="--accept unknown-cluster")
    ran = registry.restore(str(backup.path), "--accept", "unknown-cluster")
    assert ran.code == 0, ran.err
    assert "kube-system uid unknown (accepted)" in ran.err


def test_backup_that_does_not_name_its_cluster(registry: Registry) -> None:
    registry.lose_kube_system()
    assert registry.delete(registry.key("shop/broken"), "--accept", "unknown-cluster").code == 0
    backup = registry.kept()[0]
    registry.put("kube-system", namespace_object("kube-system"), resource="namespaces")
    with registry.untouched():
        ran = registry.restore(str(backup.path))
    registry.refused(ran, "does not say which cluster it comes from", hint="--accept unknown-cluster")
    assert registry.restore(str(backup.path), "--accept", "unknown-cluster").code == 0


# A lease.


def test_lease_is_kept(registry: Registry) -> None:
    key = registry.key("shop/leased")
    lease = registry.grant(key, BROKEN).lstrip("0")
    backup = registry.deleted("shop/leased")
    ran = registry.restore(str(backup.path))
    assert ran.code == 0, ran.err
    assert f"Lease  {lease} is attached again" in ran.err
    assert f"{registry.lease(key):x}" == lease


def test_lease_that_expired(registry: Registry) -> None:
    key = registry.key("shop/leased")
    lease = registry.grant(key, BROKEN)
    backup = registry.deleted("shop/leased")
    registry.etcd.etcdctl("lease", "revoke", lease)
    with registry.untouched():
        ran = registry.restore(str(backup.path))
    registry.refused(
        ran, f"had the lease {lease.lstrip('0')}, which has expired", hint="--accept expired-lease"
    )
    ran = registry.restore(str(backup.path), "--accept", "expired-lease")
    assert ran.code == 0, ran.err
    assert "Lease  is left out, as accepted" in ran.err
    assert registry.lease(key) == 0
    assert registry.events()[-2].annotations.accepted == '["--accept expired-lease"]'


# A snapshot, an earlier revision.


@pytest.fixture
def saved(registry: Registry) -> Path:
    """A snapshot that holds good-0, which is gone now."""
    path = registry.folder / "saved.db"
    registry.etcd.etcdctl("snapshot", "save", path)
    registry.etcd.delete(registry.key("shop/good-0"))
    return path


def test_from_snapshot(registry: Registry, saved: Path) -> None:
    key = registry.key("shop/good-0").decode()
    given = ("--from-snapshot", str(saved), key)
    with registry.untouched():
        ran = registry.restore(*given)
    registry.refused(ran, f"the snapshot {saved} is no backup", hint="--accept unlisted-source")
    ran = registry.restore(*given, "--accept", "unlisted-source")
    assert ran.code == 0, ran.err
    assert f"From  snapshot {saved}" in ran.err
    assert "Object  v1 Secret shop/good-0" in ran.err
    assert registry.stored(key.encode()) == aescbc(secret("good-0"))


def test_from_snapshot_as_it_was_then(registry: Registry) -> None:
    """A snapshot keeps earlier revisions as etcd does; the file is damaged there, and was whole before."""
    key = registry.key("shop/good-0")
    then = registry.mod_revision(key)
    registry.etcd.put(key, BROKEN)
    path = registry.folder / "damaged.db"
    registry.etcd.etcdctl("snapshot", "save", path)
    registry.etcd.put(registry.key("shop/good-1"), aescbc(secret("good-1")))
    given = (
        "--from-snapshot", str(path), key.decode(), "--accept", "unlisted-source",
        "--replace-mod-revision", str(registry.mod_revision(key)),
    )  # fmt: skip
    with registry.untouched():
        ran = registry.restore(*given)
    registry.refused(
        ran, f"the value from the snapshot {path} is decrypt-failure", hint="only a readable value"
    )
    ran = registry.restore(*given, "--from-revision", str(then))
    assert ran.code == 0, ran.err
    assert f"From  snapshot {path} at revision {then}" in ran.err
    assert registry.stored(key) == aescbc(secret("good-0"))


def test_from_snapshot_of_another_object(registry: Registry, saved: Path) -> None:
    """Of the same name, and made since: what was deleted before does not come back over it."""
    key = registry.key("shop/good-0")
    registry.etcd.delete(key)
    registry.etcd.put(key, of_another("good-0"))
    registry.etcd.put(key, BROKEN)
    with registry.untouched():
        ran = registry.restore(
            "--from-snapshot", str(saved), key.decode(), "--accept", "unlisted-source", "--accept", "unknown-uid",
            "--replace-mod-revision", str(registry.mod_revision(key)),
        )  # fmt: skip
    registry.refused(ran, f"has uid {OTHER_UID.decode()}", hint="anew through the API")


def test_from_snapshot_that_does_not_hold_it(registry: Registry, saved: Path) -> None:
    with registry.untouched():
        ran = registry.restore("--from-snapshot", str(saved), registry.key("shop/never").decode())
    registry.refused(ran, f"does not exist in the snapshot {saved}", hint="look into an older one")


def test_from_revision(registry: Registry) -> None:
    """etcd itself is the list of its revisions, whether the key is there or gone."""
    key = registry.key("shop/good-0")
    then = registry.etcd.revision()
    registry.etcd.delete(key)
    ran = registry.restore("--from-revision", str(then), key.decode())
    assert ran.code == 0, ran.err
    assert f"From  revision {then}" in ran.err
    assert "an earlier value of the same object, as this etcd keeps it" in ran.err
    assert registry.stored(key) == aescbc(secret("good-0"))
    assert not registry.events()[0].annotations.accepted


def test_from_revision_over_what_was_damaged_since(registry: Registry) -> None:
    key = registry.key("shop/good-0")
    then = registry.etcd.revision()
    registry.etcd.put(key, BROKEN)
    ran = registry.restore(
        "--from-revision", str(then), key.decode(), "--replace-mod-revision", str(registry.mod_revision(key))
    )
    assert ran.code == 0, ran.err
    assert registry.stored(key) == aescbc(secret("good-0"))
    assert registry.kept()[0].content.stored.value == BROKEN


OTHER_UID = b"99999999-2222-3333-4444-555555555555"


def of_another(name: str) -> bytes:
    """Return a Secret of the same name with another uid, encrypted."""
    return aescbc(secret(name).replace(UID_OF_SECRETS, OTHER_UID))


def test_from_revision_over_our_own_undo(registry: Registry) -> None:
    """Deleted and put back, the key has a new create_revision and the same bytes: it is the same object."""
    key = registry.key("shop/broken")
    then = registry.etcd.put(key, aescbc(secret("broken")))
    registry.etcd.put(key, aescbc(secret("broken"))[:-5])
    backup = registry.deleted()
    assert registry.restore(str(backup.path)).code == 0
    given = ("--from-revision", str(then), key.decode())
    ran = registry.restore(*given, "--replace-mod-revision", str(registry.mod_revision(key)))
    assert ran.code == 0, ran.err
    assert registry.stored(key) == aescbc(secret("broken"))


def test_from_revision_of_the_object_before_the_last(registry: Registry) -> None:
    """Whatever is accepted, an old object never comes back over a newer one of the same name."""
    key = registry.key("shop/good-0")
    then = registry.etcd.revision()
    registry.etcd.delete(key)
    newer = registry.etcd.put(key, of_another("good-0"))
    given = ("--from-revision", str(then), key.decode(), "--accept", "unlisted-source")
    registry.etcd.put(key, BROKEN)
    with registry.untouched():
        ran = registry.restore(*given, "--replace-mod-revision", str(registry.mod_revision(key)))
    registry.refused(ran, "is of an earlier object", OTHER_UID.decode(), hint=f"mod_revision {newer} reads")
    registry.etcd.delete(key)
    with registry.untouched():
        ran = registry.restore(*given)
    registry.refused(ran, "is of an earlier object", hint="through the API")
    ran = registry.restore("--from-revision", str(newer), key.decode())
    assert ran.code == 0, ran.err


def test_from_revision_where_the_present_object_is_not_known(registry: Registry) -> None:
    """Made again by somebody, with a value that nobody reads: it may be of another object."""
    key = registry.key("shop/good-0")
    then = registry.etcd.revision()
    registry.etcd.delete(key)
    registry.etcd.put(key, BROKEN)
    given = (
        "--from-revision",
        str(then),
        key.decode(),
        "--replace-mod-revision",
        str(registry.mod_revision(key)),
    )
    with registry.untouched():
        ran = registry.restore(*given)
    registry.refused(ran, "nothing that etcd keeps, and no backup, shows", hint="--accept unknown-uid")
    ran = registry.restore(*given, "--accept", "unknown-uid")
    assert ran.code == 0, ran.err
    assert "perhaps of ANOTHER OBJECT" in ran.err
    assert registry.events()[0].annotations.accepted == '["--accept unknown-uid"]'


def test_from_revision_of_the_present_value(registry: Registry) -> None:
    key = registry.key("shop/broken")
    now = str(registry.mod_revision(key))
    with registry.untouched():
        ran = registry.restore("--from-revision", now, key.decode(), "--replace-mod-revision", now)
    registry.refused(ran, "is decrypt-failure", hint="that is the present value: name an earlier revision")
    good = registry.key("shop/good-0")
    with registry.untouched():
        ran = registry.restore("--from-revision", str(registry.etcd.revision()), good.decode())
    registry.refused(ran, "exists", hint="--replace-mod-revision")


def test_from_revision_that_was_compacted(registry: Registry) -> None:
    key = registry.key("shop/good-0")
    then = registry.etcd.revision()
    registry.etcd.put(key, BROKEN)
    registry.etcd.etcdctl("compact", str(registry.etcd.revision()))
    ran = registry.restore("--from-revision", str(then), key.decode(), "-o", "json")
    assert ran.code == 5
    assert f"revision {then} was compacted" in ran.err
    assert "--from-snapshot FILE" in ran.err
    assert "--revision out" not in ran.err


def test_from_revision_with_a_protected_kind(registry: Registry) -> None:
    key = registry.put("shop", namespace_object("shop", "u-4"), "namespaces")
    then = registry.mod_revision(key)
    registry.etcd.put(key, namespace_object("shop", "u-4")[:-3])
    given = (
        "--from-revision",
        str(then),
        key.decode(),
        "--replace-mod-revision",
        str(registry.mod_revision(key)),
    )
    with registry.untouched():
        ran = registry.restore(*given)
    registry.refused(ran, "putting another value over this key may break", hint="--accept cluster-breaking")
    assert "deleting" not in ran.err
    ran = registry.restore(*given, "--accept", "cluster-breaking")
    assert ran.code == 0, ran.err
    assert "CLUSTER-BREAKING, as accepted" in ran.err
    assert registry.stored(key) == namespace_object("shop", "u-4")
