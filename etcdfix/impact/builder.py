"""One pass over etcd: every examined value is looked into once, and its references become edges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from etcdfix.impact.contents import ContentReader, Contents
from etcdfix.impact.fields import Plain
from etcdfix.impact.index import (
    FOREGROUND_FINALIZER,
    ORPHAN_FINALIZER,
    Condition,
    ImpactIndex,
    NamespaceDetails,
)
from etcdfix.impact.references import OwnerReference, Reference
from etcdfix.impact.tables import (
    FINISHED,
    FOREGROUND,
    OPAQUE,
    ORPHANS,
    SEEN,
    TERMINATING,
    UNDETERMINED,
    UNKNOWN_KIND,
    UNREADABLE,
    WRONG_SCOPE,
    Tables,
)
from etcdfix.model import Outcome
from etcdfix.pipeline import Examiner
from etcdfix.sources.base import Source
from etcdfix.storagekey import Directory, display
from etcdfix.verdicts.examination import Examination

SKIP_PROTECTION: Final = "secret.kubernetes.io/skip-secret-protection"
"""KEP-2639's annotation; ``yes`` opts a Secret out of protection."""

_LOST: Final = frozenset({Outcome.DECRYPT_FAILURE, Outcome.DECODE_FAILURE})
_FINISHED_PHASES: Final = frozenset({"Succeeded", "Failed"})
_MOST_EDGES_OF_AN_OBJECT: Final = 20_000
_MOST_FINALIZERS: Final = 64
_MOST_STRANGE_PREFIXES: Final = 1000
_LONGEST_MESSAGE: Final = 4096
_MOST_CONDITIONS: Final = 32


class IndexBuilder:
    """Builds an index out of examinations, in whatever order they come.

    Args:
        examiner: The one that makes the examinations; it must have learned the CRDs.
        source: Where to read, ahead of everything, the classes that others refer through.

    Raises:
        SourceError: The source cannot be read.
    """

    def __init__(self, examiner: Examiner, source: Source) -> None:
        self._reader = ContentReader(examiner)
        self._reader.learn(source)
        self._examiner = examiner
        examiner.remembers = True  # every value is looked into right after it was examined
        self._prefix = examiner.layout.prefix_bytes
        self._outside: Counter[str] = Counter()
        self._outside_bytes: Counter[str] = Counter()
        self._tables = Tables()
        self._index = ImpactIndex(examiner.layout, self._reader.kinds, self._tables)
        self._index.unreadable_crds = tuple(examiner.unreadable_crds)
        self._shared: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._targets: dict[tuple[str, str], Directory | None] = {}

    def add(self, found: Examination) -> None:
        """Take in one key.

        Raises:
            KMSPending: See :meth:`~etcdfix.impact.contents.ContentReader.read`.
        """
        tables = self._tables
        stored = found.stored
        key = stored.key
        if not key.startswith(self._prefix):
            self._count_outside(key, len(stored.value))
            return
        node = tables.number(key[len(self._prefix) :])
        flags = SEEN
        tables.sizes[node] = min(len(stored.value), 0xFFFF_FFFF)
        outcome = found.verdict.outcome
        if outcome in _LOST:
            flags |= UNREADABLE
        elif outcome is Outcome.UNDETERMINED:
            flags |= UNDETERMINED
        elif outcome is not Outcome.NOT_AN_OBJECT:
            if found.decoded is not None and found.decoded.uid:
                tables.uids[node] = found.decoded.uid
            contents = self._reader.read(found)
            flags |= self._take(node, found, contents) if contents is not None else OPAQUE
        tables.flags[node] = flags

    def finish(self, problems: Iterable[str] = ()) -> ImpactIndex:
        """Return the index.

        Args:
            problems: Why what was added is not everything.
        """
        self._examiner.remembers = False
        self._index.problems = list(problems)
        self._index.outside = {
            start: (count, self._outside_bytes[start]) for start, count in self._outside.items()
        }
        return self._index

    def _count_outside(self, key: bytes, size: int) -> None:
        start = display(b"/".join(key.split(b"/")[:2]))[:200]
        if start not in self._outside and len(self._outside) >= _MOST_STRANGE_PREFIXES:
            self._index.outside_complete = False
            return
        self._outside[start] += 1
        self._outside_bytes[start] += size

    def _take(self, node: int, found: Examination, contents: Contents) -> int:
        tables = self._tables
        flags = 0
        finalizers = contents.finalizers[:_MOST_FINALIZERS]
        if finalizers:
            tables.finalizers[node] = self._shared.setdefault(finalizers, finalizers)
            flags |= ORPHANS if ORPHAN_FINALIZER in finalizers else 0
            flags |= FOREGROUND if FOREGROUND_FINALIZER in finalizers else 0
        if contents.terminating_since:
            tables.since[node] = contents.terminating_since
            flags |= TERMINATING
        if contents.owners:
            self._take_owners(node, found, contents.owners)
        if contents.references:
            self._take_references(node, contents.references)
        shared = contents.shared
        if shared is not None:
            if shared.number < 0:
                shared.number = tables.add_bundle()
                self._take_references(-1 - shared.number, shared.references)
            tables.join_bundle(node, shared.number)
        directory = found.directory
        if not directory.group:
            flags |= self._take_core(node, directory.kind, contents.plain)
        elif directory.kind == "APIService":
            self._take_api_service(found.name, contents.plain)
        return flags

    def _take_core(self, node: int, kind: str, plain: Plain) -> int:
        index, tables = self._index, self._tables
        if kind == "Secret":
            type_ = plain.get("type")
            if type(type_) is str:
                tables.types[node] = tables.texts.number(type_[:200])
            metadata = plain.get("metadata")
            annotations = metadata.get("annotations") if type(metadata) is dict else None
            if type(annotations) is dict and annotations.get(SKIP_PROTECTION) == "yes":
                tables.unprotected.add(node)
        elif kind == "Pod":
            status = plain.get("status")
            if type(status) is dict and status.get("phase") in _FINISHED_PHASES:
                return FINISHED
        elif kind == "Namespace":
            index.namespaces[node] = _namespace_details(plain)
        return 0

    def _take_api_service(self, name: str, plain: Plain) -> None:
        status = plain.get("status")
        for condition in _conditions(status.get("conditions") if type(status) is dict else None):
            if condition.type == "Available" and condition.status != "True":
                self._index.unavailable_apis[name] = condition.reason or condition.message

    def _take_references(self, node: int, references: list[Reference]) -> None:
        index, tables = self._index, self._tables
        if len(references) > 1:
            references = list(dict.fromkeys(references))
            if len(references) > _MOST_EDGES_OF_AN_OBJECT:
                index.truncated += 1
                del references[_MOST_EDGES_OF_AN_OBJECT:]
        uses = tables.uses
        for key, use, uid in references:
            number = uses.get(use)
            if number is None:
                number = uses[use] = len(tables.use_list)
                tables.use_list.append(use)
            tables.add_edge(node, tables.number(_bytes(key)), number, uid)

    def _take_owners(self, node: int, found: Examination, owners: list[OwnerReference]) -> None:
        index, tables = self._index, self._tables
        if len(owners) > _MOST_EDGES_OF_AN_OBJECT:
            index.truncated += 1
            del owners[_MOST_EDGES_OF_AN_OBJECT:]
        for owner in owners:
            place = (owner.api_version, owner.kind)
            if place in self._targets:
                directory = self._targets[place]
            else:
                directory = self._reader.kinds.of_api_version(*place)
                if len(self._targets) < _MOST_EDGES_OF_AN_OBJECT:
                    self._targets[place] = directory
            if directory is None:
                target = UNKNOWN_KIND
            elif directory.namespaced and not found.namespace:
                target = WRONG_SCOPE
            else:
                middle = f"{found.namespace}/" if directory.namespaced else ""
                target = tables.number(_bytes(f"{directory.path}/{middle}{owner.name}"))
            tables.add_owner(node, target, owner)


def build_index(source: Source, examiner: Examiner) -> ImpactIndex:
    """Examine everything in a source and index it.

    Where KMS plugins are slow, feed an :class:`IndexBuilder` from ``etcdfix.deferred`` instead.

    Args:
        source: Where the values are.
        examiner: It must have learned the CRDs.

    Raises:
        SourceError: The source cannot be read.
        KMSPending: A plugin that may defer has not answered yet.
    """
    builder = IndexBuilder(examiner, source)
    add, examine = builder.add, examiner.examine
    for stored in source.current(b""):
        add(examine(stored))
    return builder.finish(source.problems)


def _namespace_details(plain: Plain) -> NamespaceDetails:
    spec, status = plain.get("spec"), plain.get("status")
    spec = spec if type(spec) is dict else {}
    status = status if type(status) is dict else {}
    finalizers = spec.get("finalizers")
    phase = status.get("phase")
    return NamespaceDetails(
        phase if type(phase) is str else "",
        tuple(f for f in finalizers if type(f) is str) if type(finalizers) is list else (),
        _conditions(status.get("conditions")),
    )


def _conditions(value: object) -> tuple[Condition, ...]:
    if type(value) is not list:
        return ()
    found = []
    for entry in value[:_MOST_CONDITIONS]:
        if type(entry) is dict:
            texts = (entry.get(n) for n in ("type", "status", "reason", "message", "lastTransitionTime"))
            found.append(Condition(*(text[:_LONGEST_MESSAGE] if type(text) is str else "" for text in texts)))
    return tuple(found)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")
