"""What is not JSON, or not in an encoding that we read."""

from __future__ import annotations

from etcdfix.model.errors import DecodeError


class UnknownEncoding(DecodeError):
    """Raised when no serializer recognises the bytes."""

    code = "encoding-unknown"


class JSONMalformed(DecodeError):
    """Raised when JSON or YAML does not parse or has a wrong type."""

    code = "json-malformed"
