r"""Which serializer wrote a value: decided by its first bytes, as the API server decides.

Format:
    Kubernetes ``apimachinery/pkg/runtime/serializer``: ``protobuf/protobuf.go`` (``k8s\0``),
    ``util/yaml/decoder.go`` (``IsJSONBuffer``), ``cbor/cbor.go`` (self-described tag 55799).
"""

from __future__ import annotations

import re
from typing import Final

PROTOBUF_MAGIC: Final = b"k8s\x00"
CBOR_TAG: Final = b"\xd9\xd9\xf7"


# IsJSONBuffer trims with unicode.IsSpace: besides ASCII white space that is U+0085, U+00A0 and the separators
# below, in UTF-8. Only what is trimmed matters; such a value then fails in the JSON decoder.
_JSON_START = re.compile(
    rb"(?:[\t\n\v\f\r ]|\xc2[\x85\xa0]|\xe1\x9a\x80|\xe2\x80[\x80-\x8a\xa8\xa9\xaf]|\xe2\x81\x9f|\xe3\x80\x80)*+\{"
)


def is_json(data: bytes) -> bool:
    """Say whether the JSON decoder claims ``data``: the first character that is not white space is ``{``."""
    return data.startswith(b"{") or _JSON_START.match(data) is not None
