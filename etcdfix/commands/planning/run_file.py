"""The file of a plan while it is worked through: locked by ``FILE.run`` beside it, and replaced whole at the end.

What was done stands in the audit log before the next key is looked at. Before the first change the plan says which log
that is, so that a run that was killed is made up for from there.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

import msgspec

from etcdfix.closing import Closing
from etcdfix.errors import NotDurable
from etcdfix.remediation.durable import SafeDirectory, Step, no_step, open_directory
from etcdfix.report.plan import DeletionPlan
from etcdfix.report.plan_entry import PlanDecision
from etcdfix.report.planfile import load_plan
from etcdfix.report.render.machine import JSONWriter
from etcdfix.report.rows import Rows
from etcdfix.rules import Rule, refuse
from etcdfix.text.commands import RunOptions

_LOCK_SUFFIX: Final = ".run"
_WHAT: Final = "plan run"


class RunLine(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one entry.

    Attributes:
        outcome: One word of the audit log; "" while nothing is settled.
        detail: One sentence, or "".
        record: Sequence of the record of the outcome in the audit log; 0 for none.
    """

    order: int
    outcome: str = ""
    detail: str = ""
    record: int = 0


class RunFile(Closing):
    """A plan that is worked through; made by :meth:`open`, and a context manager.

    Attributes:
        plan: As it was read.
    """

    def __init__(self, path: Path, directory: SafeDirectory, descriptor: int, step: Step) -> None:
        self._path = path
        self._directory = directory
        self._descriptor = descriptor
        self._step = step
        self._lines: dict[int, RunLine] = {}
        self._log = ""
        self.plan: DeletionPlan = load_plan(path)

    @classmethod
    def open(cls, path: Path, *, step: Step = no_step) -> RunFile:
        """Lock a plan and read it.

        Raises:
            ConfigurationError: It is no plan, or not what was written.
            UnsafePlace: Its directory, or ``FILE.run``, is not ours alone.
            RefusedByRule: Another run works through it.
            NotDurable: Nothing can be written there.
        """
        with ExitStack() as on_failure:
            directory = on_failure.enter_context(open_directory(path.absolute().parent))
            load_plan(path)  # what is no plan gets no file beside it
            try:
                descriptor = directory.open_locked(path.name + _LOCK_SUFFIX, what=_WHAT)
            except BlockingIOError as exc:
                raise refuse(
                    Rule.PLAN,
                    f"another run works through {path}",
                    hint="wait for its end, then run this again",
                ) from exc
            on_failure.callback(os.close, descriptor)
            run = cls(path, directory, descriptor, step)
            on_failure.pop_all()
        return run

    def close(self) -> None:
        """Give the lock back, and leave no file behind; a second call does nothing."""
        if self._descriptor < 0:
            return
        with suppress(NotDurable):
            self._directory.remove(self._path.name + _LOCK_SUFFIX, what=_WHAT, step=self._step)
        os.close(self._descriptor)
        self._descriptor = -1
        self._directory.close()

    def decisions(self) -> Iterator[PlanDecision]:
        """Yield the decisions with what came of them."""
        for decision in self.plan.decisions:
            line = self._lines.get(decision.order)
            if line is not None:
                decision = msgspec.structs.replace(
                    decision, outcome=line.outcome, detail=line.detail, record=line.record
                )
            yield decision

    def begin(self, audit_log: Path) -> None:
        """Say where the records of this run are; a dry run has none, and the plan stays as it is."""
        self._log = str(audit_log)

    def note(self, line: RunLine) -> None:
        """Take note of what came of an entry; without an outcome, nothing did yet."""
        self._lines[line.order] = line

    def finish(self) -> None:
        """Write into the plan what was noted, if anything was; as :meth:`save`."""
        if self._lines and self._log:
            self.save()

    def save(self) -> None:
        """Write into the plan what was noted, and where the records are.

        Raises:
            ConfigurationError: The plan is none any more.
            RefusedByRule: Another plan stands in its place.
            NotDurable: The plan cannot be written anew.
        """
        now = load_plan(self._path)
        if now.content_sha256 != self.plan.content_sha256:
            raise refuse(
                Rule.PLAN,
                f"{self._path} was replaced by another plan while it was worked through; what was done stands in the "
                f"audit log {self._log}",
                hint="make a new plan into another file",
            )
        self.plan = now  # somebody may have decided on what was not done yet
        plan = msgspec.structs.replace(
            now, audit_log=self._log, decisions=Rows(len(now.decisions), self.decisions)
        )
        stream = io.BytesIO()
        JSONWriter(stream, RunOptions()).end(plan)
        self._directory.replace(self._path.name, stream.getvalue(), what="plan", step=self._step)
        self.plan = load_plan(self._path)
