"""``etcdfix repair``: put the stored bytes of one value right, guarded."""

from __future__ import annotations

from typing import Any

import click

from etcdfix.cli.accepting import accept_option
from etcdfix.cli.changing import etcd_options, open_change, present_value_options
from etcdfix.cli.command import ChangingCommand
from etcdfix.cli.exit_codes import epilog
from etcdfix.cli.output import show_preview
from etcdfix.cli.safety import CLUSTER_RULES, EXIT_CODES, REPAIR_RULES, one_key
from etcdfix.operations.change.preview import repair_preview
from etcdfix.operations.change.repair import RepairRequest, run_repair
from etcdfix.remediation.audit.record import Verb


@click.command("repair", cls=ChangingCommand, epilog=epilog(EXIT_CODES))
@click.argument("key")
@present_value_options
@accept_option(*REPAIR_RULES, *CLUSTER_RULES)
@etcd_options
def command(*, key: str, **options: Any) -> int:
    """Put the stored bytes of one value right that cannot be read, where something shows how.

    One flipped bit is turned back, or up to three of the k8s:enc: prefix; a damaged wrapped data key is taken from
    another value; CR LF becomes LF again. The value must then open with its tag, hold a whole object, and that of its
    key. Of an unencrypted value only the first four bytes, CR LF and bytes behind the object are put right. Nothing is
    encrypted anew, so no write key is needed; the lease is kept; the old bytes are backed up. A value under AES-CBC has
    no tag: it needs --accept unproven-repair.
    """
    with open_change(Verb.REPAIR, options, lambda: one_key(key, options)) as change:
        outcome = run_repair(
            change.cluster,
            RepairRequest(key=change.key, **change.request),
            change.confirmer,
            preview=lambda shown: show_preview(repair_preview(change.cluster, shown), change.run),
            progress=change.progress,
        )
        return change.teller.tell(outcome, change.run)
