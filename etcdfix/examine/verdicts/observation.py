"""What was seen of one key, as plain values: the only thing that a verdict is made from."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from etcdfix.model.model import DecodedObject, Evidence, Peek, TransformFailure
from etcdfix.model.storagekey import StorageCodec


class Covered(StrEnum):
    """How the encryption configuration relates to the resource of a key."""

    NO_CONFIGURATION = "no-configuration"
    NOT_COVERED = "not-covered"
    COVERED = "covered"
    NEVER_ENCRYPTED = "never-encrypted"


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


GARBLED: Final = frozenset(
    {DecodeFailureKind.PROTOBUF, DecodeFailureKind.JSON, DecodeFailureKind.UNKNOWN_ENCODING}
)
"""So fails what is garbled. Of a kind or version that is not known, a newer release may be the one that has it."""


class DecodeFailure(msgspec.Struct, frozen=True):
    """Plaintext that did not become an object.

    Attributes:
        message: The API server's wording, data withheld; of CBOR ours.
        group_version: apiVersion in the value, where the kind, or converting from it, is the problem.
        value_kind: Kind in the value, likewise.
        readable_until: Last release that reads it, likewise.
        known_since: First release that knows it, where the assumed one does not.
    """

    kind: DecodeFailureKind
    message: str
    offset: int | None = None
    field_path: str = ""
    group_version: str = ""
    value_kind: str = ""
    readable_until: str = ""
    known_since: str = ""

    @property
    def stated(self) -> str:
        """What the value says that it is: ``apps/v9 Deployment``."""
        return f"{self.group_version or '(no apiVersion)'} {self.value_kind or '(no kind)'}"


class PlaintextShape(msgspec.Struct, frozen=True):
    """What the plaintext of a value that does not decode looks like, without its contents.

    Attributes:
        magic_bits_off: Bits in which the first four bytes differ from the protobuf magic.
        heals_magic: Decodes once the first four bytes are the protobuf magic.
        heals_as_text: Decodes once every CR LF is turned back into LF.
        heals_first_block: Decodes once its first cipher block is that of an object of its etcd key.
        whole_at: Decodes once everything from this byte on is left out; 0 where that does not help.
        holds_whole: A whole object may be found in it, whatever surrounds it; not looked for where no tag or padding
            fits.
        is_word: It is empty, or a few printable characters without a blank: no object fits into that.
        names_encoding: It is a protobuf envelope that names an encoding or type of its contents, or has further fields.
    """

    size: int
    zeroed: bool
    starts_json: bool
    starts_encrypted: bool
    magic_bits_off: int
    ends_envelope: bool
    heals_magic: bool
    heals_as_text: bool
    heals_first_block: bool = False
    whole_at: int = 0
    holds_whole: bool = False
    names_encoding: bool = False
    is_word: bool = False


class Neighbours(StrEnum):
    """What other values under its rule and encryption key show of a value that is noise under that key."""

    UNKNOWN = "unknown"
    """Not everything has been seen yet."""
    NONE = "none"
    SAME_KEY = "same-key"
    """Values that were written before and after it open."""
    NEWEST = "newest"
    """Nothing was written after it, at least three values before it open, and no other one fails."""
    TWO_WRITERS = "two-writers"
    """Openings and failures alternate up to the newest value."""


TELLING: Final = frozenset({Neighbours.SAME_KEY, Neighbours.NEWEST, Neighbours.TWO_WRITERS})
"""The others say more of a value than that it is noise."""


class OwnKey(StrEnum):
    """What shows that the etcd key of a value is its associated data, beside the value itself."""

    UNKNOWN = "unknown"
    """Not everything has been seen yet."""
    NONE = "none"
    ANOTHER_OPENS = "another-opens"
    """Another value under the same rule and key opens with its own etcd key."""
    OTHERS_OPEN = "others-open"
    """At least three do, one of them written before this one; and none that can be seen has another etcd key's."""
    KEPT = "kept"
    """A kept revision of this very etcd key opens."""


class Observation(msgspec.Struct, frozen=True):
    """Everything seen of one key, enough to judge it and nothing more.

    Attributes:
        owner_known: False for a type whose owner (CRD) could not be found readable.
        too_few_parts: Its etcd key lacks a namespace or a name, so that no object of its resource can have it.
        rule_known: The owner is known to be another API server, and which rule its resource is under; of its types
            nothing is known.
        envelope_bits_off: Bits in which the first eight stored bytes differ from ``k8s:enc:``.
        envelope_transformer: The envelope's own name for its transformer, "" without envelope.
        name_may_go_on: Where its name ends is not certain: printable text and another colon follow.
        resource: Display name of the resource (``deployments.apps``).
        identity_mismatch: In which way the object contradicts its key, "" when it does not.
        assumed_release: Release that was named (``1.36``); "" for none, when a kind may be newer than this tool.
        peek: The value without its tag or padding; None where no encryption key has a part in it.
        own_key: What shows that its etcd key is its associated data.
        names_own_key: The object in it leads to exactly this etcd key.
    """

    codec: StorageCodec
    owner_known: bool
    covered: Covered
    enveloped: bool
    envelope_known: bool
    envelope_transformer: str
    resource: str
    too_few_parts: bool = False
    rule_known: bool = False
    envelope_cut: bool = False
    name_may_go_on: bool = False
    envelope_bits_off: int = 64
    transformer: str = ""
    transform_failure: TransformFailure | None = None
    decoded: DecodedObject | None = None
    decode_failure: DecodeFailure | None = None
    shape: PlaintextShape | None = None
    evidence: tuple[Evidence, ...] = ()
    identity_mismatch: str = ""
    assumed_release: str = ""
    peek: Peek | None = None
    neighbours: Neighbours = Neighbours.UNKNOWN
    own_key: OwnKey = OwnKey.UNKNOWN
    names_own_key: bool = False
