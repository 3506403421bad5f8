"""What a plan keeps of one pass over everything: the broken objects in a file, and why the others are left out."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final, NamedTuple

import msgspec

from etcdfix.errors import SourceError
from etcdfix.graph.assess import came_out
from etcdfix.maybe_newer import NOT_THE_OBJECT, Similarity, SimilarValues, in_our_tables
from etcdfix.model import Outcome
from etcdfix.report.plan_entry import LeftOut
from etcdfix.report.saved_report import ReportedFinding, SavedFindings
from etcdfix.report.sorted_rows import SortedRows
from etcdfix.spool import Spool
from etcdfix.storagekey import display
from etcdfix.temporary import temporary_directory
from etcdfix.text.safetext import key_base64, safe_text
from etcdfix.verdicts.deletability import FAILED, Deletability, deletability_of
from etcdfix.verdicts.examination import Examination
from etcdfix.verdicts.kinds import Kinds, Part

_ENDED: Final = ("undetermined", "it was not looked at: the plan ended early")
_BROKEN: Final = FAILED | {Outcome.INCONSISTENT, Outcome.UNDETERMINED}


class Broken(NamedTuple):
    """One object that may be deleted.

    Attributes:
        found: What it is; its value is let go of where it decides nothing more, for there may be many.
        value_sha256: ``sha256:<hex>`` of the stored bytes.
        closed: Nothing came out of its value.
    """

    found: Examination
    value_sha256: str
    closed: bool


class _Kept(msgspec.Struct, frozen=True, array_like=True, gc=False):
    part: Part
    value_sha256: str
    similarity: Similarity | None
    closed: bool


class Gathered:
    """What the pass over everything leaves.

    Attributes:
        not_in_report: How many broken values the report does not have.
    """

    def __init__(self, reported: SavedFindings) -> None:
        self._reported = reported
        # By the number of a finding.
        self._seen = bytearray(len(reported))
        self._broken = Spool(_Kept)
        self._kinds = Kinds()
        self._left_out = SortedRows(LeftOut)
        self.not_in_report = 0

    def close(self) -> None:
        """Let go of the broken objects that were not yielded."""
        self._broken.close()

    def take(self, found: Examination, similarity: Similarity | None) -> None:
        """Take one examined value, and what it has in common with what a newer cluster may have written.

        Raises:
            SourceError: There is no room for what is kept of it.
        """
        at_place = self._reported.find(found.stored.key)
        if at_place is None:
            self.not_in_report += found.verdict.outcome in _BROKEN
            return
        number, reported = at_place
        self._seen[number] = True
        value = f"sha256:{hashlib.sha256(found.stored.value).hexdigest()}"
        why = _why_left_out(found, reported, value)
        if why is not None:
            self._leave_out(found.stored.key, *why)
            return
        stored = msgspec.structs.replace(found.stored, value=b"")
        bare = msgspec.structs.replace(found, decoded=None, stored=stored)
        try:
            self._broken.append(_Kept(self._kinds.part(bare), value, similarity, not came_out(found)))
        except OSError as exc:
            raise SourceError(
                f"temporary file for broken objects, in {temporary_directory()}: {exc.strerror or exc}",
                hint="point TMPDIR at a directory with more room",
            ) from exc

    def leave_out_unseen(self, problems: Sequence[str]) -> None:
        """Leave out what the report has and nobody saw; what could not be read is not gone."""
        why = (
            ("undetermined", "it was not seen, and not everything could be read")
            if problems
            else ("gone", "the key does not exist any more")
        )
        for number, seen in enumerate(self._seen):
            if not seen:
                self._leave_out(self._reported.key(number), *why)

    @property
    def broken_count(self) -> int:
        """How many :meth:`broken` has still to yield, at most."""
        return self._broken.count

    def broken(self, similar: SimilarValues) -> Iterator[Broken]:
        """Yield each broken object once, but for what fails as a whole kind does.

        A release that was named may prove that the kind is gone; that stays.
        """
        for one in self._broken.drain():
            found = self._kinds.whole(one.part)
            counts = similar.of(found, one.similarity)
            if counts.points_at_us and not in_our_tables(found):
                self._leave_out(found.stored.key, "newer-than-known", f"{counts}: that is {NOT_THE_OBJECT}")
            else:
                yield Broken(found, one.value_sha256, one.closed)

    def leave_out_all(self) -> None:
        """Leave out all that the report has: the plan was ended in the pass, or between two objects.

        Who uses an object, and whether its encryption key is lost, the whole pass tells; and what was taken or counted
        when it was ended may have been by half.
        """
        self._left_out = SortedRows(LeftOut)
        for number in range(len(self._reported)):
            self._leave_out(self._reported.key(number), *_ENDED)

    def leave_out_rest(self, begun: Broken) -> None:
        """Leave out the object at which the plan was ended, and those that were not yielded yet."""
        rest = (self._kinds.whole(one.part) for one in self._broken.drain())
        for found in chain((begun.found,), rest):
            self._leave_out(found.stored.key, *_ENDED)

    def left_out(self) -> Sequence[LeftOut]:
        """Return what is left out, in the order of the etcd keys; nothing can be taken after this."""
        return self._left_out.finish()

    def _leave_out(self, key: bytes, why: str, detail: str) -> None:
        row = LeftOut(key=display(key), key_base64=key_base64(key), why=why, detail=safe_text(detail))
        self._left_out.add(key + b"\x00", row)


def _why_left_out(found: Examination, reported: ReportedFinding, value_sha256: str) -> tuple[str, str] | None:
    verdict, stored = found.verdict, found.stored
    if verdict.outcome not in _BROKEN:
        return "readable", "it can be read now"
    if stored.mod_revision != reported.mod_revision:
        return (
            "changed",
            f"it stands at mod_revision {stored.mod_revision}, the report has {reported.mod_revision}",
        )
    if value_sha256 != reported.value_sha256:
        return "changed", "its value has another digest than in the report"
    if verdict.outcome is Outcome.INCONSISTENT:
        return "inconsistent", "the API server accepts it: mend or delete it through the API"
    match deletability_of(found):
        case Deletability.UNPROVEN:
            return "undetermined", f"nothing is proven against it ({verdict.message})"
        case Deletability.CURABLE:
            return "curable-by-configuration", f"the configuration alone can cure it ({verdict.message})"
        case Deletability.MOVED:
            return "value-moved", f"it belongs to {display(verdict.belongs_to)}: look at that key first"
        case Deletability.NEVER:
            return "never-deletable", f"{verdict.cause} is no reason to delete ({verdict.message})"
    return None
