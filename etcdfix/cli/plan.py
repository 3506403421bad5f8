"""``etcdfix plan``: the reviewed list for many broken objects."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from etcdfix.cli.command import Command
from etcdfix.cli.exit_codes import ExitCode
from etcdfix.cli.inputs import what_to_read
from etcdfix.cli.look import read_files, report_place
from etcdfix.cli.options import (
    FILE,
    jobs_option,
    kine_option,
    reading_options,
    report_options,
    rescued_option,
    whole_data_options,
)
from etcdfix.cli.output import say, say_incomplete
from etcdfix.cli.plan_run import command as run_command
from etcdfix.cli.progress import progress_of
from etcdfix.commands.opening import open_examiner, open_source
from etcdfix.commands.plan import PlanRequest, build_plan
from etcdfix.errors import ConfigurationError, EndedEarly
from etcdfix.inputs.outputfile import STANDARD_OUTPUT
from etcdfix.report.plan import DeletionPlan
from etcdfix.report.planfile import decided_digest
from etcdfix.report.saved_report import MOST_OF_A_PLAN, load_report
from etcdfix.text.commands import run_plan


def _is_run(words: Sequence[str]) -> bool:
    """Say whether a plan is to be worked through, not made."""
    given = itertools.takewhile(lambda word: word != "--", words)
    return any(word == "--run" or word.startswith("--run=") for word in given)


class PlanCommand(Command):
    """Makes a plan; with ``--run FILE`` it is another command, which works through one."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Return a context of this command, or of the one that works through a plan."""
        if _is_run(args):
            return run_command.make_context(info_name, args, parent, **extra)
        return super().make_context(info_name, args, parent, **extra)


_SETTLED = frozenset({"gone", "readable"})
_UNDETERMINED = "undetermined"


@click.command("plan", cls=PlanCommand)
@click.option(
    "--from-report",
    type=FILE,
    required=True,
    metavar="FILE",
    help="A report of etcdfix scan, written with -o json or -o jsonl.",
)
@click.option(
    "--run", metavar="FILE", expose_value=False,
    help="Work through this plan instead: another command. See etcdfix plan --run FILE --help.",
)  # fmt: skip
@rescued_option
@kine_option
@whole_data_options
@reading_options
@jobs_option
@report_options()
def command(*, from_report: Path, rescued: Path | None, **options: Any) -> int:
    """Say of many broken objects what each is, who makes it again, in which order to act. Reads only, but for --run.

    Takes a saved scan, and looks around in the same cluster: name the same source and configuration as for the scan.
    What is gone, changed or readable by now is left out, and said; so is what was not looked at when the command was
    ended early. Each object comes with a proposal: put its best copy back, delete it, or leave it for now.

    With --run FILE, a plan that was reviewed is worked through.
    """
    report = load_report(from_report, most_findings=MOST_OF_A_PLAN)
    inputs, configuration = what_to_read(options, each_from_its_own=True)
    if configuration is None and not inputs.no_encryption:
        raise ConfigurationError(
            "no encryption configuration was given, so nothing can be proven",
            hint="--encryption-config FILE; where nothing is encrypted at rest: --no-encryption",
        )
    as_json, output_file = options["output"] == "json", options["output_file"]
    # A deletion refuses any plan but one of the newest revision of a live etcd.
    reusable = as_json and inputs.file is None and not inputs.revision
    saved_at = str(output_file) if reusable and output_file not in {None, STANDARD_OUTPUT} else ""
    endings: list[EndedEarly] = []
    with (
        open_source(inputs, say=say) as source,
        report_place(
            options, (*read_files(inputs), from_report), private=True, may_replace_plan=as_json
        ) as place,
    ):
        with open_examiner(source, inputs, configuration) as examiner:
            request = PlanRequest(
                **inputs.reading_fields(configuration),
                report=report,
                newest=not inputs.revision,
                rescued=rescued,
                plan_file=saved_at,
            )
            plan = build_plan(
                source,
                examiner,
                request,
                progress=progress_of(source),
                jobs=options["jobs"],
                on_ended=endings.append,
            )
        place.show(plan, request.run)
    if plan.entries and saved_at:
        run = run_plan(saved_at, "--dry-run").line(request.run)
        say(f"plan {decided_digest(plan)}; review it, then: {run}")
    say_incomplete(plan.incomplete_reasons)
    return endings[0].exit_code if endings else int(plan_exit_code(plan))


def plan_exit_code(plan: DeletionPlan) -> ExitCode:
    """Map a plan to its exit code. An incomplete one is never 0 or 1."""
    outcomes = {group.outcome for group in plan.groups} | {left.why for left in plan.left_out}
    if not plan.complete or _UNDETERMINED in outcomes:
        return ExitCode.INCOMPLETE
    if outcomes - _SETTLED:
        return ExitCode.FINDINGS
    return ExitCode.NOTHING_WRONG
