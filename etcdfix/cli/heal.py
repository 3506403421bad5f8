"""``etcdfix heal``: have an API server write anew, from its memory, what it can no longer read from etcd."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from etcdfix.cli.accepting import accept_option
from etcdfix.cli.change_output import Teller
from etcdfix.cli.changing import request_fields
from etcdfix.cli.command import ChangingCommand
from etcdfix.cli.confirm import Terminal
from etcdfix.cli.exit_codes import epilog
from etcdfix.cli.options import (
    FILE,
    configuration_of,
    inputs_of_one_etcd,
    kine_option,
    live_options,
    main_etcd_options,
    reading_options,
)
from etcdfix.cli.output import require_output, say, show_preview
from etcdfix.cli.output_options import change_output_option
from etcdfix.cli.places import record_paths
from etcdfix.cli.safety import (
    EXIT_CODES,
    api_access,
    expectation_options,
    one_key,
    record_options,
    require_reason,
    server_options,
)
from etcdfix.operations.change.preview import memory_preview
from etcdfix.operations.opening import open_cluster
from etcdfix.remediation.audit.record import Verb
from etcdfix.remediation.change import ChangeRequest
from etcdfix.remediation.durable import no_step
from etcdfix.remediation.memory.ground import open_ground
from etcdfix.remediation.memory.patch import patch_from_memory
from etcdfix.rules import Rule
from etcdfix.scope import ScopeRequest


@click.command("heal", cls=ChangingCommand, epilog=epilog(EXIT_CODES))
@click.argument("key")
@click.option("--rescued", type=FILE, metavar="DIR", help="What etcdfix rescue saved.")
@click.option("--kubeconfig", type=FILE, metavar="FILE", help="The API servers of the cluster.")
@server_options
@accept_option(Rule.UNCHECKED_SERVER, Rule.UNCHECKED_MEMBER, Rule.UNKNOWN_RELEASE)
@record_options
@change_output_option
@expectation_options
@kine_option
@live_options
@main_etcd_options
@reading_options
def command(*, key: str, rescued: Path | None, **options: Any) -> int:
    """Have an API server write one object anew, from its memory, whose encryption key is lost."""
    require_reason(options)
    require_output()
    with Teller(Verb.FIX, options["output"], dry_run=options["dry_run"]) as teller:
        api = api_access(options)
        named = teller.key = one_key(key, options)
        inputs = inputs_of_one_etcd(options, ScopeRequest(keys=(named,)))
        run = inputs.run_options(api=api, places=record_paths(options))
        request = ChangeRequest(**request_fields(options, inputs, api))
        with (
            open_cluster(inputs, configuration_of, say=say, through_the_api=True) as cluster,
            open_ground(cluster, request, rescued, run, no_step) as ground,
        ):
            patched = patch_from_memory(
                ground, request, named, Terminal(yes=options["yes"]),
                preview=lambda held, unread: show_preview(
                    memory_preview(cluster, held, unread, str(rescued), dry_run=options["dry_run"]), run
                ),
            )  # fmt: skip
            return teller.tell(patched.outcome, run, patched=True)
