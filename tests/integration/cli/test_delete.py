"""``etcdfix delete`` against a real etcd: deletions, and every refusal with its words and its next step."""

from __future__ import annotations

import base64

import pytest

from etcdfix.model.model import digest_of
from etcdfix.remediation.audit.record import RecordType
from etcdfix.remediation.audit.verify import ChainState, verify
from tests.support.change_runs import BROKEN, UID, Registry, holds, typing
from tests.support.fixtures import Patch
from tests.support.kubernetes_api import (
    ACCESS_REVIEW,
    KUBE_SYSTEM,
    TOKEN,
    KubernetesAPI,
    status_answer,
)
from tests.support.objects import IDENTITY, KEY_1, KEY_2, aescbc, aesgcm, provider, secret

pytestmark = [pytest.mark.etcd, pytest.mark.usefixtures("no_variables")]


def test_deletion(registry: Registry) -> None:
    key = registry.key("shop/broken")
    mod_revision, before = registry.mod_revision(key), registry.etcd.revision()
    ran = registry.delete(key)
    assert ran.code == 0
    assert registry.stored(key) is None
    assert registry.etcd.revision() == before + 1
    assert f"28 bytes, mod_revision {mod_revision}, " in ran.err
    assert "decrypt-failure, value-truncated (certain)" in ran.err
    assert f"kube-system uid {UID}" in ran.err
    assert len(ran.err.splitlines()) <= 30
    head = registry.log.with_name("audit.jsonl.head").read_text().strip()
    assert f"DELETED {key.decode()} at revision {before + 1}." in ran.out
    assert f"Head  {head}\n" in ran.out
    assert f"Backup  {registry.kept()[0].path}" in ran.out
    intent, outcome = registry.records()
    assert (intent.type, outcome.type) == ("intent", "outcome")
    assert outcome.outcome == "deleted"
    assert intent.reason == "its key is lost"
    assert intent.operator.authorization == "none"
    assert verify(registry.log).state is ChainState.WHOLE


def test_backup_holds_the_stored_bytes_and_nothing_that_was_decrypted(registry: Registry) -> None:
    # Right key and damaged inside: it decrypts, and what comes out is no object.
    damaged = aescbc(secret("odd")[:-3])
    key = registry.put("shop/odd", damaged)
    assert registry.delete(key).code == 0
    backup = registry.kept()[0]
    assert (backup.content.stored.value, backup.content.stored_as_plaintext) == (damaged, False)
    assert backup.content.verdict.outcome == "decode-failure"
    assert holds(b'"%s"' % base64.b64encode(b"xy" + secret("odd")))  # the search itself works
    for path in (backup.path, registry.log):
        assert not holds(path.read_bytes())


def test_dry_run_changes_nothing_and_is_recorded(registry: Registry) -> None:
    key = registry.key("shop/broken")
    with registry.untouched():
        ran = registry.delete(key, "--dry-run", yes=False)
    assert ran.code == 0
    assert f"DRY RUN: {key.decode()} would be deleted. Nothing was changed." in ran.out
    assert "Undo" not in ran.out
    assert "\nLess destructive\n" in ran.err
    (event,) = registry.records()
    assert event.type == RecordType.DRY_RUN
    assert event.value_sha256 == digest_of(BROKEN)


def test_declared_key_is_typed_back_at_terminal_even_with_yes(registry: Registry, monkeypatch: Patch) -> None:
    registry.configure(provider("aescbc", key1=KEY_1), provider("aesgcm", gone=KEY_1), IDENTITY)
    key = registry.key("shop/lost")
    registry.etcd.put(key, aesgcm(secret("lost"), key.decode(), KEY_2, "gone"))
    words = ("ends-cached-reads", "no-api-server")
    declared = [f"--accept={word}" for word in words] + ["--declare-key-lost=aesgcm/v1/gone"]
    with registry.untouched(), typing(monkeypatch, "yes"):
        ran = registry.delete(key, *declared)
    assert ran.code == 4
    with typing(monkeypatch, "aesgcm/v1/gone"):
        ran = registry.delete(key, *declared)
    assert ran.code == 0, ran.err


def test_allowed(registry: Registry, api: KubernetesAPI) -> None:
    kubeconfig = api.kubeconfig(registry.folder)
    ran = registry.delete(registry.key("shop/broken"), "--kubeconfig", str(kubeconfig), "--context", "here")
    assert ran.code == 0, ran.err
    assert f"Allowed by  {api.url}, for alice@example.org" in ran.err
    assert TOKEN not in ran.out + ran.err
    asked = [r.body["spec"]["resourceAttributes"] for r in api.requests if r.path == ACCESS_REVIEW]
    assert [a["verb"] for a in asked] == ["unsafe-delete-ignore-read-errors", "delete"]
    assert all((a["resource"], a["namespace"], a["name"]) == ("secrets", "shop", "broken") for a in asked)
    intent = registry.records()[0]
    assert (intent.operator.authorization, intent.operator.api_user) == ("allowed", "alice@example.org")


def test_nobody_answers(registry: Registry, api: KubernetesAPI) -> None:
    """No server that knows the user is as good as no kubeconfig: the flag says so, and nothing else does."""
    broken, kubeconfig = registry.key("shop/broken"), str(api.kubeconfig(registry.folder))
    for path in (KUBE_SYSTEM, "/api/v1/namespaces/shop/secrets/broken"):
        api.instead[path] = status_answer(401)
    with registry.untouched():
        ran = registry.delete(broken, "--kubeconfig", kubeconfig)
    registry.refused(ran, "no API server could say whether it reads", hint="--accept no-api-server")
    ran = registry.delete(broken, "--kubeconfig", kubeconfig, "--accept", "no-api-server")
    assert ran.code == 0, ran.err
    intent = registry.records()[0]
    assert (intent.operator.authorization, intent.accepted) == ("none", ("--accept no-api-server",))


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
        ran, f"the API server at {api.url} reads secrets shop/broken", hint="--encryption-provider-config"
    )


def test_audit_log_broken(registry: Registry) -> None:
    registry.deleted()
    registry.log.write_bytes(registry.log.read_bytes().replace(b"its key is lost", b"its key was old", 1))
    key = registry.put("shop/second", BROKEN)
    for dry_run in ((), ("--dry-run",)):
        with registry.untouched():
            ran = registry.delete(key, *dry_run)
        registry.refused(ran, f"audit log {registry.log}", hint="etcdfix log verify shows all of it")
