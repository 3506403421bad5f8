"""The published shape of a copy of an object, and its table: for every command that lists copies."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

import msgspec

from etcdfix.copies.model import Freshness, Place, Sameness, Way
from etcdfix.model import Confidence, Outcome
from etcdfix.report.document import Cell, Column, Kind, Table
from etcdfix.text.commands import Command


class Grade(StrEnum):
    """What a copy is good for, the best first."""

    GOOD = "good"
    """It reads, and nothing is doubtful about it; a rule may refuse to put it back."""
    DOUBTFUL = "doubtful"
    """It reads, and something is not certain."""
    UNUSABLE = "unusable"
    """It does not read, or is of another object."""


class ShownCopy(msgspec.Struct, frozen=True, kw_only=True):
    """One copy of an object, and what stands between it and its etcd key.

    Attributes:
        source: What ``fix --from`` takes; "" where no command can name it.
        confidence: How certain it is that the etcd key held it.
        outcome: Under today's configuration; null where only an API server can tell.
        later_writes: How many later writes of the object are lost with it; null for unknown.
        proof: What shows that it is of the object and right.
        value_sha256: Of its stored bytes; "" where only the object is there.
        refused: The rule that refuses it.
        fix: The dry run that puts it back; "" where a rule refuses.
        save: Command that saves it whole; "" where it is a file already.
    """

    grade: Grade
    place: Place
    where: str
    source: str
    way: Way
    mod_revision: int | None
    confidence: Confidence
    doubt: str
    outcome: Outcome | None
    cause: str | None
    reads: bool
    uid: str
    same_object: Sameness
    freshness: Freshness
    later_writes: int | None
    proof: str
    value_sha256: str
    refused: str = ""
    why: str = ""
    needs: list[str] = msgspec.field(default_factory=list)
    fix: Command = msgspec.field(default_factory=Command)
    save: Command = msgspec.field(default_factory=Command)

    @property
    def told(self) -> str:
        """What it is good for, and why that."""
        match self.grade:
            case Grade.UNUSABLE:
                why = self.cause or self.outcome if not self.reads else "of another object"
                return f"{self.grade}: {why}"
            case Grade.DOUBTFUL:
                unsure = "" if self.confidence is Confidence.CERTAIN else f"only {self.confidence}"
                perhaps = "by its revisions of this object" if self.proof else "perhaps of another object"
                whose = perhaps if self.same_object is Sameness.UNKNOWN else ""
                return f"{self.grade}: {'; '.join(filter(None, (self.doubt or unsure, whose)))}"
            case _:
                return (
                    f"{self.grade}, but it cannot be put back ({self.refused})"
                    if self.refused
                    else self.grade
                )

    def row(self) -> tuple[Cell, ...]:
        """Return it as a row of the table."""
        lost = "unknown" if self.later_writes is None else self.later_writes
        return (
            self.where,
            self.told,
            lost,
            self.why or self.proof or None,
            self.mod_revision,
            self.fix or self.save,
        )


def copies_table(copies: Iterable[ShownCopy], *, brief: int = 4, wide: bool = False) -> Table:
    """Return copies as a table, in their order."""
    rows = [copy.row() for copy in copies]
    title = "Copies, the best first"
    return Table(title=title, columns=_COLUMNS, rows=rows, noun="copy", brief=brief, wide=wide)


_COLUMNS: Final = (
    Column("WHERE", folds=True),
    Column("WHAT", folds=True),
    Column("LOST WRITES"),
    Column("WHY", folds=True, wide=True),
    Column("REVISION", wide=True),
    Column("COMMAND", kind=Kind.COMMAND, wide=True),
)
