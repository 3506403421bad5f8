"""What a run over a plan tells, and what it came to, as it is published."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from etcdfix.commands.changing.outcome import audit_fields, outcome_fields, refusal_by, settling
from etcdfix.commands.changing.preview import WARNINGS, cluster_facts
from etcdfix.commands.planning.run import Ran, Run
from etcdfix.model.errors import EtcdfixError
from etcdfix.model.model import ClusterIdentity
from etcdfix.model.storagekey import display
from etcdfix.remediation.audit.record import unicode_text
from etcdfix.remediation.cluster import Cluster
from etcdfix.remediation.run import leaving_out
from etcdfix.report.change import Fact, FollowUp, PlanRunReport, RunObject, preview_of, told
from etcdfix.report.document import Column, Document, Kind, Table
from etcdfix.report.origin import TOOL, timestamp
from etcdfix.report.plan import Decision, DeletionPlan
from etcdfix.text.commands import scan
from etcdfix.text.safetext import key_base64, quote_command, safe_text
from etcdfix.text.words import counted

_MOST_KINDS: Final = 8
_BRIEF: Final = 10


def run_preview(
    cluster: Cluster, run: Run, plan: DeletionPlan, identity: ClusterIdentity, warnings: Iterable[str]
) -> Document:
    """Return what will be done to which objects."""
    load = run.load
    assert load is not None  # it was found out before

    def facts() -> Iterator[Fact]:
        yield "Plan", f"of {plan.generated_at}, {counted(len(plan.entries), 'object')}"
        yield "Digest", f"{run.digest}, of the plan and its decisions"
        yield from cluster_facts(cluster, identity)
        if load.done:
            yield "Done before", f"{counted(load.done, 'object')}, by earlier runs"
        for decision in (Decision.FIX, Decision.DELETE):
            entries = [task.entry for task in load.tasks if task.decision is decision]
            kinds = Counter(".".join(filter(None, (entry.resource, entry.group))) for entry in entries)
            each = ", ".join(f"{number} {safe_text(kind)}" for kind, number in kinds.most_common(_MOST_KINDS))
            if kinds:
                yield f"To {decision}", f"{kinds.total()}: {each}{', …' if len(kinds) > _MOST_KINDS else ''}"
        if load.left_alone:
            yield "Left alone", f"{counted(load.left_alone, 'object')}, as the plan or --leave-out says"

    rows = [(task.decision.value, task.protected, display(task.key)) for task in load.protected]
    columns = (Column("PROTECTED"), Column("WHY", folds=True), Column("ETCD KEY", kind=Kind.KEY))
    means = [" ".join(WARNINGS)] if load.count(Decision.DELETE) or rows else []
    means.append(
        "Each object gets its own checks, backup, records and transaction. The run stops at the first surprise."
    )
    if run.dry_run:
        means.append("Dry run: everything is checked, nothing is changed.")
    return preview_of(
        f"To work through: {counted(len(load.tasks), 'object')}",
        facts=[*facts()],
        warnings=[*warnings],
        more=[Table(columns=columns, rows=rows, noun="protected object", brief=_BRIEF)],
        sets_off=[("", text) for text in means],
    )


def ran_lines(ran: Ran, number: int, of: int) -> Iterator[str]:
    """Yield what became of one object, as soon as it is known."""
    found = _object(ran)
    yield f"[{number}/{of}] {told(found, found.decision)}"
    yield from (f"  Backup: {path}" for path in found.backups)
    if not ran.well or ran.outcome.result is None:
        yield from (f"  Note: {warning}" for warning in found.warnings)


def run_report(run: Run, error: EtcdfixError | None, exit_code: int) -> PlanRunReport:
    """Return what a run came to, as it is published."""
    load, stopped = run.load, run.stopped_at
    last = run.objects[-1] if run.objects else None
    is_done = last is not None and last.task is stopped and last.done
    return PlanRunReport(
        plan=unicode_text(str(run.plan_file)),
        plan_sha256=run.digest if load is not None else "",
        to_delete=load.count(Decision.DELETE) if load is not None else 0,
        to_fix=load.count(Decision.FIX) if load is not None else 0,
        protected=len(load.protected) if load is not None else 0,
        objects=[_object(each) for each in run.objects],
        done_before=load.done if load is not None else None,
        left_alone=load.left_alone if load is not None else None,
        left=run.left if load is not None else None,
        stopped_at=display(stopped.key) if stopped is not None else None,
        stopped_at_base64=key_base64(stopped.key) if stopped is not None else None,
        leave_out="" if stopped is None or is_done else quote_command(leaving_out(stopped.key)),
        tool=TOOL,
        generated_at=timestamp(),
        dry_run=run.dry_run,
        refusal=None if error is None else refusal_by(error),
        follow_ups=[*_follow_ups(run)],
        exit_code=exit_code,
        **(audit_fields(last.outcome) if last is not None else {}),
    )


def _follow_ups(run: Run) -> Iterator[FollowUp]:
    load = run.load
    if run.dry_run and load is not None and load.tasks and not run.left and run.request is not None:
        yield FollowUp(
            "Work through it in a script", run.request.command("--yes", "--expect-plan", run.digest)
        )
    last = run.objects[-1].outcome if run.objects else None
    if last is not None and last.result is not None:
        yield from settling(last, run.options)
        yield FollowUp("Look again", scan())


def _object(ran: Ran) -> RunObject:
    outcome, key = ran.outcome, ran.task.key
    return RunObject(
        order=ran.task.entry.order,
        key=display(key),
        key_base64=key_base64(key),
        decision=ran.task.decision.value,
        revision=outcome.revision if ran.well and outcome.result is not None else None,
        **outcome_fields(outcome),
    )
