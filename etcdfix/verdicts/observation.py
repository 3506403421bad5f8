"""What was seen of one key, as plain values: the only thing that a verdict is made from."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from etcdfix.model import DecodedObject, Evidence
from etcdfix.storagekey import Stack


class Covered(StrEnum):
    """How the encryption configuration relates to the resource of a key."""

    NO_CONFIGURATION = "no-configuration"
    NOT_COVERED = "not-covered"
    COVERED = "covered"
    NEVER_ENCRYPTED = "never-encrypted"


class TransformAttempt(msgspec.Struct, frozen=True):
    """One provider and key that was tried on a value.

    Attributes:
        transformer: ``aescbc/v1/key1``, ``kms/v2/prov``, ``identity``.
        key_fingerprint: Short digest of the key material, "" where there is none.
        reason: Why it failed, one word of the encryption package's ``FailureReason``.
        error: The API server's wording.
    """

    transformer: str
    key_fingerprint: str
    reason: str
    error: str


class TransformFailure(msgspec.Struct, frozen=True):
    """Stored bytes that did not become plaintext.

    Attributes:
        reason: The overall reason, same words as in the attempts.
        message: The API server's aggregated wording.
        attempts: Every matching provider and key, in the server's order.
        needs_kms: A configured KMS plugin could not be asked, so nothing is proven.
        kms_key_id_sha256: ``sha256:<hex>`` of the KMS key id in the envelope, "" where there is none.
    """

    reason: str
    message: str
    attempts: tuple[TransformAttempt, ...]
    needs_kms: bool = False
    kms_key_id_sha256: str = ""


class DecodeFailureKind(StrEnum):
    """Which decoder gave up, and in what way."""

    PROTOBUF = "protobuf"
    JSON = "json"
    CBOR = "cbor"
    UNKNOWN_ENCODING = "unknown-encoding"
    NOT_REGISTERED = "not-registered"
    VERSION_REMOVED = "version-removed"
    KIND_MISSING = "missing"
    WRONG_KIND = "wrong-kind"
    CONVERSION = "conversion"


class DecodeFailure(msgspec.Struct, frozen=True):
    """Plaintext that did not become an object.

    Attributes:
        kind: Which decoder gave up.
        message: The API server's wording, data withheld.
        offset: Byte in the plaintext, or None.
        field_path: Field path down to the damage, or "".
        group_version: apiVersion in the value, where the kind is the problem.
        value_kind: Kind in the value, likewise.
        readable_until: Last release that reads it, likewise.
    """

    kind: DecodeFailureKind
    message: str
    offset: int | None = None
    field_path: str = ""
    group_version: str = ""
    value_kind: str = ""
    readable_until: str = ""


class PlaintextShape(msgspec.Struct, frozen=True):
    """What the plaintext of a value that does not decode looks like, without its contents.

    Attributes:
        size: Bytes.
        blank: Nothing but white space.
        zeroed: Nothing but zero bytes.
        starts_encrypted: Begins with ``k8s:enc:``.
        magic_bits_off: Bits in which the first four bytes differ from the protobuf magic.
        ends_whole: Ends as an intact protobuf envelope or JSON document ends.
        heals_as_text: Decodes once every CR LF is turned back into LF.
        whole_at: Decodes once everything from this byte on is left out; 0 where that does not help.
    """

    size: int
    blank: bool
    zeroed: bool
    starts_encrypted: bool
    magic_bits_off: int
    ends_whole: bool
    heals_as_text: bool
    whole_at: int = 0


class Observation(msgspec.Struct, frozen=True):
    """Everything seen of one key, enough to judge it and nothing more.

    Attributes:
        stack: Whose decoder reads this directory.
        owner_known: False for a type whose owner (CRD) could not be found readable.
        well_formed_key: The number of path segments fits the resource.
        covered: How the encryption configuration relates to the resource.
        enveloped: The stored value starts with ``k8s:enc:``.
        envelope_known: The envelope is one that a known API server writes.
        envelope_transformer: The envelope's own name for its transformer, "" without envelope.
        resource: Display name of the resource (``deployments.apps``).
        namespace: Namespace in the key, "" for none.
        name: Name in the key.
        transformer: The transformer that opened the value, "" when none did.
        stale: Opened, but not by today's write key.
        transform_failure: Why it was not opened.
        decoded: What came out.
        decode_failure: Why nothing came out.
        shape: Looked at only when decoding failed.
        evidence: Checks made on the way that belong into the finding.
        identity_mismatch: In which way the object contradicts its key, "" when it does not.
        tables_may_be_older: The kind may be newer than this tool (no --kubernetes-version was given).
    """

    stack: Stack
    owner_known: bool
    well_formed_key: bool
    covered: Covered
    enveloped: bool
    envelope_known: bool
    envelope_transformer: str
    resource: str
    namespace: str
    name: str
    transformer: str = ""
    stale: bool = False
    transform_failure: TransformFailure | None = None
    decoded: DecodedObject | None = None
    decode_failure: DecodeFailure | None = None
    shape: PlaintextShape | None = None
    evidence: tuple[Evidence, ...] = ()
    identity_mismatch: str = ""
    tables_may_be_older: bool = False
