"""Golden values of kube-apiserver: opened by our code, and written again by code that shares nothing with it."""

from __future__ import annotations

import hashlib
import tomllib
from pathlib import Path
from typing import Any

import pytest

from etcdfix.encryption.config import parse_configuration
from etcdfix.encryption.keyring import fingerprint
from etcdfix.encryption.kms.envelopes import Failure, WrappedKey
from etcdfix.encryption.transformer import ResourceTransformers, Transformers
from etcdfix.model.model import GroupResource, Plaintext
from tests.support import encoders
from tests.support.played_plugins import OneAnswer

FOLDER = Path(__file__).parents[2] / "fixtures" / "vectors" / "encryption"
MANIFEST = tomllib.loads((FOLDER / "MANIFEST.toml").read_text())
VECTORS: dict[str, dict[str, Any]] = {v["file"].removesuffix(".hex"): v for v in MANIFEST["vector"]}
PLAINTEXT: bytes = MANIFEST["plaintext"].encode()
ETCD_KEY: bytes = MANIFEST["etcd_key"].encode()
LOCAL = ["aescbc", "aesgcm", "secretbox"]
KMS = ["kms-v1-gcm", "kms-v2-key", "kms-v2-seed"]

CONFIGURATION = b"""
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers:
  - aescbc: {keys: [{name: key1, secret: AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=}]}
  - aesgcm: {keys: [{name: key1, secret: AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=}]}
  - secretbox: {keys: [{name: key1, secret: AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=}]}
"""


class RecordedPlugin(OneAnswer):
    """Knows one wrapped key, the one in the manifest."""

    def __init__(self, vector: dict[str, Any], *, write_key_id: str = "key-id-1") -> None:
        super().__init__(bytes.fromhex(vector["unwrapped"]), write_key_id=write_key_id)
        self.questions: list[WrappedKey] = []

    def unwrap(self, wrapped: WrappedKey) -> bytes | Failure:
        self.questions.append(wrapped)
        return super().unwrap(wrapped)


def stored(name: str) -> bytes:
    return bytes.fromhex((FOLDER / f"{name}.hex").read_text())


def everywhere(name: str, plugin: RecordedPlugin | None) -> Transformers:
    version = "v1" if name == "kms-v1-gcm" else "v2"
    configuration = parse_configuration(
        f"""
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers:
  - kms: {{apiVersion: {version}, name: prov, endpoint: "unix:///run/kms.sock"}}
""".encode(),
        path="test",
    )
    return Transformers.from_configuration(configuration, lambda _: plugin)


def transformers_for(name: str, plugin: RecordedPlugin | None) -> ResourceTransformers:
    return everywhere(name, plugin).for_resource(GroupResource("", "secrets"))


def test_every_file_is_in_the_manifest() -> None:
    assert {path.stem for path in FOLDER.glob("*.hex")} == set(VECTORS)
    assert set(VECTORS) == {*LOCAL, *KMS}
    for name, vector in VECTORS.items():
        assert hashlib.sha256(stored(name)).hexdigest() == vector["sha256"], name


@pytest.mark.parametrize("name", LOCAL)
def test_local_ciphers_open_it(name: str) -> None:
    transformers = Transformers.from_configuration(parse_configuration(CONFIGURATION, path="test"))
    secrets = transformers.for_resource(GroupResource("", "secrets"))
    expected = Plaintext(
        PLAINTEXT,
        VECTORS[name]["transformer"],
        stale=name != "aescbc",
        key_fingerprint=fingerprint(bytes(range(32))),
        authenticated=name != "aescbc",
    )
    assert secrets.from_storage(stored(name), ETCD_KEY) == expected
    assert secrets.read(stored(name), ETCD_KEY) == expected


@pytest.mark.parametrize("name", KMS)
def test_kms_values_open_once_there_is_a_plugin(name: str) -> None:
    vector = VECTORS[name]
    plugin = RecordedPlugin(vector)
    plaintext = transformers_for(name, plugin).from_storage(stored(name), ETCD_KEY)
    # Servers write seeds since 1.29, so a plain key is an old form.
    assert plaintext == Plaintext(
        PLAINTEXT, vector["transformer"], name == "kms-v2-key", vector.get("key_id", "")
    )
    (asked,) = plugin.questions
    assert asked.ciphertext == vector["wrapped_dek"].encode()
    assert asked.key_id == vector.get("key_id", "")
    assert dict(asked.annotations) == {k: v.encode() for k, v in vector.get("annotations", {}).items()}


def _written_again(name: str, vector: dict[str, Any]) -> bytes:
    def raw(field: str) -> bytes:
        return bytes.fromhex(vector[field])

    match name:
        case "aescbc":
            return encoders.aescbc_body(PLAINTEXT, raw("key"), raw("iv"))
        case "aesgcm":
            return encoders.aesgcm_body(PLAINTEXT, raw("key"), raw("nonce"), ETCD_KEY)
        case "secretbox":
            return encoders.secretbox_body(PLAINTEXT, raw("key"), raw("nonce"))
        case "kms-v1-gcm":
            data = encoders.aesgcm_body(PLAINTEXT, raw("unwrapped"), raw("nonce"), ETCD_KEY)
            return encoders.kms_v1_body(vector["wrapped_dek"].encode(), data)
        case "kms-v2-key":
            data = encoders.aesgcm_body(PLAINTEXT, raw("unwrapped"), raw("nonce"), ETCD_KEY)
        case _:
            data = encoders.kms_v2_seeded_data(
                PLAINTEXT, raw("unwrapped"), raw("info"), raw("nonce"), ETCD_KEY
            )
    return encoders.kms_v2_body(
        data,
        key_id=vector["key_id"],
        dek_source=vector["wrapped_dek"].encode(),
        annotations={name: value.encode() for name, value in vector["annotations"].items()},
        source_type=vector["source_type"],
    )


@pytest.mark.parametrize("name", VECTORS)
def test_the_independent_encoder_writes_the_same_bytes(name: str) -> None:
    vector = VECTORS[name]
    prefix = f"k8s:enc:{vector['transformer'].replace('/', ':')}:".encode()
    assert prefix + _written_again(name, vector) == stored(name)
