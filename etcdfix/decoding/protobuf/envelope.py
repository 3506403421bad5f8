"""The ``runtime.Unknown`` envelope around every object that Kubernetes stores as protobuf.

Four magic bytes, then one message: type (apiVersion 1, kind 2) in field 1, the object's own message in field 2,
contentEncoding and contentType in 3 and 4, which storage never sets and never looks at.

Format: ``apimachinery/pkg/runtime/types.go`` and ``generated.pb.go`` (Unknown, TypeMeta),
``pkg/runtime/serializer/protobuf/protobuf.go`` (magic, order, errors).
"""

from __future__ import annotations

import msgspec

from etcdfix.decoding.errors import ProtobufMalformed
from etcdfix.decoding.protobuf.strict import MAX_FIELD_NUMBER, Refused, StrictDecoder, read_varint, skip_field
from etcdfix.decoding.recognise import PROTOBUF_MAGIC
from etcdfix.decoding.schema import load_schema

_UNKNOWN = "k8s.io.apimachinery.pkg.runtime.Unknown"


class Envelope(msgspec.Struct, frozen=True, gc=False):
    """A parsed envelope.

    Attributes:
        api_version: As stored; b"" where absent.
        raw: The object's message; b"" where absent.
        raw_offset: Where it starts in the plaintext; the plaintext's length where it is absent.
        unknown_fields: Number of fields in the envelope that upstream skips.
    """

    api_version: bytes
    kind: bytes
    raw: bytes
    raw_offset: int
    unknown_fields: int

    @property
    def group_version(self) -> tuple[bytes, bytes]:
        """Group and version; both empty where apiVersion holds more than one slash.

        As ``schema.FromAPIVersionAndKind`` splits them: ``v1`` is the core group, ``apps/`` has no version.
        """
        if self.api_version.count(b"/") > 1:
            return b"", b""
        group, slash, version = self.api_version.partition(b"/")
        return (group, version) if slash else (b"", group)


_decoder = StrictDecoder(load_schema())


def parse_envelope(data: bytes) -> Envelope:
    """Parse a plaintext that starts with :data:`~etcdfix.decoding.recognise.PROTOBUF_MAGIC`.

    A field that occurs twice is merged or overwritten as upstream does it: of two ``raw``, the last one
    counts.

    Raises:
        ProtobufMalformed: With the API server's message; offsets count from the start of ``data``.
    """
    if not data:
        raise ProtobufMalformed("empty data", offset=0)
    if not data.startswith(PROTOBUF_MAGIC):
        raise ProtobufMalformed(
            "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]", offset=0
        )
    if len(data) == len(PROTOBUF_MAGIC):
        raise ProtobufMalformed("empty body", offset=len(PROTOBUF_MAGIC))
    decoded = _decoder.decode(_UNKNOWN, data, len(PROTOBUF_MAGIC))
    type_meta = decoded.node.get(1, {})
    raw = decoded.node.get(2, b"")
    return Envelope(
        api_version=type_meta.get(1, b""),
        kind=type_meta.get(2, b""),
        raw=raw,
        raw_offset=_raw_offset(data, len(raw)) if 2 in decoded.node else len(data),
        unknown_fields=decoded.unknown_count,
    )


def is_well_formed(raw: bytes) -> bool:
    """Tell whether bytes are a protobuf message of any type: fields with whole values up to the end.

    For kinds that no known release registers: damage that hit only the type leaves the rest well formed. Most
    damage deeper inside goes unnoticed, because what a field's bytes mean is not known.
    """
    pos = 0
    try:
        while pos < len(raw):
            tag, _ = read_varint(raw, pos, len(raw))
            if not 0 < tag >> 3 <= MAX_FIELD_NUMBER:
                return False
            pos = skip_field(raw, pos, len(raw), len(raw))
    except Refused:
        return False
    return True


def _raw_offset(data: bytes, raw_length: int) -> int:
    found = pos = len(PROTOBUF_MAGIC)
    while pos < len(data):
        tag, _ = read_varint(data, pos, len(data))
        pos = skip_field(data, pos, len(data), len(data))
        if tag & 0xFFFFFFFF8 == 2 << 3:  # int32(tag >> 3), as upstream compares
            found = pos - raw_length
    return found
