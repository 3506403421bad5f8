"""Every value of the alpha snapshot, opened or refused exactly as the real API server did.

Its two KMS plugins are played by the key files next to the snapshot, so that the KMS formats are held
against the server's verdict as well.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from etcdfix.encryption.config import load_configuration
from etcdfix.encryption.config_model import KMSProvider
from etcdfix.encryption.kms.envelopes import Failure, WrappedKey
from etcdfix.encryption.transformer import Transformers, TransformFailed
from etcdfix.model.model import FailureReason, GroupResource
from etcdfix.sources.snapshot import SnapshotSource
from tests.support.played_plugins import OneAnswer

ALPHA = Path(__file__).parents[2] / "fixtures" / "snapshots" / "alpha"
ORACLE: dict[str, Any] = json.loads((ALPHA / "oracle.json").read_text())
TODAY = {"lost-key2-and-kmsv1": "config-lost.yaml", "same-name-other-secret": "config-rotated.yaml"}
RESOURCES = {
    "deployments": GroupResource("apps", "deployments"),
    "example.com": GroupResource("example.com", "widgets"),
    "leases": GroupResource("coordination.k8s.io", "leases"),
}


class PlayedPlugin(OneAnswer):
    """Answers like the plugins that stood beside the real API server (see the README of alpha)."""

    def __init__(self, key_file: str) -> None:
        super().__init__(b"")
        lines = (ALPHA / key_file).read_text().splitlines()
        self._keys = {name: bytes.fromhex(key) for name, key in (line.split() for line in lines)}

    def key_of(self, wrapped: WrappedKey) -> bytes | Failure:
        key_id, ciphertext, missing = wrapped.key_id, wrapped.ciphertext, f"key {wrapped.key_id} not found"
        if wrapped.api_version == "v1":
            name, _, ciphertext = ciphertext.partition(b":")
            key_id, missing = name.decode(errors="replace"), "key not found"
        if key_id not in self._keys:
            return Failure("NOT_FOUND", f"rpc error: code = NotFound desc = {missing}")
        try:
            return AESGCM(self._keys[key_id]).decrypt(ciphertext[:12], ciphertext[12:], None)
        except InvalidTag:
            message = "rpc error: code = InvalidArgument desc = ciphertext rejected"
            return Failure("INVALID_ARGUMENT", message)


PLUGINS = {"kmsnew": "kms1.keys", "kmsold": "kms2.keys"}


@pytest.fixture(scope="module")
def values() -> dict[bytes, bytes]:
    with SnapshotSource(ALPHA / "snapshot.db.gz") as source:
        return {stored.key: stored.value for stored in source.current(b"/registry/")}


def resource_of(key: bytes) -> GroupResource:
    directory = key.decode().split("/")[2]
    return RESOURCES.get(directory, GroupResource("", directory))


def failures(transformers: Transformers, values: dict[bytes, bytes]) -> dict[bytes, TransformFailed]:
    found = {}
    for key, value in values.items():
        try:
            transformers.for_resource(resource_of(key)).from_storage(value, key)
        except TransformFailed as failure:
            found[key] = failure
    return found


@pytest.mark.parametrize("verdict", TODAY)
def test_same_values_refused_with_the_same_message(verdict: str, values: dict[bytes, bytes]) -> None:
    def plugin_for(provider: KMSProvider) -> PlayedPlugin:
        return PlayedPlugin(PLUGINS[provider.name])

    transformers = Transformers.from_configuration(load_configuration(ALPHA / TODAY[verdict]), plugin_for)
    refused = failures(transformers, values)
    assert not any(failure.failure.reason is FailureReason.KMS_UNREACHABLE for failure in refused.values())
    class_text = "data from the storage is not transformable revision=0: "
    by_server = {
        key: message.partition(class_text)[2]
        for listed in ORACLE["verdicts"][verdict].values()
        for key, message in (listed.get("corrupt") or {}).items()
        if class_text in message
    }
    assert len(by_server) >= 39
    assert {key.decode(): failure.message for key, failure in refused.items()} == by_server


@pytest.mark.parametrize("verdict", TODAY)
def test_without_plugins_only_kms_values_become_undetermined(
    verdict: str, values: dict[bytes, bytes]
) -> None:
    transformers = Transformers.from_configuration(load_configuration(ALPHA / TODAY[verdict]))
    configured = {"config-lost.yaml": (b"kms:v2:kmsnew:",)}.get(
        TODAY[verdict], (b"kms:v2:kmsnew:", b"kms:v1:kmsold:")
    )
    prefixes = tuple(b"k8s:enc:" + name for name in configured)
    undetermined = {
        key
        for key, failure in failures(transformers, values).items()
        if failure.failure.reason is FailureReason.KMS_UNREACHABLE
    }
    assert undetermined == {key for key, value in values.items() if value.startswith(prefixes)}
    assert len(undetermined) >= 8
