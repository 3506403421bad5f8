"""The same keys held against each other: on every member of an etcd, or at two points in time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

import msgspec

from etcdfix.errors import EndedEarly, SourceError
from etcdfix.examine import Examiner, Reading
from etcdfix.examine_all import Progress, no_progress
from etcdfix.model import StoredValue
from etcdfix.operations.look.comparing.advice import member_advice, time_advice
from etcdfix.operations.look.comparing.differences import Differences, Side
from etcdfix.operations.look.comparing.members import Member, reach_members
from etcdfix.operations.look.comparing.streams import Walk
from etcdfix.operations.look.in_scope import resolved, resolved_among, shown_scope, values_in
from etcdfix.remediation.preflight.members import AlarmKind, read_alarms
from etcdfix.report.compare import ComparedCopy, ComparisonReport
from etcdfix.report.model import Remedy
from etcdfix.report.origin import TOOL, shown_configuration, shown_word, timestamp
from etcdfix.scope import KeyRange, ScopeRequest
from etcdfix.sources.base import Source, has_keys
from etcdfix.sources.live import LiveSource
from etcdfix.storagekey import display
from etcdfix.text.words import counted

if TYPE_CHECKING:
    from etcdfix.encryption.kms.plugins import KMSPlugins

Say = Callable[[str], None]
_MEMBERS: Final = "members"
_SOURCES: Final = "sources"


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


class _Walked(msgspec.Struct, frozen=True):
    differences: Differences
    problems: list[str]
    keys: int = 0
    unknown: int = 0
    ended: EndedEarly | None = None


def compare_members(
    source: LiveSource,
    request: CompareRequest,
    *,
    say: Say,
    plugins: KMSPlugins | None = None,
    progress: Progress = no_progress,
) -> CompareResult:
    """Compare what the members of an etcd hold themselves.

    Raises:
        ConfigurationError: A resource does not exist.
        SourceError: etcd cannot be asked at all.
        MemberListUnusable: The member list cannot be true.
    """
    with ExitStack() as stack:
        members, survey = reach_members(source, request.layout, stack, revision=request.revision, say=say)
        revision = request.revision or survey.reading.revision
        reached = [member for member in members if member.source is not None]
        warnings = [f"learner {label} has no vote, and was not asked" for label in survey.learners]
        warnings += _alarms(source)
        examiner = Examiner.of_cluster(source, request, plugins)
        scope, ranges = resolved(request.scope, examiner, source)
        request = msgspec.structs.replace(request, scope=scope)
        sides = [Side(member.copy.label, examiner.apart()) for member in reached]
        silent = [member.copy.describe() for member in members if member.source is None]
        walked = _Walked(Differences(sides, in_time=False), silent)
        sources: list[Source] = [member.source for member in reached if member.source is not None]
        if len(reached) > 1:
            walked = _walk(sources, sides, ranges, progress, in_time=False, problems=walked.problems)
        limited_to = source.describe().limited_to
        at = iter(range(len(sides)))
        copies = [_member_copy(member, revision, walked.differences, at) for member in members]
        whole = request.scope.everything and not (
            request.revision or limited_to or walked.problems or walked.ended
        )
        return _result(
            request,
            walked,
            copies,
            mode=_MEMBERS,
            warnings=warnings,
            advice=member_advice(copies, walked.differences, whole=whole),
            limited_to=limited_to,
            sources=sources if len(reached) > 1 else (),
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
    custom = {
        directory: None for examiner in examiners for directory in examiner.readers.custom_directories()
    }
    scope, ranges = resolved_among(request.scope, examiners[0], custom, sources)
    request = msgspec.structs.replace(request, scope=scope)
    uids = [examiner.kube_system_uid(source) for examiner, source in zip(examiners, sources, strict=True)]
    sides = [
        Side(label, examiner.apart()) for label, examiner in zip(("earlier", "later"), examiners, strict=True)
    ]
    walked = _walk(sources, sides, ranges, progress, in_time=True)
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
    return _result(
        request,
        walked,
        [_source_copy(source, sides[at].label, walked.differences, at) for at, source in enumerate(sources)],
        mode=_SOURCES,
        warnings=warnings,
        advice=time_advice(walked.differences, earlier_path, live=not request.run.of_a_file),
        limited_to=later.describe().limited_to,
        sources=sources,
    )


def _walk(
    sources: Sequence[Source],
    sides: Sequence[Side],
    ranges: Sequence[KeyRange],
    progress: Progress,
    *,
    in_time: bool,
    problems: Sequence[str] = (),
) -> _Walked:
    differences = Differences(sides, in_time=in_time)
    denied: list[bytes] = []
    lost: dict[int, str] = {}

    def stream(at: int, source: Source) -> Iterator[StoredValue]:
        values = values_in(source, ranges, denied)
        try:
            yield from progress(values, "keys", None) if at == 0 else values
        except SourceError as exc:
            lost[at] = f"{sides[at].label} was lost midway: {exc.message}"

    walk = Walk(
        [stream(at, source) for at, source in enumerate(sources)],
        lambda at: at not in lost and not sources[at].problems,
    )
    ended = None
    try:
        for differing in walk:
            differences.add(differing)
    except KeyboardInterrupt as exc:
        ended = EndedEarly.of(exc)
    problems = [*problems, *lost.values()]
    for side, source in zip(sides, sources, strict=True):
        problems += [f"{side.label}: {problem}" for problem in source.problems]
    problems += [f"permission denied: the key {display(key)} was not read" for key in dict.fromkeys(denied)]
    if walk.unknown:
        problems.append(
            f"{counted(walk.unknown, 'key')} could not be compared: not every copy was read whole"
        )
    if ended is not None:
        problems.append(f"{ended.reason} before the end")
    return _Walked(differences, problems, walk.keys, walk.unknown, ended)


def _alarms(source: LiveSource) -> Iterator[str]:
    try:
        alarms = read_alarms(source.client)
    except SourceError as exc:
        yield f"alarms could not be asked for: {exc.message}"
        return
    for alarm in alarms:
        if alarm.kind is AlarmKind.CORRUPT:
            yield f"member {alarm.label} has raised CORRUPT: etcd itself has seen that the members differ"


def _member_copy(
    member: Member, revision: int, differences: Differences, numbers: Iterator[int]
) -> ComparedCopy:
    copy, compared = member.copy, member.source is not None
    at = next(numbers) if compared else -1
    return ComparedCopy(
        label=copy.label,
        type="member",
        member_id=f"{copy.member_id:x}",
        name=copy.name,
        endpoint=copy.endpoint,
        revision=revision if compared else 0,
        compared=compared,
        reason=copy.reason,
        only_readable_here=differences.only_readable[at] if compared else 0,
        unreadable_here=differences.unreadable[at] if compared else 0,
    )


def _source_copy(source: Source, label: str, differences: Differences, at: int) -> ComparedCopy:
    description = source.describe()
    return ComparedCopy(
        label=label,
        type="etcd" if description.path is None else "snapshot",
        path=shown_word(description.path or ""),
        endpoint=",".join(description.endpoints or ()),
        revision=description.revision,
        only_readable_here=differences.only_readable[at],
        unreadable_here=differences.unreadable[at],
    )


def _result(
    request: CompareRequest,
    walked: _Walked,
    copies: list[ComparedCopy],
    *,
    mode: str,
    warnings: Sequence[str],
    advice: list[Remedy],
    limited_to: str,
    sources: Sequence[Source],
) -> CompareResult:
    differences = walked.differences
    report = ComparisonReport(
        tool=TOOL,
        generated_at=timestamp(),
        encryption_config=shown_configuration(request.configuration),
        scope=shown_scope(request.scope, request, limited_to=limited_to),
        mode=mode,
        copies=copies,
        keys=walked.keys,
        differing=differences.changes.total(),
        changes={change.value: count for change, count in differences.changes.items()},
        unknown=walked.unknown,
        warnings=list(warnings),
        advice=advice,
        complete=not walked.problems,
        incomplete_reasons=walked.problems,
        differences=differences.rows.finish(),
    )
    # No key was compared: does none start with the storage prefix?
    empty = bool(sources) and not (walked.keys or walked.problems)
    nothing = empty and not any(has_keys(source, request.layout) for source in sources)
    return CompareResult(report, walked.ended, nothing)
