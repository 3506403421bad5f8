"""What each copy of an object is good for, and how it is put back.

A copy is good only where everything fits: it reads under today's configuration, it is the object that its etcd key
names, it has the uid of the object that stands there or stood there last, and it comes from the same history of the
same cluster. Within one history a generation of an etcd key (its create revision) has one uid: API servers never change
it. What is not known makes a copy doubtful; what contradicts makes it unusable.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from etcdfix.copies.model import Sameness
from etcdfix.model import Confidence, Outcome
from etcdfix.operations.look.copies_gather import FoundCopy, ObjectOfCopies, Sought
from etcdfix.operations.look.copies_put_back import Graded, PutBack
from etcdfix.remediation.offers import ways_at_hand
from etcdfix.report.copies import (
    CopyPlace,
    Grade,
    ObjectCopies,
    ObjectState,
    PlaceKind,
    SurvivingCopy,
)
from etcdfix.report.model import Remedy
from etcdfix.storagekey import StorageLayout, display
from etcdfix.text import commands
from etcdfix.text.commands import NO_COMMAND, RunOptions
from etcdfix.text.safetext import key_base64
from etcdfix.verdicts.deletability import FAILED, Deletability, deletability_of

_MOST_EACH: Final = 5
"""So many copies of each place are told, and a few more that read."""
_MOST_THAT_READ: Final = 3
_MOST_GENERATIONS: Final = 1000
_STATES: Final = {
    Outcome.UNDETERMINED: ObjectState.UNDETERMINED,
    Outcome.INCONSISTENT: ObjectState.INCONSISTENT,
}
_KINDS: Final = tuple(PlaceKind)
_GRADES: Final = tuple(Grade)
# What these say of revisions is what the datastore itself once said.
_OF_HISTORY: Final = frozenset({PlaceKind.REVISION, PlaceKind.SNAPSHOT, PlaceKind.LOG, PlaceKind.OLD_VALUE})
_MEMORY: Final = frozenset({PlaceKind.API_SERVER, PlaceKind.RESCUED})


class Assessor:
    """Turns what was found of each object into what is published."""

    def __init__(
        self, places: Sequence[CopyPlace], run: RunOptions, layout: StorageLayout, revision: int
    ) -> None:
        self._places = places
        self._run = run
        self._ways = PutBack(run, layout)
        self._revision = revision

    def assess(self, one: ObjectOfCopies) -> ObjectCopies:
        """Return an object with its copies, the best first."""
        sought = one.sought
        kept, left_out, last = self._select(sought, one.copies)
        object_now = _ObjectNow.of(sought, last)
        told = any(map(self._tells_restore, kept))
        graded = [self._grade(sought, object_now, copy, told=told) for copy in kept]
        graded.sort(key=_best_first)
        copies = [self._published(sought, grade) for grade in graded]
        found = sought.found
        verdict = found.verdict if found is not None else None
        return ObjectCopies(
            key=display(sought.key),
            key_base64=key_base64(sought.key),
            state=_state(sought),
            cause=verdict.cause.value if verdict is not None and verdict.cause is not None else None,
            mod_revision=found.stored.mod_revision if found is not None else None,
            uid=object_now.uid,
            good=sum(copy.grade is Grade.GOOD for copy in copies),
            doubtful=sum(copy.grade is Grade.DOUBTFUL for copy in copies),
            left_out=left_out,
            next=self._next(sought, copies),
            copies=copies,
        )

    def _select(self, sought: Sought, copies: Iterable[FoundCopy]) -> tuple[list[FoundCopy], int, _Last]:
        """Return the copies that are told, how many are not, and what all of them say of the object."""
        kept: list[FoundCopy] = []
        left_out = here = reading = 0
        place = -1
        last = _Last()
        for copy in copies:
            if copy.place != place:
                place, here, reading = copy.place, 0, 0
            if self._speaks(sought, copy):
                last.add(copy)
            if _is_present(sought, copy):
                continue
            if here >= _MOST_EACH and (not copy.reads or reading >= _MOST_THAT_READ):
                left_out += 1
                continue
            here += 1
            reading += copy.reads
            kept.append(copy)
        return kept, left_out, last

    def _speaks(self, sought: Sought, copy: FoundCopy) -> bool:
        """Say whether a copy certainly stood at the etcd key, so that it tells which object that was."""
        place = self._places[copy.place]
        if place.kind not in _OF_HISTORY or place.history is not Sameness.SAME:
            return False
        if copy.identity is Sameness.OTHER or copy.certainty is not Confidence.CERTAIN:
            return False
        return not _contradicts(sought, copy)

    def _tells_restore(self, copy: FoundCopy) -> bool:
        """Say whether ``restore`` sees by this copy which uid the object has: it looks into no other place."""
        kind = self._places[copy.place].kind
        return bool(copy.uid) and (
            kind is PlaceKind.REVISION or (kind is PlaceKind.BACKUP and not copy.doubt)
        )

    def _grade(self, sought: Sought, now: _ObjectNow, copy: FoundCopy, *, told: bool) -> Graded:
        place = self._places[copy.place]
        uid_fits = now.fits(copy, same_history=_of_this_history(place, copy))
        from_memory = place.kind in _MEMORY and place.history is Sameness.SAME and not copy.doubt
        at_present = _at_present(sought, copy)
        if from_memory and at_present and uid_fits is Sameness.UNKNOWN:
            uid_fits = (
                Sameness.SAME
            )  # the resourceVersion of a cached object is the mod_revision of its etcd key
        wrong = _wrong(place, copy, uid_fits)
        if wrong:
            return Graded(copy, place, Grade.UNUSABLE, wrong, uid_fits, None, proves_uid=False)
        doubt = self._doubt(sought, place, copy, uid_fits)
        later = 0 if from_memory and at_present else None
        if later is None and place.history is Sameness.SAME:
            known = now.later_writes(copy)
            later = copy.later if known is None else known
        grade = Grade.DOUBTFUL if doubt else Grade.GOOD
        proves_uid = grade is Grade.GOOD and not told and not sought.uid
        return Graded(copy, place, grade, doubt, uid_fits, later, proves_uid=proves_uid)

    def _doubt(self, sought: Sought, place: CopyPlace, copy: FoundCopy, uid_fits: Sameness) -> str:
        """Return what is not certain about a copy that reads; "" for nothing."""
        if copy.identity is not Sameness.SAME:
            return "nothing in it says whether it is the object that its etcd key names"
        if place.history is not Sameness.SAME:
            return place.detail or "whether it is of the same cluster and history is not known"
        if copy.certainty is not Confidence.CERTAIN:
            why = f": {copy.doubt}" if copy.doubt else ""
            return f"that the etcd key held it is {copy.certainty}, not certain{why}"
        if copy.doubt:
            return copy.doubt
        stored = sought.found.stored if sought.found is not None else None
        newest = stored.mod_revision if stored is not None else self._revision
        if newest and copy.mod_revision > newest:
            return "it is newer than what is read, so it may be of another history"
        if _contradicts(sought, copy):
            return (
                "it has other bytes than the present value, at the same mod_revision: those were changed on disk, or "
                "it is of a clone of this cluster"
            )
        if uid_fits is Sameness.UNKNOWN:
            return "nothing that was found tells whether it is of the object that stood there last"
        return ""

    def _published(self, sought: Sought, graded: Graded) -> SurvivingCopy:
        copy, place = graded.copy, graded.place
        save = put_back = NO_COMMAND
        note = ""
        if graded.grade is not Grade.UNUSABLE:
            save = self._ways.save(sought, graded)
            put_back, note = self._ways.put_back(sought, graded)
        return SurvivingCopy(
            place=place.kind,
            path=copy.path or place.path,
            grade=graded.grade,
            why=graded.why,
            mod_revision=copy.mod_revision or None,
            confidence=copy.certainty,
            outcome=copy.outcome,
            cause=copy.cause,
            identity=copy.identity,
            uid=copy.uid,
            uid_fits=graded.uid_fits,
            value_sha256=copy.value_sha256 or None,
            later_writes=graded.later_writes,
            log_index=copy.entry or None,
            save=save,
            put_back=put_back,
            note=note,
        )

    def _next(self, sought: Sought, copies: Sequence[SurvivingCopy]) -> Remedy | None:
        """Return what to do first: put the value right, or put back the best copy, or save it where nothing does."""
        repair = next(iter(ways_at_hand(sought.found, self._run)), None) if sought.found is not None else None
        if repair is not None:
            return repair
        best = next((copy for copy in copies if copy.grade is not Grade.UNUSABLE), None)
        if best is None:
            return None
        curable = {Deletability.CURABLE, Deletability.DECLARABLE, Deletability.MOVED}
        if best.later_writes != 0 and sought.found is not None and deletability_of(sought.found) in curable:
            return Remedy(
                "See first how the present value is read again: with a copy, what was written later is lost",
                commands.explain(sought.key),
            )
        if best.put_back:
            return Remedy("Put back the best copy: a dry run first", best.put_back, best.note)
        return Remedy("Save the best copy", best.save, best.note)


def _of_this_history(place: CopyPlace, copy: FoundCopy) -> bool:
    """Say whether the revisions of a copy are those of the datastore: of a backup its audit log must say it."""
    if place.history is not Sameness.SAME:
        return False
    return place.kind in _OF_HISTORY or (place.kind is PlaceKind.BACKUP and not copy.doubt)


def _is_present(sought: Sought, copy: FoundCopy) -> bool:
    """Say whether a copy is the very value that stands there: nothing is gained with it."""
    return _at_present(sought, copy) and copy.value_sha256 == sought.value_sha256


def _contradicts(sought: Sought, copy: FoundCopy) -> bool:
    """Say whether a copy has other bytes than the present value, and the same mod_revision."""
    return _at_present(sought, copy) and copy.value_sha256 not in {"", sought.value_sha256}


def _at_present(sought: Sought, copy: FoundCopy) -> bool:
    """Say whether a copy has the mod_revision of the value that stands there."""
    return sought.found is not None and 0 < copy.mod_revision == sought.found.stored.mod_revision


class _Last:
    """What the copies of one history say of the object that stands at an etcd key, or stood there last."""

    def __init__(self) -> None:
        self.uids: dict[int, str] = {}
        self.newest: FoundCopy | None = None

    def add(self, copy: FoundCopy) -> None:
        generation = copy.create_revision
        if copy.uid and generation and len(self.uids) < _MOST_GENERATIONS:
            known = self.uids.setdefault(generation, copy.uid)
            self.uids[generation] = copy.uid if copy.uid == known else ""
        if copy.last and (self.newest is None or copy.mod_revision > self.newest.mod_revision):
            self.newest = copy


class _ObjectNow(NamedTuple):
    """The object that stands at an etcd key, or stood there last; ``generation`` is its create revision."""

    generation: int
    version: int
    uid: str

    @classmethod
    def of(cls, sought: Sought, last: _Last) -> _ObjectNow:
        """Return what is known of it: of a key that is gone, only what is known to be its last value tells."""
        newest = sought.found.stored if sought.found is not None else last.newest
        if newest is None:
            return cls(0, 0, "")
        generation, version = newest.create_revision, newest.version
        uid = newest.uid if isinstance(newest, FoundCopy) else sought.uid
        told = last.uids.get(generation)
        if told == "" or (uid and told and told != uid):  # one of them lies
            return cls(0, 0, uid)
        return cls(generation, version, uid or told or "")

    def fits(self, copy: FoundCopy, *, same_history: bool) -> Sameness:
        """Say whether a copy is one of this object."""
        if self.uid and copy.uid:
            return Sameness.SAME if self.uid == copy.uid else Sameness.OTHER
        same_generation = bool(self.generation) and copy.create_revision == self.generation
        if copy.version > self.version > 0:
            return Sameness.UNKNOWN  # it was written more often than what came after it
        return Sameness.SAME if same_history and same_generation else Sameness.UNKNOWN

    def later_writes(self, copy: FoundCopy) -> int | None:
        """Return how many writes of its generation came after a copy; None where that is not known."""
        if not self.version or not copy.version or copy.create_revision != self.generation:
            return None
        return max(self.version - copy.version, 0)


def _wrong(place: CopyPlace, copy: FoundCopy, uid_fits: Sameness) -> str:
    """Return why a copy is unusable; "" where nothing contradicts."""
    if copy.identity is Sameness.OTHER:
        return "it is another object than the one that its etcd key names"
    if place.history is Sameness.OTHER:
        return f"other-history: {place.detail}"
    if copy.outcome is not Outcome.READABLE and place.kind is not PlaceKind.API_SERVER:
        return copy.message or "whether it reads could not be told"
    if uid_fits is Sameness.OTHER:
        return "it is of another object of that name: its uid is another one"
    return ""


def _best_first(graded: Graded) -> tuple[int, int, int, int]:
    copy = graded.copy
    return (_GRADES.index(graded.grade), -copy.mod_revision, _KINDS.index(graded.place.kind), copy.place)


def _state(sought: Sought) -> ObjectState:
    if sought.found is None:
        return ObjectState.DELETED
    outcome = sought.found.verdict.outcome
    if outcome in FAILED:
        return ObjectState.UNREADABLE
    return _STATES.get(outcome, ObjectState.READABLE)
