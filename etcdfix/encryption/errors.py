"""What keeps a stored value from being decrypted."""

from __future__ import annotations

from dataclasses import dataclass

from etcdfix.model.errors import EtcdfixError


class TransformError(EtcdfixError):
    """Raised when stored bytes do not become plaintext.

    ``message`` is the API server's own wording, aggregated as the server aggregates it.
    """

    code = "transform-failed"
    exit_code = 1


class KMSError(TransformError):
    """Raised when a value needs a KMS plugin and the plugin did not give its DEK."""

    code = "kms-failed"


class KMSUnreachable(KMSError):
    """Raised when the plugin could not be asked: a statement about now, not about the value."""

    code = "kms-unreachable"


@dataclass(eq=False, repr=False, kw_only=True)
class KMSRefused(KMSError):
    """Raised when the plugin answered, and the answer was no.

    Attributes:
        status: The gRPC code of the answer, as gRPC spells it: ``INVALID_ARGUMENT``.
    """

    code = "kms-refused"
    status: str
