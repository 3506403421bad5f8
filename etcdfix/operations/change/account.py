"""What a run over several objects has told so far, and what all such runs say in their end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from etcdfix.errors import EndedEarly, EtcdfixError
from etcdfix.operations.change.preview import audit_line, settling
from etcdfix.operations.change.report import audit_fields, refusal_by
from etcdfix.remediation.commit import ChangeOutcome
from etcdfix.report.model import FollowUp
from etcdfix.report.origin import TOOL, timestamp
from etcdfix.text.commands import RepeatedOptions


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
        again: Options that commands must repeat; None where it ended before they were read.
    """

    dry_run: bool
    objects: list[D] = []
    again: RepeatedOptions | None = None

    @property
    def last(self) -> ChangeOutcome | None:
        """What became of the object that was dealt with last; None before the first."""
        return self.objects[-1].outcome if self.objects else None

    def ended(self, ending: EndedEarly) -> EndedEarly:
        """Return an early end as one that has a result, where there is one."""
        if not self.objects:
            return ending
        return EndedEarly(ending.reason, ending.exit_code, changed=not self.dry_run)

    def last_lines(self) -> Iterator[str]:
        """Yield where the records are, and the commands for afterwards."""
        if self.last is not None:
            yield audit_line(self.last)
        for follow_up in self._follow_ups():
            yield f"{follow_up.what}: {follow_up.command}"

    def common_fields(self, error: EtcdfixError | None, exit_code: int) -> dict[str, Any]:
        """Return what the published reports of all such runs have in common.

        Args:
            error: What stopped it; None where nothing was raised.
            exit_code: Of the command.
        """
        return {
            "tool": TOOL,
            "generated_at": timestamp(),
            "dry_run": self.dry_run,
            "refusal": None if error is None else refusal_by(error),
            **(audit_fields(self.last) if self.last is not None else {}),
            "follow_ups": list(self._follow_ups()),
            "exit_code": exit_code,
        }

    def _follow_ups(self) -> Iterator[FollowUp]:
        last, again = self.last, self.again
        if last is not None and last.result is not None and again is not None:
            yield from settling(last, again)
            yield FollowUp("Look again", again.scan_of())
