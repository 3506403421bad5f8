"""``etcdfix history``: every revision of one key that is still kept."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import click

from etcdfix.cli.command import Command
from etcdfix.cli.exit_codes import ENDED_EARLY, ExitCode, epilog, report_exit_code
from etcdfix.cli.keys import object_options, wanted_object
from etcdfix.cli.options import FILE, reading_options, source_options
from etcdfix.cli.output_options import report_options
from etcdfix.cli.progress import progress_of
from etcdfix.cli.single_key import single_key
from etcdfix.operations.look.history import HistoryRequest, look_into_history
from etcdfix.operations.look.history_log import same_log

MEANINGS: dict[ExitCode, str] = {
    ExitCode.NOTHING_WRONG: "every revision that is kept can be read",
    ExitCode.FINDINGS: "a revision that is kept cannot be read, or is inconsistent",
    ExitCode.USAGE: "usage or configuration error",
    ExitCode.INCOMPLETE: "a revision is undetermined, or something was lost midway (wins over 1)",
    ExitCode.SOURCE: "nothing is kept of the key, or the source is unreachable or unreadable",
    **ENDED_EARLY,
}


@click.command("history", cls=Command, epilog=epilog(MEANINGS))
@click.argument("key", metavar="KEY|TYPE/NAME")
@object_options
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    metavar="N",
    envvar="ETCDFIX_LIMIT",
    help="Show the newest N revisions; all of them are examined and counted.",
)
@click.option(
    "--wal",
    "logs",
    type=FILE,
    multiple=True,
    metavar="DIR",
    help="Tell what this write-ahead log says, too: a member's member/wal, live or copied, with snap/db beside it; one "
    "for each member.",
)
@click.option(
    "--older-snapshot",
    "older",
    type=FILE,
    multiple=True,
    metavar="FILE",
    help="With --wal: an older snapshot of the same etcd. Where the log reaches back to it, it is replayed from there, "
    "which makes writes certain.",
)
@source_options
@reading_options
@report_options()
def command(
    *,
    key: str,
    limit: int,
    logs: tuple[Path, ...],
    older: tuple[Path, ...],
    output: str,
    output_file: Path | None,
    **options: Any,
) -> int:
    """Show every revision of one key that etcd, or the file, still keeps, the newest first. Reads only.

    Name an etcd key (/registry/secrets/shop/db), or TYPE/NAME as with kubectl (secret/db -n shop), deleted objects
    too. For each revision you see what it is. API servers compact etcd every five minutes. A snapshot keeps what etcd
    kept when it was taken.

    With --wal you also see what etcd's write-ahead log holds of the key, compacted or not. It is read without a lock.
    The log says what etcd was asked for, so each write is certain, likely or possible. A log of another history is
    refused.
    """
    wanted = wanted_object(key, options)
    if older and not logs:
        raise click.UsageError("--older-snapshot helps to read a write-ahead log: give --wal DIR")
    with single_key(options, wanted, output_file, output) as opened:
        request = HistoryRequest(
            **opened.inputs.reading_fields(opened.configuration),
            key=opened.key,
            most=limit,
        )
        progress = progress_of(opened.source)
        with contextlib.ExitStack() as stack:
            log = None
            if logs:
                log = stack.enter_context(same_log(logs, opened.source, request, older, progress=progress))
            result = look_into_history(
                opened.source, request, plugins=opened.plugins, progress=progress, log=log
            )
        report = opened.kept(result.report, result.problems, result.ended)
        opened.place.show(report, request.run)
    return report_exit_code(report, result.ended)
