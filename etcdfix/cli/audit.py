"""``etcdfix audit``: read the record of what was done, check it, and finish what a crash left open."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec

from etcdfix.cli.command import ChangingCommand, Group
from etcdfix.cli.exit_codes import codes
from etcdfix.cli.inputs import gather_inputs
from etcdfix.cli.look import report_place
from etcdfix.cli.options import (
    FILE,
    accept_option,
    change_output_option,
    kine_option,
    live_options,
    main_etcd_options,
    reading_options,
    report_options,
    syslog_option,
    timeout_option,
)
from etcdfix.cli.output import require_output, say, show_change
from etcdfix.commands.opening import connect_for_intents
from etcdfix.operations.look.audit import newest_records, verify_log
from etcdfix.remediation.audit.syslog import Syslog
from etcdfix.remediation.audit.verify import read_records
from etcdfix.report.audit import EventList
from etcdfix.report.document import CAP
from etcdfix.report.render import FORMS
from etcdfix.rules import Rule
from etcdfix.text.commands import RunOptions
from etcdfix.text.safetext import safe_json

_VERIFY_CODES = codes(
    "whole", "tampered", "open intents, a torn last line, or no head file", source="unreadable"
)
_RECONCILE_CODES = codes(
    "every open intent is settled (or there is none)",
    incomplete="an intent stays open, or ended in an anomaly",
    refused="another cluster, or a log whose chain is broken (wins over 3)",
    source="etcd or the log cannot be read",
)


_log_argument = click.argument("log", metavar="FILE", type=FILE)


@click.group("audit", cls=Group)
def command() -> None:
    """Show and verify the audit log; say what became of open intents.

    The log is the record of every deletion, fix and undo, chained by hashes.
    """


@command.command("show")
@_log_argument
@report_options()
@timeout_option
def show(*, log: Path, **options: Any) -> int:
    """Print the records of an audit log, as they stand there.

    json is one audit.k8s.io/v1 EventList, jsonl one Event to a line. Nothing is judged: audit verify does that.
    """
    with report_place(options, [log]) as place:
        records = read_records(log)
        output = options["output"]
        if output in {"text", "wide", "html"}:
            place.show(newest_records(log, records), RunOptions())
        elif output == "jsonl":
            for _, event in records:
                place.stream.write(safe_json(msgspec.json.encode(event)) + b"\n")
        else:
            writer = FORMS[output](place.stream, RunOptions(), CAP)
            for _, event in records:
                writer.row(event)
            writer.end(EventList())
    return 0


@command.command("verify", epilog=_VERIFY_CODES)
@_log_argument
@click.option(
    "--expect-head",
    metavar="SEQ:SHA256",
    help="A head that was written down elsewhere: every change prints one, --audit-syslog sends them.",
)
@timeout_option
@report_options()
def verify_command(*, log: Path, expect_head: str | None, **options: Any) -> int:
    """Check that an audit log is what was written: nothing edited, dropped, reordered, or cut off its end.

    A chain does not show by itself that it once went on. The head file beside the log, and a head that somebody wrote
    down or a syslog kept, remember its records; backup list compares it with the backups.
    """
    with report_place(options, [log]) as place:
        verified, code = verify_log(log, expect_head=expect_head)
        place.show(verified)
    return code


@command.command("reconcile", cls=ChangingCommand, epilog=_RECONCILE_CODES)
@_log_argument
@kine_option
@live_options
@main_etcd_options
@reading_options
@click.option("--dry-run", is_flag=True, help="Say what would be recorded; change nothing, the log included.")
@accept_option(Rule.UNKNOWN_CLUSTER, Rule.OTHER_CLUSTER_ID)
@syslog_option
@change_output_option
def reconcile(
    *,
    log: Path,
    dry_run: bool,
    accepted_words: tuple[str, ...],
    syslog: Syslog | None,
    output: str,
    **options: Any,
) -> int:
    """Say what became of every open intent, and record it.

    An intent is open when its process ended before it could record the outcome. Its key is read from the live
    etcd, or from the file that --kine names; nothing is written there.
    """
    require_output()
    inputs = gather_inputs(options)
    for notice in inputs.notices:
        say(notice)
    # grpc is slow to import, and the other audit commands work without it.
    from etcdfix.operations.change.settle_intents import patch_proof, settle_intents  # noqa: PLC0415
    from etcdfix.remediation.preflight.cluster import Acceptances  # noqa: PLC0415

    run = inputs.run_options()
    settled = settle_intents(
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
