"""Makes changes in processes of their own, which die, stand still or get a signal at a step of one's choice.

One process does the imports and forks for each change, before there is any connection (gRPC and fork do not mix), so
that hundreds of deaths take seconds. ``python -m tests.faults.dying_delete`` takes orders and gives answers as JSON,
one per line; :class:`Mortals` is the other end.
"""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self
from unittest import mock

import msgspec

from etcdfix.model.errors import EtcdfixError, RefusedByRule
from etcdfix.remediation.audit.log import AuditLog
from etcdfix.remediation.commit import ChangeOutcome
from etcdfix.remediation.durable import Step
from tests.support.audit_logs import delete_with, own_directory
from tests.support.backups import prune_all
from tests.support.remediation_ground import Ground, delete, fix, undo

_BROKEN = 70

STAND_STILL = 0
"""Instead of a signal: say so, and wait to be told to go on."""


class Order(msgspec.Struct, kw_only=True):
    """One change.

    Attributes:
        change: Names one of :data:`CHANGES`.
        ground: Where.
        subject: Key, path of a backup, or ``KEY@PLACE`` of what is put back.
        at: Number or name of the step at which something happens; None for none.
        sent: The signal that arrives there, or :data:`STAND_STILL`.
        timeout_seconds: For one answer of etcd.
    """

    change: str
    ground: Ground
    subject: str
    at: int | str | None = None
    sent: int = signal.SIGKILL
    timeout_seconds: float = 10.0


class Answer(msgspec.Struct, kw_only=True):
    """How a change ended.

    Attributes:
        steps: That were announced; something happened at the last one if it did not go on from there.
        signal: That ended it, 0 for none.
        result: Of its outcome, "" for none.
        warnings: Of its outcome.
        error: Class of the exception that ended it, "" for none.
        rule: That refused, "" for none.
        exit_code: That the exception stands for.
        message: Of the exception, or the detail of the outcome.
    """

    steps: list[str] = []
    signal: int = 0
    result: str = ""
    warnings: tuple[str, ...] = ()
    error: str = ""
    rule: str = ""
    exit_code: int = 0
    message: str = ""


def _delete(order: Order, step: Step) -> ChangeOutcome:
    key = os.fsencode(order.subject)
    return delete(order.ground, key, step, command_timeout_seconds=order.timeout_seconds)


def _undo(order: Order, step: Step) -> ChangeOutcome:
    return undo(order.ground, Path(order.subject), step, command_timeout_seconds=order.timeout_seconds)


def _fix(order: Order, step: Step) -> ChangeOutcome:
    key, _, source = order.subject.rpartition("@")
    seconds = order.timeout_seconds
    return fix(order.ground, os.fsencode(key), source, step, command_timeout_seconds=seconds)


CHANGES: dict[str, Callable[[Order, Step], ChangeOutcome | None]] = {
    "delete": _delete,
    "undo": _undo,
    "fix": _fix,
    # Without an etcd, in a folder.
    "files: delete": lambda order, step: delete_with(Path(order.subject), step),
    "files: reopen": lambda order, step: AuditLog.open(
        Path(order.subject) / "audit.jsonl", step=step
    ).close(),
    "files: prune": lambda order, step: prune_all(Path(order.subject), step),
}


class Mortals:
    """Starts the process that forks, and gives it orders, one after the other."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.dying_delete"],
            cwd=Path(__file__).parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        with self._process.stdout:
            self._process.stdout.read()  # a test that failed has not heard everything
        assert self._process.wait() == 0

    def run(self, order: Order) -> Answer:
        """Have a change made, and wait for its end."""
        self.start(order)
        return self.end()

    def start(self, order: Order) -> int:
        """Have a change begun; return the id of its process."""
        self._say(msgspec.json.encode(order))
        return int(self._hear())

    def still(self) -> None:
        """Wait until the change that was begun stands still."""
        told = self._hear()
        assert told == b'"still"', told

    def go_on(self) -> None:
        """Let it go on."""
        self._say(b"")

    def end(self) -> Answer:
        """Wait until the change that was begun is over."""
        return msgspec.json.decode(self._hear(), type=Answer)

    def _say(self, line: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + b"\n")
        self._process.stdin.flush()

    def _hear(self) -> bytes:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the process that forks has ended"
        return line.rstrip(b"\n")


def killed_at_every_step(
    change: str, base: Path, prepare: Callable[[Path], object]
) -> Iterator[tuple[str, Path]]:
    """Make a change to files once for each of its steps, killed there; yield the step's name and what was left.

    The last one yielded is a run that lived ("").
    """
    nowhere = Ground(endpoints=(), prefix="", encryption="", folder="")
    with Mortals() as mortals:
        for number in itertools.count():
            folder = own_directory(base / f"{number:03}")
            for directory in ("one", "two"):
                own_directory(folder / directory)
            prepare(folder)
            answer = mortals.run(Order(change=change, ground=nowhere, subject=str(folder), at=number))
            assert answer.error == ""
            yield (answer.steps[-1] if answer.signal else ""), folder
            if not answer.signal:
                return


def _serve() -> None:
    # Unbuffered: the child reads a line too, when it stands still.
    while line := _read_line():
        order = msgspec.json.decode(line, type=Order)
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.close(reader)
                _live(order, writer)
                os._exit(0)
            finally:
                traceback.print_exc()
                os._exit(_BROKEN)
        os.close(writer)
        _tell(b"%d" % child)
        with os.fdopen(reader, "rb") as told:
            lines = told.read().splitlines()
        _, status = os.waitpid(child, 0)
        ended = lines.pop() if lines and lines[-1].startswith(b"{") else b"{}"
        answer = msgspec.json.decode(ended, type=Answer)
        answer.steps = [line.decode() for line in lines]
        answer.signal = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        if not answer.signal and os.waitstatus_to_exitcode(status):
            answer.error = "the change ended in an exception that it should not"
        _tell(msgspec.json.encode(answer))


def _live(order: Order, writer: int) -> None:
    """Make the change in this process."""
    count = 0

    def step(name: str) -> None:
        nonlocal count
        os.write(writer, name.encode() + b"\n")
        if order.at in {count, name}:
            order.at = None  # a name may come again
            if order.sent == STAND_STILL:
                _tell(b'"still"')
                _read_line()
            else:
                os.kill(os.getpid(), order.sent)
        count += 1

    try:
        with mock.patch("os.fsync"):  # who is killed loses nothing that was written, synced or not
            outcome = CHANGES[order.change](order, step)
        answer = Answer()
        if outcome is not None:
            answer = Answer(result=outcome.result or "", warnings=outcome.warnings, message=outcome.detail)
    except EtcdfixError as exc:
        rule = exc.rule if isinstance(exc, RefusedByRule) else ""
        answer = Answer(error=type(exc).__name__, rule=rule, exit_code=exc.exit_code, message=exc.message)
    except KeyboardInterrupt:
        answer = Answer(error="KeyboardInterrupt", exit_code=130)
    os.write(writer, msgspec.json.encode(answer) + b"\n")


def _read_line() -> bytes:
    line = b""
    while not line.endswith(b"\n") and (byte := os.read(0, 1)):
        line += byte
    return line


def _tell(line: bytes) -> None:
    os.write(1, line + b"\n")


if __name__ == "__main__":
    _serve()
