"""``etcdfix log``: the record of what was done, and its backups."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from etcdfix.cli.command import ChangingCommand, Group
from etcdfix.cli.inputs import gather_inputs
from etcdfix.cli.look import record_paths, report_place
from etcdfix.cli.options import (
    FILE,
    TEXT,
    accept_option,
    audit_log_option,
    backup_dirs_option,
    change_output_option,
    kine_option,
    live_options,
    main_etcd_options,
    option_group,
    reading_options,
    report_options,
    syslog_option,
    timeout_option,
)
from etcdfix.cli.output import Terminal, require_output, say, show_change, show_preview
from etcdfix.commands.log import list_backups, newest_records, verify_log
from etcdfix.commands.opening import connect_for_intents
from etcdfix.model.errors import EtcdfixError
from etcdfix.model.rules import Rule
from etcdfix.remediation.audit.syslog import Syslog
from etcdfix.remediation.audit.verify import read_events, read_records
from etcdfix.report.log import EventList
from etcdfix.report.render import FORMS
from etcdfix.report.rows import Rows
from etcdfix.text.commands import RunOptions
from etcdfix.text.safetext import safe_json

_log_argument: Final = click.argument("log", metavar="FILE", type=FILE)


def _days(text: str) -> int:
    if found := re.fullmatch(r"([1-9]\d{0,4})d", text, re.ASCII):
        return int(found[1])
    raise click.BadParameter(f"{text!r} is not a number of days such as 90d")


_places: Final = option_group(backup_dirs_option, audit_log_option, timeout_option)


@click.group("log", cls=Group)
def command() -> None:
    """Show and verify the audit log and its backups. Settle open intents. Remove old backups.

    The log records every deletion, fix and undo, in a chain of hashes. A backup holds the bytes of one key as etcd
    stored them. What was plaintext in etcd is plaintext in the backup.
    """


@command.command("show")
@_log_argument
@report_options()
@timeout_option
def show(*, log: Path, **options: Any) -> int:
    """Print the records of an audit log. Reads only.

    json is one audit.k8s.io/v1 EventList. jsonl is one Event a line. To check the log, use log verify.
    """
    output = options["output"]
    with report_place(options, [log]) as place:
        if output in {"text", "wide", "html"}:
            place.show(newest_records(log, read_records(log)))
        elif output == "jsonl":
            for event in read_events(log):
                place.stream.write(safe_json(msgspec.json.encode(event)) + b"\n")
        else:
            events = Rows(sum(1 for _ in read_events(log)), lambda: read_events(log))
            FORMS[output](place.stream, RunOptions()).end(EventList(items=events))
    return 0


@command.command("verify")
@_log_argument
@click.option(
    "--expect-head",
    metavar="SEQ:SHA256",
    help="A head that you wrote down. Every change prints one, and --audit-syslog sends it.",
)
@timeout_option
@report_options()
def verify(*, log: Path, expect_head: str | None, **options: Any) -> int:
    """Check that nobody edited, dropped or reordered records of an audit log, or cut off its end. Reads only.

    The log alone cannot show that its end was cut off. The head file beside it shows that, or a head that you wrote
    down or that syslog kept. log backups compares the log with the backups.
    """
    with report_place(options, [log]) as place:
        verified = verify_log(log, expect_head=expect_head)
        place.show(verified)
    return verified.exit_code


@command.command("settle", cls=ChangingCommand)
@_log_argument
@kine_option
@live_options
@main_etcd_options
@reading_options
@click.option("--dry-run", is_flag=True, help="Show what would be recorded, and change nothing.")
@accept_option(Rule.UNKNOWN_CLUSTER, Rule.OTHER_CLUSTER_ID)
@syslog_option
@change_output_option
def settle(
    *,
    log: Path,
    dry_run: bool,
    accepted_words: tuple[str, ...],
    syslog: Syslog | None,
    output: str,
    **options: Any,
) -> int:
    """Find out what became of every open intent, and record it.

    An intent is open if its process ended before it recorded the outcome. etcdfix reads the key from the live etcd, or
    from the file of --kine, and writes nothing there.
    """
    require_output()
    inputs = gather_inputs(options)
    for notice in inputs.notices:
        say(notice)
    # grpc is slow to import, and the other log commands work without it.
    from etcdfix.commands.settle import patch_proof, settle_log  # noqa: PLC0415
    from etcdfix.remediation.cluster import Acceptances  # noqa: PLC0415

    run = inputs.run_options()
    settled = settle_log(
        log,
        lambda intents: connect_for_intents(inputs, intents, say=say),
        etcd_user=inputs.etcd_user,
        dry_run=dry_run,
        accepted=Acceptances(words=accepted_words),
        run=run,
        syslog=syslog,
        was_patched=patch_proof(inputs),
    )
    show_change(settled, output, run)
    return settled.exit_code


@command.command("backups")
@_places
@report_options()
def backups(**options: Any) -> int:
    """Show every backup, and check that none is missing or changed. Reads only.

    You see the digests, owner and mode of each file, its record in the audit log, and the backups of each record.
    Secrets that are stored as plaintext come first.
    """
    with report_place(options, []) as place:
        listed = list_backups(record_paths(options))
        place.show(listed)
    return listed.exit_code


@command.command("prune", cls=ChangingCommand)
@_places
@change_output_option
@click.option("--older-than", required=True, metavar="DAYS", type=_days,
              help="Remove backups older than this, in days: 90d.")  # fmt: skip
@click.option("--reason", required=True, metavar="TEXT", help="Your reason. The audit log records it.")
@click.option("--dry-run", is_flag=True, help="Show what would be removed, and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation (for scripts).")
@accept_option(Rule.ONLY_COPY)
@syslog_option
def prune(*, output: str, older_than: int, **options: Any) -> int:
    """Remove old backups, with a record of each in the audit log.

    Without its backup you cannot undo a change. etcdfix removes a file only if it is exactly the one in the log and the
    change is known to be done. It keeps everything else, and names it.
    """
    from etcdfix.cli.changing import acceptances  # noqa: PLC0415 - grpc is slow to import
    from etcdfix.commands.changing.outcome import refusal_by  # noqa: PLC0415 - same
    from etcdfix.remediation.backup.prune import PruneRequest, run_prune  # noqa: PLC0415 - same

    if not str(options["reason"]).strip():
        raise click.UsageError("--reason is empty: say why, for the record")
    require_output()
    request = PruneRequest(
        before=datetime.now(UTC) - timedelta(days=older_than),
        reason=options["reason"],
        places=record_paths(options),
        accepted=acceptances(options),
    )
    dry_run, confirm = options["dry_run"], Terminal(yes=options["yes"]).confirm_number
    try:
        pruning = run_prune(
            request, dry_run=dry_run, confirm=confirm, preview=lambda found: show_preview(found, RunOptions())
        )
    except EtcdfixError as exc:
        if output != TEXT:
            refused = request.report(dry_run=dry_run, refusal=refusal_by(exc), exit_code=int(exc.exit_code))
            show_change(refused, output, RunOptions())
        raise
    show_change(pruning, output, RunOptions())
    return pruning.exit_code
