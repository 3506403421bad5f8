"""``etcdfix scan``: the main job."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import click

from etcdfix.cli.command import Command
from etcdfix.cli.exit_codes import MEANINGS, epilog, scan_exit_code
from etcdfix.cli.fail_on import fail_on_option
from etcdfix.cli.last_words import say_last_words
from etcdfix.cli.of_list import of_list
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
from etcdfix.operations.look.shards import ShardRequest
from etcdfix.operations.opening import Inputs, open_plugins, open_source
from etcdfix.reports.baseline import load_baseline
from etcdfix.reports.formats import SCAN_FORMATS

_SHARD: Final = re.compile(r"([1-9][0-9]{0,3})/([1-9][0-9]{0,3})")


def _shard(_context: click.Context, _parameter: click.Parameter, text: str | None) -> ShardRequest | None:
    """Return which shard ``I/N`` means."""
    if text is None:
        return None
    found = _SHARD.fullmatch(text)
    if found is None or int(found[1]) > int(found[2]):
        raise click.BadParameter(f"{text!r} is no shard: give I/N, as 1/4 to 4/4, of at most 9999")
    return ShardRequest(int(found[1]), int(found[2]))


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
@of_list
@click.option(
    "--shard",
    metavar="I/N",
    callback=_shard,
    envvar="ETCDFIX_SHARD",
    help="Look at part I of N of the keys in scope, I counted from 1; of a --snapshot alone. Save each report with "
    "-o json or -o jsonl, then: etcdfix report merge.",
)
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
    shard: ShardRequest | None,
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
    if shard is not None:
        _check_divisible(inputs)
    request = ScanRequest(
        **inputs.reading_fields(configuration),
        scope=wanted,
        max_causes=max_causes,
        baseline=load_baseline(baseline) if baseline is not None else None,
        shard=shard,
    )
    inputs_used = (*read_files(inputs), options.get("clusters"), baseline)
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
    say_last_words(result, fail_on, of_shard=shard is not None)
    return int(scan_exit_code(result, fail_on))


def _check_divisible(inputs: Inputs) -> None:
    """Refuse what shards cannot be made of.

    Raises:
        click.UsageError: There is no snapshot, or what is made of it could not be merged.
    """
    if inputs.snapshot is None:
        raise click.UsageError(
            "--shard needs --snapshot FILE: what is read from a live etcd or from kine is not the same for every shard"
        )
    if inputs.salvage:
        raise click.UsageError(
            "--shard and --salvage do not go together: a salvaged file is never whole, and no merge of its parts is"
        )
