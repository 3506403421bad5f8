"""The newest earlier revision of a key that can still be read: the least destructive way out that etcd itself has.

Whoever advises to put it back must know that it is the same object. Within one generation of an etcd key it is: API
servers never change a uid. A key that was deleted and put again begins a new generation; it goes on with the same
object where its first value is, byte for byte, the last one of the generation before, and enough of it that two objects
cannot share it: so it is after a deletion and its undo. Of anything else nothing is known.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, Self

from etcdfix.encryption.kms.envelopes import KMSPending
from etcdfix.examine.verdicts.deletability import FAILED
from etcdfix.examine.verdicts.examination import Examination
from etcdfix.model.errors import SourceError
from etcdfix.model.model import KeptRevision, Outcome, ReadableRevision, StoredValue
from etcdfix.sources.base import Source

if TYPE_CHECKING:
    from etcdfix.examine.one import Examiner

MOST_STEPS: Final = 50
"""Revisions that are looked at one by one; for more, one look at the history costs less."""

_STEPS_OF_MANY: Final = 3
# Each is a question to etcd; of many keys in one state, these tell enough.
_MOST_QUESTIONS: Final = 1000
_MOST_HISTORIES: Final = 10
# An initialization vector and a block; kind, name, namespace and uid.
_LEAST_ENCRYPTED: Final = 32
_LEAST_PLAIN: Final = 128
_LEAST_DISTINCT: Final = 16
_MOST_STEPS_FOR_OPENING: Final = 1_000
_HISTORIES: Final = 1_000
_HISTORIES_LIVE: Final = 50
"""A history takes a tenth of a second on a live etcd."""

Fits = Callable[[Examination], bool]


class Keeps(Protocol):
    """Tells what is kept of an etcd key: a source, or what was read of it before."""

    def history(self, key: bytes) -> Iterator[KeptRevision]:
        """Yield every revision of a key that is still kept, oldest first."""
        ...


class RevisionThatReads(NamedTuple):
    """A value of a key, present or earlier, that reads.

    Attributes:
        examination: What it is.
        at: The newest revision at which it stands; 0 for the present value.
        same_object: The present value, or the last one of a key that is gone, is one of the same object.
    """

    examination: Examination
    at: int
    same_object: bool


class RevisionSearch(NamedTuple):
    """Holds the revision that a search found, and why the search stopped early; "" where it did not."""

    revision: ReadableRevision | None
    not_sought: str = ""


_TOO_MANY: Final = RevisionSearch(None, "too many other values cannot be read")


def reads(found: Examination) -> bool:
    """Say whether a value is whole, opens, and fits its key."""
    return found.verdict.outcome is Outcome.READABLE


def newest_kept(
    source: Source,
    examiner: Examiner,
    newest: StoredValue,
    fits: Fits,
    *,
    generations: bool = True,
    newest_fails: bool = False,
) -> RevisionThatReads | None:
    """Return the newest value of a key that fits, the present one included; None where none is kept.

    Step by step back, since a step costs little and the whole history much. The steps end where the generation begins,
    or at a compaction; only the history goes beyond.

    Args:
        source: Which keeps it, read at the revision of the present value or a later one.
        examiner: Says what a value is.
        newest: The present value.
        fits: Says whether an examined value is one that is looked for.
        generations: Look for earlier generations of the key too.
        newest_fails: The present value is known not to fit, and is not examined again; its bytes are not needed.

    Raises:
        SourceError: The history cannot be read.
        KMSPending: Only while plugins defer.
    """
    kept, end, _ = _step_back(source, examiner, newest, fits, MOST_STEPS, newest_fails=newest_fails)
    if kept is not None or (end is not _End.STEPS and not generations):
        return kept
    return kept_of_history(source, examiner, newest.key, fits, newest=newest, newest_fails=newest_fails)


class _End(Enum):
    FOUND = 1
    GENERATION = 2
    """The first value of its generation was looked at."""
    COMPACTED = 3
    """Nothing older is kept."""
    STEPS = 4
    """There were enough."""


def _step_back(
    source: Source,
    examiner: Examiner,
    newest: StoredValue,
    fits: Fits,
    most_steps: int,
    *,
    newest_fails: bool = False,
) -> tuple[RevisionThatReads | None, _End, int]:
    """Return what fits within the generation, why the steps ended, and how many questions they took."""
    stored, at = newest, 0
    for step in range(most_steps):
        if at or not newest_fails:
            examination = examiner.examine(stored)
            if fits(examination):
                return RevisionThatReads(examination, at, True), _End.FOUND, step
        if stored.version == 1:
            return None, _End.GENERATION, step
        at = stored.mod_revision - 1
        before = source.before(stored.key, stored.mod_revision)
        if before is None or before.create_revision != newest.create_revision:
            return None, _End.COMPACTED, step + 1
        stored = before
    return None, _End.STEPS, most_steps


def kept_of_history(
    source: Keeps,
    examiner: Examiner,
    key: bytes,
    fits: Fits,
    *,
    newest: StoredValue | None,
    newest_fails: bool = False,
) -> RevisionThatReads | None:
    """Return the newest value of a key that fits, whatever generation it is of; None where none is kept.

    Raises:
        SourceError: The history cannot be read.
        KMSPending: Only while plugins defer.
    """
    found: Examination | None = None
    same_object = False
    at = generation = 0
    last: bytes | None = None
    gone = True
    for kept in source.history(key):
        if newest is not None and kept.revision.main > newest.mod_revision:
            break  # a file that is read at an older revision
        if found is not None and not at:
            at = kept.revision.main - 1
        stored = kept.stored
        gone = stored is None
        if stored is None:
            continue
        if stored.create_revision != generation:
            goes_on = stored.version == 1 and stored.value == last and tells_apart(stored.value)
            same_object = same_object and goes_on
            generation = stored.create_revision
        last = stored.value
        if newest_fails and newest is not None and stored.mod_revision == newest.mod_revision:
            continue
        examination = examiner.examine(stored)
        if fits(examination):
            found, at, same_object = examination, 0, True
    if found is None:
        return None
    # A history that ends elsewhere says nothing of what came after it.
    ends = gone if newest is None else not gone and generation == newest.create_revision
    return RevisionThatReads(found, at, same_object and ends)


def tells_apart(value: bytes) -> bool:
    """Say whether no other object can have the same bytes: not where a fault left an envelope, a header, or zeros."""
    body, least = value, _LEAST_PLAIN
    if value.startswith(b"k8s:enc:"):
        body, least = value.split(b":", 5)[-1], _LEAST_ENCRYPTED
    return len(body) >= least and len(set(body)) >= _LEAST_DISTINCT


class ReadableRevisions:
    """Looks for the newest readable revision of values that cannot be read, within bounds.

    What is examined on the way speaks for no other value of the run.

    Args:
        source: Which keeps them.
        examiner: Of the cluster.
        most_questions: Revisions that are asked for in all; None for one value, or a few, of which all is looked at.
        most_histories: Keys of which the whole history is read. On a live etcd each takes a tenth of a second.
    """

    def __init__(
        self,
        source: Source,
        examiner: Examiner,
        *,
        most_questions: int | None = None,
        most_histories: int | None = None,
    ) -> None:
        self._source = source
        self._examiner = examiner
        self._apart: Examiner | None = None
        self._questions = most_questions
        self._histories = most_histories

    @classmethod
    def of_many(cls, source: Source, examiner: Examiner, *, live: bool) -> Self:
        """Return one with the bounds for all values of a cluster; a file has every history at hand."""
        return cls(
            source,
            examiner,
            most_questions=_MOST_QUESTIONS,
            most_histories=_MOST_HISTORIES if live else None,
        )

    def of(self, found: Examination) -> RevisionSearch:
        """Look for the newest readable revision of a value; for one that is not proven unreadable there is none."""
        if found.verdict.outcome not in FAILED:
            return RevisionSearch(None)
        if self._questions is not None and self._questions <= 0:
            return _TOO_MANY
        if self._apart is None:
            self._apart = self._examiner.independent_copy()
        try:
            with self._source.aside(), self._apart.without_recording():
                return self._look(self._apart, found.stored)
        except SourceError as exc:
            return RevisionSearch(None, f"the earlier revisions could not be read: {exc.message}")

    def _look(self, examiner: Examiner, newest: StoredValue) -> RevisionSearch:
        if self._questions is None:
            return RevisionSearch(readable_of(newest_kept(self._source, examiner, newest, reads)))
        kept, end, questions = _step_back(self._source, examiner, newest, reads, _STEPS_OF_MANY + 1)
        self._questions -= max(questions, 1)
        if end is _End.STEPS:
            return RevisionSearch(None, f"only the {_STEPS_OF_MANY} revisions before this one were looked at")
        if end is not _End.GENERATION:
            return RevisionSearch(readable_of(kept))
        if self._histories is not None:
            if self._histories <= 0:
                return RevisionSearch(
                    None, "nothing before the present generation of the etcd key was looked at"
                )
            self._histories -= 1
        return RevisionSearch(
            readable_of(kept_of_history(self._source, examiner, newest.key, reads, newest=newest))
        )


def readable_of(kept: RevisionThatReads | None) -> ReadableRevision | None:
    """Return an earlier value that reads as others are told of it; None for none, and for the present one."""
    if kept is None or not kept.at:  # others saw that the present one cannot be read
        return None
    stored = kept.examination.stored
    return ReadableRevision(
        at=kept.at,
        mod_revision=stored.mod_revision,
        same_object=kept.same_object,
        leased=bool(stored.lease),
        create_revision=stored.create_revision,
        version=stored.version,
        uid=kept.examination.uid,
    )


class KeptOpenings:
    """Looks for kept revisions that open, within bounds for each run: then the etcd key is the associated data.

    It is asked only of whole objects under the right key whose tag does not fit, where nothing else shows why. What is
    opened on the way speaks for no other value.

    Attributes:
        source: That one.
        targets: Etcd keys of values of which everything is looked at.
    """

    def __init__(self, source: Source, examiner: Examiner) -> None:
        self.targets: Collection[bytes] = ()
        self.source = source
        self._examiner = examiner
        self._last: tuple[StoredValue, bool] | None = None
        self.start_over()

    def start_over(self) -> None:
        """Begin a new run, with bounds of its own."""
        self._last = None
        self._steps = _MOST_STEPS_FOR_OPENING
        live = self.source.describe().endpoints is not None
        self._histories = _HISTORIES_LIVE if live else _HISTORIES

    def opens(self, stored: StoredValue) -> bool:
        """Say whether an earlier revision of a value's etcd key opens, of this generation or an earlier one."""
        if self._last is not None and self._last[0] is stored:
            return self._last[1]
        try:
            with self.source.aside(), self._examiner.without_recording():
                found = self._look(stored)
        except (SourceError, KMSPending):
            found = False
        self._last = stored, found
        return found

    def _look(self, newest: StoredValue) -> bool:
        whole = newest.key in self.targets
        stored = newest
        for _ in range(_STEPS_OF_MANY):
            if stored.version == 1 or not (whole or self._steps > 0):
                break
            self._steps -= 1
            before = self.source.before(stored.key, stored.mod_revision)
            if before is None:
                return False  # nothing older is kept
            if self._examiner.opens_bound(before):
                return True
            stored = before
        if not whole and self._histories <= 0:
            return False
        self._histories -= 1
        return any(
            kept.stored is not None
            and kept.stored.mod_revision < newest.mod_revision
            and self._examiner.opens_bound(kept.stored)
            for kept in self.source.history(newest.key)
        )
