"""One pass over many values, for whoever wants to know of all of them; some values are looked at again at the end.

A plugin may be slow, and its KMS allows so many calls a second; neither may hold up the reading of etcd, whose
revision can be compacted meanwhile. So a value whose data key is not there yet is put aside as it is stored, in
an unlinked temporary file. So is a value against which a plugin has spoken: a later value may open under the same key
id, and the verdict needs to know. What is said of either does not depend on when an answer came.

A value that does not open under a local key waits as well: values written before and after it may show that the key is
right, and only where the key opens something is it worth the time to search for what was damaged.
"""

from __future__ import annotations

import contextlib
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import Protocol, Self, TypeVar

import msgspec

from etcdfix.encryption.cipher import difference
from etcdfix.encryption.kms.envelopes import KMSPending
from etcdfix.examine.jobs import Helpers, Look
from etcdfix.examine.one import Examiner
from etcdfix.examine.readers import PlainCounts
from etcdfix.examine.spool import Spool
from etcdfix.examine.verdicts.causes import Cause
from etcdfix.examine.verdicts.deletability import FAILED
from etcdfix.examine.verdicts.examination import Examination, KeyName, PlainCount
from etcdfix.examine.verdicts.kinds import Kinds, Part
from etcdfix.examine.worker import Found
from etcdfix.inputs.temporary import temporary_directory
from etcdfix.model.errors import EndedEarly, SourceError
from etcdfix.model.model import Outcome, StoredValue
from etcdfix.model.providers import facts_of
from etcdfix.sources.pages import Page, ValuesPage
from etcdfix.text.words import counted

T = TypeVar("T")
V = TypeVar("V")

# What a verdict says of a value may rest on what its plugin did for others.
_BEHIND_PLUGIN = frozenset(
    {
        Cause.KMS_DENIED,
        Cause.KMS_KEY_UNKNOWN,
        Cause.KMS_UNPROVEN,
        Cause.KMS_ENVELOPE_DAMAGED,
        Cause.AUTHENTICATION_FAILED,
        Cause.VALUE_TRUNCATED,
    }
)
# In a scan so many values of one encryption key are searched for damage; the search can take a second for a large one.
MOST_SEARCHED = 1_000
_UNDER_KMS = b"k8s:enc:kms:"
_LONGEST_PREFIX = 1 << 10
# So few that a key which opens nothing may yet be the right one: more of them are not damaged all at once.
_FEW, _FEW_KEYS = 3, 32
# So many values are asked about ahead of the one whose answer is awaited.
_WINDOW = 512
_WINDOW_BYTES = 8 << 20


WAITING = "values checked a second time"
"""Label of the progress of values that wait for a KMS plugin."""

BEYOND = "other values"
"""Label of the progress of values that are looked at for what they open alone."""


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


class View:
    """What a consumer may look at while it takes an examination, and not later.

    Attributes:
        draining: Everything was seen; what waited is taken now, in the order of the keys where something is wrong.
        ended: The pass was ended early, or the source was lost: no more is to be asked of the source.
    """

    def __init__(self, examiner: Examiner, run: Examining) -> None:
        self.draining = False
        self.ended = False
        self._run = run
        self.plaintext = examiner.plaintext

    @property
    def waiting(self) -> int:
        """How many values with earlier keys are still open."""
        return self._run.waiting


class Beyond(msgspec.Struct, frozen=True):
    """Values that are not examined for themselves: what they open may decide about some that are.

    Attributes:
        pages: In the source's order; read only where a value waits.
        holds: Says whether an etcd key is one of theirs.
    """

    pages: Iterable[Page]
    holds: Callable[[bytes], bool]


Take = Callable[[Examination, View], None]
"""Takes one examination after the other."""

TakePlain = Callable[[Sequence[PlainCount]], None]
"""Takes what was plain on one page."""

TakeEach = Callable[[int, Examination, View], None]
"""The same under several configurations: told the number of each."""


class Ending(msgspec.Struct, frozen=True):
    """How a pass came to its end.

    Attributes:
        ended: What ended it early; None where nothing did.
        problems: How the source was lost midway; empty where it was not.
        lost: How helpers were lost, whose values were examined all the same; and the second look at values that there
            was no room to keep for it.
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
    helpers: Helpers | None = None,
    targets: Collection[bytes] = (),
    progress: Progress = no_progress,
    whole: bool = False,
    beyond: Beyond | None = None,
) -> Ending:
    """Examine values once, and hand each to a consumer; those that wait for a KMS plugin come after all others.

    Args:
        examiner: Says what each value is.
        pages: In the source's order.
        take: The consumer.
        plain: Takes what is plain, as counts, once a page and for what waited; None where the consumer takes that too.
        helpers: Take the first look; the consumer takes what is plain as counts, or what they extract from each value.
            None where this process looks.
        targets: Etcd keys of values that are searched for damage in any case.
        progress: Counts the values for a display, and those that waited.
        whole: A part is of no use: an interruption, or a source that is lost midway, is raised.
        beyond: Looked at before what waits is judged; no consumer sees them.

    Raises:
        SourceError: Nothing could be read; or not everything, and a part is of no use.
    """
    seen = False
    looks = helpers.looks if helpers is not None else partial(_looks_here, examiner)
    with Examining(examiner, targets=targets) as run:
        view = View(examiner, run)

        def first() -> None:
            nonlocal seen
            for look in looks(progress(iter(pages), "keys", None)):
                seen = True
                with _counting(plain) as counts:
                    for found in run.first_of(look(counts)):
                        take(found, view)

        ending = _first_look(first, [run], whole=whole, began=lambda: seen)
        if beyond is not None and run.waiting and ending == Ending():
            others = looks(progress(run.worth_a_look(beyond.pages), BEYOND, None))
            ending = _first_look(
                partial(run.look_beyond, others, beyond.holds), [run], whole=whole, began=lambda: True
            )
        ending = _drain(run, view, take, ending, progress=progress, whole=whole)
        return (
            ending if helpers is None else msgspec.structs.replace(ending, lost=(*helpers.lost, *ending.lost))
        )


def _looks_here(examiner: Examiner, pages: Iterable[Page]) -> Iterator[Look]:
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


def examine_each(
    examiners: Sequence[Examiner],
    values: Iterable[StoredValue],
    take: TakeEach,
    *,
    progress: Progress = no_progress,
) -> Ending:
    """Examine values under several configurations while they are read once.

    Args:
        examiners: One for each configuration; their KMS plugins may be the same.
        values: In the source's order.
        take: The consumer; it is told the number of the examiner. Of one value the examinations may come far apart.
        progress: Counts the values for a display, and those that waited.

    Raises:
        SourceError: Nothing could be read.
    """
    seen = False
    with contextlib.ExitStack() as stack:
        runs = [stack.enter_context(Examining(examiner)) for examiner in examiners]
        views = [View(examiner, run) for examiner, run in zip(examiners, runs, strict=True)]

        def first() -> None:
            nonlocal seen
            for stored in progress(iter(values), "keys", None):
                seen = True
                for number, run in enumerate(runs):
                    for found in run.first((stored,)):
                        take(number, found, views[number])

        ending = _first_look(first, runs, whole=False, began=lambda: seen)
        for number, (run, view) in enumerate(zip(runs, views, strict=True)):
            ending = _drain(run, view, partial(take, number), ending, progress=progress, whole=False)
    return ending


def _first_look(
    look: Callable[[], None], runs: Sequence[Examining], *, whole: bool, began: Callable[[], bool]
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


def _drain(
    run: Examining, view: View, take: Take, ending: Ending, *, progress: Progress, whole: bool
) -> Ending:
    view.draining, view.ended = True, bool(ending.ended or ending.problems)
    try:
        for found in progress(run.drain(), WAITING, run.waiting):
            take(found, view)
    except KeyboardInterrupt as exc:
        if whole:
            raise
        view.ended = True
        run.abort()
        for found in run.drain():
            take(found, view)
        return Ending(EndedEarly.of(exc), ending.problems, ending.lost + run.lost)
    return msgspec.structs.replace(ending, lost=ending.lost + run.lost)


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


class _Doubtful:
    """Examinations that were put aside, in the order in which they came; what many have in common is kept once."""

    def __init__(self) -> None:
        self._spool = Spool(Part)
        self._kinds = Kinds()
        self._first: Examination | None = None
        self.kind: int | None = None

    @property
    def count(self) -> int:
        """How many were not dropped yet."""
        return self._spool.count

    def close(self) -> None:
        """Forget everything."""
        self._spool.close()

    def append(self, found: Examination) -> None:
        """Add one."""
        self._spool.append(self._kinds.part(found))

    def peek(self) -> Examination:
        """Return the first that has not been dropped yet; there must be one."""
        if self._first is None:
            part = self._spool.peek()
            self.kind, self._first = part.kind, self._kinds.whole(part)
        return self._first

    def drop(self) -> None:
        """Let go of the one that :meth:`peek` returned."""
        self._first = None
        self._spool.drop()


class Examining:
    """Examines values once, and those that wait for a plugin again. Close it, or use it as a context manager."""

    def __init__(self, examiner: Examiner, *, targets: Collection[bytes] = ()) -> None:
        examiner.start_over()  # a value from a file or of another member must not speak for those of this run
        self._examiner = examiner
        self._examine = examiner.examine
        self._examine_each = examiner.examine_each
        self._plugin_to_ask = examiner.plugin_to_ask
        self._opened = examiner.readers.opened
        self._plugins = examiner.plugins
        self._targets = targets
        if examiner.kept is not None:
            examiner.kept.targets = targets
        self._searched: Counter[KeyName] = Counter()
        # KMS providers of values that are not read: what their plugins do for others matters.
        self._providers: set[bytes] = set()
        # How many values wait, by the encryption key that may not be the right one.
        self._open: Counter[KeyName] = Counter()
        # How many begin in the same way, where that is a known prefix but for one bit.
        self._misspelt: Counter[bytes] = Counter()
        # Settled values that were put aside for a search alone; what is past its limit would only take up room.
        self._kept: Counter[KeyName] = Counter()
        self._waiting = Spool(StoredValue)
        # From the first look, and from the later one; each in the source's order.
        self._doubtful = (_Doubtful(), _Doubtful())
        self._window: deque[tuple[StoredValue, Examination | None]] = deque()
        self._is_beyond: Callable[[bytes], bool] = _never
        self._may_change_of_kind: dict[tuple[_Doubtful, int], bool] = {}
        # Those that there was no room for: under keys that may yet prove right, and under those that have.
        self._judged_alone: Counter[tuple[KeyName, ...]] = Counter()
        self._judged_too_early = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._waiting.close()
        for spool in self._doubtful:
            spool.close()
        if self._plugins is not None:
            self._plugins.deferring = False  # from here on, single values are looked at, and each may wait

    def abort(self) -> None:
        """Ask no plugin any more: what waits is judged without."""
        if self._plugins is not None:
            self._plugins.abort()

    @property
    def waiting(self) -> int:
        """How many values were put aside and are not yielded yet."""
        first, later = self._doubtful
        return self._waiting.count + first.count + later.count + len(self._window)

    def first(
        self, values: Iterable[StoredValue], counts: PlainCounts | None = None
    ) -> Iterator[Examination]:
        """Yield every value that can be judged now, in the order given; keep the others.

        Args:
            values: In the source's order.
            counts: Takes what is plain; None to have that yielded too.
        """
        return self.first_of(self._examine_each(values, counts))

    def first_of(self, looked: Iterable[tuple[StoredValue, Found]]) -> Iterator[Examination]:
        """Do the same with values that were looked at."""
        if self._plugins is not None:
            self._plugins.deferring = True
        for stored, found in looked:
            now = self._kept_or_not(stored, found)
            if now is not None:
                yield now

    def _kept_or_not(self, stored: StoredValue, found: Found) -> Examination | None:
        """Return what is the last word on a value; keep the value where more may be found, and return None."""
        plugins = self._plugins
        if isinstance(found, KMSPending):
            self._note_provider(stored)
            return self._put_aside(self._waiting.append, stored, stored)
        if found.verdict.outcome is Outcome.READABLE:
            return found
        if facts_of(found.transformer).under_kms:
            self._note_provider(stored)
        if plugins is not None and found.verdict.cause is Cause.KMS_UNREACHABLE:
            # Nothing can change any more; a few are kept all the same, so that their order does not depend on when the
            # plugin was given up.
            if plugins.over and self._waiting.on_disk:
                return found
            return self._put_aside(self._waiting.append, stored, stored)
        alone = self._count(found)
        if alone or (plugins is not None and _behind_plugin(found)) or self._is_open(found):
            return self._put_aside(self._doubtful[0].append, found, stored)
        return found

    def worth_a_look(self, pages: Iterable[Page]) -> Iterator[Page]:
        """Yield pages without the values of KMS providers that decide about none that waits: no plugin is asked."""
        # What the look over these pages finds may not decide about them: how far ahead they are read is another in
        # every run.
        all_of_them = self._plugins is None or bool(self._misspelt)
        for page in pages:
            if all_of_them:
                yield page
                continue
            values = [
                stored
                for stored in page.values()
                if not stored.value.startswith(_UNDER_KMS) or _provider_of(stored) in self._providers
            ]
            if values:
                yield ValuesPage(values)

    def look_beyond(self, looks: Iterable[Look], holds: Callable[[bytes], bool]) -> None:
        """Look at values for what they open alone, after all others; those that wait for a plugin are never yielded."""
        self._is_beyond = holds
        if self._plugins is not None:
            self._plugins.deferring = True
        for look in looks:
            with _counting(_uncounted) as counts:
                for stored, found in look(counts):
                    if not isinstance(found, KMSPending):
                        self._note_prefix(found)
                    pending = isinstance(found, KMSPending) or found.verdict.cause is Cause.KMS_UNREACHABLE
                    if pending and self._plugins is not None and not self._plugins.over:
                        self._put_aside(self._waiting.append, stored, stored)

    def _is_open(self, found: Examination) -> bool:
        """Say whether a value waits: more may be found, a repair too, or a search is due since it is the target."""
        if not found.verdict.settled or found.stored.key in self._targets:
            return True
        keys = self._to_be_repaired(found)
        self._kept.update(keys)
        return bool(keys) and all(self._kept[key] <= MOST_SEARCHED for key in keys)

    def _note_provider(self, stored: StoredValue) -> None:
        if len(self._providers) < MOST_SEARCHED:
            self._providers.add(_provider_of(stored))

    def _count(self, found: Examination) -> bool:
        """Count a value among those that fail in the same way; say whether its prefix alone keeps it waiting."""
        if not found.verdict.settled and len(self._open) <= _FEW_KEYS:
            self._open.update(found.encryption_keys)
        return self._note_prefix(found)

    def _note_prefix(self, found: Examination) -> bool:
        """Count a value whose prefix is one bit off that of a key; say whether no other one has begun so yet."""
        prefix = self._examiner.misspelt_prefix(found)
        if not prefix:
            return False
        self._misspelt[prefix] += 1
        return self._misspelt[prefix] == 1

    def _with_prefix(self, found: Examination) -> Examination:
        """Add the repair of a prefix that no other value has, of a key that opens others under the prefix next to it.

        Of many with that prefix, or of a key that opens nothing, it is the configuration that is wrong.
        """
        prefix = self._examiner.misspelt_prefix(found) if found.repair is None else b""
        if not prefix or self._misspelt[prefix] != 1:
            return found
        search = self._examiner.search_repair(found)
        if search.repaired is None or not self._opened.opens(found.rule, search.repaired.transformer):
            return found
        bits = int.from_bytes(difference(search.value[: len(prefix)], prefix)).bit_count()
        return msgspec.structs.replace(found, repair=search.repair) if bits == 1 else found

    def _to_be_repaired(self, found: Examination) -> tuple[KeyName, ...]:
        """Return the keys under which a search for a tag's proof counts; none where the stored bytes stay as they are.

        A look that does not wait for a plugin leaves a damaged prefix of its provider to a later one.
        """
        if found.repair is not None:
            return ()
        if _may_be_repaired(found):
            return found.encryption_keys
        plugin = self._plugin_to_ask(found) if self._plugins is not None else ""
        return (KeyName(found.rule, plugin, ""),) if plugin else ()

    def _put_aside(self, keep: Callable[[V], None], kept: V, stored: StoredValue) -> Examination | None:
        """Keep a value for later; where there is no room for it, return what it is by itself.

        What others have come to by now is left out of account: it would depend on the order in which they come.
        """
        try:
            keep(kept)
        except OSError:
            found = kept if isinstance(kept, Examination) else self._alone(stored)
            if self._is_worth_a_search(found):
                found = self._alone(stored, thorough=True)
            verdict = found.verdict
            if _behind_plugin(found) or (verdict.key_proven and not verdict.settled):
                self._judged_too_early += 1
            elif not verdict.settled:
                self._judged_alone[found.encryption_keys] += 1
            return found
        return None

    def _alone(self, stored: StoredValue, *, thorough: bool = False) -> Examination:
        if self._plugins is not None:
            self._plugins.deferring = False
        ((_, found),) = self._examine_each((stored,), thorough=thorough)
        assert isinstance(found, Examination)  # nothing is deferred
        if self._plugins is not None:
            self._plugins.deferring = True
        return found

    @property
    def lost(self) -> tuple[str, ...]:
        """Why what was said of some values is not the last word: one sentence, or none."""
        count = self._judged_too_early
        count += sum(number for keys, number in self._judged_alone.items() if self._opened.opened(keys))
        if not count:
            return ()
        lost = (
            f"there was no room in {temporary_directory()} to look at {counted(count, 'value')} again at the end: what "
            "other values tell of their encryption keys is left out"
        )
        return (lost,)

    def drain(self) -> Iterator[Examination]:
        """Yield what was put aside, waiting for answers; can be called again after an interruption.

        What there is something to say about comes in the order of the keys.
        """
        while self._fill_window():
            stored, found = self._window[0]
            if found is None:
                found = self._wait(stored)
            self._window.popleft()
            if self._is_beyond(stored.key):
                continue
            self._count(found)
            now = (
                found if found.verdict.is_plain else self._put_aside(self._doubtful[1].append, found, stored)
            )
            if now is not None:
                yield now
        # Every value that could open has: what is said now is the last word.
        self._may_change_of_kind.clear()
        if self._plugins is not None:
            self._plugins.final = True
        try:
            while (spool := self._next_doubtful()) is not None:
                found = spool.peek()
                if self._may_change(found, spool):
                    found = self._wait_and_search(found.stored)
                spool.drop()
                yield found
        finally:
            if self._plugins is not None:
                self._plugins.final = False

    def _is_worth_a_search(self, found: Examination) -> bool:
        """Say whether to search a value for what was damaged: its key is right, and not too many were searched.

        Where an envelope is damaged, nothing is known of the key that it names; others tell which it was.
        """
        verdict = found.verdict
        if found.stored.key in self._targets:
            return verdict.outcome in FAILED or verdict.outcome is Outcome.UNDETERMINED
        keys = self._to_be_repaired(found)
        if verdict.settled and not keys:
            return False
        if not keys:
            keys = found.encryption_keys
            right = self._is_key_right(found) or self._are_few(keys)
            if not right and verdict.cause is not Cause.KMS_ENVELOPE_DAMAGED:
                return False
        self._searched.update(keys)
        return all(self._searched[key] <= MOST_SEARCHED for key in keys)

    def _may_change(self, found: Examination, spool: _Doubtful) -> bool:
        """Say whether the last look may come to something else than the first, now that everything has been seen.

        Where no plugin is asked, all of a kind are of one answer: which keys are right is known, and stays so.
        """
        if found.stored.key in self._targets:
            return True
        if self._plugins is not None or spool.kind is None:
            return self._may_change_alone(found)
        place = spool, spool.kind
        known = self._may_change_of_kind.get(place)
        if known is None:
            known = self._may_change_of_kind[place] = self._may_change_alone(found)
        return known

    def _may_change_alone(self, found: Examination) -> bool:
        if self._to_be_repaired(found) or _behind_plugin(found) or self._is_key_right(found):
            return True
        if self._are_few(found.encryption_keys):
            return True
        return bool(self._examiner.misspelt_prefix(found))

    def _are_few(self, keys: Collection[KeyName]) -> bool:
        """Say whether so few values wait for what an encryption key opens that each can be searched for damage."""
        return len(self._open) <= _FEW_KEYS and all(self._open[key] <= _FEW for key in keys)

    def _is_key_right(self, found: Examination) -> bool:
        """Say whether the value's encryption key is there: it opens other values, or a look at this one showed it."""
        return found.verdict.key_proven or self._opened.opened(found.encryption_keys)

    def _next_doubtful(self) -> _Doubtful | None:
        first, later = self._doubtful
        if not later.count:
            return first if first.count else None
        if not first.count:
            return later
        return first if first.peek().stored.key <= later.peek().stored.key else later

    def _try(self, stored: StoredValue) -> Examination | None:
        """Examine a value without waiting; None when a plugin has not answered, or could not just now."""
        try:
            found = self._examine(stored)
        except KMSPending:
            return None
        return None if found.verdict.cause is Cause.KMS_UNREACHABLE else found

    def _wait(self, stored: StoredValue) -> Examination:
        if self._plugins is not None:
            self._plugins.deferring = False
        return self._examine(stored)

    def _wait_and_search(self, stored: StoredValue) -> Examination:
        found = self._wait(stored)
        return self._with_prefix(
            self._examine(stored, thorough=True) if self._is_worth_a_search(found) else found
        )

    def _fill_window(self) -> bool:
        """Take values from the file and let their data keys be asked for; say whether any value is left."""
        if self._plugins is not None:
            self._plugins.deferring = True
        if self._window and self._waiting.count and self._window[-1][0] == self._waiting.peek():
            self._waiting.drop()  # an interruption came in between
        size = sum(len(stored.value) for stored, _ in self._window)
        while len(self._window) < _WINDOW and size < _WINDOW_BYTES and self._waiting.count:
            stored = self._waiting.peek()
            self._window.append((stored, self._try(stored)))
            self._waiting.drop()
            size += len(stored.value)
        return bool(self._window)


def _provider_of(stored: StoredValue) -> bytes:
    return b":".join(stored.value[:_LONGEST_PREFIX].split(b":", 5)[:5])


def _never(_key: bytes) -> bool:
    return False


def _uncounted(_counts: Sequence[PlainCount]) -> None:
    """Let what was counted go: what it opened is known."""


def _may_be_repaired(found: Examination) -> bool:
    """Say whether a search may yet show that the stored bytes of a value can be put right, with a tag as proof."""
    verdict = found.verdict
    if verdict.outcome is not Outcome.DECRYPT_FAILURE:
        return False
    tagged = facts_of(found.transformer).authenticated
    return tagged and (verdict.key_proven or verdict.cause is Cause.KMS_ENVELOPE_DAMAGED)


def _behind_plugin(found: Examination) -> bool:
    """Say whether a verdict against a value rests on what its plugin did, here and for others."""
    if not facts_of(found.transformer).under_kms:
        return False
    return found.verdict.cause in _BEHIND_PLUGIN or found.verdict.outcome is Outcome.DECODE_FAILURE
