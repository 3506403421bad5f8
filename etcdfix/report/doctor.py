"""The published shape of what a doctor found (``etcdfix/v1``, kind ``DoctorReport``), field by field."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from enum import StrEnum
from functools import partial
from typing import Final

import msgspec

from etcdfix.report.document import (
    Case,
    CaseState,
    Column,
    Document,
    Kind,
    State,
    Status,
    Step,
    Steps,
    Table,
    whole_case,
)
from etcdfix.report.model import SourcedReport
from etcdfix.text.commands import Command
from etcdfix.text.words import counted


class CheckState(StrEnum):
    """What a check came to."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    UNKNOWN = "unknown"


WORST_FIRST: Final = (CheckState.FAIL, CheckState.UNKNOWN, CheckState.WARN, CheckState.OK)
_MOST_STEPS: Final = 2
"""Steps of further failures in the text form."""
_STATES: Final = {CheckState.FAIL: State.FINDINGS, CheckState.UNKNOWN: State.INCOMPLETE}
_CASES: Final = {CheckState.FAIL: CaseState.FAILED, CheckState.UNKNOWN: CaseState.ERROR}


class Check(msgspec.Struct, frozen=True):
    """One thing that was looked at.

    Attributes:
        name: Which check, one word that does not change; several things can stand under one name.
        state: ``ok``; ``warn`` where work can go on; ``fail`` where something would not; ``unknown`` where it could not
            be told.
    """

    name: str
    state: CheckState
    what: str
    next_step: str = ""
    command: Command = msgspec.field(default_factory=Command)


ok, warn, fail, unknown = (partial(Check, "", state) for state in CheckState)
"""Each makes a check in one state, which gets its name from the list of checks; all but ``ok`` say what to do next."""


class DoctorReport(SourcedReport, frozen=True, kw_only=True):
    """What would keep etcdfix from its work on a cluster, or make it doubtful.

    Attributes:
        source: Where the data comes from; of an etcd that was not reached, its endpoints alone.
        ended: What ended the look early, as a clause; null where nothing did.
        do_not_restart: Why no API server should be restarted, in one line; "" where no check speaks against it.
    """

    kind: str = "DoctorReport"
    checks: list[Check]
    ended: str | None = None
    do_not_restart: str = ""

    def document(self) -> Document:
        """Return the counts, what to do where something failed, and every check, the worst first."""
        counts = Counter(check.state for check in self.checks)
        failed, untold, warned, fine = (counts[state] for state in WORST_FIRST)
        told = f"{counted(len(self.checks), 'check')}: {failed} failed, {untold} could not be told, "
        told += f"{counted(warned, 'warning')}, {fine} ok"
        if self.ended is not None:
            told += f" ({self.ended} before the end)"
        checks = sorted(self.checks, key=lambda check: WORST_FIRST.index(check.state))
        worst = checks[0].state if checks else CheckState.OK
        state = State.INCOMPLETE if self.ended is not None else State.OK
        rows = [
            (check.state.upper(), check.name, check.what, check.next_step, check.command) for check in checks
        ]
        steps = {Step(f"{check.name}: {check.next_step}", check.command): check.state for check in checks}
        also = [step for step in [*steps][1:] if steps[step] is CheckState.FAIL]
        return Document(
            status=Status(_STATES.get(worst, state), told),
            about=self.about(),
            stakes=[self.do_not_restart] if self.do_not_restart else [],
            next=None if worst is CheckState.OK else next(iter(steps)),
            sections=[
                *([Steps(title="What else failed", steps=also, brief=_MOST_STEPS)] if also else []),
                Table(
                    columns=_COLUMNS,
                    rows=rows,
                    noun="check",
                    brief=min(4 if also else 8, len(rows) - counts[CheckState.OK]) or 8,
                ),
            ],
        )

    def cases(self) -> Iterator[Case]:
        """Yield a test case for each check; a warning passes."""
        yield whole_case(
            "everything was checked", [self.ended] if self.ended else [], complete=not self.ended
        )
        for check in self.checks:
            yield Case(
                name=check.name,
                state=_CASES.get(check.state, CaseState.PASSED),
                type=check.state,
                message=check.what,
                detail=[line for line in (check.what, check.next_step) if line],
            )


_COLUMNS: Final = (
    Column("STATE"),
    Column("CHECK"),
    Column("WHAT", folds=True),
    Column("WHAT TO DO", folds=True, wide=True),
    Column("COMMAND", kind=Kind.COMMAND, wide=True),
)
