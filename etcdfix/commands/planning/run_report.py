"""What a run over a plan tells, and what it came to, as it is published."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from etcdfix.commands.planning.run import Ran, RunPreview
from etcdfix.commands.planning.tasks import RunRequest, Task
from etcdfix.errors import EndedEarly, EtcdfixError
from etcdfix.operations.change.preview import WARNINGS, Fact, cluster_facts, preview_of, warning_facts
from etcdfix.operations.change.report import audit_fields, outcome_fields, refusal_by, settling
from etcdfix.remediation.audit.record import unicode_text
from etcdfix.remediation.preflight.cluster import Cluster
from etcdfix.report.change import FollowUp, told
from etcdfix.report.document import Column, Document, Kind, Prose, Table
from etcdfix.report.origin import TOOL, timestamp
from etcdfix.report.plan_entry import Decision
from etcdfix.report.plan_run import PlanRunReport, RunObject
from etcdfix.storagekey import display
from etcdfix.text.commands import RunOptions, scan
from etcdfix.text.safetext import key_base64, key_word, quote_command
from etcdfix.text.words import counted

_MOST_KINDS: Final = 8
_BRIEF: Final = 10


class RunAccount(msgspec.Struct, kw_only=True):
    """What a run over a plan has told so far.

    Attributes:
        objects: What became of each, in the order in which they were dealt with.
        shown: What was shown before anything was asked; None where it did not come that far.
        at: The object that is, or was last, looked at.
        request: What was asked for; None where it did not come that far.
    """

    plan_file: Path
    dry_run: bool
    objects: list[Ran] = []
    run: RunOptions = RunOptions()
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

    def ended(self, ending: EndedEarly) -> EndedEarly:
        """Return an early end as one that has a result, where there is one."""
        return (
            EndedEarly(ending.reason, ending.exit_code, changed=not self.dry_run) if self.objects else ending
        )

    def follow_ups(self) -> Iterator[FollowUp]:
        """Yield what comes next."""
        if self.dry_run and self.to_do and not self.left and self.shown and self.request:
            yield FollowUp("Work through it in a script", self.request.command(self.shown.digest))
        last = self.objects[-1].outcome if self.objects else None
        if last is not None and last.result is not None:
            yield from settling(last, self.run)
            yield FollowUp("Look again", scan())

    @property
    def stopped_at(self) -> Task | None:
        """The object at which it stopped; None where it came to its end, was ended after one, or did not begin."""
        last = self.objects[-1] if self.objects else None
        return None if last is not None and last.well and last.task is self.at else self.at


def run_preview(cluster: Cluster, shown: RunPreview, *, dry_run: bool) -> Document:
    """Return what will be done to which objects."""
    plan = shown.plan

    def facts() -> Iterator[Fact]:
        yield "Plan", f"of {plan.generated_at}, {counted(len(plan.entries), 'object')}"
        yield "Digest", f"{shown.digest}, of the plan and its decisions"
        yield from cluster_facts(cluster, shown.identity)
        if shown.done:
            yield "Done before", f"{counted(shown.done, 'object')}, by earlier runs"
        for decision in (Decision.FIX, Decision.DELETE):
            kinds = Counter(task.resource for task in shown.tasks if task.decision is decision)
            if kinds:
                each = ", ".join(f"{number} {kind}" for kind, number in kinds.most_common(_MOST_KINDS))
                yield f"To {decision}", f"{kinds.total()}: {each}{', …' if len(kinds) > _MOST_KINDS else ''}"
        if shown.left_alone:
            waiting = f"; {shown.waiting} of them the plan could decide otherwise" if shown.waiting else ""
            yield (
                "Left alone",
                f"{counted(shown.left_alone, 'object')}, as the plan or --leave-out says{waiting}",
            )
        yield from warning_facts(shown.warnings)

    rows = [(task.decision.value, task.protected, display(task.key)) for task in shown.protected]
    columns = (Column("PROTECTED"), Column("WHY", folds=True), Column("ETCD KEY", kind=Kind.KEY))
    means = [" ".join(WARNINGS)] if shown.count(Decision.DELETE) or rows else []
    means.append(
        "Each object gets its own checks, backup, records and transaction. The run stops at the first surprise."
    )
    if dry_run:
        means.append("Dry run: everything is checked, nothing is changed in etcd or in the plan.")
    return preview_of(
        f"To work through: {counted(len(shown.tasks), 'object')}",
        facts(),
        Table(columns=columns, rows=rows, noun="protected object", brief=_BRIEF),
        Prose(paragraphs=means),
    )


def ran_lines(ran: Ran, number: int, of: int) -> Iterator[str]:
    """Yield what became of one object, as soon as it is known."""
    found = _object(ran)
    yield f"[{number}/{of}] {told(found, 'delete' if found.decision == 'delete' else 'fix')}"
    yield from (f"  Backup: {path}" for path in found.backups)
    if not ran.well or ran.may_repair:
        yield from (f"  Note: {warning}" for warning in found.warnings)


def run_report(account: RunAccount, error: EtcdfixError | None, exit_code: int) -> PlanRunReport:
    """Return what a run came to, as it is published."""
    shown, stopped = account.shown, account.stopped_at
    leave_out = ""
    if stopped is not None and not any(each.task is stopped and each.done for each in account.objects[-1:]):
        leave_out = quote_command(["--leave-out", key_word(stopped.key)])
    return PlanRunReport(
        plan=unicode_text(str(account.plan_file)),
        plan_sha256=shown.digest if shown is not None else "",
        to_delete=shown.count(Decision.DELETE) if shown is not None else 0,
        to_fix=shown.count(Decision.FIX) if shown is not None else 0,
        protected=len(shown.protected) if shown is not None else 0,
        objects=[_object(each) for each in account.objects],
        done_before=shown.done if shown is not None else None,
        left_alone=shown.left_alone if shown is not None else None,
        left=account.left if shown is not None else None,
        stopped_at=display(stopped.key) if stopped is not None else None,
        stopped_at_base64=key_base64(stopped.key) if stopped is not None else None,
        leave_out=leave_out,
        tool=TOOL,
        generated_at=timestamp(),
        dry_run=account.dry_run,
        refusal=None if error is None else refusal_by(error),
        follow_ups=[*account.follow_ups()],
        exit_code=exit_code,
        **(audit_fields(account.objects[-1].outcome) if account.objects else {}),
    )


def _object(ran: Ran) -> RunObject:
    outcome, key = ran.outcome, ran.task.key
    fields = outcome_fields(outcome)
    if ran.may_repair:
        repair = (
            f"May repair: {ran.may_repair}. Nothing proves it; etcdfix fix --from bit shows what comes of it."
        )
        fields["warnings"].append(unicode_text(repair))
    return RunObject(
        order=ran.task.entry.order,
        key=display(key),
        key_base64=key_base64(key),
        decision=ran.task.decision.value,
        revision=outcome.revision if ran.well and outcome.result is not None else None,
        **fields,
    )
