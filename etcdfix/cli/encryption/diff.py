"""``etcdfix encryption diff``: what several EncryptionConfigurations do otherwise."""

from __future__ import annotations

from pathlib import Path

import click

from etcdfix.cli.command import Command
from etcdfix.cli.exit_codes import ENDED_EARLY, ExitCode, epilog
from etcdfix.cli.options import FILE
from etcdfix.cli.output_options import report_options
from etcdfix.cli.report_place import report_place
from etcdfix.operations.look.encryption.diff import diff_files
from etcdfix.report.formats.configurations import DIFF_FORMATS

MEANINGS: dict[ExitCode, str] = {
    ExitCode.NOTHING_WRONG: "the files read and write alike",
    ExitCode.FINDINGS: "they differ",
    ExitCode.USAGE: "usage error, or API servers would refuse one of the files",
    **ENDED_EARLY,
}


@click.command("diff", cls=Command, epilog=epilog(MEANINGS))
@click.argument("files", type=FILE, nargs=-1, required=True, metavar="FILE FILE...")
@report_options(DIFF_FORMATS)
def command(*, files: tuple[Path, ...], output: str, output_file: Path | None) -> int:
    """Say what EncryptionConfigurations do otherwise: those of control-plane nodes, or one before and after a change.

    Resource by resource, by fingerprints: which key writes, which ones read. Above all, whether one file writes what
    another one cannot read. Reads the files alone, and shows no key material.
    """
    with report_place(output_file, files, output) as place:
        report = diff_files(files)
        place.write(DIFF_FORMATS, report)
    return ExitCode.FINDINGS if report.differences else ExitCode.NOTHING_WRONG
