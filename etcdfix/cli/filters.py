"""The options of ``etcdfix scan`` that say which findings to show, and in which order."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

import click

from etcdfix.cli.completing import Completer, catalogue, comma_list
from etcdfix.cli.options import option_group
from etcdfix.errors import ConfigurationError
from etcdfix.model import Outcome
from etcdfix.operations.look.gathering import FAILING
from etcdfix.operations.look.scan_filters import ScanFilters, SortBy, Written, parse_written
from etcdfix.verdicts.causes import Cause
from etcdfix.verdicts.severity import Severity

_Callback = Callable[[click.Context, click.Parameter, Any], Any]
_NAMES: Final = (
    "outcomes", "causes", "severities", "newer_than", "older_than", "stale", "sort_by", "limit",
)  # fmt: skip


def _some_of(choices: Iterable[StrEnum], listed_by: str) -> _Callback:
    """Return what reads a comma list of these words, and names the nearest one where a word is none of them.

    Args:
        choices: The words.
        listed_by: Where to see them all.
    """
    known = [choice.value for choice in choices]

    def parse(_context: click.Context, parameter: click.Parameter, text: str | None) -> tuple[str, ...]:
        words = [word.strip() for word in text.split(",")] if text is not None else []
        for word in words:
            if word not in known:
                near = difflib.get_close_matches(word.lower(), known, n=3, cutoff=0.5)
                raise ConfigurationError(
                    f"{parameter.opts[0]}: nobody knows {word!r}",
                    hint=f"did you mean {' or '.join(near)}?" if near else listed_by,
                )
        return tuple(dict.fromkeys(words))

    return parse


def _offered(choices: Iterable[StrEnum]) -> Completer:
    return comma_list(lambda: [(choice.value, "") for choice in choices])


def _written(_context: click.Context, parameter: click.Parameter, text: str | None) -> Written | None:
    return parse_written(parameter.opts[0], text, datetime.now(UTC)) if text is not None else None


def _sort_by(_context: click.Context, parameter: click.Parameter, text: str) -> SortBy:
    listed = f"one of {', '.join(SortBy)}"
    words = _some_of(SortBy, listed)(_context, parameter, text)
    if len(words) != 1:
        raise ConfigurationError(f"{parameter.opts[0]}: {text!r} is more than one field", hint=listed)
    return SortBy(words[0])


_OUTCOMES: Final = (*FAILING, Outcome.READABLE, Outcome.NOT_AN_OBJECT)

filter_options = option_group(
    click.option(
        "--outcome", "outcomes", metavar="OUTCOME[,...]",
        shell_complete=_offered(_OUTCOMES),
        callback=_some_of(_OUTCOMES, f"one of {', '.join(_OUTCOMES)}"),
        help="Show findings of these outcomes alone: decrypt-failure, decode-failure, inconsistent, undetermined; "
        "readable and not-an-object for those with a warning. Like all filters it hides findings from the report, and "
        "says how many: what is counted, and the exit code, stay those of everything.",
    ),
    click.option(
        "--cause", "causes", metavar="CAUSE[,...]",
        shell_complete=comma_list(catalogue),
        callback=_some_of(Cause, "etcdfix explain lists all causes"),
        help="Show findings of these causes alone (etcdfix explain lists them).",
    ),
    click.option(
        "--severity", "severities", metavar="SEVERITY[,...]",
        shell_complete=_offered(Severity),
        callback=_some_of(Severity, f"one of {', '.join(Severity)}"),
        help="Show findings of these severities alone: breaks-now, breaks-at-restart, one-object.",
    ),
    click.option(
        "--newer-than", metavar="REVISION|AGE|TIME", callback=_written,
        help="Show values written after this: a revision, an age (30m, 36h, 3d), or a time. A finding is shown too "
        "where nobody knows when its value was written.",
    ),
    click.option(
        "--older-than", metavar="REVISION|AGE|TIME", callback=_written,
        help="Show values written before this; likewise.",
    ),
    click.option(
        "--stale", is_flag=True,
        help="Show values that can be read and are not written with today's write key, and nothing else.",
    ),
    click.option(
        "--sort-by", metavar="FIELD", default=SortBy.KEY.value, callback=_sort_by,
        shell_complete=lambda _context, _parameter, begun: [word for word in SortBy if word.startswith(begun)],
        help="Order of the findings: key, resource, cause, severity (the worst first), size (the largest first), "
        "revision (the newest first).  [default: key]",
    ),
    click.option(
        "--limit", type=click.IntRange(min=1), default=None, metavar="N",
        help="Show so many findings, the first ones in this order.",
    ),
)  # fmt: skip
"""None has a variable: what was exported once must not hide anything tonight."""


def wanted_filters(options: dict[str, Any]) -> ScanFilters:
    """Take out of the options of a command what :data:`filter_options` collected.

    Raises:
        click.UsageError: They contradict each other.
    """
    taken = {name: options.pop(name) for name in _NAMES}
    filters = ScanFilters(**{**taken, "limit": taken["limit"] or 0})
    if filters.stale:
        if filters.severities:
            raise click.UsageError(
                "--stale and --severity contradict each other: what can be read has no severity"
            )
        if filters.outcomes and filters.outcomes != (Outcome.READABLE,):
            raise click.UsageError("--stale and --outcome contradict each other: stale values are readable")
    return filters


def refuse_filtered(form: str) -> None:
    """Refuse a form that cannot say that findings are hidden.

    Raises:
        click.UsageError: It cannot.
    """
    whole = {"status": "it is what an API server would list", "junit": "a test that is hidden cannot fail"}
    if form in whole:
        raise click.UsageError(f"-o {form} and filters do not go together: {whole[form]}")
