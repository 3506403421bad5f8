"""The published shape of ``encryption try`` (``etcdfix/v1``), and what a person sees of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from etcdfix.report.document import Column, Document, Kind, Section, State, Status, Step, Steps, Table, stakes
from etcdfix.report.encryption import EncryptionKey
from etcdfix.report.model import SourcedReport
from etcdfix.text.words import counted


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


class CandidateOnGroup(Opened, kw_only=True):
    """What one candidate does for the values under one encryption key.

    Attributes:
        named: The name by which the values call its key, where it has another one here; "" otherwise.
    """

    candidate: str
    named: str = ""


class FindingGroup(EncryptionKey, kw_only=True):
    """Unreadable values under one encryption key of one rule of today.

    Attributes:
        opened: So many are opened by at least one candidate.
        damaged: Of so many it is proven that they are damaged, with today's configuration: no other key opens these.
        candidates: What each does for them; those that do nothing are left out.
        not_opened: The first etcd keys that none opens, at most five.
        next: What to do first; null where no candidate opens any.
    """

    findings: int = 0
    opened: int = 0
    damaged: int = 0
    candidates: list[CandidateOnGroup]
    not_opened: list[str] = msgspec.field(default_factory=list)
    next: Step | None = None


class CandidateResult(Opened, kw_only=True):
    """What one candidate opens.

    Attributes:
        name: Its file; of a single key its name and file.
        kind: ``configuration`` or ``key``.
        key_fingerprints: Of a single key: what its file may mean; empty for a configuration.
        opened: The first etcd keys that it opens, at most five.
        not_opened: The first that it does not, at most five.
    """

    name: str
    kind: str
    key_fingerprints: list[str]
    opened: list[str] = []
    not_opened: list[str] = []


class EncryptionTryReport(SourcedReport, frozen=True, kw_only=True):
    """Which candidate opens which of the values that cannot be read.

    Attributes:
        findings: How many values were tried: all that do not open today, within the scope.
        opened: So many are opened by at least one candidate.
        undetermined_today: Of so many it could not be told whether they open today, or no configuration was given.
    """

    kind: str = "EncryptionTryReport"
    findings: int
    opened: int
    undetermined_today: int
    candidates: list[CandidateResult]
    groups: list[FindingGroup]
    next: Step | None
    complete: bool
    incomplete_reasons: list[str]

    def document(self) -> Document:
        """Return how many values the candidates open, then each candidate, then the values by encryption key."""
        told = (
            f"The candidates open {self.opened} of {counted(self.findings, 'value')} that do not open today"
        )
        unsure = self.undetermined_today if self.encryption_config is not None else 0
        notes = (
            [f"{counted(unsure, 'value')} may open today: that could not be determined."] if unsure else []
        )
        lines, more = stakes(self.incomplete_reasons, notes)
        rows = [
            (
                one.name, one.opens, one.right_key, one.undetermined, " ".join(one.key_fingerprints),
                *(keys[0] if keys else None for keys in (one.not_opened, one.opened)),
            )
            for one in self.candidates
        ]  # fmt: skip
        left = State.FINDINGS if self.opened < self.findings else State.OK
        return Document(
            status=Status(
                left if self.complete else State.INCOMPLETE,
                told if self.findings else "Every value in scope opens today",
            ),
            about=self.about(),
            stakes=lines,
            next=self.next,
            sections=[
                Table(columns=_CANDIDATE, rows=rows, noun="candidate", brief=5),
                *group_tables(self.groups),
                *more,
            ],
        )


_KEY: Final = (Column("KEY"), Column("RULE", folds=True))
_OPENS: Final = tuple(Column(name, kind=Kind.NUMBER) for name in ("OPENS", "RIGHT KEY ONLY", "UNDETERMINED"))
_CANDIDATE: Final = (
    Column("CANDIDATE", folds=True),
    *_OPENS,
    Column("FINGERPRINTS", wide=True),
    Column("FIRST NOT OPENED", kind=Kind.KEY, wide=True),
    Column("FIRST OPENED", kind=Kind.KEY, wide=True),
)
_GROUP: Final = (
    *_KEY,
    *(Column(name, kind=Kind.NUMBER) for name in ("VALUES", "OPENED", "DAMAGED")),
    Column("OPENED BY", folds=True),
    Column("FIRST NOT OPENED", kind=Kind.KEY, wide=True),
)


def group_tables(groups: Sequence[FindingGroup], *, wide: bool = False) -> list[Section]:
    """Return what the candidates do for the values under each encryption key."""
    return [
        Table(
            columns=_GROUP,
            rows=[
                (
                    group.label,
                    group.rule,
                    group.findings,
                    group.opened,
                    group.damaged,
                    ", ".join(one.candidate for one in group.candidates if one.opens) or None,
                    group.not_opened[0] if group.not_opened else None,
                )
                for group in groups
            ],
            noun="encryption key",
            brief=6,
            counted=2,
            sum=sum(group.findings for group in groups),
            counts="value",
            wide=wide,
        ),
        Steps(
            steps=[
                Step(f"{group.label}: {group.next.action}", group.next.command, group.next.note)
                for group in groups
                if group.next is not None
            ],
            wide=True,
        ),
    ]
