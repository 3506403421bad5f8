"""What the commands impact, namespace and orphans share: options, the pass over everything, and last words."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeVar

import click
import msgspec

from etcdfix.cli.exit_codes import ExitCode
from etcdfix.cli.opened import open_all
from etcdfix.cli.options import what_to_read
from etcdfix.cli.output import say, say_incomplete, say_other_prefixes
from etcdfix.cli.progress import progress_of
from etcdfix.cli.report_place import ReportPlace
from etcdfix.errors import EndedEarly
from etcdfix.examine_jobs import Jobs
from etcdfix.operations.look.index_cluster import ClusterIndex, ClusterIndexRequest, Keep, index_cluster
from etcdfix.operations.opening import Inputs
from etcdfix.storagekey import StorageLayout

if TYPE_CHECKING:
    from etcdfix.encryption.kms.plugins import KMSPlugins
    from etcdfix.sources.base import Source

T = TypeVar("T")


class OpenedCluster(NamedTuple):
    """What is looked at as a whole, and where the report goes."""

    inputs: Inputs
    request: ClusterIndexRequest
    source: Source
    place: ReportPlace
    plugins: KMSPlugins | None

    def look_at_all(self, keep: Keep, jobs: Jobs) -> ClusterIndex:
        """Look at everything; where nothing lies below the storage prefix, say so and end the command.

        Raises:
            SourceError: Nothing could be read.
        """
        found = index_cluster(
            self.source,
            self.request,
            keep=keep,
            plugins=self.plugins,
            progress=progress_of(self.source),
            jobs=jobs,
        )
        if not found.below_prefix:
            nothing_examined(self.request.layout, found.index.problems, found.ended, found.suggested_prefixes)
        return found


@contextlib.contextmanager
def open_cluster(options: dict[str, Any], output_file: Path | None, form: str) -> Iterator[OpenedCluster]:
    """Open what is looked at, and where the report goes.

    Raises:
        ConfigurationError: Options make no sense.
        SourceError: Nothing can be read.
    """
    inputs, configuration = what_to_read(options, each_from_its_own=True)
    request = ClusterIndexRequest(
        **inputs.reading_fields(configuration),
    )
    with open_all(inputs, output_file, form, configuration) as (source, place, plugins):
        yield OpenedCluster(inputs, request, source, place, plugins)


def report_on(found: ClusterIndex, make: Callable[[ClusterIndex], T]) -> tuple[ClusterIndex, T]:
    """Return what a report is made of, and the report; ended early, it is made once more of what is known by then."""
    try:
        return found, make(found)
    except KeyboardInterrupt as exc:
        ended = EndedEarly.of(exc)
    found.index.problems.append(f"{ended.reason} before the end")
    found = msgspec.structs.replace(found, ended=ended)
    return found, make(found)


def nothing_examined(
    layout: StorageLayout,
    problems: Sequence[str],
    ended: EndedEarly | None,
    suggested_prefixes: Sequence[str],
) -> NoReturn:
    """Say that nothing was examined, and why that may be; end the command."""
    if problems:
        say_incomplete(problems)
        say(f"NOTHING WAS EXAMINED: no key below {layout.prefix} was seen, and not everything could be read")
        click.get_current_context().exit(ExitCode.SOURCE if ended is None else ended.bare_exit_code)
    say(f"NOTHING WAS EXAMINED: no key starts with {layout.prefix}")
    say_other_prefixes(suggested_prefixes)
    click.get_current_context().exit(ExitCode.SOURCE if ended is None else ended.exit_code)


def nothing_found(found: ClusterIndex) -> NoReturn:
    """End the command without a report: no file takes the place of an earlier one."""
    code = int(ExitCode.INCOMPLETE if found.index.problems else ExitCode.SOURCE)
    click.get_current_context().exit(code if found.ended is None else found.ended.exit_code)


def exit_code(found: ClusterIndex, *, complete: bool, findings: bool) -> int:
    """Return the exit code of a report: an incomplete one is never 0 or 1."""
    if found.ended is not None:
        return found.ended.exit_code
    if not complete:
        return ExitCode.INCOMPLETE
    return ExitCode.FINDINGS if findings else ExitCode.NOTHING_WRONG
