"""What is published of backups: what there is, whether it is whole, and what was removed."""

from __future__ import annotations

from collections import Counter
from typing import ClassVar, Final

import msgspec

from etcdfix.report.change import Refusal
from etcdfix.report.document import Column, Document, Facts, Kind, State, Status, Step, Table
from etcdfix.report.model import PublishedReport
from etcdfix.text.commands import Command
from etcdfix.text.words import counted

_BRIEF: Final = 12
_FOUND: Final = (Column("STATE"), Column("REASON"), Column("WHAT", folds=True))
_MADE: Final = (Column("MADE"), Column("COMMAND"), Column("OUTCOME"))
_KEY: Final = Column("ETCD KEY", kind=Kind.KEY)
_LISTED: Final = (
    Column("HOLDS"),
    *_MADE,
    Column("LOG"),
    Column("INTENT", kind=Kind.NUMBER),
    Column("SIZE", kind=Kind.NUMBER, wide=True),
    Column("CLUSTER", wide=True),
    Column("VALUE", wide=True),
    Column("FILE", wide=True),
    _KEY,
)
_OTHERS: Final = (Column("WHAT"), Column("WHY", folds=True), Column("FILE", kind=Kind.KEY))
_PRUNED: Final = (Column("STATE"), *_MADE, Column("INTENT", kind=Kind.NUMBER), _KEY)
_PROBLEMS: Final = (Column("PROBLEM", folds=True), _KEY)
_KEPT: Final = (Column("FILES", kind=Kind.NUMBER), Column("RULE"), Column("WHY", folds=True))


class ListedBackup(msgspec.Struct, frozen=True, kw_only=True):
    """One backup file.

    Attributes:
        key_base64: The key itself, where it is not plain text; else null.
        stored_as_plaintext: The value is in the file as plaintext, as it was in etcd; else in its envelope.
        made_at: RFC 3339, UTC.
        command: Which command made it: ``delete``, ``fix``, ``undo``; ``anomaly`` for what a
            transaction gave back although another value was expected.
        value_sha256: Digest of the stored bytes.
        cluster_uid: uid of namespace kube-system; null where unknown.
        audit_log: The log that it says it belongs to.
        intent: Sequence of its intent there.
        log: What the log that was looked at says: ``listed``, ``unlisted``, ``another-log``, ``unconfirmed`` (its
            marker stands beside it), or ``no-log``.
        outcome: What became of the change, by that log; ``open`` while nobody knows; null where it does not say.
    """

    path: str
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

    def row(self) -> tuple[str | int, ...]:
        """Return it as a row of the table."""
        holds = "plaintext" if self.stored_as_plaintext else "enveloped"
        if self.secret:
            holds = "PLAINTEXT SECRET" if self.stored_as_plaintext else "enveloped Secret"
        return (
            holds, f"{self.made_at[:19]}Z", self.command, self.outcome or "-", self.log, self.intent,
            self.value_size, self.cluster_uid or "unknown", self.value_sha256, self.path, self.key,
        )  # fmt: skip


class OtherFile(msgspec.Struct, frozen=True):
    """A file that is no whole backup.

    Attributes:
        kind: ``damaged``, ``unreadable``, ``ours`` (a log, a head file, a plan, what a crash left) or ``foreign``.
    """

    path: str
    kind: str
    what: str


class BackupFinding(msgspec.Struct, frozen=True):
    """Something that is wrong, or that cannot be told.

    Attributes:
        wrong: False where it cannot be told.
        reason: ``missing``, ``damaged``, ``exposed`` (owner, mode, names), ``unsafe-directory``, ``unlisted``, ``log``,
            ``another-log``, ``unconfirmed``, ``unreadable``, ``elsewhere`` (in a directory that was not named), or
            ``pruned`` (by the log, and still there).
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
    backups: list[ListedBackup]
    others: list[OtherFile]
    findings: list[BackupFinding]
    pruned: int
    size: int

    @property
    def exit_code(self) -> int:
        """0 where all is whole, 1 where something is wrong or missing, 3 where something cannot be told."""
        return 1 if any(one.wrong for one in self.findings) else 3 if self.findings else 0

    def document(self) -> Document:
        """Return what is wrong, what cannot be told, the backups, and what else lies beside them."""
        state, words = {
            0: (State.OK, "whole"),
            1: (State.FINDINGS, "SOMETHING IS WRONG OR MISSING"),
            3: (State.INCOMPLETE, "nothing is wrong, but etcdfix cannot check everything"),
        }[self.exit_code]
        number = (
            f"{counted(len(self.backups), 'backup')}, {self.size} bytes" if self.backups else "no backups"
        )
        compared = f"{self.audit_log}, head {self.audit_log_head or 'unknown'}"
        pruned = f", {counted(self.pruned, 'file')} pruned according to it" if self.pruned else ""
        secrets = sum(one.secret and one.stored_as_plaintext for one in self.backups)
        told = f"PLAINTEXT SECRETS: {secrets}. Whoever can read these files has what is in them."
        found = [("WRONG" if one.wrong else "unknown", one.reason, one.message) for one in self.findings]
        others = [(other.kind, other.what, other.path) for other in self.others]
        places = [word for path in self.directories for word in ("--backup-dir", path)]
        prune = ("--audit-log", self.audit_log, "--older-than", "90d", "--reason", "TEXT", "--dry-run")
        closed = any(one.outcome not in {None, "open"} for one in self.backups)
        return Document(
            status=Status(state, f"{words}, {number}: {', '.join(self.directories)}"),
            about=Facts(facts=[("audit log", f"compared with {compared}{pruned}")]),
            stakes=[told] if secrets else [],
            next=Step("Remove old backups", Command(("etcdfix", "log", "prune", *places, *prune)))
            if closed
            else None,
            sections=[
                Table(columns=_FOUND, rows=found, noun="finding", brief=_BRIEF),
                Table(columns=_LISTED, rows=[one.row() for one in self.backups], noun="backup", brief=_BRIEF),
                Table(title="Other files", columns=_OTHERS, rows=others, noun="file", brief=_BRIEF // 2),
            ],
        )


class PrunedBackup(msgspec.Struct, kw_only=True):
    """A backup that was removed, or would be.

    Attributes:
        content_sha256: What the log calls it by.
        paths: Its files, as the log has them.
        removed: Those of them that are gone now; empty in a dry run.
        key_base64: The key itself, where it is not plain text; else null.
        made_at: RFC 3339, UTC.
        outcome: What became of that change, by the log.
        intent: Sequence of the change in the log.
        record: Of the removal, ``SEQ:SHA256``; null in a dry run.
        problem: Why not all are gone, "" where they are.
    """

    content_sha256: str
    paths: list[str] = msgspec.field(default_factory=list)
    removed: list[str] = msgspec.field(default_factory=list)
    key: str
    key_base64: str | None
    command: str
    made_at: str
    outcome: str
    intent: int
    record: str | None = None
    problem: str = ""


class KeptBackup(msgspec.Struct, frozen=True):
    """A backup that stays although it is old enough; ``rule`` says which rule keeps it, ``message`` why."""

    path: str
    rule: str
    message: str


class BackupPruning(PublishedReport, frozen=True, kw_only=True):
    """What became of a pruning, or would.

    Attributes:
        dry_run: Nothing was removed, as was asked for; in the preview too.
        refusal: Why nothing was removed at all; null where something was, or would be, or nothing was old enough.
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
    pruned: list[PrunedBackup] = msgspec.field(default_factory=list)
    kept: list[KeptBackup] = msgspec.field(default_factory=list)
    younger: int = 0
    stopped: str = ""
    audit_log_head: str | None = None
    warnings: list[str] = msgspec.field(default_factory=list)
    exit_code: int = 0

    def document(self) -> Document:
        """Return how many backups were removed, and what stays and why."""
        if self.refusal is not None:
            return Document(status=Status(State.REFUSED, f"REFUSED: {self.refusal.message}"))
        if self.dry_run:
            would = f"{counted(len(self.pruned), 'backup')} would be removed, and with each the undo of its change."
            status = Status(State.WOULD_DO, f"{would} Nothing was removed.")
        else:
            gone = counted(sum(bool(one.removed) for one in self.pruned), "backup")
            status = Status(State.UNKNOWN if self.stopped else State.DONE, f"{gone} removed.")
        rows = []
        for one in self.pruned:
            stays = len(one.paths) - len(one.removed)
            state = "would go" if self.dry_run else f"{stays} of {len(one.paths)} STAY" if stays else "gone"
            rows.append((state, one.made_at, one.command, one.outcome, one.intent, one.key))
        problems = [(one.problem, one.key) for one in self.pruned if one.problem]
        kept = Counter((one.rule, one.message) for one in self.kept).most_common()
        younger = [("Not old enough", str(self.younger) if self.younger else "")]
        record = [("Audit log", self.audit_log), ("Head", self.audit_log_head or "")]
        return Document(
            status=status,
            stakes=[
                *([f"STOPPED before all were done: {self.stopped}"] if self.stopped else []),
                *self.warnings,
            ],
            sections=[
                Table(columns=_PRUNED, rows=rows, noun="backup", brief=24),
                Table(title="Not finished", columns=_PROBLEMS, rows=problems, noun="problem"),
                Table(
                    title="Kept, although old enough",
                    columns=_KEPT,
                    rows=[(number, *why) for why, number in kept],
                    noun="rule",
                ),
                Facts(facts=[*younger, *(record if self.audit_log_head else [])]),
            ],
        )
