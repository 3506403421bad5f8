"""``etcdfix copies``: every copy that still exists of what cannot be read, or was deleted lately."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from etcdfix.cli.command import Command
from etcdfix.cli.keys import wanted_scope
from etcdfix.cli.look import open_look, record_paths, where_to_look
from etcdfix.cli.options import FILE, look_options, scope_options, where_else_options
from etcdfix.commands.copies import CopiesRequest, find_copies
from etcdfix.commands.opening import nothing_examined
from etcdfix.report.saved_report import load_report


@click.command("copies", cls=Command)
@scope_options
@click.option(
    "--from-report", type=FILE, metavar="FILE",
    help="Look for what this report of etcdfix scan found (-o json or jsonl), instead of scanning.",
)  # fmt: skip
@where_else_options
@look_options()
def command(*, from_report: Path | None, **options: Any) -> int:
    """Find every copy that still exists of what cannot be read, or was deleted lately. Reads only.

    Run it before you delete anything. Of each object the best copy comes first; -o wide has the command that puts
    each back. GOOD: it reads, and is proven to be of this object. DOUBTFUL: it reads, and something is not certain.
    UNUSABLE: it does not read, or is of another object.

    It always looks at what etcd, the snapshot or kine still keeps, and at our backups. API servers compact etcd every
    five minutes, so look soon. --in and --kubeconfig name more places; a log or snapshot counts only where it has the
    same history as what is stored now.

    Name keys, resources or key prefixes as for scan, or nothing for everything. A key that you name is shown even if
    its value reads.
    """
    wanted = wanted_scope(options)
    if from_report is not None and not wanted.everything:
        raise click.UsageError("--from-report names the objects already: leave the others out")
    report = load_report(from_report) if from_report is not None else None
    records, places = record_paths(options), where_to_look(options)
    keys = report.findings if report is not None else ()
    with open_look(options, wanted, keys=keys, besides=(from_report,), places=places.named) as look:
        request = CopiesRequest(
            **look.reading_fields(api=places.api, places=records),
            scope=wanted,
            report=report,
            places=places,
            records=records,
        )
        result = find_copies(look.source, request, candidates=look.candidates, **look.means)
        if result.nothing_there:
            reasons = result.report.incomplete_reasons
            raise result.ended or nothing_examined(request.layout.prefix, result.suggested_prefixes, reasons)
        return look.tell(result.report, result.ended, request.run)
