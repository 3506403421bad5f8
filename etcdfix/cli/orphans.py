"""``etcdfix orphans``: keys that belong to nobody."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from etcdfix.cli.cluster_index import exit_code, open_cluster, report_on
from etcdfix.cli.command import Command
from etcdfix.cli.exit_codes import ENDED_EARLY, ExitCode, epilog
from etcdfix.cli.options import jobs_option, reading_options, source_options
from etcdfix.cli.output import say_incomplete
from etcdfix.cli.output_options import report_options
from etcdfix.examine_jobs import Jobs
from etcdfix.operations.look.orphans import orphans_report

MEANINGS: dict[ExitCode, str] = {
    ExitCode.NOTHING_WRONG: "every key belongs to somebody",
    ExitCode.FINDINGS: "some keys belong to nobody",
    ExitCode.USAGE: "usage or configuration error",
    ExitCode.INCOMPLETE: "something is undetermined, or the source was lost midway (wins over 1)",
    ExitCode.SOURCE: "source unreachable or unreadable: nothing was examined",
    **ENDED_EARLY,
}


@click.command("orphans", cls=Command, epilog=epilog(MEANINGS))
@source_options
@reading_options
@jobs_option
@report_options()
def command(*, output: str, output_file: Path | None, jobs: Jobs, **options: Any) -> int:
    """List keys that belong to nobody, with counts and sizes. Reads only.

    Keys whose owners are all gone, whose CustomResourceDefinition or Namespace no longer exists, which no resource of
    any known release claims, or which lie outside the storage prefix. Nothing here is a reason to delete anything.
    """
    with open_cluster(options, output_file, output) as opened:
        found = opened.look_at_all(lambda _found: False, jobs)
        found, report = report_on(found, orphans_report)
        opened.place.show(report, opened.request.run)
    say_incomplete(report.incomplete_reasons)
    return exit_code(found, complete=report.complete, findings=bool(report.groups))
