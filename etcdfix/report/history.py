"""The published shape of what was written to one etcd key, as ``explain --history`` says it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from etcdfix.model import Outcome
from etcdfix.report.document import Cell, Column, Facts, Section, Table


class KeptWrite(msgspec.Struct, frozen=True, kw_only=True):
    """One write to the key. What has no value is null, 0 or "".

    Attributes:
        mod_revision: At which it took effect; null where the log does not tell.
        place: ``etcd``, or the entry of the log that has it.
        stands_until: Newest revision at which it could be read; null where nothing came after it.
        version: 0 where kine does not tell.
        outcome: Under today's configuration.
        doubt: Why it is not certain that it took effect so; "" where it is.
        changed: Fields that differ from the readable write before it, without their contents; null where they were not
            compared.
    """

    mod_revision: int | None
    place: str = "etcd"
    deletes: bool = False
    stands_until: int | None = None
    version: int = 0
    outcome: Outcome | None = None
    cause: str | None = None
    transformer: str = ""
    uid: str = ""
    value_sha256: str | None = None
    doubt: str = ""
    changed: list[str] | None = None

    @property
    def present(self) -> bool:
        """Whether it is what the key holds now, or at the revision that was read."""
        return not self.deletes and self.stands_until is None and self.place == "etcd"

    def row(self) -> tuple[Cell, ...]:
        """Return it as a row of the table."""
        cause = f" ({self.cause})" if self.cause else ""
        what = "deleted" if self.deletes else f"{self.outcome or 'put'}{cause}"
        changed = ", ".join(self.changed) or "nothing" if self.changed is not None else None
        until = "now" if self.present else self.stands_until
        where = f"{self.place}: {self.doubt}" if self.doubt else self.place
        revision = self.mod_revision or "unknown"
        return (revision, what, until, where, changed, self.transformer or None, self.value_sha256)


class History(msgspec.Struct, frozen=True, kw_only=True):
    """Every write of the key that etcd, or the file, still keeps, and what the log says besides.

    Attributes:
        compacted_revision: The oldest revision that can be read; 0 where nothing was compacted, null for unknown.
        count: How many revisions are kept, deletions counted.
        older_versions: How many earlier revisions of the oldest kept generation are gone.
        readable: How many of the kept revisions can be read.
        left_out: How many of the oldest revisions are not among ``writes``.
    """

    compacted_revision: int | None
    count: int
    deleted_at: int | None
    older_versions: int
    readable: int
    left_out: int
    writes: list[KeptWrite]

    def sections(self) -> Iterator[Section]:
        """Yield every write, and what is not among them."""
        rows = [one.row() for one in self.writes]
        yield Table(columns=_COLUMNS, rows=rows, noun="write", brief=12)
        yield Facts(
            facts=[
                ("kept", f"{self.count}, {self.readable} readable"),
                ("compacted up to", str(self.compacted_revision or "")),
                ("older versions gone", str(self.older_versions or "")),
                ("older, not shown", str(self.left_out or "")),
            ],
            wide=True,
        )


_COLUMNS: Final = (
    Column("REVISION"),
    Column("WHAT"),
    Column("UNTIL"),
    Column("FROM", folds=True),
    Column("CHANGED", folds=True),
    Column("UNDER", wide=True, folds=True),
    Column("DIGEST", wide=True),
)
