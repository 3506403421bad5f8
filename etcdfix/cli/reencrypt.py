"""``etcdfix reencrypt``: rewrite a value that a candidate key can read, guarded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from etcdfix.cli.accepting import accept_option
from etcdfix.cli.changing import etcd_options, open_change, present_value_options
from etcdfix.cli.command import ChangingCommand
from etcdfix.cli.exit_codes import epilog
from etcdfix.cli.options import FILE
from etcdfix.cli.output import show_preview
from etcdfix.cli.safety import CLUSTER_RULES, EXIT_CODES, one_key
from etcdfix.operations.change.preview import reencrypt_preview
from etcdfix.operations.change.reencrypt import ReencryptRequest, run_reencrypt
from etcdfix.operations.opening import Inputs, open_candidates, without_candidates
from etcdfix.remediation.audit.record import Verb
from etcdfix.rules import Rule


@click.command("reencrypt", cls=ChangingCommand, epilog=epilog(EXIT_CODES))
@click.argument("key")
@click.option(
    "--candidate-config", type=FILE, required=True, metavar="FILE",
    help="An EncryptionConfiguration that may open the value: an older one, or one with a key that was found again.",
)  # fmt: skip
@accept_option(Rule.UNDEPLOYED_WRITE_KEY, *CLUSTER_RULES)
@present_value_options
@etcd_options
def command(*, key: str, candidate_config: Path, **options: Any) -> int:
    """Rewrite one value, which today's configuration cannot read, under today's write key.

    --candidate-config opens it, --encryption-config says how API servers write today. The contents stay the same byte
    for byte; the lease is kept; the old bytes are backed up.
    """
    given: list[Inputs] = []

    def apart(inputs: Inputs) -> Inputs:
        """Give each configuration the endpoints of its own plugins; one that neither has is refused with today's."""
        given.append(inputs)
        return without_candidates(inputs, [candidate_config])

    with open_change(Verb.REENCRYPT, options, lambda: one_key(key, options), adapt=apart) as change:
        with open_candidates(change.cluster.source, given[0], [candidate_config]) as candidates:
            (examiner,) = candidates.values()
            if examiner.transformers is not None:
                change.cluster.examiner.know_names(examiner.transformers.names)
            outcome = run_reencrypt(
                change.cluster,
                examiner,
                ReencryptRequest(key=change.key, **change.request),
                change.confirmer,
                preview=lambda shown: show_preview(reencrypt_preview(change.cluster, shown), change.run),
            )
        return change.teller.tell(outcome, change.run)
