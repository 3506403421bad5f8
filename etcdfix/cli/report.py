"""``etcdfix report``: what is made of saved reports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from etcdfix.cli.command import Group
from etcdfix.cli.look import ExitCode, report_place
from etcdfix.cli.options import FILE, report_options
from etcdfix.cli.output import say, say_incomplete
from etcdfix.commands.render_report import open_saved
from etcdfix.commands.saved_reports import diff_reports, merge_reports
from etcdfix.inputs.inputfile import STANDARD_INPUT
from etcdfix.report.render import SCAN_FORMS


@click.group("report", cls=Group)
def command() -> None:
    """Show a saved report in another form, compare two, or merge many into one.

    These commands do not ask etcd, and change nothing.
    """


@command.command("render")
@click.argument("file", type=FILE)
@report_options(tuple(SCAN_FORMS))
def render(*, file: Path, output: str, **options: Any) -> int:
    """Write a saved report in another form.

    Save the report of any command with -o json. A scan may also be saved with -o jsonl, and can be written in every
    form. doctor, encryption check and encryption what-if have junit too.
    """
    with open_saved(file) as saved:
        if output not in saved.forms:
            forms = ", ".join(saved.forms)
            raise click.UsageError(f"a {saved.struct.__name__} has no -o {output}; it has {forms}")
        with report_place({**options, "output": output}, [file]) as place:
            report = saved.write(lambda run: SCAN_FORMS[output](place.stream, run))
            place.wrote(report)
    reasons = getattr(report, "incomplete_reasons", [])
    say_incomplete(reasons)
    return ExitCode.INCOMPLETE if reasons else ExitCode.NOTHING_WRONG


@command.command("diff")
@click.argument("earlier", type=FILE)
@click.argument("later", type=FILE)
@report_options()
def diff(*, earlier: Path, later: Path, **options: Any) -> int:
    """Show what is new, gone or changed between two saved reports of etcdfix scan.

    Save both with -o json or -o jsonl, for the same cluster and the same scope. A finding has changed if its outcome,
    its cause or its value differs. Readable values, and keys that hold no object, are not compared.
    """
    if earlier == later == STANDARD_INPUT:
        raise click.UsageError("- is standard input, and only one of the reports can come from there")
    with report_place(options, [earlier, later]) as place:
        found = diff_reports(earlier, later)
        place.show(found)
    if found.later.generated_at < found.earlier.generated_at:
        say("the second report is older than the first one: name the earlier report first")
    say_incomplete(found.incomplete_reasons)
    return ExitCode.INCOMPLETE if not found.complete else ExitCode.FINDINGS if found.counts.new else 0


@command.command("merge")
@click.argument("files", type=FILE, nargs=-1, required=True, metavar="FILE...")
@report_options()
def merge(*, files: tuple[Path, ...], **options: Any) -> int:
    """Show the saved reports of many clusters as one list, one row a report.

    Save each with etcdfix scan -o json or -o jsonl. The exit code is the worst of all rows.
    """
    with report_place(options, files) as place:
        merged = merge_reports(files)
        place.show(merged)
    say_incomplete(f"{one.report}: {one.reason}" for one in merged.left_out)
    return merged.exit_code
