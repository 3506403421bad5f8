"""Large, realistic data for benchmarks: Secrets under one provider or two, plain Pods, as a server writes them.

The templates are values that a real kube-apiserver wrote (the healthy ones of ``fixtures/snapshots/alpha``);
each copy gets a name of its own, of the same length, so that every protobuf length stays true.

By hand: ``python -m tests.benchmarks.large_data --keys 200000 FOLDER`` writes ``large.db`` and ``config.yaml``.
"""

from __future__ import annotations

import argparse
import base64
import functools
import os
import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import assert_never

import msgspec
from cryptography.hazmat.primitives import padding
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from etcdfix.encryption.config import load_configuration
from etcdfix.encryption.transformer import Transformers
from etcdfix.model import GroupResource
from etcdfix.sources.snapshot import SnapshotSource
from tests.support.bbolt_writer import BoltWriter, put
from tests.support.kms_plugin import KMSPlugin, load_keks

ALPHA = Path(__file__).parents[2] / "fixtures" / "snapshots" / "alpha" / "snapshot.db.gz"
KEK_FILE = ALPHA.parent / "kms1.keys"
KMS_NAME = "prov"
GCM_KEY = bytes(range(32))
CBC_KEY = bytes(range(32, 64))
LOST_KEY = bytes(range(64, 96))
"""No configuration has it."""

Seal = Callable[[bytes, bytes], bytes]
"""Makes the stored value of an etcd key and a plaintext."""


class Provider(StrEnum):
    """What Secrets are written with; one of five keys is a Pod, which is plain."""

    MIXED = "mixed"
    """Three Secrets of four under aesgcm, one under aescbc."""
    IDENTITY = "identity"
    AESCBC = "aescbc"
    AESGCM = "aesgcm"
    KMS_V2 = "kms-v2"
    """All under one DEK seed. Whoever reads them names the plugin's socket with ``--kms-endpoint``."""


class Damage(StrEnum):
    """What happened to the values."""

    NONE = "none"
    FLIPPED = "flipped"
    """The last byte of every value is another one."""
    SOME = "some"
    """One of a hundred was written with an encryption key that nobody has any more; plain ones are cut in half."""
    LOST = "lost"
    """Everything was written with encryption keys that the configuration has under no name, or with other bytes;
    plain values are all cut in half."""
    MIXED = "mixed"
    """Nine of ten are truncated, emptied, zeroed or overwritten; the others show that the encryption keys are right."""


class Data(msgspec.Struct, frozen=True):
    """Which data to make.

    Attributes:
        keys: How many.
        damage: What happened to their values.
        provider: What wrote them.
        heavy: More of the Secrets are large: about 2.5 KB of file a key, and not 2.0 KB.
    """

    keys: int
    damage: Damage = Damage.NONE
    provider: Provider = Provider.MIXED
    heavy: bool = False

    @property
    def name(self) -> str:
        """The name of its folder."""
        return "-".join([str(self.keys), self.provider, self.damage, *(["heavy"] if self.heavy else [])])


class Made(msgspec.Struct, frozen=True):
    """Data that was made: what it is, and its folder."""

    data: Data
    folder: Path

    @property
    def database(self) -> Path:
        return self.folder / "large.db"

    @property
    def config(self) -> Path:
        return self.folder / "config.yaml"


def configuration(provider: Provider, damage: Damage) -> str:
    """The EncryptionConfiguration that the data is read with; under a lost key everything is to be encrypted."""
    lost = damage is Damage.LOST
    resources = "[secrets, pods]" if lost else "[secrets]"
    gcm_key, cbc_key = (CBC_KEY, LOST_KEY) if lost else (GCM_KEY, CBC_KEY)
    lines = {
        "gcm": f"  - aesgcm: {{keys: [{{name: gcm, secret: {base64.b64encode(gcm_key).decode()}}}]}}",
        "cbc": f"  - aescbc: {{keys: [{{name: cbc, secret: {base64.b64encode(cbc_key).decode()}}}]}}",
        "kms": f"  - kms: {{apiVersion: v2, name: {KMS_NAME}, endpoint: 'unix:///run/kms.sock', timeout: 5s}}",
    }
    chosen = {
        Provider.MIXED: ["gcm"] if lost else ["gcm", "cbc"],
        Provider.IDENTITY: [],
        Provider.AESCBC: ["cbc"],
        Provider.AESGCM: ["gcm"],
        Provider.KMS_V2: ["kms"],
    }[provider]
    return "\n".join(
        [
            "apiVersion: apiserver.config.k8s.io/v1",
            "kind: EncryptionConfiguration",
            "resources:",
            f"- resources: {resources}",
            "  providers:",
            *(lines[name] for name in chosen),
            "  - identity: {}",
            "",
        ]
    )


CONFIG = configuration(Provider.MIXED, Damage.NONE)


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


def gcm(key: bytes, plaintext: bytes, secret: bytes = GCM_KEY) -> bytes:
    nonce = os.urandom(12)
    return b"k8s:enc:aesgcm:v1:gcm:" + nonce + AESGCM(secret).encrypt(nonce, plaintext, key)


def cbc(_key: bytes, plaintext: bytes, secret: bytes = CBC_KEY) -> bytes:
    iv = os.urandom(16)
    padder = padding.PKCS7(128).padder()
    padded = padder.update(plaintext) + padder.finalize()
    encryptor = Cipher(algorithms.AES(secret), modes.CBC(iv)).encryptor()
    return b"k8s:enc:aescbc:v1:cbc:" + iv + encryptor.update(padded) + encryptor.finalize()


def plain(_key: bytes, plaintext: bytes) -> bytes:
    return plaintext


def cut(_key: bytes, plaintext: bytes) -> bytes:
    return plaintext[: len(plaintext) // 2]


def under_one_seed(keks: dict[str, bytes], seed: bytes) -> Seal:
    """KMS v2 as an API server writes it: one DEK seed, wrapped once, and a key derived from it for each value."""
    plugin = KMSPlugin("v2", "", keks, start=False)
    wrapped = plugin.encrypt(seed)
    return lambda key, plaintext: plugin.stored_v2(
        plaintext, key, name=KMS_NAME, source=seed, wrapped=wrapped
    )


def seals(provider: Provider, *, lost: bool) -> Sequence[Seal]:
    """What writes Secrets, by the last digit of their number (0 to 7).

    Args:
        provider: What they are written with.
        lost: With an encryption key that no configuration and no plugin has; plain ones are cut.
    """
    match provider:
        case Provider.MIXED:
            secrets = (LOST_KEY, LOST_KEY) if lost else (GCM_KEY, CBC_KEY)
            return [functools.partial(gcm, secret=secrets[0])] * 6 + [
                functools.partial(cbc, secret=secrets[1])
            ] * 2
        case Provider.IDENTITY:
            return [cut if lost else plain] * 8
        case Provider.AESCBC:
            return [functools.partial(cbc, secret=LOST_KEY if lost else CBC_KEY)] * 8
        case Provider.AESGCM:
            return [functools.partial(gcm, secret=LOST_KEY if lost else GCM_KEY)] * 8
        case Provider.KMS_V2:
            keks = {"lost": LOST_KEY} if lost else load_keks(KEK_FILE)
            return [under_one_seed(keks, LOST_KEY if lost else GCM_KEY)] * 8
        case _:
            assert_never(provider)


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


def objects(
    count: int,
    damage: Damage = Damage.NONE,
    provider: Provider = Provider.MIXED,
    *,
    heavy: bool = False,
) -> Iterator[tuple[bytes, bytes]]:
    """Yield ``count`` (etcd key, stored value) pairs in no order: four Secrets of five, one Pod.

    Values have 1.4 KB on average; heavy ones 1.8 KB.
    """
    secrets, pods = templates()
    if heavy:
        largest = max(secrets, key=lambda template: len(template[1]))
        secrets = [*secrets, largest, largest]
    # Under a lost key of the mixed data the configuration is another one, and the values are those of every day.
    known = seals(provider, lost=damage is Damage.LOST and provider in {Provider.IDENTITY, Provider.KMS_V2})
    gone = seals(provider, lost=True) if damage is Damage.SOME else known
    pod = known[0] if damage is Damage.LOST else plain
    numbers = list(range(count))
    random.Random(7).shuffle(numbers)
    for number in numbers:
        kind = number % 10
        if kind < 8:
            key, plaintext = renamed(secrets[number % len(secrets)], number)
            value = (gone if number % 100 == 0 else known)[kind](key, plaintext)
        else:
            key, plaintext = renamed(pods[number % len(pods)], number)
            value = pod(key, plaintext)
        yield key, damaged(number, value, damage)


def key_of_one(count: int) -> bytes:
    """Return the etcd key of a Secret that data of so many keys has."""
    secrets, _ = templates()
    number = min(count - 1, 1)
    return renamed(secrets[number % len(secrets)], number)[0]


def write_database(folder: Path, count: int, damage: Damage = Damage.NONE) -> tuple[Path, Path]:
    """Write ``large.db`` and ``config.yaml``; return their paths."""
    made = write(folder, Data(count, damage))
    return made.database, made.config


def write(folder: Path, data: Data) -> Made:
    """Write ``large.db`` and ``config.yaml`` into a folder."""
    made = Made(data, folder)
    made.config.write_text(configuration(data.provider, data.damage))
    with made.database.open("w+b") as file:
        writer = BoltWriter(file)
        pairs = enumerate(objects(data.keys, data.damage, data.provider, heavy=data.heavy), start=2)
        writer.bucket(b"key", (put(revision, key, value) for revision, (key, value) in pairs))
        writer.bucket(b"meta", [(b"storageVersion", b"3.6.0")], inline=True)
        writer.finish(trailer=True)
    return made


def made_once(store: Path, data: Data) -> Made:
    """Make data in a folder of a store, or take what was made there before; a half of it is never taken."""
    folder = store / data.name
    if not folder.exists():
        half = store / f"{data.name}.half"
        shutil.rmtree(half, ignore_errors=True)
        half.mkdir(parents=True)
        write(half, data)
        half.rename(folder)
    return Made(data, folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--keys", type=int, default=200_000)
    parser.add_argument("--damage", type=Damage, default=Damage.NONE, choices=list(Damage))
    parser.add_argument("--provider", type=Provider, default=Provider.MIXED, choices=list(Provider))
    parser.add_argument("--heavy", action="store_true", help="more of the Secrets are large")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    data = Data(arguments.keys, arguments.damage, arguments.provider, arguments.heavy)
    made = write(arguments.folder, data)
    print(made.database, made.config)


if __name__ == "__main__":
    main()
