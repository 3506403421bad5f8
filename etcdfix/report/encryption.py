"""The published shapes of the reports on encryption keys (``etcdfix/v1``), and what a person sees of each.

An encryption key is named by its transformer, its rule and its fingerprint; under KMS v2 by the digest of its key id.
Nothing here holds key material or contents of objects.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Any, Final

import msgspec

from etcdfix.examine.verdicts.examination import KeyName
from etcdfix.model.model import KeyOfRule
from etcdfix.model.providers import IDENTITY
from etcdfix.report.document import (
    Case,
    CaseState,
    Column,
    Document,
    Kind,
    Section,
    State,
    Status,
    Step,
    Steps,
    Table,
    stakes,
    whole_case,
    wide_table,
)
from etcdfix.report.model import ReportConfiguration, SourcedReport
from etcdfix.text.words import counted, transformer_words

_DIGITS: Final = 19


class EncryptionKey(msgspec.Struct, kw_only=True):
    """One encryption key of one rule.

    Attributes:
        transformer: ``aescbc/v1/key1``, ``kms/v2/prov``, ``identity``; "" for an envelope that nobody knows.
        resources: Resources of its rule; empty where it has none.
        key_fingerprint: Fingerprint of its bytes; null under KMS, for identity, and where the key is not configured.
        kms_key_id_sha256: Digest of the KMS v2 key id; null where there is none.
    """

    transformer: str
    resources: list[str]
    key_fingerprint: str | None
    kms_key_id_sha256: str | None

    @property
    def label(self) -> str:
        """Its transformer, and its fingerprint or the start of a digest."""
        digest = f"{self.kms_key_id_sha256[:_DIGITS]}…" if self.kms_key_id_sha256 else ""
        shown = self.key_fingerprint or digest
        return f"{transformer_words(self.transformer) or '(unknown)'} {shown}".rstrip()

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


class LookReport(SourcedReport, frozen=True, kw_only=True):
    """Base of the reports on encryption keys."""

    next: Step | None = None
    complete: bool
    incomplete_reasons: list[str]

    def show(
        self, state: State, headline: str, notes: Sequence[str], sections: Sequence[Section]
    ) -> Document:
        """Return the document of a report that comes to this state."""
        lines, more = stakes(self.incomplete_reasons, notes)
        return Document(
            status=Status(state, headline),
            about=self.about(),
            stakes=lines,
            next=self.next,
            sections=[*sections, *more],
        )


def _numbers(*names: str, wide: bool = False) -> tuple[Column, ...]:
    return tuple(Column(name, kind=Kind.NUMBER, wide=wide) for name in names)


_KEY: Final = (Column("KEY"), Column("RULE", folds=True))

# ------------------------------------------------------------------------------------------------------------ usage


class KeyUsage(EncryptionKey, kw_only=True):
    """What needs one encryption key of one rule.

    Attributes:
        objects: How many values are stored under it now. One that does not open counts under each key of its name.
        stale: How many of these are readable, and not written with the write key.
        kept_revisions: Earlier values under it that etcd still keeps, until it compacts them.
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
    kept_revisions: int = 0
    backups: int = 0
    snapshots: int = 0
    safe_to_remove: bool = False
    reasons: list[str] = []


class EncryptionUsageReport(LookReport, frozen=True, kw_only=True):
    """Which encryption key is needed by how many objects.

    Attributes:
        keys: In the order of the configuration; those that it does not have come last.
    """

    kind: str = "EncryptionUsageReport"
    keys: list[KeyUsage]
    backup_directories: list[str]
    other_snapshots: list[str]
    notes: list[str]

    @property
    def safe_to_remove(self) -> int:
        """How many encryption keys are safe to remove: as of the revision of ``source``, in this etcd."""
        return sum(key.safe_to_remove and key.transformer != IDENTITY for key in self.keys)

    def document(self) -> Document:
        """Return how many keys are safe to remove, and for each what needs it."""
        told = f"{counted(len(self.keys), 'encryption key')} in use; without a configuration none is safe to remove"
        if self.encryption_config is not None:
            number = sum(key.configured and key.transformer != IDENTITY for key in self.keys)
            configured = counted(number, "configured encryption key")
            told = f"{self.safe_to_remove} of {configured} can be removed, at revision {self.source.revision}"
        rows = []
        for key in self.keys:
            more = f" (+{len(key.reasons) - 1})" if key.reasons[1:] else ""
            why_not = f"{key.reasons[0]}{more}" if key.reasons else ""
            head = (key.label, key.rule, "yes" if key.safe_to_remove else "no", key.objects, why_not)
            elsewhere = (key.kept_revisions, key.backups, key.snapshots)
            rows.append((*head, key.stale, key.failing, key.undetermined, *elsewhere))
        reasons = [(key.label, key.rule, reason) for key in self.keys for reason in key.reasons]
        why = wide_table("Why a key cannot be removed", ("KEY", "RULE", "REASON"), reasons)
        keys = Table(columns=_USAGE, rows=rows, noun="encryption key", brief=6)
        state = State.OK if self.complete else State.INCOMPLETE
        return self.show(state, told, self.notes, [keys, why])


_USAGE: Final = (
    *_KEY,
    Column("REMOVE"),
    *_numbers("OBJECTS"),
    Column("WHY NOT", folds=True),
    *_numbers("STALE", "UNREADABLE", "UNDETERMINED", "KEPT", "BACKUPS", "SNAPSHOTS", wide=True),
)

# ---------------------------------------------------------------------------------------------------------- what-if


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
        resource: With its group: ``deployments.apps``.
        cause: Cause under the new configuration; null where they would be readable.
        examples: The first etcd keys, at most five.
    """

    change: ConfigurationChange
    resource: str
    cause: str | None
    count: int = 0
    examples: list[str] = []


class WriteKeyChange(msgspec.Struct, frozen=True, kw_only=True):
    """A resource that API servers would write with another encryption key."""

    resource: str
    today: KeyOfRule
    new: KeyOfRule
    today_reads_new: bool
    new_reads_today: bool


class WhatIfReport(LookReport, frozen=True, kw_only=True):
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
        rows = [
            (one.change, one.resource, one.label, one.count, one.cause, one.examples[0])
            for one in self.changes
        ]
        writes = [(one.resource, str(one.today), str(one.new)) for one in self.write_keys]
        total = sum(row[3] for row in rows)
        changes = Table(columns=_CHANGES, rows=rows, brief=6, counted=3, sum=total, counts="value")
        sections = [changes, Table(columns=_WRITES, rows=writes, noun="resource", brief=3)]
        # A loss that is known wins over what is not.
        state = State.FINDINGS if self.loses else State.OK if self.complete else State.INCOMPLETE
        headline = " and ".join(told) or "No value becomes unreadable"
        return self.show(state, headline, [changed, *self.warnings], sections)

    def cases(self) -> Iterator[Case]:
        """Yield a test case for each change of the values of one resource under one encryption key."""
        whole = "everything was examined under both configurations"
        yield whole_case(whole, self.incomplete_reasons, complete=self.complete)
        for row in self.changes:
            what = f"{row.label}: {row.change}{f', {row.cause}' if row.cause else ''}"
            values = counted(row.count, "value")
            yield Case(
                name=what,
                group=row.resource,
                state=_CASES.get(row.change, CaseState.PASSED),
                type=row.cause or row.change,
                message=f"{values} under {what}",
                detail=[f"{values}, such as:", *row.examples],
            )


_CASES: Final = {
    ConfigurationChange.BECOMES_UNREADABLE: CaseState.FAILED,
    ConfigurationChange.LOSES_ITS_WAY_BACK: CaseState.FAILED,
    ConfigurationChange.UNDETERMINED: CaseState.ERROR,
    ConfigurationChange.STAYS_UNREADABLE: CaseState.SKIPPED,
}
_ALSO: Final = ("undetermined", "stay unreadable", "become readable", "become stale", "no longer stale")
_WRITES: Final = (Column("RESOURCE"), Column("WRITE KEY TODAY"), Column("WRITE KEY THEN"))
_CHANGES: Final = (
    Column("CHANGE"),
    Column("RESOURCE"),
    Column("KEY"),
    *_numbers("VALUES"),
    Column("CAUSE THEN"),
    Column("EXAMPLE", kind=Kind.KEY, wide=True),
)

# -------------------------------------------------------------------------------------------------------------- try


class Opened(msgspec.Struct, kw_only=True):
    """What one candidate does for some values.

    Attributes:
        opens: So many open, decode, and fit their etcd key.
        right_key: So many more were written with a key of it, and do not open as they are: damaged, moved, or under
            another name of the key.
        undetermined: Could not be told: a KMS plugin did not answer, or refused.
    """

    opens: int = 0
    right_key: int = 0
    undetermined: int = 0


class FindingGroup(EncryptionKey, kw_only=True):
    """Unreadable values under one encryption key of one rule of today.

    Attributes:
        opened: So many are opened by at least one candidate.
        damaged: So many are proven to be damaged under today's configuration; no other key opens these.
        opened_by: Each candidate that opens some, to how many.
        not_opened: The first etcd keys that none opens, at most five.
        next: What to do first; null where no candidate opens any.
    """

    findings: int = 0
    opened: int = 0
    damaged: int = 0
    opened_by: dict[str, int] = msgspec.field(default_factory=dict)
    not_opened: list[str] = msgspec.field(default_factory=list)
    next: Step | None = None


class CandidateResult(Opened, kw_only=True):
    """What one candidate opens.

    Attributes:
        name: Its file.
        opened: The first etcd keys that it opens, at most five.
        not_opened: The first that it does not, at most five.
    """

    name: str
    opened: list[str] = []
    not_opened: list[str] = []


class EncryptionTryReport(LookReport, frozen=True, kw_only=True):
    """Which candidate opens which of the values that cannot be read.

    Attributes:
        findings: How many values were tried: all that do not open today, within the scope.
        opened: So many are opened by at least one candidate.
        undetermined_today: So many may open today: it could not be told, or no configuration was given.
    """

    kind: str = "EncryptionTryReport"
    findings: int
    opened: int
    undetermined_today: int
    candidates: list[CandidateResult]
    groups: list[FindingGroup]

    def document(self) -> Document:
        """Return how many values the candidates open, then each candidate, then the values by encryption key."""
        values = counted(self.findings, "value")
        told = f"The candidates open {self.opened} of {values} that do not open today"
        unsure = self.undetermined_today if self.encryption_config is not None else 0
        notes = (
            [f"{counted(unsure, 'value')} may open today: that could not be determined."] if unsure else []
        )
        rows = []
        for one in self.candidates:
            examples = (keys[0] if keys else None for keys in (one.not_opened, one.opened))
            rows.append((one.name, one.opens, one.right_key, one.undetermined, *examples))
        candidates = Table(columns=_CANDIDATE, rows=rows, noun="candidate", brief=5)
        left = State.FINDINGS if self.opened < self.findings else State.OK
        state = left if self.complete else State.INCOMPLETE
        headline = told if self.findings else "Every value in scope opens today"
        return self.show(state, headline, notes, [candidates, *group_tables(self.groups)])


_CANDIDATE: Final = (
    Column("CANDIDATE", folds=True),
    *_numbers("OPENS", "RIGHT KEY ONLY", "UNDETERMINED"),
    Column("FIRST NOT OPENED", kind=Kind.KEY, wide=True),
    Column("FIRST OPENED", kind=Kind.KEY, wide=True),
)
_GROUP: Final = (
    *_KEY,
    *_numbers("VALUES", "OPENED", "DAMAGED"),
    Column("OPENED BY", folds=True),
    Column("FIRST NOT OPENED", kind=Kind.KEY, wide=True),
)


def group_tables(groups: Sequence[FindingGroup], *, wide: bool = False) -> list[Section]:
    """Return what the candidates do for the values under each encryption key."""
    rows, steps = [], []
    for group in groups:
        opened_by = ", ".join(sorted(group.opened_by)) or None
        example = group.not_opened[0] if group.not_opened else None
        numbers = (group.findings, group.opened, group.damaged)
        rows.append((group.label, group.rule, *numbers, opened_by, example))
        if group.next is not None:
            steps.append(Step(f"{group.label}: {group.next.action}", group.next.command, group.next.note))
    return [
        Table(
            columns=_GROUP,
            rows=rows,
            noun="encryption key",
            brief=6,
            counted=2,
            sum=sum(group.findings for group in groups),
            counts="value",
            wide=wide,
        ),
        Steps(steps=steps, wide=True),
    ]
