"""What runs over many objects have in common: their account, one confirmation, how signals and the clock end them."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from etcdfix.errors import EndedEarly, EtcdfixError
from etcdfix.operations.change.report import audit_fields, refusal_by, settling
from etcdfix.remediation.commit import ChangeOutcome
from etcdfix.report.change import FollowUp
from etcdfix.report.origin import TOOL, timestamp
from etcdfix.text.commands import RunOptions, scan


def ended_by(name: str) -> EndedEarly:
    """Return what a signal comes to that waited for the outcome of one object: no other one is begun."""
    if name == signal.SIGINT.name:
        return EndedEarly.of(KeyboardInterrupt())
    return EndedEarly(f"ended by {name}", 128 + signal.Signals[name])


@contextmanager
def timer_kept() -> Iterator[None]:
    """Let ``--timeout`` go on counting after an object: between its intent and its outcome it does not count."""
    left, begun = signal.getitimer(signal.ITIMER_REAL)[0], time.monotonic()
    yield
    if left:
        signal.setitimer(signal.ITIMER_REAL, max(left - (time.monotonic() - begun), 0.001))


class Confirmed:
    """Stands for a person who has confirmed all objects at once."""

    def confirm_key(self, _key: bytes) -> bool:
        return True

    def confirm_lost(self, _declared: str) -> bool:
        return True


class Dealt(Protocol):
    """What became of one object."""

    @property
    def outcome(self) -> ChangeOutcome:
        """As of every change."""
        ...


D = TypeVar("D", bound=Dealt)


class Account(msgspec.Struct, Generic[D], kw_only=True):
    """What a run has told so far.

    Attributes:
        dry_run: Nothing is to be changed.
        objects: What became of each, in the order in which they were dealt with.
    """

    dry_run: bool
    objects: list[D] = []
    run: RunOptions = RunOptions()

    def ended(self, ending: EndedEarly) -> EndedEarly:
        """Return an early end as one that has a result, where there is one."""
        if not self.objects:
            return ending
        return EndedEarly(ending.reason, ending.exit_code, changed=not self.dry_run)

    def common_fields(self, error: EtcdfixError | None, exit_code: int) -> dict[str, Any]:
        """Return what the published reports of all such runs have in common."""
        last = self.objects[-1].outcome if self.objects else None
        return {
            "tool": TOOL,
            "generated_at": timestamp(),
            "dry_run": self.dry_run,
            "refusal": None if error is None else refusal_by(error),
            **(audit_fields(last) if last is not None else {}),
            "follow_ups": [*self._follow_ups(last)],
            "exit_code": exit_code,
        }

    def _follow_ups(self, last: ChangeOutcome | None) -> Iterator[FollowUp]:
        if last is not None and last.result is not None:
            yield from settling(last, self.run)
            yield FollowUp("Look again", scan())
