"""One pass over etcd: every examined value is looked into once, and its references become edges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from etcdfix.examine.one import Examiner
from etcdfix.examine.verdicts.examination import Examination
from etcdfix.graph.contents import ContentReader, GraphExtraction, ObjectExtract, setup_of
from etcdfix.graph.index import FOREGROUND_FINALIZER, ORPHAN_FINALIZER, ImpactIndex
from etcdfix.graph.kinds import Served, served_version
from etcdfix.graph.model import OwnerReference
from etcdfix.graph.tables import (
    FOREGROUND,
    NOT_SERVED,
    OPAQUE,
    ORPHANS,
    OTHER_VERSION,
    PERHAPS_SERVED,
    SEEN,
    SERVES_EMPTY,
    TERMINATING,
    UNDETERMINED,
    UNKNOWN_KIND,
    UNREADABLE,
    WRONG_SCOPE,
    Tables,
    encoded,
)
from etcdfix.graph.uses import Reference
from etcdfix.model.model import Outcome, ServerBehaviour
from etcdfix.model.storagekey import API_SERVICE_PATH, CRD_PATH, ResourcePrefix, StorageCodec, display
from etcdfix.sources.base import Source

_SERVED_FLAGS: Final = {Served.YES: 0, Served.NO: NOT_SERVED, Served.PERHAPS: PERHAPS_SERVED}
_LOST: Final = frozenset({Outcome.DECRYPT_FAILURE, Outcome.DECODE_FAILURE})
_MOST_EDGES_OF_AN_OBJECT: Final = 20_000
_MOST_FINALIZERS: Final = 64
_MOST_STRANGE_PREFIXES: Final = 1000
_MOST_HOLDERS_OF_A_UID: Final = 16


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
        self._extraction = GraphExtraction(self._reader)
        self._examiner = examiner
        self._custom: set[tuple[str, str]] = set()
        self._outside: Counter[str] = Counter()
        self._outside_bytes: Counter[str] = Counter()
        self._index = ImpactIndex(examiner.layout, self._reader.kinds)
        self._index.unreadable_crds = tuple(examiner.readers.unreadable_crds)
        self._shared: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._targets: dict[tuple[str, str], tuple[ResourcePrefix | None, int]] = {}

    def extraction_setup(self) -> bytes:
        """Return what :func:`etcdfix.graph.contents.make` needs."""
        return setup_of(self._reader)

    def add(self, found: Examination) -> None:
        """Take in one key that was examined just now.

        Raises:
            KMSPending: See :meth:`~etcdfix.graph.contents.ContentReader.read`.
        """
        self.absorb(found, self._extraction.extract(found))

    def absorb(self, found: Examination, extracted: ObjectExtract | None) -> None:
        """Take in one key, and what was extracted from its value; None where that cannot be looked into."""
        tables = self._index
        stored = found.stored
        key = stored.key
        relative = self._examiner.layout.below(key)
        if relative is None:
            self._count_outside(key, len(stored.value))
            return
        node = tables.number(relative)
        flags = SEEN
        directory = found.directory
        if directory.codec is StorageCodec.CUSTOM_RESOURCE:
            self._custom.add((directory.group, directory.resource))
        tables.sizes[node] = min(len(stored.value), 0xFFFF_FFFF)
        outcome = found.verdict.outcome
        if outcome in _LOST:
            flags |= UNREADABLE
            if found.verdict.apiserver is ServerBehaviour.SERVES_EMPTY:
                flags |= SERVES_EMPTY
        elif outcome is Outcome.UNDETERMINED:
            flags |= UNDETERMINED
        elif outcome is not Outcome.NOT_AN_OBJECT:
            if found.decoded is not None and found.decoded.uid:
                tables.uids[node] = found.decoded.uid
            flags |= self._version_flag(found)
            if extracted is not None:
                flags |= self._take(node, found, extracted)
                if not tables.uids[node]:
                    tables.uids[node] = extracted.uid
            else:
                flags |= OPAQUE
                self._index.opaque += 1
        tables.flags[node] = flags

    @property
    def index(self) -> ImpactIndex:
        """The index as it stands, not finished."""
        return self._index

    def forget(self, key: bytes) -> None:
        """Take back what was added of a key whose value is another one now, or gone; :meth:`refresh` the index then."""
        node = self._index.find(key)
        if node is None:
            return
        flags = self._index.flags[node]
        if flags & OPAQUE:
            self._index.opaque -= 1
        self._index.forget(node)
        for told in (
            self._index.namespaces,
            self._index.webhooks,
            self._index.endpoints,
            self._index.api_services,
        ):
            told.pop(node, None)
        if self._index.unavailable_apis:
            directory, _, name = self._index.place(node)
            if directory.path == API_SERVICE_PATH:
                self._index.unavailable_apis.pop(name, None)

    def refresh(self) -> None:
        """Make the index whole again after keys were added or forgotten."""
        self._mention_definitions()
        if self._index.withdraw_guesses():
            _guess_owners(self._index)
        self._index.forget_counts()

    def finish(self, problems: Iterable[str] = ()) -> ImpactIndex:
        """Return the index."""
        self._mention_definitions()
        _guess_owners(self._index)
        self._index.problems = list(problems)
        self._index.outside = {
            start: (count, self._outside_bytes[start]) for start, count in self._outside.items()
        }
        return self._index

    def _mention_definitions(self) -> None:
        """Let stored custom resources mention their CustomResourceDefinition, which may be gone."""
        for group, plural in self._custom - self._examiner.readers.custom_resources.keys():
            if group not in self._examiner.readers.aggregated_groups:
                self._index.number(encoded(f"{CRD_PATH}/{plural}.{group}"))

    def _count_outside(self, key: bytes, size: int) -> None:
        start = display(b"/".join(key.split(b"/")[:2]))[:200]
        if start not in self._outside and len(self._outside) >= _MOST_STRANGE_PREFIXES:
            self._index.outside_complete = False
            return
        self._outside[start] += 1
        self._outside_bytes[start] += size

    def _take(self, node: int, found: Examination, extracted: ObjectExtract) -> int:
        tables = self._index
        flags = extracted.flags
        finalizers = extracted.finalizers[:_MOST_FINALIZERS]
        if finalizers:
            tables.finalizer_lists[node] = self._shared.setdefault(finalizers, finalizers)
            flags |= ORPHANS if ORPHAN_FINALIZER in finalizers else 0
            flags |= FOREGROUND if FOREGROUND_FINALIZER in finalizers else 0
        if extracted.terminating_since:
            tables.since[node] = extracted.terminating_since
            flags |= TERMINATING
        if extracted.owners:
            self._take_owners(node, found, extracted.owners)
        if extracted.references:
            self._take_references(node, extracted.references)
        if extracted.type:
            tables.types[node] = tables.texts.number(extracted.type)
        if extracted.unprotected:
            tables.unprotected.add(node)
        if extracted.namespace is not None:
            self._index.namespaces[node] = extracted.namespace
        if extracted.webhooks:
            self._index.webhooks[node] = extracted.webhooks
        if extracted.service:
            apis = found.directory.path == API_SERVICE_PATH
            (self._index.api_services if apis else self._index.endpoints)[node] = extracted.service
        for claim in extracted.claims:
            self._index.claims[claim.namespace, claim.wanted] = claim
        if extracted.unavailable is not None:
            self._index.unavailable_apis[found.name] = extracted.unavailable
        return flags

    def _version_flag(self, found: Examination) -> int:
        """Return the flag of a custom resource that a webhook has to convert for whoever asks for it."""
        if found.directory.codec is not StorageCodec.CUSTOM_RESOURCE or found.decoded is None:
            return 0
        definition = self._reader.kinds.definition(found.directory)
        if definition is None or definition.conversion != "Webhook":
            return 0
        return OTHER_VERSION if found.decoded.gvk.version != definition.preferred_version else 0

    def _take_references(self, node: int, references: list[Reference]) -> None:
        index = tables = self._index
        if len(references) > _MOST_EDGES_OF_AN_OBJECT:
            index.truncated += 1
            references = references[:_MOST_EDGES_OF_AN_OBJECT]
        uses = tables.use_numbers
        for key, use, uid in references:
            number = uses.get(use)
            if number is None:
                number = uses[use] = len(tables.use_list)
                tables.use_list.append(use)
            tables.add_edge(node, tables.number(encoded(key)), number, uid)

    def _take_owners(self, node: int, found: Examination, owners: list[OwnerReference]) -> None:
        index = tables = self._index
        if len(owners) > _MOST_EDGES_OF_AN_OBJECT:
            index.truncated += 1
            del owners[_MOST_EDGES_OF_AN_OBJECT:]
        for owner in owners:
            place = (owner.api_version, owner.kind)
            if place in self._targets:
                directory, flags = self._targets[place]
            else:
                directory, flags = self._owner_place(*place)
                if len(self._targets) < _MOST_EDGES_OF_AN_OBJECT:
                    self._targets[place] = directory, flags
            if directory is None:
                target = UNKNOWN_KIND
            elif directory.namespaced and not found.namespace:
                target = WRONG_SCOPE
            else:
                middle = f"{found.namespace}/" if directory.namespaced else ""
                target = tables.number(encoded(f"{directory.path}/{middle}{owner.name}"))
            tables.add_owner(node, target, owner, flags)

    def _owner_place(self, api_version: str, kind: str) -> tuple[ResourcePrefix | None, int]:
        kinds = self._reader.kinds
        directory = kinds.of_owner(api_version, kind)
        if directory is None:
            return None, 0
        release = self._examiner.assumed_release
        minor = int(release.partition(".")[2]) if release else None
        served = served_version(directory, api_version, kinds.definition(directory), minor)
        return directory, _SERVED_FLAGS[served]


def _guess_owners(index: ImpactIndex) -> None:
    """Link owner references of unknown kinds to the objects that they mean, as far as uid or name tell.

    A kind is unknown where its CRD is gone or cannot be read. An API server that runs may serve it all the same, out
    of its memory, and any will once the CRD is back: the garbage collector then acts on these references.
    """
    unknown = [number for number, target in enumerate(index.owner_target) if target == UNKNOWN_KIND]
    if not unknown:
        return
    index.keep_unknown_owners(unknown)
    texts, words = index.texts.texts, index.owner_texts
    holders = _holders(index, {encoded(texts[words[4 * number]]) for number in unknown} - {b""})
    last: tuple[object, ...] = ()
    target = -1
    for number in unknown:  # in the order of their uids by now: replicas come one after the other
        dependent = index.owner_dependent[number]
        stated = words[4 * number : 4 * number + 4]
        same = (stated, index.keys[dependent].rpartition(b"/")[0])
        if same != last:
            last = same
            uid, api_version, kind, name = (texts[text] for text in stated)
            among = holders.get(encoded(uid)) or _unidentified(
                index, api_version, kind, index.place(dependent)[1], name
            )
            target = next((node for node in among if index.may_own(node, dependent, name)), -1)
        if target >= 0:
            index.guess_owner(number, target)


def _holders(tables: Tables, wanted: set[bytes]) -> dict[bytes, tuple[int, ...]]:
    holders: dict[bytes, tuple[int, ...]] = {}
    for node, uid in enumerate(tables.uids):
        if uid in wanted:
            others = holders.get(uid, ())
            if len(others) < _MOST_HOLDERS_OF_A_UID:
                holders[uid] = (*others, node)
    return holders


def _unidentified(tables: Tables, api_version: str, kind: str, namespace: str, name: str) -> Iterator[int]:
    """Yield the objects of that group, kind and name whose uid is not known, since they cannot be read.

    Resources are called as ``UnsafeGuessKindToResource`` of apimachinery has it.
    """
    group, word = api_version.rpartition("/")[0], kind.lower()
    plural = f"{word[:-1]}ies" if word.endswith("y") else f"{word}es" if word.endswith("s") else f"{word}s"
    for middle in (f"{namespace}/", "") if namespace else ("",):
        node = tables.numbers.get(encoded(f"{group}/{plural}/{middle}{name}"), -1)
        if "." in group and node >= 0 and tables.flags[node] & SEEN and not tables.uids[node]:
            yield node
