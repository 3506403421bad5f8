"""``etcdfix report render``: a saved report in another form."""

from __future__ import annotations

from pathlib import Path

import click

from etcdfix.cli.command import Command
from etcdfix.cli.exit_codes import ExitCode, reader_codes
from etcdfix.cli.options import FILE, report_options
from etcdfix.cli.output import say_incomplete
from etcdfix.cli.report_place import report_place
from etcdfix.commands.render_report import open_saved
from etcdfix.report.document import CAP
from etcdfix.report.render import SCAN_FORMS

_CODES = reader_codes(
    "written, whatever it says",
    usage="usage error, or the file is no report, or it is cut",
    incomplete="written, and the report says that it is incomplete",
    source="",
)


@click.command("render", cls=Command, epilog=_CODES)
@click.argument("file", type=FILE)
@report_options(tuple(SCAN_FORMS))
def command(*, file: Path, output: str, output_file: Path | None) -> int:
    """Write a saved report in another form. It reads only this file.

    Save the report of any command with -o json, a scan also with -o jsonl. A scan has every form. junit is also for
    doctor, encryption check and what-if; csv, name, status and metrics are only for scan.
    """
    with open_saved(file) as saved:
        if output not in saved.forms:
            forms = ", ".join(saved.forms)
            raise click.UsageError(f"a {saved.struct.__name__} has no -o {output}; it has {forms}")
        with report_place(output_file, [file], output) as place:
            report = saved.write(lambda run: SCAN_FORMS[output](place.stream, run, CAP))
            place.wrote(report)
    reasons = getattr(report, "incomplete_reasons", [])
    say_incomplete(reasons)
    return int(ExitCode.INCOMPLETE if reasons else ExitCode.NOTHING_WRONG)
