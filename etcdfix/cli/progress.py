"""Progress on standard error: only at a terminal, only once something takes longer than a second."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

from etcdfix.cli.output import HABITS, say
from etcdfix.examine_all import WAITING
from etcdfix.sources.pages import Page
from etcdfix.text.notes import Note
from etcdfix.text.words import counted

if TYPE_CHECKING:
    from etcdfix.examine_all import Progress
    from etcdfix.sources.base import Source

T = TypeVar("T")

_EVERY = 512
_AFTER_SECONDS = 1.0


def with_progress(items: Iterable[T], *, estimate: int, label: str, every: int = _EVERY) -> Iterator[T]:
    """Yield the items, showing a bar on standard error when it is a terminal and the work is long.

    Args:
        items: What is worked on.
        estimate: About how many there are, 0 when unknown.
        label: What they are, for the bar.
        every: The bar moves after so many; fewer where each takes long.
    """
    if not _is_shown():
        yield from items
        return
    import click  # noqa: PLC0415 - imported by then in any case

    started = time.monotonic()
    pending = 0
    seen = 0
    due = every
    iterator = iter(items)
    for item in iterator:
        yield item
        seen += _weight(item)
        if seen >= due:
            due = seen + every
            if time.monotonic() - started > _AFTER_SECONDS:
                break
    else:
        return
    with click.progressbar(length=max(estimate, seen), label=label, file=sys.stderr) as bar:
        bar.update(seen)
        for item in iterator:
            yield item
            pending += _weight(item)
            if pending >= every:
                bar.update(pending)
                pending = 0
        bar.update(pending)


def _is_shown() -> bool:
    wanted = HABITS.progress and not HABITS.quiet
    return wanted and sys.stderr is not None and sys.stderr.isatty()  # None where the shell closed it: 2>&-


def _weight(item: object) -> int:
    """Return as how many an item counts: a page as its values."""
    return len(item) if isinstance(item, Page) else 1


def progress_of(source: Source) -> Progress:
    """Return what shows the progress of a look at everything that a source holds."""

    def progress(items: Iterator[T], label: str, estimate: int | None, /) -> Iterator[T]:
        if estimate is None:
            estimate = source.estimate() if _is_shown() else 0
            return with_progress(items, estimate=estimate, label=label)
        if estimate and label == WAITING and _is_shown():
            say(Note(f"checking {counted(estimate, 'value')} a second time, now that all others were read"))
        return with_progress(items, estimate=estimate, label=label, every=8)

    return progress
