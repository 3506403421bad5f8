"""``etcdfix repair``: put the stored bytes of one value right, guarded."""

from __future__ import annotations

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
    show,
)
from etcdfix.cli.variables import ChangingCommand
from etcdfix.operations.change.preview import repair_preview_lines
from etcdfix.operations.change.repair import RepairRequest, run_repair
from etcdfix.operations.opening import open_cluster
from etcdfix.remediation.audit.record import Result, Verb
from etcdfix.verdicts.deletability import REPAIR_RISKS


@click.command("repair", cls=ChangingCommand, epilog=epilog(EXIT_CODES))
@click.argument("key", required=False)
@change_options
@change_output_option
@expectation_options
@member_options
@click.option(
    "--accept-risk", "accept_risks", multiple=True, type=click.Choice([risk.value for risk in REPAIR_RISKS]),
    help="Go on in spite of this one risk (may be repeated). Only a value under AES-CBC needs one: it has no tag.",
)  # fmt: skip
@source_options
@main_etcd_options
@reading_options
def command(*, key: str | None, key_base64: str | None, output: str, **options: Any) -> int:
    """Put the stored bytes of one value right that cannot be read, where something shows how.

    One flipped bit is turned back, or up to three of the k8s:enc: prefix; a damaged wrapped data key is taken from
    another value; CR LF becomes LF again. The value must then open with its tag, hold a whole object, and that of its
    key. Of an unencrypted value only the first four bytes, CR LF and bytes behind the object are put right. Nothing is
    encrypted anew, so no write key is needed; the lease is kept; the old bytes are backed up.
    """
    require_reason(options)
    require_output()
    with Teller(
        Verb.REPAIR, output, dry_run=options["dry_run"], cluster_name=options["cluster_name"]
    ) as teller:
        named = teller.key = one_key(key, key_base64)
        api = api_access(options)
        inputs = gather_inputs(options, key=named)
        with open_cluster(inputs, configuration_of, say=say) as cluster:
            outcome = run_repair(
                cluster,
                RepairRequest(
                    key=named,
                    reason=options["reason"],
                    accepted=acceptances(options),
                    record_paths=record_paths(options),
                    api=api,
                    etcd_user=inputs.etcd_user,
                    dry_run=options["dry_run"],
                ),
                Terminal(yes=options["yes"]),
                preview=lambda shown: show(repair_preview_lines(cluster, shown), err=True),
                progress=progress_of(cluster.source),
            )
            return teller.tell(Result.REPAIRED, outcome, inputs.same_again())
