"""Opens KMS values, given a plugin; without one, says that nobody was asked.

Sources: ``k8s.io/apiserver/pkg/storage/value/encrypt/envelope/envelope.go`` (v1),
``…/envelope/kmsv2/envelope.go`` (v2), ``…/encrypt/aes/aes_extended_nonce.go`` (key derivation) and
``…/server/options/encryptionconfig/config.go`` (v1 tries GCM, then CBC).
"""

from __future__ import annotations

import hmac
import re
from abc import ABC, abstractmethod
from bisect import insort
from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import NamedTuple

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.hmac import HMAC

from etcdfix.encryption.cipher import TOO_SHORT_ERROR, Flip
from etcdfix.encryption.kms.envelopes import (
    EncryptedObject,
    KMSEnvelopeInvalid,
    KMSPlugin,
    WrappedKey,
    names_encrypted_data,
    parse_encrypted_object,
    parse_v1_body,
    recut_v1_body,
    split_encrypted_object,
    validate_encrypted_object,
)
from etcdfix.encryption.providers.aescbc import AESCBCCipher
from etcdfix.encryption.providers.aesgcm import NONCE_SIZE, AESGCMCipher
from etcdfix.model.model import Attempt, FailureReason, Plaintext, PluginRecord

_AES_KEY_SIZES = frozenset({16, 24, 32})
INFO_SIZE = 32
INFO = "info"  # the part of a Flip that is the info of a value
_MIN_SEED_SIZE = 32
_OBJECT_STARTS = (b"k8s\x00", b'{"', b"\xd9\xd9\xf7")
# YAML: noise is text for so long once in 2^22 values, and padding has to fit as well.
_TEXT_START = re.compile(rb"[\x20-\x7e\r\n]{16}")
_MOST_SIZES = 4
# API servers share one seed among all that they write until the key rotates, so few suffice.
_MOST_KNOWN_TAILS = 1024
_MAX_TAIL_SIZE = 64 << 10
MOST_WITNESSES = 1024
"""So many data keys of a KMS v2 provider are kept that opened values: each may be that of a damaged one.

Which they are, and in which order they are tried, must not depend on when a plugin answered: a report would.
"""

_SEEDED_MIN_SIZE = INFO_SIZE + NONCE_SIZE

_Quick = Callable[[bytes, bytes], bytes | None]


class DataKey(msgspec.Struct, frozen=True):
    """What a KMS v2 plugin gave for a wrapped key, and what it is used as.

    Attributes:
        seeded: It is a seed, from which each value's key is derived; otherwise it is the key.
    """

    source: bytes
    seeded: bool

    def __repr__(self) -> str:
        return f"DataKey({len(self.source)} bytes, seeded={self.seeded})"

    @property
    def place(self) -> bytes:
        """Where it stands among others: a digest, which the time at which it came has no part in."""
        return sha256(bytes([self.seeded]) + self.source).digest()

    def used_as(self, *, seeded: bool) -> DataKey:
        """Return the same bytes for the other use."""
        return DataKey(self.source, seeded=seeded)

    def cipher(self, data: bytes) -> tuple[AESGCMCipher, bytes] | Attempt:
        """Return what reads a value's data, and the body that it reads; or why there is none."""
        source = self.source
        if not self.seeded:
            return (AESGCMCipher(source), data) if len(source) in _AES_KEY_SIZES else _key_size_fault(source)
        if len(source) < _MIN_SEED_SIZE:
            error = f"invalid seed length {len(source)} used for key generation"
            return Attempt(FailureReason.KMS_KEY_INVALID, (error,))
        if len(data) < INFO_SIZE:
            return Attempt(FailureReason.TOO_SHORT, (TOO_SHORT_ERROR,))
        return AESGCMCipher(derive_key(source, data[:INFO_SIZE])), data[INFO_SIZE:]

    def unchecked(self, data: bytes) -> tuple[AESGCMCipher, bytes] | None:
        """Return how a value's data is looked at under it, and what follows the info; None where that cannot be."""
        found = self.cipher(data)
        if isinstance(found, Attempt) or (self.seeded and len(data) < _SEEDED_MIN_SIZE):
            return None
        return found

    def other_infos(self, data: bytes) -> Iterator[tuple[Flip, AESGCMCipher, bytes]]:
        """Yield each bit of a value's info, and what its data is looked at with if that is turned; only for a seed."""
        for place in range(8 * min(INFO_SIZE, len(data)) if self.seeded else 0):
            flip = Flip(INFO, place // 8, place % 8)
            found = self.unchecked(flip.turned(data))
            if found is not None:
                yield flip, *found


class KnownSeed(NamedTuple):
    """A seed that a KMS v2 plugin gave and that opened a value.

    Attributes:
        tail: What follows the data in each value under it: wrapped seed, key id, annotations.
    """

    tail: bytes
    key_id: str
    seed: bytes

    def __repr__(self) -> str:
        return f"KnownSeed({len(self.tail)} bytes)"


class _OpenedV1(NamedTuple):
    data: bytes
    stale: bool
    dek: bytes

    def __repr__(self) -> str:
        return f"_OpenedV1({len(self.data)} bytes, stale={self.stale})"


class _ProviderReader(ABC):
    """Opens values of one KMS provider.

    Attributes:
        transformer: ``kms/v2/prov``.
        prefix: What each of its values begins with.
        plugin: Gives the data keys; None where nobody is to be asked.
        learns: What opens is remembered, and speaks for the plugin; not so for bytes that etcd does not hold.
    """

    def __init__(self, plugin: KMSPlugin | None, transformer: str = "", prefix: bytes = b"") -> None:
        self.transformer = transformer
        self.prefix = prefix
        self.plugin = plugin
        self.learns = True

    def is_same(self, other: _ProviderReader) -> bool:
        """Say whether both ask one plugin, so that what the one says holds for the other."""
        return self.prefix == other.prefix and self.plugin is other.plugin

    def ask(self, body: bytes) -> bool:
        """Ask the plugin for the data key of a value, for ``recall`` to give; say whether it answered.

        Raises:
            KMSPending: The plugin has not answered yet.
        """
        try:
            wrapped = self._wrapped_key(body)
        except KMSEnvelopeInvalid:
            return True
        answer = _unwrap(self.plugin, wrapped)
        return not isinstance(answer, Attempt) or answer.reason is not FailureReason.KMS_UNREACHABLE

    @abstractmethod
    def _wrapped_key(self, body: bytes) -> WrappedKey:
        """Return the wrapped data key of a body; raises KMSEnvelopeInvalid."""


class KMSv1Reader(_ProviderReader):
    """Opens values of one KMS v1 provider."""

    def __init__(self, plugin: KMSPlugin | None, transformer: str = "", prefix: bytes = b"") -> None:
        super().__init__(plugin, transformer, prefix)
        # Sizes of wrapped DEKs that opened: a KMS gives them one or two.
        self._sizes: set[int] = set()

    def _wrapped_key(self, body: bytes) -> WrappedKey:
        return parse_v1_body(body)[0]

    def start_over(self) -> None:
        """Forget what opened values."""
        self._sizes.clear()

    @property
    def sizes(self) -> list[int]:
        """The sizes of wrapped data keys with which other values have opened in this run; a few of them."""
        return sorted(self._sizes)[:_MOST_SIZES]

    def recall(self, body: bytes) -> tuple[bytes, bytes] | None:
        """Return the DEK that the plugin has given already and the data under it; None where there is none."""
        try:
            wrapped, data = parse_v1_body(body)
        except KMSEnvelopeInvalid:
            return None
        dek = self.plugin.recall(wrapped) if self.plugin is not None else None
        return (dek, data) if dek is not None and len(dek) in _AES_KEY_SIZES else None

    def read(self, body: bytes, etcd_key: bytes) -> Plaintext | Attempt:
        """Return the plaintext of ``body``, or why there is none.

        Without a plugin that answers every reason is ``kms-unreachable``; a fault of the envelope is then in
        ``errors``.

        Raises:
            KMSPending: The plugin has not answered yet.
        """
        plugin = self.plugin
        try:
            wrapped, data = parse_v1_body(body)
        except KMSEnvelopeInvalid as error:
            return _envelope_fault(error, plugin)
        result = _read_v1(plugin, wrapped, data, etcd_key)
        size = len(wrapped.ciphertext)
        if isinstance(result, Attempt) and result.plugin is None:
            return result
        assert plugin is not None  # whoever answered
        if not isinstance(result, Attempt):
            plaintext = Plaintext(result.data, "", result.stale, authenticated=not result.stale)
            if _speaks_for_plugin(result):
                if self.learns:
                    plugin.opened[""] += 1
                    self._sizes.add(size)
                    plugin.add_control(wrapped, result.dek)
                return plaintext
            # What is noise may come from a wrong DEK: without a control that is nobody's fault that we could name.
            fault = _witnessed(Attempt(FailureReason.PADDING_INVALID, ()), plugin, "")
            assert fault.plugin is not None  # just added
            return plaintext if fault.plugin.healthy and fault.plugin.same_key else fault
        # The size has no checksum; one that opens the value as its neighbours open is proof that it was damaged.
        for other in sorted(self._sizes - {size})[:_MOST_SIZES]:
            recut, rest = recut_v1_body(body, other)
            opened = _read_v1(plugin, recut, rest, etcd_key)
            if not isinstance(opened, Attempt) and _speaks_for_plugin(opened):
                return Attempt(FailureReason.KMS_SIZE_DAMAGED, result.errors, plugin=result.plugin)
        return result


def _read_v1(
    plugin: KMSPlugin | None, wrapped: WrappedKey, data: bytes, etcd_key: bytes
) -> _OpenedV1 | Attempt:
    dek = _unwrap(plugin, wrapped)
    if isinstance(dek, Attempt):
        return dek
    assert plugin is not None  # else there would be no DEK
    if len(dek) not in _AES_KEY_SIZES:
        return _witnessed(_key_size_fault(dek), plugin, "")
    plaintext = AESGCMCipher(dek).read(data, etcd_key)
    if not isinstance(plaintext, Attempt):
        return _OpenedV1(plaintext, stale=False, dek=dek)
    # API servers up to 1.24 wrote CBC, and nothing in the value says which.
    fallback = AESCBCCipher(dek).read(data, etcd_key)
    if not isinstance(fallback, Attempt):
        return _OpenedV1(fallback, stale=True, dek=dek)
    return _witnessed(Attempt(plaintext.reason, plaintext.errors + fallback.errors), plugin, "")


def _speaks_for_plugin(opened: _OpenedV1) -> bool:
    """Say whether an opened value is a witness: padding alone (CBC) fits one wrong key in 256."""
    data = opened.data
    return not opened.stale or data.startswith(_OBJECT_STARTS) or _TEXT_START.match(data) is not None


class KMSv2Reader(_ProviderReader):
    """Opens values of one KMS v2 provider.

    Attributes:
        dropped: More data keys opened values than are kept.
    """

    def __init__(self, plugin: KMSPlugin | None, transformer: str = "", prefix: bytes = b"") -> None:
        super().__init__(plugin, transformer, prefix)
        self.dropped = False
        # What follows the data in a value -> its key id, its seed, and how data under that is read.
        self._known: dict[bytes, tuple[str, bytes, _Quick]] = {}
        # What opened other values, and what follows the data in one of them, b"" for another layout; by their places.
        self._witnesses: dict[bytes, tuple[DataKey, bytes]] = {}
        self._places: list[bytes] = []

    def start_over(self) -> None:
        """Forget what opened values."""
        self.dropped = False
        self._known.clear()
        self._witnesses.clear()
        self._places.clear()

    @property
    def witnesses(self) -> list[DataKey]:
        """What has opened other values in this run, in an order of its own; 1,024 of them."""
        return [key for key, _ in self.witness_tails]

    @property
    def witness_tails(self) -> list[tuple[DataKey, bytes]]:
        """The same, each with what follows the data in a value that it opened: wrapped key, key id, annotations."""
        return [self._witnesses[place] for place in self._places]

    def _wrapped_key(self, body: bytes) -> WrappedKey:
        encrypted = parse_encrypted_object(body)
        validate_encrypted_object(encrypted)
        return encrypted.wrapped_key

    def recall(self, encrypted: EncryptedObject) -> DataKey | None:
        """Return what the plugin has given already for a value; None where it was not asked, or said no."""
        key = self.plugin.recall(encrypted.wrapped_key) if self.plugin is not None else None
        return None if key is None else DataKey(key, seeded=encrypted.seeded)

    def read(self, body: bytes, etcd_key: bytes) -> Plaintext | Attempt:
        """Return the plaintext of ``body``, or why there is none.

        See :meth:`KMSv1Reader.read`.
        """
        plugin = self.plugin
        try:
            encrypted = parse_encrypted_object(body)
            validate_encrypted_object(encrypted)
        except KMSEnvelopeInvalid as error:
            return _envelope_fault(error, plugin)
        source = _unwrap(plugin, encrypted.wrapped_key)
        if isinstance(source, Attempt):
            return source
        assert plugin is not None  # else there would be no DEK
        key_id = encrypted.key_id
        data_key = DataKey(source, seeded=encrypted.seeded)
        found = data_key.cipher(encrypted.encrypted_data)
        plaintext = found if isinstance(found, Attempt) else found[0].read(found[1], etcd_key)
        if isinstance(plaintext, Attempt):
            return _witnessed(plaintext, plugin, key_id)
        if self.learns:
            self._learn(plugin, encrypted, body, data_key, source)
        # Which key the plugin writes with can change while we read.
        return Plaintext(
            plaintext, "", not encrypted.seeded or plugin.write_key_id not in ("", key_id), key_id
        )

    def _learn(
        self, plugin: KMSPlugin, encrypted: EncryptedObject, body: bytes, data_key: DataKey, source: bytes
    ) -> None:
        begin, end = split_encrypted_object(body, 0)
        tail = body[end:]
        # A data field that comes again, further back, would be another value's data.
        if not begin or len(tail) > _MAX_TAIL_SIZE or names_encrypted_data(tail):
            tail = b""
        if data_key.seeded and tail:
            self.remember(KnownSeed(tail, encrypted.key_id, source))
        self._witness(data_key, tail)
        plugin.add_control(encrypted.wrapped_key, source)
        plugin.opened[encrypted.key_id] += 1

    def read_known(self, data: bytes, start: int, etcd_key: bytes) -> tuple[bytes, bool, str] | None:
        """Return what :meth:`read` would, for a value whose body is at ``start`` and whose seed has opened another.

        None says nothing: :meth:`read` knows.
        """
        begin, end = split_encrypted_object(data, start)
        known = self._known.get(data[end:]) if begin else None
        plugin = self.plugin
        if known is None or plugin is None:
            return None
        key_id, _, read = known
        plaintext = read(data[begin:end], etcd_key)
        if plaintext is None:
            return None
        plugin.opened[key_id] += self.learns
        return plaintext, plugin.write_key_id not in ("", key_id), key_id

    def _witness(self, key: DataKey, tail: bytes) -> None:
        place = key.place
        _, had = self._witnesses.get(place, (key, b""))
        if place not in self._witnesses:
            insort(self._places, place)
        self._witnesses[place] = key, min(filter(None, (had, tail)), default=b"")
        if len(self._places) > MOST_WITNESSES:
            del self._witnesses[self._places.pop()]
            self.dropped = True

    @property
    def known_seeds(self) -> list[KnownSeed]:
        """What :meth:`read_known` reads with, for the one of another process; the newest last."""
        return [KnownSeed(tail, key_id, seed) for tail, (key_id, seed, _) in self._known.items()]

    def remember(self, known: KnownSeed) -> None:
        """Have :meth:`read_known` read values under a seed that has opened one of them."""
        if len(self._known) >= _MOST_KNOWN_TAILS:
            self._known.clear()
        self._known[known.tail] = known.key_id, known.seed, _seeded_quickly(known.seed)


KMSReader = KMSv1Reader | KMSv2Reader


def derive_key(seed: bytes, info: bytes) -> bytes:
    """Return the AES-256 key of one value: HKDF-Expand with SHA-256, 32 bytes, so a single HMAC block."""
    return hmac.digest(seed, info + b"\x01", "sha256")


def _seeded_quickly(seed: bytes) -> _Quick:
    """Return how the many values under one seed are read that open; None for the others, which are read anew."""
    expand = HMAC(seed, SHA256())  # keyed once: a copy costs a third of a new one

    def read(data: bytes, etcd_key: bytes) -> bytes | None:
        if len(data) < _SEEDED_MIN_SIZE:
            return None
        block = expand.copy()
        block.update(data[:INFO_SIZE] + b"\x01")
        try:
            return AESGCM(block.finalize()).decrypt(
                data[INFO_SIZE:_SEEDED_MIN_SIZE], data[_SEEDED_MIN_SIZE:], etcd_key
            )
        except InvalidTag:
            return None

    return read


def _unwrap(plugin: KMSPlugin | None, wrapped: WrappedKey) -> bytes | Attempt:
    if plugin is None:
        return Attempt(FailureReason.KMS_UNREACHABLE, ())
    # v2 says whose error it is; v1 passes the gRPC status on as it is.
    prefix = "failed to decrypt DEK, error: " if wrapped.api_version == "v2" else ""
    answer = plugin.unwrap(wrapped)
    if isinstance(answer, bytes):
        return answer
    errors = (f"{prefix}{answer.message}",)
    if not answer.refused:
        return Attempt(FailureReason.KMS_UNREACHABLE, errors)
    fault = Attempt(FailureReason.KMS_REFUSED, errors, kms_status=answer.status)
    return _witnessed(fault, plugin, wrapped.key_id)


def _witnessed(fault: Attempt, plugin: KMSPlugin, key_id: str) -> Attempt:
    """Add what the plugin has shown of itself, on which belief in the fault rests."""
    record = PluginRecord(plugin.healthy, plugin.opened[key_id], plugin.opened.total())
    return msgspec.structs.replace(fault, plugin=record)


def _envelope_fault(error: KMSEnvelopeInvalid, plugin: KMSPlugin | None) -> Attempt:
    # Proof, in fact; but while a plugin is away all values of its provider are undetermined, by contract.
    reason = FailureReason.KMS_UNREACHABLE
    if plugin is not None and plugin.check():
        reason = FailureReason.KMS_ENVELOPE_INVALID
        if error.maybe_newer:
            reason = FailureReason.KMS_ENVELOPE_UNKNOWN
    return Attempt(reason, (error.message,))


def _key_size_fault(key: bytes) -> Attempt:
    return Attempt(FailureReason.KMS_KEY_INVALID, (f"crypto/aes: invalid key size {len(key)}",))
