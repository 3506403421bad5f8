"""``etcdfix plan``: the reviewed list for many broken objects; with ``--run`` it is worked through."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from etcdfix.cli.changing import request_fields, require_reason
from etcdfix.cli.command import ChangingCommand, Command
from etcdfix.cli.inputs import configuration_of, gather_inputs
from etcdfix.cli.keys import named_key
from etcdfix.cli.look import ExitCode, api_access, open_look, record_paths
from etcdfix.cli.options import (
    CLUSTER_RULES,
    DELETION_RULES,
    DIGEST,
    FILE,
    TEXT,
    accept_option,
    acknowledgement_option,
    change_options,
    jobs_option,
    kine_option,
    reading_options,
    report_options,
    rescued_option,
    whole_data_options,
)
from etcdfix.cli.output import (
    Terminal,
    require_output,
    say,
    show_change,
    show_outcome,
    show_preview,
)
from etcdfix.cli.progress import progress_of
from etcdfix.commands.opening import open_cluster, open_examiner
from etcdfix.commands.plan import PlanRequest, build_plan
from etcdfix.commands.planning.run import Ran, Run, RunTold, run_plan
from etcdfix.commands.planning.run_report import ran_lines, run_preview, run_report
from etcdfix.inputs.outputfile import STANDARD_OUTPUT
from etcdfix.model.errors import ConfigurationError, EndedEarly, EtcdfixError
from etcdfix.model.model import ClusterIdentity
from etcdfix.model.rules import Rule
from etcdfix.model.scope import ScopeRequest
from etcdfix.remediation.run import RunRequest
from etcdfix.report.plan import SETTLED, DeletionPlan
from etcdfix.report.planfile import decided_digest, load_plan, plan_key
from etcdfix.report.saved_report import MOST_OF_A_PLAN, load_report
from etcdfix.text.commands import run_plan as command_to_run
from etcdfix.text.safetext import safe_text


class PlanCommand(Command):
    """Makes a plan; with ``--run FILE`` it is another command, which works through one."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Return a context of this command, or of the one that works through a plan."""
        given = itertools.takewhile(lambda word: word != "--", args)
        if any(word == "--run" or word.startswith("--run=") for word in given):
            return run_command.make_context(info_name, args, parent, **extra)
        return super().make_context(info_name, args, parent, **extra)


_UNDETERMINED = "undetermined"


@click.command("plan", cls=PlanCommand)
@click.option(
    "--from-report",
    type=FILE,
    required=True,
    metavar="FILE",
    help="Report of etcdfix scan, in json or jsonl.",
)
@click.option(
    "--run", metavar="FILE", expose_value=False,
    help="Work through this plan instead. See etcdfix plan --run FILE --help.",
)  # fmt: skip
@rescued_option
@kine_option
@whole_data_options
@reading_options
@jobs_option
@report_options()
def command(*, from_report: Path, rescued: Path | None, **options: Any) -> int:
    """Plan what to do about many broken objects, and in which order. Reads only, except --run.

    Give a saved scan, and the same source and configuration as for that scan. The plan proposes for each object to put
    back its best copy, to delete it, or to leave it for now. It leaves out what is gone, changed or readable by now,
    and says so.

    --run FILE works through a plan that somebody reviewed.
    """
    report = load_report(from_report, most_findings=MOST_OF_A_PLAN)
    output_file: Path | None = options["output_file"]
    endings: list[EndedEarly] = []
    with open_look(options, each_from_its_own=True, besides=(from_report,), of_a_plan=True) as look:
        inputs = look.inputs
        if look.configuration is None and not inputs.no_encryption:
            raise ConfigurationError(
                "no encryption configuration was given, so nothing can be proven",
                hint="--encryption-config FILE; where nothing is encrypted at rest: --no-encryption",
            )
        # A deletion refuses any plan but one of the newest revision of a live etcd.
        reusable = options["output"] == "json" and inputs.file is None and not inputs.revision
        request = PlanRequest(
            **look.reading_fields(),
            report=report,
            newest=not inputs.revision,
            rescued=rescued,
            plan_file=str(output_file) if reusable and output_file not in {None, STANDARD_OUTPUT} else "",
        )
        with open_examiner(look.source, inputs, look.configuration) as examiner:
            plan = build_plan(
                look.source,
                examiner,
                request,
                progress=progress_of(look.source),
                jobs=look.jobs,
                on_ended=endings.append,
            )
        look.tell(plan, None, request.run)
    if plan.entries and request.plan_file:
        run = command_to_run(request.plan_file, "--dry-run").line(request.run)
        say(f"plan {decided_digest(plan)}; review it, then: {run}")
    return endings[0].exit_code if endings else int(plan_exit_code(plan))


def plan_exit_code(plan: DeletionPlan) -> ExitCode:
    """Map a plan to its exit code. An incomplete one is never 0 or 1."""
    outcomes = {group.outcome for group in plan.groups} | {left.why for left in plan.left_out}
    if not plan.complete or _UNDETERMINED in outcomes:
        return ExitCode.INCOMPLETE
    if outcomes - SETTLED or plan.not_in_report:
        return ExitCode.FINDINGS
    return ExitCode.NOTHING_WRONG


@click.command("plan", cls=ChangingCommand)
@click.option(
    "--run", "plan_file", type=FILE, required=True, metavar="FILE",
    help="Work through this plan, which etcdfix plan -o json wrote.",
)  # fmt: skip
@acknowledgement_option
@click.option(
    "--expect-plan", type=DIGEST, metavar="sha256:HEX",
    help="Refuse a plan with another digest: somebody changed it after the review. --dry-run prints it. "
    "--yes needs it.",
)  # fmt: skip
@click.option(
    "--leave-out", multiple=True, metavar="KEY",
    help="Skip this key in this run (may be repeated).",
)  # fmt: skip
@click.option(
    "--declare-key-lost", "lost", multiple=True, metavar="TRANSFORMER[/KEY-ID]",
    help="Declare that this encryption key is lost for ever, so that you may delete its values (may be repeated).",
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
def run_command(
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

    etcdfix examines each object live. Each has its own checks, backup, records and transaction, as with etcdfix fix and
    delete. Before the first change you type how many objects the run deletes (or changes, if it deletes none), and the
    key of each protected object. The run stops at the first surprise. Run the command again to go on from there.

    With --kine FILE, API servers write again what they hold in memory, as with fix --from memory. The run does nothing
    else.

    Run it with --dry-run first. That prints the digest of the plan, and the command for scripts.
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

        def preview(plan: DeletionPlan, identity: ClusterIdentity, warnings: Iterable[str]) -> None:
            show_preview(run_preview(cluster, run, plan, identity, warnings), run.options)

        def told(ran: Ran) -> None:
            if options["output"] == TEXT and run.load is not None:
                show_outcome(map(safe_text, ran_lines(ran, len(run.objects), len(run.load.tasks))))

        telling, progress = RunTold(preview, told, say), progress_of(cluster.source)
        return run_plan(cluster, plan, run, request, confirmer, telling, progress=progress)
