"""``etcdfix report diff``: two nights compared."""

from __future__ import annotations

from pathlib import Path

import click

from etcdfix.cli.cluster_index import output_options
from etcdfix.cli.command import Command
from etcdfix.cli.exit_codes import ENDED_EARLY, ExitCode, epilog
from etcdfix.cli.options import FILE
from etcdfix.cli.output import say, say_incomplete
from etcdfix.cli.report_place import report_place
from etcdfix.inputs.inputfile import STANDARD_INPUT
from etcdfix.operations.look.diff_reports import diff_reports
from etcdfix.report.formats.report_diff import DIFF_FORMATS

MEANINGS: dict[ExitCode, str] = {
    ExitCode.NOTHING_WRONG: "nothing new",
    ExitCode.FINDINGS: "the later report has findings that the earlier one has not",
    ExitCode.USAGE: "usage error, one is no whole report, or they cannot be compared",
    ExitCode.INCOMPLETE: "one is incomplete, or they are of two clusters (wins over 1)",
    **ENDED_EARLY,
}


@click.command("diff", cls=Command, epilog=epilog(MEANINGS))
@click.argument("earlier", type=FILE)
@click.argument("later", type=FILE)
@output_options(list(DIFF_FORMATS))
def command(*, earlier: Path, later: Path, output: str, output_file: Path | None, max_rows: int) -> int:
    """Say what is new, gone or changed between two saved reports of etcdfix scan. Reads the files alone.

    Both were written with -o json or -o jsonl, of the same cluster, configuration and release; what is not the same is
    said. A finding has changed where its outcome, its cause or its value has. Readable values with a warning, and keys
    that hold no object, are left out.

    Two reports of different scopes or storage prefixes are refused.
    """
    if earlier == later == STANDARD_INPUT:
        raise click.UsageError("- is standard input, and only one of the reports can come from there")
    with report_place(output_file, [earlier, later], output) as place:
        report = diff_reports(earlier, later)
        place.write(DIFF_FORMATS, report, max_rows)
    if report.later.generated_at < report.earlier.generated_at:
        say("the report that was named second was made before the first one: is that meant?")
    say_incomplete(report.incomplete_reasons)
    if not report.complete:
        return int(ExitCode.INCOMPLETE)
    return int(ExitCode.FINDINGS if report.counts.new else ExitCode.NOTHING_WRONG)
