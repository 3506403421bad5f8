"""``--metrics-file``: whatever becomes of a scan, the file says it; what stands there never looks newer than it is."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from etcdfix.cli.options import FILE, Command
from etcdfix.cli.output import say
from etcdfix.cli.variables import variable_of
from etcdfix.errors import EndedEarly, EtcdfixError, why
from etcdfix.inputs.inputfile import STANDARD_INPUT
from etcdfix.inputs.outputfile import PublicFile
from etcdfix.interruptions import interruptions_held
from etcdfix.reports.formats.metrics import (
    BEGINNING,
    MOST_BYTES,
    Examined,
    ScanMetrics,
    cluster_name_in,
    last_complete_in,
    metrics_text,
)
from etcdfix.reports.origin import shown_word
from etcdfix.text.notes import Note
from etcdfix.text.times import unix_seconds

if TYPE_CHECKING:
    from etcdfix.operations.look.scan import ScanResult

_OPTION: Final = "--metrics-file"
_SUFFIX: Final = ".prom"
_FAILED: Final = 3

_option = click.option(
    _OPTION, type=FILE, metavar="FILE", envvar=variable_of(_OPTION),
    help="Write counts, time and result here too, for the textfile collector of Prometheus' node_exporter: replaced as "
    "a whole, also where the scan fails. No names of objects stand in it.",
)  # fmt: skip


class Attempt:
    """What is known of a scan by the time it ends."""

    def __init__(self) -> None:
        self.result: ScanResult | None = None
        self.seconds: float | None = None

    def take(self, result: ScanResult, *, seconds: float | None = None) -> None:
        """Take what a scan came to.

        Args:
            result: It.
            seconds: How long it took; None for as long as this command.
        """
        self.result = result
        self.seconds = seconds


def with_metrics_file(command: Command) -> Command:
    """Add the option; the command gets an ``attempt`` to which it tells its result, and returns its exit code."""

    @functools.wraps(command)
    def run(*, metrics_file: Path | None, **options: Any) -> int:
        attempt = Attempt()
        if metrics_file is None:
            return int(command(attempt=attempt, **options))
        _refuse(metrics_file, options)
        given = (value if isinstance(value, tuple) else (value,) for value in options.values())
        inputs = [value for value in chain.from_iterable(given) if isinstance(value, Path)]
        started = time.monotonic()
        with PublicFile(
            metrics_file, inputs, option=_OPTION, begins_with=BEGINNING, most_bytes=MOST_BYTES
        ) as file:
            if metrics_file.suffix != _SUFFIX:
                say(Note(f"{_OPTION} {metrics_file}: node_exporter reads only files that end with {_SUFFIX}"))

            # Of which cluster shards are, they say; where they cannot be read, the earlier file does.
            named = "cluster_name" in options
            cluster_name = (
                shown_word(options["cluster_name"] or "") if named else cluster_name_in(file.before)
            )

            def put(exit_code: int) -> None:
                took = time.monotonic() - started
                with interruptions_held(only_first=True):
                    file.put(metrics_text(_metrics(attempt, exit_code, took, cluster_name, file.before)))

            with _told_at_any_end(put, metrics_file):
                code = int(command(attempt=attempt, **options))
            put(code)
        return code

    return _option(run)


@contextmanager
def _told_at_any_end(put: Callable[[int], None], path: Path) -> Iterator[None]:
    """Have an attempt that does not come to its end in the file too; it ends as it would have."""
    try:
        yield
    except BaseException as exc:
        try:
            put(_exit_code(exc))
        except (OSError, EtcdfixError) as problem:
            reason = why(problem) if isinstance(problem, OSError) else str(problem)
            say(f"{_OPTION} {path}: {reason}; what stands there is of an earlier scan")
        raise


def _refuse(path: Path, options: dict[str, Any]) -> None:
    """Refuse what has no metrics, and a place that is none.

    Raises:
        click.UsageError: It is that.
    """
    if options.get("shard") is not None:
        raise click.UsageError(f"{_OPTION} and --shard do not go together: give it to report merge")
    if options.get("fleet"):
        raise click.UsageError(f"{_OPTION} and --fleet do not go together: the file is of one cluster")
    if path == STANDARD_INPUT:
        raise click.UsageError(f"{_OPTION} - is no file: what others read again and again has a name")
    output_file: Path | None = options.get("output_file")
    if output_file is not None and output_file.resolve() == path.resolve():
        raise click.UsageError(f"{_OPTION} and --output-file name the same file")


def _exit_code(exc: BaseException) -> int:
    if isinstance(exc, EtcdfixError | click.ClickException):
        return exc.exit_code
    return EndedEarly.of(exc).bare_exit_code if isinstance(exc, KeyboardInterrupt) else _FAILED


def _metrics(attempt: Attempt, exit_code: int, took: float, cluster_name: str, before: bytes) -> ScanMetrics:
    result = attempt.result
    if result is None:
        return ScanMetrics(
            cluster_name=cluster_name,
            ended_at=int(time.time()),
            seconds=took,
            exit_code=exit_code,
            complete=False,
            reached_end=False,
            last_complete=last_complete_in(before, cluster_name),
        )
    source = result.source
    cluster_name = source.cluster_name
    # Of merged shards anybody may have written the time: none is newer than now.
    ended_at = min(unix_seconds(result.finished_at), int(time.time()))
    examined = Examined(
        source=source,
        scope="past" if result.revision else "part" if result.scope.limits else "everything",
        snapshot_at=unix_seconds(source.file_modified_at) if source.file_modified_at else None,
        summary=result.summary,
        new=result.new,
    )
    return ScanMetrics(
        cluster_name=cluster_name,
        ended_at=ended_at,
        seconds=took if attempt.seconds is None else attempt.seconds,
        exit_code=exit_code,
        complete=result.complete,
        reached_end=result.reached_end,
        last_complete=ended_at if result.complete else last_complete_in(before, cluster_name),
        examined=examined if result.below_prefix and (result.summary.keys or result.complete) else None,
    )
