"""Tells what a change came to, or a run over several objects, as text or as one document; a refusal too."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import msgspec

from etcdfix.cli.output import say, say_lines, show_outcome
from etcdfix.cli.output_options import form_option
from etcdfix.cli.safety import change_exit_code
from etcdfix.errors import EndedEarly, EtcdfixError
from etcdfix.operations.change.account import Account
from etcdfix.operations.change.preview import outcome_lines
from etcdfix.operations.change.report import outcome_report, refusal_report
from etcdfix.remediation.audit.record import Result, Verb
from etcdfix.remediation.commit import ChangeOutcome
from etcdfix.report.formats.machine import document_text
from etcdfix.report.model import ChangeReport
from etcdfix.text.commands import RepeatedOptions

A = TypeVar("A", bound=Account[Any])

TEXT: Final = "text"
change_output_option = form_option(
    [TEXT, "json", "yaml"],
    help_text="Form of what it came to, a refusal too. The preview stands on standard error in any form.",
)


class Teller:
    """Tells what a change came to. As a context manager it tells an error as well, which then goes on.

    Args:
        verb: What is done.
        output: As named by ``-o``.
        dry_run: Nothing is to be changed.

    Attributes:
        key: Which etcd key, as soon as that is known.
    """

    def __init__(self, verb: Verb, output: str, *, dry_run: bool) -> None:
        self._verb = verb
        self._output = output
        self._dry_run = dry_run
        self._told = False
        self.key: bytes | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if self._output == TEXT or self._told or not isinstance(error, EtcdfixError):
            return
        try:
            _show(self._refusal(error), self._output)
        except Exception as exc:  # noqa: BLE001 - the error itself is told in any case
            say(f"no document could be written ({type(exc).__name__})")

    def tell(
        self,
        done: Result,
        outcome: ChangeOutcome,
        again: RepeatedOptions,
        more: Sequence[str] = (),
        *,
        unread: bool = False,
    ) -> int:
        """Tell an outcome, with further lines where it is told as text; return the exit code.

        Args:
            done: What it is called when all goes well.
            outcome: What it came to.
            again: Options that commands must repeat.
            more: Further lines.
            unread: An encrypted value was put back without a configuration.
        """
        assert self.key is not None  # else there would be no outcome
        self._told = True
        code = change_exit_code(outcome)
        lines = [*outcome_lines(self.key, done, outcome, again, unread=unread), *more]
        if self._output == TEXT:
            show_outcome(lines)
            return code
        try:
            report = outcome_report(
                self._verb,
                self.key,
                done,
                outcome,
                again,
                exit_code=code,
                unread=unread,
            )
            _show(report, self._output)
        except Exception as exc:  # noqa: BLE001 - the change is made: it must be told one way or the other
            say(f"no document could be written ({type(exc).__name__}); what it came to:")
            say_lines(lines)
            return code
        self.add(more)
        return code

    def add(self, lines: Iterable[str]) -> None:
        """Tell what was seen afterwards: after the document on standard error, so that the document stays one."""
        if self._output == TEXT:
            show_outcome(lines)
            return
        with contextlib.suppress(OSError):  # what counts was told
            say_lines(lines)

    def _refusal(self, error: EtcdfixError) -> ChangeReport:
        return refusal_report(self._verb, self.key, error, dry_run=self._dry_run)


def tell_run(
    output: str,
    account: A,
    work: Callable[[], bool],
    *,
    lines: Callable[[A], Iterable[str]],
    report: Callable[[A, EtcdfixError | None, int], msgspec.Struct],
) -> int:
    """Do a run, and tell what the whole of it came to, where it stops or is ended too; return the exit code.

    Args:
        output: As named by ``-o``.
        account: What it has told so far; the run goes on with it.
        work: The run; returns whether everything went as it should.
        lines: Makes of the account what ends the text.
        report: Makes of it, of the error that stopped the run, and of the exit code what is published.
    """

    def end(code: int, error: EtcdfixError | None = None) -> None:
        if output != TEXT:
            _show(report(account, error, code), output)
        elif account.objects or error is None:
            show_outcome(lines(account))

    try:
        well = work()
    except EtcdfixError as exc:
        end(int(exc.exit_code), exc)
        raise
    except KeyboardInterrupt as exc:
        ended = account.ended(EndedEarly.of(exc))
        end(ended.bare_exit_code)
        raise ended from exc
    code = 0 if well else 3
    end(code)
    return code


def _show(report: msgspec.Struct, output: str) -> None:
    show_outcome(document_text(report, output).splitlines())
