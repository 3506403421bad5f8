"""``etcdfix reencrypt``: rewrite a value that a candidate key can read, guarded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import msgspec

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
from etcdfix.encryption.config import EncryptionConfiguration
from etcdfix.operations.change.preview import reencrypt_preview_lines
from etcdfix.operations.change.reencrypt import ReencryptRequest, run_reencrypt
from etcdfix.operations.opening import Inputs, load_encryption, open_cluster, open_examiner
from etcdfix.remediation.audit.record import Result, Verb


@click.command("reencrypt", cls=ChangingCommand, epilog=epilog(EXIT_CODES))
@click.argument("key", required=False)
@click.option(
    "--candidate-config", type=click.Path(path_type=Path), required=True, metavar="FILE",
    help="An EncryptionConfiguration that may open the value: an older one, or one with a key that was found again.",
)  # fmt: skip
@click.option(
    "--accept-undeployed-write-key", is_flag=True,
    help="Write with today's key although nothing shows that API servers hold it.",
)  # fmt: skip
@change_options
@change_output_option
@expectation_options
@member_options
@source_options
@main_etcd_options
@reading_options
def command(
    *, key: str | None, key_base64: str | None, candidate_config: Path, output: str, **options: Any
) -> int:
    """Rewrite one value, which today's configuration cannot read, under today's write key.

    --candidate-config opens it, --encryption-config says how API servers write today. The contents stay the same byte
    for byte; the lease is kept; the old bytes are backed up.
    """
    require_reason(options)
    require_output()
    with Teller(
        Verb.REENCRYPT, output, dry_run=options["dry_run"], cluster_name=options["cluster_name"]
    ) as teller:
        return _reencrypt(teller, key, key_base64, candidate_config, options)


def _reencrypt(
    teller: Teller, key: str | None, key_base64: str | None, candidate_config: Path, options: dict[str, Any]
) -> int:
    api = api_access(options)
    named = teller.key = one_key(key, key_base64)
    inputs = gather_inputs(options, key=named)
    candidate_inputs = msgspec.structs.replace(inputs, encryption_config=candidate_config)
    candidate = load_encryption(candidate_inputs)
    # The endpoints that were given are for either configuration; one that neither has is refused with today's.
    here, there = _kms_names(load_encryption(inputs)), _kms_names(candidate)
    today_inputs = _with_endpoints(inputs, lambda name: name in here or name not in there)
    candidate_inputs = _with_endpoints(candidate_inputs, there.__contains__)
    with (
        open_cluster(today_inputs, configuration_of, say=say) as cluster,
        open_examiner(cluster.source, candidate_inputs, candidate) as examiner,
    ):
        if examiner.transformers is not None:
            cluster.examiner.know_names(examiner.transformers.names)
        outcome = run_reencrypt(
            cluster,
            examiner,
            ReencryptRequest(
                key=named,
                reason=options["reason"],
                undeployed_write_key=options["accept_undeployed_write_key"],
                accepted=acceptances(options),
                record_paths=record_paths(options),
                api=api,
                etcd_user=inputs.etcd_user,
                dry_run=options["dry_run"],
            ),
            Terminal(yes=options["yes"]),
            preview=lambda shown: show(reencrypt_preview_lines(cluster, shown), err=True),
        )
        return teller.tell(Result.REENCRYPTED, outcome, inputs.same_again())


def _kms_names(configuration: EncryptionConfiguration | None) -> set[str]:
    return {provider.name for provider in configuration.kms_providers} if configuration is not None else set()


def _with_endpoints(inputs: Inputs, wanted: Callable[[str], bool]) -> Inputs:
    endpoints = {name: url for name, url in inputs.kms_endpoints.items() if wanted(name)}
    return msgspec.structs.replace(inputs, kms_endpoints=endpoints)
