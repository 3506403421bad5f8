"""``etcdfix report diff``: two nights compared."""

from __future__ import annotations

from pathlib import Path

import click

from etcdfix.cli.command import Command
from etcdfix.cli.exit_codes import ExitCode, reader_codes
from etcdfix.cli.options import FILE, report_options
from etcdfix.cli.output import say, say_incomplete
from etcdfix.cli.report_place import report_place
from etcdfix.commands.diff_reports import diff_reports
from etcdfix.inputs.inputfile import STANDARD_INPUT
from etcdfix.text.commands import RunOptions

_CODES = reader_codes(
    "nothing new",
    "the later report has new findings",
    usage="usage error, or the reports cannot be read or compared",
    incomplete="a report is incomplete, or they are of two clusters (wins over 1)",
    source="",
)


@click.command("diff", cls=Command, epilog=_CODES)
@click.argument("earlier", type=FILE)
@click.argument("later", type=FILE)
@report_options()
def command(*, earlier: Path, later: Path, output: str, output_file: Path | None) -> int:
    """Say what is new, gone or changed between two saved reports of etcdfix scan. It reads only these files.

    Write both with -o json or -o jsonl, for the same cluster and the same scope. A finding has changed where its
    outcome, its cause or its value differs. Readable values and keys that hold no object are not compared.

    Two reports of different scopes or storage prefixes are refused.
    """
    if earlier == later == STANDARD_INPUT:
        raise click.UsageError("- is standard input, and only one of the reports can come from there")
    with report_place(output_file, [earlier, later], output) as place:
        report = diff_reports(earlier, later)
        place.show(report, RunOptions())
    if report.later.generated_at < report.earlier.generated_at:
        say("the second report is older than the first one: name the earlier report first")
    say_incomplete(report.incomplete_reasons)
    return ExitCode.INCOMPLETE if not report.complete else ExitCode.FINDINGS if report.counts.new else 0
