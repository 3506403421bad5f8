"""Stored objects for tests of the whole spine: written by hand, plain or encrypted."""

from __future__ import annotations

import base64
import json
from typing import Any

from etcdfix.encryption.config import parse_configuration
from etcdfix.encryption.config_model import EncryptionConfiguration
from etcdfix.testing import objects as stored_objects
from etcdfix.testing.protobytes import block, object_meta, unknown
from tests.support.encoders import aescbc_body, aesgcm_body

# Test keys: they protect nothing.
KEY_1, KEY_2 = b"0123456789abcdef", b"fedcba9876543210"
NONCE, IV = b"n" * 12, b"i" * 16
# In the form that an API server gives it, by which a look without tag or padding knows it.
UID = b"11111111-2222-3333-4444-555555555555"
KUBE_SYSTEM_UID = "99999999-8888-7777-6666-555555555555"
TWO_RULES = b"""
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers: [{aesgcm: {keys: [{name: key1, secret: MDEyMzQ1Njc4OWFiY2RlZg==}]}}]
- resources: [configmaps]
  providers: [{aesgcm: {keys: [{name: key1, secret: ZmVkY2JhOTg3NjU0MzIxMA==}]}}]
"""
"""One name of a key in two rules, with other bytes in each."""


def secret(name: str = "web", namespace: str = "shop") -> bytes:
    """Return a v1 Secret as protobuf; its data must never be seen in any output."""
    data = {"password": b"never-to-be-shown"}
    return stored_objects.secret(name, namespace, data, type="", uid=UID.decode())


def config_map(name: str = "settings", namespace: str = "shop") -> bytes:
    """Return a v1 ConfigMap as protobuf."""
    return stored_objects.config_map(name, namespace, uid=UID.decode())


def namespace_object(name: str, uid: str = KUBE_SYSTEM_UID) -> bytes:
    """Return a v1 Namespace as protobuf."""
    return unknown(b"v1", b"Namespace", block(1, object_meta(name.encode(), b"", uid.encode())))


def allocation() -> bytes:
    """Return a RangeAllocation as protobuf."""
    message = block(1, object_meta(b"")) + block(2, b"30000-32767") + block(3, b"\x01\x02")
    return unknown(b"v1", b"RangeAllocation", message)


def crd(
    plural: str = "widgets",
    group: str = "example.com",
    *,
    kind: str = "Widget",
    scope: str = "Namespaced",
    more_versions: tuple[str, ...] = (),
    short_names: tuple[str, ...] = (),
) -> bytes:
    """Return a CustomResourceDefinition as an API server stores it; v1 is the version that it stores."""
    versions = [{"name": "v1", "served": True, "storage": True}]
    versions += [{"name": version, "served": True, "storage": False} for version in more_versions]
    return json_object(
        "apiextensions.k8s.io/v1beta1",
        "CustomResourceDefinition",
        f"{plural}.{group}",
        "",
        spec={
            "group": group,
            "version": "v1",
            "versions": versions,
            "names": {
                "plural": plural,
                "kind": kind,
                "singular": kind.lower(),
                "listKind": f"{kind}List",
                **({"shortNames": list(short_names)} if short_names else {}),
            },
            "scope": scope,
        },
        status={
            "storedVersions": ["v1"],
            "acceptedNames": {"plural": plural, "kind": kind},
            "conditions": None,
        },
    )


def json_object(
    api_version: str,
    kind: str,
    name: str,
    namespace: str = "shop",
    *,
    more_metadata: dict[str, Any] | None = None,
    **fields: Any,
) -> bytes:
    metadata = {"name": name, "uid": UID.decode()} | ({"namespace": namespace} if namespace else {})
    metadata |= more_metadata or {}
    return json.dumps({"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}).encode()


def widget(name: str = "w-0", namespace: str = "shop", kind: str = "Widget") -> bytes:
    """Return a custom resource as JSON."""
    return json_object("example.com/v1", kind, name, namespace, spec={"size": 1})


def aescbc(plaintext: bytes, key: bytes = KEY_1, name: str = "key1") -> bytes:
    """Return a value as an aescbc provider writes it."""
    return f"k8s:enc:aescbc:v1:{name}:".encode() + aescbc_body(plaintext, key, IV)


def aesgcm(plaintext: bytes, etcd_key: str, key: bytes = KEY_1, name: str = "key1") -> bytes:
    """Return a value as an aesgcm provider writes it under an etcd key."""
    return f"k8s:enc:aesgcm:v1:{name}:".encode() + aesgcm_body(plaintext, key, NONCE, etcd_key.encode())


def configuration(
    *providers: dict[str, Any], resources: tuple[str, ...] = ("secrets",)
) -> EncryptionConfiguration:
    """Return an EncryptionConfiguration with one rule."""
    return parse_configuration(configuration_yaml(*providers, resources=resources), path="config.yaml")


def configuration_yaml(*providers: dict[str, Any], resources: tuple[str, ...] = ("secrets",)) -> bytes:
    """Return the file of such a configuration."""
    return configuration_of_rules((resources, providers))


def configuration_of_rules(*rules: tuple[tuple[str, ...], tuple[dict[str, Any], ...]]) -> bytes:
    """Return the file of a configuration with several rules: resources and providers of each."""
    return json.dumps(
        {
            "apiVersion": "apiserver.config.k8s.io/v1",
            "kind": "EncryptionConfiguration",
            "resources": [{"resources": list(r), "providers": list(p)} for r, p in rules],
        }
    ).encode()


def provider(kind: str, **keys: bytes) -> dict[str, Any]:
    """Return one keyed provider of a configuration: ``provider("aescbc", key1=...)``."""
    return {kind: {"keys": [{"name": n, "secret": base64.b64encode(k).decode()} for n, k in keys.items()]}}


IDENTITY: dict[str, Any] = {"identity": {}}
KMS_V2: dict[str, Any] = {"kms": {"apiVersion": "v2", "name": "prov", "endpoint": "unix:///run/kms.sock"}}
