"""``etcdfix delete`` against a real etcd: deletions, and every refusal with its words and its next step."""

from __future__ import annotations

import base64
import errno
import fcntl
import hashlib
import os
import re
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from etcdfix.apiserver import recovery
from etcdfix.apiserver.servers import ask_servers
from etcdfix.encryption.kms.plugins import KMSPlugins
from etcdfix.errors import AuthorizationRefused, EndedEarly
from etcdfix.model import key_id_digest
from etcdfix.remediation import durable
from etcdfix.remediation import places as places_module
from etcdfix.remediation.audit import log as audit_module
from etcdfix.remediation.audit import verify as audit_verify
from etcdfix.remediation.audit.record import RecordType
from etcdfix.remediation.audit.verify import ChainState, verify
from etcdfix.remediation.durable import Filesystem
from etcdfix.remediation.preflight import api_servers as preflight_module
from etcdfix.testing.certificates import CertificateAuthority
from tests.support.audit_logs import entry, own_directory, subject
from tests.support.change_runs import (
    ACKNOWLEDGED,
    BROKEN,
    PLAINTEXT,
    UID,
    Registry,
    follow_up,
    holds,
    typing,
)
from tests.support.etcd_proxy import NO_LEADER, EtcdProxy
from tests.support.kms_plugin import KMSPlugin, Refusal
from tests.support.kubernetes_api import (
    ACCESS_REVIEW,
    KUBE_SYSTEM,
    TOKEN,
    Answer,
    KubernetesAPI,
    read_error,
    status_answer,
)
from tests.support.lossy_etcd import TXN, LossyProxy
from tests.support.objects import (
    IDENTITY,
    KEY_1,
    KEY_2,
    aescbc,
    aesgcm,
    allocation,
    config_map,
    crd,
    json_object,
    namespace_object,
    provider,
    secret,
    widget,
)

pytestmark = [pytest.mark.etcd, pytest.mark.usefixtures("no_variables")]

API_OF = "delete it through the API: kubectl delete"
FINGERPRINT = "fp:e4223718e0cf4e92"
"""Of KEY_1."""


@pytest.fixture
def api(authority: CertificateAuthority) -> Iterator[KubernetesAPI]:
    with KubernetesAPI(authority, uid=UID) as server:
        yield server


# A deletion.


def test_deletion(registry: Registry) -> None:
    key = registry.key("shop/broken")
    mod_revision, before = registry.mod_revision(key), registry.etcd.revision()
    ran = registry.delete(key)
    assert ran.code == 0
    assert registry.stored(key) is None
    assert registry.etcd.revision() == before + 1
    # What it means stands before, what it came to after, each on its stream.
    for words in (
        f"To delete: {key.decode()}",
        "Object  secrets broken in namespace shop",
        f"Stored  28 bytes, mod_revision {mod_revision}, create_revision {mod_revision}, version 1",
        "Verdict  decrypt-failure, value-truncated (certain)",
        f"kube-system uid {UID}, 4 keys, at {registry.endpoints}",
        f"Under  aescbc/v1/key1 of secrets ({FINGERPRINT}): 2 open, 1 fail, 1 of them proven damaged (this one",
        "Proof  look without tag or padding: not possible; too little to see, or no key that could be tried",
        "nobody was asked: without --kubeconfig the etcd credentials are the only gate",
        "\nLess destructive\n",
        "may break the cluster",
        "your vendor may not support it",
        "Finalizers do not run",
        "Nothing ends gracefully",
        "restart the watch",
    ):
        assert words in ran.err, words
    assert len(ran.err.splitlines()) <= 30
    backup = registry.kept()[0]
    head = registry.log.with_name("audit.jsonl.head").read_text().strip()
    for words in (
        f"DELETED {key.decode()} at revision {before + 1}.",
        f"Backup  {backup.path}",
        f"Audit log  {registry.log}\n",
        f"Head  {head}\n",
        f"Next: Undo\n  etcdfix restore {backup.path} --endpoints {registry.endpoints}",
        f"--audit-log {registry.log} --reason REASON",
        "See what is left\n     etcdfix scan",
        "No other value of secrets is known to fail. LIST works again at once",
        "kubectl delete --raw",
        "Watch on every API server\n",
        "apiserver_storage_decode_errors_total",
    ):
        assert words in ran.out, words
    assert "Settle it" not in ran.out
    intent, outcome = registry.events()
    assert (intent.annotations.type, outcome.annotations.type) == ("intent", "outcome")
    assert outcome.annotations.outcome == "deleted"
    assert intent.annotations.reason == "its key is lost"
    assert intent.annotations.authorization == "none"
    assert verify(registry.log).state is ChainState.WHOLE


def test_the_printed_undo_puts_the_same_bytes_back(registry: Registry) -> None:
    key = registry.key("shop/broken")
    ran = registry.delete(key)
    undo = follow_up(ran.out, "Undo")
    again = registry.run(
        *undo.removeprefix("etcdfix ").split(), "--yes", "--backup-dir", str(registry.backups)
    )
    assert again.code == 0, again.err
    assert "a true undo" in again.err
    assert registry.stored(key) == BROKEN


def test_backup_holds_the_stored_bytes_and_nothing_that_was_decrypted(registry: Registry) -> None:
    # Right key and damaged inside: it decrypts, and what comes out is no object.
    damaged = aescbc(secret("odd")[:-3])
    key = registry.put("shop/odd", damaged)
    assert registry.delete(key).code == 0
    backup = registry.kept()[0]
    assert (backup.content.stored.value, backup.content.stored_as_plaintext) == (damaged, False)
    assert backup.content.verdict.outcome == "decode-failure"
    assert holds(secret("odd"))  # the search itself works
    assert holds(b'"%s"' % base64.b64encode(b"xy" + secret("odd")))
    for path in (backup.path, registry.log):
        assert not holds(path.read_bytes())


def test_unencrypted_value_is_kept_unencrypted_and_said_so(registry: Registry) -> None:
    key = registry.put("shop/plain", secret("plain")[:-3])
    ran = registry.delete(key)
    assert ran.code == 0, ran.err
    backup = registry.kept()[0]
    assert backup.content.stored_as_plaintext
    assert holds(backup.path.read_bytes())
    assert PLAINTEXT.decode() not in ran.out + ran.err


def test_two_directories_take_the_same_backup(registry: Registry) -> None:
    second = own_directory(registry.folder / "second")
    ran = registry.delete(registry.key("shop/broken"), "--backup-dir", str(second))
    assert ran.code == 0, ran.err
    one, two = registry.kept()[0], registry.kept(second)[0]
    assert one.path.read_bytes() == two.path.read_bytes()
    assert ran.out.count("\nBackup  ") == 2


def test_one_directory_that_cannot_take_it_is_enough_to_refuse(registry: Registry) -> None:
    with registry.untouched():
        ran = registry.delete(registry.key("shop/broken"), "--backup-dir", str(registry.folder / "nowhere"))
    registry.refused(ran, "nowhere does not exist", hint="mode 0700")


def test_dry_run_changes_nothing_and_is_recorded(registry: Registry) -> None:
    key = registry.key("shop/broken")
    with registry.untouched():
        ran = registry.delete(key, "--dry-run", yes=False)
    assert ran.code == 0
    assert f"DRY RUN: {key.decode()} would be deleted. Nothing was changed." in ran.out
    assert "Undo" not in ran.out
    assert "\nLess destructive\n" in ran.err
    (event,) = registry.events()
    assert event.annotations.type == RecordType.DRY_RUN
    assert event.annotations.value_sha256 == digest_of(BROKEN)


@pytest.mark.parametrize("dry", [True, False])
def test_no_socket_for_the_connection_that_writes(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, *, dry: bool
) -> None:
    """A dry run finds it; without one the intent is closed, since nothing was sent."""

    def deny(*_given: Any) -> NoReturn:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    key, revision = registry.key("shop/broken"), registry.etcd.revision()
    with monkeypatch.context() as patched:
        patched.setattr(socket.socket, "bind", deny)
        ran = registry.delete(key, *(["--dry-run"] if dry else []))
    assert ran.code == 5, ran
    assert "no transaction was sent" in ran.err
    assert registry.etcd.revision() == revision
    kinds = [event.annotations.type for event in registry.events()] if registry.log.exists() else []
    assert kinds == ([] if dry else [RecordType.INTENT, RecordType.OUTCOME])
    if not dry:
        assert registry.events()[-1].annotations.outcome == "not-applied"


def digest_of(value: bytes) -> str:
    return f"sha256:{hashlib.sha256(value).hexdigest()}"


def test_lease_stands_in_the_backup(registry: Registry) -> None:
    key = registry.key("shop/leased")
    lease = registry.grant(key, BROKEN)
    ran = registry.delete(key)
    assert ran.code == 0, ran.err
    assert re.search(rf"Lease +{lease.lstrip('0')}, \d+ s left", ran.err)
    content = registry.kept()[0].content
    assert content.lease == lease.lstrip("0")
    assert content.lease_ttl_seconds is not None
    assert 0 < content.lease_ttl_seconds <= 86_400


def test_key_that_cannot_be_typed(registry: Registry) -> None:
    key = registry.key("shop/\x1b[31mbad\xff".encode("latin-1").decode("latin-1"))
    key = key[:-2] + b"\xff"
    registry.etcd.put(key, BROKEN)
    ran = registry.delete(key)
    assert ran.code == 0, ran.err
    assert registry.stored(key) is None
    assert "\x1b" not in ran.out + ran.err


def test_open_intents_of_the_same_key_are_settled_first(registry: Registry) -> None:
    key = registry.key("shop/broken")
    with audit_module.AuditLog.open(registry.log) as log:
        for about, uid in ((key, UID), (registry.key("shop/other"), UID), (key, "another-cluster")):
            made = entry(
                subject=subject(about, registry.mod_revision(key)),
                cluster_uid=uid,
                header_revision=registry.mod_revision(key),
                value_sha256=digest_of(BROKEN),
            )
            log.append(made)
    ran = registry.delete(key)
    assert ran.code == 0, ran.err
    assert "the open intent 1 was settled: not-applied" in ran.out
    assert [event.annotations.type for event in registry.events()] == [
        "intent", "intent", "intent", "reconciled", "intent", "outcome",
    ]  # fmt: skip
    assert verify(registry.log).open_intents.keys() == {2, 3}


def test_torn_last_line_is_set_aside_and_said(registry: Registry) -> None:
    registry.deleted()
    registry.log.write_bytes(registry.log.read_bytes() + b'{"kind":"Ev')
    ran = registry.delete(registry.put("shop/second", BROKEN))
    assert ran.code == 0, ran.err
    assert "a torn last line of the audit log was set aside" in ran.out


# What is there is none of our business: the outcome.


def test_readable(registry: Registry) -> None:
    with registry.untouched():
        ran = registry.delete(registry.key("shop/good-0"))
    registry.refused(ran, "/shop/good-0: the object is readable", hint=API_OF)
    assert not registry.log.exists()


def test_inconsistent(registry: Registry) -> None:
    key = registry.put("shop/moved", aescbc(secret("somewhere-else")))
    with registry.untouched():
        ran = registry.delete(key)
    registry.refused(
        ran, "the API server accepts the object", hint="heal or delete it through the API: etcdfix get"
    )


def test_not_an_object(registry: Registry) -> None:
    key = registry.put("10.0.0.1", b"k8s\x00", resource="masterleases")
    with registry.untouched():
        ran = registry.delete(key)
    registry.refused(ran, "the key holds no object of the API", hint="leave it")


def test_key_outside_the_storage_prefix(registry: Registry) -> None:
    registry.etcd.put(b"/elsewhere" + registry.prefix.encode(), b"x")
    with registry.untouched():
        ran = registry.delete(b"/elsewhere" + registry.prefix.encode())
    registry.refused(ran, "holds no object of the API", hint="leave it")


def test_gone(registry: Registry) -> None:
    with registry.untouched():
        ran = registry.delete(registry.key("shop/nobody"))
    registry.refused(ran, "/secrets/shop/nobody does not exist", hint="see what is there: etcdfix scan")


def test_undetermined(registry: Registry) -> None:
    key = registry.put("shop/thing", b"no object", resource="example.com/gadgets")
    with registry.untouched():
        ran = registry.delete(key)
    registry.refused(ran, "nothing is proven against the value", hint="find out more: etcdfix explain")


def test_no_configuration(registry: Registry) -> None:
    with registry.untouched():
        ran = registry.delete(registry.key("shop/broken"), configured=False)
    registry.refused(ran, "no encryption configuration was given", hint="--encryption-config FILE")


def test_two_objects_in_one_value(registry: Registry) -> None:
    key = registry.put("shop/both", secret("both") + secret("both").replace(b"never", b"newer"))
    with registry.untouched():
        ran = registry.delete(key)
    registry.refused(ran, "a whole object may be found in it", hint="get --raw saves it")


def test_what_can_be_repaired_is_not_deleted_unasked(registry: Registry) -> None:
    key = registry.put("shop/trailing", secret("trailing") + b"left")
    with registry.untouched():
        ran = registry.delete(key)
    registry.refused(ran, "can be had back whole", hint="repair it: etcdfix repair ")


def test_allocator_is_never_deleted(registry: Registry) -> None:
    registry.put("servicenodeports", allocation()[:-4] + b"\xff\xff\xff\xff", resource="ranges")
    with registry.untouched():
        ran = registry.delete(registry.key("servicenodeports", "ranges"))
    registry.refused(
        ran, "allocator-damaged is never a reason to delete", hint="see every way out: etcdfix explain"
    )


def test_kind_that_may_be_newer_than_the_tool(registry: Registry) -> None:
    key = registry.put("shop/new", json_object("v1", "Sekret", "new"))
    # A release that was named proves nothing of a kind that stands in no table, whoever bears it out.
    release = ("--kubernetes-version", "1.36", "--accept", "unknown-release")
    for named in ((), release):
        with registry.untouched():
            ran = registry.delete(key, *named)
        registry.refused(ran, "the cluster may be newer than this etcdfix", hint="--accept newer-than-known")
    ran = registry.delete(key, "--accept", "newer-than-known")
    assert ran.code == 0, ran.err
    assert registry.events()[0].annotations.accepted == '["--accept newer-than-known"]'


def test_kind_of_which_nothing_reads_is_newer_than_the_tool(registry: Registry) -> None:
    key = registry.put("shop/new", json_object("v1", "Sekret", "new"))
    registry.put("shop/newer", json_object("v1", "Sekret", "newer"))
    with registry.untouched():
        ran = registry.delete(key, "--accept", "newer-than-known")
    registry.refused(
        ran,
        "2 values like it (v1 Sekret of secrets) fail and none can be read",
        hint="use an etcdfix that knows the cluster's release",
    )


def test_release_that_no_node_bears_out(registry: Registry) -> None:
    with registry.untouched():
        ran = registry.delete(registry.key("shop/broken"), "--kubernetes-version", "1.36")
    registry.refused(ran, "no Node can be read, so nothing shows", hint="--accept unknown-release")


# Another value than expected.


def test_expected_mod_revision_differs(registry: Registry) -> None:
    key = registry.key("shop/broken")
    there = registry.mod_revision(key)
    with registry.untouched():
        ran = registry.delete(key, "--expect-mod-revision", str(there + 1))
    registry.refused(ran, f"stands at mod_revision {there}, not at {there + 1}", hint="examine it again")


def test_expected_digest_differs(registry: Registry) -> None:
    with registry.untouched():
        ran = registry.delete(registry.key("shop/broken"), "--expect-value-sha256", "sha256:" + "0" * 64)
    registry.refused(ran, digest_of(BROKEN), "not sha256:000", hint="it is another value")


@pytest.mark.parametrize("before", ["sha256:", ""])
def test_expectations_that_hold(registry: Registry, before: str) -> None:
    key = registry.key("shop/broken")
    digest = before + hashlib.sha256(BROKEN).hexdigest()
    ran = registry.delete(
        key, "--expect-mod-revision", str(registry.mod_revision(key)), "--expect-value-sha256", digest
    )
    assert ran.code == 0, ran.err


# The configuration, and lost keys.


def _not_configured(registry: Registry) -> bytes:
    return registry.put("shop/settings", aescbc(config_map(), KEY_2), resource="configmaps")


def _provider_missing(registry: Registry) -> bytes:
    key = registry.key("shop/gcm")
    registry.etcd.put(key, aesgcm(secret("gcm"), key.decode(), KEY_2))
    return key


def _key_name_missing(registry: Registry) -> bytes:
    return registry.put("shop/old", aescbc(secret("old"), KEY_2, "key2"))


@pytest.mark.parametrize(
    ("prepare", "cause", "transformer"),
    [
        (_not_configured, "resource-not-configured", "aescbc/v1/key1"),
        (_provider_missing, "provider-missing", "aesgcm/v1/key1"),
        (_key_name_missing, "key-name-missing", "aescbc/v1/key2"),
    ],
)
def test_what_the_configuration_can_cure(
    registry: Registry, prepare: Callable[[Registry], bytes], cause: str, transformer: str
) -> None:
    key = prepare(registry)
    with registry.untouched():
        ran = registry.delete(key)
    registry.refused(
        ran,
        f"the configuration alone can cure this ({cause}: ",
        hint=f"fix the configuration; only if that key is gone for ever: --declare-key-lost {transformer}",
    )
    ran = registry.delete(
        key, "--accept", "ends-cached-reads", "--accept", "no-api-server", "--declare-key-lost", transformer
    )
    assert ran.code == 0, ran.err
    assert "the key is lost for ever" in ran.err
    assert registry.events()[0].annotations.accepted == (
        f'["--accept ends-cached-reads","--accept no-api-server","--declare-key-lost {transformer}"]'
    )


def _key_elsewhere(registry: Registry) -> bytes:
    return registry.put("shop/settings", aescbc(config_map()), resource="configmaps")


def _provider_renamed(registry: Registry) -> bytes:
    key = registry.key("shop/gcm")
    registry.etcd.put(key, aesgcm(secret("gcm"), key.decode(), KEY_1))
    return key


def _key_renamed(registry: Registry) -> bytes:
    return registry.put("shop/renamed", aescbc(secret("renamed"), KEY_1, "first"))


@pytest.mark.parametrize(
    ("prepare", "cause", "transformer"),
    [
        (_key_elsewhere, "resource-not-configured", "aescbc/v1/key1"),
        (_provider_renamed, "key-renamed", "aesgcm/v1/key1"),
        (_key_renamed, "key-renamed", "aescbc/v1/first"),
    ],
)
def test_a_key_that_stands_elsewhere_is_not_lost(
    registry: Registry, prepare: Callable[[Registry], bytes], cause: str, transformer: str
) -> None:
    """Another rule, another provider, another name: the key that wrote the value is in the configuration."""
    key = prepare(registry)
    there = f"aescbc/v1/key1 of secrets ({FINGERPRINT})"
    with registry.untouched():
        ran = registry.delete(key)
    registry.refused(
        ran,
        f"the configuration alone can cure this ({cause}: ",
        hint=f"fix the configuration; the key is there: {there}",
    )
    assert "declare-key-lost" not in ran.err
    with registry.untouched():
        ran = registry.delete(
            key,
            "--accept",
            "ends-cached-reads",
            "--accept",
            "no-api-server",
            "--declare-key-lost",
            transformer,
        )
    registry.refused(
        ran,
        f"--declare-key-lost {transformer} does not name a key of {key.decode()} that could be lost",
        hint=f"it was written under {there}: fix the configuration",
    )


def test_a_key_that_opened_what_came_before_was_not_lost(registry: Registry) -> None:
    key = registry.put("shop/replaced", aescbc(secret("replaced"), KEY_2))
    with registry.untouched():
        ran = registry.delete(key)
    registry.refused(
        ran,
        "can cure this (wrong-key: noise under every key named aescbc/v1/key1",
        hint="only if that key is gone for ever: --declare-key-lost aescbc/v1/key1",
    )
    with registry.untouched():
        ran = registry.delete(
            key,
            "--accept",
            "ends-cached-reads",
            "--accept",
            "no-api-server",
            "--declare-key-lost",
            "aescbc/v1/key1",
        )
    registry.refused(
        ran,
        f"a value that was written before {key.decode()}, and after all others that do not open",
        hint="the key that wrote it was not lost then: look at this object alone",
    )


def test_plaintext_that_identity_would_read_has_no_key_to_be_lost(registry: Registry) -> None:
    registry.configure(provider("aescbc", key1=KEY_1))
    key = registry.put("shop/plain", secret("plain"))
    with registry.untouched():
        ran = registry.delete(key)
    registry.refused(ran, "can cure this (plaintext-not-allowed: ", hint="fix the configuration")
    assert "declare-key-lost" not in ran.err
    with registry.untouched():
        ran = registry.delete(
            key,
            "--accept",
            "ends-cached-reads",
            "--accept",
            "no-api-server",
            "--declare-key-lost",
            "identity",
        )
    registry.refused(
        ran,
        "does not name a key of",
        "that could be lost",
        hint="it was written under identity",
    )


def test_custom_resource_whose_version_the_crd_lost_is_never_deleted(registry: Registry) -> None:
    definition = crd("widgets", "example.com")
    registry.put("widgets.example.com", definition, resource="apiextensions.k8s.io/customresourcedefinitions")
    registry.configure(provider("aescbc", key1=KEY_1), IDENTITY, resources=("secrets", "widgets.example.com"))
    old = widget().replace(b"example.com/v1", b"example.com/v0")
    key = registry.put("shop/w-0", aescbc(old), resource="example.com/widgets")
    with registry.untouched():
        ran = registry.delete(key)
    registry.refused(ran, "can cure this (crd-version-missing: ", hint="fix the configuration")
    with registry.untouched():
        ran = registry.delete(
            key,
            "--accept",
            "ends-cached-reads",
            "--accept",
            "no-api-server",
            "--declare-key-lost",
            "aescbc/v1/key1",
        )
    registry.refused(
        ran,
        "does not name a key of",
        "that could be lost",
        hint="it was written under aescbc/v1/key1, and that key is there",
    )


def _lose(registry: Registry, *, lost: int, kept: int, damaged: int = 0) -> bytes:
    """Store values under one name, and return the first key.

    Args:
        registry: Where.
        lost: So many were written with other key bytes.
        kept: So many open.
        damaged: So many are too short for any key, and come first.
    """
    numbers = {"damaged": damaged, "lost": lost, "kept": kept}
    names = [f"{what}-{n}" for what, number in numbers.items() for n in range(number)]
    pairs = []
    for name in names:
        key = registry.key(f"shop/{name}")
        used = KEY_2 if name.startswith("lost") else KEY_1
        value = aesgcm(secret(name), key.decode(), used, "gone")
        pairs.append((key, value[:30] if name.startswith("damaged") else value))
    registry.configure(provider("aescbc", key1=KEY_1), provider("aesgcm", gone=KEY_1), IDENTITY)
    registry.etcd.put_all(pairs)
    return pairs[0][0]


LOST_KEY = (
    "--accept",
    "ends-cached-reads",
    "--accept",
    "no-api-server",
    "--declare-key-lost",
    "aesgcm/v1/gone",
)


@pytest.mark.parametrize(("lost", "kept"), [(1, 0), (2, 0), (9, 9), (10, 10)])
def test_a_key_with_other_bytes_however_few_values_it_does_not_open(
    registry: Registry, lost: int, kept: int
) -> None:
    key = _lose(registry, lost=lost, kept=kept)
    with registry.untouched():
        ran = registry.delete(key)
    registry.refused(
        ran,
        "can cure this (wrong-key: noise under every key named aesgcm/v1/gone: its bytes are most likely others now)",
        hint="fix the configuration; only if that key is gone for ever: --declare-key-lost aesgcm/v1/gone",
    )
    ran = registry.delete(key, *LOST_KEY)
    assert ran.code == 0, ran.err
    assert (
        f"aesgcm/v1/gone of secrets ({FINGERPRINT}): {kept} open, {lost} fail (this one included)" in ran.err
    )
    assert "the key is lost for ever" in ran.err
    assert ("OPEN under this key: make sure that you mean this one" in ran.err) == bool(kept)


@pytest.mark.parametrize(("lost", "kept"), [(1, 0), (9, 10), (10, 10)])
def test_pattern(registry: Registry, lost: int, kept: int) -> None:
    """A value that is damaged for itself stays while so many others under its key fail that it may be the key."""
    key = _lose(registry, damaged=1, lost=lost, kept=kept)
    with registry.untouched():
        ran = registry.delete(key, "--accept", "mass-damage")
    registry.refused(
        ran,
        f"under aesgcm/v1/gone of secrets {lost + 1} values fail and {kept} do not: that is the encryption key",
        hint="find the encryption key; only if it is gone for ever: --declare-key-lost aesgcm/v1/gone",
    )
    ran = registry.delete(key, *LOST_KEY)
    assert ran.code == 0, ran.err
    assert f"{kept} open, {lost + 1} fail, 1 of them proven damaged (this one included)" in ran.err
    assert "the key is lost for ever" in ran.err


@pytest.mark.parametrize(
    ("damaged", "lost", "kept"), [(1, 0, 0), (1, 8, 9), (1, 9, 11), (2, 0, 0), (9, 0, 0), (10, 0, 11)]
)
def test_no_pattern(registry: Registry, damaged: int, lost: int, kept: int) -> None:
    key = _lose(registry, damaged=damaged, lost=lost, kept=kept)
    if lost:
        with registry.untouched():
            ran = registry.delete(key)
        assert ran.code == 4
        assert "no API server was asked whether it holds them" in ran.err
    ran = registry.delete(key, *(["--accept", "ends-cached-reads"] if lost else []))
    assert ran.code == 0, ran.err
    assert "declared lost" not in ran.err


@pytest.mark.parametrize(("damaged", "kept"), [(10, 0), (10, 10)])
def test_many_that_are_each_proven_damaged(registry: Registry, damaged: int, kept: int) -> None:
    key = _lose(registry, damaged=damaged, lost=0, kept=kept)
    with registry.untouched():
        ran = registry.delete(key)
    registry.refused(
        ran, f"{damaged} values fail and {kept} do not: something damages many values",
        hint="find out what happened to them; if that is understood: --accept mass-damage",
    )  # fmt: skip
    ran = registry.delete(key, "--accept", "mass-damage")
    assert ran.code == 0, ran.err
    assert registry.events()[0].annotations.accepted == '["--accept mass-damage"]'


@pytest.mark.parametrize(
    "declared",
    [
        "aesgcm/v1/other", "aesgcm/v1/GONE", "aesgcm/v1/gone/", "gone", "aescbc/v1/key1", "aesgcm/v1/gone/id",
        "aesgcm/v1/gon", "aesgcm/v1/gonee", "aesgcm/v1", " aesgcm/v1/gone", "aesgcm/v1/gone ",
    ],
)  # fmt: skip
def test_declaration_of_another_key(registry: Registry, declared: str) -> None:
    key = _lose(registry, lost=2, kept=0)
    with registry.untouched():
        ran = registry.delete(
            key, "--accept", "ends-cached-reads", "--accept", "no-api-server", "--declare-key-lost", declared
        )
    registry.refused(
        ran,
        f"--declare-key-lost {declared} does not name the key of",
        hint="it was written under aesgcm/v1/gone",
    )


def test_declaration_that_is_not_needed_must_fit_too(registry: Registry) -> None:
    key = registry.key("shop/broken")
    with registry.untouched():
        ran = registry.delete(
            key,
            "--accept",
            "ends-cached-reads",
            "--accept",
            "no-api-server",
            "--declare-key-lost",
            "aescbc/v1/key9",
        )
    registry.refused(ran, "does not name the key", hint="aescbc/v1/key1")


def test_declared_key_is_typed_back_at_a_terminal_even_with_yes(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = _lose(registry, lost=2, kept=0)
    declared = (
        "--accept",
        "ends-cached-reads",
        "--accept",
        "no-api-server",
        "--declare-key-lost",
        "aesgcm/v1/gone",
    )
    with registry.untouched(), typing(monkeypatch, "yes"):
        ran = registry.delete(key, *declared)
    assert ran.code == 4
    assert "the lost key was not typed back; nothing was changed" in ran.err
    assert "Type the name of the key that is lost for ever in full" in ran.err
    with typing(monkeypatch, "aesgcm/v1/gone"):
        ran = registry.delete(key, *declared)
    assert ran.code == 0, ran.err


# KMS.

KEK = {"kek-1": b"1" * 32, "kek-2": b"2" * 32}


@pytest.fixture
def plugin(tmp_path: Path) -> Iterator[KMSPlugin]:
    with KMSPlugin("v2", f"@etcdfix-test-{os.getpid()}-{tmp_path.name}", KEK) as running:
        yield running


def _behind(
    registry: Registry, plugin: KMSPlugin, *names: str, key_id: str, timeout: str = "5s"
) -> list[bytes]:
    kms = {"kms": {"apiVersion": "v2", "name": "prov", "endpoint": plugin.endpoint, "timeout": timeout}}
    registry.configure(kms, provider("aescbc", key1=KEY_1), IDENTITY)
    keys = [registry.key(f"shop/{name}") for name in names]
    registry.etcd.put_all(
        (key, plugin.stored_v2(secret(name), key, key_id=key_id))
        for key, name in zip(keys, names, strict=True)
    )
    return keys


def test_kms_key_that_the_plugin_does_not_know(registry: Registry, plugin: KMSPlugin) -> None:
    _behind(registry, plugin, "alive", key_id="kek-2")
    (key,) = _behind(registry, plugin, "dead", key_id="kek-1")
    del plugin.keks["kek-1"]
    digest = f"sha256:{hashlib.sha256(b'kek-1').hexdigest()}"
    with registry.untouched():
        ran = registry.delete(key)
    registry.refused(ran, "nothing is proven against the value", hint="find out more: etcdfix explain")
    # Another key id of the provider opens: the name of the provider alone would say too much.
    with registry.untouched():
        ran = registry.delete(
            key,
            "--accept",
            "ends-cached-reads",
            "--accept",
            "no-api-server",
            "--declare-key-lost",
            "kms/v2/prov",
        )
    registry.refused(ran, "does not name the key", hint=f"it was written under kms/v2/prov/{digest}")
    for wrong in ("kms/v2/prov/kek-2", "kms/v2/prov/", "kms/v2/other"):
        with registry.untouched():
            ran = registry.delete(
                key, "--accept", "ends-cached-reads", "--accept", "no-api-server", "--declare-key-lost", wrong
            )
        registry.refused(ran, "does not name the key", hint=digest)
    ran = registry.delete(
        key,
        "--accept",
        "ends-cached-reads",
        "--accept",
        "no-api-server",
        "--declare-key-lost",
        "kms/v2/prov/kek-1",
    )
    assert ran.code == 0, ran.err
    assert "Verdict  NOT PROVEN (kms-key-unknown)" in ran.err
    assert registry.kept()[0].content.verdict.outcome == "undetermined"
    assert registry.stored(registry.key("shop/alive")) is not None


def test_kms_key_id_by_its_digest(registry: Registry, plugin: KMSPlugin) -> None:
    _behind(registry, plugin, "alive", key_id="kek-2")
    (key,) = _behind(registry, plugin, "dead", key_id="kek-1")
    del plugin.keks["kek-1"]
    declared = f"kms/v2/prov/sha256:{hashlib.sha256(b'kek-1').hexdigest()}"
    assert (
        registry.delete(
            key, "--accept", "ends-cached-reads", "--accept", "no-api-server", "--declare-key-lost", declared
        ).code
        == 0
    )


def test_whole_kms_provider_that_is_dead(
    registry: Registry, plugin: KMSPlugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    defaults = KMSPlugins.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "patience_seconds", 0.1)
    one, _two = _behind(registry, plugin, "one", "two", key_id="kek-1", timeout="50ms")
    plugin.stop()
    with registry.untouched():
        ran = registry.delete(one)
    registry.refused(ran, "nothing is proven against the value", hint="find out more")
    # While nobody answers, others of its key ids may be in order: the one that is lost has to be named.
    ran = registry.delete(
        one, "--accept", "ends-cached-reads", "--accept", "no-api-server", "--declare-key-lost", "kms/v2/prov"
    )
    registry.refused(ran, "does not name the key", hint="kms/v2/prov/sha256:")
    # An outage looks the same: a script does not decide that, a person who types it may.
    name = f"kms/v2/prov/{key_id_digest('kek-1')}"
    with registry.untouched():
        ran = registry.delete(
            one, "--accept", "ends-cached-reads", "--accept", "no-api-server", "--declare-key-lost", name
        )
    registry.refused(ran, "which is what an outage looks like", hint="--kubeconfig")
    with typing(monkeypatch, name):
        ran = registry.delete(
            one, "--accept", "ends-cached-reads", "--accept", "no-api-server", "--declare-key-lost", name
        )
    assert ran.code == 0, ran.err
    assert (
        f"kms/v2/prov of secrets ({key_id_digest('kek-1')}): 0 open, 0 fail, 2 undetermined (this one included)"
        in ran.err
    )


def test_kms_plugin_that_denies(registry: Registry, plugin: KMSPlugin) -> None:
    (key,) = _behind(registry, plugin, "one", key_id="kek-1")
    plugin.refusal = Refusal("PERMISSION_DENIED", "policy")
    with registry.untouched():
        ran = registry.delete(key)
    registry.refused(ran, "nothing is proven", hint="find out more")


def test_declaration_does_not_make_a_readable_kms_value_deletable(
    registry: Registry, plugin: KMSPlugin
) -> None:
    (key,) = _behind(registry, plugin, "one", key_id="kek-1")
    with registry.untouched():
        ran = registry.delete(
            key,
            "--accept",
            "ends-cached-reads",
            "--accept",
            "no-api-server",
            "--declare-key-lost",
            "kms/v2/prov/kek-1",
        )
    registry.refused(ran, "the object is readable", hint=API_OF)


# Which cluster, which object.


def test_unknown_cluster(registry: Registry) -> None:
    registry.lose_kube_system()
    key = registry.key("shop/broken")
    with registry.untouched():
        ran = registry.delete(key)
    registry.refused(ran, "there is no namespace kube-system here", hint="--accept unknown-cluster")
    ran = registry.delete(key, "--accept", "unknown-cluster")
    assert ran.code == 0, ran.err
    assert "kube-system uid unknown (accepted)" in ran.err
    assert registry.kept()[0].content.cluster.kube_system_uid is None
    assert "--accept unknown-cluster" in registry.events()[0].annotations.accepted


@pytest.mark.parametrize("others", [{}, {"shop": b"k8s\x00\x0a\xff", "default": b"{}"}])
def test_unknown_cluster_without_any_namespace(registry: Registry, others: dict[str, bytes]) -> None:
    """Nothing shows that this is the storage prefix of a cluster, and no flag stands in for that."""
    registry.etcd.delete(registry.key("kube-system", "namespaces"))
    for name, value in others.items():
        registry.put(name, value, resource="namespaces")
    with registry.untouched():
        ran = registry.delete(registry.key("shop/broken"), "--accept", "unknown-cluster")
    registry.refused(ran, f"no Namespace can be read under {registry.prefix}/", hint="--etcd-prefix")


@pytest.mark.parametrize(
    ("resource", "name"),
    [
        ("namespaces", "shop"),
        ("minions", "node-1"),
        ("persistentvolumes", "pv-1"),
        ("persistentvolumeclaims", "shop/pvc-1"),
        ("apiextensions.k8s.io/customresourcedefinitions", "widgets.example.com"),
        ("apiregistration.k8s.io/apiservices", "v1.apps"),
        ("clusterroles", "admin"),
        ("clusterrolebindings", "admin"),
        ("roles", "shop/reader"),
        ("rolebindings", "shop/reader"),
        ("flowschemas", "exempt"),
        ("prioritylevelconfigurations", "exempt"),
        ("secrets", "kube-system/bootstrap-token"),
        ("configmaps", "kube-system/coredns"),
    ],
)
def test_floor(registry: Registry, resource: str, name: str) -> None:
    key = registry.put(name, b"k8s\x00\x0a\xff", resource=resource)
    with registry.untouched():
        ran = registry.delete(key)
    registry.refused(ran, "deleting this key may break the cluster", hint="--accept cluster-breaking")
    with registry.untouched():
        ran = registry.delete(key, "--accept", "cluster-breaking", "--dry-run")
    assert ran.code == 0, ran.err
    assert "CLUSTER-BREAKING, as accepted" in ran.err


def test_accepted_risk_is_recorded(registry: Registry) -> None:
    key = registry.put("shop", b"k8s\x00\x0a\xff", resource="namespaces")
    assert registry.delete(key, "--accept", "cluster-breaking").code == 0
    assert registry.events()[0].annotations.accepted == '["--accept cluster-breaking"]'


def test_kube_system_itself_names_the_cluster_by_a_kept_revision_when_it_is_broken(
    registry: Registry,
) -> None:
    key = registry.put("kube-system", namespace_object("kube-system")[:-3], resource="namespaces")
    with registry.untouched():
        ran = registry.delete(key, "--accept", "cluster-breaking", "--dry-run")
    assert ran.code == 0, ran.err
    assert f"kube-system uid {UID}, from its revision" in ran.err


# Authorization.


def test_allowed(registry: Registry, api: KubernetesAPI) -> None:
    kubeconfig = api.kubeconfig(registry.folder)
    ran = registry.delete(registry.key("shop/broken"), "--kubeconfig", str(kubeconfig), "--context", "here")
    assert ran.code == 0, ran.err
    assert f"Allowed by  {api.url}, for alice@example.org" in ran.err
    assert TOKEN not in ran.out + ran.err
    asked = [r.body["spec"]["resourceAttributes"] for r in api.requests if r.path == ACCESS_REVIEW]
    assert [a["verb"] for a in asked] == ["unsafe-delete-ignore-read-errors", "delete"]
    assert all((a["resource"], a["namespace"], a["name"]) == ("secrets", "shop", "broken") for a in asked)
    intent = registry.events()[0].annotations
    assert (intent.authorization, intent.api_user) == ("allowed", "alice@example.org")


# Recovery.

SECRETS = "/api/v1/secrets"


def test_recovery_is_looked_at(registry: Registry, api: KubernetesAPI) -> None:
    kubeconfig = str(api.kubeconfig(registry.folder))
    with registry.untouched():
        assert registry.delete(registry.key("shop/broken"), "--kubeconfig", kubeconfig, "--dry-run").code == 0
    assert api.asked("/readyz", SECRETS) == []
    api.before["/readyz"] = [Answer(500, b"[-]informer-sync failed: reason withheld\n"), Answer(200, b"ok")]
    ran = registry.delete(registry.key("shop/broken"), "--kubeconfig", kubeconfig)
    assert ran.code == 0, ran.err
    assert (
        "waiting until the API servers have recovered, about 60 s at most; Ctrl-C ends the waiting" in ran.err
    )
    *_, last = ran.err.splitlines()
    looked = (
        rf"etcdfix: API server {api.url}, after \d+ s: LIST works, resourceVersion=0 works, /readyz works"
    )
    assert re.fullmatch(looked, last)
    cached = f"{SECRETS}?resourceVersion=0"
    assert sorted(api.asked("/readyz", SECRETS)) == [SECRETS, cached, "/readyz", "/readyz"]
    assert TOKEN not in ran.out + ran.err


def test_nothing_is_waited_for_while_others_fail(registry: Registry, api: KubernetesAPI) -> None:
    registry.put("shop/worse", BROKEN)
    api.instead[SECRETS] = status_answer(500)
    ran = registry.delete(
        registry.key("shop/broken"), "--kubeconfig", str(api.kubeconfig(registry.folder)),
        "--accept", "unproven-damage",
    )  # fmt: skip
    assert ran.code == 0, ran.err
    assert "cannot read or judge 1 other value of secrets" in ran.out
    assert "waiting" not in ran.err
    assert "s: LIST answers 500, resourceVersion=0 works, /readyz works" in ran.err
    assert "Not everything works yet." in ran.err
    assert len(api.asked("/readyz")) == 1


@pytest.mark.parametrize("ended", [KeyboardInterrupt, EndedEarly("ended by SIGTERM", 143)])
def test_the_end_of_waiting_takes_nothing_back(
    registry: Registry, api: KubernetesAPI, monkeypatch: pytest.MonkeyPatch, ended: BaseException
) -> None:
    def end(_seconds: float) -> NoReturn:
        raise ended

    monkeypatch.setattr(recovery, "time", SimpleNamespace(monotonic=time.monotonic, sleep=end))
    api.instead["/readyz"] = Answer(500, b"")
    ran = registry.delete(registry.key("shop/broken"), "--kubeconfig", str(api.kubeconfig(registry.folder)))
    assert ran.code == 0
    assert "DELETED" in ran.out
    assert ran.err.endswith("Not waited any longer. The deletion is done.\n")


def test_credentials_that_are_gone_take_nothing_back(
    registry: Registry, api: KubernetesAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_arguments: object, **_options: object) -> NoReturn:
        raise AuthorizationRefused("the credentials could not be obtained", reason="credentials")

    monkeypatch.setattr(recovery, "open_access", refuse)
    ran = registry.delete(registry.key("shop/broken"), "--kubeconfig", str(api.kubeconfig(registry.folder)))
    assert ran.code == 0
    assert ran.err.endswith("API servers were not looked at again: the credentials could not be obtained\n")


def test_a_look_that_breaks_takes_nothing_back(
    registry: Registry, api: KubernetesAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_arguments: object, **_options: object) -> NoReturn:
        raise MemoryError

    monkeypatch.setattr(recovery, "run_within", fail)
    ran = registry.delete(registry.key("shop/broken"), "--kubeconfig", str(api.kubeconfig(registry.folder)))
    assert ran.code == 0
    assert ran.err.endswith("API servers were not looked at again (MemoryError)\n")


@pytest.mark.parametrize("verb", ["unsafe-delete-ignore-read-errors", "delete"])
def test_denied(registry: Registry, api: KubernetesAPI, verb: str) -> None:
    api.denied = {verb}
    with registry.untouched():
        ran = registry.delete(
            registry.key("shop/broken"), "--kubeconfig", str(api.kubeconfig(registry.folder))
        )
    registry.refused(
        ran,
        f"denies the permission to {verb} secrets shop/broken",
        hint=f"auth can-i {verb} secrets/broken -n shop",
    )


@pytest.mark.parametrize(
    "answer",
    [
        status_answer(500, "etcdserver: request timed out"),
        read_error("failed calling webhook: Post: unexpected EOF"),
        read_error("no matching prefix found"),  # of another value than the one in etcd
        Answer(500, b"<html>Internal Server Error</html>"),
        Answer(404, b"404 page not found"),
    ],
)
def test_what_is_no_read_error_of_this_value_is_no_answer(
    registry: Registry, api: KubernetesAPI, answer: Answer
) -> None:
    broken = registry.key("shop/broken")
    asked = ("--kubeconfig", str(api.kubeconfig(registry.folder)))
    api.instead["/api/v1/namespaces/shop/secrets/broken"] = answer
    with registry.untouched():
        registry.refused(
            registry.delete(broken, *asked),
            "no API server could say whether it reads",
            hint="--accept no-api-server",
        )
    says = "the stored data was shorter than the required size"
    for fails in (read_error(), read_error(says), read_error(says, reason=None)):
        api.instead["/api/v1/namespaces/shop/secrets/broken"] = fails
        ran = registry.delete(broken, *asked, "--dry-run")
        assert ran.code == 0, ran.err


def test_nobody_answers(registry: Registry, api: KubernetesAPI) -> None:
    """No server that knows the user is as good as no kubeconfig: the flag says so, and nothing else does."""
    broken, kubeconfig = registry.key("shop/broken"), str(api.kubeconfig(registry.folder))
    for path in (KUBE_SYSTEM, "/api/v1/namespaces/shop/secrets/broken"):
        api.instead[path] = status_answer(401)
    with registry.untouched():
        ran = registry.delete(broken, "--kubeconfig", kubeconfig)
    registry.refused(
        ran,
        "no API server could say whether it reads",
        f"({api.url}: it does not know the kubeconfig's user (401))",
        hint="--server URL; only if there is none that could be asked: --accept no-api-server",
    )
    ran = registry.delete(broken, "--kubeconfig", kubeconfig, "--accept", "no-api-server")
    assert ran.code == 0, ran.err
    assert "Allowed by  nobody: no API server answered, as accepted" in ran.err
    assert f"API server  {api.url} may not be asked: it does not know the kubeconfig's user (401)" in ran.err
    intent = registry.events()[0].annotations
    assert (intent.authorization, intent.accepted) == ("none", '["--accept no-api-server"]')


def test_who_may_not_get_the_object_is_told_how_to_ask_for_it(registry: Registry, api: KubernetesAPI) -> None:
    api.instead["/api/v1/namespaces/shop/secrets/broken"] = status_answer(403)
    with registry.untouched():
        ran = registry.delete(
            registry.key("shop/broken"), "--kubeconfig", str(api.kubeconfig(registry.folder))
        )
    registry.refused(
        ran,
        f"({api.url}: it does not let the kubeconfig's user get the object (403))",
        hint="have the user allowed to get it (kubectl --kubeconfig FILE auth can-i get secrets/broken -n shop), or",
    )


@pytest.mark.parametrize(
    ("status", "hint"),
    [
        (403, "auth can-i create selfsubjectaccessreviews.authorization.k8s.io"),
        (500, "kubectl --kubeconfig FILE get --raw /readyz"),
        (401, "auth whoami"),
    ],
)
def test_an_access_review_that_fails(registry: Registry, api: KubernetesAPI, status: int, hint: str) -> None:
    api.instead[ACCESS_REVIEW] = status_answer(status)
    with registry.untouched():
        ran = registry.delete(
            registry.key("shop/broken"), "--kubeconfig", str(api.kubeconfig(registry.folder))
        )
    registry.refused(ran, str(status), hint=hint)


def test_the_flag_lifts_no_answer_that_was_given(registry: Registry, api: KubernetesAPI) -> None:
    broken, kubeconfig = registry.key("shop/broken"), str(api.kubeconfig(registry.folder))
    api.denied = {"delete"}
    with registry.untouched():
        ran = registry.delete(broken, "--kubeconfig", kubeconfig, "--accept", "no-api-server")
    registry.refused(ran, "denies the permission", hint="auth can-i")
    api.reads = True
    with registry.untouched():
        ran = registry.delete(broken, "--kubeconfig", kubeconfig, "--accept", "no-api-server")
    registry.refused(
        ran,
        f"the API server at {api.url} reads secrets shop/broken",
        "the configuration given here is wrong or old",
        hint="--encryption-provider-config",
    )


def test_a_server_of_another_etcd(registry: Registry, api: KubernetesAPI) -> None:
    """It does not find what etcd holds, so it says nothing of the configuration that it has."""
    broken, kubeconfig = registry.key("shop/broken"), str(api.kubeconfig(registry.folder))
    api.holds = False
    with registry.untouched():
        ran = registry.delete(broken, "--kubeconfig", kubeconfig)
    registry.refused(ran, "finds no secrets shop/broken, though etcd holds it", hint="--etcd-prefix")


def test_each_server_is_asked_and_shown(
    registry: Registry, api: KubernetesAPI, authority: CertificateAuthority
) -> None:
    broken, kubeconfig = registry.key("shop/broken"), str(api.kubeconfig(registry.folder))
    with KubernetesAPI(authority, uid=UID) as named, KubernetesAPI(authority, uid=UID) as listed:
        api.listed = [("127.0.0.1", listed.port)]
        arguments = ("--kubeconfig", kubeconfig, "--server", named.url, "--server", "https://127.0.0.1:1")
        for server in (named, listed):
            server.reads = True
            with registry.untouched():
                ran = registry.delete(broken, *arguments)
            registry.refused(ran, f"the API server at {server.url} reads", hint="compare with that server's")
            server.reads = False
        ran = registry.delete(broken, *arguments)
        assert ran.code == 0, ran.err
        for server in (api, named, listed):
            assert f"API server  {server.url} cannot read it either" in ran.err
        assert "API server  https://127.0.0.1:1 gave no answer: no connection comes about" in ran.err


@pytest.mark.parametrize("dry_run", [(), ("--dry-run",)])
def test_a_declaration_without_an_api_server(registry: Registry, dry_run: tuple[str, ...]) -> None:
    """It is refused before anything is read."""
    with registry.untouched():
        ran = registry.delete(registry.key("shop/broken"), "--declare-key-lost", "aescbc/v1/key1", *dry_run)
    registry.refused(
        ran,
        "--declare-key-lost: no API server is asked whether it has the key",
        hint="--kubeconfig FILE; only if there is none that could be asked: --accept no-api-server",
    )


def test_servers_need_credentials(registry: Registry) -> None:
    ran = registry.delete(registry.key("shop/broken"), "--server", "https://127.0.0.1:1")
    assert (ran.code, ran.out) == (2, "")
    assert "--server needs --kubeconfig" in ran.err
    ran = registry.delete(registry.key("shop/broken"), "--server", "http://u:secret@127.0.0.1:1")
    assert (ran.code, ran.out) == (2, "")
    assert "--server http://127.0.0.1:1: not the address of an API server" in ran.err


def test_api_server_that_does_not_answer(
    registry: Registry, api: KubernetesAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    def impatient(*arguments: Any, **keywords: Any) -> Any:
        return ask_servers(*arguments, **keywords, timeout_seconds=3)

    monkeypatch.setattr(preflight_module, "ask_servers", impatient)
    api.stall = {ACCESS_REVIEW}
    with registry.untouched():
        ran = registry.delete(
            registry.key("shop/broken"), "--kubeconfig", str(api.kubeconfig(registry.folder))
        )
    assert ran.code == 4
    assert "no answer within" in ran.err or "was not there within" in ran.err


def test_api_server_of_another_cluster(registry: Registry, api: KubernetesAPI) -> None:
    api.uid = "00000000-1111-2222-3333-444444444444"
    with registry.untouched():
        ran = registry.delete(
            registry.key("shop/broken"), "--kubeconfig", str(api.kubeconfig(registry.folder))
        )
    registry.refused(
        ran, "belongs to another cluster", api.uid, UID, hint="choose the kubeconfig, or its context"
    )


def test_authorization_in_an_unknown_cluster(registry: Registry, api: KubernetesAPI) -> None:
    registry.lose_kube_system()
    kubeconfig = str(api.kubeconfig(registry.folder))
    with registry.untouched():
        ran = registry.delete(
            registry.key("shop/broken"), "--kubeconfig", kubeconfig, "--accept", "unknown-cluster"
        )
    registry.refused(ran, "nothing in etcd names the cluster")


# Exactly one key, of a live etcd.


@pytest.mark.parametrize("below", ["secrets", "secrets/shop"])
def test_prefix_without_its_slash(registry: Registry, below: str) -> None:
    with registry.untouched():
        ran = registry.delete(f"{registry.prefix}/{below}".encode())
    registry.refused(
        ran,
        f"{registry.prefix}/{below} is no key but the beginning of others, such as",
        hint="name exactly one key, in full",
    )


@pytest.mark.parametrize(
    "key",
    ["/registry/secrets/", "/", "/registry/secrets/shop/*", "/registry/pods/a?c", "/registry/pods/[ab]"],
)
def test_prefix_or_pattern(registry: Registry, key: str) -> None:
    with registry.untouched():
        ran = registry.run("delete", key, ACKNOWLEDGED, "--yes", *registry.common())
    registry.refused(ran, f"{key} is a prefix or a pattern, not a key", hint="base64:")


# Confirmation.


def test_without_terminal_and_without_yes(registry: Registry) -> None:
    with registry.untouched():
        ran = registry.delete(registry.key("shop/broken"), yes=False)
    registry.refused(ran, "was not typed back; nothing was changed", hint="or give --yes in a script")


@pytest.mark.parametrize(
    "typed",
    ["yes", "", "/registry/secrets/shop", "/registry/secrets/shop/broke", "/registry/secrets/shop/brokenn"],
)
def test_something_else_typed(registry: Registry, monkeypatch: pytest.MonkeyPatch, typed: str) -> None:
    with registry.untouched(), typing(monkeypatch, typed):
        ran = registry.delete(registry.key("shop/broken"), yes=False)
    assert ran.code == 4
    assert "was not typed back; nothing was changed" in ran.err
    assert not registry.log.exists()


def test_key_typed_back(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    key = registry.key("shop/broken")
    with typing(monkeypatch, key.decode()):
        ran = registry.delete(key, yes=False)
    assert ran.code == 0, ran.err
    assert f"Type the key in full to go on:\n  {key.decode()}" in ran.err


# Where backup and record go.


def test_backup_directory_missing(registry: Registry) -> None:
    registry.backups.rmdir()
    with registry.untouched():
        ran = registry.delete(registry.key("shop/broken"))
    registry.refused(ran, f"directory {registry.backups} does not exist", hint="make it, with mode 0700")


def test_backup_directory_full(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    real = durable.write_fully

    def full(descriptor: int, data: bytes) -> None:
        if b"etcdfix.backup" in data[:40] or len(data) == 4096:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(descriptor, data)

    monkeypatch.setattr(durable, "write_fully", full)
    for dry_run in ((), ("--dry-run",)):
        with registry.untouched():
            ran = registry.delete(registry.key("shop/broken"), *dry_run)
        registry.refused(ran, str(registry.backups), "No space left on device")
    assert not registry.log.exists() or registry.events() == []


def test_backup_directory_read_only(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.open

    def read_only(path: Any, flags: int, *rest: Any, **keywords: Any) -> int:
        if flags & os.O_CREAT and str(path).endswith((".json", ".unconfirmed")):
            raise OSError(errno.EROFS, "Read-only file system")
        return real(path, flags, *rest, **keywords)

    monkeypatch.setattr(os, "open", read_only)
    with registry.untouched():
        ran = registry.delete(registry.key("shop/broken"))
    registry.refused(ran, str(registry.backups), "Read-only file system")


def test_backup_directory_of_somebody_else(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    _belongs_to_somebody_else(monkeypatch, registry.backups)
    for dry_run in ((), ("--dry-run",)):
        with registry.untouched():
            ran = registry.delete(registry.key("shop/broken"), *dry_run)
        registry.refused(
            ran,
            f"directory {registry.backups} belongs to uid {os.geteuid() + 1}, expected {os.geteuid()}",
            hint="choose a directory of your own",
        )


def _belongs_to_somebody_else(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    """Let the system say so: only root can give a file away."""
    real, inode = os.fstat, path.stat().st_ino

    def fstat(descriptor: int) -> os.stat_result:
        found = list(real(descriptor))
        if found[1] == inode:
            found[4] = os.geteuid() + 1
        return os.stat_result(found)

    monkeypatch.setattr(os, "fstat", fstat)


@pytest.mark.parametrize("dry_run", [(), ("--dry-run",)])
def test_backup_directory_is_a_link(registry: Registry, dry_run: tuple[str, ...]) -> None:
    link = registry.folder / "link"
    link.symlink_to(own_directory(registry.folder / "target"))
    key = registry.key("shop/broken").decode()
    with registry.untouched():
        ran = registry.run(
            "delete", key, ACKNOWLEDGED, "--yes", *dry_run, *registry.common(places=False),
            "--backup-dir", str(link), "--audit-log", str(registry.log),
        )  # fmt: skip
    registry.refused(ran, "link is a symbolic link or no directory", hint="name the directory itself")
    assert list((registry.folder / "target").iterdir()) == []


def test_backup_directory_that_others_may_write_to(registry: Registry) -> None:
    registry.backups.chmod(0o770)
    with registry.untouched():
        ran = registry.delete(registry.key("shop/broken"))
    registry.refused(ran, "has mode 0770: others may write to it", hint=f"chmod go-w {registry.backups}")
    registry.backups.chmod(0o1777)  # as /tmp
    with registry.untouched():
        ran = registry.delete(registry.key("shop/broken"))
    registry.refused(ran, "has mode 1777: others may write to it", hint="choose a directory of your own")


def _state(registry: Registry, monkeypatch: pytest.MonkeyPatch, *, kind: str) -> Path:
    """Let the default directory lie on a file system of this kind."""
    state = own_directory(registry.folder / "state")
    for module in ("etcdfix.remediation.places", "etcdfix.remediation.durable"):
        monkeypatch.setattr(f"{module}.default_directory", lambda: state / "etcdfix")
    monkeypatch.setattr(
        "etcdfix.remediation.places.default_audit_log", lambda: state / "etcdfix" / "audit.jsonl"
    )
    monkeypatch.setattr(places_module, "filesystem_kind", lambda _path: Filesystem(kind, "none", "/"))
    return state / "etcdfix"


def test_default_directory_that_would_not_last(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    _state(registry, monkeypatch, kind="tmpfs")
    with registry.untouched():
        ran = registry.delete(registry.key("shop/broken"), places=False)
    registry.refused(
        ran,
        "is on tmpfs",
        hint="name a directory on a disk: --backup-dir DIR --audit-log FILE",
    )
    with registry.untouched():
        ran = registry.run(
            "delete", registry.key("shop/broken").decode(), ACKNOWLEDGED, "--yes",
            *registry.common(places=False), "--audit-log", str(registry.log),
        )  # fmt: skip
    registry.refused(ran, "is on tmpfs", hint="--backup-dir DIR")


def test_named_directory_that_would_not_last_is_warned_of(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places_module, "filesystem_kind", lambda _path: Filesystem("tmpfs", "none", "/"))
    ran = registry.delete(registry.key("shop/broken"))
    assert ran.code == 0, ran.err
    assert (ran.out + ran.err).count(f"{registry.backups} is on tmpfs") == 1


def test_default_directory(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    state = _state(registry, monkeypatch, kind="ext4")
    ran = registry.delete(registry.key("shop/broken"), places=False)
    assert ran.code == 0, ran.err
    assert f"Backup  {state}/" in ran.out
    assert f"Audit log  {state / 'audit.jsonl'}\nHead  2:" in ran.out
    assert (state.stat().st_mode & 0o777) == 0o700


def test_audit_log_broken(registry: Registry) -> None:
    registry.deleted()
    registry.log.write_bytes(registry.log.read_bytes().replace(b"its key is lost", b"its key was old", 1))
    key = registry.put("shop/second", BROKEN)
    for dry_run in ((), ("--dry-run",)):
        with registry.untouched():
            ran = registry.delete(key, *dry_run)
        registry.refused(ran, f"audit log {registry.log}", hint="etcdfix audit verify shows all of it")


def test_audit_log_of_somebody_else(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    registry.deleted()
    key = registry.put("shop/second", BROKEN)
    _belongs_to_somebody_else(monkeypatch, registry.log)
    with registry.untouched():
        ran = registry.delete(key)
    registry.refused(
        ran, f"audit log {registry.log} belongs to uid {os.geteuid() + 1}", hint="choose a file of your own"
    )


def test_audit_log_that_others_may_write_to(registry: Registry) -> None:
    registry.deleted()
    registry.log.chmod(0o620)
    key = registry.put("shop/second", BROKEN)
    with registry.untouched():
        ran = registry.delete(key)
    registry.refused(ran, "has mode 0620", hint="choose a file of your own")


def test_audit_log_is_a_link(registry: Registry) -> None:
    target = registry.folder / "elsewhere.jsonl"
    target.touch(mode=0o600)
    registry.log.symlink_to(target)
    with registry.untouched():
        ran = registry.delete(registry.key("shop/broken"))
    registry.refused(ran, f"audit log {registry.log}: Too many levels of symbolic links")
    assert target.read_bytes() == b""


def test_audit_log_held_by_another_process(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    registry.deleted()
    real = audit_verify.lock
    monkeypatch.setattr(
        audit_module, "lock", lambda descriptor, kind, **_: real(descriptor, kind, wait_seconds=0.0)
    )
    key = registry.put("shop/second", BROKEN)
    with registry.log.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with registry.untouched():
            ran = registry.delete(key)
    registry.refused(ran, "another process holds it", hint="wait for it to finish")


# What becomes of the transaction.


@pytest.fixture
def lossy(registry: Registry) -> Iterator[LossyProxy]:
    with LossyProxy(registry.etcd.endpoint) as proxy:
        registry.endpoints = proxy.endpoint
        yield proxy


def test_answer_that_never_came(registry: Registry, lossy: LossyProxy) -> None:
    lossy.lost = {TXN}
    key = registry.key("shop/broken")
    ran = registry.delete(key)
    assert ran.code == 3
    assert f"APPLIED-OR-GONE: {key.decode()}: " in ran.out
    assert "deleted by this intent, or by somebody else" in ran.out
    assert registry.stored(key) is None
    assert lossy.calls.count(TXN) == 1
    assert "Settle it" not in ran.out  # it is settled: the key is gone
    assert "Next: Undo\n  etcdfix restore" in ran.out


def test_request_that_never_arrived(registry: Registry) -> None:
    with EtcdProxy(
        registry.etcd.endpoint, before=lambda path, _: NO_LEADER if path == TXN else None
    ) as proxy:
        registry.endpoints = proxy.endpoint
        before = registry.etcd.revision()
        ran = registry.delete(registry.key("shop/broken"))
    assert ran.code == 3
    assert "NOT-APPLIED: " in ran.out
    assert registry.etcd.revision() == before
    assert "Settle it" not in ran.out


def test_nobody_answers_afterwards_either(registry: Registry, lossy: LossyProxy) -> None:
    dead: list[str] = []

    def before(path: str, _request: bytes) -> Any:
        if path == TXN:
            dead.append(path)
        return NO_LEADER if dead and path != TXN else None

    lossy.before = before
    lossy.lost = {TXN}
    ran = registry.delete(registry.key("shop/broken"), "--command-timeout", "1s")
    assert ran.code == 3
    assert "UNKNOWN: " in ran.out
    assert "Settle it when etcd answers again\n  etcdfix audit reconcile" in ran.out
    assert f"--etcd-prefix {registry.prefix}" in ran.out
    assert verify(registry.log).open_intents.keys() == {1}


def test_key_is_written_between_examination_and_deletion(registry: Registry) -> None:
    key = registry.key("shop/broken")
    fixed: list[int] = []

    def before(path: str, _request: bytes) -> None:
        if path == TXN and not fixed:
            fixed.append(registry.etcd.put(key, aescbc(secret("broken"))))

    with EtcdProxy(registry.etcd.endpoint, before=before) as proxy:
        registry.endpoints = proxy.endpoint
        ran = registry.delete(key)
    registry.refused(
        ran,
        f"the key was written again: mod_revision {fixed[0]}",
        "nothing was changed",
        hint="examine it again",
    )
    assert registry.stored(key) == aescbc(secret("broken"))
    assert registry.events()[-1].annotations.outcome == "refused"


def test_reason_user_and_endpoint_stand_in_the_records(registry: Registry) -> None:
    key = registry.key("shop/broken")
    assert registry.delete(key).code == 0
    content = registry.kept()[0].content
    assert (content.reason, content.purpose) == ("its key is lost", "delete")
    assert content.cluster.endpoints == (registry.endpoints,)
    assert content.cluster.kube_system_uid == UID
    assert content.operator.host == registry.events()[0].annotations.host != ""


def test_the_preview_says_where_everything_was_named(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At night nobody remembers what was exported."""
    monkeypatch.setenv("ETCDFIX_ENCRYPTION_CONFIG", str(registry.config))
    ran = registry.delete(registry.key("shop/broken"), "--dry-run", configured=False)
    assert ran.code == 0, ran.err
    assert "Named by  endpoints: --endpoints; " in ran.err
    assert "configuration: variable ETCDFIX_ENCRYPTION_CONFIG" in ran.err
