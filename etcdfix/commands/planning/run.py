"""Works through a reviewed plan: one object after the other, each as the command for one key would treat it.

The plan says what to do to which key; that it may be done, each key's own checks say, live: those of ``delete``
and ``fix``, the very functions. What they share is one look at everything, kept up to date
(:mod:`~etcdfix.commands.planning.kept_look`), and one audit log, which stays open. Each etcd key has its own backup,
records and transaction. The run stops at the first surprise. What is done stays done, and a second run goes on.
"""

from __future__ import annotations

import base64
import re
import signal
import time
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from typing import Any, Final, Protocol, assert_never

import msgspec

from etcdfix.commands.fix import WHOLE, run_fix
from etcdfix.commands.planning.kept_look import KeptLook
from etcdfix.commands.planning.run_file import RunFile, RunLine
from etcdfix.commands.planning.tasks import RunRequest, Task, Workload, workload_of
from etcdfix.copies.finder import parse_named
from etcdfix.copies.model import Place
from etcdfix.encryption.config import read_configuration
from etcdfix.errors import ConfigurationError, EndedEarly, RefusedByRule
from etcdfix.examine_all import Progress, no_progress
from etcdfix.model import ClusterIdentity
from etcdfix.operations.change.delete import DeleteRequest, run_delete
from etcdfix.remediation.audit.log import AuditLog
from etcdfix.remediation.audit.record import CLOSING_TYPES, Link, Operator, Result, Verb
from etcdfix.remediation.audit.record_line import Event, parse_list
from etcdfix.remediation.audit.verify import read_records
from etcdfix.remediation.backup.file import digest
from etcdfix.remediation.change import ChangeRequest, Confirmer, operator_for
from etcdfix.remediation.choice import FixRequest
from etcdfix.remediation.commit import ChangeOutcome, open_log
from etcdfix.remediation.durable import Step, no_step
from etcdfix.remediation.memory.ground import Ground, open_ground
from etcdfix.remediation.memory.patch import patch_from_memory
from etcdfix.remediation.places import place_warnings
from etcdfix.remediation.preflight.cluster import Cluster, check_cluster
from etcdfix.remediation.preflight.deletion import Preflight
from etcdfix.remediation.preflight.expectation import (
    MOST_AGE_OF_A_RUN,
    check_fits,
    expectation_by,
    refuse_plan,
)
from etcdfix.remediation.reconcile import open_intents_of, reconcile_intent
from etcdfix.report.plan import DeletionPlan
from etcdfix.report.plan_entry import Decision, PlanDecision, PlanEntry
from etcdfix.report.planfile import decided_digest, plan_key
from etcdfix.rules import Rule, refuse
from etcdfix.storagekey import display
from etcdfix.text.commands import plan as make_plan
from etcdfix.text.safetext import key_word, quote_command, safe_text

DONE: Final = {
    Decision.DELETE: Result.DELETED,
    Decision.FIX: Result.FIXED,
}


_OF_ONE_OBJECT: Final = re.compile(r"\(.*?\)|/\S+|\d+", re.DOTALL)
"""What tells one object's warning from another's: keys, numbers, what stands in brackets."""


class RunConfirmer(Confirmer, Protocol):
    """The person before a run, or the flags that stand for one."""

    def confirm_number(self, number: int, what: str) -> bool:
        """Say whether a number was typed back; ``what`` says of what."""
        ...


class RunPreview(Workload, frozen=True, kw_only=True):
    """What is shown before anything is asked; ``digest`` is that of the plan with its decisions."""

    plan: DeletionPlan
    digest: str
    identity: ClusterIdentity
    warnings: tuple[str, ...]

    def count(self, decision: Decision) -> int:
        """Return how many objects are to be dealt with in this way."""
        return sum(task.decision is decision for task in self.tasks)

    @property
    def protected(self) -> tuple[Task, ...]:
        """What the cluster may depend on."""
        return tuple(task for task in self.tasks if task.protected)


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one object.

    Attributes:
        may_repair: How it may be repaired, though nothing proves it: looked for by the dry run of a deletion; "" for
            nothing.
    """

    task: Task
    outcome: ChangeOutcome
    may_repair: str = ""

    @property
    def well(self) -> bool:
        """It went as it should, so that the run may go on."""
        return self.outcome.result in {None, DONE[self.task.decision]} and self.outcome.certain

    @property
    def done(self) -> bool:
        """Nothing is left to do to it: the audit log says that it was done. In a dry run: nothing would be."""
        outcome = self.outcome
        if outcome.result is None:
            return self.well
        return outcome.result is DONE[self.task.decision] and outcome.head is not None


class RunTold(Protocol):
    """Takes what there is to tell, as it is known."""

    def preview(self, shown: RunPreview) -> None:
        """Take what will be done, before anything is asked."""
        ...

    def at(self, task: Task) -> None:
        """Take which object is looked at now."""
        ...

    def told(self, ran: Ran) -> None:
        """Take what became of an object."""
        ...

    def say(self, text: str) -> None:
        """Take what a person should know."""
        ...


def run_plan(
    cluster: Cluster,
    request: RunRequest,
    run: RunFile,
    confirmer: RunConfirmer,
    told: RunTold,
    *,
    progress: Progress = no_progress,
    step: Step = no_step,
) -> bool:
    """Work through a plan, or find out whether it could be.

    Returns:
        Whether everything went as it should; False where the run stopped at an outcome that it has told.

    Raises:
        ConfigurationError: A decision is none.
        RemediationRefused: A rule says no; nothing was changed but what was told before.
        AuditError: A record cannot be made durable; likewise.
        SourceError: etcd could not be asked; likewise.
    """
    step("check: plan")
    decided = decided_digest(run.plan)
    if request.expect_plan is not None and request.expect_plan != decided:
        raise refuse(
            Rule.PLAN,
            "the contents or the decisions of the plan are not those that --expect-plan names",
            hint="review it again with --dry-run, which prints its digest",
        )
    again = make_plan(run.plan.report.path, str(request.plan_file)).line(request.run)
    check_fits(
        run.plan,
        cluster,
        request.accepted,
        again=again,
        now=datetime.now(UTC),
        most_age=MOST_AGE_OF_A_RUN,
    )
    _check_log(run, request)
    step("check: cluster")
    identity = check_cluster(cluster, request.accepted, request.record_paths.directories)
    if run.plan.kube_system_uid and identity.uid and run.plan.kube_system_uid != identity.uid:
        raise refuse_plan(
            f"the plan is of the cluster {run.plan.kube_system_uid}, this one is {identity.uid}", again
        )
    step("check: places")
    warnings = place_warnings(request.record_paths)
    work = _Work(cluster, request, run, told, again, step)
    if not request.dry_run:
        run.begin(request.record_paths.log_path)
    work.settle(identity)
    load = workload_of(run.plan, run.decisions(), request, again)
    if cluster.is_kine:
        _refuse_all_but_memory(load.tasks)
    shown = RunPreview(
        plan=run.plan,
        digest=decided,
        **msgspec.structs.asdict(load),
        identity=identity,
        warnings=warnings,
    )
    told.preview(shown)
    if not request.dry_run:
        step("confirm")
        _confirm(shown, confirmer)
    return not load.tasks or work.through(load.tasks, progress)


def _check_log(run: RunFile, request: RunRequest) -> None:
    begun, log = run.plan.audit_log, str(request.record_paths.log_path)
    if begun and begun != log:
        raise refuse(
            Rule.PLAN,
            f"the plan's runs are recorded in {begun}, and not in {log}: what they did stands there",
            hint=quote_command(["--audit-log", begun]),
        )


def _refuse_all_but_memory(tasks: Sequence[Task]) -> None:
    """Refuse what an API server does not do for us: nothing else writes to kine."""
    for task in tasks:
        if task.decision is not Decision.FIX or parse_named(task.entry.source).place is not Place.MEMORY:
            raise refuse(
                Rule.PLAN,
                f"{display(task.key)}: in kine, a run does nothing but to have API servers write anew what they "
                "hold in memory",
                hint=f"decide to leave it, or add {quote_command(['--leave-out', key_word(task.key)])}; etcdfix "
                "explain shows the request that deletes it",
            )


def _confirm(shown: RunPreview, confirmer: RunConfirmer) -> None:
    for declared in dict.fromkeys(task.declared for task in shown.tasks if task.declared):
        if not confirmer.confirm_lost(declared):
            raise refuse(Rule.NOT_CONFIRMED, "the lost key was not typed back; nothing was changed")
    deleted = shown.count(Decision.DELETE)
    number, will_be = (deleted, "deleted") if deleted else (len(shown.tasks), "changed")
    if number and not confirmer.confirm_number(number, f"the number of objects that will be {will_be}"):
        raise refuse(
            Rule.NOT_CONFIRMED,
            f"{number}, the number of objects that would be {will_be}, was not typed back; nothing was changed",
            hint="type it at a terminal; for scripts, --dry-run prints the command",
        )
    for task in shown.protected:
        if not confirmer.confirm_key(task.key):
            raise refuse(
                Rule.NOT_CONFIRMED,
                f"{display(task.key)} is protected ({task.protected}), and was not typed back; nothing was changed",
                hint="type it at a terminal; to leave it as it is: "
                f"{quote_command(['--leave-out', key_word(task.key)])}",
            )


def _ended_by(name: str) -> EndedEarly:
    """Return what a signal comes to that waited for the outcome of one object: no other one is begun."""
    if name == signal.SIGINT.name:
        return EndedEarly.of(KeyboardInterrupt())
    return EndedEarly(f"ended by {name}", 128 + signal.Signals[name])


@contextmanager
def _timer_kept() -> Iterator[None]:
    """Let ``--timeout`` go on counting after an object: between its intent and its outcome it does not count."""
    left, begun = signal.getitimer(signal.ITIMER_REAL)[0], time.monotonic()
    yield
    if left:
        signal.setitimer(signal.ITIMER_REAL, max(left - (time.monotonic() - begun), 0.001))


class _Confirmed:
    """Stands for a person who has confirmed all objects at once."""

    def confirm_key(self, _key: bytes) -> bool:
        return True

    def confirm_lost(self, _declared: str) -> bool:
        return True


class _Work:
    """One run."""

    def __init__(
        self, cluster: Cluster, request: RunRequest, run: RunFile, told: RunTold, again: str, step: Step
    ) -> None:
        self._cluster = cluster
        self._request = request
        self._run = run
        self._told = told
        self._again = again
        self._step = step
        # API servers that write objects anew, once the first of those is due.
        self._opened = ExitStack()
        self._ground: Ground | None = None
        reviewed = (f"--expect-plan {request.expect_plan}",) if request.expect_plan is not None else ()
        self._flags = (f"--run {request.plan_file} ({run.plan.content_sha256})", *reviewed)
        # The preview of the run tells these.
        self._warned = {_OF_ONE_OBJECT.sub("", text) for text in place_warnings(request.record_paths)}

    # -- before

    def settle(self, identity: ClusterIdentity) -> None:
        """Find out what earlier runs did, by the audit log: what is not written down, and what never was."""
        request = self._request
        decisions = {plan_key(decision): decision for decision in self._run.decisions()}
        path, recorded = request.record_paths.log_path, {}
        if path.exists() and not request.dry_run:
            self._step("check: what earlier runs did")
            operator = operator_for(None, request.etcd_user)
            with open_log(request.record_paths, operator, self._step) as log:
                self._settle_intents(log, decisions, operator, identity)
                recorded = self._recorded(log.records(), decisions)
        elif path.exists() and self._run.plan.audit_log:
            recorded = self._recorded(read_records(path), decisions)
        for key, decision in decisions.items():
            if decision.outcome and (key not in recorded or recorded[key].outcome != decision.outcome):
                raise refuse(
                    Rule.PLAN,
                    f"the plan says {safe_text(decision.outcome)!r} of {display(key)}, and {path} has no record by "
                    "which a run over this plan did that",
                    hint="put the audit log of the plan's runs back; if the outcome was edited, make it empty, and the "
                    "key is looked at live",
                )
        for entry in self._run.plan.entries if recorded else ():
            key = plan_key(entry)
            if key not in recorded:
                continue
            if self._stands_again(entry, recorded[key]):
                self._run.note(RunLine(order=entry.order))
                self._told.say(
                    f"{display(key)} stands there as the plan has it, although it was {recorded[key].outcome} (record "
                    f"{recorded[key].record}): etcd was put back to an older state, or this is another one; it is "
                    "dealt with again"
                )
            elif not decisions[key].outcome:
                self._run.note(recorded[key])

    def _stands_again(self, entry: PlanEntry, done: RunLine) -> bool:
        """Say whether the key is what it was before that outcome: revisions and ids repeat in a restored etcd."""
        stored = self._cluster.now.read_key(plan_key(entry)).stored
        if stored is None:
            return False
        gone = done.outcome in {Result.DELETED, Result.APPLIED_OR_GONE}
        return (stored.create_revision if gone else stored.mod_revision) <= entry.mod_revision

    def _settle_intents(
        self, log: AuditLog, keys: Container[bytes], operator: Operator, identity: ClusterIdentity
    ) -> None:
        for intent in log.open_intents():
            if intent.subject.key not in keys or intent not in open_intents_of(
                log, intent.subject.key, cluster=identity
            ):
                continue
            try:
                settled = reconcile_intent(
                    self._cluster.now,
                    log,
                    intent,
                    operator,
                    cluster=identity,
                    accepted=self._request.accepted.only(Rule.UNKNOWN_CLUSTER),
                )
            except RefusedByRule as refusal:  # it is of another etcd, and of nothing that is done here
                self._told.say(refusal.message)
                continue
            became = f"was settled: {settled.result}" if settled.settled else "stays open"
            self._told.say(f"the open intent {intent.link.sequence} {became}, {settled.detail}")
            if not settled.settled or settled.result is Result.ANOMALY:
                hint = (
                    "look at it, then run this again"
                    if settled.settled
                    else "run this again when etcd answers"
                )
                raise refuse(
                    Rule.PLAN,
                    f"what became of {display(intent.subject.key)} is not known: {settled.detail}",
                    hint=hint,
                )

    def _recorded(
        self, records: Iterable[tuple[Link, Event]], decisions: Mapping[bytes, PlanDecision]
    ) -> dict[bytes, RunLine]:
        ending = f"({self._run.plan.content_sha256})"
        found: dict[bytes, RunLine] = {}
        for link, event in records:
            notes = event.annotations
            if notes.type not in CLOSING_TYPES or ending not in notes.accepted:
                continue
            if not any(flag.endswith(ending) for flag in parse_list(notes.accepted)):
                continue
            key = base64.b64decode(notes.key_base64)
            decision = decisions.get(key)
            if decision is not None and _is_done(notes.outcome, event.verb):
                found[key] = RunLine(
                    order=decision.order,
                    outcome=notes.outcome,
                    detail=notes.detail,
                    record=link.sequence,
                )
        return found

    # -- one object after the other

    def through(self, tasks: Sequence[Task], progress: Progress) -> bool:
        """Deal with one object after the other; say whether all went well."""
        request = self._request
        # kine is changed through an API server alone, which looks around itself.
        look = None if self._cluster.is_kine else KeptLook(self._cluster, progress, self._told.say)
        cluster = self._cluster
        if look is not None:
            cluster = msgspec.structs.replace(cluster, surroundings=look, datastore=look.now)
        with (
            open_log(request.record_paths, operator_for(None, request.etcd_user), self._step) as log,
            self._opened,
        ):
            if not request.dry_run:
                self._run.save()  # a run that is killed is made up for from the log that the plan names
            for task in tasks:
                self._told.at(task)
                self._step("run: next object")
                try:
                    self._require_same_configuration()
                    with _timer_kept():
                        ran = self._change(cluster, task, log)
                except RefusedByRule as refusal:
                    raise self._stopped(task, refusal) from None
                # What was done is told whatever else fails.
                self._told.told(ran)
                if ran.outcome.result is not None:
                    self._run.note(_line(ran))
                if not ran.well:
                    return False
                self._warn(text for text in ran.outcome.warnings if text != WHOLE)
                if look is not None and ran.outcome.result is not None and ran.outcome.revision:
                    look.note_change(ran.outcome.revision)
                if ran.outcome.signals:
                    raise _ended_by(ran.outcome.signals[0])
        return True

    def _require_same_configuration(self) -> None:
        """Refuse once somebody has changed the configuration, as whoever finds the lost key does."""
        path = self._request.encryption_config
        if path is None:
            return
        try:
            same = digest(read_configuration(path)) == self._cluster.config_sha256
        except ConfigurationError:
            same = False
        if not same:
            raise refuse(
                Rule.PLAN,
                f"{safe_text(str(path))} is not what it was when the run began: what could not be read may be readable "
                "with it",
                hint="scan with the configuration of today, and make a new plan",
            )

    def _stopped(self, task: Task, refusal: RefusedByRule) -> RefusedByRule:
        on = (
            "look at it, then run the same again to go on; to leave it as it is, add "
            f"{quote_command(['--leave-out', key_word(task.key)])}"
        )
        hint = f"{refusal.hint}; {on}" if refusal.hint else on
        return RefusedByRule(refusal.message, rule=refusal.rule, hint=hint)

    def _warn(self, warnings: Iterable[str]) -> None:
        """Tell each warning once, of the first object that it holds for: nobody reads a preview of each."""
        for warning in warnings:
            sentence = _OF_ONE_OBJECT.sub("", warning)
            if sentence not in self._warned:
                self._warned.add(sentence)
                self._told.say(f"warning: {warning}")

    def _change(self, cluster: Cluster, task: Task, log: AuditLog) -> Ran:
        request, entry = self._request, task.entry
        words = tuple(word for word in request.accepted.words if task.heeds(word))
        accepted = msgspec.structs.replace(
            request.accepted,
            expect_mod_revision=None,
            expect_value_sha256="",
            words=words,
            key_lost=task.declared,
        )
        common: dict[str, Any] = {
            "reason": request.reason,
            "accepted": accepted,
            "record_paths": request.record_paths,
            "api": request.api,
            "etcd_user": request.etcd_user,
            "dry_run": request.dry_run,
            "expected": expectation_by(entry, self._run.plan.kube_system_uid or "", self._again),
            "plan_flags": self._flags,
            "log": log,
        }
        match task.decision:
            case Decision.DELETE:
                shown: list[Preflight] = []

                def see(checked: Preflight) -> None:
                    shown.append(checked)
                    self._warn(checked.warnings)

                outcome = run_delete(
                    cluster,
                    DeleteRequest(
                        key=task.key,
                        run=request.run,
                        rescued=request.rescued,
                        brief=not request.dry_run,
                        **common,
                    ),
                    _Confirmed(),
                    preview=see,
                    step=self._step,
                )
                candidate = shown[0].candidate
                return Ran(task=task, outcome=outcome, may_repair=candidate.words if candidate else "")
            case Decision.FIX:
                return Ran(task=task, outcome=self._fix(cluster, task, common))
            case Decision.LEAVE:
                raise AssertionError("nothing is to be done to it")
            case _:
                assert_never(task.decision)

    def _fix(self, cluster: Cluster, task: Task, common: dict[str, Any]) -> ChangeOutcome:
        request, named = self._request, parse_named(task.entry.source)
        if named.place is Place.MEMORY:
            if self._ground is None:
                opened = open_ground(
                    cluster, ChangeRequest(**common), request.rescued, request.run, self._step
                )
                self._ground = self._opened.enter_context(opened)
                self._warn(self._ground.warnings)
            return patch_from_memory(
                self._ground,
                ChangeRequest(**common),
                task.key,
                _Confirmed(),
                preview=lambda _held, _unread: None,
            )
        return run_fix(
            cluster,
            FixRequest(key=task.key, named=named, run=request.run, **common),
            _Confirmed(),
            preview=lambda shown, _chosen: self._warn(shown.warnings),
            step=self._step,
        )


def _line(ran: Ran) -> RunLine:
    outcome = ran.outcome
    result = outcome.result
    assert result is not None  # a dry run is not written down
    if not ran.done or outcome.head is None:
        # Nothing is settled: the entry stays open. The next run takes it from the log, or looks at it live once more.
        return RunLine(order=ran.task.entry.order, detail=f"{result}: {outcome.detail}")
    return RunLine(
        order=ran.task.entry.order,
        outcome=result.value,
        detail=outcome.detail,
        record=outcome.head.sequence,
    )


def _is_done(outcome: str, verb: str) -> bool:
    if outcome == Result.APPLIED_OR_GONE:
        return verb == Verb.DELETE
    return outcome in {result.value for result in DONE.values()}
