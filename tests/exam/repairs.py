"""Values that are to be repaired, or are not: each made from a seed, beside others of the same provider.

What was written is known, so a repair is right where it gives back those bytes and no others.
"""

from __future__ import annotations

import base64
import random
from collections.abc import Callable
from typing import Any, NamedTuple

from etcdfix.encryption.config import parse_configuration
from etcdfix.encryption.config_model import KMSProvider
from etcdfix.encryption.transformer import Transformers
from etcdfix.examine.one import Examiner
from etcdfix.examine.repair import RepairSearch
from etcdfix.model.model import Outcome, Repair, RepairKind, RepairProof, StoredValue
from etcdfix.model.storagekey import StorageLayout
from etcdfix.testing.protobytes import block, object_meta, unknown
from tests.exam import corpus
from tests.exam.cases import Keyring, Sealed, Secrets, seal
from tests.exam.judging import NeverWaits
from tests.support.memory_source import MemorySource, stored
from tests.support.objects import IDENTITY, configuration_of_rules

TAGGED = ("aesgcm", "secretbox", "kms v1, GCM", "kms v2, key", "kms v2, seed")
TAGLESS = ("aescbc", "kms v1, CBC")
_UID = "11111111-2222-3333-4444-555555555555"
_LARGE = 1_500_000
_SIZES = ((100, 400, 30), (400, 4_000, 60), (4_000, 40_000, 9), (_LARGE, _LARGE + 1, 1))
"""From, to, and how often of a hundred."""


class Written(NamedTuple):
    """A value as it was written, and what reads it.

    Attributes:
        etcd_key: Where it stands.
        sealed: The value, and where its parts lie.
        examiner: Has seen another value of the provider.
    """

    etcd_key: bytes
    sealed: Sealed
    examiner: Examiner

    @property
    def known(self) -> list[int]:
        value, wrapped = self.sealed.value, self.sealed.parts.get("wrapped")
        if wrapped is None or not value.startswith(b"k8s:enc:kms:v1:"):
            return [*range(len(value))]
        return [*range(wrapped.start), *range(wrapped.end, len(value))]

    def search(self, value: bytes, *, etcd_key: bytes = b"") -> tuple[Outcome, Repair | None, RepairSearch]:
        record = StoredValue(etcd_key or self.etcd_key, value, 100, 5, 2, 0)
        found = self.examiner.examine(record, thorough=True)
        return found.verdict.outcome, found.repair, self.examiner.closer.search_repair(found)


def make_secret(name: str, namespace: str, rng: random.Random, size: int) -> bytes:
    labels = [
        block(11, block(1, label) + block(2, value))
        for label, value in ((b"app", b"web"), (b"tier", b"front"))
    ]
    note = block(12, block(1, b"example.com/note") + block(2, b"renewed every ninety days"))
    meta = object_meta(name.encode(), namespace.encode(), _UID.encode(), *labels, note)
    room = max(size - len(meta) - 80, 1)
    pem = base64.b64encode(rng.randbytes(room)).decode()[: max(room - 40, 1)]
    data = block(2, block(1, b"tls.crt") + block(2, f"-----BEGIN CERTIFICATE-----\n{pem}\n".encode()))
    data += block(2, block(1, b"password") + block(2, rng.randbytes(12)))
    return unknown(b"v1", b"Secret", block(1, meta) + data + block(3, b"Opaque"))


def write(
    rng: random.Random, provider: str, size: int = 2_000, *, wrong_key: bool = False, alone: bool = False
) -> Written:
    """Write one value under a provider, and another that vouches for its data key; the configuration reads both.

    Args:
        rng: Where every choice comes from.
        provider: One of :data:`TAGGED` or :data:`TAGLESS`.
        size: About so large is the object.
        wrong_key: What is configured under the name has other bytes.
        alone: No other value vouches for anything.
    """
    kms = provider.startswith("kms")
    key_size = 32 if kms or provider == "secretbox" else rng.choice((16, 24, 32))
    mine = Secrets(rng.randbytes(key_size), rng.randbytes(rng.choice((48, 64, 184))))
    other = rng.randbytes(key_size) if wrong_key else mine.key
    named = "prov" if kms else "key1"
    etcd_key = b"/registry/secrets/shop/web"
    plaintext = make_secret("web", "shop", rng, size)
    sealed = seal(rng, provider, named, plaintext, mine, etcd_key)
    providers: dict[str, Any]
    if kms:
        providers = {"kms": {"apiVersion": provider[4:6], "name": named, "endpoint": "unix:///run/kms.sock"}}
    else:
        listed = [{"name": named, "secret": base64.b64encode(other).decode()}]
        providers = {provider: {"keys": listed}}
    raw = configuration_of_rules((("secrets",), (providers, IDENTITY)))
    plugin = Keyring({mine.wrapped: other}) if kms else None

    def plugin_for(_provider: KMSProvider) -> Keyring | None:
        return plugin

    transformers = Transformers.from_configuration(parse_configuration(raw, path="test"), plugin_for)
    examiner = Examiner(StorageLayout(), transformers, corpus.decoder())
    examiner.plugins = NeverWaits() if plugin is not None else None
    examiner.learn_custom_resources(MemorySource([]))
    beside = b"/registry/secrets/shop/beside"
    vouching = Secrets(other, mine.wrapped, mine.key_id)
    another = seal(rng, provider, named, make_secret("beside", "shop", rng, 300), vouching, beside)
    if not alone:
        assert examiner.examine(stored(beside, another.value)).verdict.outcome is Outcome.READABLE
    return Written(etcd_key, sealed, examiner)


def flipped(value: bytes, *bits: int) -> bytes:
    data = bytearray(value)
    for bit in bits:
        data[bit // 8] ^= 1 << bit % 8
    return bytes(data)


def drawn_size(rng: random.Random) -> int:
    low, high, _ = rng.choices(_SIZES, [often for _, _, often in _SIZES])[0]
    return rng.randrange(low, high)


Damage = Callable[[random.Random, Written], bytes]


def one_bit(rng: random.Random, written: Written) -> bytes:
    return flipped(written.sealed.value, rng.choice(written.known) * 8 + rng.randrange(8))


def one_body_bit(rng: random.Random, written: Written) -> bytes:
    body = written.sealed.body()
    return flipped(written.sealed.value, rng.randrange(body.start * 8, body.end * 8))


def two_bits(rng: random.Random, written: Written) -> bytes:
    body = written.sealed.body()
    return flipped(written.sealed.value, *rng.sample(range(body.start * 8, body.end * 8), 2))


def repaired(
    seed: int,
    providers: tuple[str, ...],
    damage: Damage,
    *,
    size: int = 0,
    wrong_key: bool = False,
) -> str:
    rng = random.Random(seed)
    provider = providers[seed % len(providers)]
    written = write(rng, provider, size or drawn_size(rng), wrong_key=wrong_key)
    value = damage(rng, written)
    outcome, repair, search = written.search(value)
    if outcome is Outcome.READABLE:
        return "readable"
    if search.repair is None:
        assert repair is None
        return "several" if search.ambiguous else "none"
    if search.repair.kind is RepairKind.NAME:
        assert (repair, search.repair.proof) == (None, RepairProof.NONE)
    elif provider in TAGGED:
        # The colon after a name: to a pass over everything it may be a name that the configuration lacks.
        changed = next(old for old, new in zip(written.sealed.value, value, strict=True) if old != new)
        colon = changed == ord(":") and search.repair.kind is RepairKind.PREFIX
        assert repair == search.repair or (colon and repair is None)
        assert search.repair.proof is RepairProof.TAG
    else:
        assert search.repair.proof is RepairProof.NONE
    return "found" if search.value == written.sealed.value else "wrong"
