"""``etcdfix backup``: what backups there are, whether all is as the audit log says, and removing old ones."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

import click

from etcdfix.cli.command import ChangingCommand, Group
from etcdfix.cli.confirm import Terminal
from etcdfix.cli.exit_codes import codes
from etcdfix.cli.look import record_paths, report_place
from etcdfix.cli.options import (
    TEXT,
    accept_option,
    audit_log_option,
    backup_dirs_option,
    change_output_option,
    option_group,
    report_options,
    syslog_option,
    timeout_option,
)
from etcdfix.cli.output import require_output, show_change, show_preview
from etcdfix.commands.backups import list_backups
from etcdfix.errors import EtcdfixError
from etcdfix.rules import Rule
from etcdfix.text.commands import RunOptions

_LIST_CODES = codes(
    "every backup is whole and what the audit log says, and none is missing",
    "something is wrong or missing",
    "something cannot be told (1 wins over it)",
    source="a directory cannot be listed",
)
_PRUNE_CODES = codes(
    "removed, or the dry run would; or none was old enough",
    incomplete="a file could not be removed, or an outcome not be recorded",
    refused="a rule keeps a backup that is old enough (the others are removed), or nothing was removed at all",
    source="a directory or the audit log cannot be read; nothing was removed",
)

_places: Final = option_group(backup_dirs_option, audit_log_option, timeout_option)


@click.group("backup", cls=Group)
def command() -> None:
    """List and check backups, remove old ones.

    A backup holds the stored bytes of one key, as they were in etcd: plaintext, where they were plaintext there.
    """


@command.command("list", epilog=_LIST_CODES)
@_places
@report_options()
def list_command(**options: Any) -> int:
    """Show every backup, and check that they are whole, safe, what the audit log says, and all there.

    Each file's digests, owner and mode; its record in the audit log, by sequence, hash and path; and each record's
    backups. Secrets that are stored as plaintext come first. Writes nothing.
    """
    with report_place(options, []) as place:
        listed = list_backups(record_paths(options))
        place.show(listed)
    return listed.exit_code


@command.command("prune", cls=ChangingCommand, epilog=_PRUNE_CODES)
@_places
@change_output_option
@click.option("--older-than", required=True, metavar="AGE|DATE",
              help="Remove backups of more than this age (12w, 90d, 36h), or from before this date (UTC).")  # fmt: skip
@click.option("--reason", required=True, metavar="TEXT", help="Why; stands in the audit log.")
@click.option("--dry-run", is_flag=True, help="Show what would go; remove nothing, record nothing.")
@click.option("--yes", is_flag=True, help="Do not ask for their number to be typed back (for scripts).")
@accept_option(Rule.ONLY_COPY, Rule.NOT_APPLIED)
@syslog_option
def prune_command(*, output: str, older_than: str, **options: Any) -> int:
    """Remove old backups, with a record of each in the audit log.

    Removing a backup removes the undo of its change. Only a file goes that is exactly the one that the log means, and
    whose change is known to be done. Whatever cannot be told stays, and is named.
    """
    from etcdfix.cli.changing import acceptances  # noqa: PLC0415 - grpc is slow to import
    from etcdfix.commands import prune_backups  # noqa: PLC0415 - same
    from etcdfix.remediation.backup.prune import PruneRequest  # noqa: PLC0415 - same

    if not str(options["reason"]).strip():
        raise click.UsageError("--reason is empty: say why, for the record")
    require_output()
    request = PruneRequest(
        before=prune_backups.older_than(older_than, now=datetime.now(UTC)),
        reason=options["reason"],
        places=record_paths(options),
        accepted=acceptances(options),
    )
    dry_run, confirm = options["dry_run"], Terminal(yes=options["yes"]).confirm_number
    try:
        pruning = prune_backups.run_prune(
            request, dry_run=dry_run, confirm=confirm, preview=lambda found: show_preview(found, RunOptions())
        )
    except EtcdfixError as exc:
        if output != TEXT:
            show_change(prune_backups.refused_report(request, exc, dry_run=dry_run), output, RunOptions())
        raise
    show_change(pruning, output, RunOptions())
    return pruning.exit_code
