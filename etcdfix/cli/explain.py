"""``etcdfix explain``: all that is known of one key, or what a cause means."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from etcdfix.cli.command import Command
from etcdfix.cli.exit_codes import ENDED_EARLY, ExitCode, epilog, report_exit_code
from etcdfix.cli.keys import is_key, object_options, wanted_object
from etcdfix.cli.options import jobs_option, reading_options, source_options
from etcdfix.cli.output_options import report_options
from etcdfix.cli.places import record_paths
from etcdfix.cli.progress import progress_of
from etcdfix.cli.report_place import report_place
from etcdfix.cli.single_key import single_key
from etcdfix.cli.where_else import our_record_options, where_else_options, where_to_look
from etcdfix.commands.explain import ExplainRequest, explain_key
from etcdfix.commands.explaining.impact import POLICIES
from etcdfix.copies.model import Place
from etcdfix.examine_jobs import Jobs
from etcdfix.operations.look.explain_cause import cause_list, cause_page, named_cause
from etcdfix.operations.opening import open_candidates
from etcdfix.report.explain import Shows
from etcdfix.text.commands import RunOptions

MEANINGS: dict[ExitCode, str] = {
    ExitCode.NOTHING_WRONG: "explained; a key that can be read, or that holds no object of the API",
    ExitCode.FINDINGS: "the key cannot be read, is inconsistent, or is gone",
    ExitCode.USAGE: "usage or configuration error; also a cause that does not exist",
    ExitCode.INCOMPLETE: "the key is undetermined, or something was lost midway (wins over 1)",
    ExitCode.SOURCE: "nothing is known of the key, or the source is unreachable or unreadable",
    **ENDED_EARLY,
}


@click.command("explain", cls=Command, epilog=epilog(MEANINGS))
@click.argument("word", metavar="[KEY|TYPE/NAME|CAUSE]", default="")
@click.option("--history", is_flag=True, help="Show every write that is kept, and which fields it changed.")
@click.option("--impact", is_flag=True, help="Show everything that losing the object would set off.")
@click.option(
    "--policy", type=click.Choice(POLICIES, case_sensitive=False),
    help="With --impact: how it is deleted through the API.  [default: as it is being deleted, else background]",
)  # fmt: skip
@object_options
@where_else_options
@our_record_options
@source_options
@reading_options
@jobs_option
@report_options()
def command(
    *,
    word: str,
    history: bool,
    impact: bool,
    policy: str | None,
    output: str,
    output_file: Path | None,
    jobs: Jobs,
    **options: Any,
) -> int:
    """Explain one key, or a cause. Reads only.

    Name an etcd key (/registry/secrets/shop/db), or TYPE/NAME as with kubectl (secret/db -n shop); deleted objects
    too. You see what is wrong and why, every copy of the object with the best first, and every way out. -o wide adds
    the command for each copy, the layout of the bytes (never their contents), every encryption key that was tried, and
    what was ruled out.

    --history shows every write that etcd, the file or a log (--in log:DIR) still holds. API servers compact etcd every
    five minutes. --impact looks at everything: who depends on the object, who uses it, what goes with it.

    CAUSE is a word of a report, such as wrong-key; its page is installed. Without a word, all causes are listed.
    """
    if not is_key(word) and "/" not in word:
        about = cause_page(named_cause(word)) if word else cause_list()
        with report_place(output_file, (), output) as place:
            place.show(about, RunOptions())
        return ExitCode.NOTHING_WRONG
    if history and impact:
        raise click.UsageError("--history and --impact: ask for one at a time")
    if policy and not impact:
        raise click.UsageError("--policy goes with --impact")
    wanted, records, places = wanted_object(word, options), record_paths(options), where_to_look(options)
    with single_key(options, wanted, output_file, output, places.named, everything=impact) as opened:
        candidates = [named.path for named in places.of(Place.CANDIDATE)]
        request = ExplainRequest(
            **opened.inputs.reading_fields(opened.configuration, api=places.api, places=records),
            key=opened.key,
            places=places,
            records=records,
            assess=impact or not opened.inputs.overrides,
            shows=Shows.HISTORY if history else Shows.IMPACT if impact else Shows.ALL,
            policy=policy,
        )
        with open_candidates(opened.source, opened.inputs, candidates) as others:
            result = explain_key(
                opened.source,
                request,
                plugins=opened.plugins,
                candidates=others,
                progress=progress_of(opened.source),
                jobs=jobs,
            )
        report = opened.kept(result.report, result.problems, result.ended)
        opened.place.show(report, request.run)
    return report_exit_code(report, result.ended)
