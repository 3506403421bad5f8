"""``etcdfix report merge``: the reports of many clusters as one."""

from __future__ import annotations

from pathlib import Path

import click

from etcdfix.cli.command import Command
from etcdfix.cli.exit_codes import reader_codes
from etcdfix.cli.options import FILE, report_options
from etcdfix.cli.output import say_incomplete
from etcdfix.cli.report_place import report_place
from etcdfix.commands.merge_reports import merge_reports
from etcdfix.text.commands import RunOptions

_CODES = reader_codes(
    "nothing is wrong in any report",
    "a report has findings that its baseline did not know",
    usage="usage error",
    incomplete="a report is incomplete or cannot be read (wins over 1)",
    source="no file is a whole report",
)


@click.command("merge", cls=Command, epilog=_CODES)
@click.argument("files", type=FILE, nargs=-1, required=True, metavar="FILE...")
@report_options()
def command(*, files: tuple[Path, ...], output: str, output_file: Path | None) -> int:
    """Show the saved reports of many clusters as one list, a row for each report.

    Save each report with etcdfix scan -o json or -o jsonl. The exit code is the worst of all rows.
    """
    with report_place(output_file, files, output) as place:
        merged = merge_reports(files)
        place.show(merged, RunOptions())
    say_incomplete(f"{one.report}: {one.reason}" for one in merged.left_out)
    return merged.exit_code
