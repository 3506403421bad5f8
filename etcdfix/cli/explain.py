"""``etcdfix explain``: all that is known of one key, or what a cause means."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from etcdfix.cli.command import Command
from etcdfix.cli.exit_codes import ENDED_EARLY, ExitCode, epilog, report_exit_code
from etcdfix.cli.keys import is_key, object_options, wanted_object
from etcdfix.cli.options import reading_options, source_options
from etcdfix.cli.output_options import report_options
from etcdfix.cli.progress import progress_of
from etcdfix.cli.report_place import report_place
from etcdfix.cli.single_key import single_key
from etcdfix.operations.look.explain import ExplainRequest, explain_key
from etcdfix.operations.look.explain_cause import cause_list, cause_page, named_cause
from etcdfix.text.commands import RunOptions

MEANINGS: dict[ExitCode, str] = {
    ExitCode.NOTHING_WRONG: "explained; a key that can be read, or that holds no object of the API",
    ExitCode.FINDINGS: "the key cannot be read, is inconsistent, or was deleted",
    ExitCode.USAGE: "usage or configuration error; also a cause that does not exist",
    ExitCode.INCOMPLETE: "the key is undetermined, or something was lost midway (wins over 1)",
    ExitCode.SOURCE: "nothing is kept of the key, or the source is unreachable or unreadable",
    **ENDED_EARLY,
}


@click.command("explain", cls=Command, epilog=epilog(MEANINGS))
@click.argument("word", metavar="[KEY|TYPE/NAME|CAUSE]", default="")
@object_options
@source_options
@reading_options
@report_options()
def command(*, word: str, output: str, output_file: Path | None, **options: Any) -> int:
    """Explain one key, or a cause. Reads only.

    Name an etcd key (/registry/secrets/shop/db), or TYPE/NAME as with kubectl (secret/db -n shop). You see what is
    wrong and why, and every way out, the least destructive first. -o wide adds the layout of the bytes (never their
    contents), every encryption key that was tried, what was ruled out, and the values beside it.

    CAUSE is a word of a report, such as wrong-key: what you see, what it means, how to be sure, what to do, how to undo
    it. Without a word, all causes are listed. For both nothing is read but what is installed.
    """
    if not is_key(word) and "/" not in word:
        about = cause_page(named_cause(word)) if word else cause_list()
        with report_place(output_file, (), output) as place:
            place.show(about, RunOptions())
        return ExitCode.NOTHING_WRONG
    wanted = wanted_object(word, options)
    with single_key(options, wanted, output_file, output) as opened:
        request = ExplainRequest(
            **opened.inputs.reading_fields(opened.configuration),
            key=opened.key,
        )
        result = explain_key(
            opened.source, request, plugins=opened.plugins, progress=progress_of(opened.source)
        )
        report = opened.kept(result.report, result.problems, result.ended)
        opened.place.show(report, request.run)
    return report_exit_code(report, result.ended)
