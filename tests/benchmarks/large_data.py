"""Large, realistic data for benchmarks: Secrets under aesgcm and aescbc, plain Pods, as a server writes them.

The templates are values that a real kube-apiserver wrote (the healthy ones of ``fixtures/snapshots/alpha``);
each copy gets a name of its own, of the same length, so that every protobuf length stays true.

By hand: ``python -m tests.benchmarks.large_data --keys 200000 FOLDER`` writes ``large.db`` and ``config.yaml``.
"""

from __future__ import annotations

import argparse
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
from etcdfix.model import GroupResource
from etcdfix.sources.snapshot import SnapshotSource
from tests.support.bbolt_writer import BoltWriter, put

ALPHA = Path(__file__).parents[2] / "fixtures" / "snapshots" / "alpha" / "snapshot.db.gz"
GCM_KEY = bytes(range(32))
CBC_KEY = bytes(range(32, 64))

CONFIG = f"""apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers:
  - aesgcm: {{keys: [{{name: gcm, secret: {base64.b64encode(GCM_KEY).decode()}}}]}}
  - aescbc: {{keys: [{{name: cbc, secret: {base64.b64encode(CBC_KEY).decode()}}}]}}
  - identity: {{}}
"""


def templates() -> tuple[list[tuple[bytes, bytes]], list[tuple[bytes, bytes]]]:
    """Healthy (key, plaintext) pairs of Secrets and Pods; two small Secrets and a large one."""
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
    """A copy of an object under a name of the same length."""
    key, value = template
    name = key.rpartition(b"/")[2]
    new = (b"%x" % number).rjust(len(name), b"n")
    return key[: -len(name)] + new, value.replace(
        b"\n" + bytes([len(name)]) + name, b"\n" + bytes([len(name)]) + new
    )


def gcm(key: bytes, plaintext: bytes) -> bytes:
    nonce = os.urandom(12)
    return b"k8s:enc:aesgcm:v1:gcm:" + nonce + AESGCM(GCM_KEY).encrypt(nonce, plaintext, key)


def cbc(_key: bytes, plaintext: bytes) -> bytes:
    iv = os.urandom(16)
    padder = padding.PKCS7(128).padder()
    padded = padder.update(plaintext) + padder.finalize()
    encryptor = Cipher(algorithms.AES(CBC_KEY), modes.CBC(iv)).encryptor()
    return b"k8s:enc:aescbc:v1:cbc:" + iv + encryptor.update(padded) + encryptor.finalize()


class Damage(StrEnum):
    """What happened to the values."""

    NONE = "none"
    FLIPPED = "flipped"
    """The last byte of every value is another one."""
    LOST = "lost"
    """Everything was written with encryption keys that the configuration has under no name, or with other bytes."""
    MIXED = "mixed"
    """Nine of ten are truncated, emptied, zeroed or overwritten; the others show that the encryption keys are right."""


LOST_CONFIG = f"""apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets, pods]
  providers:
  - aesgcm: {{keys: [{{name: gcm, secret: {base64.b64encode(CBC_KEY).decode()}}}]}}
  - identity: {{}}
"""


def damaged(number: int, value: bytes, damage: Damage) -> bytes:
    """Return what is left of the value of the object with a number."""
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
    """Yield ``count`` (etcd key, stored value) pairs in no order: 60 % gcm, 20 % cbc Secrets, 20 % Pods.

    Values have 1.4 KB on average.
    """
    secrets, pods = templates()
    numbers = list(range(count))
    random.Random(7).shuffle(numbers)
    for number in numbers:
        kind = number % 10
        if kind < 8:
            key, plaintext = renamed(secrets[number % len(secrets)], number)
            value = (gcm if kind < 6 else cbc)(key, plaintext)
        else:
            key, value = renamed(pods[number % len(pods)], number)
            if damage is Damage.LOST:
                value = gcm(key, value)
        yield key, damaged(number, value, damage)


def write_database(folder: Path, count: int, damage: Damage = Damage.NONE) -> tuple[Path, Path]:
    """Write ``large.db`` and ``config.yaml``; return their paths."""
    database, config = folder / "large.db", folder / "config.yaml"
    config.write_text(LOST_CONFIG if damage is Damage.LOST else CONFIG)
    with database.open("w+b") as file:
        writer = BoltWriter(file)
        pairs = enumerate(objects(count, damage), start=2)
        writer.bucket(b"key", (put(revision, key, value) for revision, (key, value) in pairs))
        writer.bucket(b"meta", [(b"storageVersion", b"3.6.0")], inline=True)
        writer.finish(trailer=True)
    return database, config


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--keys", type=int, default=200_000)
    parser.add_argument("--damage", type=Damage, default=Damage.NONE, choices=list(Damage))
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    print(*write_database(arguments.folder, arguments.keys, arguments.damage))


if __name__ == "__main__":
    main()
