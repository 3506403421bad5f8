"""The cases of the exam: each one a value, what was done to it, and a configuration, made from a seed alone.

A case knows the truth: which bytes were changed, with which key the value was written, and what of the plaintext is
left. It is judged elsewhere, by the library, which sees the stored bytes and the configuration.
"""

from __future__ import annotations

import base64
import hashlib
import random
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CBC
from nacl.bindings import crypto_secretbox

from etcdfix.encryption.kms.envelopes import Failure, WrappedKey
from etcdfix.model.model import StoredValue
from tests.exam import corpus
from tests.exam.corpus import Identity, Kind
from tests.support import encoders
from tests.support.objects import IDENTITY, configuration_of_rules
from tests.support.played_plugins import OneAnswer

PREFIX = "/registry"
KNOWN_PREFIXES = ("/kubernetes.io", "/openshift.io")
TARGET_REVISION = 100
LARGE = 1_500_000

PROVIDERS = {
    "aescbc": 16,
    "aesgcm": 16,
    "secretbox": 16,
    "kms v1, GCM": 12,
    "kms v1, CBC": 10,
    "kms v2, key": 12,
    "kms v2, seed": 18,
}
"""How often each is drawn, of a hundred."""

CBC_PROVIDERS = frozenset({"aescbc", "kms v1, CBC"})
BOUND_PROVIDERS = frozenset({"aesgcm", "kms v1, GCM", "kms v2, key", "kms v2, seed"})
"""Those whose associated data is the etcd key."""

_ENCODINGS = {"protobuf": 55, "json": 20, "yaml": 12, "cbor": 13}
_NEIGHBOURS = ("none", "none", "before", "after", "around", "other resource")


class Part(NamedTuple):
    """Where something lies in a stored value."""

    start: int
    end: int


class Sealed(NamedTuple):
    """A value as it was written.

    Attributes:
        value: Stored bytes.
        parts: ``nonce``, ``info``, ``ciphertext``, ``tag``, and under KMS ``wrapped``.
    """

    value: bytes
    parts: Mapping[str, Part]

    def body(self) -> Part:
        inside = [part for name, part in self.parts.items() if name != "wrapped"]
        return Part(min(part.start for part in inside), max(part.end for part in inside))


class Secrets(NamedTuple):
    """The key bytes that a value is written with.

    Attributes:
        key: Of the local provider, or data key or seed under KMS.
        wrapped: Under KMS, what the plugin is given for it.
        key_id: Of KMS v2.
    """

    key: bytes
    wrapped: bytes = b""
    key_id: str = "key-id-1"


REFUSED = Failure("INVALID_ARGUMENT", "rpc error: code = InvalidArgument desc = cannot unwrap")


class Keyring(OneAnswer):
    """A plugin that opens what it knows.

    Args:
        keys: Data keys by what they are wrapped as.
        others: What it gives for everything else, each time another one; None to refuse it.
        refusal: What it says then.
    """

    def __init__(
        self, keys: Mapping[bytes, bytes], others: bytes | None = None, *, refusal: Failure = REFUSED
    ) -> None:
        super().__init__(refusal, write_key_id="key-id-1")
        self._keys = keys
        self._others = others

    def key_of(self, wrapped: WrappedKey) -> bytes | Failure:
        if wrapped.ciphertext in self._keys:
            return self._keys[wrapped.ciphertext]
        if self._others is None:
            return super().key_of(wrapped)
        return hashlib.sha256(self._others + wrapped.ciphertext).digest()


class Case(NamedTuple):
    """One case.

    Attributes:
        seed: From which it is made.
        provider: One of :data:`PROVIDERS`.
        damage: What was done to the value, in words.
        key: ``right``, or in which way the configuration differs from what the value was written with.
        neighbours: Which other values there are.
        kind: Of the object.
        size: Of its plaintext.
        marks: Everything that was really done, for who compares it with what is said.
        records: What etcd holds, the target among it.
        target: The value in question.
        configuration: The EncryptionConfiguration, as a file.
        plugin: Behind its KMS provider, None where there is none.
        left: Plaintext that the right key makes of the value as it is now; None where its nonce or data key is gone.
        visible: So many bytes of it are there to see: blocks of 16 that are as they were written.
        opens: An API server with the right key, and no tag to check, gets a plaintext out of it (CBC).
        hidden: Strings that must never be seen.
    """

    seed: int
    provider: str
    damage: str
    key: str
    neighbours: str
    kind: Kind
    size: int
    marks: frozenset[str]
    records: tuple[StoredValue, ...]
    target: StoredValue
    configuration: bytes
    plugin: Keyring | None
    left: bytes | None
    visible: int
    opens: bytes | None
    hidden: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"seed {self.seed}: {self.provider}, {self.kind.encoding} {self.kind.label} of {self.size} bytes, "
            f"{self.damage}, key {self.key}, neighbours {self.neighbours}"
        )


class _Damaged(NamedTuple):
    """A value after something was done to it; ``moved_to`` and ``prefix`` say where it was written for."""

    value: bytes
    marks: frozenset[str]
    words: str


def make_case(seed: int) -> Case:
    rng = random.Random(seed)
    provider = rng.choices(list(PROVIDERS), list(PROVIDERS.values()))[0]
    kind = rng.choice(corpus.kinds()[rng.choices(list(_ENCODINGS), list(_ENCODINGS.values()))[0]])
    key = _key_of_case(rng, provider)
    damage = _damage_of_case(rng, provider, key)
    neighbours = rng.choice(_NEIGHBOURS)
    if key == "replaced":
        neighbours = "after"
    elif key == BETWEEN:
        neighbours = "around"
    identity = _identity(rng, kind)
    text = corpus.filler(rng, _size(rng, kind) if key != TWICE else 200)
    plaintext = kind.build(identity, text)
    writer = _Writer(rng, provider, key)
    home, written_under = _places(rng, kind, identity, damage)
    sealed = writer.seal(plaintext, written_under)
    damaged = _DAMAGES[damage](rng, sealed, provider)
    target = StoredValue(home, damaged.value, TARGET_REVISION, 5, 2, 0)
    records = [target, StoredValue(*corpus.crd_record(), 3, 3, 1, 0)]
    prefix = written_under[: -len(kind.etcd_key("", identity))].decode()
    records += _neighbours(
        rng, neighbours, kind, writer, identity, prefix if damage == "hidden prefix" else PREFIX
    )
    if key == BETWEEN and seed % 2:
        key = BETWEEN_TWO
        records.append(_another_in_between(random.Random(seed), kind, writer))
    marks = damaged.marks | _KEY_MARKS.get(key, frozenset())
    left, opens = _left(provider, writer.mine.key, sealed, damaged, plaintext)
    return Case(
        seed=seed,
        provider=provider,
        damage=damage,
        key=key,
        neighbours=neighbours,
        kind=kind,
        size=len(plaintext),
        marks=marks,
        records=tuple(records),
        target=target,
        configuration=writer.configuration(kind),
        plugin=writer.plugin(),
        left=left,
        visible=_visible(left or b"", plaintext),
        opens=opens,
        hidden=(corpus.TOKEN, *writer.shown()),
    )


# --- what the configuration has -------------------------------------------------------------------------------------

TWICE = "the same name twice, the right bytes second"

_KEY_MARKS = {
    "renamed": frozenset({"renamed"}),
    "another name": frozenset({"renamed"}),
    "of another rule": frozenset({"renamed"}),
    TWICE: frozenset({"renamed"}),
    "colon, shorter name with the right bytes": frozenset({"renamed"}),
}

BETWEEN = "another in between"
BETWEEN_TWO = "another in between, of two values"
_WRONG_LOCAL = (
    "wrong bytes",
    "wrong bytes",
    "replaced",
    "renamed",
    "of another rule",
    "colon, shorter name with the right bytes",
    "colon, shorter name with wrong bytes",
    BETWEEN,
    TWICE,
)
_WRONG_KMS = ("refused", "wrong answer", "replaced", "another name", BETWEEN)

WRONG_KEYS = frozenset({*_WRONG_LOCAL, *_WRONG_KMS, BETWEEN_TWO})
"""The ways in which the configuration is wrong. With ``another in between``, values written before and after the target
open under other bytes of the same name: two API servers with two configurations, or a key that was replaced and put
back; there is one such value, or two."""


def _key_of_case(rng: random.Random, provider: str) -> str:
    if rng.random() < 0.6:
        return rng.choice(("right", "right", "right", "right, name with a colon"))
    return rng.choice(_WRONG_KMS if provider.startswith("kms") else _WRONG_LOCAL)


class _Writer:
    """Writes values under the key of a case, and says what the configuration has instead."""

    def __init__(self, rng: random.Random, provider: str, key: str) -> None:
        self._rng = rng
        self._provider = provider
        self._key = key
        size = 32 if provider == "secretbox" or provider.startswith("kms") else rng.choice((16, 24, 32))
        self.mine = Secrets(rng.randbytes(size), rng.randbytes(rng.choice((32, 64, 184))))
        self.other = Secrets(rng.randbytes(size), rng.randbytes(48))
        self._shares = provider.startswith("kms v2") and rng.random() < 0.7
        self._ring = {self.mine.wrapped: self.mine.key}
        self._replaced_ring = {self.other.wrapped: self.other.key}
        self.name = "key1"
        if provider.startswith("kms"):
            self.name = "prov"
        elif key.startswith("colon"):
            self.name = "key:2026-b"
        if key == "right, name with a colon" and not provider.startswith("kms v2"):
            self.name = rng.choice(("team:2026", "a:b:c", "key1:"))

    def seal(self, plaintext: bytes, etcd_key: bytes) -> Sealed:
        sealed = seal(self._rng, self._provider, self.name, plaintext, self.mine, etcd_key)
        while self._key == TWICE and self._provider == "aescbc" and not self._fits_other(sealed):
            sealed = seal(self._rng, self._provider, self.name, plaintext, self.mine, etcd_key)
        return sealed

    def _fits_other(self, sealed: Sealed) -> bool:
        return _unpadded(_cbc_blocks(sealed.value[sealed.body().start :], self.other.key)) is not None

    def seal_neighbour(self, plaintext: bytes, etcd_key: bytes, revision: int) -> bytes:
        with_other = self._key == BETWEEN or (self._key == "replaced" and revision > TARGET_REVISION)
        secrets = self.other if with_other else self.mine
        if self._provider.startswith("kms") and not self._shares:
            # Each with a data key of its own.
            secrets = Secrets(self._rng.randbytes(32), self._rng.randbytes(48))
            (self._replaced_ring if with_other else self._ring)[secrets.wrapped] = secrets.key
        return seal(self._rng, self._provider, self.name, plaintext, secrets, etcd_key).value

    def plugin(self) -> Keyring | None:
        if not self._provider.startswith("kms"):
            return None
        match self._key:
            case "refused" | "replaced":
                return Keyring(self._replaced_ring)
            case "wrong answer":
                return Keyring({}, self.other.key)
            case _ if self._key == BETWEEN:
                return Keyring(self._replaced_ring, self.other.key if self._rng.random() < 0.5 else None)
            case _:
                return Keyring(self._ring)

    def configuration(self, kind: Kind) -> bytes:
        # A rule for values of another kind comes with it, whose key has the same name and other bytes.
        rules = [((kind.resource, *_other_resource(kind)), (*self._providers(), IDENTITY))]
        if not self._provider.startswith("kms"):
            elsewhere = self.mine.key if self._key == "of another rule" else self._rng.randbytes(32)
            resource = "leases.coordination.k8s.io" if kind.path != "leases" else "secrets"
            rules.append(((resource,), (self._local(("key1", elsewhere)), IDENTITY)))
        return configuration_of_rules(*rules)

    def _providers(self) -> tuple[dict[str, Any], ...]:
        if self._provider.startswith("kms"):
            name = "prov2" if self._key == "another name" else self.name
            version = self._provider[4:6]
            kms = {"apiVersion": version, "name": name, "endpoint": "unix:///run/kms.sock"}
            return ({"kms": kms},)
        match self._key:
            case "right" | "right, name with a colon":
                return (self._local((self.name, self.mine.key)),)
            case "renamed":
                held = [("key2", self.mine.key)]
                if self._rng.random() < 0.5:
                    held.insert(0, (self.name, self.other.key))
                return (self._local(*held),)
            case _ if self._key == TWICE:
                return (self._local((self.name, self.other.key), (self.name, self.mine.key)),)
            case "colon, shorter name with the right bytes":
                return (self._local(("key", self.mine.key)),)
            case "colon, shorter name with wrong bytes":
                return (self._local(("key", self.other.key)),)
            case _:
                return (self._local((self.name, self.other.key)),)

    def _local(self, *keys: tuple[str, bytes]) -> dict[str, Any]:
        listed = [{"name": name, "secret": base64.b64encode(key).decode()} for name, key in keys]
        return {self._provider: {"keys": listed}}

    def shown(self) -> tuple[str, ...]:
        keys = (self.mine.key, self.other.key)
        return tuple(
            form for key in keys for form in (key.hex(), base64.b64encode(key).decode(), repr(key)[2:-1])
        )


def _other_resource(kind: Kind) -> tuple[str, ...]:
    return ("configmaps",) if kind.resource != "configmaps" else ("secrets",)


# --- how values are written -----------------------------------------------------------------------------------------


def seal(
    rng: random.Random, provider: str, name: str, plaintext: bytes, secrets: Secrets, etcd_key: bytes
) -> Sealed:
    match provider:
        case "aescbc":
            return _placed(f"k8s:enc:aescbc:v1:{name}:", _cbc(rng, plaintext, secrets.key), 16, 0)
        case "aesgcm":
            body = encoders.aesgcm_body(plaintext, secrets.key, rng.randbytes(12), etcd_key)
            return _placed(f"k8s:enc:aesgcm:v1:{name}:", body, 12, 16)
        case "secretbox":
            # The tests' own secretbox takes seconds for a megabyte; other tests hold the two against each other.
            nonce = rng.randbytes(24)
            prefix = f"k8s:enc:secretbox:v1:{name}:".encode()
            value = prefix + nonce + crypto_secretbox(plaintext, nonce, secrets.key)
            start = len(prefix)
            tag, text = Part(start + 24, start + 40), Part(start + 40, len(value))
            return Sealed(value, {"nonce": Part(start, start + 24), "tag": tag, "ciphertext": text})
        case "kms v1, GCM" | "kms v1, CBC":
            cbc = provider.endswith("CBC")
            data = (
                _cbc(rng, plaintext, secrets.key)
                if cbc
                else encoders.aesgcm_body(plaintext, secrets.key, rng.randbytes(12), etcd_key)
            )
            prefix = f"k8s:enc:kms:v1:{name}:".encode()
            value = prefix + encoders.kms_v1_body(secrets.wrapped, data)
            start = len(prefix) + 2
            wrapped = Part(start, start + len(secrets.wrapped))
            found = _placed("", data, 16 if cbc else 12, 0 if cbc else 16, at=wrapped.end)
            return Sealed(value, {**found.parts, "wrapped": wrapped})
        case _:
            return _seal_kms_v2(rng, provider, name, plaintext, secrets, etcd_key)


def _seal_kms_v2(
    rng: random.Random, provider: str, name: str, plaintext: bytes, secrets: Secrets, etcd_key: bytes
) -> Sealed:
    seeded = provider.endswith("seed")
    nonce = rng.randbytes(12)
    if seeded:
        data = encoders.kms_v2_seeded_data(plaintext, secrets.key, rng.randbytes(32), nonce, etcd_key)
    else:
        data = encoders.aesgcm_body(plaintext, secrets.key, nonce, etcd_key)
    body = encoders.kms_v2_body(
        data, key_id=secrets.key_id, dek_source=secrets.wrapped, source_type=int(seeded)
    )
    value = f"k8s:enc:kms:v2:{name}:".encode() + body
    start = value.index(data)
    parts = dict(_placed("", data, 12, 16, at=start, before=32 if seeded else 0).parts)
    if seeded:
        parts["info"] = Part(start, start + 32)
    at = value.index(secrets.wrapped, start + len(data))
    return Sealed(value, {**parts, "wrapped": Part(at, at + len(secrets.wrapped))})


def _cbc(rng: random.Random, plaintext: bytes, key: bytes) -> bytes:
    iv = rng.randbytes(16)
    padding = 16 - len(plaintext) % 16
    encryptor = Cipher(AES(key), CBC(iv)).encryptor()
    return iv + encryptor.update(plaintext + bytes([padding]) * padding) + encryptor.finalize()


def _placed(prefix: str, body: bytes, nonce: int, tag: int, *, at: int = 0, before: int = 0) -> Sealed:
    start = at + len(prefix.encode()) + before
    end = start - before + len(body)
    parts = {"nonce": Part(start, start + nonce), "ciphertext": Part(start + nonce, end - tag)}
    if tag:
        parts["tag"] = Part(end - tag, end)
    return Sealed(prefix.encode() + body, parts)


# --- what is done to them -------------------------------------------------------------------------------------------

_Hurt = Callable[[random.Random, Sealed, str], _Damaged]


def _untouched(words: str, *marks: str) -> _Hurt:
    def leave(_rng: random.Random, sealed: Sealed, provider: str) -> _Damaged:
        bound = provider in BOUND_PROVIDERS
        return _Damaged(
            sealed.value, frozenset(marks) if bound or not marks else frozenset({f"{words}, unbound"}), words
        )

    return leave


def _flipped(sealed: Sealed, places: list[tuple[int, int]]) -> _Damaged:
    value = bytearray(sealed.value)
    marks = {"bits"}
    for at, bit in places:
        value[at] ^= 1 << bit
        marks |= {name for name, part in sealed.parts.items() if part.start <= at < part.end} or {"envelope"}
    return _Damaged(bytes(value), frozenset(marks), "")


def _one_bit(rng: random.Random, sealed: Sealed, _provider: str) -> _Damaged:
    parts = [part for name, part in sealed.parts.items() if name != "wrapped"]
    part = rng.choice(parts) if rng.random() < 0.4 else sealed.body()
    found = _flipped(sealed, [(rng.randrange(part.start, part.end), rng.randrange(8))])
    return found._replace(marks=found.marks | {"one bit"})


def _some_bits(rng: random.Random, sealed: Sealed, _provider: str) -> _Damaged:
    body = sealed.body()
    places = rng.sample(range((body.end - body.start) * 8), rng.randint(2, 64))
    return _flipped(sealed, [(body.start + place // 8, place % 8) for place in places])


def _overwritten(sealed: Sealed, part: Part, new: bytes) -> _Damaged:
    value = sealed.value[: part.start] + new + sealed.value[part.end :]
    marks = {name for name, p in sealed.parts.items() if p.start < part.end and part.start < p.end}
    return _Damaged(value, frozenset(marks | {"run"}), "")


def _run(rng: random.Random, sealed: Sealed) -> Part:
    body = sealed.body()
    start = rng.randrange(body.start, body.end)
    return Part(start, min(start + rng.randint(2, 512), body.end))


def _run_overwritten(rng: random.Random, sealed: Sealed, _provider: str) -> _Damaged:
    part = _run(rng, sealed)
    return _overwritten(sealed, part, rng.randbytes(part.end - part.start))


def _run_zeroed(rng: random.Random, sealed: Sealed, _provider: str) -> _Damaged:
    part = _run(rng, sealed)
    return _overwritten(sealed, part, bytes(part.end - part.start))


def _part_overwritten(rng: random.Random, sealed: Sealed, name: str) -> _Damaged:
    part = sealed.parts[name]
    return _overwritten(sealed, part, rng.randbytes(part.end - part.start))


def _nonce_overwritten(rng: random.Random, sealed: Sealed, _provider: str) -> _Damaged:
    return _part_overwritten(rng, sealed, "nonce")


def _info_damaged(rng: random.Random, sealed: Sealed, _provider: str) -> _Damaged:
    if rng.random() < 0.5:
        return _part_overwritten(rng, sealed, "info")
    part = sealed.parts["info"]
    found = _flipped(sealed, [(rng.randrange(part.start, part.end), rng.randrange(8))])
    return found._replace(marks=found.marks | {"one bit"})


def _wrapped_damaged(rng: random.Random, sealed: Sealed, _provider: str) -> _Damaged:
    part = sealed.parts["wrapped"]
    return _flipped(sealed, [(rng.randrange(part.start, part.end), rng.randrange(8))])


def _envelope_damaged(rng: random.Random, sealed: Sealed, provider: str) -> _Damaged:
    start = sealed.value.index(b"kms:") + len(b"kms:v2:prov:")
    inside = {
        at for part in sealed.parts.values() for at in range(part.start, min(part.end, part.start + 4096))
    }
    first = min(part.start for part in sealed.parts.values())
    ends = range(sealed.body().end, len(sealed.value)) if provider.startswith("kms v2") else range(0)
    places = [at for at in (*range(start, first), *ends) if at not in inside]
    at = rng.choice(places)
    found = _flipped(sealed, [(at, rng.randrange(8))])
    # Between the name and what is wrapped, v1 has a colon and two bytes.
    in_name = provider.startswith("kms v1") and at < first - 3
    return found._replace(marks=found.marks | {"name"}) if in_name else found


def _cut(rng: random.Random, sealed: Sealed, _provider: str) -> _Damaged:
    body = sealed.body()
    room = len(sealed.value) - body.start
    size = rng.choice(
        (rng.randint(1, 40), 16 * rng.randint(1, 8), rng.randint(1, room - 1), rng.randint(1, room - 1))
    )
    return _Damaged(sealed.value[: -min(size, room - 1)], frozenset({"cut"}), "")


def _appended(rng: random.Random, sealed: Sealed, _provider: str) -> _Damaged:
    more = rng.choice((rng.randbytes(rng.randint(1, 64)), bytes(rng.randint(1, 64)), b"\n", b"\r\n"))
    return _Damaged(sealed.value + more, frozenset({"appended"}), "")


def _crlf(_rng: random.Random, sealed: Sealed, _provider: str) -> _Damaged:
    value = sealed.value.replace(b"\n", b"\r\n")
    return _Damaged(value, frozenset({"crlf"} if value != sealed.value else ()), "")


_DAMAGES: dict[str, _Hurt] = {
    "no damage": _untouched("no damage"),
    "one flipped bit": _one_bit,
    "2 to 64 flipped bits": _some_bits,
    "a run overwritten": _run_overwritten,
    "a run zeroed": _run_zeroed,
    "cut at the end": _cut,
    "bytes appended": _appended,
    "CR LF for LF": _crlf,
    "nonce overwritten": _nonce_overwritten,
    "info damaged": _info_damaged,
    "wrapped data key damaged": _wrapped_damaged,
    "envelope damaged": _envelope_damaged,
    "moved": _untouched("moved", "moved"),
    "other prefix": _untouched("other prefix", "prefix"),
    "hidden prefix": _untouched("hidden prefix", "hidden prefix"),
}
DAMAGES = tuple(_DAMAGES)
UNDAMAGED = frozenset({"no damage", "moved", "other prefix", "hidden prefix"})
"""Whose bytes are as they were written."""


def _damage_of_case(rng: random.Random, provider: str, key: str) -> str:
    if key == TWICE:
        return "no damage"
    weights = {
        "no damage": 4 if key.startswith("right") else 60,
        "one flipped bit": 22,
        "2 to 64 flipped bits": 16,
        "a run overwritten": 6,
        "a run zeroed": 6,
        "cut at the end": 20,
        "bytes appended": 4,
        "CR LF for LF": 5,
        "nonce overwritten": 4,
        "moved": 4,
        "other prefix": 3,
        "hidden prefix": 4,
    }
    if provider.startswith("kms"):
        weights |= {"wrapped data key damaged": 5, "envelope damaged": 5}
    if provider == "kms v2, seed":
        weights["info damaged"] = 5
    return rng.choices(list(weights), list(weights.values()))[0]


# --- where they are, and what stands around them --------------------------------------------------------------------


def _identity(rng: random.Random, kind: Kind) -> Identity:
    letters = "abcdefghijklmnopqrstuvwxyz"
    name = "".join(rng.choices(letters, k=rng.choice((1, 2, 8, 20, 60))))
    namespace = "".join(rng.choices(letters, k=rng.choice((1, 7, 20)))) if kind.namespaced else ""
    digits = rng.randbytes(16).hex()
    uid = "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
    return Identity(name, namespace, uid)


def _size(rng: random.Random, kind: Kind) -> int:
    sizes = ((0, 100), (100, 1_500), (1_500, 20_000), (20_000, 200_000), (LARGE, LARGE + 1))
    low, high = rng.choices(sizes, (25, 55, 17, 2.3, 0.7))[0]
    # YAML is read slowly.
    return min(rng.randrange(low, high), 20_000) if kind.encoding == "yaml" else rng.randrange(low, high)


def _places(rng: random.Random, kind: Kind, identity: Identity, damage: str) -> tuple[bytes, bytes]:
    home = kind.etcd_key(PREFIX, identity)
    match damage:
        case "moved":
            return kind.etcd_key(PREFIX, identity._replace(name=f"{identity.name}-copy")), home
        case "other prefix":
            return home, kind.etcd_key(rng.choice(KNOWN_PREFIXES), identity)
        case "hidden prefix":
            return home, kind.etcd_key(f"/{rng.randbytes(6).hex()}{PREFIX}", identity)
        case _:
            return home, home


def _neighbours(
    rng: random.Random, where: str, kind: Kind, writer: _Writer, target: Identity, prefix: str
) -> list[StoredValue]:
    if where == "none":
        return []
    both = (40, 60, 140, 160)
    revisions = {"before": both[:2], "after": both[2:]}.get(where, both)
    if where == "other resource":
        resource = _other_resource(kind)[0]
        kind = next(k for k in corpus.kinds()["protobuf"] if k.resource == resource)
    found = []
    for revision in revisions:
        identity = _identity(rng, kind)
        identity = identity._replace(
            name=f"n{revision}-{identity.name}", namespace=target.namespace or identity.namespace
        )
        if not kind.namespaced:
            identity = identity._replace(namespace="")
        plaintext = kind.build(identity, corpus.filler(rng, 60))
        home = kind.etcd_key(PREFIX, identity)
        value = writer.seal_neighbour(plaintext, kind.etcd_key(prefix, identity), revision)
        found.append(StoredValue(home, value, revision, revision, 1, 0))
    return found


def _another_in_between(rng: random.Random, kind: Kind, writer: _Writer) -> StoredValue:
    identity = _identity(rng, kind)
    identity = identity._replace(name=f"between-{identity.name}")
    home = kind.etcd_key(PREFIX, identity)
    sealed = writer.seal(kind.build(identity, corpus.filler(rng, 60)), home)
    return StoredValue(home, sealed.value, TARGET_REVISION + 1, TARGET_REVISION + 1, 1, 0)


# --- what is left of the plaintext ----------------------------------------------------------------------------------


def _left(
    provider: str, key: bytes, sealed: Sealed, damaged: _Damaged, plaintext: bytes
) -> tuple[bytes | None, bytes | None]:
    value, marks = damaged.value, damaged.marks
    nonce, text = sealed.parts["nonce"], sealed.parts["ciphertext"]
    if marks & {"envelope", "wrapped", "crlf", "info"}:
        return None, None
    body = value[nonce.start :]
    if provider in CBC_PROVIDERS:
        blocks = body[: len(body) // 16 * 16]
        if len(blocks) < 32:
            return None, None
        seen = _cbc_blocks(blocks, key)
        return seen, _unpadded(seen) if len(body) == len(blocks) else None
    if "nonce" in marks:
        return None, None
    if provider.startswith("kms v2") and "cut" in marks:
        return None, None  # the end is the envelope's
    stored = value[text.start :]
    if provider != "secretbox":
        stored = stored[: max(len(stored) - 16, 0)]
    stored = stored[: text.end - text.start]
    before = sealed.value[text.start : text.start + len(stored)]
    changed = int.from_bytes(stored) ^ int.from_bytes(before) ^ int.from_bytes(plaintext[: len(stored)])
    return changed.to_bytes(len(stored)), None


def _visible(left: bytes, plaintext: bytes) -> int:
    size = min(len(left), len(plaintext)) // 16 * 16
    wrong = (int.from_bytes(left[:size]) ^ int.from_bytes(plaintext[:size])).to_bytes(size)
    blocks = (int.from_bytes(wrong[start : start + 16]) for start in range(0, size, 16))
    return 16 * sum(block == 0 for block in blocks)


def _cbc_blocks(body: bytes, key: bytes) -> bytes:
    decryptor = Cipher(AES(key), CBC(body[:16])).decryptor()
    return decryptor.update(body[16:]) + decryptor.finalize()


def _unpadded(padded: bytes) -> bytes | None:
    size = padded[-1]
    fits = 0 < size <= len(padded) and padded.endswith(bytes([size]) * size)
    return padded[:-size] if fits else None
