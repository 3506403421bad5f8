"""What the two passes over many values keep between them, and which values deserve a second look.

Values that are set aside are kept in unlinked temporary files once they are many: see
:mod:`etcdfix.examine.spool`. Nothing that is said of a value depends on when a KMS plugin answered.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Self, TypeVar

import msgspec

from etcdfix.encryption.cipher import difference
from etcdfix.encryption.kms.envelopes import KMSPending
from etcdfix.examine.one import Examiner, FirstLookResult
from etcdfix.examine.spool import Spool
from etcdfix.examine.verdicts.causes import Cause
from etcdfix.examine.verdicts.deletability import FAILED
from etcdfix.examine.verdicts.examination import Examination, KeyName
from etcdfix.examine.verdicts.kinds import AlikeExaminations, CompactExamination
from etcdfix.inputs.temporary import temporary_directory
from etcdfix.model.errors import SourceError
from etcdfix.model.model import Outcome, StoredValue
from etcdfix.model.providers import facts_of
from etcdfix.sources.pages import Page, ValuesPage

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
_SERVED = frozenset({Outcome.READABLE, Outcome.INCONSISTENT})
# In a scan so many values of one encryption key are searched for damage; the search can take a second for a large one.
MOST_SEARCHED = 1_000
_UNDER_KMS = b"k8s:enc:kms:"
_LONGEST_PREFIX = 1 << 10
# So few that a key which opens nothing may yet be the right one: more of them are not damaged all at once.
_FEW, _FEW_KEYS = 3, 32
# So many values are asked about ahead of the one whose answer is awaited.
_WINDOW = 512
_WINDOW_BYTES = 8 << 20


class _Aside:
    """Examinations that were set aside, in the order in which they came; what many have in common is kept once."""

    def __init__(self) -> None:
        self._spool = Spool(CompactExamination)
        self._kinds = AlikeExaminations()
        self._first: Examination | None = None
        self.gains: dict[int, bool] = {}
        self.kind: int | None = None
        self.close = self._spool.close

    @property
    def count(self) -> int:
        """How many were not dropped yet."""
        return self._spool.count

    def append(self, found: Examination) -> None:
        """Add one.

        Raises:
            OSError: There is no room for it.
        """
        self._spool.append(self._kinds.compact(found))

    def peek(self) -> Examination:
        """Return the first that has not been dropped yet; there must be one."""
        if self._first is None:
            part = self._spool.peek()
            self.kind, self._first = part.kind, self._kinds.expand(part)
        return self._first

    def drop(self) -> None:
        """Let go of the one that :meth:`peek` returned."""
        self._first = None
        self._spool.drop()


class TwoPasses:
    """Hands on values that read, and judges all others once everything was seen.

    Close it, or use it as a context manager.

    Args:
        targets: Etcd keys of values that are searched for damage in any case.

    Attributes:
        no_room: Why values that waited for a plugin were judged before everything was seen; None where none was.
    """

    def __init__(self, examiner: Examiner, *, targets: Collection[bytes] = ()) -> None:
        examiner.start_over()  # a value from a file or of another member must not speak for those of this run
        self._examiner = examiner
        self._opened = examiner.readers.opened
        self._plugins = examiner.plugins
        self._targets = targets
        if examiner.kept is not None:
            examiner.kept.targets = targets
        self._searched: Counter[KeyName] = Counter()
        # KMS providers of values that are not read: what their plugins do for others matters.
        self._providers: set[bytes] = set()
        # How many values are not settled, by the encryption key that may not be the right one.
        self._open: Counter[KeyName] = Counter()
        # How many begin in the same way, where that is a known prefix but for one bit.
        self._misspelt: Counter[bytes] = Counter()
        self._unanswered = Spool(StoredValue)
        # From the first pass, and from answers of plugins; each in the source's order.
        self._aside = (_Aside(), _Aside())
        self._window: deque[tuple[StoredValue, Examination | None]] = deque()
        self._is_witness: Callable[[bytes], bool] = lambda _key: False
        self.no_room: SourceError | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._unanswered.close()
        for aside in self._aside:
            aside.close()
        if self._plugins is not None:
            self._plugins.deferring = False  # from here on, single values are looked at, and each may wait

    def abort(self) -> None:
        """Ask no plugin any more: what was set aside is judged without."""
        if self._plugins is not None:
            self._plugins.abort()

    @property
    def set_aside(self) -> int:
        """How many values were set aside and are not yielded yet."""
        return self._unanswered.count + sum(aside.count for aside in self._aside) + len(self._window)

    def first(self, looked: Iterable[tuple[StoredValue, FirstLookResult]]) -> Iterator[Examination]:
        """Yield what reads, or is no object; set everything else aside.

        Args:
            looked: Values in the source's order, and what the first look at each came to.

        Raises:
            SourceError: There is no room for what is set aside.
        """
        if self._plugins is not None:
            self._plugins.deferring = True
        for stored, found in looked:
            if isinstance(found, KMSPending):
                self._note_provider(stored)
                _keep(self._unanswered.append, stored)
            elif _is_last_word(found):
                yield found
            else:
                if facts_of(found.transformer).under_kms:
                    self._note_provider(stored)
                if self._may_be_answered(found):
                    _keep(self._unanswered.append, stored)
                else:
                    self._count(found)
                    _keep(self._aside[0].append, found)

    def _may_be_answered(self, found: Examination) -> bool:
        plugins = self._plugins
        return plugins is not None and not plugins.over and found.verdict.cause is Cause.KMS_UNREACHABLE

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

    def look_at_witnesses(
        self, looked: Iterable[tuple[StoredValue, FirstLookResult]], holds: Callable[[bytes], bool]
    ) -> None:
        """Look at values only for what they show; none of them is ever yielded."""
        self._is_witness = holds
        if self._plugins is not None:
            self._plugins.deferring = True
        for stored, found in looked:
            if not isinstance(found, KMSPending):
                self._note_prefix(found)
            if isinstance(found, KMSPending) or self._may_be_answered(found):
                _keep(self._unanswered.append, stored)

    def _note_provider(self, stored: StoredValue) -> None:
        if len(self._providers) < MOST_SEARCHED:
            self._providers.add(_provider_of(stored))

    def _count(self, found: Examination) -> None:
        """Count a value among those that fail in the same way."""
        if not found.verdict.settled and len(self._open) <= _FEW_KEYS:
            self._open.update(found.encryption_keys)
        self._note_prefix(found)

    def _note_prefix(self, found: Examination) -> None:
        """Count a value whose prefix is one bit off that of a key."""
        prefix = self._examiner.closer.misspelt_prefix(found)
        if prefix:
            self._misspelt[prefix] += 1

    def second(self) -> Iterator[Examination]:
        """Yield what was set aside; can be called again after an interruption.

        What KMS plugins open comes first, all others in the order of the keys.
        """
        yield from self._await_plugins()
        # Every value that could open has: what is said now is the last word.
        for aside in self._aside:
            aside.gains.clear()
        if self._plugins is not None:
            self._plugins.final = True
        try:
            while (aside_next := self._next()) is not None:
                found = aside_next.peek()
                if self._may_gain(found, aside_next):
                    found = self._look_again(found.stored)
                aside_next.drop()
                yield found
        finally:
            if self._plugins is not None:
                self._plugins.final = False

    def _next(self) -> _Aside | None:
        first, later = self._aside
        if not later.count:
            return first if first.count else None
        if not first.count:
            return later
        return first if first.peek().stored.key <= later.peek().stored.key else later

    def _await_plugins(self) -> Iterator[Examination]:
        while self._fill_window():
            stored, found = self._window[0]
            if found is None:
                found = self._wait(stored)
            self._window.popleft()
            if self._is_witness(stored.key):
                continue
            if _is_last_word(found) or not self._is_set_aside_again(found):
                yield found

    def _is_set_aside_again(self, found: Examination) -> bool:
        """Set a value aside that has its answer, unless there is no room for it: then this is the last word on it."""
        self._count(found)
        try:
            _keep(self._aside[1].append, found)
        except SourceError as exc:
            self.no_room = exc
            return False
        return True

    def _fill_window(self) -> bool:
        """Take values from the file and let their data keys be asked for; say whether any value is left."""
        if self._plugins is not None:
            self._plugins.deferring = True
        if self._window and self._unanswered.count and self._window[-1][0] == self._unanswered.peek():
            self._unanswered.drop()  # an interruption came in between
        size = sum(len(stored.value) for stored, _ in self._window)
        while len(self._window) < _WINDOW and size < _WINDOW_BYTES and self._unanswered.count:
            stored = self._unanswered.peek()
            self._window.append((stored, self._try(stored)))
            self._unanswered.drop()
            size += len(stored.value)
        return bool(self._window)

    def _try(self, stored: StoredValue) -> Examination | None:
        """Examine a value without waiting; None when a plugin has not answered, or could not just now."""
        try:
            found = self._examiner.examine(stored)
        except KMSPending:
            return None
        return None if found.verdict.cause is Cause.KMS_UNREACHABLE else found

    def _wait(self, stored: StoredValue) -> Examination:
        if self._plugins is not None:
            self._plugins.deferring = False
        return self._examiner.examine(stored)

    def _look_again(self, stored: StoredValue) -> Examination:
        found = self._wait(stored)
        if self._is_worth_a_search(found):
            found = self._examiner.examine(stored, thorough=True)
        return self._with_prefix(found)

    def _with_prefix(self, found: Examination) -> Examination:
        """Add the repair of a prefix that no other value has, of a key that opens others under the prefix next to it.

        Of many with that prefix, or of a key that opens nothing, it is the configuration that is wrong.
        """
        prefix = self._examiner.closer.misspelt_prefix(found) if found.repair is None else b""
        if not prefix or self._misspelt[prefix] != 1:
            return found
        search = self._examiner.closer.search_repair(found)
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
        plugin = self._examiner.closer.plugin_to_ask(found) if self._plugins is not None else ""
        return (KeyName(found.rule, plugin, ""),) if plugin else ()

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

    def _may_gain(self, found: Examination, aside: _Aside) -> bool:
        """Say whether a second look may come to something else than the first, now that everything has been seen.

        Where no plugin is asked, all of a kind are of one answer: which keys are right is known, and stays so.
        """
        # Values of one kind begin in many ways: a prefix that nearly fits is each value's own.
        misspelt = bool(self._misspelt) and self._examiner.closer.misspelt_prefix(found)
        if misspelt or found.stored.key in self._targets:
            return True
        if self._plugins is not None or aside.kind is None:
            return self._may_gain_alone(found)
        known = aside.gains.get(aside.kind)
        if known is None:
            known = aside.gains[aside.kind] = self._may_gain_alone(found)
        return known

    def _may_gain_alone(self, found: Examination) -> bool:
        if self._to_be_repaired(found) or _behind_plugin(found):
            return True
        return not found.verdict.settled and (
            self._is_key_right(found) or self._are_few(found.encryption_keys)
        )

    def _are_few(self, keys: Collection[KeyName]) -> bool:
        """Say whether so few values are open under an encryption key that each can be searched for damage."""
        return len(self._open) <= _FEW_KEYS and all(self._open[key] <= _FEW for key in keys)

    def _is_key_right(self, found: Examination) -> bool:
        """Say whether the value's encryption key is there: it opens other values, or a look at this one showed it."""
        return found.verdict.key_proven or self._opened.opened(found.encryption_keys)


def _keep(append: Callable[[V], None], value: V) -> None:
    """Set a value aside."""
    try:
        append(value)
    except OSError as exc:
        raise SourceError(
            f"there is no room in {temporary_directory()} to set values aside: {exc.strerror}",
            hint="name a directory with more room in TMPDIR",
        ) from exc


def _is_last_word(found: Examination) -> bool:
    """Say whether a value is what it is, whatever others show.

    Whoever takes a value that opens may want what is in it, for which a plugin has given the data key just now.
    """
    if found.verdict.outcome is Outcome.NOT_AN_OBJECT:
        return not found.verdict.evidence
    return found.verdict.outcome in _SERVED


def _provider_of(stored: StoredValue) -> bytes:
    return b":".join(stored.value[:_LONGEST_PREFIX].split(b":", 5)[:5])


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
