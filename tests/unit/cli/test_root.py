"""Every end of a command has an exit code and at most two lines; none has a traceback."""

from __future__ import annotations

import errno
import subprocess
import sys
import threading
import types
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NoReturn

import click
import pytest

from etcdfix.cli import root
from etcdfix.cli.look import ExitCode, scan_exit_code
from etcdfix.cli.root import cli, run
from etcdfix.commands.scan import ScanResult
from etcdfix.commands.scanning.pipeline import FAILING
from etcdfix.model import errors
from etcdfix.model.model import Outcome
from etcdfix.report.model import Summary
from etcdfix.sources.errors import NotASnapshot, SourceDenied
from etcdfix.sources.etcd import threads
from tests.support.fixtures import Captured, Patch

Ended = tuple[int, str, str]
RunCommand = Callable[[Callable[[], Any]], Ended]


@pytest.fixture
def run_command(monkeypatch: Patch, capfd: Captured) -> RunCommand:
    """Return a function that runs a command made of the given body, and returns code, stdout, stderr."""

    def run_body(body: Callable[[], Any]) -> Ended:
        module = types.ModuleType("etcdfix.cli.probe")
        module.command = click.command("probe")(body)  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, module.__name__, module)
        monkeypatch.setitem(cli._help, "probe", "A command of this test.")
        monkeypatch.setattr(root, "discard_output", lambda: None)
        code = run(["probe"])
        captured = capfd.readouterr()
        return code, captured.out, captured.err

    return run_body


def raising(error: BaseException) -> Callable[[], NoReturn]:
    def body() -> NoReturn:
        raise error

    return body


@pytest.mark.parametrize(
    ("error", "code", "lines"),
    [
        (errors.ConfigurationError("no such thing"), 2, ["etcdfix: no such thing"]),
        (
            SourceDenied("wrong password", hint="give another"),
            5,
            ["etcdfix: wrong password", "  next: give another"],
        ),
        (NotASnapshot("a\x1b[2J\nb", hint="c\x07"), 5, ["etcdfix: a\\x1b[2J\\nb", "  next: c\\x07"]),
        (KeyboardInterrupt(), 130, ["interrupted"]),
        (errors.EndedEarly("ended by SIGTERM", 143), 143, ["etcdfix: ended by SIGTERM; nothing was changed"]),
        (errors.EndedEarly("ended by --timeout 1s", 3, 5), 5,
         ["etcdfix: ended by --timeout 1s; nothing was changed"]),
        (MemoryError(), 3, ["etcdfix: the system gives this process no more memory; nothing was changed"]),
        (RuntimeError("can't start new thread"), 3,
         ["etcdfix: the system gives this process no more threads; nothing was changed"]),
        (click.exceptions.Abort(), 130, ["interrupted"]),
        (PermissionError(errno.EACCES, "Permission denied", "/x\n"), 3,
         ["etcdfix: reading or writing failed: Permission denied (/x\\n)",
          "  next: nothing was changed; the output is incomplete"]),
        (BrokenPipeError(errno.EPIPE, "Broken pipe"), 3, []),
    ],
    ids=["configuration", "source", "hostile", "ctrl-c", "sigterm", "time-out", "memory", "threads",
         "abort", "denied", "pipe"],
)  # fmt: skip
def test_errors_are_a_line_and_a_hint(
    run_command: RunCommand, error: BaseException, code: int, lines: list[str]
) -> None:
    found, out, err = run_command(raising(error))
    assert (found, out) == (code, "")
    assert [line for line in err.splitlines() if line] == lines


def test_internal_errors_show_no_traceback_and_no_data(run_command: RunCommand, monkeypatch: Patch) -> None:
    monkeypatch.delenv("ETCDFIX_DEBUG", raising=False)
    code, out, err = run_command(raising(RuntimeError("secret-from-a-value")))
    assert (code, out) == (3, "")
    assert "secret-from-a-value" not in err
    assert "Traceback" not in err
    assert err.startswith("etcdfix: internal error (RuntimeError); nothing was changed\n  next: ")
    assert "ETCDFIX_DEBUG=1" in err


def test_internal_errors_are_raised_when_asked_for(run_command: RunCommand, monkeypatch: Patch) -> None:
    monkeypatch.setenv("ETCDFIX_DEBUG", "1")
    with pytest.raises(RuntimeError, match="what happened"):
        run_command(raising(RuntimeError("what happened")))


def test_help_imports_no_command() -> None:
    code = (
        "import sys; from etcdfix.cli.root import run; run(['--help']);"
        "print(sorted(m for m in sys.modules if m in "
        "{'grpc', 'yaml', 'cryptography', 'etcdfix.commands.scan', 'google.protobuf'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_signal_while_something_is_asked(run_command: RunCommand) -> None:
    def body() -> NoReturn:
        try:
            raise errors.EndedEarly("ended by SIGTERM", 143)
        except KeyboardInterrupt:
            raise click.exceptions.Abort from None  # as click's prompt does

    code, out, err = run_command(body)
    assert (code, out, err) == (143, "", "etcdfix: ended by SIGTERM; nothing was changed\n")


def test_what_never_ends_does_not_hold_up_the_end(monkeypatch: Patch) -> None:
    """Python's own end would wait for gRPC, which stands still."""
    ended: list[int] = []

    def leave(code: int) -> NoReturn:
        ended.append(code)
        raise SystemExit

    monkeypatch.setattr(threads, "_stuck", [threading.Thread()])
    monkeypatch.setattr(root, "run", lambda _arguments: 5)
    monkeypatch.setattr(root, "forbid_core_dumps", lambda: None)
    monkeypatch.setattr("os._exit", leave)
    with pytest.raises(SystemExit):
        root.main()
    assert ended == [5]


BAD = {Outcome.DECRYPT_FAILURE: 1, Outcome.INCONSISTENT: 0}
DOUBTFUL = {Outcome.UNDETERMINED: 1}
NOTHING = errors.SourceError("no key starts with /registry/")
TERMINATED = errors.EndedEarly("ended by SIGTERM", 143)
TIMED_OUT = errors.EndedEarly("ended by --timeout 1s", 3, 5)


def result(**changes: Any) -> ScanResult:
    fields: dict[str, Any] = {
        "new": {}, "problems": [],
    }  # fmt: skip
    summary = changes.pop("summary", Summary(keys=10, readable=10))
    report: Any = SimpleNamespace(summary=summary)
    return ScanResult(report=report, **(fields | changes))


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({}, ExitCode.NOTHING_WRONG),
        ({"new": BAD}, ExitCode.FINDINGS),
        ({"new": DOUBTFUL}, ExitCode.INCOMPLETE),
        ({"problems": ["page 7"]}, ExitCode.INCOMPLETE),
        ({"new": BAD | DOUBTFUL}, ExitCode.INCOMPLETE),
        ({"new": BAD, "problems": ["page 7"]}, ExitCode.INCOMPLETE),
        ({"nothing": NOTHING}, ExitCode.SOURCE),
        ({"nothing": NOTHING, "problems": ["page 7"]}, ExitCode.SOURCE),
        ({"problems": ["denied"], "summary": Summary()}, ExitCode.SOURCE),
        ({"ended": errors.EndedEarly.of(KeyboardInterrupt())}, ExitCode.INTERRUPTED),
        ({"ended": TERMINATED}, ExitCode.TERMINATED),
        ({"ended": TERMINATED, "new": BAD, "problems": ["page 7"]}, ExitCode.TERMINATED),
        ({"ended": TIMED_OUT, "new": BAD}, ExitCode.INCOMPLETE),
        ({"ended": TIMED_OUT, "summary": Summary()}, ExitCode.SOURCE),
    ],
)
def test_exit_code_of_a_scan(changes: dict[str, Any], code: ExitCode) -> None:
    assert scan_exit_code(result(**changes)) == code


@pytest.mark.parametrize(
    ("fail_on", "new", "code"),
    [
        (FAILING, BAD | DOUBTFUL, ExitCode.INCOMPLETE),
        ((Outcome.DECRYPT_FAILURE,), BAD | DOUBTFUL, ExitCode.FINDINGS),
        ((Outcome.INCONSISTENT,), BAD | DOUBTFUL, ExitCode.NOTHING_WRONG),
        ((Outcome.UNDETERMINED,), BAD | DOUBTFUL, ExitCode.INCOMPLETE),
        ((Outcome.UNDETERMINED,), BAD, ExitCode.NOTHING_WRONG),
        ((), BAD | DOUBTFUL, ExitCode.NOTHING_WRONG),
    ],
)
def test_outcomes_can_be_chosen(
    fail_on: tuple[Outcome, ...], new: dict[Outcome, int], code: ExitCode
) -> None:
    assert scan_exit_code(result(new=new), fail_on) == code


def test_what_was_lost_counts_whatever_was_chosen() -> None:
    assert scan_exit_code(result(problems=["page 7"]), ()) == ExitCode.INCOMPLETE
    assert scan_exit_code(result(ended=TERMINATED), ()) == ExitCode.TERMINATED
    assert scan_exit_code(result(nothing=NOTHING), ()) == ExitCode.SOURCE


def test_numbers_are_those_of_the_contract() -> None:
    assert {code.name: code.value for code in ExitCode} == {
        "NOTHING_WRONG": 0, "FINDINGS": 1, "USAGE": 2, "INCOMPLETE": 3, "SOURCE": 5, "HUNG_UP": 129,
        "INTERRUPTED": 130, "TERMINATED": 143,
    }  # fmt: skip
