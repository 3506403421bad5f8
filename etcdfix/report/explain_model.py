"""The published shape of all that is known of one etcd key (``etcdfix/v1``, kind ``ExplainReport``)."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from etcdfix.model import Confidence, PeekState, RepairKind, RepairProof
from etcdfix.report.model import Finding, Remedy, SourcedReport


class Where(StrEnum):
    """In which bytes an offset counts."""

    STORED = "stored"
    """As etcd holds them."""
    DECRYPTED = "decrypted"
    """What they decrypt to."""


class LayoutPart(msgspec.Struct, frozen=True):
    """A part of the value: where it lies, what it is, and what can be said of it; nothing that is secret."""

    where: Where
    offset: int
    length: int
    name: str
    detail: str


class AttemptResult(StrEnum):
    """What became of an encryption key of the rule."""

    OPENED = "opened"
    FAILED = "failed"
    NO_ANSWER = "no-answer"
    """Its KMS plugin was not asked, or did not answer."""
    NOT_TRIED = "not-tried"
    """The value does not name it."""


class KeyAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """One encryption key of the rule that holds for the resource, in the order in which API servers try them.

    Attributes:
        rule: Resources that share the providers.
        provider: ``aescbc``, ``kms``, ``identity``…
        name: Of the key, or of the KMS provider; "" for identity.
        transformer: All of it, as flags take it.
        key_fingerprint: Null for KMS and identity.
        result: What became of it.
        detail: The API server's words, or why it was not tried; "" for nothing.
    """

    rule: str
    provider: str
    name: str
    transformer: str
    key_fingerprint: str | None
    result: AttemptResult
    detail: str


class PeekShown(msgspec.Struct, frozen=True, kw_only=True):
    """What a look at the value without its tag or padding showed.

    Attributes:
        state: ``right-key``: the structure of an object stands where it belongs; ``noise``; ``not-possible``.
        transformer: The key that is right, "" for none; so is the next.
        rule: Of that key.
        key_fingerprint: Of that key; null for none, and for KMS.
        named: It is the key that the value names.
        encoding: What the plaintext begins as; "" for nothing.
        wrong_bits: Bits of the known structure that are not as they should be.
        odds_bits: By chance it looks so less often than once in 2^odds_bits.
        candidates: How many keys, starts and single bits were tried.
        plaintext: What decoding says of it, in a few words; "" where there is nothing to decode.
        undone: What makes it open, in one word; null where nothing that was tried does.
        undone_detail: Where.
    """

    state: PeekState
    transformer: str
    rule: str
    key_fingerprint: str | None
    named: bool
    encoding: str
    wrong_bits: int
    odds_bits: int
    candidates: int
    plaintext: str
    undone: str | None
    undone_detail: str


class NotTheCause(msgspec.Struct, frozen=True):
    """A cause that was checked and is none, and what shows that."""

    cause: str
    confidence: Confidence
    why: str


class RepairShown(msgspec.Struct, frozen=True):
    """The only way that was found in which the stored bytes themselves read again.

    ``proof`` is ``tag`` or ``decodes``; ``none`` where AES-CBC has no tag that would show it, so that it is a guess.
    """

    kind: RepairKind
    words: str
    proof: RepairProof
    confidence: Confidence


class Neighbour(msgspec.Struct, frozen=True):
    """Another etcd key under the same encryption key; ``key_base64`` is null where the key is plain text."""

    key: str
    key_base64: str | None
    mod_revision: int


class Siblings(msgspec.Struct, frozen=True, kw_only=True):
    """The values of the same resource under one encryption key that the value counts under, itself counted too.

    ``opened`` and ``failed`` of ``keys``; ``damaged`` of the failed are proven to be. ``doubt`` is what the numbers say
    of the encryption key: ``none``, or why it is probably the key, not the value. ``newest_opened`` is null for none.
    """

    rule: str
    transformer: str
    key_fingerprint: str | None
    kms_key_id_sha256: str | None
    keys: int
    opened: int
    failed: int
    damaged: int
    undetermined: int
    first_mod_revision: int
    last_mod_revision: int
    newest_opened: Neighbour | None
    doubt: str


class KeptReadable(msgspec.Struct, frozen=True):
    """The newest kept revision that reads, and until when it stood; ``same_object``: it is proven to be of this one."""

    mod_revision: int
    at: int
    same_object: bool


class KeptRevisions(msgspec.Struct, frozen=True, kw_only=True):
    """What etcd, or the snapshot, still keeps of the key; ``not_sought`` says why not all of it was looked at."""

    count: int
    deletions: int
    oldest_mod_revision: int
    newest_readable: KeptReadable | None
    not_sought: str
    command: str


class ExplainReport(SourcedReport, frozen=True, kw_only=True):
    """All that is known of one etcd key.

    Attributes:
        key_base64: The key itself, where it is not plain text; else null.
        exists: It holds a value at the revision that was read.
        deleted_at: Revision at which it was deleted; null where it was not.
        at_stake: What is wrong means, in one line; "" for nothing.
        do_not_restart: Why no API server should be restarted; "" where nothing speaks against it.
        next: What to do first; null where there is nothing to do.
        finding: As a scan has it; null where nothing is stored.
        deletion_withheld: Why no deletion is among its ways out, where the values beside it speak against it; else "".
        layout: Parts of the stored value in order, then those of what it decrypts to.
        damage_offset: Byte of the plaintext at which decoding breaks; null where it does not, or that is not known.
        damage_field: Field there, "" for unknown.
        attempts: Every encryption key of the rule; empty without a configuration.
        peek: Null where none was needed, or possible.
        ruled_out: Causes that were checked and are none.
        repair: How its own bytes read again; null where no way was found, or none was looked for.
        no_repair: Why there is none, of a value that cannot be read; "" else.
        siblings: One for each encryption key that the value counts under; empty for a readable one.
        kept: Null where it could not be told.
        remedies_when_gone: Ways out for a key that holds nothing any more.
        cause_page: Command that shows what the cause means; "" for none.
    """

    kind: str = "ExplainReport"
    key: str
    key_base64: str | None
    exists: bool
    deleted_at: int | None = None
    at_stake: str = ""
    do_not_restart: str = ""
    next: Remedy | None = None
    finding: Finding | None = None
    deletion_withheld: str = ""
    layout: list[LayoutPart] = msgspec.field(default_factory=list)
    damage_offset: int | None = None
    damage_field: str = ""
    attempts: list[KeyAttempt] = msgspec.field(default_factory=list)
    peek: PeekShown | None = None
    ruled_out: list[NotTheCause] = msgspec.field(default_factory=list)
    repair: RepairShown | None = None
    no_repair: str = ""
    siblings: list[Siblings] = msgspec.field(default_factory=list)
    kept: KeptRevisions | None = None
    remedies_when_gone: list[Remedy] = msgspec.field(default_factory=list)
    cause_page: str = ""
    complete: bool = True
    incomplete_reasons: list[str] = msgspec.field(default_factory=list)
