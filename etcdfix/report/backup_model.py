"""What is published of backups: what there is, whether it is whole, and what was removed."""

from __future__ import annotations

import msgspec

from etcdfix.report.model import PublishedReport, Refusal


class ListedBackup(msgspec.Struct, frozen=True, kw_only=True):
    """One backup file.

    Attributes:
        path: Where it is.
        key: Etcd key as it is shown.
        key_base64: The key itself, where it is not plain text; else null.
        resource: As far as the key tells, ``deployments.apps``; "" where it does not.
        secret: It is a Secret.
        stored_as_plaintext: The value is in the file as plaintext, as it was in etcd; else in its envelope.
        made_at: RFC 3339, UTC.
        command: Which command made it: ``delete``, ``restore``, ``reencrypt``, ``repair``; ``anomaly`` for what a
            transaction gave back although another value was expected.
        value_sha256: Digest of the stored bytes.
        value_size: Their number.
        mod_revision: Of the value.
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
    resource: str
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


class OtherFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that is no whole backup.

    Attributes:
        path: Where it is.
        kind: ``damaged``, ``unreadable``, ``link``, ``ours`` (a log, a head file, a plan, what a crash left) or
            ``foreign``.
        what: For people.
    """

    path: str
    kind: str
    what: str


class BackupList(PublishedReport, frozen=True, kw_only=True):
    """All files of some backup directories.

    Attributes:
        directories: Which.
        audit_log: With which log they were compared.
        audit_log_state: ``whole``, ``unfinished``, ``tampered``, ``missing`` or ``unreadable``.
        backups: Plaintext Secrets first, then other plaintext, then the rest; each oldest first.
        others: What else lies there.
        count: Of the backups.
        plaintext: How many of them hold their value as plaintext.
        plaintext_secrets: How many of these are Secrets.
        size: Bytes of the files of all backups.
        warnings: One sentence each.
    """

    kind: str = "BackupList"
    directories: list[str]
    audit_log: str
    audit_log_state: str
    backups: list[ListedBackup]
    others: list[OtherFile]
    count: int
    plaintext: int
    plaintext_secrets: int
    size: int
    warnings: list[str]


class BackupFinding(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is wrong, or that cannot be told.

    Attributes:
        reason: ``missing``, ``returned`` (pruned by the log, and there again), ``damaged``, ``exposed`` (owner, mode,
            names), ``unsafe-directory``, ``unlisted``, ``link``, ``log``; of what cannot be told: ``another-log``,
            ``unconfirmed``, ``unreadable``, ``elsewhere`` (in a directory that was not named), ``copy``, ``log``.
        path: Of the file; null where it is about the log.
        intent: Sequence, null for none.
        message: For people.
    """

    reason: str
    path: str | None
    intent: int | None
    message: str


class BackupVerification(PublishedReport, frozen=True, kw_only=True):
    """Backups compared with themselves and with their log.

    Attributes:
        directories: Which.
        audit_log: Which log.
        state: ``whole``; ``tampered`` where something is wrong or missing; ``unfinished`` where something cannot be
            told.
        backups: How many files were compared.
        pruned: How many files the log calls pruned.
        findings: What is wrong.
        doubts: What cannot be told.
        head: Of the log, for ``--expect-head``.
        warnings: One sentence each.
    """

    kind: str = "BackupVerification"
    directories: list[str]
    audit_log: str
    state: str
    backups: int
    pruned: int
    findings: list[BackupFinding]
    doubts: list[BackupFinding]
    head: str
    warnings: list[str]


class PrunedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A backup that was removed, or would be.

    Attributes:
        paths: Its files.
        removed: Those of them that are gone now; empty in a dry run.
        key: Etcd key as it is shown.
        key_base64: The key itself, where it is not plain text; else null.
        command: Which command made it.
        made_at: RFC 3339, UTC.
        outcome: What became of that change, by the log.
        value_sha256: Digest of the stored bytes.
        intent: Sequence of the change in the log.
        record: Of the removal, ``SEQ:SHA256``; null in a dry run, and where it could not be recorded.
        problem: Why not all are gone, "" where they are.
    """

    paths: list[str]
    removed: list[str]
    key: str
    key_base64: str | None
    command: str
    made_at: str
    outcome: str
    value_sha256: str
    intent: int
    record: str | None
    problem: str


class KeptFile(msgspec.Struct, frozen=True, kw_only=True):
    """A backup that stays although it is old enough; ``rule`` says which rule keeps it, ``message`` why."""

    path: str
    rule: str
    message: str


class BackupPruning(PublishedReport, frozen=True, kw_only=True):
    """What became of a pruning.

    Attributes:
        directories: Which.
        audit_log: The log.
        before: Backups that were made earlier.
        dry_run: Nothing was to be removed.
        refusal: Why nothing was removed at all; null where something was, or would be, or nothing was old enough.
        pruned: What was removed, or would be.
        kept: What a rule keeps.
        younger: How many were not old enough.
        stopped: Why it ended before all were done, "" where it did not.
        audit_log_head: For ``--expect-head``; null in a dry run.
        warnings: One sentence each.
        exit_code: Of the command.
    """

    kind: str = "BackupPruning"
    directories: list[str]
    audit_log: str
    before: str
    dry_run: bool
    refusal: Refusal | None = None
    pruned: list[PrunedFile]
    kept: list[KeptFile]
    younger: int
    stopped: str
    audit_log_head: str | None
    warnings: list[str]
    exit_code: int
