"""``etcdfix namespace``: why a namespace hangs, and what to do in which order."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import click

from etcdfix.cli.cluster_index import exit_code, nothing_found, open_cluster, report_on
from etcdfix.cli.command import Command
from etcdfix.cli.exit_codes import ENDED_EARLY, ExitCode, epilog
from etcdfix.cli.options import jobs_option, reading_options, source_options
from etcdfix.cli.output import say, say_incomplete, say_next
from etcdfix.cli.output_options import report_options
from etcdfix.commands.namespace import concerns_namespace, has_findings, namespace_report, terminating_names
from etcdfix.errors import ConfigurationError
from etcdfix.examine_jobs import Jobs
from etcdfix.operations.look.index_cluster import ClusterIndex

MEANINGS: dict[ExitCode, str] = {
    ExitCode.NOTHING_WRONG: "nothing blocks it",
    ExitCode.FINDINGS: "something blocks it, or may, or is left behind; or its object is missing or unreadable",
    ExitCode.USAGE: "usage or configuration error",
    ExitCode.INCOMPLETE: "something in it is undetermined, or the source was lost midway (wins over 1)",
    ExitCode.SOURCE: "no such namespace, or the source is unreachable or unreadable",
    **ENDED_EARLY,
}


@click.command("namespace", cls=Command, epilog=epilog(MEANINGS))
@click.argument("name")
@source_options
@reading_options
@jobs_option
@report_options()
def command(*, name: str, output: str, output_file: Path | None, jobs: Jobs, **options: Any) -> int:
    """Explain why a namespace cannot finish deleting, and in which order to act. Reads only.

    Says whether it is Terminating and since when, which objects cannot be read, in it or elsewhere (each fails every
    LIST of its type and so holds every namespace of the cluster), which pods no kubelet ends, which finalizers hold
    what, which APIs are missing, which webhooks nobody answers and which objects wait for one another; then a numbered
    plan of commands: what holds all namespaces first, then the order of the deletion, pods before the rest. Deletions
    in it are dry runs.
    """
    if not name or "/" in name:
        raise ConfigurationError(f"{name!r} is no name of a namespace", hint="etcdfix namespace shop")
    with open_cluster(options, output_file, output) as opened:
        found = opened.look_at_all(concerns_namespace(opened.request.layout, name), jobs)
        found, report = report_on(found, partial(namespace_report, name=name))
        if report is None:
            _not_found(found, name)
        opened.place.show(report, opened.request.run)
    say_incomplete(report.incomplete_reasons)
    return exit_code(found, complete=report.complete, findings=has_findings(report))


def _not_found(found: ClusterIndex, name: str) -> NoReturn:
    if found.index.problems:
        say(f"namespace {name!r}: not seen, nor anything in it; not everything could be read")
        say_incomplete(found.index.problems)
    else:
        say(f"namespace {name!r}: not found, and nothing is in it")
    if dying := terminating_names(found):
        say_next(f"these are Terminating: {', '.join(dying[:5])}")
    nothing_found(found)
