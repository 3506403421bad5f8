"""Tells what a change came to, or a run over several objects, as text or as one document; a refusal too."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from types import TracebackType
from typing import Self

from etcdfix.cli.options import TEXT
from etcdfix.cli.output import HABITS, say, say_lines, show_change
from etcdfix.cli.safety import change_exit_code
from etcdfix.errors import EtcdfixError
from etcdfix.operations.change.report import follow_ups, outcome_report, refusal_report
from etcdfix.remediation.audit.record import Verb
from etcdfix.remediation.commit import ChangeOutcome
from etcdfix.remediation.preflight.deletion import Preflight
from etcdfix.storagekey import display
from etcdfix.text.commands import Command, RunOptions
from etcdfix.text.safetext import safe_text


class Teller:
    """Tells what a change came to. As a context manager it tells an error as well, which then goes on."""

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
            report = refusal_report(self._verb, self.key, error, dry_run=self._dry_run)
            show_change(report, self._output, RunOptions())
        except Exception as exc:  # noqa: BLE001 - the error itself is told in any case
            say(f"no document could be written ({type(exc).__name__})")

    def tell(
        self,
        outcome: ChangeOutcome,
        run: RunOptions,
        deleted: Preflight | None = None,
        *,
        unread: bool = False,
    ) -> int:
        """Tell an outcome; return the exit code."""
        assert self.key is not None  # else there would be no outcome
        self._told = True
        code = change_exit_code(outcome)
        try:
            report = outcome_report(
                self._verb,
                self.key,
                outcome,
                run,
                exit_code=code,
                deleted=deleted,
                unread=unread,
                again=_again(HABITS.words),
            )
            show_change(report, self._output, run)
        except Exception as exc:  # noqa: BLE001 - the change is made: it must be told one way or the other
            say(f"no document could be written ({type(exc).__name__}); what it came to:")
            say_lines(map(safe_text, _facts(self.key, outcome)))
            with suppress(Exception):  # what failed may fail again, and the exit code must stay
                for step in follow_ups(self._verb, self.key, outcome, run, unread=unread):
                    say_lines(map(safe_text, [f"{step.what}:", f"  {step.command.line(run)}"]))
        return code


def _again(words: Iterable[str]) -> Command:
    """Return a command as it was typed, but for ``--dry-run`` and passwords."""
    kept, rest = ["etcdfix"], iter(words)
    for word in rest:
        option, equals, value = word.partition("=")
        if option in {"--user", "--password"}:
            value = value if equals else next(rest, "")
            kept += [option, value.partition(":")[0]] if option == "--user" else []
        elif word != "--dry-run":
            kept.append(word)
    return Command(tuple(kept))


def _facts(key: bytes, outcome: ChangeOutcome) -> Iterator[str]:
    yield f"{'DRY RUN' if outcome.result is None else outcome.result.upper()} {display(key)}"
    if outcome.revision:
        yield f"Revision {outcome.revision}"
    yield from filter(None, (outcome.detail, *outcome.warnings))
    yield from (f"Backup {path}" for path in outcome.backups)
    yield from (f"Its value {digest}" for digest in outcome.values)
    yield f"Audit log {outcome.audit_log}, head {outcome.head or 'unknown: the outcome is not recorded'}"
