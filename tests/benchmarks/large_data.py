"""Large, realistic data for benchmarks: Secrets under two providers, plain Pods, as a server writes them.

The templates are values that a real kube-apiserver wrote (the healthy ones of ``fixtures/snapshots/alpha``);
each copy gets a name of its own, of the same length, so that every protobuf length stays true.
"""

from __future__ import annotations

import base64
import os
import random
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

from cryptography.hazmat.primitives import padding
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from etcdfix.encryption.config import load_configuration
from etcdfix.encryption.transformer import Transformers
from etcdfix.model.model import GroupResource
from etcdfix.sources.snapshot import SnapshotSource
from tests.support.bbolt_writer import BoltWriter, put

ALPHA = Path(__file__).parents[2] / "fixtures" / "snapshots" / "alpha" / "snapshot.db.gz"
GCM_KEY = bytes(range(32))
CBC_KEY = bytes(range(32, 64))
LOST_KEY = bytes(range(64, 96))
"""No configuration has it."""


class Damage(StrEnum):
    """What happened to the values."""

    NONE = "none"
    FLIPPED = "flipped"
    """The last byte of every value is another one."""
    LOST = "lost"
    """The configuration has other bytes under the names of all keys; Pods are under the same."""
    MIXED = "mixed"
    """Nine of ten are truncated, emptied, zeroed or overwritten; the others show that the encryption keys are right."""


def configuration(damage: Damage) -> str:
    lost = damage is Damage.LOST
    gcm_key, cbc_key = (
        base64.b64encode(key).decode() for key in ((CBC_KEY, LOST_KEY) if lost else (GCM_KEY, CBC_KEY))
    )
    return (
        "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n"
        f"- resources: {'[secrets, pods]' if lost else '[secrets]'}\n  providers:\n"
        f"  - aesgcm: {{keys: [{{name: gcm, secret: {gcm_key}}}]}}\n"
        f"{'' if lost else f'  - aescbc: {{keys: [{{name: cbc, secret: {cbc_key}}}]}}' + chr(10)}"
        "  - identity: {}\n"
    )


def templates() -> tuple[list[tuple[bytes, bytes]], list[tuple[bytes, bytes]]]:
    transformers = Transformers.from_configuration(load_configuration(ALPHA.parent / "config-lost.yaml"))
    secrets = transformers.for_resource(GroupResource("", "secrets"))
    wanted = (b"pay/db-plain-0", b"infra/registry-plain-4", b"infra/db-gcm-11")
    with SnapshotSource(ALPHA) as source:
        chosen = [
            (value.key, secrets.from_storage(value.value, value.key).data)
            for value in source.current(b"/registry/secrets/")
            if value.key.endswith(wanted)
        ]
        pods = [
            (value.key, value.value)
            for value in source.current(b"/registry/pods/pay/")
            if value.key.endswith((b"dep-2-abc-0", b"dep-2-abc-1", b"dep-3-abc-0"))
        ]
    assert len(chosen) == len(wanted)
    assert len(pods) == 3
    return chosen, pods


def renamed(template: tuple[bytes, bytes], number: int) -> tuple[bytes, bytes]:
    key, value = template
    name = key.rpartition(b"/")[2]
    new = (b"%x" % number).rjust(len(name), b"n")
    return key[: -len(name)] + new, value.replace(
        b"\n" + bytes([len(name)]) + name, b"\n" + bytes([len(name)]) + new
    )


def gcm(key: bytes, plaintext: bytes) -> bytes:
    nonce = os.urandom(12)
    return b"k8s:enc:aesgcm:v1:gcm:" + nonce + AESGCM(GCM_KEY).encrypt(nonce, plaintext, key)


def cbc(plaintext: bytes) -> bytes:
    iv = os.urandom(16)
    padder = padding.PKCS7(128).padder()
    padded = padder.update(plaintext) + padder.finalize()
    encryptor = Cipher(algorithms.AES(CBC_KEY), modes.CBC(iv)).encryptor()
    return b"k8s:enc:aescbc:v1:cbc:" + iv + encryptor.update(padded) + encryptor.finalize()


def damaged(number: int, value: bytes, damage: Damage) -> bytes:
    if damage is Damage.FLIPPED:
        return value[:-1] + bytes([value[-1] ^ 0xFF])
    if damage is not Damage.MIXED or number % 100 >= 90:
        return value
    middle = len(value) // 2
    return (
        value[:-40],
        b"",
        bytes(len(value)),
        value[:middle] + bytes(24) + value[middle + 24 :],
        value[: middle + 1],
    )[number // 10 % 5]


def objects(count: int, damage: Damage = Damage.NONE) -> Iterator[tuple[bytes, bytes]]:
    secrets, pods = templates()
    numbers = list(range(count))
    random.Random(7).shuffle(numbers)
    for number in numbers:
        kind = number % 10
        key, plaintext = renamed((secrets if kind < 8 else pods)[number % 3], number)
        if kind < 6 or (kind >= 8 and damage is Damage.LOST):
            value = gcm(key, plaintext)
        else:
            value = cbc(plaintext) if kind < 8 else plaintext
        yield key, damaged(number, value, damage)


def write_database(folder: Path, count: int, damage: Damage = Damage.NONE) -> tuple[Path, Path]:
    database, config = folder / "large.db", folder / "config.yaml"
    config.write_text(configuration(damage))
    with database.open("w+b") as file:
        writer = BoltWriter(file)
        pairs = enumerate(objects(count, damage), start=2)
        writer.bucket(b"key", (put(revision, key, value) for revision, (key, value) in pairs))
        writer.bucket(b"meta", [(b"storageVersion", b"3.6.0")], inline=True)
        writer.finish(trailer=True)
    return database, config
