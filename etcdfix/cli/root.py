"""The command group. Commands are imported when they are called, so that ``--help`` stays quick."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import threading
from typing import Any, Final, NoReturn

import click
from click.core import ParameterSource

from etcdfix.cli.command import Commands, LazyGroup
from etcdfix.cli.ending import ending_early
from etcdfix.cli.output import HABITS, discard_output, end_output, own_habits, say_error, say_refusal
from etcdfix.model.errors import EndedEarly, EtcdfixError, RefusedByRule
from etcdfix.model.secrecy import forbid_core_dumps

COMMANDS: Commands = {
    "Look": {
        "scan": "Examine everything in scope, and report what cannot be read and why.",
        "explain": "Explain one key: what is wrong, every copy, every way out; or a cause.",
        "get": "Show stored objects as YAML or JSON; Secrets are masked.",
        "namespace": "Explain why a namespace cannot finish deleting, and in which order to act.",
        "compare": "Say which keys differ between the members of etcd, or between two moments.",
        "copies": "Find every copy that still exists of what cannot be read, or was deleted lately.",
    },
    "Keys": {
        "encryption": "Show which encryption key is needed, which file opens what, and what a new file would break.",
    },
    "Mend": {
        "plan": "Plan repairs of many objects, or run a plan.",
        "rescue": "Save unreadable objects from the memory of API servers that still run.",
        "fix": "Put the best copy of an object back.",
        "delete": "Delete exactly one key that is proven unreadable, backed up and recorded.",
        "undo": "Put back exactly what a change replaced or deleted.",
    },
    "Record": {
        "log": "Show and verify the audit log and its backups; settle what is open; remove old backups.",
        "report": "Show saved reports in another form, compare two of them, or make one of several.",
    },
    "Check": {
        "doctor": "Check what the other commands rest on: etcd, keys, backups, permissions.",
        "version": "Print the version and the supported releases.",
        "completion": "Print a shell completion script.",
        "schema": "Print the JSON Schema of a report or of an audit record.",
    },
}
"""Each section lists the least destructive command first."""


_INCOMPLETE: Final = 3
"""Whatever ends a command that nobody foresaw."""


class _ReaderGone(Exception):
    """Whoever read our output has gone; under a name of our own, because click exits with 1 on EPIPE."""


class _Ended(Exception):
    """The command ended early; under a name of our own, because click turns every KeyboardInterrupt into one."""

    def __init__(self, ending: EndedEarly) -> None:
        super().__init__(ending.reason)
        self.ending = ending


class _Root(LazyGroup):
    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[:2] == ["help", "options"] and not ctx.resilient_parsing:
            from etcdfix.cli.options import options_page  # noqa: PLC0415 - all options, for this page alone

            click.echo(options_page(ctx))
            ctx.exit()
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as exc:
            raise _ReaderGone from exc
        except KeyboardInterrupt as exc:
            raise _Ended(EndedEarly.of(exc)) from exc
        except click.exceptions.Abort as exc:
            # What came while something was asked at the terminal.
            if isinstance(exc.__context__, KeyboardInterrupt):
                raise _Ended(EndedEarly.of(exc.__context__)) from exc
            raise


@click.group(
    cls=_Root,
    listed=COMMANDS,
    package="etcdfix.cli",
    modules={
        **dict.fromkeys(("delete", "fix", "undo"), "changing"),
        **dict.fromkeys(("compare", "copies", "doctor", "namespace"), "looking"),
        **dict.fromkeys(("version", "completion", "schema"), "about"),
    },
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
def cli() -> None:
    """Find out which Kubernetes objects in etcd cannot be read, why, and how to get them back.

    etcdfix reads a live etcd, a snapshot file, or the SQLite file of k3s, and needs no API server. Only fix, undo,
    delete and plan --run change what is stored: one key at a time, after a backup and with a record.

    etcdfix help options explains the options that commands share.
    """


def main() -> NoReturn:
    """Run the command line; every end has an exit code of the table, and none a traceback."""
    forbid_core_dumps()  # keys and passwords are read later
    threading.excepthook = _thread_died
    code = run(sys.argv[1:])
    end_output()
    threads = sys.modules.get("etcdfix.sources.etcd.threads")  # there once a live etcd was asked
    if threads is not None and threads.anything_stuck():
        os._exit(code)
    gc.freeze()  # what is left goes with the process: to search it for cycles takes as long as half of the imports
    sys.exit(code)


def _thread_died(died: threading.ExceptHookArgs) -> None:
    """Leave it to who waits for a thread, gRPC's too, to say in one line that it died for want of memory."""
    if not issubclass(died.exc_type, MemoryError):
        threading.__excepthook__(died)


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code; errors become one line on standard error, and a hint."""
    with own_habits(), ending_early():
        HABITS.words = tuple(arguments)
        return _run(arguments)


def _run(arguments: list[str]) -> int:
    try:
        result: Any = cli.main(arguments, prog_name="etcdfix", standalone_mode=False)
        if sys.stdout is not None:  # closed by the shell: >&-
            sys.stdout.flush()
    except click.exceptions.Abort:
        return _end_early(EndedEarly.of(KeyboardInterrupt()))
    except _Ended as exc:
        return _end_early(exc.ending)
    except KeyboardInterrupt as exc:
        return _end_early(EndedEarly.of(exc))
    except click.ClickException as exc:
        _blame_the_variable(exc)
        with contextlib.suppress(OSError):
            exc.show()
        return exc.exit_code
    except EtcdfixError as exc:
        if isinstance(exc, RefusedByRule):
            say_refusal(exc)
        else:
            say_error(exc.message, exc.hint)
        return exc.exit_code
    except (_ReaderGone, BrokenPipeError):
        discard_output()
    except OSError as exc:
        discard_output()
        what = f"{exc.strerror} ({exc.filename})" if exc.filename else str(exc.strerror or exc)
        say_error(f"reading or writing failed: {what}", f"{_what_changed()}; the output is incomplete")
    except MemoryError:
        say_error(f"the system gives this process no more memory; {_what_changed()}")
    except Exception as exc:
        if "can't start new thread" in str(exc):
            say_error(f"the system gives this process no more threads; {_what_changed()}")
        elif os.environ.get("ETCDFIX_DEBUG") == "1":
            raise
        else:
            say_error(
                f"internal error ({type(exc).__name__}); {_what_changed()}",
                "please report it with the output of the same command run with ETCDFIX_DEBUG=1; read that output "
                "first, it may name objects of your cluster",
            )
    else:
        return result if isinstance(result, int) else 0
    return _INCOMPLETE


def _end_early(ending: EndedEarly) -> int:
    if ending.reason == "interrupted":
        with contextlib.suppress(OSError):
            click.echo("interrupted", err=True)
    else:
        # No --timeout counts while a change is made, and what was changed before is told.
        at_most_told = "changes reported before that stay" if ending.changed else "nothing was changed"
        say_error(f"{ending.reason}; {at_most_told if ending.by_clock else _what_changed()}")
    return ending.bare_exit_code


def _what_changed() -> str:
    """Say what an unforeseen end leaves behind: a command that changes something keeps a record."""
    if HABITS.changing:
        return (
            "whether anything was changed, the audit log tells: etcdfix log verify FILE, then log settle FILE"
        )
    return "nothing was changed"


def _blame_the_variable(exc: click.ClickException) -> None:
    """Have an error name the variable where a value came from one: nobody typed the option."""
    if not isinstance(exc, click.BadParameter) or exc.ctx is None or exc.param is None:
        return
    if exc.ctx.get_parameter_source(exc.param.name or "") is ParameterSource.ENVIRONMENT:
        exc.param_hint = f"the variable {exc.param.envvar}"
