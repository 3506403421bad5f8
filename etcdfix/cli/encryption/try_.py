"""``etcdfix encryption try``: which candidate opens which of the values that cannot be read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from etcdfix.cli.cluster_index import nothing_examined
from etcdfix.cli.command import Command
from etcdfix.cli.exit_codes import ENDED_EARLY, ExitCode, epilog
from etcdfix.cli.opened import open_all
from etcdfix.cli.options import jobs_option, reading_options, source_options, what_to_read
from etcdfix.cli.output import say, say_incomplete
from etcdfix.cli.output_options import report_options
from etcdfix.cli.places import in_option
from etcdfix.cli.progress import progress_of
from etcdfix.cli.scope import scope_options, wanted_scope
from etcdfix.commands.encryption.try_ import TryRequest, try_candidates
from etcdfix.copies.finder import Named
from etcdfix.copies.model import Place
from etcdfix.encryption.candidate_key import NamedCandidate, load_candidate_key
from etcdfix.encryption.config import load_configuration
from etcdfix.errors import ConfigurationError
from etcdfix.examine_jobs import Jobs
from etcdfix.report.origin import shown_word

MEANINGS: dict[ExitCode, str] = {
    ExitCode.NOTHING_WRONG: "the candidates open everything that cannot be read today, or everything can be",
    ExitCode.FINDINGS: "something is opened by no candidate",
    ExitCode.USAGE: "usage or configuration error; a candidate that an API server would refuse",
    ExitCode.INCOMPLETE: "could not be told: a KMS plugin gave no answer, or not everything was read (wins over 1)",
    ExitCode.SOURCE: "source unreachable or unreadable: nothing was examined",
    **ENDED_EARLY,
}


@click.command("try", cls=Command, epilog=epilog(MEANINGS))
@scope_options
@in_option((Place.CANDIDATE,))
@click.option(
    "--candidate-key", "candidate_keys", multiple=True, metavar="NAME=FILE", envvar="ETCDFIX_CANDIDATE_KEY",
    help="Try the key in this file under this name, for every provider that it fits (may be repeated). The file holds "
    "base64 or the bytes; - is standard input.",
)  # fmt: skip
@source_options
@reading_options
@jobs_option
@report_options()
def command(
    *,
    scope: tuple[str, ...],
    places: tuple[Named, ...],
    candidate_keys: tuple[str, ...],
    namespaces: tuple[str, ...],
    all_namespaces: bool,
    output: str,
    output_file: Path | None,
    jobs: Jobs,
    **options: Any,
) -> int:
    """Show which candidate opens which of the values that cannot be read today. Reads only.

    Every value that does not open with --encryption-config is tried with each candidate; without a configuration, every
    encrypted value. "Opens" means that the value opens, decodes, and fits its etcd key. "Right key only" counts values
    that were written with a key of the candidate, but do not open: they are damaged, were moved, or name the key
    otherwise.
    """
    if not places and not candidate_keys:
        raise ConfigurationError(
            "no candidate was named", hint="--in candidate:FILE, or --candidate-key NAME=FILE"
        )
    wanted = wanted_scope(scope, namespaces, all_namespaces=all_namespaces)
    inputs, configuration = what_to_read(options, each_from_its_own=True)
    candidates = [
        *(NamedCandidate(shown_word(named.what), load_configuration(named.path)) for named in places),
        *map(_key, candidate_keys),
    ]
    for candidate in candidates:
        for warning in candidate.configuration.warnings:
            say(f"{candidate.name}: {warning}")
    request = TryRequest(
        **inputs.reading_fields(configuration),
        candidates=tuple(candidates),
        scope=wanted,
    )
    theirs = [candidate.configuration for candidate in candidates]
    besides = tuple(Path(one.path) for one in theirs)
    with open_all(inputs, output_file, output, configuration, *theirs, besides=besides) as (
        source,
        place,
        plugins,
    ):
        tried = try_candidates(source, request, plugins=plugins, progress=progress_of(source), jobs=jobs)
        whole, report = tried.whole, tried.report
        if not whole.below_prefix:
            nothing_examined(request.layout, whole.problems, whole.ended, whole.suggested_prefixes)
        place.show(report, request.run)
    say_incomplete(report.incomplete_reasons)
    if whole.ended is not None:
        return whole.ended.exit_code
    if not report.complete:
        return ExitCode.INCOMPLETE
    return ExitCode.NOTHING_WRONG if report.opened == report.findings else ExitCode.FINDINGS


def _key(text: str) -> NamedCandidate:
    name, separator, file = text.partition("=")
    if not name or not separator or not file:
        raise ConfigurationError(
            "--candidate-key does not name a key and a file",
            hint="write it as NAME=FILE: the name as values have it, and a file that holds the key",
        )
    return NamedCandidate(shown_word(text), load_candidate_key(name, Path(file)), is_key=True)
