"""What a run over a plan shows before, and tells afterwards: as lines for a person, and as published."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from etcdfix.errors import EtcdfixError
from etcdfix.operations.change.preview import WARNINGS, cluster_lines
from etcdfix.operations.change.report import refusal_by
from etcdfix.operations.change.run_plan import Ran, RunPreview
from etcdfix.operations.change.run_tasks import Task
from etcdfix.remediation.audit.record import Result, unicode_text
from etcdfix.remediation.preflight.cluster import Cluster
from etcdfix.reports.model import FollowUp
from etcdfix.reports.origin import TOOL, timestamp
from etcdfix.reports.plan_run_model import PlanRunReport, RunGroup, RunObject
from etcdfix.storagekey import display
from etcdfix.text.commands import RepeatedOptions
from etcdfix.text.safetext import key_base64, key_word, quote_command, safe_text
from etcdfix.text.words import counted

_MOST_SHOWN: Final = 20


class RunAccount(msgspec.Struct, kw_only=True):
    """What a run has told so far.

    Attributes:
        plan_file: As named.
        dry_run: Nothing is to be changed.
        cluster_name: What people call the cluster, "" where nobody said.
        shown: What was shown before anything was asked; None where it did not come that far.
        ran: What became of each object.
        at: The object that is, or was last, looked at.
        again: Options that commands must repeat; None where it ended before they were read.
    """

    plan_file: Path
    dry_run: bool
    cluster_name: str
    shown: RunPreview | None = None
    ran: list[Ran] = []
    at: Task | None = None
    again: RepeatedOptions | None = None

    @property
    def to_do(self) -> int:
        """How many objects the run was to deal with."""
        shown = self.shown
        return 0 if shown is None else sum(shown.groups.values()) + len(shown.protected)

    @property
    def left(self) -> int:
        """How many of them are left to do, as far as the audit log says."""
        return self.to_do - sum(1 for each in self.ran if each.done)

    @property
    def stopped_at(self) -> Task | None:
        """The object at which it stopped; None where it came to its end, was ended after one, or did not begin."""
        last = self.ran[-1] if self.ran else None
        return None if last is not None and last.well and last.task is self.at else self.at


def run_preview_lines(cluster: Cluster, shown: RunPreview, *, dry_run: bool) -> Iterator[str]:
    """Yield what will be done to which objects."""
    plan = shown.plan
    yield f"Plan         of {plan.generated_at}, {counted(len(plan.entries), 'object')}"
    yield from cluster_lines(cluster, shown.identity)
    if shown.done:
        yield f"Done before  {counted(shown.done, 'object')}, by earlier runs"
    for group, number in shown.groups.items():
        yield f"To do        {number} {group}"
    for task in shown.protected[:_MOST_SHOWN]:
        yield f"Protected    {task.decision} {safe_text(display(task.key))}: {safe_text(task.protected)}"
    if len(shown.protected) > _MOST_SHOWN:
        yield f"             and {len(shown.protected) - _MOST_SHOWN} more; each is asked for"
    if shown.left_alone:
        waiting = f"; {shown.waiting} of them the plan could decide otherwise" if shown.waiting else ""
        yield f"Left alone   {counted(shown.left_alone, 'object')}, as the plan decides{waiting}"
    for warning in shown.warnings:
        yield f"Warning      {safe_text(warning)}"
    yield ""
    if any(group.startswith("delete/") for group in shown.groups) or shown.protected:
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
    if stopped is not None and not (account.ran and account.ran[-1].task is stopped and account.ran[-1].done):
        yield f"To leave this key as it is, add {quote_command(['--leave-out', key_word(stopped.key)])}"
    if account.left and account.at is not None and not account.dry_run:
        yield "What is done stays done, and stands in the plan. The same command goes on from there."
    last = account.ran[-1].outcome if account.ran else None
    if last is not None:
        yield f"Audit log: {safe_text(str(last.audit_log))}" + (f", head {last.head}" if last.head else "")
    for follow_up in _follow_ups(account):
        yield f"{follow_up.what}: {follow_up.command}"


def run_report(account: RunAccount, error: EtcdfixError | None, exit_code: int) -> PlanRunReport:
    """Return what a run came to, as it is published."""
    shown, stopped = account.shown, account.stopped_at
    last = account.ran[-1].outcome if account.ran else None
    groups: Mapping[str, int] = shown.groups if shown is not None else {}
    return PlanRunReport(
        tool=TOOL,
        generated_at=timestamp(),
        cluster_name=account.cluster_name,
        dry_run=account.dry_run,
        plan=unicode_text(str(account.plan_file)),
        plan_sha256=shown.plan.content_sha256 if shown is not None else "",
        groups=[RunGroup(unicode_text(group), count) for group, count in groups.items()],
        protected=len(shown.protected) if shown is not None else 0,
        objects=[_object(each) for each in account.ran],
        done_before=shown.done if shown is not None else None,
        left_alone=shown.left_alone if shown is not None else None,
        left=account.left if shown is not None else None,
        stopped_at=display(stopped.key) if stopped is not None else None,
        stopped_at_base64=key_base64(stopped.key) if stopped is not None else None,
        refusal=None if error is None else refusal_by(error),
        audit_log=unicode_text(str(last.audit_log)) if last is not None else None,
        audit_log_head=str(last.head) if last is not None and last.head is not None else None,
        anchored=last.anchored if last is not None else None,
        follow_ups=list(_follow_ups(account)),
        exit_code=exit_code,
    )


def _object(ran: Ran) -> RunObject:
    outcome, key = ran.outcome, ran.task.key
    return RunObject(
        order=ran.task.entry.order,
        key=display(key),
        key_base64=key_base64(key),
        decision=ran.task.decision.value,
        result=outcome.result.value if outcome.result is not None else "dry-run",
        detail=unicode_text(outcome.detail),
        revision=outcome.revision if ran.well and outcome.result is not None else None,
        backups=[unicode_text(path) for path in outcome.backups],
        value_sha256s=list(outcome.values),
        warnings=[
            *map(unicode_text, outcome.warnings),
            *([_may_repair(ran)] if ran.may_repair else []),
        ],
    )


def _follow_ups(account: RunAccount) -> Sequence[FollowUp]:
    if not account.ran or account.dry_run or account.again is None:
        return ()
    last, again = account.ran[-1].outcome, account.again
    found = []
    if last.result is Result.UNKNOWN or last.head is None:
        anchor = ["--audit-anchor", last.anchor] if last.anchor else []
        settle = quote_command(
            ["etcdfix", "audit", "reconcile", *again.after_change(), *anchor, str(last.audit_log)]
        )
        found.append(FollowUp(f"Settle it {again.when_it_answers}", settle))
    found.append(FollowUp("Look again", again.scan_of()))
    return found
