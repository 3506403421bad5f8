"""``etcdfix report merge``: one report of several."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click

from etcdfix.cli.cluster_index import output_options
from etcdfix.cli.command import Command
from etcdfix.cli.exit_codes import ENDED_EARLY, ExitCode, epilog
from etcdfix.cli.fail_on import fail_on_option
from etcdfix.cli.options import FILE
from etcdfix.cli.output import say_incomplete
from etcdfix.cli.report_place import report_place
from etcdfix.inputs.clusterlist import load_cluster_list
from etcdfix.model import Outcome
from etcdfix.operations.look.fleet import ExpectedReport, expected_of_list, merge_fleet, oldest_of
from etcdfix.reports.fleet_model import FleetReport
from etcdfix.reports.formats.of_lists import FLEET_FORMATS, write_fleet_junit
from etcdfix.reports.model import COUNTED

_JUNIT: Final = "junit"
MEANINGS: dict[ExitCode, str] = {
    ExitCode.NOTHING_WRONG: "nothing wrong in any of them",
    ExitCode.FINDINGS: "findings: decrypt-failure, decode-failure or inconsistent; see --fail-on",
    ExitCode.USAGE: "usage or configuration error",
    ExitCode.INCOMPLETE: "a report lacks or is none, a scan was lost midway, something is undetermined (wins over 1)",
    **ENDED_EARLY,
}


@click.command("merge", cls=Command, epilog=epilog(MEANINGS))
@click.argument("files", type=FILE, nargs=-1, metavar="[FILE ...]")
@click.option(
    "--clusters", type=FILE, metavar="LIST",
    help="A list of the clusters that there should be; each has its report in --reports DIR, as NAME.json. A line is "
    "NAME, SNAPSHOT, CONFIGURATION and BASELINE with one tab between them, - for none.",
)  # fmt: skip
@click.option("--reports", "directory", type=FILE, metavar="DIR", help="Where the reports of --clusters are.")
@click.option(
    "--max-age", metavar="DURATION",
    help="Leave out reports that were made longer ago, and say so: 20h for those of tonight.",
)  # fmt: skip
@fail_on_option
@output_options(list(FLEET_FORMATS))
def command(
    *,
    files: tuple[Path, ...],
    clusters: Path | None,
    directory: Path | None,
    max_age: str | None,
    fail_on: tuple[Outcome, ...],
    output: str,
    output_file: Path | None,
    max_rows: int,
) -> int:
    """Merge saved reports of etcdfix scan, written with -o json or -o jsonl, into one. Reads the files alone.

    They are those of many clusters: a row for each, the worst first. Keys that several clusters use are
    shown side by side, by the digest of a KMS key id or the fingerprint of the bytes; a scan's --baseline says what is
    new.

    A report that lacks, is cut, is none, or does not fit is named, and makes the exit code 3.
    """
    expected = _expected(files, clusters, directory)
    now = datetime.now(UTC)
    oldest = oldest_of(max_age, now) if max_age is not None else None
    with report_place(output_file, [clusters, *(one.path for one in expected)], output) as place:
        report = merge_fleet(expected, oldest=oldest, now=now)
        if output == _JUNIT:
            write_fleet_junit(report, place.stream, max_rows, counted=fail_on)
            place.sum_up(lambda stream: FLEET_FORMATS["table"](report, stream, max_rows))
        else:
            place.write(FLEET_FORMATS, report, max_rows)
    say_incomplete(report.incomplete_reasons)
    return fleet_exit_code(report, fail_on)


def _expected(files: tuple[Path, ...], clusters: Path | None, directory: Path | None) -> list[ExpectedReport]:
    if (clusters is None) != (directory is None):
        raise click.UsageError("--clusters LIST and --reports DIR need each other")
    if clusters is not None and directory is not None:
        if files:
            raise click.UsageError("name either reports, or --clusters LIST and --reports DIR")
        return expected_of_list(load_cluster_list(clusters), directory)
    if not files:
        raise click.UsageError("no report: name FILE ..., or --clusters LIST and --reports DIR")
    return [ExpectedReport(path) for path in files]


def fleet_exit_code(report: FleetReport, fail_on: Collection[Outcome]) -> ExitCode:
    """Map a fleet's report to its exit code; what lacks, or was lost midway, is 3 whatever counts otherwise."""
    new = report.summary.new
    undetermined = bool(new.undetermined) and Outcome.UNDETERMINED in fail_on
    if report.left_out or undetermined or any(row.lost_midway for row in report.clusters):
        return ExitCode.INCOMPLETE
    # What is undetermined and counts has ended it already.
    found = any(getattr(new, COUNTED[outcome]) for outcome in fail_on)
    return ExitCode.FINDINGS if found else ExitCode.NOTHING_WRONG
