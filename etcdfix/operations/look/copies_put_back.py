"""How a copy is saved and put back: the command, and what to know before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from etcdfix.copies.model import Sameness
from etcdfix.model import ReadableRevision
from etcdfix.operations.look.copies_gather import FoundCopy, Sought
from etcdfix.operations.look.replacing import replacing
from etcdfix.remediation.offers import ways_at_hand
from etcdfix.report.advice.change import revealed
from etcdfix.report.advice.ways import WayKind
from etcdfix.report.copies import CopyPlace, Grade, PlaceKind
from etcdfix.rules import Rule, acceptance
from etcdfix.storagekey import StorageLayout
from etcdfix.text import commands
from etcdfix.text.commands import GRANTED, NO_COMMAND, Command, Part, RunOptions, Word
from etcdfix.text.safetext import key_word
from etcdfix.verdicts.damage import Damage
from etcdfix.verdicts.deletability import FAILED, KMS_DOUBTS, LOST_KEY

_NOT_SEEN: Final = "What the live etcd holds now was not looked at: save it."


class Graded(NamedTuple):
    """A copy, where it is, and what it is good for."""

    copy: FoundCopy
    place: CopyPlace
    grade: Grade
    why: str
    uid_fits: Sameness
    later_writes: int | None
    proves_uid: bool
    """That it is the same object, it shows itself: nothing shows it where ``restore`` looks."""


class PutBack:
    """Says how copies are saved and put back."""

    def __init__(self, run: RunOptions, layout: StorageLayout) -> None:
        self._run = run
        self._layout = layout

    def save(self, sought: Sought, graded: Graded) -> Command:
        """Return the command that saves a copy, if there is one."""
        key, copy, place = sought.key, graded.copy, graded.place
        if place.kind is PlaceKind.API_SERVER:
            return commands.rescue([key_word(key)])
        if place.kind not in {PlaceKind.REVISION, PlaceKind.OLD_VALUE, PlaceKind.SNAPSHOT}:
            return NO_COMMAND
        words = (*revealed(self._layout.locate(key)[0].group_resource), "-o", "json")
        of_file = place.path if place.kind is PlaceKind.SNAPSHOT else ""
        at = 0 if of_file and copy.newest else copy.at
        return commands.get(key, *words, revision=at, file=of_file)

    def put_back(self, sought: Sought, graded: Graded) -> tuple[Command, str]:
        """Return the dry run that puts a copy back, if there is one; and what to know, or why there is none."""
        run, copy, place = self._run, graded.copy, graded.place
        if place.kind is PlaceKind.API_SERVER:
            return self._heal(sought, graded)
        if run.of_kine:
            note = "etcdfix writes nothing to kine: save it, and put it back through an API server."
            return NO_COMMAND, note
        if place.kind is PlaceKind.REVISION:
            return self._put_back_revision(sought, graded)
        if place.kind is PlaceKind.SNAPSHOT and not copy.newest:
            return NO_COMMAND, (
                "A restore from a snapshot takes the newest value in it: save this one; as JSON it goes back with "
                "restore --from-object."
            )
        words: Sequence[Word] = {
            PlaceKind.SNAPSHOT: ("--from-snapshot", place.path),
            PlaceKind.BACKUP: (copy.path,),
            PlaceKind.LOG: ("--from-wal", copy.path, "--entry", str(copy.entry)),
            PlaceKind.RESCUED: ("--from-object", copy.path),
        }.get(place.kind, ())
        over = replacing(sought.found, run)
        if not words or over.mod_revision is None:
            return NO_COMMAND, over.note
        of_backup = place.kind is PlaceKind.BACKUP
        unlisted = not of_backup or bool(copy.doubt)
        if graded.proves_uid and unlisted:
            words = (*words, *commands.accepting([Rule.UNKNOWN_UID]))
        if sought.found is not None and sought.found.verdict.damage is Damage.POSSIBLE:
            words = (*words, Part.ASKING)
        command = commands.restore(
            words,
            None if of_backup else sought.key,
            replacing=over.mod_revision,
            accepted=[*([Rule.UNLISTED_SOURCE] if unlisted else []), *over.accepting],
        )
        return command, self._notes(sought, graded, over.note)

    def _put_back_revision(self, sought: Sought, graded: Graded) -> tuple[Command, str]:
        run, copy, found = self._run, graded.copy, sought.found
        same = graded.grade is Grade.GOOD
        if run.of_the_past:
            return NO_COMMAND, _NOT_SEEN
        if found is None:
            if not same or copy.lease:
                why = "it had a lease, which may have run out" if copy.lease else graded.why
                return NO_COMMAND, f"Save it, and compare before you use it: {why}."
            command = commands.fix(sought.key, f"revision:{copy.mod_revision}")
            return command, self._notes(sought, graded, "")
        if found.verdict.outcome not in FAILED:
            return NO_COMMAND, replacing(sought.found, run).note
        way = ways_at_hand(found, run, ReadableRevision(copy.at, copy.mod_revision, same, bool(copy.lease)))[
            -1
        ]
        return (way.command if way.verb == WayKind.FIX else NO_COMMAND), way.note

    def _heal(self, sought: Sought, graded: Graded) -> tuple[Command, str]:
        """Return the dry run of having the API server write the object anew; none where it would refuse."""
        found, run = sought.found, self._run
        assert found is not None  # else no server was asked
        if graded.grade is not Grade.GOOD or graded.later_writes != 0:
            note = "Save it soon: a restart of the server, or one deletion of an unreadable object, ends it."
        elif found.verdict.cause not in LOST_KEY | KMS_DOUBTS:
            note = "Save it at once: a server forgets a value that was changed in etcd within 30 seconds."
        elif not run.can_heal:
            note = _NOT_SEEN
        else:
            return commands.fix_from_memory(sought.key), (
                "First save everything of its kind (etcdfix rescue); DIR is where that went. Restart no API server and "
                "delete nothing before that. No write is lost."
            )
        return NO_COMMAND, note

    def _notes(self, sought: Sought, graded: Graded, note: str) -> str:
        proof = ""
        if graded.place.kind is not PlaceKind.BACKUP:
            if graded.proves_uid:
                proof = f"Its revisions show that it is the same object ({acceptance(Rule.UNKNOWN_UID)})."
            elif graded.uid_fits is Sameness.UNKNOWN:
                proof = f"If it was the same object, add {acceptance(Rule.UNKNOWN_UID)}: nothing shows it."
        parts = (
            "Compare it with what you know of the object before you put it back."
            if graded.grade is Grade.DOUBTFUL
            else "",
            proof,
            note,
            "It had a lease: restore says whether that still lives." if graded.copy.lease else "",
            "What it owned may have been collected." if sought.found is None else "",
            "" if self._run.told_of_encryption else GRANTED.strip(),
        )
        return " ".join(part for part in parts if part)
