"""``etcdfix delete``: one key, proven unreadable, backed up, recorded, and only then gone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from etcdfix.cli.change_output import Teller, change_output_option
from etcdfix.cli.confirm import Terminal
from etcdfix.cli.exit_codes import epilog
from etcdfix.cli.options import (
    configuration_of,
    gather_inputs,
    main_etcd_options,
    reading_options,
    source_options,
)
from etcdfix.cli.output import require_output, say
from etcdfix.cli.progress import progress_of
from etcdfix.cli.safety import (
    EXIT_CODES,
    acceptances,
    api_access,
    change_options,
    expectation_options,
    member_options,
    one_key,
    record_paths,
    require_reason,
    risk_options,
    show,
)
from etcdfix.cli.variables import ChangingCommand
from etcdfix.operations.change.delete import DeleteRequest, recovery_lines, run_delete
from etcdfix.operations.change.preview import (
    after_deletion_lines,
    preview_lines,
)
from etcdfix.operations.opening import open_cluster
from etcdfix.remediation.audit.record import Result, Verb
from etcdfix.remediation.preflight.deletion import Preflight
from etcdfix.reports.planfile import load_plan
from etcdfix.text.commands import ACKNOWLEDGEMENT


@click.command("delete", cls=ChangingCommand, epilog=epilog(EXIT_CODES))
@click.argument("key", required=False)
@click.option(
    ACKNOWLEDGEMENT, "acknowledged", is_flag=True, required=True, help="Required: you know what this means."
)
@click.option(
    "--plan",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A plan of at most 15 minutes (etcdfix plan -o json) that must list the key as it stands now: refuse where "
    "anything differs.",
)
@change_options
@change_output_option
@expectation_options
@member_options
@risk_options
@source_options
@main_etcd_options
@reading_options
def command(
    *,
    key: str | None,
    key_base64: str | None,
    acknowledged: bool,
    plan: Path | None,
    output: str,
    **options: Any,
) -> int:
    """Delete exactly one key that is proven unreadable, after a backup and with a record.

    Examines the key and everything else in etcd, asks every member, shows what a deletion means and what would be
    less destructive, wants the key typed back, and deletes only what it examined. Run it with --dry-run first: that
    makes every check and changes nothing.
    """
    if not acknowledged:
        raise click.UsageError(f"a deletion needs {ACKNOWLEDGEMENT}")
    require_reason(options)
    require_output()
    with Teller(
        Verb.DELETE, output, dry_run=options["dry_run"], cluster_name=options["cluster_name"]
    ) as teller:
        return _delete(teller, key, key_base64, plan, options)


def _delete(
    teller: Teller, key: str | None, key_base64: str | None, plan: Path | None, options: dict[str, Any]
) -> int:
    api = api_access(options)
    named = teller.key = one_key(key, key_base64)
    inputs = gather_inputs(options, key=named)
    again = inputs.same_again()
    planned = load_plan(plan) if plan is not None else None
    with open_cluster(inputs, configuration_of, say=say) as cluster:
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
                record_paths=record_paths(options),
                api=api,
                etcd_user=inputs.etcd_user,
                dry_run=options["dry_run"],
                plan=planned,
                plan_file=str(plan or ""),
                again=again,
            ),
            Terminal(yes=options["yes"]),
            preview=preview,
            progress=progress_of(cluster.source),
        )
        deleted = outcome.result is Result.DELETED
        code = teller.tell(
            Result.DELETED, outcome, again, list(after_deletion_lines(checked[0], again)) if deleted else ()
        )
    if deleted and api is not None:
        teller.add(recovery_lines(api, checked[0], say=say))
    return code
