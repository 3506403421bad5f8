"""The identity provider: values stored as they are.

Source: ``k8s.io/apiserver/pkg/storage/value/encrypt/identity/identity.go``.
"""

from __future__ import annotations

from etcdfix.encryption.envelope import ENCRYPTED_PREFIX
from etcdfix.model import Attempt, FailureReason

IDENTITY = "identity"

# A user sees this only for a resource without an entry in the configuration: within a provider list the API
# server drops identity's error.
REFUSED_ERROR = "identity transformer tried to read encrypted data"


class IdentityTransformer:
    """Returns data unchanged, of any length, unless it begins with ``k8s:enc:``."""

    def read(self, body: bytes, etcd_key: bytes) -> bytes | Attempt:  # noqa: ARG002  one signature for all
        """Return ``body``, or the refusal to read encrypted data."""
        if body.startswith(ENCRYPTED_PREFIX):
            return Attempt(FailureReason.IDENTITY_REFUSED, (REFUSED_ERROR,))
        return body
