"""``etcdfix copies``: every copy that still exists of what cannot be read, or was deleted lately."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from etcdfix.cli.cluster_index import nothing_examined
from etcdfix.cli.command import Command
from etcdfix.cli.exit_codes import ENDED_EARLY, ExitCode, epilog, report_exit_code
from etcdfix.cli.opened import open_all
from etcdfix.cli.options import FILE, jobs_option, option_group, reading_options, source_options, what_to_read
from etcdfix.cli.output import say_incomplete
from etcdfix.cli.output_options import report_options
from etcdfix.cli.places import record_paths
from etcdfix.cli.progress import progress_of
from etcdfix.cli.safety import api_access, server_options
from etcdfix.cli.scope import scope_options, wanted_scope
from etcdfix.examine_jobs import Jobs
from etcdfix.operations.look.copies import CopiesRequest, find_copies
from etcdfix.report.saved_report import load_report

MEANINGS: dict[ExitCode, str] = {
    ExitCode.NOTHING_WRONG: "every object has a good copy, or none is unreadable or was deleted",
    ExitCode.FINDINGS: "an object has no good copy: doubtful ones alone, or none",
    ExitCode.USAGE: "usage or configuration error; the report is of another cluster",
    ExitCode.INCOMPLETE: "a place could not be looked into, something is undetermined or was lost (wins over 1)",
    ExitCode.SOURCE: "source unreachable or unreadable: nothing was examined",
    **ENDED_EARLY,
}

_place_options = option_group(
    click.option(
        "--from-report", type=FILE, metavar="FILE",
        help="Look for what this report of etcdfix scan found (-o json or jsonl), instead of scanning.",
    ),
    click.option(
        "--wal", "logs", type=FILE, multiple=True, metavar="DIR",
        help="Look into this write-ahead log, too: a member's member/wal, live or copied, with snap/db beside it; one "
        "for each member.",
    ),
    click.option(
        "--older-snapshot", "older_snapshots", type=FILE, multiple=True, metavar="FILE",
        help="Look into this older snapshot, or copied member/snap/db, too (may be repeated).",
    ),
    click.option(
        "--backup-dir", "backup_dirs", type=FILE, multiple=True, metavar="DIR", envvar="ETCDFIX_BACKUP_DIR",
        help="Look into this directory of backups (may be repeated).  [default: that of delete, where there is one]",
    ),
    click.option(
        "--audit-log", type=FILE, metavar="FILE", envvar="ETCDFIX_AUDIT_LOG",
        help="The audit log that knows these backups, and what was rescued.  [default: as for delete]",
    ),
    click.option(
        "--rescued", type=FILE, multiple=True, metavar="DIR",
        help="Look into what etcdfix rescue saved there, too (may be repeated).",
    ),
    click.option(
        "--kubeconfig", type=FILE, metavar="FILE",
        help="Ask API servers, too, what they still hold in memory: names and revisions alone, no contents.",
    ),
    server_options,
)  # fmt: skip


@click.command("copies", cls=Command, epilog=epilog(MEANINGS))
@scope_options
@_place_options
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
    logs: tuple[Path, ...],
    older_snapshots: tuple[Path, ...],
    backup_dirs: tuple[Path, ...],
    audit_log: Path | None,
    rescued: tuple[Path, ...],
    output: str,
    output_file: Path | None,
    jobs: Jobs,
    **options: Any,
) -> int:
    """Find every copy that still exists of what cannot be read, or was deleted lately. Reads only.

    Run it before you delete anything. It prints the copies of each object, the best first, with the command that puts
    each one back (-o wide). GOOD: everything fits. DOUBTFUL: something is not certain. UNUSABLE: it does not read, or
    it is of another object.

    It always looks at the revisions that etcd, the snapshot or kine still keeps; API servers compact etcd every five
    minutes, so look soon. Name logs, older snapshots, saved objects and API servers to look there too. A log or
    snapshot counts only where it has the same history as what is stored now.

    Name keys, resources or key prefixes as for scan, or nothing for everything. A key that you name is shown even if
    its value reads.
    """
    wanted = wanted_scope(scope, namespaces, all_namespaces=all_namespaces)
    if from_report is not None and not wanted.everything:
        raise click.UsageError("--from-report names the objects already: leave the others out")
    report = load_report(from_report) if from_report is not None else None
    api = api_access(options)
    inputs, configuration = what_to_read(
        options, scope=wanted, keys=report.findings if report is not None else ()
    )
    records = record_paths({"backup_dirs": backup_dirs, "audit_log": audit_log})
    request = CopiesRequest(
        **inputs.reading_fields(configuration, api=api, places=records),
        scope=wanted,
        report=report,
        logs=logs,
        older_snapshots=older_snapshots,
        records=records,
        api=api,
        rescued=rescued,
    )
    besides = (from_report, *older_snapshots)
    with open_all(inputs, output_file, output, configuration, besides=besides) as (source, place, plugins):
        result = find_copies(source, request, plugins=plugins, progress=progress_of(source), jobs=jobs)
        if result.nothing_there:
            nothing_examined(
                request.layout, result.report.incomplete_reasons, result.ended, result.suggested_prefixes
            )
        say_incomplete(result.report.incomplete_reasons)
        place.show(result.report, request.run)
    return report_exit_code(result.report, result.ended)
