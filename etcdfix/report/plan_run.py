"""The published shape of what a run over a plan came to (``etcdfix/v1``, kind ``PlanRunReport``)."""

from __future__ import annotations

from etcdfix.report.change import ChangedObject, RecordedReport
from etcdfix.report.document import Document


class RunObject(ChangedObject, frozen=True, kw_only=True):
    """What became of one object.

    Attributes:
        order: Of its entry in the plan.
        decision: ``fix`` or ``delete``.
    """

    order: int
    decision: str


class PlanRunReport(RecordedReport, frozen=True, kw_only=True):
    """What a run over a plan came to.

    Attributes:
        plan_sha256: Digest of its contents and decisions, for ``--expect-plan``; "" where it did not come that far.
        to_delete: How many objects this run was to delete.
        to_fix: How many it was to put back.
        protected: How many of all these are protected.
        done_before: How many earlier runs dealt with; null where it did not come that far, as with the next two.
        left_alone: To how many nothing is done, as the plan or ``--leave-out`` says.
        stopped_at: Etcd key at which the run stopped, as it is shown; null where it came to its end, or was ended after
            one key and before the next.
        stopped_at_base64: The key itself, where it is not plain text.
        leave_out: The option that leaves that key as it is; "" where it is done, or where the run did not stop.
    """

    kind: str = "PlanRunReport"
    plan: str
    plan_sha256: str = ""
    to_delete: int = 0
    to_fix: int = 0
    protected: int = 0
    objects: list[RunObject]
    done_before: int | None = None
    left_alone: int | None = None
    left: int | None = None
    stopped_at: str | None = None
    stopped_at_base64: str | None = None
    leave_out: str = ""

    def document(self) -> Document:
        """Return how many were dealt with, and where it stopped; each object was told when its turn came."""
        of = self.to_delete + self.to_fix
        left = of if self.left is None else self.left
        dealt = "Would deal" if self.dry_run else "Dealt"
        stakes = []
        if self.stopped_at is not None:
            stakes.append(f"Stopped at {self.stopped_at}.")
        if self.leave_out:
            stakes.append(f"To leave this key as it is, add {self.leave_out}")
        if left and self.objects and not self.dry_run:
            stakes.append(
                "What is done stays done, and stands in the audit log. The same command goes on from there."
            )
        return self.recorded(f"{dealt} with {of - left} of {of}; {left} left.", stakes=stakes)
