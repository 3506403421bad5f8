"""The same keys held against each other: on every member of an etcd, or at two points in time.

Each side is a stream of values in the order of their keys. Keys that are not the same everywhere are examined.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from etcdfix.examine.all import Progress, no_progress
from etcdfix.examine.one import Examiner, Reading
from etcdfix.examine.scope import resolved, resolved_among, values_in
from etcdfix.model.errors import EndedEarly, SourceError
from etcdfix.model.model import Outcome, StoredValue
from etcdfix.model.scope import KeyRange, ScopeRequest
from etcdfix.model.storagekey import display
from etcdfix.remediation.members import survey_members
from etcdfix.report.compare import (
    ComparedCopy,
    ComparisonReport,
    DifferenceKind,
    KeyDifference,
    copy_of_key,
    key_difference,
    member_advice,
    time_advice,
)
from etcdfix.report.origin import TOOL, shown_configuration, shown_scope, shown_word, timestamp
from etcdfix.report.rows import SortedRows, turn_of
from etcdfix.sources.base import Source
from etcdfix.sources.live import LiveSource
from etcdfix.text.words import counted

if TYPE_CHECKING:
    from etcdfix.encryption.kms.plugins import KMSPlugins

_ORDER: Final = {change: number for number, change in enumerate(DifferenceKind)}
_FINE: Final = frozenset({Outcome.READABLE, Outcome.NOT_AN_OBJECT})


class Side(msgspec.Struct):
    """One of what is compared; ``lost`` says why its stream ended midway."""

    copy: ComparedCopy
    examiner: Examiner
    source: Source
    lost: str = ""

    def values(
        self, ranges: Sequence[KeyRange], denied: list[bytes], progress: Progress
    ) -> Iterator[StoredValue]:
        """Yield what is in scope; what loses the source ends the stream."""
        try:
            yield from progress(values_in(self.source, ranges, denied), "keys", None)
        except SourceError as exc:
            self.lost = f"{self.copy.label} was lost midway: {exc.message}"

    @property
    def whole(self) -> bool:
        """Whether a key that was not yielded is really not there."""
        return not self.lost and not self.source.problems


def compare_members(
    source: LiveSource,
    reading: Reading,
    wanted: ScopeRequest,
    *,
    revision: int = 0,
    say: Callable[[str], None],
    plugins: KMSPlugins | None = None,
    progress: Progress = no_progress,
) -> tuple[ComparisonReport, EndedEarly | None]:
    """Compare what the members of an etcd hold themselves, at one revision that each has; 0 for the newest.

    Raises:
        MemberListUnusable: The member list cannot be true.
    """
    with ExitStack() as stack:
        survey = survey_members(source.client, reading.layout.path("namespaces/kube-system"))
        revision = revision or survey.reading.revision
        examiner = Examiner.of_cluster(source, reading, plugins)
        scope, ranges = resolved(wanted, examiner, source)
        read = partial(LiveSource, revision=revision, storage_prefix=reading.layout.path(), on_notice=say)
        comparison = Comparison(reading, scope)
        for member in sorted(survey.copies, key=lambda copy: (copy.name, copy.member_id)):
            copy = ComparedCopy(
                label=member.label,
                type="member",
                member_id=f"{member.member_id:x}",
                endpoint=member.endpoint,
                compared=not member.reason,
                reason=member.reason,
            )
            comparison.copies.append(copy)
            if copy.compared:
                connection = replace(source.client.connection, endpoints=(member.endpoint,))
                try:
                    own = stack.enter_context(read(connection, of_member=member.member_id))
                    comparison.sides.append(Side(copy, examiner.independent_copy(), own))
                except SourceError as exc:
                    copy.compared, copy.reason = False, exc.message
            if copy.compared:
                copy.revision = revision
            else:
                comparison.problems.append(f"{copy.label} was not compared: {copy.reason}")
        comparison.warnings += [f"learner {label} was not asked: it has no vote" for label in survey.learners]
        if len(comparison.sides) > 1:
            comparison.walk(ranges, progress)
        return comparison.result("members", source.describe().limited_to)
    raise AssertionError("unreachable")


def compare_sources(
    earlier: Source,
    later: Source,
    reading: Reading,
    wanted: ScopeRequest,
    *,
    earlier_path: str,
    plugins: KMSPlugins | None = None,
    progress: Progress = no_progress,
) -> tuple[ComparisonReport, EndedEarly | None]:
    """Compare two points in time: a snapshot with a later one, or with what is there now."""
    sources = [earlier, later]
    examiners = [Examiner.of_cluster(source, reading, plugins) for source in sources]
    custom = dict.fromkeys(found for examiner in examiners for found in examiner.readers.custom_directories())
    scope, ranges = resolved_among(wanted, examiners[0], custom, sources)
    comparison = Comparison(reading, scope, in_time=True)
    first, second = (one.kube_system_uid(source) for one, source in zip(examiners, sources, strict=True))
    if first and second and first != second:
        told = f"namespace kube-system has uid {first} in the first and {second} in the other"
        comparison.warnings.append(f"these are different clusters: {told}")
    was, now = (source.describe().revision for source in sources)
    if was > now:
        comparison.warnings.append(
            f"--with-snapshot is at revision {was} and the other at {now}: what is called earlier may be the later one"
        )
    for label, examiner, source in zip(("earlier", "later"), examiners, sources, strict=True):
        description = source.describe()
        copy = ComparedCopy(
            label=label,
            type="etcd" if description.path is None else "snapshot",
            path=shown_word(description.path or ""),
            endpoint=",".join(description.endpoints or ()),
            revision=description.revision,
        )
        comparison.copies.append(copy)
        comparison.sides.append(Side(copy, examiner.independent_copy(), source))
    comparison.walk(ranges, progress)
    return comparison.result("sources", later.describe().limited_to, earlier=earlier_path)


class Comparison:
    """Sides that are walked together, and what was found; ``copies`` also has members that are not among the sides.

    A key is unknown that a side which is not whole does not have, while the others agree.
    """

    def __init__(self, reading: Reading, scope: ScopeRequest, *, in_time: bool = False) -> None:
        self.sides: list[Side] = []
        self.copies: list[ComparedCopy] = []
        self.problems: list[str] = []
        self.warnings: list[str] = []
        self._changes: Counter[DifferenceKind] = Counter()
        self._first: dict[DifferenceKind, bytes] = {}
        self._keys = self._unknown = 0
        self._reading, self._scope, self._in_time = reading, scope, in_time
        self._ended: EndedEarly | None = None
        self._rows: SortedRows[KeyDifference] = SortedRows(KeyDifference)

    def walk(self, ranges: Sequence[KeyRange], progress: Progress) -> None:
        """Compare every key in some ranges."""
        denied: list[bytes] = []
        streams = [
            side.values(ranges, denied, no_progress if at else progress) for at, side in enumerate(self.sides)
        ]
        try:
            for key, copies in self.differing(streams):
                self._add(key, copies)
        except KeyboardInterrupt as exc:
            self._ended = EndedEarly.of(exc)
        self.problems += [side.lost for side in self.sides if side.lost]
        self.problems += [f"{side.copy.label}: {one}" for side in self.sides for one in side.source.problems]
        self.problems += [f"permission denied: {display(key)} was not read" for key in dict.fromkeys(denied)]
        if self._unknown:
            told = counted(self._unknown, "key")
            self.problems.append(f"{told} could not be compared: not every copy was read whole")
        if self._ended is not None:
            self.problems.append(f"{self._ended.reason} before the end")

    def differing(
        self, streams: Sequence[Iterator[StoredValue]]
    ) -> Iterator[tuple[bytes, list[StoredValue | None]]]:
        """Yield the keys that differ with a copy for each stream, None where it has no such key."""
        count = len(streams)
        heads = [next(stream, None) for stream in streams]
        while True:
            if heads[0] is not None and heads.count(heads[0]) == count:  # nearly always
                self._keys += 1
                heads = [next(stream, None) for stream in streams]
                continue
            first = min((head.key for head in heads if head is not None), default=None)
            if first is None:
                return
            self._keys += 1
            copies = [head if head is not None and head.key == first else None for head in heads]
            heads = [
                head if copy is None else next(stream, None)
                for head, copy, stream in zip(heads, copies, streams, strict=True)
            ]
            sure = {
                copy for copy, side in zip(copies, self.sides, strict=True) if copy is not None or side.whole
            }
            if len(sure) > 1:
                yield first, copies
            else:
                self._unknown += 1

    def _add(self, key: bytes, copies: Sequence[StoredValue | None]) -> None:
        pairs = [*zip(self.sides, copies, strict=True)]
        found = [side.examiner.examine(copy) if copy is not None else None for side, copy in pairs]
        fine = [one is not None and one.verdict.outcome in _FINE for one in found]
        known = {at for at, (side, copy) in enumerate(pairs) if copy is not None or side.whole}
        change = _in_time(copies, fine) if self._in_time else _among_members([fine[at] for at in known])
        for at in known:
            others = [fine[other] for other in known - {at}]
            self.sides[at].copy.unreadable_here += not fine[at] and any(others)
        self._changes[change] += 1
        self._first.setdefault(change, key)
        told = [
            copy_of_key(self.sides[at].copy.label, one, known=at in known) for at, one in enumerate(found)
        ]
        row = key_difference(next(one for one in found if one is not None), change, told)
        self._rows.add(bytes([_ORDER[change]]) + turn_of(key), row)

    def result(
        self, mode: str, limited_to: str, *, earlier: str = ""
    ) -> tuple[ComparisonReport, EndedEarly | None]:
        """Return the report, and what ended the comparison early."""
        advice = (
            time_advice(self._first, earlier, live=not self._reading.run.of_a_file)
            if self._in_time
            else member_advice(self._first, self.copies)
        )
        reading = self._reading
        report = ComparisonReport(
            tool=TOOL,
            generated_at=timestamp(),
            encryption_config=shown_configuration(reading.configuration),
            scope=shown_scope(self._scope, reading.layout, reading.kubernetes_minor, limited_to=limited_to),
            mode=mode,
            copies=self.copies,
            keys=self._keys,
            differing=self._changes.total(),
            changes={change.value: count for change, count in self._changes.items()},
            unknown=self._unknown,
            warnings=self.warnings,
            advice=advice,
            complete=not self.problems,
            incomplete_reasons=self.problems,
            differences=self._rows.finish(),
        )
        return report, self._ended


def _in_time(copies: Sequence[StoredValue | None], fine: Sequence[bool]) -> DifferenceKind:
    earlier, later = copies
    if earlier is None:
        return DifferenceKind.ADDED
    if later is None:
        return DifferenceKind.REMOVED
    if fine[0] and not fine[1]:
        return DifferenceKind.UNREADABLE_NOW
    same = earlier.mod_revision == later.mod_revision
    return DifferenceKind.SAME_REVISION_OTHER_BYTES if same else DifferenceKind.CHANGED


def _among_members(known: Sequence[bool]) -> DifferenceKind:
    if all(known):
        return DifferenceKind.READABLE_ON_ALL
    return DifferenceKind.READABLE_ON_SOME if any(known) else DifferenceKind.READABLE_ON_NONE
