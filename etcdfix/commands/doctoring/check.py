"""How checks are made: their text is valid Unicode, and of bounded length."""

from __future__ import annotations

from functools import partial
from typing import Final

from etcdfix.errors import EtcdfixError
from etcdfix.remediation.audit.record import unicode_text
from etcdfix.report.doctor import Check, State
from etcdfix.sources.etcd.failures import CallFailed
from etcdfix.text.commands import NO_COMMAND, Command
from etcdfix.text.words import fit

_LONGEST: Final = 1000


def _check(state: State, name: str, what: str, next_step: str = "", command: Command = NO_COMMAND) -> Check:
    return Check(
        name, state, unicode_text(fit(what, _LONGEST)), unicode_text(fit(next_step, _LONGEST)), command
    )


ok, warn, fail, unknown = (partial(_check, state) for state in State)
"""Each makes a check in one state; all but ``ok`` say what to do next."""


def told_by(name: str, state: State, error: EtcdfixError | CallFailed, *, otherwise: str) -> Check:
    """Return a check in the words of an error; ``otherwise`` is the next step where it has no hint."""
    said = error.failure if isinstance(error, CallFailed) else error
    return _check(state, name, said.message, said.hint or otherwise)
