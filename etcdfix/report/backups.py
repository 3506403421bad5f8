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
_STATES: Final = {
    "whole": (State.OK, "whole"),
    "tampered": (State.FINDINGS, "SOMETHING IS WRONG OR MISSING"),
    "unfinished": (State.INCOMPLETE, "nothing is wrong, but etcdfix cannot check everything"),
}


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
        reason: ``missing``, ``returned`` (pruned by the log, and there again), ``damaged``, ``exposed`` (owner, mode,
            names), ``unsafe-directory``, ``unlisted``, ``log``; of what cannot be told: ``another-log``,
            ``unconfirmed``, ``unreadable``, ``elsewhere`` (in a directory that was not named), ``missing``, ``log``.
        path: Of the file; null where it is about the log.
        intent: Sequence, null for none.
    """

    reason: str
    message: str
    path: str | None = None
    intent: int | None = None


class BackupList(PublishedReport, frozen=True, kw_only=True):
    """All files of some backup directories, compared with themselves and with their log.

    Attributes:
        state: ``whole``; ``tampered`` where something is wrong or missing; ``unfinished`` where something cannot be
            told.
        audit_log_head: Its last record, for ``--expect-head``; null where it cannot be read.
        backups: Plaintext Secrets first, then other plaintext, then the rest; each oldest first.
        findings: What is wrong or missing.
        doubts: What cannot be told.
        pruned: How many files the log calls pruned.
        size: Bytes of the files of all backups.
    """

    ROWS: ClassVar[str] = "backups"

    kind: str = "BackupList"
    state: str
    directories: list[str]
    audit_log: str
    audit_log_head: str | None
    backups: list[ListedBackup]
    others: list[OtherFile]
    findings: list[BackupFinding]
    doubts: list[BackupFinding]
    pruned: int
    size: int

    @property
    def exit_code(self) -> int:
        """0 where all is whole, 1 where something is wrong or missing, 3 where something cannot be told."""
        return 1 if self.findings else 3 if self.doubts else 0

    def document(self) -> Document:
        """Return what is wrong, what cannot be told, the backups, and what else lies beside them."""
        state, words = _STATES[self.state]
        number = (
            f"{counted(len(self.backups), 'backup')}, {self.size} bytes" if self.backups else "no backups"
        )
        compared = f"{self.audit_log}, head {self.audit_log_head or 'unknown'}"
        pruned = f", {counted(self.pruned, 'file')} pruned according to it" if self.pruned else ""
        secrets = sum(one.secret and one.stored_as_plaintext for one in self.backups)
        told = f"PLAINTEXT SECRETS: {secrets}. Whoever can read these files has what is in them."
        found = [("WRONG", one.reason, one.message) for one in self.findings]
        found += [("unknown", one.reason, one.message) for one in self.doubts]
        others = [(other.kind, other.what, other.path) for other in self.others]
        return Document(
            status=Status(state, f"{words}, {number}: {', '.join(self.directories)}"),
            about=Facts(facts=[("audit log", f"compared with {compared}{pruned}")]),
            stakes=[told] if secrets else [],
            next=self._next(),
            sections=[
                Table(columns=_FOUND, rows=found, noun="finding", brief=_BRIEF),
                Table(columns=_LISTED, rows=list(map(_row, self.backups)), noun="backup", brief=_BRIEF),
                Table(title="Other files", columns=_OTHERS, rows=others, noun="file", brief=_BRIEF // 2),
            ],
        )

    def _next(self) -> Step | None:
        if not any(one.outcome not in {None, "open"} for one in self.backups):
            return None
        places = [word for path in self.directories for word in ("--backup-dir", path)]
        words = ("--audit-log", self.audit_log, "--older-than", "90d", "--reason", "TEXT", "--dry-run")
        return Step("Remove old backups", Command(("etcdfix", "backup", "prune", *places, *words)))


_FOUND: Final = (Column("STATE"), Column("REASON"), Column("WHAT", folds=True))
_LISTED: Final = (
    Column("HOLDS"),
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
_OTHERS: Final = (Column("WHAT"), Column("WHY", folds=True), Column("FILE", kind=Kind.KEY))


def _row(backup: ListedBackup) -> tuple[str | int, ...]:
    holds = "plaintext" if backup.stored_as_plaintext else "enveloped"
    if backup.secret:
        holds = "PLAINTEXT SECRET" if backup.stored_as_plaintext else "enveloped Secret"
    return (
        holds, f"{backup.made_at[:19]}Z", backup.command, backup.outcome or "-", backup.log, backup.intent,
        backup.value_size, backup.cluster_uid or "unknown", backup.value_sha256, backup.path, backup.key,
    )  # fmt: skip


class PrunedBackup(msgspec.Struct, frozen=True, kw_only=True):
    """A backup that was removed, or would be.

    Attributes:
        content_sha256: What the log calls it by.
        paths: Its files, as the log has them.
        removed: Those of them that are gone now; empty in a dry run.
        key_base64: The key itself, where it is not plain text; else null.
        made_at: RFC 3339, UTC.
        outcome: What became of that change, by the log.
        intent: Sequence of the change in the log.
        record: Of the removal, ``SEQ:SHA256``; null in a dry run, and where it could not be recorded.
        problem: Why not all are gone, "" where they are.
    """

    content_sha256: str
    paths: list[str]
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
        problems = [(one.problem, one.key) for one in self.pruned if one.problem]
        kept = Counter((one.rule, one.message) for one in self.kept)
        head = self.audit_log_head
        record = [("Audit log", self.audit_log), ("Head", head)] if head is not None else []
        stopped = f"STOPPED before all were done: {self.stopped}"
        return Document(
            status=status,
            stakes=[*([stopped] if self.stopped else []), *self.warnings],
            sections=[
                Table(columns=_PRUNED, rows=list(map(self._row, self.pruned)), noun="backup", brief=24),
                Table(title="Not finished", columns=_PROBLEMS, rows=problems, noun="problem"),
                Table(
                    title="Kept, although old enough",
                    columns=_KEPT,
                    rows=[(number, *why) for why, number in kept.most_common()],
                    noun="rule",
                ),
                Facts(facts=[("Not old enough", str(self.younger) if self.younger else ""), *record]),
            ],
        )

    def _row(self, one: PrunedBackup) -> tuple[str | int, ...]:
        stays = len(one.paths) - len(one.removed)
        state = "would go" if self.dry_run else f"{stays} of {len(one.paths)} STAY" if stays else "gone"
        return state, one.made_at, one.command, one.outcome, one.intent, one.key


_PRUNED: Final = (
    Column("STATE"),
    Column("MADE"),
    Column("COMMAND"),
    Column("OUTCOME"),
    Column("INTENT", kind=Kind.NUMBER),
    Column("ETCD KEY", kind=Kind.KEY),
)
_PROBLEMS: Final = (Column("PROBLEM", folds=True), Column("ETCD KEY", kind=Kind.KEY))
_KEPT: Final = (Column("FILES", kind=Kind.NUMBER), Column("RULE"), Column("WHY", folds=True))
