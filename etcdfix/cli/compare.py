"""``etcdfix compare``: the same keys on every member, or at two points in time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from etcdfix.cli.command import Command
from etcdfix.cli.exit_codes import ENDED_EARLY, ExitCode, epilog, report_exit_code
from etcdfix.cli.opened import open_all
from etcdfix.cli.options import FILE, etcd_data_options, reading_options, what_to_read
from etcdfix.cli.output import say, say_incomplete, say_other_prefixes
from etcdfix.cli.output_options import report_options
from etcdfix.cli.progress import progress_of
from etcdfix.cli.scope import scope_options, wanted_scope
from etcdfix.commands.compare import CompareRequest, compare_members, compare_sources
from etcdfix.errors import ConfigurationError
from etcdfix.report.origin import shown_word
from etcdfix.sources.live import LiveSource
from etcdfix.sources.snapshot import SnapshotSource

MEANINGS: dict[ExitCode, str] = {
    ExitCode.NOTHING_WRONG: "nothing differs",
    ExitCode.FINDINGS: "something differs, even if not everything could be compared",
    ExitCode.USAGE: "usage or configuration error",
    ExitCode.INCOMPLETE: "nothing differs, and not everything could be compared: a member did not answer",
    ExitCode.SOURCE: "source unreachable or unreadable: nothing was compared",
    **ENDED_EARLY,
}


@click.command("compare", cls=Command, epilog=epilog(MEANINGS))
@scope_options
@click.option(
    "--with-snapshot", type=FILE, metavar="FILE",
    help="Compare with this earlier snapshot instead of member with member: what was added, removed and changed, and "
    "what can no longer be read.",
)  # fmt: skip
@etcd_data_options
@reading_options
@report_options()
def command(
    *,
    scope: tuple[str, ...],
    namespaces: tuple[str, ...],
    all_namespaces: bool,
    with_snapshot: Path | None,
    output: str,
    output_file: Path | None,
    **options: Any,
) -> int:
    """Say which keys are not the same on every member of a live etcd, or at two points in time. Reads only.

    Every key in scope is read from each member by itself, and the copies of a key that differ are examined.

    With --with-snapshot FILE, an earlier snapshot is compared with the live etcd or with another snapshot:
    etcdfix compare --with-snapshot monday.db --snapshot tuesday.db

    Name resources, key prefixes or keys as for scan, or nothing for everything.
    """
    wanted = wanted_scope(scope, namespaces, all_namespaces=all_namespaces)
    inputs, configuration = what_to_read(options, scope=wanted)
    if inputs.snapshot is not None and with_snapshot is None:
        raise ConfigurationError(
            "a snapshot is the copy of one member: there is nothing to compare it with",
            hint="name an earlier one with --with-snapshot FILE, or the live etcd with --endpoints",
        )
    request = CompareRequest(**inputs.reading_fields(configuration), scope=wanted, revision=inputs.revision)
    besides = (with_snapshot,)
    with open_all(inputs, output_file, output, configuration, besides=besides) as (source, place, plugins):
        if with_snapshot is None:
            assert isinstance(source, LiveSource)  # what open_source gives without a snapshot
            result = compare_members(source, request, say=say, plugins=plugins, progress=progress_of(source))
        else:
            with SnapshotSource(with_snapshot, salvage=inputs.salvage) as earlier:
                result = compare_sources(
                    earlier,
                    source,
                    request,
                    earlier_path=shown_word(str(with_snapshot)),
                    plugins=plugins,
                    progress=progress_of(source),
                )
        place.show(result.report, request.run)
    say_incomplete(result.report.incomplete_reasons)
    if result.nothing_there and result.ended is None:
        say(f"NOTHING WAS COMPARED: no key starts with {request.layout.prefix}")
        say_other_prefixes(())
        return ExitCode.SOURCE
    return report_exit_code(result.report, result.ended)
