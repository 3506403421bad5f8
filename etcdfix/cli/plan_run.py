"""``etcdfix plan --run``: work through a reviewed plan, one object after the other."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from etcdfix.cli.changing import request_fields, require_reason
from etcdfix.cli.command import ChangingCommand, codes
from etcdfix.cli.confirm import Terminal
from etcdfix.cli.inputs import configuration_of, gather_inputs
from etcdfix.cli.keys import named_key
from etcdfix.cli.look import api_access, record_paths
from etcdfix.cli.options import (
    CLUSTER_RULES,
    DELETION_RULES,
    DIGEST,
    FILE,
    TEXT,
    accept_option,
    acknowledgement_option,
    change_options,
    kine_option,
    rescued_option,
)
from etcdfix.cli.output import require_output, say, show_change, show_outcome, show_preview
from etcdfix.cli.progress import progress_of
from etcdfix.commands.opening import open_cluster
from etcdfix.commands.planning.run import Ran, Run, run_plan
from etcdfix.commands.planning.run_report import ran_lines, run_preview, run_report
from etcdfix.errors import EndedEarly, EtcdfixError
from etcdfix.model import ClusterIdentity
from etcdfix.remediation.cluster import Cluster
from etcdfix.remediation.run import RunRequest
from etcdfix.report.plan import DeletionPlan
from etcdfix.report.planfile import load_plan, plan_key
from etcdfix.rules import Rule
from etcdfix.scope import ScopeRequest
from etcdfix.text.safetext import safe_text

_CODES = codes(
    "everything that the plan decides on is done, or would be (dry run)",
    incomplete="an outcome is unknown, anomalous or doubtful, or --timeout was over: the run stopped there",
    refused="refused by a safety rule, or not confirmed; what is told as done before that stays done",
    source="etcd could not be asked, or its watch broke; what is told as done before that stays done",
)


class _Told:
    """Tells a run while it goes on."""

    def __init__(self, output: str, run: Run, cluster: Cluster) -> None:
        self._output, self._run, self._cluster = output, run, cluster

    def preview(self, plan: DeletionPlan, identity: ClusterIdentity, warnings: Iterable[str]) -> None:
        document = run_preview(self._cluster, self._run, plan, identity, warnings)
        show_preview(document, self._run.options)

    def told(self, ran: Ran) -> None:
        load = self._run.load
        if self._output == TEXT and load is not None:
            lines = ran_lines(ran, len(self._run.objects), len(load.tasks))
            show_outcome(map(safe_text, lines))

    def say(self, text: str) -> None:
        say(text)


@click.command("plan", cls=ChangingCommand, epilog=_CODES)
@click.option(
    "--run", "plan_file", type=FILE, required=True, metavar="FILE",
    help="Work through this plan (of etcdfix plan -o json), as it decides.",
)  # fmt: skip
@acknowledgement_option
@click.option(
    "--expect-plan", type=DIGEST, metavar="sha256:HEX",
    help="Refuse a plan whose contents or decisions are not those that were reviewed. --dry-run prints this digest; "
    "--yes needs it.",
)  # fmt: skip
@click.option(
    "--leave-out", multiple=True, metavar="KEY",
    help="Do nothing to this key in this run, whatever the plan decides (may be repeated).",
)  # fmt: skip
@click.option(
    "--declare-key-lost", "lost", multiple=True, metavar="TRANSFORMER[/KEY-ID]",
    help="Say that this key is gone for ever, so that what was written under it may be deleted (may be repeated).",
)  # fmt: skip
@accept_option(
    *DELETION_RULES,
    Rule.UNPROVEN_REPAIR,
    Rule.UNKNOWN_UID,
    Rule.EXPIRED_LEASE,
    Rule.OTHER_CLUSTER_ID,
    *CLUSTER_RULES,
)
@change_options
@rescued_option
@kine_option
def command(
    *,
    plan_file: Path,
    yes: bool,
    expect_plan: str | None,
    leave_out: tuple[str, ...],
    lost: tuple[str, ...],
    rescued: Path | None,
    **options: Any,
) -> int:
    """Work through a reviewed plan: put copies back and delete, one object after the other.

    Each object is examined live and gets its own checks, backup, records and transaction, as with etcdfix fix and
    delete; one look at everything is kept up to date by a watch. Before the first change you type the number of objects
    that the run will delete (where it deletes none: that it will change), and the key of each protected object. The run
    stops at the first surprise; the same command goes on from there.

    With --kine FILE, API servers write anew what they hold in memory (fix from memory), and nothing else is done.

    Run it with --dry-run first: that prints the digest of the plan with its decisions, and the command for scripts.
    """
    if yes and expect_plan is None:
        raise click.UsageError("--yes needs --expect-plan sha256:HEX, which --dry-run prints")
    require_reason(options)
    require_output()
    run = Run(plan_file=plan_file, dry_run=options["dry_run"])

    def end(code: int, error: EtcdfixError | None = None) -> int:
        if options["output"] != TEXT or run.objects or error is None:
            show_change(run_report(run, error, code), options["output"], run.options)
        return code

    try:
        well = _work(
            run,
            Terminal(yes=yes),
            options,
            expect_plan=expect_plan,
            leave_out=tuple(named_key(word) for word in leave_out),
            key_lost=lost,
            rescued=rescued,
        )
        return end(0 if well else 3)
    except EtcdfixError as exc:
        end(int(exc.exit_code), exc)
        raise
    except KeyboardInterrupt as exc:
        ended = run.ended(EndedEarly.of(exc))
        end(ended.bare_exit_code)
        raise ended from exc


def _work(run: Run, confirmer: Terminal, options: dict[str, Any], **asked: Any) -> bool:
    plan = load_plan(run.plan_file)
    api = api_access(options)
    keys = tuple(plan_key(entry) for entry in plan.entries)
    inputs = gather_inputs(options, ScopeRequest(keys=keys))
    run.options = inputs.run_options(api=api, places=record_paths(options))
    config = inputs.encryption_config
    with open_cluster(inputs, configuration_of, say=say, through_the_api=True) as cluster:
        request = RunRequest(
            plan_file=run.plan_file,
            # A pipe, as of <(sops -d enc.yaml), cannot be read again.
            encryption_config=config if config is not None and config.is_file() else None,
            **asked,
            **request_fields(options, inputs, api),
        )
        told = _Told(options["output"], run, cluster)
        return run_plan(cluster, plan, run, request, confirmer, told, progress=progress_of(cluster.source))
