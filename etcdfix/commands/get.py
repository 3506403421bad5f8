"""Show stored objects: which keys are meant, each examined once, each written or said to be no object.

Nothing is kept of an object once it is written; those that do not plainly read come last, as in a scan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from etcdfix.examine.all import examine_all
from etcdfix.examine.one import Examiner, Reading
from etcdfix.examine.readable_revision import ReadableRevisions
from etcdfix.examine.scope import why_missing
from etcdfix.examine.verdicts.examination import Examination
from etcdfix.model.errors import EndedEarly, SourceError
from etcdfix.model.model import Outcome, StoredValue
from etcdfix.model.resource_words import builtin_word, is_cluster_scoped, require_resource
from etcdfix.model.storagekey import ResourcePrefix, display, word_bytes
from etcdfix.remediation.offers import ways_at_hand
from etcdfix.report.advice.ways import first_way
from etcdfix.report.objects import WRONG, Documents, Form, ObjectList, Shown, Viewer, message_of
from etcdfix.report.tally import Stakes
from etcdfix.sources.base import Source, has_keys
from etcdfix.sources.pages import paged
from etcdfix.text.commands import scan
from etcdfix.text.words import counted

if TYPE_CHECKING:
    from pathlib import Path

    from etcdfix.encryption.kms.plugins import KMSPlugins
    from etcdfix.remediation.audit.record import Link

DEFAULT_NAMESPACE = "default"
_MOST_LINES: Final = 20


class NamedObjects(NamedTuple):
    """Objects of one resource, by any word for it (``secrets``, ``deploy``, ``deployments.apps``); no name: all."""

    resource: str
    names: tuple[str, ...] = ()


class GetRequest(Reading, frozen=True, kw_only=True):
    """What to show and how: one etcd key, or objects of resources in the order to show them.

    ``namespace`` None is ``default``; ``all_namespaces`` counts for objects that are named, too.
    """

    key: bytes | None = None
    objects: tuple[NamedObjects, ...] = ()
    namespace: str | None = None
    all_namespaces: bool = False
    reveal: bool = False
    omit_managed_fields: bool = False

    @property
    def many(self) -> bool:
        """Whether a list is the answer, however many are in it."""
        named = len(self.objects) == 1 and len(self.objects[0].names) == 1
        return self.key is None and (self.all_namespaces or not named)

    @property
    def types(self) -> tuple[str, ...]:
        """Every resource that is named, as far as can be told without definitions."""
        return tuple(dict.fromkeys(builtin_word(named.resource) for named in self.objects))


class GetResult(msgspec.Struct, kw_only=True):
    """Counts of what was shown, and the named objects that are ``missing``.

    ``undetermined`` also counts what opened and could not be shown. ``empty``: there is none of resources that were
    listed whole, in an etcd that has keys of the API servers.
    """

    seen: int = 0
    findings: int = 0
    undetermined: int = 0
    masked: int = 0
    missing: list[tuple[str, str]] = msgspec.field(default_factory=list)
    empty: bool = False
    problems: list[str] = msgspec.field(default_factory=list)
    ended: EndedEarly | None = None


def find(
    source: Source, request: GetRequest, examiner: Examiner, found: set[tuple[str, str]]
) -> Iterable[StoredValue]:
    """Return what is stored under the keys that are meant; ``found`` takes resource and name of each."""
    if request.key is not None:
        return filter(None, map(source.get, [request.key]))
    known = [*request.layout.directories(), *examiner.readers.custom_directories()]
    places = [require_resource(named.resource, known, prefixes_count=False) for named in request.objects]

    def objects(named: NamedObjects, place: ResourcePrefix) -> Iterator[StoredValue]:
        names = {word_bytes(name): name for name in named.names}
        base = request.layout.directory_prefix(place)
        if place.namespaced is not False and not request.all_namespaces:
            base += word_bytes(request.namespace or DEFAULT_NAMESPACE) + b"/"
        one_by_one = bool(names) and not request.all_namespaces
        each = (source.get(base + name) for name in names) if one_by_one else source.current(base)
        for stored in filter(None, each):
            name = stored.key.rpartition(b"/")[2]
            if not names or name in names:
                found.add((named.resource, names.get(name, "")))
                yield stored

    pairs = zip(request.objects, places, strict=True)
    return chain.from_iterable(objects(named, place) for named, there in pairs for place in there)


def run_get(
    source: Source,
    request: GetRequest,
    output: Documents | ObjectList,
    notes: Notes,
    *,
    plugins: KMSPlugins | None = None,
) -> GetResult:
    """Write what was asked for; the output is not ended when something was lost midway."""
    examiner, result = Examiner.of_cluster(source, request, plugins), GetResult()
    viewer = Viewer(examiner, reveal=request.reveal, omit_managed_fields=request.omit_managed_fields)
    found_names: set[tuple[str, str]] = set()
    revisions = ReadableRevisions(source, examiner)

    def take(found: Examination) -> None:
        listed = isinstance(output, ObjectList)
        shown = viewer.list(found) if listed else viewer.show(found)
        written = output.add(shown)
        result.seen += 1
        result.masked += shown.masked if written else 0
        broken = found.verdict.outcome in WRONG - {Outcome.UNDETERMINED}
        result.findings += broken
        result.undetermined += not broken and (found.verdict.outcome in WRONG or bool(shown.problem))
        if not listed:
            notes.of(shown, revisions, written=written)

    values = find(source, request, examiner, found_names)
    try:
        examine_all(examiner, paged(values), take, whole=True)
    except KeyboardInterrupt as exc:
        result.ended = EndedEarly.of(exc)
    except SourceError as exc:
        if not result.seen:
            raise
        result.problems.append(f"the source was lost midway: {exc.message}")
    cut = result.ended is not None or bool(result.problems)
    result.problems[:0] = source.problems
    if cut:
        return result
    asked = ((named.resource, name) for named in request.objects for name in named.names)
    result.missing = [one for one in dict.fromkeys(asked) if one not in found_names]
    if not result.seen and request.objects and not any(named.names for named in request.objects):
        result.empty = has_keys(source, request.layout)
    if result.seen or result.empty:
        output.end()
    return result


class Notes:
    """Says what is wrong with values, beside the output: one line each in a list, the way out for a single one."""

    def __init__(
        self, request: GetRequest, *, say: Callable[[str], None], say_next: Callable[[str, str], None]
    ) -> None:
        self._request, self._say, self._next = request, say, say_next
        self._count = 0
        self._stakes = Stakes(past=request.run.of_the_past)

    def of(self, shown: Shown, revisions: ReadableRevisions, *, written: bool) -> None:
        """Say what there is to say of a value."""
        found, request = shown.found, self._request
        key, verdict = display(found.stored.key), found.verdict
        if verdict.outcome in WRONG:
            self._stakes.add(found)
            cause = f" ({verdict.cause.value})" if verdict.cause is not None else ""
            told = message_of(found, secret=shown.secret and not request.reveal)
            place = "; not in the list" if request.many and not written else ""
            if written and shown.irreplaceable:
                place = "; its resourceVersion is no number, so no API server takes it"
            self._line(f"{key}: {verdict.outcome.value}{cause}: {told}{place}")
        elif shown.problem:
            self._line(f"{key}: {shown.problem}")
        elif verdict.outcome is Outcome.NOT_AN_OBJECT:
            self._line(f"{key}: no API object; it is bookkeeping, or outside {request.layout.prefix}")
        if request.many or verdict.outcome not in WRONG:
            return
        if shown.form is Form.SALVAGE:
            self._say("NOT THE OBJECT: this is what is left of it")
        for line in self._stakes.lines():
            self._say(line)
        way = first_way(ways_at_hand(found, request.run, revisions.of(found).revision))
        if way is not None:
            self._next(way.action, way.command.line(request.run))

    def end(self, result: GetResult, source: Source) -> None:
        """Say what the whole output lacks."""
        request = self._request
        if self._count > _MOST_LINES:
            self._say(f"and {self._count - _MOST_LINES} more: -o wide lists 100")
        lines = self._stakes.lines() if request.many else []
        for line in lines:
            self._say(line)
        if lines:
            self._next("see what each needs", scan(*request.types).line(request.run))
        for problem in result.problems:
            self._say(f"incomplete: {problem}")
        if result.masked:
            masked = counted(result.masked, "value")
            self._say(f"{masked} masked: do not pipe this into kubectl; --reveal shows them")
        if result.ended is not None:
            self._say(f"{result.ended.reason} before the end: what is shown is not everything")
        elif not result.seen:
            self.not_found(source)
        for resource, name in result.missing if result.seen else ():
            self._say(f"{resource} {name!r}: not found{self._where(resource)}")

    def not_found(self, source: Source) -> None:
        """Say that nothing was found, and why that may be."""
        request = self._request
        if source.problems:
            self._say("nothing was found, and not everything could be read")
            return
        if request.key is not None:
            self._say(f"nothing is stored under {display(request.key)}")
        for named in request.objects:
            what = f"{named.resource} {', '.join(map(repr, named.names))}: not found" if named.names else ""
            self._say((what or f"no {named.resource}") + self._where(named.resource))
        hint = why_missing(source, request.layout, request.key)
        if hint or (request.objects and not request.all_namespaces):
            self._next(hint or "-A looks in all namespaces", "")

    def _where(self, resource: str) -> str:
        if is_cluster_scoped(resource):
            return ""
        namespace = f" in namespace {self._request.namespace or DEFAULT_NAMESPACE}"
        return " in any namespace" if self._request.all_namespaces else namespace

    def _line(self, text: str) -> None:
        self._count += 1
        if self._count <= _MOST_LINES:
            self._say(text)


def record_reveal(log: Path, request: GetRequest, *, form: str, file: Path | None, etcd_user: str) -> Link:
    """Record that contents are about to be shown; only when this returns may they be.

    Raises:
        RemediationRefused: The log, or its directory, is not safe.
        AuditError: The record could not be made durable.
    """
    from etcdfix.remediation.audit.log import AuditLog  # noqa: PLC0415 - only with a log
    from etcdfix.remediation.audit.record import Operator, Record, RecordType, Subject, Verb  # noqa: PLC0415 - same

    if request.key is not None:
        directory, namespace, name, _ = request.layout.split(request.key)
        group, version, resource = directory.group, directory.version, directory.resource
    else:
        namespace = "" if request.all_namespaces else request.namespace or DEFAULT_NAMESPACE
        name = ",".join(name for named in request.objects for name in named.names)
        group, version, resource = "", "", ",".join(request.types)
        if len(request.types) == 1:
            resource, _, group = resource.partition(".")
    subject = Subject(
        key=request.key or b"",
        group=group,
        api_version=version,
        resource=resource,
        namespace=namespace,
        name=name,
    )
    detail = f"contents revealed, as {form}, from {f'file {file}' if file is not None else 'a live etcd'}"
    operator = Operator.of_this_process(etcd_user=etcd_user)
    with AuditLog.open(log, operator=operator) as opened:
        return opened.append(
            Record(
                type=RecordType.REVEAL, verb=Verb.REVEAL, operator=operator, subject=subject, detail=detail
            )
        )
