"""What a run over a plan has to do: the decisions of the plan, held against its entries and against what was accepted.

Nothing here is asked of etcd. That something may be done to a key is said by its own checks, when its turn comes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from etcdfix.errors import ConfigurationError, RefusedByRule
from etcdfix.graph.model import Risk
from etcdfix.remediation.change import ChangeRequest
from etcdfix.remediation.preflight.expectation import refuse_plan
from etcdfix.report.plan import DeletionPlan
from etcdfix.report.plan_entry import (
    DECLARE_KEY_LOST,
    Decision,
    PlanDecision,
    PlanEntry,
    decision_on,
    meaning,
)
from etcdfix.report.planfile import plan_key
from etcdfix.rules import Rule, acceptance, refuse
from etcdfix.storagekey import display
from etcdfix.text.commands import Command, RunOptions, run_plan
from etcdfix.text.safetext import key_word, quote_command, safe_text
from etcdfix.text.words import counted

_OF_AN_ENTRY: Final = frozenset(
    {Rule.UNPROVEN_DAMAGE, Rule.NEWER_THAN_KNOWN, Rule.MASS_DAMAGE, Rule.ONLY_COPY}
)
"""Rules of which an entry of a plan says whether they have to be accepted."""


class RunRequest(ChangeRequest, frozen=True, kw_only=True):
    """One run.

    Attributes:
        expect_plan: The digest of the plan with its decisions; None for any.
        key_lost: ``TRANSFORMER[/KEY-ID]`` of each encryption key that is declared lost.
        leave_out: Keys to which nothing is to be done, whatever the plan says.
        rescued: Directory of objects that were saved from API servers; None for none.
        encryption_config: File of the EncryptionConfiguration, which must stay as it is; None where it cannot be read
            again.
    """

    plan_file: Path
    expect_plan: str | None = None
    key_lost: tuple[str, ...] = ()
    leave_out: tuple[bytes, ...] = ()
    rescued: Path | None = None
    encryption_config: Path | None = None
    run: RunOptions = RunOptions()

    def command(self, digest: str) -> Command:
        """Return the command that does this in a script, if the plan has this digest."""
        flags = [word for flag in self.accepted.as_flags() for word in flag.split(" ", 1)]
        flags += [word for lost in self.key_lost for word in ("--declare-key-lost", lost)]
        flags += [word for key in self.leave_out for word in ("--leave-out", key_word(key))]
        flags += ["--rescued", str(self.rescued)] if self.rescued is not None else []
        return run_plan(str(self.plan_file), *flags, "--yes", "--expect-plan", digest)


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """One object to which something is to be done.

    Attributes:
        declared: The declaration that speaks of its encryption key; "" for none.
        protected: Why the cluster may depend on it; "" where the plan says nothing of the kind.
    """

    entry: PlanEntry
    decision: Decision
    key: bytes
    declared: str
    protected: str

    @property
    def resource(self) -> str:
        """What it is one of."""
        entry = self.entry
        return safe_text(f"{entry.resource}.{entry.group}" if entry.group else entry.resource)

    def heeds(self, word: str) -> bool:
        """Say whether a word that was accepted counts here: one of which the plan says nothing is a surprise."""
        if word == Rule.CLUSTER_BREAKING:
            return bool(self.protected)
        return word not in _OF_AN_ENTRY or f"--accept {word}" in _needs_of(self.entry, self.decision)


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """What a plan comes to for one run.

    Attributes:
        done: How many objects earlier runs dealt with.
        left_alone: To how many nothing is to be done.
        waiting: How many of these could be dealt with, if the plan were decided otherwise.
    """

    tasks: tuple[Task, ...]
    done: int
    left_alone: int
    waiting: int


def workload_of(
    plan: DeletionPlan, decisions: Iterable[PlanDecision], request: RunRequest, again: str
) -> Workload:
    """Return what is to be done.

    Raises:
        ConfigurationError: A decision is none, or not one that its entry allows.
        RefusedByRule: Something has to be accepted first, or a flag speaks of no object of the plan.
    """
    leave_out = set(request.leave_out)
    tasks: list[Task] = []
    done = left_alone = waiting = 0
    keys: set[bytes] = set()
    may_be_declared: set[str] = set()
    for entry, decision in paired(plan, decisions):
        key = plan_key(entry)
        if key in keys:
            raise refuse_plan(f"the plan lists {display(key)} more than once", again)
        keys.add(key)
        if _wants_declaration(entry):
            may_be_declared.update(_names_of_its_key(entry))
        if decision.outcome:
            done += 1
            continue
        what = Decision(decision.decision)
        if what is Decision.LEAVE or key in leave_out:
            left_alone += 1
            waiting += len(decision_on(entry).allowed) > 1
            continue
        tasks.append(_task(entry, what, key, request))
    if leave_out - keys:
        raise refuse_plan(f"--leave-out: the plan does not list {display(min(leave_out - keys))}", again)
    # Objects that an earlier run dealt with count too: the same command goes on.
    for declared in request.key_lost:
        if declared not in may_be_declared:
            raise refuse(
                Rule.DECLARATION,
                f"--declare-key-lost {declared} names no encryption key whose loss an object of the plan waits for",
                hint="leave it out; needs, in the entries of the plan, says which flag each of them needs",
            )
    return Workload(tasks=tuple(tasks), done=done, left_alone=left_alone, waiting=waiting)


def _wants_declaration(entry: PlanEntry) -> bool:
    return any(need.partition(" ")[0] == DECLARE_KEY_LOST for need in entry.needs)


def _names_of_its_key(entry: PlanEntry) -> list[str]:
    names = [entry.transformer]
    if entry.kms_key_id_sha256:
        names.insert(0, f"{entry.transformer}/{entry.kms_key_id_sha256}")
    return names


def _needs_of(entry: PlanEntry, what: Decision) -> list[str]:
    return entry.fix_needs if what is Decision.FIX else entry.needs


def _task(entry: PlanEntry, what: Decision, key: bytes, request: RunRequest) -> Task:
    needs = _needs_of(entry, what)
    declared = ""
    if any(need.startswith(DECLARE_KEY_LOST) for need in needs):
        declared = next((name for name in _names_of_its_key(entry) if name in request.key_lost), "")
    protected = entry.protected
    if not protected and entry.risk == Risk.CLUSTER_BREAKING:
        protected = entry.reasons[0].text if entry.reasons else "the cluster may depend on it"
    if protected and not request.accepted.accepts(Rule.CLUSTER_BREAKING):
        raise _needs(key, acceptance(Rule.CLUSTER_BREAKING), what)
    for need in needs:
        option, _, word = need.partition(" ")
        given = declared if option == DECLARE_KEY_LOST else word in request.accepted.words
        if not given:
            raise _needs(key, need, what)
    return Task(entry=entry, decision=what, key=key, declared=declared, protected=protected)


def _needs(key: bytes, need: str, what: Decision) -> RefusedByRule:
    act = "deletion" if what is Decision.DELETE else "fix"
    return refuse(
        Rule.PLAN,
        f"the {act} of {display(key)} needs {need}",
        hint=f"add it, if {meaning(need)}; to leave this key as it is: "
        f"{quote_command(['--leave-out', key_word(key)])}",
    )


def paired(plan: DeletionPlan, decisions: Iterable[PlanDecision]) -> Iterator[tuple[PlanEntry, PlanDecision]]:
    """Yield each entry of a plan with the decision on it.

    Raises:
        RefusedByRule: The plan has no decisions, or they are not those of its entries.
    """
    if len(plan.decisions) != len(plan.entries):
        raise refuse(
            Rule.PLAN,
            f"the plan has {counted(len(plan.entries), 'object')} and {counted(len(plan.decisions), 'decision')}: some "
            "were removed or added",
            hint="make a new one: etcdfix plan --from-report REPORT -o json --output-file FILE",
        )
    for entry, decision in zip(plan.entries, decisions, strict=True):
        if (decision.order, decision.key, decision.key_base64) != (entry.order, entry.key, entry.key_base64):
            raise refuse(
                Rule.PLAN,
                f"decision {decision.order} of the plan is on {safe_text(decision.key)}, and entry {entry.order} is "
                f"{safe_text(entry.key)}: their order was changed",
                hint="edit the word after decision and nothing else, or make a new plan",
            )
        _check_decision(entry, decision)
        yield entry, decision


def _check_decision(entry: PlanEntry, decision: PlanDecision) -> None:
    allowed = decision_on(entry).allowed
    if decision.decision not in allowed:
        raise ConfigurationError(
            f"the plan decides {safe_text(decision.decision)!r} on {safe_text(entry.key)}, which allows "
            f"{', '.join(allowed)}",
            hint="edit the word after decision",
        )
