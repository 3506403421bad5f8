"""``etcdfix report render``: a saved report in another form."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from etcdfix.cli.cluster_index import output_options
from etcdfix.cli.command import Command
from etcdfix.cli.exit_codes import ENDED_EARLY, ExitCode, epilog
from etcdfix.cli.options import FILE
from etcdfix.cli.output import say_incomplete
from etcdfix.cli.report_place import report_place
from etcdfix.inputs.inputfile import STANDARD_INPUT
from etcdfix.inputs.ownfiles import PLAN_KIND
from etcdfix.operations.look.render import SCAN_KIND, kind_of, render_document, render_scan
from etcdfix.report.formats.of_saved import SAVED_KINDS
from etcdfix.report.planfile import load_plan
from etcdfix.report.render import FORMS, SCAN_FORMS
from etcdfix.text.commands import RunOptions

MEANINGS: dict[ExitCode, str] = {
    ExitCode.NOTHING_WRONG: "written, whatever it says",
    ExitCode.USAGE: "usage error, or the file is no report, or it is cut",
    ExitCode.INCOMPLETE: "written, and the report says that it is incomplete",
    **ENDED_EARLY,
}
_FORMS: Final = list(
    dict.fromkeys([*SCAN_FORMS, *FORMS, *(form for one in SAVED_KINDS.values() for form in one.formats)])
)


@click.command("render", cls=Command, epilog=epilog(MEANINGS))
@click.argument("file", type=FILE)
@output_options(_FORMS, help_text="Form to write; which there are, the kind of the report says.")
def command(*, file: Path, output: str, output_file: Path | None, max_rows: int) -> int:
    """Write a saved report in another form. Reads the file alone, and looks at nothing again.

    FILE was written with -o json, by scan with -o jsonl too. A scan takes every form that etcdfix scan has; impact,
    namespace, orphans, copies, compare, and a plan those of their commands.
    """
    if file == STANDARD_INPUT:
        raise click.UsageError("a report is read twice, and standard input only once: save it to a file")
    kind = kind_of(file)
    forms = {SCAN_KIND: SCAN_FORMS, PLAN_KIND: FORMS}.get(kind) or SAVED_KINDS[kind].formats
    if output == "text" and output not in forms:
        output = "table"
    if output not in forms:
        raise click.UsageError(f"a {kind} has no -o {output}; it has {', '.join(forms)}")
    with report_place(output_file, [file], output) as place:
        if kind == SCAN_KIND:
            report = render_scan(file, SCAN_FORMS[output](place.stream, RunOptions(), max_rows))
            reasons = report.incomplete_reasons
            place.sentence = report.document().status.headline
        elif kind == PLAN_KIND:
            plan = load_plan(file)
            reasons = plan.incomplete_reasons
            place.show(plan, RunOptions(), cap=max_rows)
        else:
            reasons = render_document(file, kind, output, place.stream, max_rows)
            place.sum_up(lambda stream: render_document(file, kind, "table", stream, max_rows))
    say_incomplete(reasons)
    return int(ExitCode.INCOMPLETE if reasons else ExitCode.NOTHING_WRONG)
