"""Works through a reviewed plan: one object after the other, each as the command for one key would treat it.

The plan says what to do to which key; that it may be done, each key's own checks say, live: those of ``delete``
and ``fix``, the very functions. They share one audit log, which stays open. Each etcd key has its own look around,
backup, records and transaction. The run stops at the first surprise. What is done stays done, and a second run goes on.
"""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from etcdfix.commands.delete import DeleteRequest, run_delete
from etcdfix.commands.fix import WHOLE, run_fix
from etcdfix.copies.finder import parse_named
from etcdfix.encryption.config import read_configuration
from etcdfix.examine.all import Progress, no_progress
from etcdfix.examine.verdicts.examination import Examination
from etcdfix.model.errors import ConfigurationError, EndedEarly, RefusedByRule
from etcdfix.model.model import ClusterIdentity, digest_of
from etcdfix.model.rules import Rule, refuse
from etcdfix.remediation.audit.log import AuditLog
from etcdfix.remediation.change import Change, ChangeRequest
from etcdfix.remediation.checks.plan import MOST_AGE_OF_A_RUN, check_fits, expectation_by, refuse_plan
from etcdfix.remediation.choice import FixRequest
from etcdfix.remediation.cluster import Cluster, find_cluster, refuse_unknown
from etcdfix.remediation.commit import ChangeOutcome
from etcdfix.remediation.durable import Step, no_step
from etcdfix.remediation.intent import DONE, operator_for
from etcdfix.remediation.places import place_warnings
from etcdfix.remediation.run import (
    VERBS,
    Confirmed,
    RunConfirmer,
    RunRequest,
    Task,
    Workload,
    finished_before,
    stopped_by,
    workload_of,
)
from etcdfix.report.origin import same_fields
from etcdfix.report.plan import Decision, DeletionPlan
from etcdfix.report.planfile import decided_digest
from etcdfix.sources.live import LiveSource
from etcdfix.text.commands import RunOptions
from etcdfix.text.commands import plan as make_plan
from etcdfix.text.safetext import safe_text

_OF_ONE_OBJECT: Final = re.compile(r"\(.*?\)|/\S+|\d+", re.DOTALL)
"""What tells one object's warning from another's: keys, numbers, what stands in brackets."""


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one object."""

    task: Task
    outcome: ChangeOutcome

    @property
    def well(self) -> bool:
        """It went as it should, so that the run may go on."""
        return self.outcome.result in {None, DONE[VERBS[self.task.decision]]} and self.outcome.certain

    @property
    def done(self) -> bool:
        """Nothing is left to do to it: the audit log says that it was done. In a dry run: nothing would be."""
        outcome = self.outcome
        if outcome.result is None:
            return self.well
        return outcome.result is DONE[VERBS[self.task.decision]] and outcome.head is not None


class Run(msgspec.Struct, kw_only=True):
    """A run over a plan, as far as it has come."""

    plan_file: Path
    dry_run: bool
    options: RunOptions = RunOptions()
    request: RunRequest | None = None
    digest: str = ""
    load: Workload | None = None
    objects: list[Ran] = []
    at: Task | None = None

    @property
    def left(self) -> int:
        """How many objects are left to do, as far as the audit log says."""
        to_do = len(self.load.tasks) if self.load is not None else 0
        return to_do - sum(1 for each in self.objects if each.done)

    @property
    def stopped_at(self) -> Task | None:
        """The object at which it stopped; None where it came to its end, was ended after one, or did not begin."""
        last = self.objects[-1] if self.objects else None
        return None if last is not None and last.well and last.task is self.at else self.at

    def ended(self, ending: EndedEarly) -> EndedEarly:
        """Return an early end as one that has a result, where there is one."""
        return (
            EndedEarly(ending.reason, ending.exit_code, changed=not self.dry_run) if self.objects else ending
        )


class RunTold(msgspec.Struct, frozen=True):
    """Takes what there is to tell, as it is known: all of the run before anything is asked, then each object."""

    preview: Callable[[DeletionPlan, ClusterIdentity, Iterable[str]], None]
    told: Callable[[Ran], None]
    say: Callable[[str], None]


def run_plan(
    cluster: Cluster,
    plan: DeletionPlan,
    run: Run,
    request: RunRequest,
    confirmer: RunConfirmer,
    told: RunTold,
    *,
    progress: Progress = no_progress,
    step: Step = no_step,
) -> bool:
    """Work through a plan, or find out whether it could be; ``run`` says how far that came.

    Raises ConfigurationError, RemediationRefused, AuditError or SourceError.

    Returns:
        Whether everything went as it should; False where the run stopped at an outcome that it has told.
    """
    step("check: plan")
    run.request, run.digest = request, decided_digest(plan)
    if request.expect_plan not in {None, run.digest}:
        why = "the contents or the decisions of the plan are not those that --expect-plan names"
        raise refuse(Rule.PLAN, why, hint="review it again with --dry-run, which prints its digest")
    again = make_plan(plan.report.path, str(request.plan_file)).line(request.run)
    now = datetime.now(UTC)
    check_fits(plan, cluster, request.accepted, again=again, now=now, most_age=MOST_AGE_OF_A_RUN)
    step("check: cluster")
    identity = find_cluster(cluster, request.record_paths.directories)
    for refusal in refuse_unknown(cluster, identity, request.accepted):
        raise refusal
    if plan.source.kube_system_uid and identity.uid and plan.source.kube_system_uid != identity.uid:
        raise refuse_plan(
            f"the plan is of the cluster {plan.source.kube_system_uid}, this one is {identity.uid}", again
        )
    step("check: places")
    warnings = place_warnings(request.record_paths)
    finished = finished_before(cluster, plan, request, identity, told.say, step)
    load = run.load = workload_of(plan, finished, request, again, of_kine=cluster.is_kine)
    told.preview(plan, identity, warnings)
    if not request.dry_run:
        step("confirm")
        load.confirm(confirmer)
    return not load.tasks or _Work(cluster, plan, run, request, told, again, step, progress).through()


@contextmanager
def _timer_kept() -> Iterator[None]:
    """Let ``--timeout`` go on counting after an object: between its intent and its outcome it does not count."""
    left, begun = signal.getitimer(signal.ITIMER_REAL)[0], time.monotonic()
    yield
    if left:
        signal.setitimer(signal.ITIMER_REAL, max(left - (time.monotonic() - begun), 0.001))


class _Work:
    """Deals with one object after the other."""

    def __init__(
        self,
        cluster: Cluster,
        plan: DeletionPlan,
        run: Run,
        request: RunRequest,
        told: RunTold,
        again: str,
        step: Step,
        progress: Progress,
    ) -> None:
        self._cluster, self._plan, self._run, self._request = cluster, plan, run, request
        self._told, self._again, self._step = told, again, step
        self._progress = progress
        self._changed_at, self._gone = 0, list[Examination]()
        # The preview of the run tells these.
        self._warned = {_OF_ONE_OBJECT.sub("", text) for text in place_warnings(request.record_paths)}

    def through(self) -> bool:
        """Work; say whether all went well."""
        request, run = self._request, self._run
        assert run.load is not None  # it was found out before
        log = request.record_paths.open_log(operator_for(None, request.etcd_user), self._step)
        with log:
            for task in run.load.tasks:
                run.at = task
                self._step("run: next object")
                try:
                    self._require_same_configuration()
                    with _timer_kept():
                        ran = Ran(task=task, outcome=self._change(task, log))
                except RefusedByRule as refusal:
                    raise stopped_by(task, refusal) from None
                run.objects.append(ran)
                self._told.told(ran)  # whatever else fails
                if not ran.well:
                    return False
                self._warn(text for text in ran.outcome.warnings if text != WHOLE)
                if ran.outcome.result is not None:
                    self._note_change(ran.outcome.revision)
                if ran.outcome.signals:
                    raise _ended_by(ran.outcome.signals[0])
        return True

    def _require_same_configuration(self) -> None:
        """Refuse once somebody has changed the configuration, as whoever finds the lost key does."""
        path = self._request.encryption_config
        if path is None:
            return
        try:
            same = digest_of(read_configuration(path)) == self._cluster.config_sha256
        except ConfigurationError:
            same = False
        if not same:
            why = f"{safe_text(str(path))} is not what it was when the run began"
            raise refuse(Rule.PLAN, why, hint="scan with the configuration of today, and make a new plan")

    def _begin(self) -> Cluster:
        """Return the cluster as a command sees it that begins now."""
        cluster = self._cluster
        if isinstance(cluster.source, LiveSource):
            now = cluster.source.reached_revision()
            self._require_later(now, max(self._changed_at, cluster.source.describe().revision) - 1)
            cluster.source.move_to(now)
            cluster.examiner.start_over_with_plugins()
            cluster.examiner.learn_custom_resources(cluster.source)
        return msgspec.structs.replace(cluster, gone=tuple(self._gone))

    def _note_change(self, revision: int) -> None:
        found = self._shown.present.found
        stored = msgspec.structs.replace(found.stored, value=b"")  # there may be many
        self._gone.append(msgspec.structs.replace(found, stored=stored))
        if revision:
            self._require_later(revision, self._changed_at)
            self._changed_at = revision

    @staticmethod
    def _require_later(revision: int, before: int) -> None:
        if revision <= before:
            why = (
                f"etcd stands at revision {revision}, not past {before}: it was put back to an older state, or is "
                "another one"
            )
            raise refuse(Rule.OTHER_CLUSTER, why, hint="find out which etcd answers; then make a new plan")

    def _warn(self, warnings: Iterable[str]) -> None:
        """Tell each warning once, of the first object that it holds for: nobody reads a preview of each."""
        for warning in warnings:
            sentence = _OF_ONE_OBJECT.sub("", warning)
            if sentence not in self._warned:
                self._warned.add(sentence)
                self._told.say(f"warning: {warning}")

    def _change(self, task: Task, log: AuditLog) -> ChangeOutcome:
        request, cluster = self._request, self._begin()
        common = same_fields(request, ChangeRequest) | {
            "accepted": task.accepted(request.accepted),
            "expected": expectation_by(task.entry, self._plan.source.kube_system_uid or "", self._again),
            "plan_flags": request.recorded_as(self._plan),
            "log": log,
        }
        see, progress, step = self._see, self._progress, self._step
        if task.decision is Decision.FIX:
            fix = FixRequest(key=task.key, named=parse_named(task.entry.source), **common)
            return run_fix(cluster, fix, Confirmed(), preview=see, progress=progress, step=step)
        delete = DeleteRequest(key=task.key, **common)
        outcome = run_delete(cluster, delete, Confirmed(), preview=see, progress=progress, step=step)
        candidate = self._shown.present.unproven_repair if delete.dry_run else None
        if candidate is None:
            return outcome
        repair = f"May repair: {candidate.words}. Nothing proves it; etcdfix fix --from bit shows what comes of it."
        return msgspec.structs.replace(outcome, warnings=(*outcome.warnings, repair))

    def _see(self, change: Change) -> None:
        self._shown = change
        self._warn(change.warnings)


def _ended_by(name: str) -> EndedEarly:
    """Return what a signal comes to that waited for the outcome of one object: no other one is begun."""
    if name == signal.SIGINT.name:
        return EndedEarly.of(KeyboardInterrupt())
    return EndedEarly(f"ended by {name}", 128 + signal.Signals[name])
