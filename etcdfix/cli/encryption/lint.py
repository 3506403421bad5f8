"""``etcdfix encryption lint``: what is wrong with an EncryptionConfiguration."""

from __future__ import annotations

from pathlib import Path

import click

from etcdfix.cli.command import Command
from etcdfix.cli.exit_codes import ENDED_EARLY, ExitCode, epilog
from etcdfix.cli.options import FILE
from etcdfix.cli.output_options import report_options
from etcdfix.cli.report_place import report_place
from etcdfix.operations.look.encryption.lint import lint_file
from etcdfix.report.formats.configurations import LINT_FORMATS

_LEVELS = ("error", "warning", "advice")
MEANINGS: dict[ExitCode, str] = {
    ExitCode.NOTHING_WRONG: "no error and no warning; there may be advice",
    ExitCode.FINDINGS: "errors or warnings; see --fail-on",
    ExitCode.USAGE: "usage error, or the file cannot be read or decoded",
    **ENDED_EARLY,
}


@click.command("lint", cls=Command, epilog=epilog(MEANINGS))
@click.argument("file", type=FILE)
@click.option(
    "--fail-on", type=click.Choice(_LEVELS), default="warning", show_default=True,
    help="The least bad level that makes the exit code 1.",
)  # fmt: skip
@report_options(LINT_FORMATS)
def command(*, file: Path, fail_on: str, output: str, output_file: Path | None) -> int:
    """Say what is wrong with an EncryptionConfiguration, with line numbers and what to do. Reads the file alone.

    An error is what API servers refuse. A warning is a file that they take and that does not protect, or does not read,
    what it seems to: identity first, secrets in no rule, a key that can be guessed, two keys of one name. The rest is
    advice.
    """
    with report_place(output_file, [file], output) as place:
        report = lint_file(file)
        place.write(LINT_FORMATS, report)
    counted = _LEVELS[: _LEVELS.index(fail_on) + 1]
    found = any(finding.level in counted for finding in report.findings)
    return ExitCode.FINDINGS if found else ExitCode.NOTHING_WRONG
