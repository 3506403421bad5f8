"""The published shape of a comparison (``etcdfix/v1``, kind ``ComparisonReport``), field by field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from itertools import islice
from typing import ClassVar, Final

import msgspec

from etcdfix.examine.verdicts.examination import Examination
from etcdfix.model.model import digest_of
from etcdfix.model.storagekey import display
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
    ToWide,
    stakes,
)
from etcdfix.report.finding import shown_lease
from etcdfix.report.model import PublishedReport, Remedy, ReportConfiguration, Scope, about
from etcdfix.text.commands import NO_COMMAND, Command, Part, compare, etcdctl, scan
from etcdfix.text.safetext import key_base64, key_word
from etcdfix.text.words import counted


class DifferenceKind(StrEnum):
    """How a key differs, the worst first. The first three compare members, the others two points in time."""

    READABLE_ON_SOME = "readable-on-some"
    READABLE_ON_NONE = "readable-on-none"
    READABLE_ON_ALL = "readable-on-all"
    UNREADABLE_NOW = "unreadable-now"
    SAME_REVISION_OTHER_BYTES = "same-revision-other-bytes"
    REMOVED = "removed"
    CHANGED = "changed"
    ADDED = "added"


_MEANINGS: Final[Mapping[str, str]] = {
    DifferenceKind.READABLE_ON_SOME: "some members can read it, and others cannot",
    DifferenceKind.READABLE_ON_NONE: "no member can read it, and they differ",
    DifferenceKind.READABLE_ON_ALL: "every member can read it, and they differ",
    DifferenceKind.UNREADABLE_NOW: "the earlier value could be read, and the later one cannot",
    DifferenceKind.SAME_REVISION_OTHER_BYTES: "other bytes at the same mod_revision: no write did that",
    DifferenceKind.REMOVED: "no longer there",
    DifferenceKind.CHANGED: "written since",
    DifferenceKind.ADDED: "new",
}


class ComparedCopy(msgspec.Struct, kw_only=True):
    """One of what was compared; ``label`` is a member's name and id, ``earlier`` or ``later``.

    ``member_id`` is lower-case hex; ``unreadable_here`` says of how many keys its copy cannot be read, or is not there,
    where that of another one can.
    """

    label: str
    type: str
    member_id: str = ""
    endpoint: str = ""
    path: str = ""
    revision: int = 0
    compared: bool = True
    reason: str = ""
    unreadable_here: int = 0


class CopyOfKey(msgspec.Struct, frozen=True, kw_only=True):
    """State of a key in one copy: ``present``, ``absent``, or ``unknown`` where it could not be read whole.

    ``lease`` is lower-case hex, or null; ``value_sha256`` is ``sha256:<hex>``, "" where it is not present.
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
    change: DifferenceKind
    copies: tuple[CopyOfKey, ...]


def copy_of_key(label: str, found: Examination | None, *, known: bool) -> CopyOfKey:
    """Return what is published of a copy; None is one that is not there, as far as is known."""
    if found is None:
        return CopyOfKey(label=label, state="absent" if known else "unknown")
    stored, verdict = found.stored, found.verdict
    return CopyOfKey(
        label=label,
        state="present",
        mod_revision=stored.mod_revision,
        create_revision=stored.create_revision,
        version=stored.version,
        lease=shown_lease(stored.lease),
        value_size=len(stored.value),
        value_sha256=digest_of(stored.value),
        outcome=verdict.outcome.value,
        cause=verdict.cause.value if verdict.cause is not None else None,
    )


def key_difference(one: Examination, change: DifferenceKind, copies: Sequence[CopyOfKey]) -> KeyDifference:
    """Return what is published of a key that differs, of which this is any examined copy."""
    key, directory = one.stored.key, one.directory
    return KeyDifference(
        key=display(key),
        key_base64=key_base64(key),
        group=directory.group,
        resource=directory.resource,
        namespace=one.namespace,
        name=one.name,
        change=change,
        copies=tuple(copies),
    )


class ComparisonReport(PublishedReport, frozen=True, kw_only=True):
    """What is not the same on all members of an etcd, or at two points in time.

    ``mode`` is ``members``, or ``sources``: then ``copies`` are the earlier one and the later one. ``unknown`` keys
    could not be compared, since a copy could not be read whole. ``differences`` come worst first, then by key.
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
            (self.changes[change], change, _MEANINGS[change])
            for change in DifferenceKind
            if self.changes.get(change)
        ]
        first = islice(self.differences, CAP)
        keys = [(one.change, "; ".join(map(_told, one.copies)), one.key) for one in first]
        return Document(
            status=self._status(),
            about=about(
                self.tool,
                self.generated_at,
                ("more", ToWide("-o wide lists the keys") if self.differing else ""),
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
        keys, members = counted(self.keys, "key"), counted(self._asked, "member")
        what, lost = f"{self.differing} of {keys} differ", self.changes.get(DifferenceKind.UNREADABLE_NOW, 0)
        if self.differing and self._of_members:
            told = f"MEMBERS DIFFER: {what} on {members}"
        elif lost:
            told = f"UNREADABLE NOW: {counted(lost, 'key')} could be read in the earlier one; {what}"
        elif self.differing:
            told = f"DIFFERENT: {what}; none became unreadable"
        elif not self.complete:
            told = f"COULD NOT BE TOLD: no difference in {keys} was seen"
        elif len(self.copies) == 1:
            told = "There is one member: nothing to compare"
        elif self._of_members:
            told = f"MEMBERS AGREE on {keys} at revision {self.copies[0].revision}: {members} compared"
        else:
            told = f"NO DIFFERENCE in {keys}"
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


def member_advice(first: Mapping[DifferenceKind, bytes], copies: Sequence[ComparedCopy]) -> list[Remedy]:
    """Return what to do where members differ: save every copy, the best one first, and decide by the runbook.

    No member is named for replacement: one that missed a write looks the same as one that alone has it.
    """
    if not first:
        return []
    warning = "Change nothing yet, and restart no member: a deletion could remove the last good copy."
    advice = [Remedy(warning, NO_COMMAND, "etcdfix refuses to change a key that differs on members")]
    for copy in sorted((copy for copy in copies if copy.compared), key=lambda copy: copy.unreadable_here):
        words = ("etcdctl", "--endpoints", copy.endpoint, Part.CREDENTIALS, "snapshot", "save")
        save = Command((*words, f"member-{copy.member_id}.db"), writes=True)
        lacks = f", which lacks or cannot read {copy.unreadable_here} that another one can"
        advice.append(
            Remedy(f"Save a snapshot of {copy.label}{lacks if copy.unreadable_here else ''}.", save)
        )
    if none := first.get(DifferenceKind.READABLE_ON_NONE):
        advice.append(Remedy("Some keys can be read on no member: find out why.", scan(key_word(none))))
    note = (
        "docs/runbooks/members-disagree.md: look at the mod_revision of each copy before a member is replaced"
    )
    return [*advice, Remedy("Then go on as the runbook says.", NO_COMMAND, note)]


def time_advice(first: Mapping[DifferenceKind, bytes], earlier: str, *, live: bool) -> list[Remedy]:
    """Return what to do about values that cannot be read any more, or were changed behind etcd's back."""
    advice = []
    if lost := first.get(DifferenceKind.UNREADABLE_NOW):
        get = Command(("etcdfix", "get", "--snapshot", earlier, Part.LAYOUT, Part.READING, key_word(lost)))
        why = "Find out why: most often the encryption configuration changed, and nothing is lost."
        advice = [
            Remedy(why, scan(key_word(lost))),
            Remedy("Keep the earlier snapshot: it holds what could be read.", get),
        ]
    if other := first.get(DifferenceKind.SAME_REVISION_OTHER_BYTES):
        what = "Bytes differ at one and the same revision: no write did that. A disk, a copy, or another history."
        advice.append(Remedy(what, compare(key_word(other)) if live else NO_COMMAND))
    return advice
