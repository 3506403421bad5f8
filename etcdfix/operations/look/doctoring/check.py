"""How checks are made: their text is valid Unicode, and of bounded length."""

from __future__ import annotations

from typing import Final

from etcdfix.errors import EtcdfixError
from etcdfix.remediation.audit.record import unicode_text
from etcdfix.report.doctor import Check, State
from etcdfix.sources.etcd.failures import CallFailed
from etcdfix.text.commands import NO_COMMAND, Command
from etcdfix.text.words import fit

_LONGEST: Final = 1000


def ok(name: str, what: str) -> Check:
    """Return that nothing is wrong."""
    return _check(name, State.OK, what)


def warn(name: str, what: str, next_step: str, command: Command = NO_COMMAND) -> Check:
    """Return that something is not as it should be, although work can go on."""
    return _check(name, State.WARN, what, next_step, command)


def fail(name: str, what: str, next_step: str, command: Command = NO_COMMAND) -> Check:
    """Return that something would not work."""
    return _check(name, State.FAIL, what, next_step, command)


def unknown(name: str, what: str, next_step: str, command: Command = NO_COMMAND) -> Check:
    """Return that it could not be told."""
    return _check(name, State.UNKNOWN, what, next_step, command)


def told_by(name: str, state: State, error: EtcdfixError | CallFailed, *, otherwise: str) -> Check:
    """Return a check in the words of an error."""
    said = error.failure if isinstance(error, CallFailed) else error
    return _check(name, state, said.message, said.hint or otherwise)


def _check(name: str, state: State, what: str, next_step: str = "", command: Command = NO_COMMAND) -> Check:
    return Check(
        name,
        state,
        unicode_text(fit(what, _LONGEST)),
        unicode_text(fit(next_step, _LONGEST)),
        command,
    )
