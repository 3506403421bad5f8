"""``--fail-on``: which outcomes make the exit codes 1 and 3."""

from __future__ import annotations

import click

from etcdfix.errors import ConfigurationError
from etcdfix.model import Outcome
from etcdfix.operations.look.gathering import FAILING

_NONE = "none"


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


fail_on_option = click.option(
    "--fail-on",
    metavar="OUTCOME[,...]|none",
    callback=_fail_on,
    envvar="ETCDFIX_FAIL_ON",
    help="Which outcomes make exit codes 1 and 3: decrypt-failure, decode-failure, inconsistent, undetermined.  "
    "[default: all of them]",
)
