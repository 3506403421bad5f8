r"""Which serializer wrote a value: decided by its first bytes, as the API server decides.

Format:
    Kubernetes ``apimachinery/pkg/runtime/serializer``: ``protobuf/protobuf.go`` (``k8s\0``),
    ``util/yaml/decoder.go`` (``IsJSONBuffer``), ``cbor/cbor.go`` (self-described tag 55799);
    ``apiserver/pkg/storage/value/encrypt`` for the prefix of values still encrypted.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final

PROTOBUF_MAGIC: Final = b"k8s\x00"
CBOR_TAG: Final = b"\xd9\xd9\xf7"
ENCRYPTED_PREFIX: Final = b"k8s:enc:"


class Form(StrEnum):
    """What the first bytes of a decrypted value promise."""

    PROTOBUF = "protobuf"
    JSON = "json"
    CBOR = "cbor"
    ENCRYPTED = "encrypted"
    EMPTY = "empty"
    UNKNOWN = "unknown"


# IsJSONBuffer trims with unicode.IsSpace: besides ASCII white space that is U+0085, U+00A0 and the separators
# below, in UTF-8. Only what is trimmed matters; such a value then fails in the JSON decoder.
_JSON_START = re.compile(
    rb"(?:[\t\n\v\f\r ]|\xc2[\x85\xa0]|\xe1\x9a\x80|\xe2\x80[\x80-\x8a\xa8\xa9\xaf]|\xe2\x81\x9f|\xe3\x80\x80)*+\{"
)


def recognise(data: bytes) -> Form:
    """Return the form that ``data`` starts like; a promise only, the body may still be damaged."""
    if data.startswith(PROTOBUF_MAGIC):
        return Form.PROTOBUF
    if is_json(data):
        return Form.JSON
    if data.startswith(CBOR_TAG):
        return Form.CBOR
    if data.startswith(ENCRYPTED_PREFIX):
        return Form.ENCRYPTED
    return Form.UNKNOWN if data else Form.EMPTY


def is_json(data: bytes) -> bool:
    """Say whether the JSON decoder claims ``data``: the first character that is not white space is ``{``."""
    return data.startswith(b"{") or _JSON_START.match(data) is not None
