"""``etcdfix copies``: every copy that still exists of what cannot be read, or was deleted lately."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from etcdfix.cli.cluster_index import nothing_examined
from etcdfix.cli.command import Command
from etcdfix.cli.exit_codes import ENDED_EARLY, ExitCode, epilog, report_exit_code
from etcdfix.cli.opened import open_all
from etcdfix.cli.options import FILE, jobs_option, reading_options, source_options, what_to_read
from etcdfix.cli.output import say_incomplete
from etcdfix.cli.output_options import report_options
from etcdfix.cli.places import record_paths
from etcdfix.cli.progress import progress_of
from etcdfix.cli.scope import scope_options, wanted_scope
from etcdfix.cli.where_else import our_record_options, where_else_options, where_to_look
from etcdfix.commands.copies import CopiesRequest, find_copies
from etcdfix.copies.model import Place
from etcdfix.examine_jobs import Jobs
from etcdfix.operations.opening import open_candidates, without_candidates
from etcdfix.report.saved_report import load_report

MEANINGS: dict[ExitCode, str] = {
    ExitCode.NOTHING_WRONG: "every object has a good copy, or none is unreadable or was deleted",
    ExitCode.FINDINGS: "an object has no good copy: doubtful ones alone, or none",
    ExitCode.USAGE: "usage or configuration error; the report is of another cluster",
    ExitCode.INCOMPLETE: "a place could not be looked into, something is undetermined or was lost (wins over 1)",
    ExitCode.SOURCE: "source unreachable or unreadable: nothing was examined",
    **ENDED_EARLY,
}


@click.command("copies", cls=Command, epilog=epilog(MEANINGS))
@scope_options
@click.option(
    "--from-report",
    type=FILE,
    metavar="FILE",
    help="Look for what this report of etcdfix scan found (-o json or jsonl), instead of scanning.",
)
@where_else_options
@our_record_options
@source_options
@reading_options
@jobs_option
@report_options()
def command(
    *,
    scope: tuple[str, ...],
    namespaces: tuple[str, ...],
    all_namespaces: bool,
    from_report: Path | None,
    output: str,
    output_file: Path | None,
    jobs: Jobs,
    **options: Any,
) -> int:
    """Find every copy that still exists of what cannot be read, or was deleted lately. Reads only.

    Run it before you delete anything. Of each object the best copy comes first; -o wide has the command that puts
    each back. GOOD: it reads, and is proven to be of this object. DOUBTFUL: it reads, and something is not certain.
    UNUSABLE: it does not read, or is of another object.

    It always looks at what etcd, the snapshot or kine still keeps, and at our backups. API servers compact etcd every
    five minutes, so look soon. --in and --kubeconfig name more places; a log or snapshot counts only where it has the
    same history as what is stored now.

    Name keys, resources or key prefixes as for scan, or nothing for everything. A key that you name is shown even if
    its value reads.
    """
    wanted = wanted_scope(scope, namespaces, all_namespaces=all_namespaces)
    if from_report is not None and not wanted.everything:
        raise click.UsageError("--from-report names the objects already: leave the others out")
    report = load_report(from_report) if from_report is not None else None
    records, places = record_paths(options), where_to_look(options)
    inputs, configuration = what_to_read(
        options, scope=wanted, keys=report.findings if report is not None else ()
    )
    candidates = [named.path for named in places.of(Place.CANDIDATE)]
    request = CopiesRequest(
        **inputs.reading_fields(configuration, api=places.api, places=records),
        scope=wanted,
        report=report,
        places=places,
        records=records,
    )
    besides = (from_report, *(named.path for named in places.named))
    today = without_candidates(inputs, candidates)
    with (
        open_all(today, output_file, output, configuration, besides=besides) as (source, place, plugins),
        open_candidates(source, inputs, candidates) as others,
    ):
        result = find_copies(
            source, request, plugins=plugins, candidates=others, progress=progress_of(source), jobs=jobs
        )
        if result.nothing_there:
            nothing_examined(
                request.layout, result.report.incomplete_reasons, result.ended, result.suggested_prefixes
            )
        say_incomplete(result.report.incomplete_reasons)
        place.show(result.report, request.run)
    return report_exit_code(result.report, result.ended)
