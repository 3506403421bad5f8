"""``etcdfix history``: every revision of one key that is still kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from etcdfix.cli.exit_codes import ENDED_EARLY, ExitCode, epilog
from etcdfix.cli.keys import wanted_key
from etcdfix.cli.options import reading_options, source_options
from etcdfix.cli.output import say, say_next
from etcdfix.cli.progress import progress_of
from etcdfix.cli.single_key import document_options, single_key
from etcdfix.operations.look.history import HistoryRequest, look_into_history
from etcdfix.operations.look.missing import why_missing
from etcdfix.reports.formats.history import HISTORY_FORMATS
from etcdfix.storagekey import StorageLayout, display

MEANINGS: dict[ExitCode, str] = {
    ExitCode.NOTHING_WRONG: "every revision that is kept can be read",
    ExitCode.FINDINGS: "a revision that is kept cannot be read, or is inconsistent",
    ExitCode.USAGE: "usage or configuration error",
    ExitCode.INCOMPLETE: "a revision is undetermined, or something was lost midway (wins over 1)",
    ExitCode.SOURCE: "nothing is kept of the key, or the source is unreachable or unreadable",
    **ENDED_EARLY,
}


@click.command("history", epilog=epilog(MEANINGS))
@click.argument("key", required=False)
@click.option("--key-base64", metavar="BASE64", help="The key, where it cannot be typed.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    metavar="N",
    envvar="ETCDFIX_LIMIT",
    help="Show the newest N revisions; all of them are examined and counted.",
)
@source_options
@reading_options
@document_options(list(HISTORY_FORMATS))
def command(
    *,
    key: str | None,
    key_base64: str | None,
    limit: int,
    output: str,
    output_file: Path | None,
    **options: Any,
) -> int:
    """Show every revision of one key that etcd, or the file, still keeps, the newest first. Reads only.

    KEY is a complete etcd key (/registry/secrets/shop/db), also of an object that was deleted. For each revision: what
    it is, when the object says that it was written, which fields differ from the one before (never their values), and
    the commands that show it and put it back. etcd keeps revisions until it compacts them, which an API server has it
    do every five minutes; a snapshot keeps what etcd kept when it was taken. kine (--kine) keeps the value before the
    last one even after that: it stands here as kept in an old_value.
    """
    wanted = wanted_key(key, key_base64)
    with single_key(options, wanted, output_file) as opened:
        request = HistoryRequest(
            layout=StorageLayout(opened.inputs.etcd_prefix),
            configuration=opened.configuration,
            kubernetes_minor=opened.inputs.kubernetes_minor,
            key=wanted,
            same_again=opened.inputs.same_again(),
            most=limit,
        )
        result = look_into_history(
            opened.source, request, plugins=opened.plugins, progress=progress_of(opened.source)
        )
        report = result.report
        for reason in report.incomplete_reasons if report is not None else result.problems:
            say(f"incomplete: {reason}")
        if report is None:
            say(f"nothing is stored under {display(wanted)}, and no revision of it is kept")
            hint = why_missing(opened.source, request.layout, wanted) if result.ended is None else ""
            if hint:
                say_next(hint)
            opened.nothing(result.ended, incomplete=bool(result.problems))
        HISTORY_FORMATS[output](report, opened.stream)
    if result.ended is not None:
        return result.ended.exit_code
    if not report.complete:
        return ExitCode.INCOMPLETE
    return ExitCode.FINDINGS if report.unreadable else ExitCode.NOTHING_WRONG
