"""Why one key does not open one value: a value, not an exception."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class FailureReason(StrEnum):
    """Why bytes did not become plaintext, one word per situation that a verdict tells apart."""

    NO_PROVIDER_MATCHED = "no-provider-matched"
    """No provider of that type, version or KMS name; or plaintext, and no identity in the list."""
    NO_KEY_MATCHED = "no-key-matched"
    """A provider of that type is there, a key of that name is not."""
    IDENTITY_REFUSED = "identity-refused"
    """Encrypted, and the resource has no entry in the configuration."""
    AUTHENTICATION_FAILED = "authentication-failed"
    """Wrong key bytes, changed data, or (aesgcm, KMS) another etcd key: the cipher cannot tell."""
    PADDING_INVALID = "padding-invalid"
    """aescbc decrypted to something that has no PKCS#7 padding."""
    NOT_BLOCK_MULTIPLE = "not-block-multiple"
    """An aescbc body that ends inside a block."""
    TOO_SHORT = "too-short"
    """Shorter than nonce, tag or initialisation vector require."""
    KMS_UNREACHABLE = "kms-unreachable"
    """The plugin was not or could not be asked: nothing is proven."""
    KMS_REFUSED = "kms-refused"
    """The plugin answered no."""
    KMS_ENVELOPE_INVALID = "kms-envelope-invalid"
    """The API server fails before it asks the plugin."""
    KMS_ENVELOPE_UNKNOWN = "kms-envelope-unknown"
    """The same, for what a newer API server may accept."""
    KMS_SIZE_DAMAGED = "kms-size-damaged"
    """A KMS v1 value that opens once its wrapped DEK is cut as its neighbours' are."""
    KMS_KEY_INVALID = "kms-key-invalid"
    """What the plugin gave is no key."""


TOO_SHORT_ERROR = "the stored data was shorter than the required size"


class PluginRecord(NamedTuple):
    """What a KMS plugin has shown of itself in this run, when it mattered: the ground for believing its answer.

    Attributes:
        healthy: Its Status or Version was as it should be.
        same_key: Other values under the same key id (v1: under the same provider) that opened with its answers.
        any_key: Other values, whatever their key id, that did.
    """

    healthy: bool
    same_key: int
    any_key: int


class Fault(NamedTuple):
    """One failed reading.

    Attributes:
        reason: For a verdict.
        errors: The API server's messages; several where it tries several ciphers, none where it would
            have asked a plugin that we did not ask.
        kms_key_id: KMS key id in the value, "" where there is none.
        kms_status: gRPC code with which a plugin refused (``INVALID_ARGUMENT``), else "".
        plugin: What the plugin has shown of itself; None where no plugin had a part in it.
    """

    reason: FailureReason
    errors: tuple[str, ...]
    kms_key_id: str = ""
    kms_status: str = ""
    plugin: PluginRecord | None = None
