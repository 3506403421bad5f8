"""The same keys held against each other: on every member of an etcd, or at two points in time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from etcdfix.commands.comparing.advice import member_advice, time_advice
from etcdfix.commands.comparing.differences import Differences, Side, Walk
from etcdfix.errors import EndedEarly, SourceError
from etcdfix.examine import Examiner, Reading
from etcdfix.examine_all import Progress, no_progress
from etcdfix.in_scope import resolved, resolved_among, values_in
from etcdfix.model import StoredValue
from etcdfix.remediation.preflight.members import AlarmKind, read_alarms, survey_members
from etcdfix.report.compare import ComparedCopy, ComparisonReport
from etcdfix.report.model import Remedy
from etcdfix.report.origin import TOOL, shown_configuration, shown_scope, shown_word, timestamp
from etcdfix.scope import KeyRange, ScopeRequest
from etcdfix.sources.base import Source, has_keys
from etcdfix.sources.live import LiveSource
from etcdfix.storagekey import display
from etcdfix.text.words import counted

if TYPE_CHECKING:
    from etcdfix.encryption.kms.plugins import KMSPlugins


class CompareRequest(Reading, frozen=True, kw_only=True):
    """Everything that decides what is compared.

    Attributes:
        revision: At which members are compared; 0 for the newest.
    """

    scope: ScopeRequest
    revision: int = 0


class CompareResult(msgspec.Struct, frozen=True):
    """The report, and what ended the comparison early; None where nothing did.

    ``nothing_there`` says that no key is in scope anywhere.
    """

    report: ComparisonReport
    ended: EndedEarly | None = None
    nothing_there: bool = False


def compare_members(
    source: LiveSource,
    request: CompareRequest,
    *,
    say: Callable[[str], None],
    plugins: KMSPlugins | None = None,
    progress: Progress = no_progress,
) -> CompareResult:
    """Compare what the members of an etcd hold themselves, at one revision that each of them has.

    Raises:
        ConfigurationError: A resource does not exist.
        SourceError: etcd cannot be asked at all.
        MemberListUnusable: The member list cannot be true.
    """
    prefix = request.layout.prefix_bytes
    with ExitStack() as stack:
        survey = survey_members(source.client, prefix + b"namespaces/kube-system")
        revision = request.revision or survey.reading.revision
        members, opened = [], {}
        for member in sorted(survey.copies, key=lambda copy: (copy.name, copy.member_id)):
            asked = member
            if not asked.reason:
                connection = replace(source.client.connection, endpoints=(asked.endpoint,))
                read = partial(LiveSource, revision=revision, storage_prefix=prefix, on_notice=say)
                try:
                    opened[asked.label] = stack.enter_context(read(connection, of_member=asked.member_id))
                except SourceError as exc:
                    asked = msgspec.structs.replace(asked, reason=exc.message)
            members.append(asked)
        warnings = [f"learner {label} has no vote, and was not asked" for label in survey.learners]
        warnings += _alarms(source)
        examiner = Examiner.of_cluster(source, request, plugins)
        scope, ranges = resolved(request.scope, examiner, source)
        sides = [Side(label, examiner.apart(), own) for label, own in opened.items()]
        comparison = _Comparison(sides, in_time=False)
        comparison.problems += [member.describe() for member in members if member.label not in opened]
        if len(sides) > 1:
            comparison.walk(ranges, progress)
        copies = [
            ComparedCopy(
                label=member.label,
                type="member",
                member_id=f"{member.member_id:x}",
                name=member.name,
                endpoint=member.endpoint,
                revision=revision if member.label in opened else 0,
                compared=member.label in opened,
                reason=member.reason,
            )
            for member in members
        ]
        limited_to = source.describe().limited_to
        whole = scope.everything and not (
            request.revision or limited_to or comparison.problems or comparison.ended
        )
        return comparison.result(
            msgspec.structs.replace(request, scope=scope),
            copies,
            lambda copies, differences: member_advice(copies, differences, whole=whole),
            warnings=warnings,
            limited_to=limited_to,
        )
    raise AssertionError("unreachable")


def compare_sources(
    earlier: Source,
    later: Source,
    request: CompareRequest,
    *,
    earlier_path: str,
    plugins: KMSPlugins | None = None,
    progress: Progress = no_progress,
) -> CompareResult:
    """Compare two points in time: a snapshot with a later one, or with what is there now.

    Raises:
        ConfigurationError: A resource does not exist.
        SourceError: One of them cannot be read at all.
    """
    sources = [earlier, later]
    examiners = [Examiner.of_cluster(source, request, plugins) for source in sources]
    custom = dict.fromkeys(found for examiner in examiners for found in examiner.readers.custom_directories())
    scope, ranges = resolved_among(request.scope, examiners[0], custom, sources)
    uids = [examiner.kube_system_uid(source) for examiner, source in zip(examiners, sources, strict=True)]
    warnings = []
    if None not in uids and uids[0] != uids[1]:
        warnings.append(
            f"these are different clusters: namespace kube-system has uid {uids[0]} in the first and {uids[1]} in "
            "the other"
        )
    revisions = [source.describe().revision for source in sources]
    if revisions[0] > revisions[1]:
        warnings.append(
            f"--with-snapshot is at revision {revisions[0]} and the other at {revisions[1]}: what is called "
            "earlier may be the later one"
        )
    labelled = zip(("earlier", "later"), examiners, sources, strict=True)
    sides = [Side(label, examiner.apart(), source) for label, examiner, source in labelled]
    comparison = _Comparison(sides, in_time=True)
    comparison.walk(ranges, progress)
    copies = []
    for side in sides:
        description = side.source.describe()
        copies.append(
            ComparedCopy(
                label=side.label,
                type="etcd" if description.path is None else "snapshot",
                path=shown_word(description.path or ""),
                endpoint=",".join(description.endpoints or ()),
                revision=description.revision,
            )
        )
    return comparison.result(
        msgspec.structs.replace(request, scope=scope),
        copies,
        lambda _copies, found: time_advice(found, earlier_path, live=not request.run.of_a_file),
        warnings=warnings,
        limited_to=later.describe().limited_to,
    )


class _Comparison:
    def __init__(self, sides: Sequence[Side], *, in_time: bool) -> None:
        self.differences = Differences(sides, in_time=in_time)
        self.problems: list[str] = []
        self.ended: EndedEarly | None = None
        self._sides, self._in_time = sides, in_time
        self._lost: dict[int, str] = {}
        self._denied: list[bytes] = []
        self._walk: Walk | None = None

    def walk(self, ranges: Sequence[KeyRange], progress: Progress) -> None:
        """Compare every key in some ranges."""
        streams = [
            self._stream(at, ranges, progress if at == 0 else no_progress) for at in range(len(self._sides))
        ]
        self._walk = walk = Walk(
            streams, lambda at: at not in self._lost and not self._sides[at].source.problems
        )
        try:
            for differing in walk:
                self.differences.add(differing)
        except KeyboardInterrupt as exc:
            self.ended = EndedEarly.of(exc)
        self.problems += self._lost.values()
        for side in self._sides:
            self.problems += [f"{side.label}: {problem}" for problem in side.source.problems]
        denied = dict.fromkeys(self._denied)
        self.problems += [f"permission denied: the key {display(key)} was not read" for key in denied]
        if walk.unknown:
            unknown = counted(walk.unknown, "key")
            self.problems.append(f"{unknown} could not be compared: not every copy was read whole")
        if self.ended is not None:
            self.problems.append(f"{self.ended.reason} before the end")

    def _stream(self, at: int, ranges: Sequence[KeyRange], progress: Progress) -> Iterator[StoredValue]:
        try:
            yield from progress(values_in(self._sides[at].source, ranges, self._denied), "keys", None)
        except SourceError as exc:
            self._lost[at] = f"{self._sides[at].label} was lost midway: {exc.message}"

    def result(
        self,
        request: CompareRequest,
        copies: Sequence[ComparedCopy],
        advise: Callable[[Sequence[ComparedCopy], Differences], list[Remedy]],
        *,
        warnings: list[str],
        limited_to: str,
    ) -> CompareResult:
        """Return the report; each copy is told with how many keys it alone can read, or cannot."""
        differences, walk = self.differences, self._walk
        told = [
            msgspec.structs.replace(
                copy,
                only_readable_here=differences.only_readable[copy.label],
                unreadable_here=differences.unreadable[copy.label],
            )
            for copy in copies
        ]
        report = ComparisonReport(
            tool=TOOL,
            generated_at=timestamp(),
            encryption_config=shown_configuration(request.configuration),
            scope=shown_scope(request.scope, request.layout, request.kubernetes_minor, limited_to=limited_to),
            mode="sources" if self._in_time else "members",
            copies=told,
            keys=walk.keys if walk is not None else 0,
            differing=differences.changes.total(),
            changes={change.value: count for change, count in differences.changes.items()},
            unknown=walk.unknown if walk is not None else 0,
            warnings=warnings,
            advice=advise(told, differences),
            complete=not self.problems,
            incomplete_reasons=self.problems,
            differences=differences.rows.finish(),
        )
        # No key was compared: does none start with the storage prefix?
        empty = walk is not None and not (walk.keys or self.problems)
        nothing = empty and not any(has_keys(side.source, request.layout) for side in self._sides)
        return CompareResult(report, self.ended, nothing)


def _alarms(source: LiveSource) -> Iterator[str]:
    try:
        alarms = read_alarms(source.client)
    except SourceError as exc:
        yield f"alarms could not be asked for: {exc.message}"
        return
    for alarm in alarms:
        if alarm.kind is AlarmKind.CORRUPT:
            yield f"member {alarm.label} has raised CORRUPT: etcd itself has seen that the members differ"
