"""``etcdfix scan``: the main job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from etcdfix.cli.command import Command
from etcdfix.cli.exit_codes import MEANINGS, epilog, scan_exit_code
from etcdfix.cli.fail_on import fail_on_option
from etcdfix.cli.last_words import say_last_words
from etcdfix.cli.opened import read_files
from etcdfix.cli.options import FILE, jobs_option, reading_options, source_options, what_to_read
from etcdfix.cli.output import say
from etcdfix.cli.output_options import form_option, output_file_option
from etcdfix.cli.progress import progress_of
from etcdfix.cli.report_place import report_place
from etcdfix.cli.scope import scope_options, wanted_scope
from etcdfix.examine_jobs import Jobs
from etcdfix.model import Outcome
from etcdfix.operations.look.scan import ScanRequest, run_scan
from etcdfix.operations.opening import open_plugins, open_source
from etcdfix.reports.baseline import load_baseline
from etcdfix.reports.formats import SCAN_FORMATS


@click.command("scan", cls=Command, epilog=epilog(MEANINGS))
@scope_options
@source_options
@reading_options
@jobs_option
@form_option(SCAN_FORMATS)
@output_file_option("Write the report here instead of standard output.")
@click.option(
    "--max-causes",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    metavar="N",
    envvar="ETCDFIX_MAX_CAUSES",
    help="Rows of the table and causes of each Status; counts are never capped.",
)
@click.option(
    "--baseline",
    type=FILE,
    metavar="REPORT",
    envvar="ETCDFIX_BASELINE",
    help="An earlier json or jsonl report, - for standard input: what it knows (same key, outcome and value) does not "
    "count towards the exit code.",
)
@fail_on_option
def command(
    *,
    scope: tuple[str, ...],
    namespaces: tuple[str, ...],
    all_namespaces: bool,
    keys: tuple[str, ...],
    output: str,
    output_file: Path | None,
    max_causes: int,
    baseline: Path | None,
    fail_on: tuple[Outcome, ...],
    jobs: Jobs,
    **options: Any,
) -> int:
    """Examine everything in scope, and report what cannot be read and why. Reads only.

    Name resources as at kubectl (secrets, po,svc, deploy.apps), objects (TYPE/NAME), key prefixes (they start with /
    and match whole path segments), or nothing for everything. Without -n it is every namespace. Without
    --snapshot or --kine a live etcd is read; ETCDCTL_* variables are understood, and each option has an ETCDFIX_*
    variable of its own.
    """  # fmt: skip
    wanted = wanted_scope(scope, namespaces, keys, all_namespaces=all_namespaces)
    inputs, configuration = what_to_read(options, each_from_its_own=True)
    request = ScanRequest(
        **inputs.reading_fields(configuration),
        scope=wanted,
        max_causes=max_causes,
        baseline=load_baseline(baseline) if baseline is not None else None,
    )
    inputs_used = (*read_files(inputs), baseline)
    with (
        open_source(inputs, say=say) as source,
        report_place(output_file, inputs_used, output) as place,
    ):
        reporter = place.listening(SCAN_FORMATS[output](place.stream, max_causes))
        reporter.heed(fail_on)
        with open_plugins(inputs, configuration) as plugins:
            result = run_scan(
                source,
                request,
                reporter,
                plugins=plugins,
                progress=progress_of(source),
                jobs=jobs,
            )
    say_last_words(result, fail_on)
    return int(scan_exit_code(result, fail_on))
