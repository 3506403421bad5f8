"""Show stored objects: which keys are meant, each examined once, each handed to an output.

Nothing is kept of an object once it is written; values that wait for a KMS plugin are put aside as in a scan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Final

import msgspec

from etcdfix.commands.getting.output import Output
from etcdfix.errors import ConfigurationError, EndedEarly, SourceError
from etcdfix.examine import Examiner, Reading
from etcdfix.examine_all import Examining
from etcdfix.model import Outcome, ReadableRevision, StoredValue
from etcdfix.readable_revision import ReadableRevisions
from etcdfix.report.objects import Shown, Viewer
from etcdfix.resource_words import builtin_word, require_resource
from etcdfix.sources.base import Source, has_keys
from etcdfix.storagekey import ResourcePrefix, word_bytes
from etcdfix.verdicts.examination import Examination

if TYPE_CHECKING:
    from pathlib import Path

    from etcdfix.encryption.kms.plugins import KMSPlugins
    from etcdfix.remediation.audit.record import Link

DEFAULT_NAMESPACE = "default"
_BROKEN: Final = {Outcome.DECRYPT_FAILURE, Outcome.DECODE_FAILURE, Outcome.INCONSISTENT}


class Named(msgspec.Struct, frozen=True):
    """Objects of one resource.

    Attributes:
        resource: Any word for it: ``secrets``, ``deploy``, ``deployments.apps``.
        names: Names of objects; none for all of them.
    """

    resource: str
    names: tuple[str, ...] = ()


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What to show: one key, or objects of resources.

    Attributes:
        key: Complete etcd key; None where resources are named.
        objects: Of which resources, in the order to show them.
        namespace: Of namespaced resources; None means ``default``.
        all_namespaces: Every namespace, also for named objects.
    """

    key: bytes | None = None
    objects: tuple[Named, ...] = ()
    namespace: str | None = None
    all_namespaces: bool = False

    @property
    def many(self) -> bool:
        """Whether a list is the answer, however many are in it."""
        if self.key is not None:
            return False
        return self.all_namespaces or len(self.objects) != 1 or len(self.objects[0].names) != 1

    @property
    def types(self) -> tuple[str, ...]:
        """Every resource that is named, as far as can be told without definitions."""
        return tuple(dict.fromkeys(builtin_word(named.resource) for named in self.objects))


class GetRequest(Reading, frozen=True, kw_only=True):
    """Everything that decides what is shown and how."""

    wanted: Wanted
    reveal: bool = False
    omit_managed_fields: bool = False


class GetResult(msgspec.Struct, kw_only=True):
    """What was shown.

    Attributes:
        seen: Keys that were found and examined.
        findings: How many cannot be read, or are inconsistent.
        undetermined: How many could not be decided, or could not be shown although they opened.
        missing: Resource and name of each object that was named and not found.
        empty: Resources were listed whole, and there is none, in an etcd that has keys of the API servers.
        problems: Why the source could not show everything.
        ended: What ended it early; None where nothing did.
    """

    seen: int = 0
    findings: int = 0
    undetermined: int = 0
    masked: int = 0
    missing: list[tuple[str, str]] = msgspec.field(default_factory=list)
    empty: bool = False
    problems: list[str] = msgspec.field(default_factory=list)
    ended: EndedEarly | None = None


Told = Callable[[Shown, bool, ReadableRevision | None], None]


def run_get(
    source: Source, request: GetRequest, output: Output, *, told: Told, plugins: KMSPlugins | None = None
) -> GetResult:
    """Show what was asked for.

    Args:
        source: Where the values are.
        request: What to show.
        output: Where it goes; not ended when something was lost midway.
        told: Called for each value, with whether the output shows anything of it, and with the earlier revision that
            still reads, which is looked for where one object is asked for.
        plugins: The KMS plugins to ask; None to ask none.

    Raises:
        ConfigurationError: The resource does not exist.
        SourceError: Nothing could be read.
    """
    examiner = Examiner.of_cluster(source, request, plugins)
    wanted, result = request.wanted, GetResult()
    viewer = Viewer(examiner, reveal=request.reveal, omit_managed_fields=request.omit_managed_fields)
    found_names: set[tuple[str, str]] = set()
    values = _values(source, request, examiner, found_names)

    def take(found: Examination) -> None:
        shown = viewer.show(found) if output.contents else viewer.list(found)
        written = output.write(shown)
        result.seen += 1
        result.masked += shown.masked if written else 0
        outcome = found.verdict.outcome
        result.findings += outcome in _BROKEN
        result.undetermined += outcome is Outcome.UNDETERMINED or (
            bool(shown.problem) and outcome not in _BROKEN
        )
        readable = None if wanted.many else ReadableRevisions(source, examiner).of(found).revision
        told(shown, written, readable)

    with Examining(examiner) as examining:
        try:
            for found in chain(examining.first(values), examining.drain()):
                take(found)
        except KeyboardInterrupt as exc:
            result.ended = EndedEarly.of(exc)
            examining.abort()
        except SourceError as exc:
            if not result.seen and not examining.waiting:
                raise
            result.problems.append(f"the source was lost midway: {exc.message}")
    cut = result.ended is not None or bool(result.problems)
    result.problems[:0] = source.problems
    if cut:
        return result
    asked = ((named.resource, name) for named in wanted.objects for name in named.names)
    result.missing = [one for one in dict.fromkeys(asked) if one not in found_names]
    if not result.seen and wanted.objects and not any(named.names for named in wanted.objects):
        result.empty = has_keys(source, request.layout)
    if result.seen or result.empty:
        output.end()
    return result


def record_reveal(log: Path, request: GetRequest, *, form: str, file: Path | None, etcd_user: str) -> Link:
    """Record that contents are about to be shown; only when this returns may they be.

    Raises:
        RemediationRefused: The log, or its directory, is not safe.
        AuditError: The record could not be made durable.
    """
    from etcdfix.remediation.audit.log import AuditLog  # noqa: PLC0415 - only with a log
    from etcdfix.remediation.audit.record import Entry, Operator, RecordType, Subject, Verb  # noqa: PLC0415 - same

    wanted, layout = request.wanted, request.layout
    if wanted.key is not None:
        directory, shared = layout.locate(wanted.key)
        where = layout.split(wanted.key, directory, shared, namespaced=directory.namespaced)
        subject = Subject(
            key=wanted.key, group=directory.group, api_version=directory.version, resource=directory.resource,
            namespace=where.namespace, name=where.name,
        )  # fmt: skip
    else:
        namespace = "" if wanted.all_namespaces else wanted.namespace or DEFAULT_NAMESPACE
        resource, _, group = wanted.types[0].partition(".") if len(wanted.types) == 1 else ("", "", "")
        subject = Subject(
            key=b"", group=group, api_version="", resource=resource or ",".join(wanted.types), namespace=namespace,
            name=",".join(name for named in wanted.objects for name in named.names),
        )  # fmt: skip
    read_from = f"file {file}" if file is not None else "a live etcd"
    detail = f"contents revealed, as {form}, from {read_from}"
    operator = Operator.of_this_process(etcd_user=etcd_user)
    with AuditLog.open(log, operator=operator) as opened:
        return opened.append(
            Entry(type=RecordType.REVEAL, verb=Verb.REVEAL, operator=operator, subject=subject, detail=detail)
        )


def read_raw(source: Source, request: GetRequest) -> bytes | None:
    """Return the stored bytes of the one value that was asked for, None where there is none.

    Raises:
        ConfigurationError: The resource does not exist, several objects were asked for, or the bytes are, or may be,
            the contents of a Secret in plain, and nobody asked to reveal them.
        SourceError: Nothing could be read.
    """
    if request.wanted.many:
        raise ConfigurationError(
            "raw bytes are those of one object", hint="name a KEY, or RESOURCE NAME -n NAMESPACE"
        )
    examiner = Examiner.of_cluster(source, request)
    for stored in _values(source, request, examiner, set()):
        found = examiner.examine(stored)
        sealed = request.reveal or stored.value.startswith(b"k8s:enc:")
        if not sealed and Viewer(examiner).may_hold_secret(found, stored.value):
            raise ConfigurationError(
                "the value is stored in plain, and is that of a Secret or may be one",
                hint="add --reveal if you want its bytes",
            )
        return stored.value
    return None


def _values(
    source: Source, request: GetRequest, examiner: Examiner, found: set[tuple[str, str]]
) -> Iterable[StoredValue]:
    """Return what is stored under the keys that are meant; ``found`` takes resource and name of each.

    Raises:
        ConfigurationError: A resource does not exist; before anything is read.
    """
    if request.wanted.key is not None:
        return filter(None, map(source.get, [request.wanted.key]))
    known = [*request.layout.directories(), *examiner.readers.custom_directories()]
    objects = request.wanted.objects
    places = [require_resource(named.resource, known, prefixes_count=False) for named in objects]
    return _objects(source, request, zip(objects, places, strict=True), found)


def _objects(
    source: Source,
    request: GetRequest,
    objects: Iterable[tuple[Named, Sequence[ResourcePrefix]]],
    found: set[tuple[str, str]],
) -> Iterator[StoredValue]:
    wanted, layout = request.wanted, request.layout
    for named, places in objects:
        names = {word_bytes(name): name for name in named.names}
        for directory in places:
            base = layout.directory_prefix(directory)
            if directory.namespaced is not False and not wanted.all_namespaces:
                base += word_bytes(wanted.namespace or DEFAULT_NAMESPACE) + b"/"
            one_by_one = bool(names) and not wanted.all_namespaces
            each = (source.get(base + name) for name in names) if one_by_one else source.current(base)
            for stored in filter(None, each):
                name = stored.key.rpartition(b"/")[2]
                if not names or name in names:
                    found.add((named.resource, names.get(name, "")))
                    yield stored
