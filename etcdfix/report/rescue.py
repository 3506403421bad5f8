"""The published shape of what a rescue came to (``etcdfix/v1``), and its document."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from typing import ClassVar, Final

import msgspec

from etcdfix.copies.rescued import INDEX_NAME
from etcdfix.model.model import GroupResource
from etcdfix.report.document import (
    Cell,
    Column,
    Document,
    Kind,
    Prose,
    State,
    Status,
    Steps,
    Table,
    why_incomplete,
)
from etcdfix.report.model import PublishedReport, Remedy, ReportConfiguration, about
from etcdfix.text.words import counted


class Rescued(StrEnum):
    """What became of one object."""

    SAVED = "saved"
    """By this run, or by an earlier one."""
    READABLE = "readable"
    """An API server reads it from etcd: it was written anew meanwhile, and needs no rescue."""
    NOT_HELD = "not-held"
    """No server has it in memory."""
    REFUSED = "refused"
    """A server would not give it to this user, or gave something else."""
    NOT_ASKED = "not-asked"
    """No server could be asked to the end; it may still be held."""


class RescuedObject(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One object of a rescue.

    Attributes:
        key: Etcd key, as far as it is text.
        key_base64: The same, where it is not plain UTF-8; then this counts.
        group: API group, "" for the core group.
        namespace: "" for an object without one.
        state: What became of it.
        mod_revision: Of its etcd key; left out where nothing says it.
        resource_version: Of what is saved; with equal mod_revision, it is the object that the unreadable value holds.
        older: What is saved lacks the last write.
        file: Name of the file in the directory; left out where nothing is saved.
        detail: Why it is not saved, by server; left out where it is.
    """

    key: str
    key_base64: str | None = None
    group: str
    resource: str
    namespace: str
    name: str
    state: Rescued
    mod_revision: int = 0
    resource_version: str = ""
    older: bool = False
    file: str = ""
    sha256: str = ""
    server: str = ""
    detail: str = ""

    @property
    def group_resource(self) -> str:
        """Its resource and group, as kubectl writes it."""
        return str(GroupResource(self.group, self.resource))

    def lacks(self) -> str:
        """Return what is missing of it, in words; "" for nothing."""
        if self.state not in {Rescued.SAVED, Rescued.READABLE}:
            return f"{self.state}: {self.detail}" if self.detail else self.state.value
        return "saved without its last write, in an older state than etcd has" if self.older else ""


class RescueServer(msgspec.Struct, frozen=True, kw_only=True):
    """One API server.

    Attributes:
        detail: Why it could not be asked, or not to the end, and which kinds it has lost from its memory.
    """

    server: str
    asked: bool
    requests: int = 0
    given: int = 0
    detail: str = ""


class RescueReport(PublishedReport, frozen=True, kw_only=True):
    """What was saved, and what was not.

    Attributes:
        report: The report that named the objects, and its digest; null where none did.
        kube_system_uid: Of the API servers' cluster; null where it cannot be read.
        next: What to do next, in this order.
        complete: Everything is saved as etcd has it, or needs no rescue.
    """

    ROWS: ClassVar[str] = "objects"

    kind: str = "RescueReport"
    report: ReportConfiguration | None
    kube_system_uid: str | None
    directory: str
    audit_log: str
    servers: list[RescueServer]
    objects: list[RescuedObject]
    next: list[Remedy] = msgspec.field(default_factory=list)
    warnings: list[str]
    complete: bool
    incomplete_reasons: list[str]
    finished_at: str

    def document(self) -> Document:
        """Return how much is saved, what to do next, and what is missing, the same words in one row."""
        saved = sum(one.state is Rescued.SAVED for one in self.objects)
        needless = sum(one.state is Rescued.READABLE for one in self.objects)
        wanted = counted(len(self.objects) - needless, "unreadable object")
        lacking: dict[str, list[str]] = {}
        for one in self.objects:
            if one.lacks():
                lacking.setdefault(one.lacks(), []).append(one.key)
        rows = sorted(((len(keys), what, keys[0]) for what, keys in lacking.items()), reverse=True)
        return Document(
            status=Status(
                State.DONE if self.complete else State.INCOMPLETE,
                f"Saved {saved} of {wanted}",
            ),
            about=about(
                self.tool,
                self.finished_at,
                ("cluster", f"kube-system uid {self.kube_system_uid or 'unknown'}"),
                ("index", f"index {self.directory}/{INDEX_NAME}"),
            ),
            stakes=[
                "Restart no API server and delete none of these objects: either one ends what servers still hold.",
                "The files hold the contents unmasked.",
            ],
            next=self.next[0] if self.next else None,
            sections=[
                Table(columns=_KINDS, rows=self._by_kind(), noun="kind", brief=5),
                Table(
                    title="What is missing",
                    columns=_LACKING,
                    rows=rows,
                    noun="reason",
                    brief=3,
                    counted=0,
                    sum=sum(row[0] for row in rows),
                ),
                Steps(title="Then", steps=self.next[1:]),
                Prose(title="Warnings", paragraphs=self.warnings, wide=True),
                why_incomplete(self.incomplete_reasons),
            ],
        )

    def _by_kind(self) -> list[tuple[Cell, ...]]:
        kinds: dict[str, Counter[str]] = {}
        for one in self.objects:
            count = kinds.setdefault(one.group_resource, Counter())
            count[one.state] += 1
            count["older"] += one.older
        states = [*Rescued, "older"]
        return [
            (name, sum(count[state] for state in Rescued), *(count[state] for state in states))
            for name, count in kinds.items()
        ]


_KINDS: Final = (
    Column("KIND"),
    Column("OBJECTS", Kind.NUMBER),
    *(Column(state.replace("-", " ").upper(), Kind.NUMBER) for state in Rescued),
    Column("OLDER", Kind.NUMBER),
)
_LACKING: Final = (Column("OBJECTS", Kind.NUMBER), Column("WHY", folds=True), Column("EXAMPLE", Kind.KEY))
