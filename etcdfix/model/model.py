"""The values that travel along the spine; this module imports nothing of ours but ``errors`` and ``text``.

``msgspec.Struct`` instead of ``dataclass`` where a value is made once per key: creation is about ten
times cheaper, which is what lets one core examine a hundred thousand keys a second.
"""

from __future__ import annotations

import functools
import hashlib
from enum import StrEnum
from mmap import mmap
from typing import NamedTuple

import msgspec

from etcdfix.model.errors import aggregate
from etcdfix.text.safetext import shown_key


class Revision(NamedTuple):
    """An MVCC revision, ordered like etcd orders it (``mvcc/revision.go``)."""

    main: int
    sub: int


class StoredValue(msgspec.Struct, frozen=True, gc=False):
    """One key-value record as etcd keeps it (``mvccpb.KeyValue``).

    Attributes:
        key: Complete etcd key, raw bytes.
        value: Stored bytes, envelope included.
        mod_revision: Revision of the last change of this key.
        create_revision: Revision at which this generation of the key began.
        version: Number of changes since then, 1 for a new key.
        lease: etcd lease id, 0 for none.
    """

    key: bytes
    value: bytes
    mod_revision: int
    create_revision: int
    version: int
    lease: int

    def __repr__(self) -> str:
        # Without the bytes: they may be stored unencrypted, and a traceback ends up in a ticket.
        return (
            f"StoredValue({shown_key(self.key)!r}, {len(self.value)} bytes, mod_revision={self.mod_revision}, "
            f"create_revision={self.create_revision}, version={self.version}, lease={self.lease:x})"
        )


class KeptRevision(msgspec.Struct, frozen=True, gc=False):
    """One revision of a key that the store still keeps.

    Attributes:
        revision: The revision at which etcd wrote or deleted the key.
        stored: None for a tombstone.
        from_old_value: Its own row is gone: the one behind it, in kine, says what it held.
    """

    revision: Revision
    stored: StoredValue | None
    from_old_value: bool = False


class ReadableRevision(msgspec.Struct, frozen=True):
    """An earlier value of an unreadable key that opens, decodes and fits its key, and is still kept.

    Attributes:
        at: The newest revision at which it stands, for ``--from revision:N`` and ``--revision``.
        mod_revision: The revision that wrote this value.
        same_object: The unreadable value is proven to be one of the same object.
        leased: It had a lease, which may have expired.
        create_revision: The revision that created this generation; 0 where it is not known, as with its version.
        uid: The uid that the object states; "" where it states none.
    """

    at: int
    mod_revision: int
    same_object: bool
    leased: bool = False
    create_revision: int = 0
    version: int = 0
    uid: str = ""


class GroupResource(NamedTuple):
    """API group and plural resource; prints like Kubernetes does (``deployments.apps``)."""

    group: str
    resource: str

    def __str__(self) -> str:
        return f"{self.resource}.{self.group}" if self.group else self.resource


class GroupVersionKind(NamedTuple):
    """API group, version and kind. Kind is not resource: never guess one from the other."""

    group: str
    version: str
    kind: str

    @property
    def api_version(self) -> str:
        """``apps/v1``, or ``v1`` in the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version


class Outcome(StrEnum):
    """What became of one examined key; every key gets exactly one."""

    READABLE = "readable"
    DECRYPT_FAILURE = "decrypt-failure"
    DECODE_FAILURE = "decode-failure"
    INCONSISTENT = "inconsistent"
    UNDETERMINED = "undetermined"
    NOT_AN_OBJECT = "not-an-object"


class Confidence(StrEnum):
    """How sure the cause is; the outcome can be certain where the cause is not."""

    CERTAIN = "certain"
    LIKELY = "likely"
    POSSIBLE = "possible"


class ServerBehaviour(StrEnum):
    """What the API server does with the value, given the same data and configuration."""

    CORRUPT = "corrupt"
    SERVES = "serves"
    SERVES_EMPTY = "serves-empty"
    BREAKS_LIST = "breaks-list"
    NOT_ASKED = "not-asked"


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


class Plaintext(msgspec.Struct, frozen=True, gc=False):
    """A value opened.

    Attributes:
        data: Plaintext.
        transformer: What opened it; "" where the one that opened it does not know its own name.
        stale: Not what the API server would write today: not provider 0, not key 0, or an old KMS form.
        kms_key_id: KMS key id in the value, "" where there is none.
        key_fingerprint: Of the local key that opened it, "" under KMS and identity.
        authenticated: A tag, or nothing to decrypt, vouches for it; AES-CBC has padding alone, which proves no key.
    """

    data: bytes
    transformer: str
    stale: bool
    kms_key_id: str = ""
    key_fingerprint: str = ""
    authenticated: bool = True

    def __repr__(self) -> str:
        # Without the bytes: a traceback ends up in a ticket.
        return f"Plaintext({len(self.data)} bytes, {self.transformer!r}, stale={self.stale})"


class Attempt(msgspec.Struct, frozen=True, cache_hash=True):
    """One configured provider or key that did not open a value, and why; what a cipher alone returns has no name yet.

    Attributes:
        reason: For a verdict.
        errors: The API server's messages; several where it tries several ciphers, none where it would have asked a
            plugin that we did not ask.
        kms_status: gRPC code with which a plugin refused (``INVALID_ARGUMENT``), else "".
        plugin: What the plugin has shown of itself; None where no plugin had a part in it.
        transformer: ``aescbc/v1/key1``, ``kms/v2/prov``; ``aescbc/v1`` where no key name matched.
        key_fingerprint: Of the key that was tried, "" where there is none.
    """

    reason: FailureReason
    errors: tuple[str, ...]
    kms_status: str = ""
    plugin: PluginRecord | None = None
    transformer: str = ""
    key_fingerprint: str = ""

    @property
    def error(self) -> str:
        """The API server's message; "" where only its plugin could tell."""
        return aggregate(self.errors) if self.errors else ""


class TransformFailure(msgspec.Struct, frozen=True):
    """Stored bytes that did not become plaintext.

    Attributes:
        reason: The one of the attempts that matters most.
        message: The API server's aggregated message; "" where only its plugin could tell.
        attempts: Every provider and key whose prefix matched, in the API server's order. Identity is not among them:
            its error is dropped upstream.
    """

    reason: FailureReason
    message: str
    attempts: tuple[Attempt, ...] = ()


class Evidence(msgspec.Struct, frozen=True, gc=False):
    """One check that was made: what, its result in a word or two, and the detail a person would ask for."""

    check: str
    result: str
    detail: str = ""


class ValuePart(NamedTuple):
    """A part of a value, as it is laid out; nothing of its contents that is secret.

    Attributes:
        offset: Of its first byte, from 0.
        length: In bytes.
        name: What it is: ``nonce``.
        detail: What can be said of it, for people; "" for nothing.
    """

    offset: int
    length: int
    name: str
    detail: str = ""


class PeekState(StrEnum):
    """What a look at a value without its tag or padding came to."""

    NOT_POSSIBLE = "not-possible"
    """There is nothing to see: too few bytes, no key of the right kind, or a plugin that does not answer."""
    NOISE = "noise"
    """Under no encryption key does the structure of an object stand where it belongs."""
    RIGHT_KEY = "right-key"
    """Under one it does, so that this is the encryption key that wrote the value."""


class Undone(StrEnum):
    """What fits the tag again once it is undone."""

    CIPHERTEXT_BIT = "ciphertext-bit"
    TAG_BIT = "tag-bit"
    NONCE_BIT = "nonce-bit"
    INFO_BIT = "info-bit"
    """The value's own part of the key derivation of KMS v2."""
    SOURCE_TYPE = "source-type"
    """What the plugin gave is a seed, and the value says key, or the other way round."""
    OTHER_PREFIX = "other-prefix"
    """It was written under the same path and another storage prefix."""
    OTHER_PATH = "other-path"
    """It was written under the path that the object in it names."""
    TEXT_MODE = "text-mode"
    """Each LF had become CR LF."""
    DATA_KEY = "data-key"
    """It opens with the data key of another value of the same KMS provider."""


class UndoneDamage(NamedTuple):
    """What was undone, so that the value opened.

    Attributes:
        what: In one word.
        detail: Where, for people: ``bit 3 of byte 117 of the ciphertext``.
        belongs_to: The etcd key whose associated data fits, b"" where it is the value's own.
        value: The stored bytes without the damage; b"" where the bytes stay, or are not known.
    """

    what: Undone
    detail: str
    belongs_to: bytes = b""
    value: bytes = b""

    def __repr__(self) -> str:
        return f"UndoneDamage({self.what!r}, {self.detail!r}, {self.belongs_to!r}, {len(self.value)} bytes)"


class RepairKind(StrEnum):
    """What is undone, so that a value reads again."""

    BIT = "bit"
    """One bit of what is encrypted, of its tag or nonce, or of the KMS envelope around it."""
    PREFIX = "prefix"
    """One to three bits of ``k8s:enc:<provider>:<version>:``, or of the colon behind the name."""
    NAME = "name"
    """The same, and a bit of the name among them. Another key may have that name, or had it."""
    WRAPPED_KEY = "wrapped-key"
    """The wrapped data key of another value is put in, or its length is that of others."""
    TEXT_MODE = "text-mode"
    """Each LF had become CR LF."""
    MAGIC = "magic"
    """The first four bytes of an unencrypted object are those of protobuf again."""
    TRAILING_BYTES = "trailing-bytes"
    """What follows a whole unencrypted object is cut off."""


class RepairProof(StrEnum):
    """What shows that repaired bytes are those that were written."""

    TAG = "tag"
    """The value opens, and its tag authenticates it."""
    DECODES = "decodes"
    """One of the few fixed undos of an unencrypted value, after which a whole object of its etcd key decodes."""
    NONE = "none"
    """Nothing. AES-CBC has no tag: an object of its etcd key decodes, and some of its bytes may be wrong. And no tag
    says which name its key had."""


class Repair(msgspec.Struct, frozen=True, gc=False):
    """How the stored bytes of a value that cannot be read are put right; the only way that was found.

    Attributes:
        kind: What is undone.
        words: Where, for people: ``bit 3 of byte 117 of the ciphertext is turned back``.
        proof: What shows that it is right.
    """

    kind: RepairKind
    words: str
    proof: RepairProof

    @property
    def proven(self) -> bool:
        """Whether the value can be had back whole, so that nobody should delete it."""
        return self.proof is not RepairProof.NONE


class Look(NamedTuple):
    """What decoding says of a plaintext that nobody else gets to see.

    Attributes:
        whole: An object comes out, and it is not empty.
        breaks: The encoding itself is broken; False where a newer release, or a version that left its CRD, could
            look the same.
        ends_early: Bytes are missing at the end.
        ends_as_written: It ends as the API server writes (protobuf ``1a 00 22 00``, JSON a newline).
        message: The decoder's words, data withheld; "" for a whole object.
        belongs: Complete etcd keys to which kind, namespace and name in it lead.
        maybe_newer: A release that is newer may read it all the same: it does not begin as any encoding does.
        unwritable: How surely no API server can have written the object; None where one can.
    """

    whole: bool
    breaks: bool
    ends_early: bool
    ends_as_written: bool
    message: str
    belongs: tuple[bytes, ...] = ()
    maybe_newer: bool = False
    unwritable: Confidence | None = None


class Peek(msgspec.Struct, frozen=True):
    """What a look without tag and padding showed.

    Attributes:
        state: See :class:`PeekState`. All but the last two attributes are empty unless it is ``right-key``.
        rule: Of the key that is right, "" for none.
        transformer: Of that key.
        key_fingerprint: Of that key, "" under KMS.
        named: It is a key of the resource's own rule, under the provider and name that the value gives.
        opens: It opens the value as it stands, tag or padding checked. So for a key of another name or rule; for a key
            that is named only under CBC, whose padding proves nothing.
        bound: Its associated data is the etcd key, which may be another one than the value was written under.
        authenticated: Its cipher has a tag.
        encoding: ``protobuf``, ``json``, ``yaml``, ``cbor``, ``encrypted`` (``k8s:enc:`` again); "" where only a tag
            proves the key.
        wrong_bits: Bits of the known structure that are not as they should be.
        odds_bits: Noise looks like this with odds below 2^-odds_bits, all candidates together.
        candidates: How many keys, bits and etcd keys were tried.
        look: What decoding says of the plaintext: as it is stored, or as it is once :attr:`undone` where it was noise.
        undone: What was found, None for nothing; only where it was asked for.
        too_short: Shorter than any value of its provider can be, counted from the first colon after the provider.
        name_may_go_on: Printable text and another colon follow the name.
        not_asked: A KMS provider elsewhere in the configuration that did not answer whether it opens the value.
        equal_bytes: Sixteen equal bytes stand in a row in what is encrypted, as no cipher gives them.
        searched: It was asked for what was damaged.
    """

    state: PeekState
    rule: str = ""
    transformer: str = ""
    key_fingerprint: str = ""
    named: bool = False
    opens: bool = False
    bound: bool = True
    authenticated: bool = True
    encoding: str = ""
    wrong_bits: int = 0
    odds_bits: int = 0
    candidates: int = 0
    look: Look | None = None
    undone: UndoneDamage | None = None
    too_short: bool = False
    name_may_go_on: bool = False
    not_asked: str = ""
    equal_bytes: bool = False
    searched: bool = False


class Inconsistency(msgspec.Struct, frozen=True, gc=False):
    """Something wrong in an object that the API server nevertheless accepts on a single GET.

    Attributes:
        cause: ``identity-mismatch``, ``invalid-utf8``, ``raw-json-invalid``, ``int-or-string-invalid`` or
            ``kind-missing``.
        field_path: Where in the object (``metadata.managedFields[0].fieldsV1``).
        detail: What was found; never the contents themselves.
        breaks_responses: Whether every answer that contains the object is malformed.
    """

    cause: str
    field_path: str
    detail: str
    breaks_responses: bool = False


class DecodedObject(msgspec.Struct, frozen=True, gc=False):
    """What decoding says about a value that the API server accepts.

    Attributes:
        gvk: Group, version and kind found in the value; parts may be empty.
        name: ``metadata.name`` as raw bytes (may be invalid UTF-8); None where it is not in the value.
        namespace: ``metadata.namespace``, same rules.
        uid: ``metadata.uid``, same rules.
        encoding: ``protobuf``, ``json``, ``yaml`` or ``cbor``; ``base64+`` before it for the base64 fallback.
        empty: Nothing of an object comes out: the server serves an empty object (``serves-empty``).
        inconsistencies: In the order found; empty for a healthy object.
        warnings: What is odd and leaves the object readable (unknown fields, fallbacks).
        readable_until: Last Kubernetes minor that reads this kind and version, "" while none has dropped it.
    """

    gvk: GroupVersionKind
    name: bytes | None
    namespace: bytes | None
    uid: bytes | None
    encoding: str
    empty: bool = False
    inconsistencies: tuple[Inconsistency, ...] = ()
    warnings: tuple[Evidence, ...] = ()
    readable_until: str = ""


class KnownBy(StrEnum):
    """How it is known which cluster this is, best first."""

    VALUE = "value"
    KEPT_REVISION = "kept-revision"
    BACKUP = "backup"
    CREATE_REVISION = "create-revision"
    UNKNOWN = "unknown"


class ClusterIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """What names a cluster; every field has a value that says that nothing is known.

    The uid of namespace kube-system does. On the night when that Namespace cannot be read, an earlier revision or a
    backup may still say the uid; where nothing does, the revision at which the Namespace was made, together with
    etcd's cluster id, stands in for it.

    Attributes:
        uid: Of namespace kube-system, "" where nothing says it.
        known_by: What the identity rests on.
        created: Create revision of namespace kube-system, 0 where there is none or it is not known.
        changed: Its mod revision, 0 likewise. It moves, and names no cluster.
        cluster_id: Of the etcd that holds that Namespace, lower-case hex; "" for unknown.
        source: What said the uid, in words: a revision, a backup; "" for the Namespace itself and for unknown.
        main_endpoints: Of the etcd that holds the Namespace, where it is another one than that of the change.
    """

    uid: str = ""
    known_by: KnownBy = KnownBy.UNKNOWN
    created: int = 0
    changed: int = 0
    cluster_id: str = ""
    source: str = ""
    main_endpoints: tuple[str, ...] = ()

    @classmethod
    def by_uid(cls, uid: str) -> ClusterIdentity:
        """Return a cluster of which the uid alone is known; "" for one of which nothing is."""
        return cls(uid=uid, known_by=KnownBy.VALUE if uid else KnownBy.UNKNOWN)

    @property
    def is_known(self) -> bool:
        """Whether anything names the cluster."""
        return self.known_by is not KnownBy.UNKNOWN

    def is_same(self, other: ClusterIdentity) -> bool | None:
        """Say whether both name one cluster; None where that cannot be told.

        The uid decides wherever both have one. A create revision alone repeats from cluster to cluster, and so do
        cluster ids; both together stand in for the uid.
        """
        if self.uid and other.uid:
            return self.uid == other.uid
        if self.created and self.cluster_id and other.created and other.cluster_id:
            return (self.created, self.cluster_id) == (other.created, other.cluster_id)
        return None

    def has_other_id(self, other: ClusterIdentity) -> bool:
        """Say whether the two are known to be kept by different etcds: one may have been restored from the other."""
        return bool(self.cluster_id and other.cluster_id) and self.cluster_id != other.cluster_id

    def describe(self) -> str:
        """Return what names the cluster, for people: part of a sentence."""
        where = f" (main etcd at {', '.join(self.main_endpoints)})" if self.main_endpoints else ""
        if self.known_by is KnownBy.CREATE_REVISION:
            return (
                f"kube-system cannot be read; it was created at revision {self.created}, cluster id "
                f"{self.cluster_id}{where}"
            )
        if self.source:
            return f"kube-system uid {self.uid}, from {self.source}{where}"
        return f"kube-system uid {self.uid or 'unknown'}{where}"


@functools.lru_cache(maxsize=1024)
def key_id_digest(key_id: str) -> str:
    """Return ``sha256:<hex>`` of a KMS key id, as the API server's metrics and logs name it; "" for none."""
    return digest_of(key_id.encode()) if key_id else ""


class KeyOfRule(msgspec.Struct, frozen=True):
    """An encryption key, KMS provider or identity of a configuration; no fingerprint ("") for the latter two."""

    transformer: str
    key_fingerprint: str

    def __str__(self) -> str:
        return f"{self.transformer} ({self.key_fingerprint})" if self.key_fingerprint else self.transformer


def digest_of(data: bytes | mmap) -> str:
    """Return the SHA-256 of some bytes as ``sha256:<hex>``."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"
