"""The broken objects of a plan: kept in a file while everything is read, for who needs them only afterwards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from etcdfix.examine.maybe_newer import NOT_THE_OBJECT, Similarity, SimilarValues, in_our_tables
from etcdfix.examine.spool import Spool
from etcdfix.examine.verdicts.deletability import FAILED, Deletability, deletability_of
from etcdfix.examine.verdicts.examination import Examination
from etcdfix.examine.verdicts.kinds import AlikeExaminations, CompactExamination
from etcdfix.graph.assess import came_out
from etcdfix.inputs.temporary import temporary_directory
from etcdfix.model.errors import SourceError
from etcdfix.model.model import GroupResource, Outcome, digest_of
from etcdfix.model.storagekey import display
from etcdfix.report.plan import LeftOut
from etcdfix.report.rows import SortedRows
from etcdfix.report.saved_report import ReportedFinding, SavedFindings
from etcdfix.text.safetext import key_base64, safe_text

_BROKEN: Final = FAILED | {Outcome.INCONSISTENT, Outcome.UNDETERMINED}


class Broken(NamedTuple):
    """One object that may be deleted.

    Attributes:
        found: What it is, without its value: there may be many.
        closed: Nothing came out of its value.
    """

    found: Examination
    value_sha256: str
    closed: bool


class _Spooled(msgspec.Struct, frozen=True, array_like=True, gc=False):
    part: CompactExamination
    value_sha256: str
    similarity: Similarity | None
    closed: bool


class BrokenObjects:
    """What the pass over everything leaves of the findings of a report.

    Attributes:
        not_in_report: How many broken values the report does not have.
        only_in_memory: How many objects of a kind have lost their encryption key and are not saved.
    """

    def __init__(
        self, reported: SavedFindings, similar: SimilarValues, is_saved: Callable[[Examination], bool]
    ) -> None:
        self._reported, self._similar, self._is_saved = reported, similar, is_saved
        self._seen = bytearray(len(reported))
        self._kept, self._kinds = Spool(_Spooled), AlikeExaminations()
        self._left_out = SortedRows(LeftOut)
        self.not_in_report = 0
        self.only_in_memory: Counter[GroupResource] = Counter()

    def close(self) -> None:
        """Let go of the broken objects that were not yielded."""
        self._kept.close()

    def take(self, found: Examination) -> None:
        """Take one examined value; raises SourceError."""
        similarity = self._similar.add(found)
        if found.verdict.outcome in _BROKEN and self.is_only_in_memory(found):
            self.only_in_memory[found.directory.group_resource] += 1
        at_place = self._reported.find(found.stored.key)
        if at_place is None:
            self.not_in_report += found.verdict.outcome in _BROKEN
            return
        number, reported = at_place
        self._seen[number] = True
        value = digest_of(found.stored.value)
        why = _why_left_out(found, reported, value)
        if why is not None:
            self._leave_out(found.stored.key, *why)
            return
        stored = msgspec.structs.replace(found.stored, value=b"")
        bare = msgspec.structs.replace(found, decoded=None, stored=stored)
        try:
            self._kept.append(_Spooled(self._kinds.compact(bare), value, similarity, not came_out(found)))
        except OSError as exc:
            text = f"temporary file for broken objects, in {temporary_directory()}: {exc.strerror or exc}"
            raise SourceError(text, hint="point TMPDIR at a directory with more room") from exc

    def is_only_in_memory(self, found: Examination) -> bool:
        """Say whether the encryption key of an object is lost, and nobody has saved what API servers may hold of it."""
        return deletability_of(found) is Deletability.DECLARABLE and not self._is_saved(found)

    @property
    def count(self) -> int:
        """How many :meth:`broken` has still to yield, at most."""
        return self._kept.count

    def broken(self, problems: Sequence[str]) -> Iterator[Broken]:
        """Leave out what was not seen, and yield each broken object but for what fails as a whole kind does.

        A release that was named may prove that the kind is gone; that stays.
        """
        why = ("gone", "the key does not exist any more")
        if problems:
            why = ("undetermined", "it was not seen, and not everything could be read")
        for number, seen in enumerate(self._seen):
            if not seen:
                self._leave_out(self._reported.key(number), *why)
        for one in self._kept.drain():
            found = self._kinds.expand(one.part)
            counts = self._similar.of(found, one.similarity)
            if counts.points_at_us and not in_our_tables(found):
                self._leave_out(found.stored.key, "newer-than-known", f"{counts}: that is {NOT_THE_OBJECT}")
            else:
                yield Broken(found, one.value_sha256, one.closed)

    def leave_out_all(self) -> None:
        """Leave out all that the report has: the plan was ended early, and what was counted may be by half."""
        self._left_out = SortedRows(LeftOut)
        for number in range(len(self._reported)):
            key = self._reported.key(number)
            self._leave_out(key, "undetermined", "it was not looked at: the plan ended early")

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
        then = f"the report has {reported.mod_revision}"
        return "changed", f"it stands at mod_revision {stored.mod_revision}, {then}"
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
