"""Progress on standard error: only at a terminal, only once something takes longer than a second."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import click

from etcdfix.cli.output import HABITS
from etcdfix.sources.pages import Page

if TYPE_CHECKING:
    from etcdfix.sources.base import Source

T = TypeVar("T")

_EVERY = 512
_AFTER_SECONDS = 1.0


def with_progress(
    items: Iterable[T], *, estimate: int, label: str, every: int = _EVERY, failed: Callable[[], int] = int
) -> Iterator[T]:
    """Yield the items, and say on standard error how many passed when it is a terminal and the work is long.

    Args:
        items: What is worked on.
        estimate: About how many there are, 0 when unknown.
        label: What they are, in the plural.
        every: The bar moves after so many; fewer where each takes long.
        failed: Says how many cannot be read so far.
    """
    if not _is_shown():
        yield from items
        return
    started = time.monotonic()
    seen = told = 0
    with click.progressbar(length=estimate or 1, file=sys.stderr, hidden=True) as bar:

        def tell() -> None:
            bar.length, wrong = max(estimate, seen), failed()
            bar.label = f"{seen:,} {label}{f', {wrong:,} cannot be read' if wrong else ''}"
            bar.update(seen - bar.pos)

        for item in items:
            yield item
            seen += len(item) if isinstance(item, Page) else 1
            if seen - told >= every:
                bar.hidden = bar.hidden and time.monotonic() - started <= _AFTER_SECONDS
                told = seen
                tell()
        tell()


def _is_shown() -> bool:
    # None where the shell closed it: 2>&-
    return not HABITS.quiet and sys.stderr is not None and sys.stderr.isatty()


def progress_of(source: Source) -> Callable[..., Iterator[Any]]:
    """Return what shows the progress of a look at everything that a source holds."""

    def progress(
        items: Iterator[T], label: str, estimate: int | None, /, *, failed: Callable[[], int] = int
    ) -> Iterator[T]:
        if estimate is not None:
            return with_progress(items, estimate=estimate, label=label, every=8, failed=failed)
        return with_progress(
            items, estimate=source.estimate() if _is_shown() else 0, label=label, failed=failed
        )

    return progress
