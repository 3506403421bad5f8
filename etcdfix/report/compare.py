"""The published shape of a comparison (``etcdfix/v1``, kind ``ComparisonReport``), field by field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from itertools import islice
from typing import ClassVar, Final

import msgspec

from etcdfix.report.document import (
    CAP,
    Cell,
    Column,
    Document,
    Kind,
    State,
    Status,
    Step,
    Steps,
    Table,
    stakes,
)
from etcdfix.report.model import PublishedReport, Remedy, ReportConfiguration, Scope, about
from etcdfix.text.commands import etcdctl
from etcdfix.text.words import counted


class Change(StrEnum):
    """How a key differs, the worst first. The first three are said of members, the others of two points in time."""

    READABLE_ON_SOME = "readable-on-some"
    READABLE_ON_NONE = "readable-on-none"
    READABLE_ON_ALL = "readable-on-all"
    UNREADABLE_NOW = "unreadable-now"
    SAME_REVISION_OTHER_BYTES = "same-revision-other-bytes"
    REMOVED = "removed"
    CHANGED = "changed"
    ADDED = "added"


_MEANINGS: Final[Mapping[str, str]] = {
    Change.READABLE_ON_SOME: "some members can read it, and others cannot",
    Change.READABLE_ON_NONE: "no member can read it, and they differ",
    Change.READABLE_ON_ALL: "every member can read it, and they differ",
    Change.UNREADABLE_NOW: "the earlier value could be read, and the later one cannot",
    Change.SAME_REVISION_OTHER_BYTES: "other bytes at the same mod_revision: no write did that",
    Change.REMOVED: "no longer there",
    Change.CHANGED: "written since",
    Change.ADDED: "new",
}


class ComparedCopy(msgspec.Struct, frozen=True, kw_only=True):
    """One of what was compared.

    Attributes:
        label: As it is called in messages: a member's name and id, ``earlier`` or ``later``.
        member_id: Lower-case hex; "" for no member.
        endpoint: Where it answered; "" for none.
        compared: Whether it was; for a member, whether it answered.
        only_readable_here: Of how many keys its copy can be read where that of another one cannot.
        unreadable_here: Of how many keys its copy cannot be read, or is not there, where that of another one can.
    """

    label: str
    type: str
    member_id: str = ""
    name: str = ""
    endpoint: str = ""
    path: str = ""
    revision: int = 0
    compared: bool = True
    reason: str = ""
    only_readable_here: int = 0
    unreadable_here: int = 0


class CopyOfKey(msgspec.Struct, frozen=True, kw_only=True):
    """What one of them holds for a key.

    Attributes:
        label: Which: that of the :class:`ComparedCopy`.
        state: ``present``, ``absent``, or ``unknown`` where it could not be read whole.
        mod_revision: As stored, as are the following; 0 where it is not present.
        lease: Lower-case hex, null for none.
        value_sha256: ``sha256:<hex>``, "" where it is not present.
    """

    label: str
    state: str
    mod_revision: int = 0
    create_revision: int = 0
    version: int = 0
    lease: str | None = None
    value_size: int = 0
    value_sha256: str = ""
    outcome: str = ""
    cause: str | None = None


class KeyDifference(msgspec.Struct, frozen=True, kw_only=True):
    """A key that is not the same everywhere; ``key_base64`` as in a finding."""

    key: str
    key_base64: str | None
    group: str
    resource: str
    namespace: str
    name: str
    change: Change
    copies: tuple[CopyOfKey, ...]


class ComparisonReport(PublishedReport, frozen=True, kw_only=True):
    """What is not the same on all members of an etcd, or at two points in time.

    Attributes:
        mode: ``members``, or ``sources``: then ``copies`` are the earlier one and the later one.
        unknown: How many keys could not be compared, since a copy could not be read whole.
        differences: The worst first, then in the order of the keys.
    """

    ROWS: ClassVar[str] = "differences"

    kind: str = "ComparisonReport"
    encryption_config: ReportConfiguration | None
    scope: Scope
    mode: str
    copies: list[ComparedCopy]
    keys: int
    differing: int
    changes: dict[str, int]
    unknown: int
    warnings: list[str]
    advice: list[Remedy]
    complete: bool
    incomplete_reasons: list[str]
    differences: Sequence[KeyDifference]

    def document(self) -> Document:
        """Return whether there is a difference, what to do, what was compared, and the keys that differ."""
        step: Step | None = next((one for one in self.advice if one.command), None)
        notes: Sequence[str] = self.warnings
        warned: tuple[str, ...] = ()
        if self._of_members and self.differing:
            warned = (self.advice[0].action,)
        elif self._of_members and self._asked > 1:
            notes = ["Older revisions of the keys were not compared.", *notes]
            if self.complete:
                history = etcdctl("endpoint", "hashkv", "--cluster")
                step = Step("Compare the older revisions that the members keep", history)
        lines, more = stakes(self.incomplete_reasons, notes, first=warned)
        changes = [
            (self.changes[change], change, _MEANINGS[change]) for change in Change if self.changes.get(change)
        ]
        first = islice(self.differences, CAP)
        keys = [(one.change, "; ".join(map(_told, one.copies)), one.key) for one in first]
        return Document(
            status=self._status(),
            about=about(
                self.tool, self.generated_at, ("more", "-o wide lists the keys" if self.differing else "")
            ),
            stakes=lines,
            next=Step(step.action, step.command) if step is not None else None,
            sections=[
                Table(columns=_COPY_COLUMNS, rows=list(map(self._copy, self.copies)), noun="copy", brief=5),
                Table(columns=_CHANGE_COLUMNS, rows=changes, noun="kind of change"),
                Table(
                    title="Keys that differ",
                    columns=_KEY_COLUMNS,
                    rows=keys,
                    total=self.differing,
                    noun="key",
                    wide=True,
                ),
                Steps(steps=self.advice, wide=True),
                *more,
            ],
        )

    def _status(self) -> Status:
        keys = counted(self.keys, "key")
        what = f"{self.differing} of {keys}"
        if self._of_members:
            members = counted(self._asked, "member")
            told = f"MEMBERS AGREE on {keys} at revision {self.copies[0].revision}: {members} compared"
            if self.differing:
                told = f"MEMBERS DIFFER: {what} differ on {members}"
            elif not self.complete:
                rest = "these agree" if self._asked > 1 else "nothing could be compared"
                answered = f"{self._asked} of {counted(len(self.copies), 'member')} answered"
                told = f"COULD NOT BE TOLD: {answered}; {rest}"
            elif len(self.copies) == 1:
                told = "There is one member: nothing to compare"
        else:
            lost = self.changes.get(Change.UNREADABLE_NOW, 0)
            told = f"NO DIFFERENCE in {keys}"
            if lost:
                told = (
                    f"UNREADABLE NOW: {counted(lost, 'key')} could be read in the earlier one; {what} differ"
                )
            elif self.differing:
                told = f"DIFFERENT: {what} differ; none became unreadable"
            elif not self.complete:
                told = f"COULD NOT BE TOLD: no difference in {keys}"
        state = State.OK if self.complete else State.INCOMPLETE
        return Status(State.FINDINGS if self.differing else state, told)

    @property
    def _of_members(self) -> bool:
        return self.mode == "members"

    @property
    def _asked(self) -> int:
        return sum(copy.compared for copy in self.copies)

    def _copy(self, copy: ComparedCopy) -> tuple[Cell, ...]:
        state = "compared" if copy.compared else f"NOT COMPARED: {copy.reason}"
        if copy.compared and copy.unreadable_here and self._of_members:
            state = f"lacks or cannot read {copy.unreadable_here} that another one can"
        return copy.label, copy.path or copy.endpoint or None, copy.revision or None, state


_REVISION: Final = Column("REVISION", kind=Kind.NUMBER)
_COPY_COLUMNS: Final = (Column("COPY"), Column("WHERE"), _REVISION, Column("STATE", folds=True))
_CHANGE_COLUMNS: Final = (Column("KEYS", kind=Kind.NUMBER), Column("CHANGE"), Column("MEANING", folds=True))
_KEY_COLUMNS: Final = (Column("CHANGE"), Column("COPIES", folds=True), Column("KEY", kind=Kind.KEY))


def _told(copy: CopyOfKey) -> str:
    if copy.state != "present":
        return f"{copy.label} {copy.state}"
    cause = f" ({copy.cause})" if copy.cause else ""
    return f"{copy.label} {copy.outcome}{cause} at {copy.mod_revision}"
