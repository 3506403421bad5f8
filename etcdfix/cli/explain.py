"""``etcdfix explain``: what a cause means, how it is proven, and what to do."""

from __future__ import annotations

from pathlib import Path

import click

from etcdfix.cli.exit_codes import ExitCode, epilog
from etcdfix.inputs.outputfile import destination
from etcdfix.operations.look.explain_cause import cause_list, cause_page, named_cause
from etcdfix.reports.formats.causes import CAUSE_FORMATS

MEANINGS: dict[ExitCode, str] = {
    ExitCode.NOTHING_WRONG: "explained",
    ExitCode.USAGE: "usage error; also a cause that does not exist",
}


@click.command("explain", epilog=epilog(MEANINGS))
@click.argument("word", metavar="[CAUSE]", default="")
@click.option("-o", "--output", "output", type=click.Choice(list(CAUSE_FORMATS)), default="text", show_default=True,
              envvar="ETCDFIX_OUTPUT", help="Form of the page.")  # fmt: skip
@click.option("--output-file", type=click.Path(path_type=Path), metavar="FILE", envvar="ETCDFIX_OUTPUT_FILE",
              help="Write to this file instead of standard output.")  # fmt: skip
def command(*, word: str, output: str, output_file: Path | None) -> int:
    """Explain a cause: what you see, what it means, how to be sure, what to do, how to undo it.

    CAUSE is a word of a report, such as wrong-key. Without it, all causes are listed. Nothing is read but what is
    installed: no etcd and no network are needed.
    """
    document = cause_page(named_cause(word)) if word else cause_list()
    with destination(output_file, ()) as stream:
        CAUSE_FORMATS[output](document, stream)
        stream.flush()
    return ExitCode.NOTHING_WRONG
