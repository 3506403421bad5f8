"""What keeps decrypted contents from being decoded."""

from __future__ import annotations

from dataclasses import dataclass

from etcdfix.model.errors import DecodeError


class ProtobufMalformed(DecodeError):
    """Raised when protobuf breaks a rule of the generated decoders."""

    code = "protobuf-malformed"


class CBORMalformed(DecodeError):
    """Raised when CBOR does not parse or breaks a rule of Kubernetes.

    ``message`` is ours: in which words the API server refuses it, no case shows.
    """

    code = "cbor-malformed"


@dataclass(eq=False, repr=False, kw_only=True)
class KindUnknown(DecodeError):
    """Raised when the kind is missing, unknown, or does not fit the etcd key.

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
    """Raised when an object does not convert to the API server's internal type.

    Attributes:
        group_version: apiVersion of the type that it was read as.
        kind: Kind of that type.
    """

    code = "conversion-failed"
    group_version: str = ""
    kind: str = ""
