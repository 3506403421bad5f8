"""The file of a plan while it is worked through: locked, and never less than what was done.

Each outcome is a line of ``FILE.run`` beside the plan, on disk before the next key is looked at: to write a large plan
anew after each of its keys would take longer than the changes. In the end, and when a run goes on that was killed, the
lines become part of the plan, which is replaced whole, and ``FILE.run`` goes. What happened is said by the audit log; a
line that could not be written any more is made up for from there.
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
from etcdfix.errors import NotDurable, RefusedByRule, why
from etcdfix.remediation.durable import (
    SafeDirectory,
    Step,
    announced,
    no_step,
    open_directory,
    write_fully,
)
from etcdfix.report.plan import DeletionPlan
from etcdfix.report.plan_entry import PlanDecision
from etcdfix.report.planfile import load_plan
from etcdfix.report.render.machine import JSONWriter
from etcdfix.report.rows import Rows
from etcdfix.rules import Rule, refuse
from etcdfix.text.commands import RunOptions

RUN_SUFFIX: Final = ".run"
"""What is written down during a run stands in a file with the plan's name and this."""

_WHAT: Final = "plan run"


class RunHead(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The first line of a run: which plan it works through, and where its records are."""

    plan: str
    audit_log: str


class RunLine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
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
        plan: As it was read, with what earlier runs wrote down.
    """

    def __init__(self, path: Path, directory: SafeDirectory, descriptor: int, step: Step) -> None:
        self._path = path
        self._directory = directory
        self._descriptor = descriptor
        self._step = step
        self._lines: dict[int, RunLine] = {}
        self._head: RunHead | None = None
        self._log = ""
        self.plan: DeletionPlan

    @classmethod
    def open(cls, path: Path, *, step: Step = no_step) -> RunFile:
        """Lock a plan and read it, with what a run wrote down that did not come to its end.

        Raises:
            ConfigurationError: It is no plan, or not what was written.
            UnsafePlace: Its directory, or ``FILE.run``, is not ours alone.
            RefusedByRule: Another run works through it, or what stands in ``FILE.run`` is of another plan.
            NotDurable: Nothing can be written there.
        """
        with ExitStack() as on_failure:
            directory = on_failure.enter_context(open_directory(path.absolute().parent))
            load_plan(path)  # what is no plan gets no file beside it
            try:
                descriptor = directory.open_locked(path.name + RUN_SUFFIX, what=_WHAT)
            except BlockingIOError as exc:
                raise refuse(
                    Rule.PLAN,
                    f"another run works through {path}",
                    hint="wait for its end, then run this again",
                ) from exc
            on_failure.callback(os.close, descriptor)
            run = cls(path, directory, descriptor, step)
            run._begin()
            on_failure.pop_all()
        return run

    def close(self) -> None:
        """Give the lock back, and leave no empty file behind; a second call does nothing."""
        if self._descriptor < 0:
            return
        if not os.fstat(self._descriptor).st_size:
            with suppress(NotDurable):
                self._directory.remove(self._name, what=_WHAT, step=self._step)
        os.close(self._descriptor)
        self._descriptor = -1
        self._directory.close()

    @property
    def _name(self) -> str:
        return self._path.name + RUN_SUFFIX

    def decisions(self) -> Iterator[PlanDecision]:
        """Yield the decisions with what was written down."""
        return (_with(decision, self._lines.get(decision.order)) for decision in self.plan.decisions)

    @property
    def audit_log(self) -> str:
        """The log of the runs that have begun; "" before the first."""
        return self._head.audit_log if self._head is not None else self.plan.audit_log

    def begin(self, audit_log: Path) -> None:
        """Say where the records of this run are; it is written down with the first outcome."""
        self._log = str(audit_log)

    def note(self, line: RunLine) -> None:
        """Write down what came of an entry; it is on disk when this returns.

        Raises:
            NotDurable: It cannot be written.
        """
        if self._head is None:
            head = RunHead(plan=self.plan.content_sha256, audit_log=self._log)
            self._append(head)
            self._head = head
        self._lines[line.order] = line
        self._append(line)

    def forget(self, order: int) -> None:
        """Take an entry as one on which nothing came yet, until something is written down."""
        self._lines[order] = RunLine(order=order)

    def finish(self) -> None:
        """Make what was written down part of the plan.

        Raises:
            ConfigurationError: The plan is none any more.
            RefusedByRule: Another plan stands in its place.
            NotDurable: The plan cannot be written anew. What was written down stays beside it, in each case.
        """
        if self._head is None:
            return
        now = load_plan(self._path)
        if now.content_sha256 != self.plan.content_sha256:
            raise refuse(
                Rule.PLAN,
                f"{self._path} was replaced by another plan while it was worked through; what was done stands in "
                f"{self._name} beside it, and in the audit log",
                hint="make a new plan into another file",
            )
        self.plan = now  # somebody may have decided on what was not done yet
        plan = msgspec.structs.replace(
            self.plan,
            audit_log=self._head.audit_log,
            decisions=Rows(len(self.plan.decisions), self.decisions),
        )
        stream = io.BytesIO()
        JSONWriter(stream, RunOptions()).end(plan)
        self._directory.replace(self._path.name, stream.getvalue(), what="plan", step=self._step)
        self.plan = load_plan(self._path)
        self._lines, self._head = {}, None
        try:
            os.ftruncate(self._descriptor, 0)
            os.fsync(self._descriptor)
        except OSError as exc:
            raise self._problem(exc) from exc

    def _begin(self) -> None:
        self.plan = load_plan(self._path)
        raw = self._directory.read(self._name, limit=1 << 30)
        whole, newline, _torn = raw.rpartition(b"\n")
        os.ftruncate(self._descriptor, len(whole) + len(newline))
        lines = whole.split(b"\n") if whole else []
        try:
            if lines:
                self._head = msgspec.json.decode(lines[0], type=RunHead)
            read = [msgspec.json.decode(line, type=RunLine) for line in lines[1:]]
        except (msgspec.MsgspecError, UnicodeError) as exc:
            raise self._foreign(f"it is not what a run writes ({exc})") from exc
        if self._head is not None and self._head.plan != self.plan.content_sha256:
            raise self._foreign("it is of a run over another plan")
        self._lines = {line.order: line for line in read}
        self.finish()

    def _append(self, line: msgspec.Struct) -> None:
        try:
            with announced(self._step, _WHAT, "write line"):
                write_fully(self._descriptor, msgspec.json.encode(line) + b"\n")
            with announced(self._step, _WHAT, "fsync file"):
                os.fsync(self._descriptor)
        except OSError as exc:
            raise self._problem(exc) from exc

    def _problem(self, exc: OSError) -> NotDurable:
        path = self._directory.path / self._name
        return NotDurable(
            f"{_WHAT} {path}: {why(exc)}",
            path=path,
            hint="make room; what was done stands in the audit log, and the same command goes on from there",
        )

    def _foreign(self, problem: str) -> RefusedByRule:
        path = self._directory.path / self._name
        return refuse(
            Rule.PLAN,
            f"{path}: {problem}",
            hint="move it away if you know what it is; what was done stands in the audit log",
        )


def _with(decision: PlanDecision, line: RunLine | None) -> PlanDecision:
    if line is None:
        return decision
    return msgspec.structs.replace(decision, outcome=line.outcome, detail=line.detail, record=line.record)
