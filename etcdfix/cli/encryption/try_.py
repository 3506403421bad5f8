"""``etcdfix encryption try``: which candidate opens which of the values that cannot be read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from etcdfix.cli.command import Command
from etcdfix.cli.exit_codes import reader_codes
from etcdfix.cli.keys import scope_options, wanted_scope
from etcdfix.cli.look import open_look
from etcdfix.cli.options import look_options, what_to_read
from etcdfix.cli.output import say
from etcdfix.cli.places import in_option
from etcdfix.commands.encryption.try_ import TryRequest, try_candidates
from etcdfix.copies.finder import Named
from etcdfix.copies.model import Place
from etcdfix.encryption.candidate_key import NamedCandidate, load_candidate_key
from etcdfix.encryption.config import load_configuration
from etcdfix.errors import ConfigurationError
from etcdfix.report.origin import shown_word

_CODES = reader_codes(
    "the candidates open everything that cannot be read today, or everything can be",
    "something is opened by no candidate",
    usage="usage or configuration error; a candidate that an API server would refuse",
    incomplete="could not be told: a KMS plugin gave no answer, or not everything was read (wins over 1)",
)


@click.command("try", cls=Command, epilog=_CODES)
@scope_options
@in_option((Place.CANDIDATE,))
@click.option(
    "--candidate-key", "candidate_keys", multiple=True, metavar="NAME=FILE", envvar="ETCDFIX_CANDIDATE_KEY",
    help="Try the key in this file under this name, for every provider that it fits (may be repeated). The file holds "
    "base64 or the bytes; - is standard input.",
)  # fmt: skip
@look_options()
def command(*, places: tuple[Named, ...], candidate_keys: tuple[str, ...], **options: Any) -> int:
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
    wanted = wanted_scope(options)
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
    with open_look(options, inputs, configuration, *theirs, besides=besides) as look:
        return look.tell_of_everything(try_candidates(look.source, request, **look.means), request.run)


def _key(text: str) -> NamedCandidate:
    name, separator, file = text.partition("=")
    if not name or not separator or not file:
        raise ConfigurationError(
            "--candidate-key does not name a key and a file",
            hint="write it as NAME=FILE: the name as values have it, and a file that holds the key",
        )
    return NamedCandidate(shown_word(text), load_candidate_key(name, Path(file)), is_key=True)
