"""The published shapes of what is said of an audit log (``etcdfix/v1``); its records are Kubernetes' own events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final

import msgspec

from etcdfix.report.change import FollowUp
from etcdfix.report.document import Column, Document, Facts, Kind, Prose, State, Status, Step, Steps, Table
from etcdfix.report.model import PublishedReport
from etcdfix.text.commands import Command
from etcdfix.text.words import counted

_MOST_NUMBERS: Final = 20
_BRIEF: Final = 16
_RECORDS: Final = (
    Column("RECORD", kind=Kind.NUMBER),
    Column("TIME"),
    Column("TYPE"),
    Column("VERB"),
    Column("OUTCOME"),
    Column("WHO", wide=True),
    Column("WHY AND WHAT", folds=True, wide=True),
    Column("ETCD KEY", kind=Kind.KEY),
)
_FAULTS: Final = (Column("WRONG"), Column("RECORD", kind=Kind.NUMBER), Column("WHAT", folds=True))
_SETTLED: Final = (
    Column("INTENT", kind=Kind.NUMBER),
    Column("OUTCOME"),
    Column("WHAT", folds=True),
    Column("ETCD KEY", kind=Kind.KEY),
)
_STATES: Final = {
    "whole": (State.OK, "whole"),
    "tampered": (State.FINDINGS, "TAMPERED"),
    "unfinished": (State.INCOMPLETE, "whole, but unfinished"),
}


class EventList(msgspec.Struct, frozen=True, kw_only=True, rename={"api_version": "apiVersion"}):
    """The list of ``audit.k8s.io/v1`` in which all records stand."""

    ROWS: ClassVar[str] = "items"

    api_version: str = "audit.k8s.io/v1"
    kind: str = "EventList"
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)
    items: list[Any] = msgspec.field(default_factory=list)


class LogRecords(msgspec.Struct, frozen=True):
    """The newest records of a log, the newest first, as rows of a table; ``count`` is how many it has in all."""

    log: str
    count: int
    rows: list[tuple[str | int, ...]]

    def document(self) -> Document:
        """Return the records."""
        if not self.rows:
            return Document(status=Status(State.OK, f"no records: {self.log}"))
        records = Table(columns=_RECORDS, rows=self.rows, total=self.count, noun="older record", brief=_BRIEF)
        headline = f"{counted(self.count, 'record')}, the newest first: {self.log}"
        return Document(status=Status(State.OK, headline), sections=[records])


class LogFault(msgspec.Struct, frozen=True):
    """Something that is wrong with a log; ``record`` is a sequence (for ``malformed`` the line), 0 for the file."""

    kind: str
    record: int
    message: str


class LogVerification(PublishedReport, frozen=True, kw_only=True):
    """What verifying a log came to.

    Attributes:
        state: ``whole``, ``tampered``, or ``unfinished``: open intents, a torn last line, or no head file.
        records: Complete lines in the file.
        head: Its last record, ``SEQ:SHA256``; sequence 0 for an empty log.
        torn_size: Bytes of a write that was torn; 0 for none.
        open_intents: Sequences of intents without an outcome.
        compared_with: What remembers its records.
        warnings: What to know although nothing is wrong with it.
        next_step: How to go on without a head file; "" where it has one.
    """

    kind: str = "LogVerification"
    audit_log: str
    state: str
    records: int
    head: str
    torn_size: int
    head_missing: bool
    findings: list[LogFault]
    more_findings: int
    open_intents: list[int]
    compared_with: list[str]
    warnings: list[str]
    next_step: str = ""

    @property
    def exit_code(self) -> int:
        """0 for whole, 1 for tampered, 3 for unfinished."""
        return {"whole": 0, "tampered": 1}.get(self.state, 3)

    def document(self) -> Document:
        """Return the state, what it was compared with, and what is wrong."""
        state, word = _STATES[self.state]
        if self.state == "unfinished" and self.head_missing:
            word = "open"
        nothing = "nothing: no head file, and no head that was written down"
        facts = [("Head", self.head), ("Compared with", ", ".join(self.compared_with) or nothing)]
        step = Step(self.next_step) if self.next_step else None
        if self.open_intents:
            numbers = ", ".join(map(str, self.open_intents[:_MOST_NUMBERS]))
            more = ", …" if len(self.open_intents) > _MOST_NUMBERS else ""
            facts.append(("Open intents", f"{numbers}{more}: nobody knows what became of them"))
            settle = Command(("etcdfix", "log", "settle", self.audit_log))
            step = Step("Find out what became of the open intents", settle)
        if self.torn_size:
            cut = f"a crash cut off a write after {counted(self.torn_size, 'byte')}; the next writer keeps them aside"
            facts.append(("Last line", cut))
        rows = [(fault.kind, fault.record, fault.message) for fault in self.findings]
        total = len(rows) + self.more_findings
        return Document(
            status=Status(state, f"{word}, {counted(self.records, 'record')}: {self.audit_log}"),
            next=step,
            sections=[
                Facts(facts=facts),
                Table(columns=_FAULTS, rows=rows, total=total, noun="finding", brief=_BRIEF),
                Prose(paragraphs=self.warnings),
            ],
        )


class SettledIntent(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one open intent.

    Attributes:
        outcome: One word of the audit log; ``refused`` where nothing may be said here.
        header_revision: etcd's, when the key was read.
        record: Of the outcome, ``SEQ:SHA256``; null where none was made.
        next_step: What to do, in a sentence; "" for nothing.
    """

    sequence: int
    verb: str
    key: str
    key_base64: bytes
    backups: Sequence[str]
    outcome: str
    detail: str
    header_revision: int = 0
    record: str | None = None
    warnings: list[str] = msgspec.field(default_factory=list)
    next_step: str = ""
    follow_ups: list[FollowUp] = msgspec.field(default_factory=list)


class LogSettling(PublishedReport, frozen=True, kw_only=True):
    """What became of the open intents of a log."""

    kind: str = "LogSettling"
    audit_log: str
    dry_run: bool
    intents: list[SettledIntent]
    exit_code: int

    def document(self) -> Document:
        """Return each intent with what became of it, and the first thing to do next."""
        if not self.intents:
            return Document(status=Status(State.OK, "no open intents"))
        refused = sum(one.outcome == "refused" for one in self.intents)
        number = counted(len(self.intents) - refused, "intent")
        done = "would be settled" if self.dry_run else "settled"
        steps: list[Step] = []
        for one in self.intents:
            steps += [Step(one.next_step)] if one.next_step else []
            steps += [Step(follow_up.what, follow_up.command) for follow_up in one.follow_ups]
        rows = [
            (one.sequence, one.outcome, ". ".join([one.detail, *one.warnings]), one.key)
            for one in self.intents
        ]
        state = State.UNKNOWN if self.exit_code else State.WOULD_DO if self.dry_run else State.DONE
        return Document(
            status=Status(state, f"{number} {done}{f', {refused} refused' if refused else ''}"),
            next=steps[0] if steps else None,
            sections=[
                Table(columns=_SETTLED, rows=rows, noun="intent"),
                Facts(facts=[("Recorded as", one.record or "") for one in self.intents]),
                Steps(title="Then", steps=steps[1:]),
            ],
        )
