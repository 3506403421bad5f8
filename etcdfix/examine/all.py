"""Two passes over many values: the first counts what each value shows of its encryption key, the second judges.

The first pass hands on what is plainly readable, and sets everything else aside: values written before and after one
that does not open may show that its key is right. A KMS plugin may be slow; reading etcd does not wait for one, since
its revision can be compacted meanwhile. What needs an answer is set aside as it is stored, and answers are awaited
between the passes.

The second pass says what each value is, in the order of the keys, with all that others have shown.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import Protocol, TypeVar

import msgspec

from etcdfix.examine.first_pass import FirstPass, PageExaminer
from etcdfix.examine.one import Examiner
from etcdfix.examine.readers import PlainCounts
from etcdfix.examine.two_passes import TwoPasses
from etcdfix.examine.verdicts.deletability import FAILED
from etcdfix.examine.verdicts.examination import Examination, PlainCount
from etcdfix.model.errors import EndedEarly, SourceError
from etcdfix.model.model import Outcome, StoredValue
from etcdfix.sources.pages import Page

T = TypeVar("T")

LAST_LABEL = "unreadable values"
"""Label of the progress of the second pass."""

WITNESS_LABEL = "other values"
"""Label of the progress of values that are looked at only for what they show of encryption keys."""


class Progress(Protocol):
    """Counts items for a display as they pass."""

    def __call__(self, items: Iterator[T], label: str, estimate: int | None, /) -> Iterator[T]:
        """Yield ``items``; ``estimate`` is about how many there are, None for as many as the source holds.

        A :class:`~etcdfix.sources.pages.Page` counts as many as its length says.
        """
        ...


def no_progress(items: Iterator[T], _label: str, _estimate: int | None, /, **_: object) -> Iterator[T]:
    """Yield the items, and display nothing."""
    return items


class WitnessPages(msgspec.Struct, frozen=True):
    """Values that are not examined for themselves: what they show may decide about some that are.

    Attributes:
        pages: In the source's order; read only where a value was set aside.
        holds: Says whether an etcd key is one of theirs.
    """

    pages: Iterable[Page]
    holds: Callable[[bytes], bool]


Take = Callable[[Examination], None]
"""Takes one examination after the other."""

TakePlain = Callable[[Sequence[PlainCount]], None]
"""Takes what was plain on one page."""

TakeNumbered = Callable[[int, Examination], None]
"""Takes examinations under several configurations, with the number of the configuration."""


class Ending(msgspec.Struct, frozen=True):
    """How the passes came to their end.

    Attributes:
        ended: What ended them early; None where nothing did.
        problems: How the source was lost midway; empty where it was not.
        lost: Which workers were lost, whose values were examined all the same.
    """

    ended: EndedEarly | None = None
    problems: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()


def examine_all(
    examiner: Examiner,
    pages: Iterable[Page],
    take: Take,
    *,
    plain: TakePlain | None = None,
    first_pass: FirstPass | None = None,
    targets: Collection[bytes] = (),
    progress: Progress = no_progress,
    whole: bool = False,
    witnesses: WitnessPages | None = None,
    on_cut_short: Callable[[], object] = bool,
) -> Ending:
    """Examine values once, and hand each to a consumer: first what reads, then all others in the order of their keys.

    Args:
        examiner: Says what each value is.
        pages: In the source's order.
        take: The consumer.
        plain: Takes what is plain, as counts, once a page and after answers of plugins; None where the consumer takes
            each plain value too.
        first_pass: Takes the first look; the consumer takes what is plain as counts, or the extract of each value. None
            where this process looks.
        targets: Etcd keys of values that are searched for damage in any case.
        progress: Counts the values for a display, in each pass.
        whole: A part is of no use: an interruption, or a source that is lost midway, is raised.
        witnesses: Looked at before the second pass; no consumer sees them.
        on_cut_short: Called once the passes are ended early, or the source is lost: ask the source nothing more.

    Raises:
        SourceError: Nothing could be read; or not everything, and a part is of no use.
    """
    began = False
    looks = first_pass.looks if first_pass is not None else partial(_looks_here, examiner)
    with TwoPasses(examiner, targets=targets) as run:

        def first() -> None:
            nonlocal began
            for look in looks(progress(iter(pages), "keys", None)):
                began = True
                with _counting(plain) as counts:
                    for found in run.first(look(counts)):
                        take(found)

        def others() -> None:
            if witnesses is not None and run.set_aside:
                worth = progress(run.worth_a_look(witnesses.pages), WITNESS_LABEL, None)
                for look in looks(worth):
                    with _counting(_uncounted) as counts:
                        run.look_at_witnesses(look(counts), witnesses.holds)

        ending = _read(first, [run], whole=whole, began=lambda: began)
        if ending == Ending():
            ending = _read(others, [run], whole=whole, began=lambda: True)
        ending = _second(run, take, ending, progress=progress, whole=whole, on_cut_short=on_cut_short)
        return ending if first_pass is None else msgspec.structs.replace(ending, lost=tuple(first_pass.lost))


def _looks_here(examiner: Examiner, pages: Iterable[Page]) -> Iterator[PageExaminer]:
    for page in pages:
        yield partial(examiner.examine_each, page.values())


@contextlib.contextmanager
def _counting(plain: TakePlain | None) -> Iterator[PlainCounts | None]:
    """Give what counts plain values, where somebody takes them, and hand on what was counted, however it ends."""
    if plain is None:
        yield None
        return
    counts = PlainCounts()
    try:
        yield counts
    finally:
        counted = counts.settle()
        if counted:
            plain(counted)


def _uncounted(_counts: Sequence[PlainCount]) -> None:
    """Let what was counted go: what it opened is known."""


def examine_each(
    examiners: Sequence[Examiner],
    values: Iterable[StoredValue],
    take: TakeNumbered,
    *,
    progress: Progress = no_progress,
) -> Ending:
    """Examine values under several configurations while they are read once.

    Args:
        examiners: One for each configuration; their KMS plugins may be the same.
        values: In the source's order.
        take: The consumer; it is told the number of the examiner. Of one value the examinations may come far apart.
        progress: Counts the values for a display, in each pass.

    Raises:
        SourceError: Nothing could be read.
    """
    began = False
    with contextlib.ExitStack() as stack:
        runs = [stack.enter_context(TwoPasses(examiner)) for examiner in examiners]

        def first() -> None:
            nonlocal began
            for stored in progress(iter(values), "keys", None):
                began = True
                for number, (examiner, run) in enumerate(zip(examiners, runs, strict=True)):
                    for found in run.first(examiner.examine_each((stored,))):
                        take(number, found)

        ending = _read(first, runs, whole=False, began=lambda: began)
        for number, run in enumerate(runs):
            ending = _second(run, partial(take, number), ending, progress=progress, whole=False)
    return ending


def _read(
    look: Callable[[], None], runs: Sequence[TwoPasses], *, whole: bool, began: Callable[[], bool]
) -> Ending:
    try:
        look()
    except SourceError as exc:
        if whole or not began():
            raise
        return Ending(problems=(f"the source was lost midway: {exc.message}",))
    except KeyboardInterrupt as exc:
        if whole:
            raise
        for run in runs:
            run.abort()
        return Ending(EndedEarly.of(exc))
    return Ending()


def _second(
    run: TwoPasses,
    take: Take,
    ending: Ending,
    *,
    progress: Progress,
    whole: bool,
    on_cut_short: Callable[[], object] = bool,
) -> Ending:
    if ending.ended or ending.problems:
        on_cut_short()
    try:
        for found in progress(run.second(), LAST_LABEL, run.set_aside):
            take(found)
    except KeyboardInterrupt as exc:
        if whole:
            raise
        on_cut_short()
        run.abort()
        for found in run.second():
            take(found)
        ending = msgspec.structs.replace(ending, ended=EndedEarly.of(exc))
    if run.no_room is None:
        return ending
    if whole:
        raise run.no_room
    return msgspec.structs.replace(ending, problems=(*ending.problems, run.no_room.message))


def look_last(examiner: Examiner, stored: StoredValue) -> Examination:
    """Examine one value after a pass over everything, as that does with its target: with a search for damage."""
    plugins = examiner.plugins
    if plugins is not None:
        plugins.deferring, plugins.final = False, True
    if examiner.kept is not None:
        examiner.kept.targets = (stored.key,)
    try:
        found = examiner.examine(stored)
        if found.verdict.outcome in FAILED or found.verdict.outcome is Outcome.UNDETERMINED:
            found = examiner.examine(stored, thorough=True)
        return found
    finally:
        if plugins is not None:
            plugins.final = False
