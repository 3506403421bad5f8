"""What keeps decrypted contents from being decoded."""

from __future__ import annotations

from dataclasses import dataclass

from etcdfix.model.errors import DecodeError


class ProtobufMalformed(DecodeError):
    """Raised when a protobuf body or its envelope breaks the rules of the generated decoders."""

    code = "protobuf-malformed"


class CBORMalformed(DecodeError):
    """Raised when CBOR does not parse or breaks the Kubernetes profile.

    ``message`` is ours: in which words the API server refuses it, no case shows.
    """

    code = "cbor-malformed"


@dataclass(eq=False, repr=False, kw_only=True)
class KindUnknown(DecodeError):
    """Raised when the value's kind is missing, not registered, or does not convert to the key's kind.

    Attributes:
        group_version: apiVersion found in the value, as stored.
        kind: Kind found in the value, as stored.
        reason: ``not-registered``, ``version-removed``, ``missing`` or ``wrong-kind``.
        readable_until: Last Kubernetes minor version that reads it (``1.35``), or "".
    """

    code = "kind-unknown"
    group_version: str
    kind: str
    reason: str
    readable_until: str = ""


@dataclass(eq=False, repr=False, kw_only=True)
class ConversionFailed(DecodeError):
    """Raised when a well-formed object does not convert to the type that the server works with.

    Attributes:
        group_version: apiVersion of the type that it was read as.
        kind: Kind of that type.
    """

    code = "conversion-failed"
    group_version: str = ""
    kind: str = ""
