"""``etcdfix scan``: the main job."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource

from etcdfix.cli.command import Command
from etcdfix.cli.keys import wanted_scope
from etcdfix.cli.look import ReportPlace, open_look, scan_exit_code
from etcdfix.cli.options import FILE, look_options, scope_options
from etcdfix.cli.output import say, say_error, say_incomplete
from etcdfix.commands.orphans import orphans_report
from etcdfix.commands.scan import ScanRequest, ScanResult, run_scan
from etcdfix.commands.scanning.pipeline import FAILING
from etcdfix.model.errors import ConfigurationError
from etcdfix.model.model import Outcome
from etcdfix.report.advice.whole import plugin_troubles
from etcdfix.report.render import FORMS, SCAN_FORMS, Writer
from etcdfix.report.saved_report import load_baseline
from etcdfix.text.commands import RunOptions
from etcdfix.text.notes import Note

_NONE: Final = "none"


def _fail_on(_context: click.Context, _parameter: click.Parameter, text: str | None) -> tuple[Outcome, ...]:
    if text is None:
        return FAILING
    words = [word.strip() for word in text.split(",")]
    known = [outcome.value for outcome in FAILING]
    for word in words if words != [_NONE] else []:
        if word not in known:
            raise ConfigurationError(
                f"--fail-on {word!r}: no outcome that a scan could fail on",
                hint=f"name some of {', '.join(known)}, with commas between them, or {_NONE}",
            )
    return tuple(Outcome(word) for word in words if word != _NONE)


@click.command("scan", cls=Command)
@scope_options
@look_options(SCAN_FORMS)
@click.option(
    "--baseline",
    type=FILE,
    metavar="REPORT",
    envvar="ETCDFIX_BASELINE",
    help="An earlier report (json or jsonl; - for standard input). A finding with the same key, outcome and value does "
    "not count towards the exit code.",
)
@click.option(
    "--fail-on",
    metavar="OUTCOME[,...]|none",
    callback=_fail_on,
    envvar="ETCDFIX_FAIL_ON",
    help="Outcomes that lead to exit code 1 or 3: decrypt-failure, decode-failure, inconsistent, undetermined.  "
    "[default: all of them]",
)
@click.option(
    "--orphans", is_flag=True,
    help="Instead, list keys that belong to nobody: no owner, CRD, namespace or known resource. That is no reason "
    "to delete a key.",
)  # fmt: skip
def command(*, baseline: Path | None, fail_on: tuple[Outcome, ...], orphans: bool, **options: Any) -> int:
    """Examine the objects in etcd, and report what cannot be read and why. Reads only.

    Name resources as in kubectl (secrets, po,svc, deploy.apps), objects (TYPE/NAME) or key prefixes
    (/registry/secrets/shop). Without names, etcdfix examines everything, in all namespaces. It reads the live etcd
    unless you give --snapshot or --kine.
    """
    if orphans:
        return _orphans(options)
    wanted = wanted_scope(options)
    earlier = load_baseline(baseline) if baseline is not None else None
    with open_look(options, each_from_its_own=True, besides=(baseline,)) as look:
        request = ScanRequest(**look.reading_fields(), scope=wanted, baseline=earlier)
        writer = _writer(look.place, request.run, fail_on)
        result = run_scan(look.source, request, writer, **look.means)
        look.place.wrote(result.report)
    _say_last_words(result, fail_on)
    return scan_exit_code(result, fail_on)


def _orphans(options: dict[str, Any]) -> int:
    context = click.get_current_context()
    for name in ("scope", "namespaces", "baseline", "fail_on"):
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(
                "--orphans looks at everything: give no scope and no other option of a scan"
            )
    if options["output"] not in FORMS:
        raise click.UsageError(f"--orphans has no -o {options['output']}; it has {', '.join(FORMS)}")
    with open_look(options, each_from_its_own=True) as look:
        found, report = look.index(lambda _found: False, orphans_report)
        return look.tell(report, found.ended, found.request.run)


def _writer(place: ReportPlace, run: RunOptions, failing: Collection[Outcome]) -> Writer:
    if place.form == "junit":
        from etcdfix.report.render.junit import JUnitWriter  # noqa: PLC0415 - only this form loads XML

        return JUnitWriter(place.stream, run, failing)
    return SCAN_FORMS[place.form](place.stream, run)


def _say_last_words(result: ScanResult, fail_on: Collection[Outcome]) -> None:
    say_incomplete(result.problems)
    if result.ended is not None:
        say(f"incomplete: {result.ended.reason} before the end")
    for trouble in plugin_troubles(result.report.summary.kms):
        say(trouble)
    for key in result.denied:
        say(f"permission denied: the key {key} itself, outside the storage prefix, was not read")
    keys = result.report.summary.keys
    if not keys and (result.problems or result.ended is not None):
        say("NOTHING WAS EXAMINED")
    elif result.nothing is not None:
        say_error(result.nothing.message, result.nothing.hint)
    elif not keys:
        say("no key is in this scope (the storage prefix itself holds keys)")
    uncounted = [
        f"{keys} {outcome}" for outcome, keys in result.new.items() if keys and outcome not in fail_on
    ]
    if uncounted:
        say(Note(f"not counted for the exit code (--fail-on): {', '.join(uncounted)}"))
