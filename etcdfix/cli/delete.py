"""``etcdfix delete``: one key, proven unreadable, backed up, recorded, and only then gone."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from etcdfix.apiserver.recovery import SECONDS, look_until_well
from etcdfix.apiserver.servers import Answer, APIAccess
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
from etcdfix.cli.telling import Teller, change_output_option
from etcdfix.cli.variables import ChangingCommand
from etcdfix.errors import EtcdfixError
from etcdfix.operations.change.delete import DeleteRequest, run_delete
from etcdfix.operations.change.preview import (
    after_deletion_lines,
    looked_at_lines,
    preview_lines,
)
from etcdfix.operations.opening import open_cluster
from etcdfix.remediation.audit.record import Result, Verb
from etcdfix.remediation.preflight.deletion import Preflight
from etcdfix.remediation.preflight.expectation import expectation_of
from etcdfix.reports.planfile import load_plan
from etcdfix.text.commands import ACKNOWLEDGEMENT
from etcdfix.text.safetext import safe_text


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
    gentler, wants the key typed back, and deletes only what it examined. Run it with --dry-run first: that makes every
    check and changes nothing.
    """
    if not acknowledged:
        raise click.UsageError(f"a deletion needs {ACKNOWLEDGEMENT}")
    require_reason(options)
    require_output()
    with Teller(Verb.DELETE, output, dry_run=options["dry_run"]) as teller:
        return _delete(teller, key, key_base64, plan, options)


def _delete(
    teller: Teller, key: str | None, key_base64: str | None, plan: Path | None, options: dict[str, Any]
) -> int:
    api = api_access(options)
    named = teller.key = one_key(key, key_base64)
    inputs = gather_inputs(options, key=named)
    again = inputs.same_again()
    planned = load_plan(plan) if plan is not None else None
    accepted = acceptances(options)
    with open_cluster(inputs, configuration_of(inputs), say=say) as cluster:
        checked: list[Preflight] = []
        expected = None
        if planned is not None:
            expected = expectation_of(
                planned,
                named,
                cluster_id=cluster.source.describe().cluster_id,
                etcd_prefix=cluster.examiner.layout.prefix,
                config_sha256=cluster.config_sha256,
                assumed_release=f"1.{inputs.kubernetes_minor}" if inputs.kubernetes_minor is not None else "",
                flags=accepted.as_flags(),
                again=again.plan(planned.report.path, str(plan)),
                now=datetime.now(UTC),
            )

        def preview(found: Preflight) -> None:
            checked.append(found)
            show(preview_lines(cluster, found, again), err=True)

        outcome = run_delete(
            cluster,
            DeleteRequest(
                key=named,
                reason=options["reason"],
                accepted=accepted,
                record_paths=record_paths(options),
                api=api,
                etcd_user=inputs.etcd_user,
                dry_run=options["dry_run"],
                plan=f"--plan {plan} ({planned.content_sha256})" if planned is not None else "",
            ),
            Terminal(yes=options["yes"]),
            preview=preview,
            expected=expected,
            progress=progress_of(cluster.source),
        )
        deleted = outcome.result is Result.DELETED
        code = teller.tell(
            Result.DELETED, outcome, again, list(after_deletion_lines(checked[0], again)) if deleted else ()
        )
    if deleted and api is not None:
        teller.add(_recovery(api, checked[0]))
    return code


def _recovery(api: APIAccess, checked: Preflight) -> list[str]:
    """Look at the API servers that answered before, until they are well again; nothing here changes what was done.

    While other values are not known to be read, nothing is waited for.
    """
    servers = [said.server for said in checked.servers.answers if said.answer is not Answer.NO_ANSWER]
    if not servers:
        return []
    seconds = 0.0 if checked.alike.unread else SECONDS
    try:
        if seconds:
            say(
                f"waiting until the API servers have recovered, about {seconds:.0f} s at most; Ctrl-C ends the waiting"
            )
        collection = checked.found.directory.api_path("", None)
        return list(looked_at_lines(look_until_well(api, servers, collection, seconds=seconds)))
    except KeyboardInterrupt:
        return ["Not waited any longer. The deletion is done."]
    except EtcdfixError as exc:
        return [f"API servers were not looked at again: {safe_text(exc.message)}"]
    except Exception as exc:  # noqa: BLE001 - whatever it is, the deletion is done, and was told
        return [f"API servers were not looked at again ({type(exc).__name__})"]
