"""Show stored objects: which keys were meant, each examined once, each handed to a writer.

Nothing is kept of an object once it is written; values that wait for a KMS plugin are put aside as in a scan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from etcdfix.errors import ConfigurationError, EndedEarly, SourceError
from etcdfix.examine import Examiner, Reading
from etcdfix.examine_all import Examining
from etcdfix.model import Outcome, StoredValue
from etcdfix.readable_revision import ReadableRevisions
from etcdfix.report.printers.objects import Form, Shown, Viewer
from etcdfix.report.printers.writers import Writer
from etcdfix.resource_words import builtin_word, find_resources, require_resource
from etcdfix.sources.base import Source, has_keys
from etcdfix.storagekey import ResourcePrefix, StorageLayout, word_bytes
from etcdfix.verdicts.examination import Examination

if TYPE_CHECKING:
    from pathlib import Path

    from etcdfix.encryption.kms.plugins import KMSPlugins
    from etcdfix.remediation.audit.record import Link

DEFAULT_NAMESPACE = "default"
# Directories of keys that look like resources, with a key that may be there.
_BOOKKEEPING: Final = {
    "ranges": "ranges/serviceips",
    "masterleases": "masterleases/ADDRESS",
    "peerserverleases": "peerserverleases/NAME",
}


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
        namespace: Of namespaced resources; None where none was given, which means ``default``.
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
    """Everything that decides what is shown and how.

    Attributes:
        wanted: Key or resource.
        reveal: Show the contents of Secrets.
        omit_managed_fields: Leave ``metadata.managedFields`` out.
    """

    wanted: Wanted
    reveal: bool = False
    omit_managed_fields: bool = False


class GetResult(msgspec.Struct, kw_only=True):
    """What came of it.

    Attributes:
        seen: Keys that were found and examined.
        findings: How many cannot be read, or are inconsistent.
        undetermined: How many could not be decided, or could not be shown although they opened.
        masked: Values of Secrets that were masked.
        missing: What was asked for by name and not found: resource and name, in that order.
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


class RawValue(msgspec.Struct, frozen=True):
    """The bytes of one value; its ``repr`` shows none of them.

    Attributes:
        data: The bytes.
        secret: Contents of a Secret stand, or may stand, in them in plain.
    """

    data: bytes
    secret: bool

    def __repr__(self) -> str:
        return f"RawValue(secret={self.secret!r})"


def run_get(
    source: Source,
    request: GetRequest,
    writer: Writer,
    *,
    told: Callable[[Shown, bool], None],
    plugins: KMSPlugins | None = None,
) -> GetResult:
    """Show what was asked for.

    Args:
        source: Where the values are.
        request: What to show.
        writer: Where it goes; not ended when something was lost midway.
        told: Called for each value with the writer's word on whether it shows anything of it.
        plugins: The KMS plugins to ask; None to ask none.

    Raises:
        ConfigurationError: The resource does not exist.
        SourceError: Nothing could be read.
    """
    examiner = Examiner.of_cluster(source, request, plugins)
    wanted = request.wanted
    chosen = _Chosen(request.layout, wanted, _directories(examiner, request))
    viewer = Viewer(examiner, reveal=request.reveal, omit_managed_fields=request.omit_managed_fields)
    result = GetResult()

    def values() -> Iterator[StoredValue]:
        for stored in chosen.values(source):
            writer.comes(stored.key)
            yield stored

    def take(found: Examination) -> None:
        shown = viewer.show(found) if writer.contents else viewer.list(found, ages=writer.ages)
        written = writer.write(shown)
        if not wanted.many:
            readable = ReadableRevisions(source, examiner).of(found).revision
            shown = msgspec.structs.replace(shown, readable=readable)
        _count(result, shown, written=written)
        told(shown, written)

    with Examining(examiner) as examining:
        try:
            for found in examining.first(values()):
                take(found)
            for found in examining.drain():
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
    result.missing = chosen.missing if not cut else []
    if not cut and not result.seen and wanted.objects and not any(named.names for named in wanted.objects):
        result.empty = has_keys(source, request.layout)
    if (result.seen or result.empty) and not cut:
        writer.end()
    return result


def record_reveal(log: Path, request: GetRequest, *, form: str, file: Path | None, etcd_user: str) -> Link:
    """Record that contents are about to be shown; only when this returns may they be.

    Args:
        log: The audit log.
        request: What is shown.
        form: In which form.
        file: It is read from; None for a live etcd.
        etcd_user: "" for none.

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
    operator = Operator.of_this_process(etcd_user=etcd_user)
    with AuditLog.open(log, operator=operator) as opened:
        return opened.append(
            Entry(
                type=RecordType.REVEAL,
                verb=Verb.REVEAL,
                operator=operator,
                subject=subject,
                detail=f"contents revealed, as {form}, from {read_from}",
            )
        )


def read_raw(source: Source, request: GetRequest) -> RawValue | None:
    """Return the stored bytes of the one value that was asked for, None where there is none.

    Args:
        source: Where the value is.
        request: Names one object.

    Raises:
        ConfigurationError: The resource does not exist, or several objects were asked for.
        SourceError: Nothing could be read.
    """
    wanted = request.wanted
    if wanted.many:
        raise ConfigurationError(
            "raw bytes are those of one object", hint="name a KEY, or RESOURCE NAME -n NAMESPACE"
        )
    examiner = Examiner.of_cluster(source, request)
    chosen = _Chosen(request.layout, wanted, _directories(examiner, request))
    for stored in chosen.values(source):
        plain = not stored.value.startswith(b"k8s:enc:")
        found = examiner.examine(stored)
        return RawValue(stored.value, plain and Viewer(examiner).may_hold_secret(found, stored.value))
    return None


def _directories(examiner: Examiner, request: GetRequest) -> list[list[ResourcePrefix]]:
    """Return the directories of each resource that is named."""
    if request.wanted.key is not None:
        return []
    custom = examiner.readers.custom_directories()
    known = [*request.layout.directories(), *custom]
    found = []
    for named in request.wanted.objects:
        if named.resource in _BOOKKEEPING and not find_resources(named.resource, custom):
            key = f"{request.layout.prefix.rstrip('/')}/{_BOOKKEEPING[named.resource]}"
            raise ConfigurationError(
                f"{named.resource} are bookkeeping of the API servers, and no resource",
                hint=f"name a key: etcdfix get {key}; etcdfix scan {key.rpartition('/')[0]} lists them",
            )
        found.append(require_resource(named.resource, known, prefixes_count=False))
    return found


def _count(result: GetResult, shown: Shown, *, written: bool) -> None:
    outcome = shown.found.verdict.outcome
    result.seen += 1
    if written:
        result.masked += shown.masked
    if outcome in {Outcome.DECRYPT_FAILURE, Outcome.DECODE_FAILURE, Outcome.INCONSISTENT}:
        result.findings += 1
    elif outcome is Outcome.UNDETERMINED or shown.form is Form.NOTHING:
        result.undetermined += 1


class _Chosen:
    """The keys that were meant, and the names that were not found; read :attr:`missing` afterwards."""

    def __init__(
        self, layout: StorageLayout, wanted: Wanted, directories: Sequence[Sequence[ResourcePrefix]]
    ) -> None:
        self._layout = layout
        self._wanted = wanted
        self._directories = directories
        self._found: set[tuple[str, str]] = set()

    @property
    def missing(self) -> list[tuple[str, str]]:
        """Resources and names that no key has."""
        asked = ((named.resource, name) for named in self._wanted.objects for name in named.names)
        return [one for one in dict.fromkeys(asked) if one not in self._found]

    def values(self, source: Source) -> Iterator[StoredValue]:
        """Yield what is stored under them."""
        wanted = self._wanted
        if wanted.key is not None:
            stored = source.get(wanted.key)
            if stored is not None:
                yield stored
            return
        for named, directories in zip(wanted.objects, self._directories, strict=True):
            for directory in directories:
                base = self._layout.directory_prefix(directory)
                if directory.namespaced is not False and not wanted.all_namespaces:
                    base += word_bytes(wanted.namespace or DEFAULT_NAMESPACE) + b"/"
                if named.names and not wanted.all_namespaces:
                    yield from self._named(source, base, named)
                else:
                    yield from self._listed(source, base, named)

    def _named(self, source: Source, base: bytes, named: Named) -> Iterator[StoredValue]:
        for name in dict.fromkeys(named.names):
            stored = source.get(base + word_bytes(name))
            if stored is not None:
                self._found.add((named.resource, name))
                yield stored

    def _listed(self, source: Source, base: bytes, named: Named) -> Iterator[StoredValue]:
        names = {word_bytes(name): name for name in named.names}
        for stored in source.current(base):
            name = stored.key.rpartition(b"/")[2]
            if name in names:
                self._found.add((named.resource, names[name]))
            if not names or name in names:
                yield stored
