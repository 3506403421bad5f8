"""``etcdfix encryption merge``: several EncryptionConfigurations joined to one that reads what any of them reads."""

from __future__ import annotations

from pathlib import Path

import click

from etcdfix.cli.command import Command
from etcdfix.cli.exit_codes import ENDED_EARLY, ExitCode, epilog
from etcdfix.cli.options import FILE
from etcdfix.cli.output import require_output
from etcdfix.cli.output_options import form_option
from etcdfix.inputs.outputfile import destination
from etcdfix.operations.look.encryption.merge import merge_files, require_new
from etcdfix.report.render import FORMS, write
from etcdfix.text.commands import RunOptions

MEANINGS: dict[int, str] = {
    ExitCode.NOTHING_WRONG: "written",
    ExitCode.USAGE: "usage error, API servers would refuse one of the files, or no single file can be made of them",
    4: "the audit log that was named cannot take the record: nothing was written, or the error says what stayed",
    **{int(code): text for code, text in ENDED_EARLY.items()},
}


@click.command("merge", cls=Command, epilog=epilog(MEANINGS))
@click.argument("files", type=FILE, nargs=-1, required=True, metavar="TODAY OTHER...")
@click.option(
    "--output-file", type=FILE, required=True, metavar="FILE", help="The file to make; it must not be there."
)
@click.option(
    "--audit-log", type=FILE, metavar="FILE", envvar="ETCDFIX_AUDIT_LOG",
    help="Record the merge here, or write nothing.  [default: audit.jsonl in /var/lib/etcdfix for root, else in "
    "$XDG_STATE_HOME/etcdfix; without it where that cannot be written, and this is said]",
)  # fmt: skip
@form_option(FORMS, help_text="Form of what is said about it on standard output.")
def command(*, files: tuple[Path, ...], output_file: Path, audit_log: Path | None, output: str) -> int:
    """Join EncryptionConfigurations to one that reads everything that any of them reads, and say what was decided.

    The first file is today's: what writes stays what writes, and what the others have comes after that. Keys of one
    name with different bytes are both kept. Nothing in etcd or on API servers is changed.

    The file holds keys and is made with mode 0600. It is marked: no command of etcdfix changes anything by it, but it
    may be a --candidate-config, and the --encryption-config of every command that only looks.
    """
    require_new(output_file)
    require_output()
    report = merge_files(
        files,
        output_file,
        lambda: destination(output_file, files, private=True),
        audit_log=audit_log.absolute() if audit_log is not None else None,
    )
    with destination(None, ()) as stream:
        write(report, output, stream, RunOptions())
        stream.flush()
    return ExitCode.NOTHING_WRONG
