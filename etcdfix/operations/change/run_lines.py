"""What a run over a plan shows before, and tells afterwards: as lines for a person, and as published."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from etcdfix.errors import EtcdfixError
from etcdfix.operations.change.account import Account
from etcdfix.operations.change.preview import WARNINGS, cluster_lines, warning_lines
from etcdfix.operations.change.report import outcome_fields
from etcdfix.operations.change.run_plan import Ran, RunPreview
from etcdfix.operations.change.run_tasks import RunRequest, Task
from etcdfix.remediation.audit.record import unicode_text
from etcdfix.remediation.preflight.cluster import Cluster
from etcdfix.report.model import FollowUp
from etcdfix.report.plan_model import Decision
from etcdfix.report.plan_run_model import PlanRunReport, RunObject
from etcdfix.storagekey import display
from etcdfix.text.safetext import key_base64, key_word, quote_command, safe_text
from etcdfix.text.words import counted

_MOST_SHOWN: Final = 20
_MOST_KINDS: Final = 8


class RunAccount(Account[Ran], kw_only=True):
    """What a run over a plan has told so far.

    Attributes:
        plan_file: As named.
        shown: What was shown before anything was asked; None where it did not come that far.
        at: The object that is, or was last, looked at.
        request: What was asked for; None where it did not come that far.
    """

    plan_file: Path
    shown: RunPreview | None = None
    at: Task | None = None
    request: RunRequest | None = None

    @property
    def to_do(self) -> int:
        """How many objects the run was to deal with."""
        return len(self.shown.tasks) if self.shown is not None else 0

    @property
    def left(self) -> int:
        """How many of them are left to do, as far as the audit log says."""
        return self.to_do - sum(1 for each in self.objects if each.done)

    def _follow_ups(self) -> Iterator[FollowUp]:
        if self.dry_run and self.to_do and not self.left and self.shown and self.request:
            yield FollowUp("In a script", self.request.command(self.shown.digest))
        yield from super()._follow_ups()

    @property
    def stopped_at(self) -> Task | None:
        """The object at which it stopped; None where it came to its end, was ended after one, or did not begin."""
        last = self.objects[-1] if self.objects else None
        return None if last is not None and last.well and last.task is self.at else self.at


def run_preview_lines(cluster: Cluster, shown: RunPreview, *, dry_run: bool) -> Iterator[str]:
    """Yield what will be done to which objects."""
    plan = shown.plan
    yield f"Plan         of {plan.generated_at}, {counted(len(plan.entries), 'object')}"
    yield f"Digest       {shown.digest}, of the plan and its decisions"
    yield from cluster_lines(cluster, shown.identity)
    if shown.done:
        yield f"Done before  {counted(shown.done, 'object')}, by earlier runs"
    for decision in (Decision.DELETE, Decision.RESTORE, Decision.REPAIR):
        kinds = Counter(task.resource for task in shown.tasks if task.decision is decision)
        if kinds:
            each = ", ".join(f"{number} {kind}" for kind, number in kinds.most_common(_MOST_KINDS))
            more = ", …" if len(kinds) > _MOST_KINDS else ""
            yield f"To {decision:<9} {kinds.total()}: {each}{more}"
    for task in shown.protected[:_MOST_SHOWN]:
        yield f"Protected    {task.decision} {safe_text(display(task.key))}: {safe_text(task.protected)}"
    if len(shown.protected) > _MOST_SHOWN:
        yield f"             and {len(shown.protected) - _MOST_SHOWN} more"
    if shown.left_alone:
        waiting = f"; {shown.waiting} of them the plan could decide otherwise" if shown.waiting else ""
        yield f"Left alone   {counted(shown.left_alone, 'object')}, as the plan or --leave-out says{waiting}"
    yield from warning_lines(shown.warnings)
    yield ""
    if shown.count(Decision.DELETE) or shown.protected:
        yield from WARNINGS
    yield "Each object gets its own checks, backup, records and transaction. The run stops at the first surprise."
    if dry_run:
        yield "Dry run: everything is checked, nothing is changed in etcd or in the plan."


def ran_line(ran: Ran, number: int, of: int) -> Iterator[str]:
    """Yield what became of one object."""
    outcome, key = ran.outcome, safe_text(display(ran.task.key))
    if outcome.result is None:
        yield f"[{number}/{of}] DRY RUN: {ran.task.decision} of {key} would go ahead."
        if ran.may_repair:
            yield f"  {_may_repair(ran)}"
    elif ran.well:
        kept = f" Backup: {safe_text(outcome.backups[0])}" if outcome.backups else ""
        yield f"[{number}/{of}] {outcome.result.upper()} {key} at revision {outcome.revision}.{kept}"
    else:
        yield f"[{number}/{of}] {outcome.result.upper()}: {key}: {safe_text(outcome.detail)}"
        for path in outcome.backups:
            yield f"  Backup: {safe_text(path)}"
    if not ran.well:
        for warning in outcome.warnings:
            yield f"  Note: {safe_text(warning)}"


def _may_repair(ran: Ran) -> str:
    return f"May repair: {safe_text(ran.may_repair)}; nothing proves it, and etcdfix repair shows what comes of it"


def run_ending_lines(account: RunAccount) -> Iterator[str]:
    """Yield what the whole run came to."""
    if account.shown is not None:
        what = "Would deal" if account.dry_run else "Dealt"
        yield f"{what} with {account.to_do - account.left} of {account.to_do}; {account.left} left."
    stopped = account.stopped_at
    if stopped is not None:
        yield f"Stopped at {safe_text(display(stopped.key))}."
    if stopped is not None and not (
        account.objects and account.objects[-1].task is stopped and account.objects[-1].done
    ):
        yield f"To leave this key as it is, add {quote_command(['--leave-out', key_word(stopped.key)])}"
    if account.left and account.at is not None and not account.dry_run:
        yield "What is done stays done, and stands in the plan. The same command goes on from there."
    yield from account.last_lines()


def run_report(account: RunAccount, error: EtcdfixError | None, exit_code: int) -> PlanRunReport:
    """Return what a run came to, as it is published."""
    shown, stopped = account.shown, account.stopped_at
    return PlanRunReport(
        plan=unicode_text(str(account.plan_file)),
        plan_sha256=shown.digest if shown is not None else "",
        to_delete=shown.count(Decision.DELETE) if shown is not None else 0,
        to_restore=shown.count(Decision.RESTORE) if shown is not None else 0,
        to_repair=shown.count(Decision.REPAIR) if shown is not None else 0,
        protected=len(shown.protected) if shown is not None else 0,
        objects=[_object(each) for each in account.objects],
        done_before=shown.done if shown is not None else None,
        left_alone=shown.left_alone if shown is not None else None,
        left=account.left if shown is not None else None,
        stopped_at=display(stopped.key) if stopped is not None else None,
        stopped_at_base64=key_base64(stopped.key) if stopped is not None else None,
        **account.common_fields(error, exit_code),
    )


def _object(ran: Ran) -> RunObject:
    outcome, key = ran.outcome, ran.task.key
    fields = outcome_fields(outcome)
    if ran.may_repair:
        fields["warnings"].append(_may_repair(ran))
    return RunObject(
        order=ran.task.entry.order,
        key=display(key),
        key_base64=key_base64(key),
        decision=ran.task.decision.value,
        revision=outcome.revision if ran.well and outcome.result is not None else None,
        **fields,
    )
