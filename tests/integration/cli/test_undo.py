"""``etcdfix undo``: the true undo, the backup whose log is lost, what is refused, and the undo that a change prints.

What a change prints runs as it is printed, whatever options the change had.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from etcdfix.commands.fix import UndoRequest, run_undo
from etcdfix.model.errors import RefusedByRule
from etcdfix.model.rules import Rule
from etcdfix.remediation import present as present_module
from etcdfix.remediation.audit.verify import ChainState, verify
from etcdfix.remediation.backup.file import encode_content, encode_document
from etcdfix.remediation.members import MemberSurvey, survey_members
from etcdfix.sources.etcd.client import EtcdClient
from etcdfix.testing.certificates import CertificateAuthority
from tests.support.audit_logs import own_directory
from tests.support.change_runs import (
    ACKNOWLEDGED,
    BROKEN,
    UID,
    Ran,
    Registry,
    candidate_config,
    follow_up,
)
from tests.support.fixtures import Captured, Patch, StartEtcd
from tests.support.kubernetes_api import KubernetesAPI
from tests.support.objects import IDENTITY, KEY_1, KEY_2, aescbc, aesgcm, namespace_object, provider, secret
from tests.support.remediation_ground import Yes
from tests.support.syslogs import PlayedSyslog

pytestmark = [pytest.mark.etcd, pytest.mark.usefixtures("no_variables")]

_ALONE = ("--accept", "unlisted-source", "--expect-value-sha256")


def _printed(registry: Registry) -> str:
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


def test_backup_whose_log_is_lost_is_undone_by_itself(registry: Registry) -> None:
    digest = _printed(registry)
    backup = registry.kept()[0].path
    _lose(registry.log)
    # Neither the acceptance nor the digest is enough, and no refusal says what the digest would be.
    for given in ([], ["--expect-value-sha256", digest], ["--accept", "unlisted-source"]):
        with registry.untouched():
            ran = registry.undo(backup, *given, "-o", "json", configured=False)
        assert (ran.code, json.loads(ran.out)["refusal"]["rule"]) == (4, Rule.UNLISTED_SOURCE)
        if digest not in given:
            _nothing_said(ran, digest)
    other = "sha256:" + "0" * 64
    with registry.untouched():
        ran = registry.undo(backup, *_ALONE, other, configured=False)
    registry.refused(ran, f"does not have the digest {other}", hint="the one that the change printed")
    _nothing_said(ran, digest)
    with registry.untouched():
        assert registry.undo(backup, *_ALONE, digest, "--dry-run", configured=False).code == 0
    ran = registry.undo(backup, *_ALONE, digest.removeprefix("sha256:"), configured=False)
    assert ran.code == 0, ran.err
    assert registry.stored(registry.key("shop/broken")) == BROKEN
    assert registry.records()[1].accepted == ("--accept unlisted-source", f"--expect-value-sha256 {digest}")
    assert verify(registry.log).state is ChainState.WHOLE


def _damage(log: Path) -> None:
    log.write_bytes(log.read_bytes().replace(b"its key is lost", b"its key is lOst", 1))


@pytest.mark.parametrize("harm", [_damage, lambda log: log.unlink()])
def test_broken_log_says_how_to_go_on_and_hinders_nothing(
    registry: Registry, harm: Callable[[Path], object]
) -> None:
    digest = _printed(registry)
    backup = registry.kept()[0].path
    harm(registry.log)
    left = {path: path.read_bytes() for path in registry.log.parent.iterdir()}
    for given in ([], [*_ALONE, digest]):
        with registry.untouched():
            ran = registry.undo(backup, *given)
        registry.refused(ran, hint="begin a new one with --audit-log; a backup is undone by itself")
        if not given:
            _nothing_said(ran, digest)
    broken, registry.log = registry.log, own_directory(registry.folder / "anew") / "audit.jsonl"
    ran = registry.undo(backup, *_ALONE, digest, configured=False)
    assert ran.code == 0, ran.err
    assert registry.stored(registry.key("shop/broken")) == BROKEN
    assert {path: path.read_bytes() for path in broken.parent.iterdir()} == left


def test_by_itself_only_where_nothing_is(registry: Registry) -> None:
    digest = _printed(registry)
    backup = registry.kept()[0].path
    _lose(registry.log)
    key = registry.put("shop/broken", b"k8s:enc:aescbc:v1:key1:other")
    for given in ([], ["--expect-mod-revision", str(registry.mod_revision(key))]):
        with registry.untouched():
            ran = registry.undo(backup, *_ALONE, digest, *given)
        registry.refused(ran, "can only be put on an empty key", hint="--audit-log")


def test_by_itself_only_in_the_cluster_that_it_names(registry: Registry) -> None:
    digest = _printed(registry)
    (kept,) = registry.kept()
    _lose(registry.log)
    given = (*_ALONE, digest, "--accept", "unknown-cluster")
    nameless = registry.folder / "nameless.json"
    cluster = msgspec.structs.replace(kept.content.cluster, kube_system_uid=None, identity=None)
    content = encode_content(msgspec.structs.replace(kept.content, cluster=cluster))
    nameless.write_bytes(encode_document(content, kept.intent))
    registry.lose_kube_system()
    for uid, path, words, hint in (
        (
            "",
            kept.path,
            "names a cluster, and nothing shows that it is this one",
            "--encryption-config",
        ),
        ("another", kept.path, "comes from the cluster with kube-system uid", "--endpoints"),
        (UID, nameless, "and nothing shows that it is this one", "--audit-log"),
    ):
        if uid:
            registry.put("kube-system", namespace_object("kube-system", uid=uid), "namespaces")
        with registry.untouched():
            ran = registry.undo(path, *given)
        registry.refused(ran, words, hint=hint)


def test_protected_kind_by_itself_needs_the_risk_accepted(registry: Registry) -> None:
    key = registry.put("kube-system/broken", BROKEN)
    assert registry.delete(key, "--accept", "cluster-breaking").code == 0
    (kept,) = registry.kept()
    _lose(registry.log)
    given = (kept.path, *_ALONE, kept.content.value_sha256)
    with registry.untouched():
        ran = registry.undo(*given)
    registry.refused(ran, "may be part of the control plane", hint="--accept cluster-breaking")
    # Under another storage prefix the same key would be no object, and so unprotected.
    registry.etcd.put(f"{registry.prefix}x/namespaces/kube-system".encode(), namespace_object("kube-system"))
    real, registry.prefix = registry.prefix, f"{registry.prefix}x"
    with registry.untouched():
        ran = registry.undo(*given)
    registry.prefix = real
    registry.refused(ran, "does not hold an API object", hint="--etcd-prefix")
    ran = registry.undo(*given, "--accept", "cluster-breaking")
    assert ran.code == 0, ran.err
    assert "--accept cluster-breaking" in registry.records()[0].accepted


def test_authorization_is_asked_for(registry: Registry, api: KubernetesAPI) -> None:
    asked = (registry.deleted().path, "--kubeconfig", str(api.kubeconfig(registry.folder)))
    api.denied = {"delete"}
    with registry.untouched():
        ran = registry.undo(*asked)
    registry.refused(ran, "denies the permission to delete secrets shop/broken", hint="auth can-i")
    api.denied, api.reads = set(), True
    with registry.untouched():
        ran = registry.undo(*asked)
    registry.refused(ran, "or this is not that server's etcd", hint="--etcd-servers")


@pytest.mark.parametrize("named", [True, False])
def test_unknown_cluster(registry: Registry, named: bool) -> None:
    """The backup, or this etcd, does not name its cluster."""
    if named:
        backup = registry.deleted().path
        registry.lose_kube_system()
        words = "there is no namespace kube-system here"
    else:
        registry.lose_kube_system()
        backup = registry.deleted("shop/broken", "--accept", "unknown-cluster").path
        registry.put("kube-system", namespace_object("kube-system"), resource="namespaces")
        words = "does not say which cluster it comes from"
    with registry.untouched():
        ran = registry.undo(backup)
    registry.refused(ran, words, hint="--accept unknown-cluster")
    assert registry.undo(backup, "--accept", "unknown-cluster").code == 0


@pytest.mark.parametrize("expired", [True, False])
def test_lease(registry: Registry, expired: bool) -> None:
    key = registry.key("shop/leased")
    lease = registry.grant(key, BROKEN)
    backup = registry.deleted("shop/leased").path
    shown = lease.lstrip("0")
    if not expired:
        ran = registry.undo(backup)
        assert ran.code == 0, ran.err
        assert f"Lease  {shown} is kept" in ran.err
        assert f"{registry.lease(key):x}" == shown
        return
    registry.etcd.etcdctl("lease", "revoke", lease)
    with registry.untouched():
        ran = registry.undo(backup)
    registry.refused(ran, f"had the lease {shown}, which has expired", hint="--accept expired-lease")
    ran = registry.undo(backup, "--accept", "expired-lease")
    assert ran.code == 0, ran.err
    assert "Lease  is left out, as accepted" in ran.err
    assert registry.lease(key) == 0
    assert registry.records()[-2].accepted == ("--accept expired-lease",)


def _differing(survey: MemberSurvey) -> MemberSurvey:
    stored = survey.reading.stored
    assert stored is not None
    other = msgspec.structs.replace(stored, value=b"other")
    second = msgspec.structs.replace(survey.copies[0], member_id=0xB0B, name="bob", stored=other)
    return msgspec.structs.replace(survey, copies=(*survey.copies, second))


def test_members_are_asked_before_what_we_wrote_goes(registry: Registry, monkeypatch: Patch) -> None:
    _key, command = _put_right(registry)
    assert registry.run(*command, *registry.common(), "--yes").code == 0

    def survey(client: EtcdClient, asked: bytes) -> MemberSurvey:
        return _differing(survey_members(client, asked))

    monkeypatch.setattr(present_module, "survey_members", survey)
    request = UndoRequest(backup=registry.kept()[-1], reason="r", record_paths=registry.places)
    with registry.untouched(), registry.cluster() as cluster, pytest.raises(RefusedByRule) as caught:
        run_undo(cluster, request, Yes(), preview=lambda *_: None)
    assert caught.value.rule == "members-disagree"


def test_what_we_wrote_goes_and_comes(registry: Registry) -> None:
    key, command = _put_right(registry)
    damaged = registry.stored(key)
    assert registry.run(*command, *registry.common(), "--yes").code == 0
    whole, there = registry.stored(key), registry.mod_revision(key)
    backup = registry.kept()[-1].path
    with registry.untouched():
        ran = registry.undo(backup, "--expect-mod-revision", str(there - 1))
    registry.refused(ran, f"stands at mod_revision {there}, not at {there - 1}", hint="examine it again")
    ran = registry.undo(backup, configured=False)
    assert ran.code == 0, ran.err
    assert registry.stored(key) == damaged
    second = registry.kept()[-1]
    assert (second.content.purpose, second.content.stored.value) == ("undo", whole)
    assert registry.undo(second.path, configured=False).code == 0
    assert registry.stored(key) == whole
    assert verify(registry.log).state is ChainState.WHOLE


Prepared = Callable[[Registry], tuple[bytes, list[str]]]
"""Makes something to change; returns its etcd key, and the command that changes it."""


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: Patch) -> Iterator[None]:
    place = tmp_path / "nowhere"
    monkeypatch.setattr("etcdfix.remediation.places.default_directory", lambda: place)
    monkeypatch.setattr("etcdfix.remediation.places.default_audit_log", lambda: place / "audit.jsonl")
    yield
    assert not place.exists()


@pytest.fixture
def syslog(tmp_path: Path) -> Iterator[PlayedSyslog]:
    with PlayedSyslog(tmp_path / "socket") as played:
        yield played


def _delete(registry: Registry) -> tuple[bytes, list[str]]:
    key = registry.key("shop/broken")
    return key, ["delete", key.decode(), ACKNOWLEDGED]


def _earlier(registry: Registry) -> tuple[bytes, list[str]]:
    key = registry.key("shop/good-0")
    then = registry.etcd.revision()
    registry.etcd.put(key, BROKEN)
    return key, ["fix", key.decode(), "--from", f"revision:{then}"]


def _put_right(registry: Registry) -> tuple[bytes, list[str]]:
    registry.configure(provider("aesgcm", key1=KEY_1), IDENTITY)
    for name in ("good-0", "good-1", "damaged"):
        key = registry.key(f"shop/{name}")
        value = aesgcm(secret(name), key.decode())
        registry.etcd.put(key, value)
    registry.etcd.put(key, value[:-20] + bytes([value[-20] ^ 1]) + value[-19:])
    return key, ["fix", key.decode(), "--from", "bit"]


def _sealed(registry: Registry) -> tuple[bytes, list[str]]:
    key = registry.put("shop/old", aescbc(secret("old"), KEY_2, "key2"))
    registry.put("shop/newest", aescbc(secret("newest")))
    return key, ["fix", key.decode(), "--from", f"candidate:{candidate_config(registry.folder)}"]


CHANGES = [_delete, _earlier, _put_right, _sealed]


def stored(registry: Registry, key: bytes) -> bytes:
    return registry.etcd.etcdctl("get", "--print-value-only", os.fsdecode(key))


@pytest.mark.parametrize("prepared", CHANGES)
def test_the_printed_undo_repeats_what_the_change_was_told(
    registry: Registry, syslog: PlayedSyslog, api: KubernetesAPI, prepared: Prepared
) -> None:
    """What the undo replaces is kept where the change kept what it replaced: in each directory."""
    second = own_directory(registry.folder / "second one")
    key, command = prepared(registry)
    before = stored(registry, key)
    told = ["--kubeconfig", str(api.kubeconfig(registry.folder))]
    if prepared is _earlier:
        registry.lose_kube_system()
        told = ["--accept", "unknown-cluster"]
    places = ("--backup-dir", str(second), "--audit-syslog", str(syslog.path))
    ran = registry.run(*command, *registry.common(), *told, *places, "--yes")
    assert ran.code == 0, ran.err
    assert stored(registry, key) != before
    words = shlex.split(follow_up(ran.out, "Undo").removeprefix("etcdfix "))
    # Somebody adds the places that he always adds.
    ran = registry.run(*words, "--audit-log", str(registry.log), "--yes")
    assert ran.code == 0, (words, ran.err)
    assert stored(registry, key) == before
    number = 1 if prepared is _delete else 2
    assert [len(list(folder.glob("*.json"))) for folder in (registry.backups, second)] == [number, number]
    assert words.count("--backup-dir") == (0 if prepared is _delete else 2)
    assert len(registry.records()) == len(syslog.heads())


def test_the_printed_undo_names_the_certificates(
    start_etcd: StartEtcd, authority: CertificateAuthority, prefix: bytes, tmp_path: Path, capfd: Captured
) -> None:
    files = authority.issue("somebody")
    server = start_etcd(authority=authority, client_certificates=True)
    registry = Registry(server, prefix, tmp_path, capfd)
    shown = ("--cacert", str(authority.cert), "--cert", str(files.cert), "--key", str(files.key))
    key, command = _delete(registry)
    ran = registry.run(*command, *registry.common(), *shown, "--yes")
    assert ran.code == 0, ran.err
    assert registry.run(*shlex.split(follow_up(ran.out, "Undo"))[1:], "--yes").code == 0
    assert stored(registry, key).startswith(BROKEN)
