"""``etcdfix encryption merge``: several EncryptionConfigurations joined to one that reads what any of them reads."""

from __future__ import annotations

from pathlib import Path

import click

from etcdfix.cli.command import Command
from etcdfix.cli.exit_codes import reader_codes
from etcdfix.cli.options import FILE, audit_log_option, form_option
from etcdfix.cli.output import require_output
from etcdfix.commands.encryption.merge import merge_files, require_new
from etcdfix.inputs.outputfile import destination
from etcdfix.report.render import FORMS, write
from etcdfix.text.commands import RunOptions

_CODES = reader_codes(
    "written",
    usage="usage error, API servers would refuse one of the files, or no single file can be made of them",
    incomplete="",
    refused="the audit log that was named cannot take the record: nothing was written, or the error says what stayed",
    source="",
)


@click.command("merge", cls=Command, epilog=_CODES)
@click.argument("files", type=FILE, nargs=-1, required=True, metavar="TODAY OTHER...")
@click.option(
    "--output-file", type=FILE, required=True, metavar="FILE", help="The new file. It must not exist."
)
@audit_log_option(
    "Record the merge here, or write nothing.  [default: audit.jsonl in /var/lib/etcdfix for root, else in "
    "$XDG_STATE_HOME/etcdfix; no record where that cannot be written]"
)
@form_option(FORMS, help_text="Form of what is said about it on standard output.")
def command(*, files: tuple[Path, ...], output_file: Path, audit_log: Path | None, output: str) -> int:
    """Merge EncryptionConfigurations into one file that reads everything that any of them reads.

    Name today's file first: its write keys stay the write keys. The keys of the other files come below them. Two keys
    of one name with different bytes are both kept, and the report says what was decided. Nothing in etcd is changed.

    The new file holds keys and gets mode 0600. You can read with it (--encryption-config, --in candidate:FILE),
    but etcdfix changes nothing while it is the --encryption-config.
    """
    require_new(output_file, audit_log)
    require_output()
    report = merge_files(
        files,
        output_file,
        lambda: destination(output_file, files, private=True),
        audit_log=audit_log,
    )
    with destination(None, ()) as stream:
        write(report, output, stream, RunOptions())
        stream.flush()
    return 0
