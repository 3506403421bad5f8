"""What a run over a plan has to do: the decisions of the plan, held against what was accepted and what was done.

That something may be done to a key is said by its own checks, when its turn comes. A run writes nothing into the plan:
what was done stands in the audit log before the next key is looked at, and a second run takes it from there. Where
another log is named, what was done is met as a surprise, and nothing is done twice.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from pathlib import Path
from typing import Final, Protocol

import msgspec

from etcdfix.copies.finder import parse_named
from etcdfix.copies.model import Place
from etcdfix.graph.model import Risk
from etcdfix.model.errors import ConfigurationError, RefusedByRule
from etcdfix.model.model import ClusterIdentity
from etcdfix.model.rules import Rule, acceptance, refuse
from etcdfix.model.storagekey import display
from etcdfix.remediation.audit.record import Record, Result, Verb
from etcdfix.remediation.audit.verify import read_records
from etcdfix.remediation.change import ChangeRequest, Confirmer
from etcdfix.remediation.checks.plan import refuse_plan
from etcdfix.remediation.cluster import Acceptances, Cluster
from etcdfix.remediation.durable import Step
from etcdfix.remediation.intent import DONE, operator_for
from etcdfix.remediation.settle import settle_open
from etcdfix.report.plan import (
    DECLARE_KEY_LOST,
    Decision,
    DeletionPlan,
    PlanEntry,
    decision_on,
    is_breaking,
    meaning,
)
from etcdfix.report.planfile import plan_key
from etcdfix.text.commands import Command, with_options
from etcdfix.text.safetext import key_word, quote_command, safe_text

VERBS: Final = {Decision.DELETE: Verb.DELETE, Decision.FIX: Verb.FIX}
_OF_AN_ENTRY: Final = frozenset(
    {Rule.UNPROVEN_DAMAGE, Rule.NEWER_THAN_KNOWN, Rule.MASS_DAMAGE, Rule.ONLY_COPY, Rule.ENDS_CACHED_READS}
)
"""Rules of which an entry of a plan says whether they have to be accepted."""


class RunRequest(ChangeRequest, frozen=True, kw_only=True):
    """One run.

    Attributes:
        expect_plan: The digest of the plan with its decisions; None for any.
        key_lost: ``TRANSFORMER[/KEY-ID]`` of each encryption key that is declared lost.
        leave_out: Keys to which nothing is to be done, whatever the plan says.
        encryption_config: File that must stay as it is; None where it cannot be read again.
    """

    plan_file: Path
    expect_plan: str | None = None
    key_lost: tuple[str, ...] = ()
    leave_out: tuple[bytes, ...] = ()
    encryption_config: Path | None = None

    def command(self, *more: str) -> Command:
        """Return the command as it was typed, but for a dry run, with more words."""
        typed = [word for word in self.given if word != "--dry-run"]
        return Command(with_options(typed, more), writes=True)

    def recorded_as(self, plan: DeletionPlan) -> tuple[str, ...]:
        """Return what the record of each change says of the plan."""
        reviewed = (f"--expect-plan {self.expect_plan}",) if self.expect_plan is not None else ()
        return (f"--run {self.plan_file}{_ending(plan)}", *reviewed)


def leaving_out(key: bytes) -> list[str]:
    """Return the words that leave a key as it is."""
    return ["--leave-out", key_word(key)]


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """One object to which something is to be done."""

    entry: PlanEntry
    decision: Decision
    key: bytes
    declared: str
    protected: str

    def accepted(self, given: Acceptances) -> Acceptances:
        """Return what counts here of what was accepted for the run: a word of which the plan says nothing does not."""
        words = tuple(word for word in given.words if self.heeds(word))
        return Acceptances(words=words, key_lost=self.declared, at_terminal=given.at_terminal)

    def heeds(self, word: str) -> bool:
        """Say whether a word that was accepted counts here."""
        if word == Rule.CLUSTER_BREAKING:
            return bool(self.protected)
        return word not in _OF_AN_ENTRY or f"--accept {word}" in _needs_of(self.entry, self.decision)


class RunConfirmer(Confirmer, Protocol):
    """The person before a run, or the flags that stand for one."""

    def confirm_number(self, number: int, what: str) -> bool:
        """Say whether a number was typed back; ``what`` says of what."""
        ...


class Confirmed:
    """Stands for a person who has confirmed all objects at once."""

    def confirm_key(self, _key: bytes) -> bool:
        """Say yes."""
        return True

    def confirm_lost(self, _declared: str) -> bool:
        """Say yes."""
        return True


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """What a plan comes to for one run."""

    tasks: tuple[Task, ...]
    done: int
    left_alone: int

    def count(self, decision: Decision) -> int:
        """Return how many objects are to be dealt with in this way."""
        return sum(task.decision is decision for task in self.tasks)

    @property
    def protected(self) -> list[Task]:
        """What the cluster may depend on."""
        return [task for task in self.tasks if task.protected]

    def confirm(self, confirmer: RunConfirmer) -> None:
        """Have a person confirm all of it, before the first change; raises RefusedByRule."""
        for declared in dict.fromkeys(task.declared for task in self.tasks if task.declared):
            if not confirmer.confirm_lost(declared):
                raise refuse(Rule.NOT_CONFIRMED, "the lost key was not typed back; nothing was changed")
        deleted = self.count(Decision.DELETE)
        number, what = (deleted, "deleted") if deleted else (len(self.tasks), "changed")
        if number and not confirmer.confirm_number(number, f"the number of objects that will be {what}"):
            why = f"{number}, the number of objects that would be {what}, was not typed back; nothing was changed"
            hint = "type it at a terminal; for scripts, --dry-run prints the command"
            raise refuse(Rule.NOT_CONFIRMED, why, hint=hint)
        for task in self.protected:
            if not confirmer.confirm_key(task.key):
                text = f"{display(task.key)} is protected, and was not typed back; nothing was changed"
                instead = f"type it at a terminal; or leave it: {quote_command(leaving_out(task.key))}"
                raise refuse(Rule.NOT_CONFIRMED, text, hint=instead)


def workload_of(
    plan: DeletionPlan, finished: Container[bytes], request: RunRequest, again: str, *, of_kine: bool = False
) -> Workload:
    """Return what is to be done, and was not finished by an earlier run.

    Raises ConfigurationError or RefusedByRule.
    """
    leave_out = set(request.leave_out)
    tasks: list[Task] = []
    missing: dict[str, Task] = {}
    done = left_alone = 0
    keys: set[bytes] = set()
    may_be_declared: set[str] = set()
    for entry, what in _decided(plan):
        key = plan_key(entry)
        if key in keys:
            raise refuse_plan(f"the plan lists {display(key)} more than once", again)
        keys.add(key)
        if any(need.startswith(DECLARE_KEY_LOST) for need in entry.needs):
            may_be_declared.update(_names_of_its_key(entry))
        if key in finished:
            done += 1
        elif what is Decision.LEAVE or key in leave_out:
            left_alone += 1
        elif of_kine and (what is not Decision.FIX or parse_named(entry.source).place is not Place.MEMORY):
            why = f"{display(key)}: to kine, a run writes nothing but what API servers hold"
            hint = f"add {quote_command(leaving_out(key))}; explain shows the request that deletes it"
            raise refuse(Rule.PLAN, why, hint=hint)
        else:
            tasks.append(_task(entry, what, key, request, missing))
    if leave_out - keys:
        raise refuse_plan(f"--leave-out: the plan does not list {display(min(leave_out - keys))}", again)
    if missing:
        raise _not_accepted(missing, request)
    # Objects that an earlier run dealt with count too: the same command goes on.
    for declared in request.key_lost:
        if declared not in may_be_declared:
            why = f"--declare-key-lost {declared} names no encryption key that the plan waits for"
            hint = "leave it out; needs, in the entries of the plan, says which flag each needs"
            raise refuse(Rule.DECLARATION, why, hint=hint)
    return Workload(tasks=tuple(tasks), done=done, left_alone=left_alone)


def _decided(plan: DeletionPlan) -> Iterator[tuple[PlanEntry, Decision]]:
    """Yield each entry with the decision on it, where these belong together."""
    if len(plan.decisions) != len(plan.entries):
        why = f"the plan has {len(plan.entries)} objects and {len(plan.decisions)} decisions"
        hint = "make a new one: etcdfix plan --from-report REPORT -o json --output-file FILE"
        raise refuse(Rule.PLAN, why, hint=hint)
    for entry, decision in zip(plan.entries, plan.decisions, strict=True):
        if (decision.order, decision.key, decision.key_base64) != (entry.order, entry.key, entry.key_base64):
            raise refuse(
                Rule.PLAN,
                f"decision {decision.order} is not on the key of entry {entry.order}: their order was "
                "changed",
                hint="edit the word after decision and nothing else, or make a new plan",
            )
        allowed = decision_on(entry).allowed
        if decision.decision not in allowed:
            raise ConfigurationError(
                f"{safe_text(entry.key)}: decision {safe_text(decision.decision)!r} is none of "
                f"{', '.join(allowed)}",
                hint="edit the word after decision",
            )
        yield entry, Decision(decision.decision)


def _names_of_its_key(entry: PlanEntry) -> list[str]:
    """Return how an encryption key can be declared lost, the narrower name first."""
    narrow = [f"{entry.transformer}/{entry.kms_key_id_sha256}"] if entry.kms_key_id_sha256 else []
    return [*narrow, entry.transformer]


def _needs_of(entry: PlanEntry, what: Decision) -> list[str]:
    return entry.fix_needs if what is Decision.FIX else entry.needs


def _not_accepted(missing: dict[str, Task], request: RunRequest) -> RefusedByRule:
    """Return the refusal that lists all that a run needs and was not given, with the command that gives it."""
    said = [
        f"the {'deletion' if task.decision is Decision.DELETE else 'fix'} of {display(task.key)} needs {need}"
        for need, task in missing.items()
    ]
    words = [word for need in missing for word in need.split(" ", 1)]
    means = "; ".join(meaning(need) for need in missing)
    one = quote_command(leaving_out(next(iter(missing.values())).key))
    return refuse(
        Rule.PLAN,
        "; ".join(said),
        hint=f"if {means}: {request.command(*words, '--dry-run').line(request.run)}; or leave objects out: {one}",
    )


def _task(
    entry: PlanEntry, what: Decision, key: bytes, request: RunRequest, missing: dict[str, Task]
) -> Task:
    """Return what is to be done to an object, and note what it needs that was not given."""
    needs, declared, protected = _needs_of(entry, what), "", ""
    if any(need.startswith(DECLARE_KEY_LOST) for need in needs):
        declared = next((name for name in _names_of_its_key(entry) if name in request.key_lost), "")
    if is_breaking(entry):
        reasons = [reason.text for reason in entry.reasons if entry.risk == Risk.CLUSTER_BREAKING]
        protected = entry.protected or next(iter(reasons), "the cluster may depend on it")
        needs = [acceptance(Rule.CLUSTER_BREAKING), *needs]
    task = Task(entry=entry, decision=what, key=key, declared=declared, protected=protected)
    for need in needs:
        option, _, word = need.partition(" ")
        given = declared if option == DECLARE_KEY_LOST else word in request.accepted.words
        # The live check says whether everything is saved.
        if not given and not (word == Rule.ENDS_CACHED_READS and request.rescued is not None):
            missing.setdefault(need, task)
    return task


def stopped_by(task: Task, refusal: RefusedByRule) -> RefusedByRule:
    """Return the refusal of one object as the run tells it, which stops there."""
    on = f"look at it, then run the same again; to leave it as it is: {quote_command(leaving_out(task.key))}"
    if refusal.rule == Rule.GONE:
        on = f"if an earlier run over this plan deleted it, name the --audit-log of that one; else {on}"
    refusal.hint = f"{refusal.hint}; {on}" if refusal.hint else on
    options = [option for one in (refusal, *refusal.also) for option in one.lift]
    lifting = zip(options[::2], options[1::2], strict=True)
    if refusal.command and not all(option == "--accept" and task.heeds(word) for option, word in lifting):
        refusal.command = ""
        refusal.lifted = "A run accepts only what its plan names: scan again, and make a new plan."
    return refusal


# -- what earlier runs did


def finished_before(
    cluster: Cluster,
    plan: DeletionPlan,
    request: RunRequest,
    identity: ClusterIdentity,
    say: Callable[[str], object],
    step: Step,
) -> set[bytes]:
    """Return the keys with which earlier runs over this plan are done, by the audit log; settle what is open of them.

    Raises RefusedByRule or AuditError.
    """
    planned = {plan_key(entry): entry.mod_revision for entry in plan.entries}
    path, accepted = request.record_paths.log_path, request.accepted.only(Rule.UNKNOWN_CLUSTER)
    if not path.exists():
        return set()
    step("check: what earlier runs did")
    if request.dry_run:
        recorded = _recorded(read_records(path), plan)
    else:
        operator = operator_for(None, request.etcd_user)
        with request.record_paths.open_log(operator, step) as log:
            for found in settle_open(
                cluster.now, log, planned, operator, cluster=identity, accepted=accepted, say=say
            ):
                if not found.settled or found.outcome == Result.ANOMALY:
                    why = f"what became of {found.key} is not known: {found.detail}"
                    on = "look at it" if found.settled else "see that etcd answers"
                    raise refuse(Rule.PLAN, why, hint=f"{on}, then run this again")
            recorded = _recorded(log.records(), plan)
    finished = set()
    for key, outcome in recorded.items():
        stored = cluster.now.read_key(key).stored if key in planned else None
        # Revisions and ids repeat in a restored etcd.
        fixed = outcome == DONE[Verb.FIX]
        if stored and (stored.mod_revision if fixed else stored.create_revision) <= planned[key]:
            say(f"{display(key)} stands there again, although it was {outcome}: it is dealt with again")
        else:
            finished.add(key)
    return finished


def _recorded(records: Iterable[Record], plan: DeletionPlan) -> dict[bytes, str]:
    """Return what runs over this plan did to each key."""
    ending, found = _ending(plan), {}
    for record in records:
        deleted = {DONE[Verb.DELETE], Result.APPLIED_OR_GONE}
        done = deleted if record.verb is Verb.DELETE else {DONE[Verb.FIX]}
        ours = record.tells_outcome and any(flag.endswith(ending) for flag in record.accepted)
        if ours and record.outcome in done:
            found[record.subject.key] = str(record.outcome)
    return found


def _ending(plan: DeletionPlan) -> str:
    return f" ({plan.content_sha256})"
