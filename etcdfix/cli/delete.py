"""``etcdfix delete``: one key, proven unreadable, backed up, recorded, and only then gone."""

from __future__ import annotations

from typing import Any

import click

from etcdfix.cli.confirm import Terminal
from etcdfix.cli.options import gather_inputs, reading_options, same_again, source_options
from etcdfix.cli.safety import (
    EXIT_CODES,
    acceptances,
    change_exit_code,
    change_options,
    etcd_user,
    expectation_options,
    member_options,
    one_key,
    open_cluster,
    places,
    require_reason,
    risk_options,
    show,
    watcher,
)
from etcdfix.remediation.audit_record import Result
from etcdfix.remediation.delete import DeleteRequest, run_delete
from etcdfix.remediation.preflight import Preflight
from etcdfix.remediation.preview import after_deletion_lines, outcome_lines, preview_lines
from etcdfix.reports.commands import ACKNOWLEDGEMENT


@click.command("delete", epilog=EXIT_CODES)
@click.argument("key", required=False)
@click.option(
    ACKNOWLEDGEMENT, "acknowledged", is_flag=True, required=True, help="Required: you know what this means."
)
@change_options
@expectation_options
@member_options
@risk_options
@source_options
@reading_options
def command(*, key: str | None, key_base64: str | None, acknowledged: bool, **options: Any) -> int:
    """Delete exactly one key that is proven unreadable, after a backup and with a record.

    Examines the key and everything written under the same encryption key, asks every member of etcd, shows what a
    deletion means and what would be gentler, wants the key typed back, and deletes only what it examined. Run it with
    --dry-run first: that makes every check and changes nothing.
    """
    if not acknowledged:
        raise click.UsageError(f"a deletion needs {ACKNOWLEDGEMENT}")
    require_reason(options)
    inputs = gather_inputs(options)
    named = one_key(key, key_base64)
    again = same_again(inputs)
    with open_cluster(inputs) as cluster:
        checked: list[Preflight] = []

        def preview(found: Preflight) -> None:
            checked.append(found)
            show(preview_lines(cluster, found, again), err=True)

        outcome = run_delete(
            cluster,
            DeleteRequest(
                key=named,
                reason=options["reason"],
                accepted=acceptances(options),
                places=places(options),
                kubeconfig=options["kubeconfig"],
                context=options["context"],
                etcd_user=etcd_user(inputs),
                dry_run=options["dry_run"],
            ),
            Terminal(yes=options["yes"]),
            preview=preview,
            watch=watcher(cluster),
        )
        show(outcome_lines(named, Result.DELETED, outcome, again))
        if outcome.result is Result.DELETED:
            show(after_deletion_lines(checked[0]))
    return change_exit_code(outcome)
