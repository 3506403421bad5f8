"""What a run of ``heal`` came to, as it is published."""

from __future__ import annotations

import msgspec

from etcdfix.report.model import FollowUp, PublishedReport, Refusal


class HealedObject(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one object that was to be healed.

    Attributes:
        key: Etcd key as it is shown.
        key_base64: The key itself, where it is not plain text; else null.
        uid: Of the object.
        uid_from: What says the uid, where no API server gave the object from memory any more: a saved copy, an earlier
            revision in etcd, a backup; "" where an API server said it.
        result: ``healed``; ``dry-run`` where it would be asked for; ``not-applied``, ``applied-or-gone``, ``unknown``
            and ``anomaly`` as with every change.
        detail: One sentence.
        server: The API server that wrote it; "" where none is known to have.
        changed_fields: Paths of the fields that admission changed; nothing of their values.
        saved_file: Where the server's answer was kept, beside what was rescued; "" where it was not.
        revision: mod_revision of what was written; null where unknown, or where nothing was.
        backups: Paths of the backups of the unreadable bytes.
        value_sha256s: Digests of the values that these hold.
        warnings: One sentence each.
    """

    key: str
    key_base64: str | None
    uid: str
    uid_from: str = ""
    result: str
    detail: str = ""
    server: str = ""
    changed_fields: list[str] = []
    saved_file: str = ""
    revision: int | None = None
    backups: list[str] = []
    value_sha256s: list[str] = []
    warnings: list[str] = []


class LeftAloneKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key of the report that is not healed.

    Attributes:
        key: Etcd key as it is shown.
        key_base64: The key itself, where it is not plain text; else null.
        rule: In one word; ``readable`` where nothing needs to be done.
        why: One sentence.
        next_step: What to do instead, or "".
    """

    key: str
    key_base64: str | None
    rule: str
    why: str
    next_step: str


class HealReport(PublishedReport, frozen=True, kw_only=True):
    """What a run of ``heal`` came to.

    Attributes:
        dry_run: No API server was asked to write anything.
        objects: Those that were dealt with, in that order; what is healed stays healed where the run stopped later.
        left_alone: Keys that were named and need something else, or nothing.
        to_heal: How many were to be healed, without those that somebody else healed meanwhile; null where it did not
            come that far.
        refusal: Why the run stopped, or did not begin; null where it came to its end.
        audit_log: Path; null where no record was made.
        audit_log_head: For ``--expect-head``; null where the last outcome could not be recorded.
        follow_ups: Commands for afterwards.
        exit_code: Of the command.
    """

    kind: str = "HealReport"
    dry_run: bool
    objects: list[HealedObject]
    left_alone: list[LeftAloneKey]
    to_heal: int | None
    refusal: Refusal | None = None
    audit_log: str | None = None
    audit_log_head: str | None = None
    follow_ups: list[FollowUp] = msgspec.field(default_factory=list)
    exit_code: int
