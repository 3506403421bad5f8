"""The published shapes of what is said of an audit log and of its backups; records are Kubernetes' own events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, ClassVar, Final

import msgspec

from etcdfix.report.change import FollowUp, Refusal
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
_FINDINGS: Final = (Column("STATE"), Column("REASON"), Column("WHAT", folds=True))
_BACKUPS: Final = (
    Column("MADE"),
    Column("COMMAND"),
    Column("OUTCOME"),
    Column("LOG"),
    Column("INTENT", kind=Kind.NUMBER),
    Column("SIZE", kind=Kind.NUMBER, wide=True),
    Column("CLUSTER", wide=True),
    Column("VALUE", wide=True),
    Column("FILE", wide=True),
    Column("ETCD KEY", kind=Kind.KEY),
)
_KEPT: Final = (Column("FILES", kind=Kind.NUMBER), Column("RULE"), Column("WHY", folds=True))
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
    items: Sequence[Any] = ()


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
        verify = Command(("etcdfix", "log", "verify", self.log))
        following = Step("Check that no record was changed or cut off", verify)
        return Document(status=Status(State.OK, headline), next=following, sections=[records])


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
        facts = [
            ("Head", "" if self.head.endswith(":") else self.head),
            ("Compared with", ", ".join(self.compared_with) or nothing),
        ]
        step = Step(self.next_step) if self.next_step else None
        if self.open_intents:
            numbers = ", ".join(map(str, self.open_intents[:_MOST_NUMBERS]))
            more = ", …" if len(self.open_intents) > _MOST_NUMBERS else ""
            facts.append(("Open intents", f"{numbers}{more}: nobody knows what became of them"))
            if self.state != "tampered" and not self.head_missing:  # else nothing may be added to it
                settle = Command(("etcdfix", "log", "settle", self.audit_log))
                step = Step("Find out what became of the open intents", settle)
        if self.state == "tampered" and step is None:
            step = Step("keep it and its head file as they are, and begin a new one with --audit-log")
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
        outcome: One word of the audit log: ``not-applied``, ``applied-or-gone``, ``anomaly``, or what the change is
            called where the key holds what it put; ``unknown`` leaves it open: how the key stands, or what it holds,
            cannot be told now; ``refused`` where nothing may be said here.
        header_revision: etcd's, when the key was read, 0 for no answer; where the key holds exactly what the intent
            put, the revision of that, as the answer to the transaction would have said.
        other_etcd: Why the intent is of another etcd, a clause, where that was accepted; else "".
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
    other_etcd: str = ""
    warnings: list[str] = msgspec.field(default_factory=list)
    next_step: str = ""
    follow_ups: list[FollowUp] = msgspec.field(default_factory=list)

    @property
    def settled(self) -> bool:
        """Whether the intent is closed by it."""
        return self.outcome != "unknown"


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
        told = [". ".join([one.detail, *one.warnings]) for one in self.intents]
        rows = [
            (one.sequence, one.outcome, what, one.key) for one, what in zip(self.intents, told, strict=True)
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


_OPEN: Final = "PLAINTEXT SECRET"


class BackupRow(msgspec.Struct, kw_only=True):
    """One backup file, in a list and in a pruning.

    Attributes:
        content_sha256: What the log calls the backup by, of which this file may be one of several.
        key_base64: The key itself, where it is not plain text; else null.
        stored_as_plaintext: The value is in the file as plaintext, as it was in etcd; else in its envelope.
        made_at: RFC 3339, UTC.
        command: Which command made it: ``delete``, ``fix``, ``undo``; ``anomaly`` for what a
            transaction gave back although another value was expected.
        cluster_uid: uid of namespace kube-system; null where unknown.
        audit_log: The log that it says it belongs to; ``intent`` is the sequence of its intent there.
        log: What the log that was looked at says: ``listed``, ``unlisted``, ``another-log``, ``unconfirmed`` (its
            marker stands beside it), or ``no-log``.
        outcome: What became of the change, by that log; ``open`` while nobody knows; null where it does not say.
        record: Of the removal, ``SEQ:SHA256``; null where there is none.
        removed: The file is gone now.
    """

    path: str
    content_sha256: str
    key: str
    key_base64: str | None
    secret: bool
    stored_as_plaintext: bool
    made_at: str
    command: str
    value_sha256: str
    value_size: int
    mod_revision: int
    cluster_uid: str | None
    audit_log: str
    intent: int
    log: str
    outcome: str | None
    record: str | None = None
    removed: bool = False

    @property
    def holds(self) -> str:
        """What is in it, for a person."""
        if not self.value_size:
            return "nothing: 0 bytes"
        if self.secret:
            return _OPEN if self.stored_as_plaintext else "enveloped Secret"
        return "plaintext" if self.stored_as_plaintext else "enveloped"

    def row(self, first: str) -> tuple[str | int, ...]:
        """Return it as a row of the table, after the first cell."""
        return (
            first, f"{self.made_at[:19]}Z", self.command, self.outcome or "-", self.log, self.intent,
            self.value_size, self.cluster_uid or "unknown", self.value_sha256, self.path, self.key,
        )  # fmt: skip


class BackupFinding(msgspec.Struct, frozen=True):
    """What is said of a file that is wrong, cannot be told, or stays.

    Attributes:
        wrong: False where it cannot be told.
        reason: ``missing``, ``damaged``, ``exposed`` (owner, mode, names), ``unsafe-directory``, ``unlisted``, ``log``,
            ``another-log``, ``unconfirmed``, ``unreadable``, ``elsewhere`` (in a directory that was not named), or
            ``pruned`` (by the log, and still there); of what a pruning leaves the rule that keeps it, or
            ``not-removed``.
        path: Of the file; null where it is about the log.
        intent: Sequence, null for none.
    """

    wrong: bool
    reason: str
    message: str
    path: str | None = None
    intent: int | None = None


class BackupList(PublishedReport, frozen=True, kw_only=True):
    """All files of some backup directories, compared with themselves and with their log.

    Attributes:
        audit_log_head: Its last record, for ``--expect-head``; null where it cannot be read.
        backups: Plaintext Secrets first, then other plaintext, then the rest; each oldest first.
        findings: What is wrong or missing, then what cannot be told.
        pruned: How many files the log calls pruned.
        size: Bytes of the files of all backups.
    """

    ROWS: ClassVar[str] = "backups"

    kind: str = "BackupList"
    directories: list[str]
    audit_log: str
    audit_log_head: str | None
    backups: list[BackupRow]
    findings: list[BackupFinding]
    pruned: int
    size: int

    @property
    def exit_code(self) -> int:
        """0 where all is whole, 1 where something is wrong or missing, 3 where something cannot be told."""
        return 1 if any(one.wrong for one in self.findings) else 3 if self.findings else 0

    def document(self) -> Document:
        """Return what is wrong, what cannot be told, and the backups."""
        state, words = {
            0: (State.OK, "Everything is whole"),
            1: (State.FINDINGS, "SOMETHING IS WRONG OR MISSING"),
            3: (State.INCOMPLETE, "Nothing is wrong, but etcdfix cannot check everything"),
        }[self.exit_code]
        number = (
            f"{counted(len(self.backups), 'backup')}, {self.size} bytes" if self.backups else "no backups"
        )
        compared = f"{self.audit_log}, head {self.audit_log_head or 'unknown'}"
        pruned = f", {counted(self.pruned, 'file')} pruned according to it" if self.pruned else ""
        secrets = sum(one.holds == _OPEN for one in self.backups)
        told = f"PLAINTEXT SECRETS: {secrets}. Whoever can read these files has what is in them."
        found = [("WRONG" if one.wrong else "unknown", one.reason, one.message) for one in self.findings]
        places = [word for path in self.directories for word in ("--backup-dir", path)]
        prune = ("--audit-log", self.audit_log, "--older-than", "90d", "--reason", "TEXT", "--dry-run")
        step = None
        if self.findings:
            verify = Command(("etcdfix", "log", "verify", self.audit_log))
            step = Step("Check the audit log. Keep every file until you know what happened to it", verify)
        elif any(one.outcome not in {None, "open"} for one in self.backups):
            step = Step("Remove old backups", Command(("etcdfix", "log", "prune", *places, *prune)))
        return Document(
            status=Status(state, f"{words}: {number}: {', '.join(self.directories)}"),
            about=Facts(facts=[("audit log", f"compared with {compared}{pruned}")]),
            stakes=[told] if secrets else [],
            next=step,
            sections=[
                Table(columns=_FINDINGS, rows=found, noun="finding", brief=12),
                _backups("HOLDS", [one.row(one.holds) for one in self.backups]),
            ],
        )


def _backups(first: str, rows: list[tuple[str | int, ...]]) -> Table:
    return Table(columns=(Column(first), *_BACKUPS), rows=rows, noun="backup", brief=12)


class BackupPruning(PublishedReport, frozen=True, kw_only=True):
    """What became of a pruning, or would.

    Attributes:
        dry_run: Nothing was removed, as was asked for; in the preview too.
        refusal: Why nothing was removed at all; null where something was, or would be, or nothing was old enough.
        backups: What was to go, file by file.
        kept: What stays although it is old enough, and why.
        younger: How many were not old enough.
        stopped: Why it ended before all were done, "" where it did not.
        audit_log_head: For ``--expect-head``; null in a dry run.
    """

    kind: str = "BackupPruning"
    directories: list[str]
    audit_log: str
    before: str
    dry_run: bool
    refusal: Refusal | None = None
    backups: list[BackupRow] = msgspec.field(default_factory=list)
    kept: list[BackupFinding] = msgspec.field(default_factory=list)
    younger: int = 0
    stopped: str = ""
    audit_log_head: str | None = None
    warnings: list[str] = msgspec.field(default_factory=list)
    exit_code: int = 0

    @property
    def count(self) -> int:
        """How many backups go: one may be in several files."""
        return len({one.content_sha256 for one in self.backups if one.removed or self.dry_run})

    def document(self) -> Document:
        """Return how many backups were removed, and what stays and why."""
        if self.refusal is not None:
            return Document(status=Status(State.REFUSED, f"REFUSED: {self.refusal.message}"))
        number = counted(self.count, "backup")
        if self.dry_run:
            would = f"{number} would be removed, and with each the undo of its change. Nothing was removed."
            status = Status(State.WOULD_DO, would)
        else:
            status = Status(State.UNKNOWN if self.stopped else State.DONE, f"{number} removed.")
        states = ["would go" if self.dry_run else "gone" if one.removed else "STAYS" for one in self.backups]
        counts = Counter((one.reason, one.message) for one in self.kept).most_common()
        kept = [(number, *told) for told, number in counts]
        facts = [("Not old enough", str(self.younger) if self.younger else "")]
        if self.audit_log_head:
            facts += [("Audit log", self.audit_log), ("Head", self.audit_log_head)]
        stopped = [f"STOPPED before all were done: {self.stopped}"] if self.stopped else []
        return Document(
            status=status,
            stakes=[*stopped, *self.warnings],
            sections=[
                _backups("STATE", [one.row(state) for one, state in zip(self.backups, states, strict=True)]),
                Table(title="Kept, although old enough", columns=_KEPT, rows=kept, noun="rule"),
                Facts(facts=facts),
            ],
        )
