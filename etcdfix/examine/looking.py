"""What is seen of a value that is not plainly readable: what it would be under its key, and what its key says of it."""

from __future__ import annotations

import contextlib
import re
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

from etcdfix.decoding.errors import KindUnknown
from etcdfix.decoding.registry import Registry, SchemeName, stored_kinds
from etcdfix.encryption.envelope import Envelope
from etcdfix.encryption.kms.envelopes import KEY_ID_MAX_SIZE, stored_key_id
from etcdfix.encryption.known_starts import first_blocks
from etcdfix.encryption.peek import LookInto, Structures, peek
from etcdfix.examine.readers import ResourceReader
from etcdfix.examine.verdicts.examination import KeyName
from etcdfix.examine.verdicts.observation import GARBLED, DecodeFailure, DecodeFailureKind, PlaintextShape
from etcdfix.examine.verdicts.plaintext import (
    describe_failure,
    is_in_order,
    look_of_failure,
    look_of_object,
    shape_of,
    unwritable,
)
from etcdfix.model.errors import DecodeError
from etcdfix.model.model import DecodedObject, Look, Peek, Plaintext, StoredValue, key_id_digest
from etcdfix.model.providers import ENCRYPTED_PREFIX, ENCRYPTING, IDENTITY
from etcdfix.model.storagekey import (
    ResourcePrefix,
    StorageCodec,
    builtin_directories,
    display,
)

if TYPE_CHECKING:
    from etcdfix.examine.one import Examiner

# A value that ends before the colon after its key name.
_ENVELOPE_STARTS = tuple(facts.prefix for facts in ENCRYPTING)
_ENVELOPE_CUT = re.compile(rb"(?:%b)[^:]{0,253}" % b"|".join(_ENVELOPE_STARTS))


def ends_inside_its_envelope(value: bytes) -> bool:
    """Say whether a value ends before its envelope does."""
    if _ENVELOPE_CUT.fullmatch(value) is not None:
        return True
    # The prefix alone begins every envelope, those of a newer cluster too.
    return len(value) > len(ENCRYPTED_PREFIX) and any(start.startswith(value) for start in _ENVELOPE_STARTS)


class Looking:
    """Looks at values, and into what they decrypt to, for who judges them."""

    def __init__(self, examiner: Examiner) -> None:
        self._layout, self._transformers = examiner.layout, examiner.transformers
        self._decoder, self._readers = examiner.decoder, examiner.readers

    def structures(self, reader: ResourceReader) -> Structures:
        """Return how values begin that may be stored in a resource."""
        return known_structures(self._custom(reader))

    def _custom(self, reader: ResourceReader) -> tuple[tuple[str, str], ...]:
        crd = self._readers.custom_resource(reader.directory)
        return (
            tuple((f"{crd.group}/{version}", crd.kind) for version in crd.versions) if crd is not None else ()
        )

    def shape(
        self, reader: ResourceReader, data: bytes, plain: Plaintext | None, failure: DecodeFailure | None
    ) -> PlaintextShape:
        """Measure a plaintext that does not become an object.

        Args:
            reader: How the resource is read.
            data: The plaintext.
            plain: How it was opened; None for a value that its providers refuse since it is not encrypted.
            failure: Why it does not decode; None where it does, and nothing comes out.
        """
        blocks: tuple[bytes, ...] = ()
        garbled = failure is not None and failure.kind in GARBLED
        if garbled and plain is not None and plain.transformer != IDENTITY and not plain.authenticated:
            kind = reader.directory.kind
            blocks = first_blocks(
                self._custom(reader) or (pair for pair in stored_kinds() if pair[1] == kind)
            )
        return shape_of(
            data, reader.decode, self._decoder.parses, heal=failure is not None, first_blocks=blocks
        )

    def in_the_clear(
        self, reader: ResourceReader, data: bytes
    ) -> tuple[DecodedObject | None, DecodeFailure | None]:
        """Decode a value that its providers refuse since it is not encrypted: is it whole?"""
        try:
            return reader.decode(data), None
        except DecodeError as problem:
            return None, self.describe(problem, reader)

    def peek(
        self, reader: ResourceReader, stored: StoredValue, plain: Plaintext | None, *, thorough: bool
    ) -> Peek | None:
        """Look at a value without its tag or padding; None where its encryption key is proven already, or unknown."""
        if reader.transformers is None or self._transformers is None:
            return None
        if plain is not None and plain.authenticated:
            return None
        resource = reader.directory.group_resource
        found = peek(
            self._transformers,
            resource,
            stored.value,
            stored.key,
            self.structures(reader),
            self.look_into(reader),
            other_keys=self._layout.under_other_prefixes(stored.key),
            thorough=thorough,
        )
        if plain is not None and found.named and found.key_fingerprint != plain.key_fingerprint:
            # Padding fitted by chance under an earlier key of the same name, and the server looks no further.
            return msgspec.structs.replace(found, named=False)
        return found

    def look_into(self, reader: ResourceReader) -> LookInto:
        """Return what tells the encryption package whether a plaintext is whole; the plaintext stays there."""

        def in_order(data: bytes) -> bool:
            return is_in_order(data, self._decoder.parses, reader.directory.group, reader.directory.kind)

        def look(data: bytes) -> Look:
            try:
                decoded = reader.decode(data)
            except DecodeError as problem:
                failure = self.describe(problem, reader)
                belongs = self._keys_of_kind(data, failure)
                return look_of_failure(data, failure, reader.decode, in_order, belongs)
            belongs = self.key_of(reader.directory, decoded)
            custom = reader.directory.codec is StorageCodec.CUSTOM_RESOURCE
            odd = unwritable(decoded, reader.directory.group_resource, custom=custom)
            return look_of_object(data, decoded, belongs)._replace(unwritable=odd)

        return look

    def key_of(self, directory: ResourcePrefix, decoded: DecodedObject) -> tuple[bytes, ...]:
        """Return the etcd key that an object's own namespace and name lead to."""
        if not decoded.name:
            return ()
        namespace = decoded.namespace + b"/" if decoded.namespace else b""
        return (self._layout.directory_prefix(directory) + namespace + decoded.name,)

    def _keys_of_kind(self, data: bytes, failure: DecodeFailure) -> tuple[bytes, ...]:
        """Return the etcd keys of an object of another kind than the one that its key promises."""
        if failure.kind is not DecodeFailureKind.WRONG_KIND:
            return ()
        group = failure.group_version.rpartition("/")[0]
        found: list[bytes] = []
        for directory in builtin_directories():
            if (directory.group, directory.kind) == (group, failure.value_kind):
                reader = self._readers.reader_for(self._layout.directory_prefix(directory) + b"-")
                with contextlib.suppress(DecodeError):
                    found += self.key_of(directory, reader.decode(data))
        return tuple(found)

    @staticmethod
    def describe(problem: DecodeError, reader: ResourceReader) -> DecodeFailure:
        """Add to a kind that is not registered what the other releases, and the other API servers, know of it."""
        if not isinstance(problem, KindUnknown) or problem.reason != "not-registered":
            return describe_failure(problem)
        group, _, version = problem.group_version.rpartition("/")
        directory = reader.directory
        for scheme in SchemeName:
            known = Registry(scheme=scheme).lookup(group, version, problem.kind)
            if known is None:
                continue
            if scheme is SchemeName.KUBERNETES:
                elsewhere = directory.codec is StorageCodec.JSON_BUILTIN
            else:
                elsewhere = group != directory.group
            failure = describe_failure(problem, known_since=f"1.{known.since}")
            return (
                msgspec.structs.replace(failure, kind=DecodeFailureKind.WRONG_KIND) if elsewhere else failure
            )
        return describe_failure(problem)


@lru_cache(maxsize=32)
def known_structures(custom: tuple[tuple[str, str], ...] = ()) -> Structures:
    """Return how values of every kind that a known release stores begin, and some custom resources."""
    return Structures(stored_kinds(), custom)


def encryption_keys(
    reader: ResourceReader, plain: Plaintext | None, written_under: str, kms_key_id: str
) -> tuple[KeyName, ...]:
    """Return the encryption keys under which a value counts: the one that opened it, or all of its key's name."""
    if plain is not None:
        key = plain.key_fingerprint or key_id_digest(plain.kms_key_id)
        return (KeyName(reader.rule, plain.transformer, key),)
    alike = () if reader.transformers is None else reader.transformers.keys
    fingerprints = [key.key_fingerprint for key in alike if key.transformer == written_under]
    keys = [fingerprint for fingerprint in fingerprints if fingerprint] or [key_id_digest(kms_key_id)]
    return tuple(KeyName(reader.rule, written_under, key) for key in dict.fromkeys(keys))


def kms_key_id_of(stored: StoredValue, envelope: Envelope | None) -> str:
    """Return the KMS key id in an envelope; "" where there is none."""
    if envelope is None or not (envelope.known and envelope.facts.has_key_ids):
        return ""
    key_id = stored_key_id(stored.value[envelope.body_offset :])
    return (
        key_id if len(key_id.encode()) <= KEY_ID_MAX_SIZE else ""
    )  # longer ones are damage, not key ids in use


def identity_mismatch(
    reader: ResourceReader, namespace: str, name: str, well_formed: bool, decoded: DecodedObject | None
) -> str:
    """Say in which way an object contradicts its key; "" when it does not, or has no identity to compare."""
    if decoded is None or decoded.empty or not reader.owner_known:
        return ""
    if reader.directory.codec is StorageCodec.ALLOCATOR:
        return ""
    if not well_formed:
        return "the key has more or fewer path segments than its resource"
    inside = display(decoded.name or b"")
    if inside != name:
        return f"metadata.name differs from the key: {inside[:253]}" if inside else "metadata.name is missing"
    if display(decoded.namespace or b"") != namespace:
        return "metadata.namespace differs from the key"
    return ""
