"""``etcdfix encryption usage``: which encryption key is needed by how many objects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec

from etcdfix.cli.cluster_index import nothing_examined
from etcdfix.cli.command import Command
from etcdfix.cli.exit_codes import ENDED_EARLY, ExitCode, epilog
from etcdfix.cli.opened import open_all
from etcdfix.cli.options import FILE, jobs_option, reading_options, source_options, what_to_read
from etcdfix.cli.output import say, say_incomplete
from etcdfix.cli.output_options import report_options
from etcdfix.cli.places import in_option
from etcdfix.cli.progress import progress_of
from etcdfix.commands.encryption.usage import UsageRequest, encryption_usage
from etcdfix.copies.finder import Named
from etcdfix.copies.model import Place
from etcdfix.examine_jobs import Jobs
from etcdfix.operations.opening import Inputs, open_source

MEANINGS: dict[ExitCode, str] = {
    ExitCode.NOTHING_WRONG: "everything was seen and decided",
    ExitCode.USAGE: "usage or configuration error",
    ExitCode.INCOMPLETE: "something is undetermined, or could not be read",
    ExitCode.SOURCE: "source unreachable or unreadable: nothing was examined",
    **ENDED_EARLY,
}


@click.command("usage", cls=Command, epilog=epilog(MEANINGS))
@click.option(
    "--backup-dir", "backup_dirs", type=FILE, multiple=True, metavar="DIR",
    envvar="ETCDFIX_BACKUP_DIR",
    help="Count the backups of etcdfix in this directory too (may be repeated).",
)  # fmt: skip
@in_option((Place.SNAPSHOT,))
@source_options
@reading_options
@jobs_option
@report_options()
def command(
    *,
    backup_dirs: tuple[Path, ...],
    places: tuple[Named, ...],
    output: str,
    output_file: Path | None,
    jobs: Jobs,
    **options: Any,
) -> int:
    """Show which encryption key is needed by how many objects, and which key you can remove. Reads only.

    The answer holds for this etcd at the revision that was read. No key can be removed that API servers write with, or
    that values, earlier values, backups or snapshots need, or while anything is undetermined or was not read. Name
    every snapshot that you may restore, and one of each other etcd of the cluster (--in).
    """
    inputs, configuration = what_to_read(options, each_from_its_own=True)
    snapshots = tuple(named.path for named in places)
    request = UsageRequest(
        **inputs.reading_fields(configuration),
        overrides={} if inputs.each_from_its_own else inputs.overrides or {},
        overrides_known=inputs.overrides is not None,
        main_not_read=inputs.file is None and bool(inputs.main_endpoints),
        backup_directories=backup_dirs,
        snapshots=snapshots,
    )
    with open_all(inputs, output_file, output, configuration, besides=snapshots) as (source, place, plugins):
        found = encryption_usage(
            source,
            request,
            open_snapshot=lambda path: open_source(_of_snapshot(inputs, path), say=say),
            plugins=plugins,
            progress=progress_of(source),
            jobs=jobs,
        )
        whole, report = found.whole, found.report
        if not whole.below_prefix:
            nothing_examined(request.layout, whole.problems, whole.ended, whole.suggested_prefixes)
        place.show(report, request.run)
    say_incomplete(report.incomplete_reasons)
    if whole.ended is not None:
        return whole.ended.exit_code
    return ExitCode.NOTHING_WRONG if report.complete else ExitCode.INCOMPLETE


def _of_snapshot(inputs: Inputs, path: Path) -> Inputs:
    return msgspec.structs.replace(inputs, snapshot=path, kine=None, revision=0, salvage=False)
