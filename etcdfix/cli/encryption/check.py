"""``etcdfix encryption check``: what is wrong with EncryptionConfigurations, and what they do otherwise."""

from __future__ import annotations

from pathlib import Path

import click

from etcdfix.cli.command import Command
from etcdfix.cli.exit_codes import reader_codes
from etcdfix.cli.options import FILE, report_options
from etcdfix.cli.report_place import report_place
from etcdfix.commands.encryption.check import check_files
from etcdfix.report.configurations import LEVELS
from etcdfix.report.render import CASE_FORMS
from etcdfix.text.commands import RunOptions

_CODES = reader_codes(
    "no error and no warning; there may be advice",
    "errors or warnings; see --fail-on",
    usage="usage error, or a file cannot be read or decoded",
    incomplete="",
    source="",
)


@click.command("check", cls=Command, epilog=_CODES)
@click.argument("files", type=FILE, nargs=-1, required=True, metavar="FILE...")
@click.option(
    "--fail-on", type=click.Choice(LEVELS), default="warning", show_default=True,
    help="The least bad level that makes the exit code 1.",
)  # fmt: skip
@report_options(tuple(CASE_FORMS))
def command(*, files: tuple[Path, ...], fail_on: str, output: str, output_file: Path | None) -> int:
    """Check EncryptionConfigurations, and compare them where you name several. Reads the files alone.

    An error is what API servers refuse, or what one file writes and another file cannot read. A warning is a file that
    does not protect, or does not read, what it seems to: identity first, secrets in no rule, a key that can be guessed,
    two keys of one name. The rest is advice. No key material is shown.

    Several files are those of your control-plane nodes, or one file before and after a change. They are compared
    resource by resource, by the fingerprints of the keys that write and read.
    """
    with report_place(output_file, files, output) as place:
        report = check_files(files)
        place.show(report, RunOptions())
    failing = LEVELS[: LEVELS.index(fail_on) + 1]
    return int(any(one.level in failing for one in report.findings))
