"""``etcdfix impact``: what depends on one object."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import click

from etcdfix.cli.cluster_index import (
    exit_code,
    nothing_found,
    open_cluster,
    report_on,
)
from etcdfix.cli.command import Command
from etcdfix.cli.exit_codes import ENDED_EARLY, ExitCode, epilog
from etcdfix.cli.keys import object_options, wanted_object
from etcdfix.cli.options import jobs_option, reading_options, source_options
from etcdfix.cli.output import say, say_incomplete, say_next
from etcdfix.cli.output_options import report_options
from etcdfix.cli.single_key import found_key
from etcdfix.examine_jobs import Jobs
from etcdfix.operations.look.impact import POLICIES, impact_report
from etcdfix.operations.look.index_cluster import ClusterIndex
from etcdfix.operations.look.missing import why_missing
from etcdfix.scope import ObjectWord
from etcdfix.storagekey import display

MEANINGS: dict[ExitCode, str] = {
    ExitCode.NOTHING_WRONG: "assessed, and the object can be read",
    ExitCode.FINDINGS: "assessed: the object cannot be read, is inconsistent, or is gone and others refer to it",
    ExitCode.USAGE: "usage or configuration error",
    ExitCode.INCOMPLETE: "assessed as far as can be: something is undetermined, or was lost midway (wins over 1)",
    ExitCode.SOURCE: "nobody has the key or refers to it, or the source is unreachable or unreadable",
    **ENDED_EARLY,
}


@click.command("impact", cls=Command, epilog=epilog(MEANINGS))
@click.argument("key", metavar="KEY|TYPE/NAME")
@object_options
@click.option(
    "--policy",
    type=click.Choice(POLICIES, case_sensitive=False),
    help="How it is deleted through the API. Default: as it is being deleted already, else background, as kubectl "
    "does.",
)
@source_options
@reading_options
@jobs_option
@report_options()
def command(
    *,
    key: str,
    policy: str | None,
    output: str,
    output_file: Path | None,
    jobs: Jobs,
    **options: Any,
) -> int:
    """Show what losing one object would set off: who depends on it, who uses it, how bad that is. Reads only.

    Name an etcd key (/registry/secrets/shop/db), or TYPE/NAME as at kubectl (secret/db -n shop): of an object that can
    be read or not, or that is gone and that others still mention. Everything in etcd is looked at once. Of an object
    that can be read it forecasts an ordinary deletion through the API (--policy): what goes with it, and who waits for
    whose finalizer. The grade is none, low, high or cluster-breaking.
    """
    wanted = wanted_object(key, options)
    with open_cluster(options, output_file, output) as opened:
        etcd_key = wanted
        if isinstance(etcd_key, ObjectWord):
            etcd_key = found_key(
                opened.source, opened.inputs, opened.request.configuration, etcd_key, opened.plugins
            )
        found = opened.look_at_all(lambda found: found.stored.key == etcd_key, jobs)
        found, report = report_on(found, partial(impact_report, key=etcd_key, policy=policy))
        if report is None:
            _not_found(found, etcd_key)
        opened.place.show(report, opened.request.run)
    say_incomplete(report.incomplete_reasons)
    undetermined = report.finding is not None and report.finding.outcome == "undetermined"
    healthy = report.finding is not None and report.finding.outcome in {"readable", "not-an-object"}
    return exit_code(found, complete=report.complete and not undetermined, findings=not healthy)


def _not_found(found: ClusterIndex, key: bytes) -> NoReturn:
    limited_to = found.source.describe().limited_to
    if not display(key).startswith(limited_to):
        say(f"{display(key)}: permission denied: only keys that start with {limited_to} were looked at")
        nothing_found(found)
    if found.index.problems:
        say(f"{display(key)}: not seen, nor anything that refers to it; not everything could be read")
        say_incomplete(found.index.problems)
        nothing_found(found)
    say(f"nothing is stored under {display(key)}, and nothing that can be read refers to it")
    hint = why_missing(found.source, found.request.layout, key)
    if hint:
        say_next(hint)
    nothing_found(found)
