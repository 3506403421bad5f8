"""Writes bootstrap data the way k3s and RKE2 do, without using the code that reads it.

PBKDF2 and GCM go through other interfaces of the library than in ``etcdfix.encryption``, JSON through another one.

Sources: k3s ``pkg/cluster/encrypt.go``, ``pkg/bootstrap/bootstrap.go``, ``pkg/secretsencrypt/config.go``.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.kdf.pbkdf2 import PBKDF2HMAC

PASSWORD = "correct-horse-battery"
TOKEN = f"K10{'ab' * 32}::server:{PASSWORD}"
CA_KEY = b"-----BEGIN EC PRIVATE KEY-----\nPRIVATE-KEY-OF-THE-CA\n-----END EC PRIVATE KEY-----\n"
"""Stands in everything that :func:`files` returns, and in no output."""

FILE_TIME = "2026-05-12T18:43:18.123456789+02:00"


def path(token: str = PASSWORD) -> str:
    """Return the etcd key of the data under a token."""
    return "/bootstrap/" + hashlib.sha256(token.encode()).hexdigest()[:12]


def seal(
    plaintext: bytes, token: str = PASSWORD, *, salt: str = "0123456789abcdef", nonce: bytes = b"n" * 12
) -> bytes:
    """Encrypt as a server does."""
    derive = PBKDF2HMAC(algorithm=hashes.SHA1(), length=32, salt=salt.encode(), iterations=4096)
    encryptor = Cipher(algorithms.AES(derive.derive(token.encode())), modes.GCM(nonce)).encryptor()
    sealed = nonce + encryptor.update(plaintext) + encryptor.finalize() + encryptor.tag
    return salt.encode() + b":" + base64.b64encode(sealed)


def key_element(called: str, key: bytes) -> dict[str, str]:
    return {"name": called, "secret": base64.b64encode(key).decode()}


def encryption_config(*providers: Mapping[str, Any]) -> bytes:
    """Return the file of a server: JSON without spaces, of Secrets alone."""
    rule = {"resources": ["secrets"], "providers": list(providers)}
    document = {
        "kind": "EncryptionConfiguration",
        "apiVersion": "apiserver.config.k8s.io/v1",
        "resources": [rule],
    }
    return json.dumps(document, separators=(",", ":")).encode()


def aescbc_config(*keys: tuple[str, bytes]) -> bytes:
    """Return the file of a server that encrypts with AES-CBC."""
    return encryption_config({"aescbc": {"keys": [key_element(*key) for key in keys]}}, {"identity": {}})


def stage_line(config: bytes, stage: str = "start") -> bytes:
    """Return what the server says about a file, in its own file and on its Node."""
    return f"{stage}-{hashlib.sha256(config).hexdigest()}".encode()


def files(config: bytes | None, *, stage: str = "start", old_form: bool = False) -> bytes:
    """Return the plaintext: the files of a server, with the keys of its CAs."""
    contents = {"ServerCAKey": CA_KEY, "ServiceKey": CA_KEY, "IPSECKey": b"0" * 48}
    if config is not None:
        contents |= {"EncryptionConfig": config, "EncryptionHash": stage_line(config, stage)}
    encoded = {name: base64.b64encode(content).decode() for name, content in contents.items()}
    if old_form:
        return (json.dumps(encoded) + "\n").encode()
    whole = {name: {"Timestamp": FILE_TIME, "Content": content} for name, content in encoded.items()}
    return (json.dumps(whole) + "\n").encode()


def bootstrap(
    config: bytes | None, token: str = PASSWORD, *, stage: str = "start", old_form: bool = False
) -> bytes:
    """Return a value as a server writes it."""
    return seal(files(config, stage=stage, old_form=old_form), token)
