"""What a KMS-encrypted value says before anybody asks a plugin: pure parsers, no keys, no network.

Formats:
    v1 body: ``length(2, big endian) || encrypted DEK || data``
    (``k8s.io/apiserver/pkg/storage/value/encrypt/envelope/envelope.go``).
    v2 body: protobuf ``v2.EncryptedObject`` (``…/envelope/kmsv2/v2/api.proto``), validated as in
    ``…/envelope/kmsv2/envelope.go``; the wire format is read as Go's ``google.golang.org/protobuf`` does.

The plugin client is not here. Whatever implements :class:`KMSPlugin` can be given to
:meth:`~etcdfix.encryption.transformer.Transformers.from_configuration`.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections import Counter
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple, Protocol

import msgspec

from etcdfix.golang.goquote import withheld
from etcdfix.model.errors import EtcdfixError, aggregate
from etcdfix.wire.varint import MAX_BYTES, read_varint

KEY_ID_MAX_SIZE = 1024
DEK_SOURCE_MAX_SIZE = 1024
ANNOTATIONS_MAX_SIZE = 32 * 1024

_LENGTH = struct.Struct(">H")
_PART = struct.Struct(">I")
_MAX_FIELD_NUMBER = (1 << 29) - 1
_MAX_GROUP_DEPTH = 10_000
# Go puts a plain or a no-break space after "proto:", by build; searches should use \s.
_DATA_TAG = b"\x0a"
_MALFORMED = "proto: cannot parse invalid wire-format data"
_NOT_UTF8 = "string field contains invalid UTF-8"

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_IS_LABEL = re.compile(_LABEL)
_IS_SUBDOMAIN = re.compile(_SUBDOMAIN)
_LABEL_MAX_SIZE = 63
_SUBDOMAIN_MAX_SIZE = 253


class KMSEnvelopeInvalid(EtcdfixError):
    """Raised when the API server would reject the value before asking the plugin; ``message`` is its own.

    Attributes:
        maybe_newer: It is well formed, and a server that knows more kinds of DEK sources, allows more bytes, or has
            another rule for annotations, would accept it.
    """

    code = "kms-envelope-invalid"

    def __init__(self, message: str, *, maybe_newer: bool = False) -> None:
        super().__init__(message)
        self.maybe_newer = maybe_newer


class DEKSourceType(IntEnum):
    """``EncryptedDEKSourceType``: what the plugin's answer is."""

    AES_GCM_KEY = 0
    HKDF_SHA256_XNONCE_AES_GCM_SEED = 1


class WrappedKey(msgspec.Struct, frozen=True):
    """What a plugin needs to give back a DEK or DEK seed; equal ones have equal answers.

    Attributes:
        api_version: ``v1`` or ``v2``.
        ciphertext: Encrypted DEK or DEK seed, bytes for the plugin alone.
        source_type: See :class:`DEKSourceType`; 0 for v1.
        key_id: Names the KEK to a v2 plugin; "" for v1.
        annotations: For a v2 plugin, sorted by name; must go back unchanged.
    """

    api_version: str
    ciphertext: bytes
    source_type: int = 0
    key_id: str = ""
    annotations: tuple[tuple[str, bytes], ...] = ()

    @property
    def size(self) -> int:
        """Bytes that it holds."""
        return len(self.ciphertext) + sum(len(value) for _, value in self.annotations)

    @property
    def digest(self) -> bytes:
        """As unique as the wrapped key, and short.

        Source: ``generateCacheKey`` of ``…/envelope/kmsv2/envelope.go``, with longer lengths and the version in front.
        """
        parts = [self.api_version.encode(), self.ciphertext, self.key_id.encode()]
        for name, value in self.annotations:
            parts += [name.encode(), value]
        digest = hashlib.sha256(_PART.pack(self.source_type & 0xFFFFFFFF))
        for part in parts:
            digest.update(_PART.pack(len(part)) + part)
        return digest.digest()


REFUSALS = frozenset(
    {"FAILED_PRECONDITION", "INVALID_ARGUMENT", "NOT_FOUND", "PERMISSION_DENIED", "UNAUTHENTICATED"}
)
"""gRPC codes by which a plugin says no. No other says anything about the value: many plugins answer UNKNOWN or INTERNAL
to everything, so neither proves anything."""

NO_ANSWER = frozenset({"CANCELLED", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "UNAVAILABLE"})
"""Codes that mean that nobody looked at the request."""


class Failure(msgspec.Struct, frozen=True):
    """No key: a gRPC code, and the status as Go prints it."""

    status: str
    message: str

    @property
    def refused(self) -> bool:
        """The plugin's no; otherwise it is no answer that counts."""
        return self.status in REFUSALS

    @property
    def silent(self) -> bool:
        """Nobody looked at the request; otherwise the plugin did, and refused or failed."""
        return self.status in NO_ANSWER


class KMSPending(Exception):
    """Raised when the plugin has been asked, or soon will be, and has not answered yet: look again later.

    Not an error, and not evidence: nothing has failed.
    """


class KMSPlugin(Protocol):
    """The seam between envelopes and whatever holds the KEK.

    Attributes:
        healthy: It answered Status or Version as it should. A refusal proves something only then.
        write_key_id: Key id that a v2 plugin writes with today, from its Status; "" while unknown, and for v1.
        opened: How many values opened with its answers, by key id ("" for v1); the transformers count here.
    """

    healthy: bool
    write_key_id: str
    opened: Counter[str]

    def check(self) -> bool:
        """Ask for Status or Version, unless it has been asked already; return whether it answers as it should.

        Raises:
            KMSPending: There is no answer yet.
        """
        ...

    def add_control(self, wrapped: WrappedKey, key: bytes) -> None:
        """Remember that this answer opened a value: a control for later, when an answer counts against another."""
        ...

    def unwrap(self, wrapped: WrappedKey) -> bytes | Failure:
        """Return the DEK or DEK seed, or why there is none.

        Raises:
            KMSPending: There is no answer yet.
        """
        ...

    def recall(self, wrapped: WrappedKey) -> bytes | None:
        """Return the DEK or DEK seed that the plugin has given already, else None; never asks it."""
        ...


class EncryptedObject(msgspec.Struct, frozen=True):
    """A KMS v2 body taken apart, not yet validated. Field names as in ``api.proto``."""

    encrypted_data: bytes = b""
    key_id: str = ""
    encrypted_dek_source: bytes = b""
    annotations: tuple[tuple[str, bytes], ...] = ()
    encrypted_dek_source_type: int = 0

    @property
    def seeded(self) -> bool:
        """Whether it says that the plugin gives a seed, as servers write since 1.29; otherwise it gives the key."""
        return self.encrypted_dek_source_type == DEKSourceType.HKDF_SHA256_XNONCE_AES_GCM_SEED

    @property
    def wrapped_key(self) -> WrappedKey:
        """The part that goes to the plugin."""
        return WrappedKey(
            "v2",
            self.encrypted_dek_source,
            self.encrypted_dek_source_type,
            self.key_id,
            self.annotations,
        )


def parse_v1_body(body: bytes) -> tuple[WrappedKey, bytes]:
    """Split the body of a KMS v1 value into the wrapped DEK and the encrypted data.

    A DEK of zero bytes is well formed: the API server hands it to the plugin.

    Raises:
        KMSEnvelopeInvalid: The length runs past the end.
    """
    if len(body) >= _LENGTH.size:
        end = _LENGTH.size + _LENGTH.unpack_from(body)[0]
        if end <= len(body):
            return WrappedKey("v1", body[_LENGTH.size : end]), body[end:]
    raise KMSEnvelopeInvalid(
        "invalid data encountered by envelope transformer: failed to read uint16 length prefixed data"
    )


def recut_v1_body(body: bytes, size: int) -> tuple[WrappedKey, bytes]:
    """Split the body of a KMS v1 value as if its wrapped DEK had ``size`` bytes, whatever its own length says."""
    end = _LENGTH.size + size
    return WrappedKey("v1", body[_LENGTH.size : end]), body[end:]


def parse_encrypted_object(body: bytes) -> EncryptedObject:
    """Decode the protobuf of a KMS v2 value.

    As in Go, unknown fields and known fields of another wire type are skipped, and the last one wins.

    Raises:
        KMSEnvelopeInvalid: Not protobuf, or text that is not UTF-8.
    """
    data = dek_source = b""
    key_id = ""
    source_type = 0
    annotations: dict[str, bytes] = {}
    for field in fields(body):
        match field.number, field.value:
            case 1, bytes(value):
                data = value
            case 2, bytes(value):
                key_id = _utf8(value)
            case 3, bytes(value):
                dek_source = value
            case 4, bytes(value):
                name, annotation = _annotation(value)
                annotations[name] = annotation
            case 5, int(value):
                # An enum is an int32: the upper half of the varint is dropped.
                source_type = ((value & 0xFFFFFFFF) ^ 0x80000000) - 0x80000000
    return EncryptedObject(data, key_id, dek_source, tuple(sorted(annotations.items())), source_type)


def split_encrypted_object(data: bytes, start: int) -> tuple[int, int]:
    """Return where ``encryptedData`` lies in a KMS v2 body laid out as API servers write it, field 1 first.

    What follows it is then the same in all values of one DEK source.

    Returns:
        Offsets in ``data`` of its first byte and behind its last; (0, 0) for any other layout.
    """
    if data[start : start + 1] != _DATA_TAG:
        return 0, 0
    if (
        len(data) > start + 2 and data[start + 1] & 0x80 and data[start + 2] < 0x80
    ):  # 128 to 16,383 bytes: most of them
        begin = start + 3
        end = begin + (data[start + 1] & 0x7F | data[start + 2] << 7)
        return (begin, end) if end <= len(data) else (0, 0)
    try:
        return _delimited(data, start + 1)
    except KMSEnvelopeInvalid:
        return 0, 0


def names_encrypted_data(tail: bytes) -> bool:
    """Say whether a later part of a KMS v2 value gives ``encryptedData`` again, which would win.

    Raises:
        KMSEnvelopeInvalid: Not protobuf.
    """
    return any(field.number == 1 and isinstance(field.value, bytes) for field in fields(tail))


def stored_key_id(body: bytes) -> str:
    """Return the key id in a KMS v2 value, "" where the value does not parse or has none."""
    try:
        return parse_encrypted_object(body).key_id
    except KMSEnvelopeInvalid:
        return ""


def validate_encrypted_object(encrypted: EncryptedObject) -> None:
    """Check a decoded KMS v2 value as the API server does on read, in its order.

    Raises:
        KMSEnvelopeInvalid: The first check that fails; annotation names are withheld.
    """
    problem = _object_problem(encrypted)
    if problem:
        raise KMSEnvelopeInvalid(problem, maybe_newer=_is_beyond_limits(encrypted))


def _is_beyond_limits(encrypted: EncryptedObject) -> bool:
    """Say whether nothing is missing: numbers are higher than any known API server takes, or annotations are others."""
    return (
        encrypted.encrypted_dek_source_type >= 0
        and bool(encrypted.encrypted_data)
        and bool(encrypted.key_id)
        and bool(encrypted.encrypted_dek_source)
    )


def _object_problem(encrypted: EncryptedObject) -> str:
    if encrypted.encrypted_dek_source_type not in set(DEKSourceType):
        return f"unknown encryptedDEKSourceType: {encrypted.encrypted_dek_source_type}"
    if not encrypted.encrypted_data:
        return "encrypted data is empty"
    size = len(encrypted.encrypted_dek_source)
    if not 0 < size <= DEK_SOURCE_MAX_SIZE:
        return f"failed to validate encrypted DEK source: encrypted DEK source is {_size(size, DEK_SOURCE_MAX_SIZE)}"
    size = len(encrypted.key_id.encode())
    if not 0 < size <= KEY_ID_MAX_SIZE:
        return f"failed to validate key id: keyID is {_size(size, KEY_ID_MAX_SIZE)}"
    problems = [_annotation_problem(name) for name, _ in encrypted.annotations]
    problems = [problem for problem in problems if problem]
    total = sum(len(name.encode()) + len(value) for name, value in encrypted.annotations)
    if total > ANNOTATIONS_MAX_SIZE:
        problems.append(
            f"total size of annotations is {total}, which exceeds the max size of {ANNOTATIONS_MAX_SIZE}"
        )
    return f"failed to validate annotations: {aggregate(problems)}" if problems else ""


def _size(size: int, limit: int) -> str:
    return f"{size} bytes, which exceeds the max size of {limit}" if size else "empty"


def _annotation_problem(name: str) -> str:
    """Return what ``IsFullyQualifiedDomainName`` says about an annotation's name, "" when it is one."""
    if not name:
        return "annotations: Required value"
    name = name.removesuffix(".")
    labels = name.split(".")
    problem = _dns_problem(name, _IS_SUBDOMAIN, _SUBDOMAIN_MAX_SIZE)
    part = name
    if not problem and len(labels) == 1:
        problem = "should be a domain with at least two segments separated by dots"
    if not problem:
        # The subdomain has passed, so length is all that a label can still break.
        part = next((label for label in labels if len(label) > _LABEL_MAX_SIZE), "")
        problem = _dns_problem(part, _IS_LABEL, _LABEL_MAX_SIZE) if part else ""
    size = len(part.encode())
    return f"annotations: Invalid value: {withheld(size)}: {problem}" if problem else ""


def _dns_problem(name: str, pattern: re.Pattern[str], max_size: int) -> str:
    problems = []
    if len(name.encode()) > max_size:
        problems.append(f"must be no more than {max_size} bytes")
    if not pattern.fullmatch(name):
        problems.append(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
            "and must start and end with an alphanumeric character "
            f"(e.g. 'example.com', regex used for validation is '{_SUBDOMAIN}')"
        )
    return ",".join(problems)


def _utf8(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise KMSEnvelopeInvalid(_NOT_UTF8) from error


def _annotation(entry: bytes) -> tuple[str, bytes]:
    name, annotation = "", b""
    for field in fields(entry):
        match field.number, field.value:
            case 1, bytes(value):
                name = _utf8(value)
            case 2, bytes(value):
                annotation = value
    return name, annotation


class Field(NamedTuple):
    """A varint or a length-delimited field: where it begins, where its content does, and where it ends."""

    number: int
    value: int | bytes
    begin: int
    content: int
    end: int


def fields(data: bytes, offset: int = 0) -> Iterator[Field]:
    """Yield varint and length-delimited fields of one message; the others are checked and skipped.

    Raises:
        KMSEnvelopeInvalid: Not protobuf.
    """
    open_groups: list[int] = []
    value: int | bytes | None
    while offset < len(data) or open_groups:
        begin = offset
        tag, offset = _varint(data, offset)
        number, value, content = tag >> 3, None, offset
        if not 0 < number <= _MAX_FIELD_NUMBER:
            raise KMSEnvelopeInvalid(_MALFORMED)
        match tag & 7:
            case 0:
                value, offset = _varint(data, offset)
            case 1:
                offset += 8
            case 2:
                content, offset = _delimited(data, offset)
                value = data[content:offset]
            case 3 if len(open_groups) < _MAX_GROUP_DEPTH:
                open_groups.append(number)
            case 4 if open_groups and open_groups[-1] == number:
                open_groups.pop()
            case 5:
                offset += 4
            case _:
                raise KMSEnvelopeInvalid(_MALFORMED)
        if offset > len(data):
            raise KMSEnvelopeInvalid(_MALFORMED)
        if value is not None and not open_groups:
            yield Field(number, value, begin, content, offset)


def _varint(data: bytes, start: int) -> tuple[int, int]:
    try:
        value, end = read_varint(data, start)
    except ValueError:
        raise KMSEnvelopeInvalid(_MALFORMED) from None
    if end - start == MAX_BYTES and data[end - 1] > 1:  # here bits beyond 64 are refused
        raise KMSEnvelopeInvalid(_MALFORMED)
    return value, end


def _delimited(data: bytes, offset: int) -> tuple[int, int]:
    size, start = _varint(data, offset)
    if size > len(data) - start:
        raise KMSEnvelopeInvalid(_MALFORMED)
    return start, start + size
