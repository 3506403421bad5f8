"""The published shapes of the reports on encryption keys (``etcdfix/v1``), and what a person sees of each.

An encryption key is named by its transformer, its rule and its fingerprint; under KMS v2 by the digest of its key id.
Nothing here holds key material or contents of objects.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Any, Final

import msgspec

from etcdfix.model import GroupResource, KeyOfRule
from etcdfix.report.cases import Case, CaseState, whole_case
from etcdfix.report.document import Column, Document, Kind, State, Status, Step, Table, stakes, wide_table
from etcdfix.report.model import ReportConfiguration, SourcedReport
from etcdfix.text.words import counted, transformer_words
from etcdfix.verdicts.examination import KeyName

_DIGITS: Final = 19


class EncryptionKey(msgspec.Struct, kw_only=True):
    """One encryption key of one rule.

    Attributes:
        transformer: ``aescbc/v1/key1``, ``kms/v2/prov``, ``identity``; "" for an envelope that nobody knows.
        resources: Of the rule, empty for none.
        key_fingerprint: Of the key's bytes; null under KMS, for identity, and for a key that is not configured.
        kms_key_id_sha256: Digest of the KMS v2 key id; null where there is none.
    """

    transformer: str
    resources: list[str]
    key_fingerprint: str | None
    kms_key_id_sha256: str | None

    @property
    def label(self) -> str:
        """What the key is called."""
        return key_label(self.transformer, self.key_fingerprint or self.kms_key_id_sha256)

    @property
    def rule(self) -> str:
        """The resources of its rule."""
        return ",".join(self.resources) or "(no rule)"


def key_fields(name: KeyName) -> dict[str, Any]:
    """Return the fields of an :class:`EncryptionKey`."""
    return {
        "transformer": name.transformer,
        "resources": name.rule.split(",") if name.rule else [],
        "key_fingerprint": name.key if name.key.startswith("fp:") else None,
        "kms_key_id_sha256": name.key if name.key.startswith("sha256:") else None,
    }


def key_label(transformer: str, key: str | None) -> str:
    """Return what an encryption key is called: its transformer, and a fingerprint or the start of a digest."""
    shown = f"{key[:_DIGITS]}…" if key is not None and key.startswith("sha256:") else key or ""
    return f"{transformer_words(transformer) or '(unknown)'} {shown}".rstrip()


class KeyUsage(EncryptionKey, kw_only=True):
    """What needs one encryption key of one rule.

    Attributes:
        objects: How many values are stored under it now. One that does not open counts under each key of its name.
        stale: Of these: readable, and to be written again with the write key.
        first_mod_revision: Lowest of all these; null for none.
        kept_revisions: Earlier values under it that etcd still keeps, until it compacts them; null where that
            is not known.
        backups: Values under it in the backups that were named.
        snapshots: Values under it in the other snapshots that were named, earlier values included.
        safe_to_remove: Nothing that was looked at needs it, and everything was looked at that could be.
        reasons: Why it is not safe to remove, one sentence each; empty where it is.
    """

    configured: bool = False
    write_key: bool = False
    objects: int = 0
    stale: int = 0
    failing: int = 0
    undetermined: int = 0
    first_mod_revision: int | None = None
    last_mod_revision: int | None = None
    kept_revisions: int | None = 0
    backups: int = 0
    snapshots: int = 0
    safe_to_remove: bool = False
    reasons: list[str] = []


class EncryptionUsageReport(SourcedReport, frozen=True, kw_only=True):
    """Which encryption key is needed by how many objects.

    Attributes:
        keys: In the order of the configuration; those that it does not have come last.
    """

    kind: str = "EncryptionUsageReport"
    keys: list[KeyUsage]
    backup_directories: list[str]
    other_snapshots: list[str]
    notes: list[str]
    next: Step | None
    complete: bool
    incomplete_reasons: list[str]

    @property
    def safe_to_remove(self) -> int:
        """How many keys are safe to remove: as of the revision of ``source``, in this etcd."""
        return sum(key.safe_to_remove for key in self.keys)

    def document(self) -> Document:
        """Return how many keys are safe to remove, and for each what needs it."""
        if self.encryption_config is None:
            told = f"{counted(len(self.keys), 'encryption key')} in use; without a configuration none is safe to remove"
        else:
            configured = counted(sum(key.configured for key in self.keys), "configured encryption key")
            told = f"{self.safe_to_remove} of {configured} can be removed, at revision {self.source.revision}"
        lines, more = stakes(self.incomplete_reasons, self.notes)
        rows = [
            (
                key.label,
                key.rule,
                "yes" if key.safe_to_remove else "no",
                key.objects,
                _first(key.reasons),
                key.stale,
                key.failing,
                key.undetermined,
                f"{key.first_mod_revision} to {key.last_mod_revision}" if key.objects else None,
                "?" if key.kept_revisions is None else key.kept_revisions,
                key.backups,
                key.snapshots,
            )
            for key in self.keys
        ]
        reasons = [(key.label, key.rule, reason) for key in self.keys for reason in key.reasons]
        return Document(
            status=Status(State.OK if self.complete else State.INCOMPLETE, told),
            about=self.about(),
            stakes=lines,
            next=self.next,
            sections=[
                Table(columns=_USAGE, rows=rows, noun="encryption key", brief=6),
                wide_table("Why a key cannot be removed", ("KEY", "RULE", "REASON"), reasons),
                *more,
            ],
        )


def _first(reasons: list[str]) -> str:
    more = f" (+{len(reasons) - 1})" if reasons[1:] else ""
    return f"{reasons[0]}{more}" if reasons else ""


_KEY: Final = (Column("KEY"), Column("RULE", folds=True))
_USAGE: Final = (
    *_KEY,
    Column("REMOVE"),
    Column("OBJECTS", kind=Kind.NUMBER),
    Column("WHY NOT", folds=True),
    *(Column(name, kind=Kind.NUMBER, wide=True) for name in ("STALE", "UNREADABLE", "UNDETERMINED")),
    Column("MOD REVISIONS", wide=True),
    *(Column(name, kind=Kind.NUMBER, wide=True) for name in ("KEPT", "BACKUPS", "SNAPSHOTS")),
)


class ConfigurationChange(StrEnum):
    """What another configuration would do to a value, the worst first."""

    BECOMES_UNREADABLE = "becomes-unreadable"
    LOSES_ITS_WAY_BACK = "loses-its-way-back"
    """Unreadable under both, and only today's configuration has the key with which it may be repaired."""
    UNDETERMINED = "undetermined"
    """Could not be told under one of the configurations."""
    STAYS_UNREADABLE = "stays-unreadable"
    BECOMES_READABLE = "becomes-readable"
    BECOMES_STALE = "becomes-stale"
    """Readable, and not written with what would then be the write key."""
    NO_LONGER_STALE = "no-longer-stale"


class ValueChange(EncryptionKey, kw_only=True):
    """What would happen to the values of one resource under the encryption key that opens them, or that they name.

    Attributes:
        cause: Of the verdict under the new configuration; null where they would be readable.
        examples: The first etcd keys, at most five.
    """

    change: ConfigurationChange
    group: str
    resource: str
    cause: str | None
    count: int = 0
    examples: list[str] = []

    @property
    def where(self) -> str:
        """The resource."""
        return str(GroupResource(self.group, self.resource))


class WriteKeyChange(msgspec.Struct, frozen=True, kw_only=True):
    """A resource that API servers would write with another encryption key."""

    group: str
    resource: str
    today: KeyOfRule
    new: KeyOfRule
    today_reads_new: bool
    new_reads_today: bool

    @property
    def where(self) -> str:
        """The resource."""
        return str(GroupResource(self.group, self.resource))


class WhatIfReport(SourcedReport, frozen=True, kw_only=True):
    """What another configuration would do to everything that is stored.

    Attributes:
        new_config: The configuration in question; ``encryption_config`` is today's, null where there is none.
        values: How many values were compared; of those that ``counts`` does not count nothing changes.
        counts: How many values each change happens to.
        changes: What happens, by resource and encryption key, the worst first.
    """

    kind: str = "WhatIfReport"
    new_config: ReportConfiguration
    values: int
    counts: dict[str, int]
    changes: list[ValueChange]
    write_keys: list[WriteKeyChange]
    warnings: list[str]
    next: Step | None
    complete: bool
    incomplete_reasons: list[str]

    @property
    def loses(self) -> bool:
        """Whether anything becomes unreadable, or loses the key with which it can be repaired."""
        return any(self.counts[one] for one in list(ConfigurationChange)[:2])

    def document(self) -> Document:
        """Return what becomes unreadable, and what else changes, by resource and encryption key."""
        lost, losing, *others = (self.counts[one] for one in ConfigurationChange)
        told = [
            *([f"{counted(lost, 'value')} will become unreadable"] if lost else []),
            *([f"{counted(losing, 'unreadable value')} will lose the key for a repair"] if losing else []),
        ]
        also = [f"{number} {name}" for number, name in zip(others, _ALSO, strict=True) if number]
        of = f"With {self.new_config.path}, of {counted(self.values, 'value')}"
        changed = f"{of}: {', '.join(also) or 'nothing else changes'}"
        lines, more = stakes(self.incomplete_reasons, [changed, *self.warnings])
        state = State.FINDINGS if self.loses else State.OK if self.complete else State.INCOMPLETE
        rows = [
            (one.change, one.where, one.label, one.count, one.cause, one.examples[0]) for one in self.changes
        ]
        writes = [(one.where, str(one.today), str(one.new)) for one in self.write_keys]
        return Document(
            status=Status(state, " and ".join(told) or "No value becomes unreadable"),
            about=self.about(),
            stakes=lines,
            next=self.next,
            sections=[
                Table(
                    columns=_CHANGES,
                    rows=rows,
                    noun="row",
                    brief=6,
                    counted=3,
                    sum=sum(row[3] for row in rows),
                    counts="value",
                ),
                Table(columns=_WRITES, rows=writes, noun="resource", brief=3),
                *more,
            ],
        )

    def cases(self) -> Iterator[Case]:
        """Yield a test case for each change of the values of one resource under one encryption key."""
        whole = "everything was examined under both configurations"
        yield whole_case(whole, self.incomplete_reasons, complete=self.complete)
        for row in self.changes:
            what = f"{row.label}: {row.change}{f', {row.cause}' if row.cause else ''}"
            yield Case(
                name=what,
                group=row.where,
                state=_CASES.get(row.change, CaseState.PASSED),
                type=row.cause or row.change,
                message=f"{counted(row.count, 'value')} under {what}",
                detail=[f"{counted(row.count, 'value')}, such as:", *row.examples],
            )


_CASES: Final = {
    ConfigurationChange.BECOMES_UNREADABLE: CaseState.FAILED,
    ConfigurationChange.LOSES_ITS_WAY_BACK: CaseState.FAILED,
    ConfigurationChange.UNDETERMINED: CaseState.ERROR,
    ConfigurationChange.STAYS_UNREADABLE: CaseState.SKIPPED,
}
"""All other changes pass."""
_ALSO: Final = ("undetermined", "stay unreadable", "become readable", "become stale", "no longer stale")
_WRITES: Final = (Column("RESOURCE"), Column("WRITE KEY TODAY"), Column("WRITE KEY THEN"))
_CHANGES: Final = (
    Column("CHANGE"),
    Column("RESOURCE"),
    Column("KEY"),
    Column("VALUES", kind=Kind.NUMBER),
    Column("CAUSE THEN"),
    Column("EXAMPLE", kind=Kind.KEY, wide=True),
)
