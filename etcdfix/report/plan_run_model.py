"""The published shape of what a run over a plan came to (``etcdfix/v1``, kind ``PlanRunReport``)."""

from __future__ import annotations

import msgspec

from etcdfix.report.model import FollowUp, PublishedReport, Refusal


class RunObject(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one object.

    Attributes:
        order: Of its entry in the plan.
        key: Etcd key as it is shown.
        key_base64: The key itself, where it is not plain text; else null.
        decision: ``delete``, ``restore`` or ``repair``.
        result: ``deleted``, ``restored`` or ``repaired``; ``dry-run`` where it would be; ``not-applied``,
            ``applied-or-gone``, ``unknown`` and ``anomaly`` as with every change.
        detail: One sentence, or "".
        revision: Of etcd after it; null where unknown, or where nothing was changed.
        backups: Paths of the backups.
        value_sha256s: Digests of the values that these hold.
        warnings: One sentence each.
    """

    order: int
    key: str
    key_base64: str | None
    decision: str
    result: str
    detail: str = ""
    revision: int | None = None
    backups: list[str] = []
    value_sha256s: list[str] = []
    warnings: list[str] = []


class PlanRunReport(PublishedReport, frozen=True, kw_only=True):
    """What a run over a plan came to.

    Attributes:
        dry_run: Nothing was to be changed.
        plan: Path of the plan.
        plan_sha256: Digest of its contents and decisions, for ``--expect-plan``; "" where it did not come that far.
        to_delete: How many objects this run was to delete.
        to_restore: How many it was to put back.
        to_repair: How many it was to repair.
        protected: How many of all these are protected.
        objects: Those that were dealt with in this run, in that order.
        done_before: How many earlier runs dealt with; null where it did not come that far, as with the next two.
        left_alone: To how many nothing is done, as the plan or ``--leave-out`` says.
        left: How many are still to be dealt with.
        stopped_at: Etcd key at which the run stopped, as it is shown; null where it came to its end, or was ended after
            one key and before the next.
        stopped_at_base64: The key itself, where it is not plain text.
        refusal: Why the run stopped, or did not begin; null where nothing was refused.
        audit_log: Path; null where no record was made.
        audit_log_head: For ``--expect-head``; null where the last outcome could not be recorded.
        follow_ups: Commands for afterwards.
        exit_code: Of the command.
    """

    kind: str = "PlanRunReport"
    dry_run: bool
    plan: str
    plan_sha256: str = ""
    to_delete: int = 0
    to_restore: int = 0
    to_repair: int = 0
    protected: int = 0
    objects: list[RunObject]
    done_before: int | None = None
    left_alone: int | None = None
    left: int | None = None
    stopped_at: str | None = None
    stopped_at_base64: str | None = None
    refusal: Refusal | None = None
    audit_log: str | None = None
    audit_log_head: str | None = None
    follow_ups: list[FollowUp] = msgspec.field(default_factory=list)
    exit_code: int
