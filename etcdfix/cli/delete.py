"""``etcdfix delete``: one key, proven unreadable, backed up, recorded, and only then gone."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import click

from etcdfix.cli.changing import open_change
from etcdfix.cli.command import ChangingCommand
from etcdfix.cli.keys import one_key
from etcdfix.cli.options import (
    CLUSTER_RULES,
    DELETION_RULES,
    FILE,
    accept_option,
    acknowledgement_option,
    change_options,
    expectation_options,
    key_lost_option,
    rescued_option,
)
from etcdfix.cli.output import say, show_preview
from etcdfix.commands.changing.preview import deletion_preview
from etcdfix.commands.delete import DeleteRequest, recovery_lines, run_delete
from etcdfix.copies.bootstrap import with_what_it_keeps
from etcdfix.remediation.audit.record import Result, Verb
from etcdfix.remediation.change import Change
from etcdfix.report.planfile import load_plan
from etcdfix.rules import Rule, acceptance


@click.command("delete", cls=ChangingCommand)
@click.argument("key")
@acknowledgement_option
@click.option(
    "--plan", type=FILE, metavar="FILE",
    help="A plan of at most 15 minutes (etcdfix plan -o json) that must list the key as it stands now: refuse where "
    "anything differs.",
)  # fmt: skip
@accept_option(*DELETION_RULES, Rule.OTHER_CLUSTER_ID, *CLUSTER_RULES)
@change_options
@expectation_options
@key_lost_option
@rescued_option
def command(*, key: str, plan: Path | None, rescued: Path | None, **options: Any) -> int:
    """Delete exactly one key that is proven unreadable, after a backup and with a record.

    Examines the key and everything else in etcd, asks every member, shows what a deletion means and what would be
    less destructive, wants the key typed back, and deletes only what it examined. Run it with --dry-run first: that
    makes every check and changes nothing.
    """
    if Rule.OTHER_CLUSTER_ID in options["accepted_words"] and plan is None:
        raise click.UsageError(
            f"{acceptance(Rule.OTHER_CLUSTER_ID)} goes with --plan FILE: nothing else here names an etcd"
        )
    with open_change(Verb.DELETE, options, lambda: one_key(key, options)) as change:
        api, run = change.api, change.run
        checked: list[Change] = []

        def preview(found: Change) -> None:
            checked.append(found)
            kept = with_what_it_keeps(run, change.cluster.source)
            show_preview(deletion_preview(found, kept), kept)

        request = DeleteRequest(
            key=change.key,
            plan=load_plan(plan) if plan is not None else None,
            plan_file=str(plan or ""),
            rescued=rescued,
            **change.request,
        )
        outcome = run_delete(
            change.cluster, request, change.confirmer, preview=preview, progress=change.progress
        )
        deleted = outcome.result is Result.DELETED
        code = change.teller.tell(outcome, run, checked[0] if deleted else None)
    if deleted and api is not None:
        with contextlib.suppress(OSError):  # what counts was told
            for line in recovery_lines(api, checked[0], say=say):
                say(line)
    return code
