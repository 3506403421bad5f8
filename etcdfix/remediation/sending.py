"""How a change that is not a transaction of ours is sent: an API server is asked to write, and etcd is looked at again.

Backup, record of the intent and record of the outcome are those of every change (:mod:`~etcdfix.remediation.commit`);
a sender stands where the transaction would be.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from etcdfix.errors import EtcdfixError
from etcdfix.remediation.audit.record import Result
from etcdfix.remediation.durable import Step
from etcdfix.remediation.writer import Expected


class Sent(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a change that somebody else was asked to make.

    Attributes:
        result: For the record; ``unknown`` leaves the intent open.
        detail: One sentence, for the record too: nothing of any object's contents.
        doubtful: It was made, and something about it is not as it should be.
        refusal: To be raised once the outcome is recorded; None where the change was made, or may have been.
    """

    result: Result
    detail: str
    revision: int = 0
    warnings: tuple[str, ...] = ()
    doubtful: bool = False
    refusal: EtcdfixError | None = None


class Sender(Protocol):
    """Asks once for one change, and finds out what became of it."""

    def send(self, expected: Expected, *, step: Step) -> Sent:
        """Ask for the change if the key stands as examined; never raises for what goes wrong on the way."""
        ...
