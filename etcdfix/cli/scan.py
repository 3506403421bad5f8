"""``etcdfix scan``: the main job."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any, BinaryIO, Final

import click

from etcdfix.cli.command import Command
from etcdfix.cli.exit_codes import MEANINGS, epilog, scan_exit_code
from etcdfix.cli.opened import read_files
from etcdfix.cli.options import FILE, jobs_option, reading_options, source_options, what_to_read
from etcdfix.cli.output import say, say_incomplete, say_other_prefixes
from etcdfix.cli.output_options import form_option, output_file_option
from etcdfix.cli.progress import progress_of
from etcdfix.cli.report_place import report_place
from etcdfix.cli.scope import scope_options, wanted_scope
from etcdfix.errors import ConfigurationError
from etcdfix.examine_jobs import Jobs
from etcdfix.model import Outcome
from etcdfix.operations.look.gathering import FAILING
from etcdfix.operations.look.scan import ScanRequest, ScanResult, run_scan
from etcdfix.operations.opening import open_plugins, open_source
from etcdfix.report.advice.whole import plugin_troubles
from etcdfix.report.baseline import load_baseline
from etcdfix.report.render import SCAN_FORMS, Writer
from etcdfix.text.commands import RunOptions
from etcdfix.text.notes import Note

_NONE: Final = "none"


def _fail_on(_context: click.Context, _parameter: click.Parameter, text: str | None) -> tuple[Outcome, ...]:
    """Return the outcomes that a comma list names."""
    if text is None:
        return FAILING
    words = [word.strip() for word in text.split(",")]
    known = [outcome.value for outcome in FAILING]
    if words == [_NONE]:
        return ()
    for word in words:
        if word not in known:
            raise ConfigurationError(
                f"--fail-on {word!r}: no outcome that a scan could fail on",
                hint=f"name some of {', '.join(known)}, with commas between them, or {_NONE}",
            )
    return tuple(map(Outcome, words))


@click.command("scan", cls=Command, epilog=epilog(MEANINGS))
@scope_options
@source_options
@reading_options
@jobs_option
@form_option(SCAN_FORMS)
@output_file_option("Write the report here instead of standard output.")
@click.option(
    "--max-causes",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    metavar="N",
    envvar="ETCDFIX_MAX_CAUSES",
    help="Keys that -o wide lists, and causes of each Status; counts are never capped.",
)
@click.option(
    "--baseline",
    type=FILE,
    metavar="REPORT",
    envvar="ETCDFIX_BASELINE",
    help="An earlier json or jsonl report, - for standard input: what it knows (same key, outcome and value) does not "
    "count towards the exit code.",
)
@click.option(
    "--fail-on",
    metavar="OUTCOME[,...]|none",
    callback=_fail_on,
    envvar="ETCDFIX_FAIL_ON",
    help="Which outcomes make exit codes 1 and 3: decrypt-failure, decode-failure, inconsistent, undetermined.  "
    "[default: all of them]",
)
def command(
    *,
    scope: tuple[str, ...],
    namespaces: tuple[str, ...],
    all_namespaces: bool,
    output: str,
    output_file: Path | None,
    max_causes: int,
    baseline: Path | None,
    fail_on: tuple[Outcome, ...],
    jobs: Jobs,
    **options: Any,
) -> int:
    """Examine everything in scope, and report what cannot be read and why. Reads only.

    Name resources as at kubectl (secrets, po,svc, deploy.apps), objects (TYPE/NAME), key prefixes (they start with /
    and match whole path segments), or nothing for everything. Without -n it is every namespace. Without
    --snapshot or --kine a live etcd is read; ETCDCTL_* variables are understood, and each option has an ETCDFIX_*
    variable of its own.
    """  # fmt: skip
    wanted = wanted_scope(scope, namespaces, all_namespaces=all_namespaces)
    inputs, configuration = what_to_read(options, each_from_its_own=True)
    request = ScanRequest(
        **inputs.reading_fields(configuration),
        scope=wanted,
        max_causes=max_causes,
        baseline=load_baseline(baseline) if baseline is not None else None,
    )
    inputs_used = (*read_files(inputs), baseline)
    with (
        open_source(inputs, say=say) as source,
        report_place(output_file, inputs_used, output) as place,
    ):
        writer = _writer(output, place.stream, request.run, max_causes, fail_on)
        with open_plugins(inputs, configuration) as plugins:
            result = run_scan(
                source,
                request,
                writer,
                plugins=plugins,
                progress=progress_of(source),
                jobs=jobs,
            )
        place.wrote(result.report)
    _say_last_words(result, fail_on)
    return int(scan_exit_code(result, fail_on))


def _writer(form: str, stream: BinaryIO, run: RunOptions, cap: int, failing: Collection[Outcome]) -> Writer:
    if form == "junit":
        from etcdfix.report.render.junit import JUnitWriter  # noqa: PLC0415 - only this form loads XML

        return JUnitWriter(stream, run, failing)
    return SCAN_FORMS[form](stream, run, cap)


def _say_last_words(result: ScanResult, fail_on: Collection[Outcome]) -> None:
    """Say why the result is not everything, what is to be done about that, and which findings do not count."""
    say_incomplete(result.problems)
    if result.ended is not None:
        say(f"incomplete: {result.ended.reason} before the end")
    for trouble in plugin_troubles(result.report.summary.kms):
        say(trouble)
    for key in result.denied:
        say(f"permission denied: the key {key} itself, outside {result.prefix}, was not read")
    _say_what_was_not_examined(result)
    uncounted = [
        f"{keys} {outcome}" for outcome, keys in result.new.items() if keys and outcome not in fail_on
    ]
    if uncounted:
        say(Note(f"not counted for the exit code (--fail-on): {', '.join(uncounted)}"))


def _say_what_was_not_examined(result: ScanResult) -> None:
    keys = result.report.summary.keys
    if not keys and (result.problems or result.ended is not None):
        say("NOTHING WAS EXAMINED")
    elif not result.below_prefix:
        at = f" at revision {result.revision}" if result.revision else ""
        say(f"NOTHING WAS EXAMINED: no key starts with {result.prefix}{at}")
        say_other_prefixes(result.suggested_prefixes)
    elif result.nothing_named_exists:
        say("NOTHING WAS EXAMINED: no key matches the given name (the storage prefix itself holds keys)")
    elif not keys:
        say("no key is in this scope (the storage prefix itself holds keys)")
