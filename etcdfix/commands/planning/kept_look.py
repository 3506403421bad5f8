"""One look at everything, kept up to date by what etcd says was written since: for a run over many keys.

It implements :class:`~etcdfix.remediation.preflight.surroundings.Surroundings`: of each value it says what a fresh look
would say, not older than the reading of that value. What can be taken over from an event alone is: a value that reads
in the place of another, a value that is gone. Where an event may change what is said of *other* values, everything is
looked at anew, as for one key: another value that does not open, a key that opens what it did not, or no longer what
it did, near a value that fails; definitions and classes through which others are read. So is it after a compaction that
took what had not been told yet, once in so many seconds where values are behind KMS plugins, for what those answer is
no event of etcd. While a value that may be
behind a plugin does not open, and for whoever may not read all of etcd, each look is a fresh one.
"""

from __future__ import annotations

import time
from array import array
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Container
from typing import Final, NamedTuple

import msgspec

from etcdfix.closing import Closing
from etcdfix.errors import RefusedByRule, RevisionCompacted, SourceError, SourceUnreachable
from etcdfix.examine import Examiner
from etcdfix.examine_all import Progress, View, examine_all, look_last
from etcdfix.graph.builder import IndexBuilder
from etcdfix.graph.contents import LEARNED_PATHS
from etcdfix.graph.index import ImpactIndex
from etcdfix.maybe_newer import SimilarPlace, SimilarValues, similarity_of
from etcdfix.model import Outcome, StoredValue
from etcdfix.remediation.datastore import EtcdNow
from etcdfix.remediation.landmarks import LONG_LIVED, Landmarks, NewestMarks, read_newest
from etcdfix.remediation.preflight.cluster import Cluster
from etcdfix.remediation.preflight.members import KeyReading
from etcdfix.remediation.preflight.noencryption import encrypted, looks_enveloped
from etcdfix.remediation.preflight.similar_values import Alike, few_names, is_unread
from etcdfix.remediation.preflight.surroundings import FRESH, Around, See
from etcdfix.rules import Rule, refuse
from etcdfix.sources.etcd.client import EtcdClient
from etcdfix.sources.etcd.following import Following
from etcdfix.sources.live import LiveSource
from etcdfix.storagekey import API_SERVICE_PATH, CRD_PATH, StorageLayout
from etcdfix.verdicts.deletability import FAILED, IDENTITY
from etcdfix.verdicts.examination import Examination, KeyName
from etcdfix.verdicts.key_ledger import Counted, KeyLedger

_MOST_SECONDS_BEHIND_PLUGINS: Final = 30.0
_NOT_UNDER_KMS: Final = (b"k8s:enc:aescbc:", b"k8s:enc:aesgcm:", b"k8s:enc:secretbox:", b"k8s\x00", b"{")
"""What values start with that no KMS plugin has to do with; any other may be one whose prefix is damaged."""
_KEPT_OF_A_VALUE: Final = 8 << 10
_NOT_THERE: Final = 0
_MOST_LOOKS: Final = 3
_SETTLED: Final = frozenset({Outcome.READABLE, Outcome.INCONSISTENT, Outcome.NOT_AN_OBJECT})


_EVER: Final = (1 << 63) - 1

_Reach = tuple[KeyName, str]
"""An encryption key, and the directory of what it opens."""


class _Shape(NamedTuple):
    """What counts of a value; many share it."""

    counted: Counted | None = None
    place: tuple[str, str] | None = None
    reach: tuple[_Reach, ...] = ()
    similar: SimilarPlace | None = None
    resource: str = ""
    unread: bool = False


_NOTHING: Final = _Shape()


class KeptLook(Closing):
    """What stands around every value, kept up to date; close it.

    Attributes:
        looks: How often everything was looked at.

    Raises:
        SourceError: Not all of it could be read.
    """

    def __init__(
        self, cluster: Cluster, keys: Container[bytes], progress: Progress, say: Callable[[str], object]
    ) -> None:
        assert isinstance(cluster.source, LiveSource)  # nothing else is changed here
        self._source: LiveSource = cluster.source
        self._cluster = cluster
        # What is examined for one key of the run says nothing of the others.
        self._examiner: Examiner = cluster.examiner.apart()
        self._keys = keys
        self._progress = progress
        self._say = say
        self._follows: Following | None = None
        self._stale = "nothing was looked at yet"
        self._looked_at = 0.0
        self._touched = False
        self._changed_at = 0
        self.looks = 0
        prefix = self._examiner.layout.prefix_bytes
        self._prefix = prefix
        self._read_through = tuple(
            prefix + path.encode() + b"/" for path in (CRD_PATH, API_SERVICE_PATH, *LEARNED_PATHS)
        )
        self._long_lived = tuple(prefix + path.encode() + b"/" for path in LONG_LIVED)
        self.now = _FollowedNow(cluster.client, self)

    def close(self) -> None:
        """End the watch; a second call does nothing."""
        if self._follows is not None:
            self._follows.close()
            self._follows = None

    # -- what is asked of it

    def look(
        self,
        cluster: Cluster,
        reading: KeyReading,
        found: Examination,
        progress: Progress,
        *,
        see: See,
        graph: bool,
    ) -> Around:
        """Look at everything else, as it stands at the revision of the reading or later."""
        if not self._source.reads_all:
            self._source.move_to(reading.revision)
            return FRESH.look(cluster, reading, found, progress, see=see, graph=graph)
        self.catch_up(reading.revision)
        if cluster.no_encryption:
            self._refuse_enveloped(found.stored)
        if self._examiner.plugins is not None and any(
            map(_may_be_under_kms, (found, *self._unread.values()))
        ):
            # What plugins and their data keys did for values that are gone speaks for nothing any more.
            cluster.examiner.start_over_with_plugins()
            return FRESH.look(cluster, reading, found, progress, see=see, graph=graph)
        cluster.require_everything()
        for other in self._unread.values():
            see(other)
        return Around(self._alike(found), self._index if graph else None)

    def catch_up(self, revision: int) -> None:
        """Take in everything that was written up to a revision, which was read just now.

        Raises:
            RefusedByRule: etcd stands at an earlier revision than before: it is another one.
            SourceError: The watch broke, or not everything could be read.
        """
        before = max(self._changed_at, self._source.describe().revision)
        if revision < before:
            raise _put_back(revision, before)
        if not self._source.reads_all:
            self._source.move_to(revision)
            return
        age = time.monotonic() - self._looked_at
        if self._examiner.plugins is not None and age > _MOST_SECONDS_BEHIND_PLUGINS:
            self._stale = self._stale or "what KMS plugins answer may be another thing by now"
        if not self._stale:
            self._absorb_until(revision)
        for _ in range(_MOST_LOOKS):
            if not self._stale:
                break
            self._look_at_everything()
            self._absorb_until(self._source.describe().revision)
        if self._stale:
            raise SourceError(
                f"what is written to etcd cannot be kept up with: {self._stale}",
                hint="nothing was changed; try again at a quieter moment",
            )
        if self._touched:
            self._touched = False
            self._builder.refresh()
        self._source.move_to(max(revision, self._source.describe().revision))

    def note_change(self, revision: int) -> None:
        """Take note of the revision at which the run changed something.

        Raises:
            RefusedByRule: It is not later than that of the change before: it was made in another etcd.
        """
        if revision <= self._changed_at:
            raise _put_back(revision, self._changed_at)
        self._changed_at = revision

    def catch_up_now(self) -> bool:
        """Take in everything that was written up to now; say whether that is known event by event."""
        self.catch_up(self._source.reached_revision())
        return self._source.reads_all

    # -- one look

    def _look_at_everything(self) -> None:
        source, examiner = self._source, self._examiner
        if self.looks:
            self._say(f"everything is looked at again: {self._stale}")
        self.looks += 1
        revision = source.reached_revision()
        source.move_to(revision)
        if self._follows is None:  # the first look, or what was written was not told
            self.now.forget_landmarks()
            # Before the pass: a compaction meanwhile takes nothing from a watch that is there.
            self._follows = source.follow(revision + 1)
            source.learn_deletions(self._keys)
        examiner.learn_custom_resources(source)
        self._cluster.examiner.know_as(examiner)
        self._builder = IndexBuilder(examiner, source)
        self._index: ImpactIndex = self._builder.index
        self._ledger = KeyLedger()
        self._similar = SimilarValues(examiner)
        self._opened: Counter[tuple[str, str]] = Counter()
        self._reach: dict[_Reach, array[int]] = {}
        self._unread_names: Counter[str] = Counter()
        self._unread: dict[bytes, Examination] = {}
        self._enveloped: set[bytes] = set()
        self._count = 0
        self._shapes: list[_Shape] = [_NOTHING]
        self._shape_numbers: dict[_Shape, int] = {_NOTHING: _NOT_THERE}
        self._shape_of = array("I")
        self._mod_of = array("Q")

        def take(found: Examination, _view: View) -> None:
            self._add(found)

        examine_all(examiner, source.pages(self._prefix), take, progress=self._progress, whole=True)
        if self._cluster.no_encryption:
            self._enveloped.update(
                stored.key for stored in self._source.current(b"") if looks_enveloped(stored.value)
            )
        self._builder.finish(source.problems)
        self._looked_at = time.monotonic()
        self._stale = ""
        self._touched = False
        # A compaction may have moved the pass on: what was written since this revision is told all the same.
        self._from = revision

    def _add(self, found: Examination) -> None:
        self._builder.add(found)
        key = found.stored.key
        node = self._index.find(key)
        assert node is not None  # it was added, and lies below the storage prefix
        self._grow(len(self._index))
        shape = self._shape(found)
        number = self._shape_numbers.get(shape)
        if number is None:
            number = self._shape_numbers[shape] = len(self._shapes)
            self._shapes.append(shape)
        self._shape_of[node] = number
        self._mod_of[node] = found.stored.mod_revision
        self._count += 1
        self._tally(shape, found.stored.mod_revision, 1)
        if found.verdict.outcome not in _SETTLED or not found.opened:
            self._unread[key] = _without_most_of_its_value(found)

    def _shape(self, found: Examination) -> _Shape:
        opens = found.opened and found.verdict.outcome not in FAILED
        decoded = found.decoded
        shows = found.opened and decoded is not None and not decoded.empty and found.transformer != IDENTITY
        return _Shape(
            Counted.of(found),
            (found.rule, found.transformer) if opens else None,
            tuple((name, found.directory.path) for name in found.encryption_keys) if shows else (),
            self._similar.place_of(found),
            str(found.directory.group_resource),
            is_unread(found),
        )

    def _remove(self, key: bytes) -> None:
        node = self._index.find(key)
        if node is None or node >= len(self._shape_of) or self._shape_of[node] == _NOT_THERE:
            return
        shape, mod_revision = self._shapes[self._shape_of[node]], self._mod_of[node]
        self._builder.forget(key)
        self._examiner.readers.opened.forget(key)
        self._shape_of[node] = _NOT_THERE
        self._mod_of[node] = 0
        self._count -= 1
        self._tally(shape, mod_revision, -1)
        self._unread.pop(key, None)

    def _tally(self, shape: _Shape, mod_revision: int, times: int) -> None:
        if shape.counted is not None:
            change = self._ledger.add if times > 0 else self._ledger.remove
            change(shape.counted, mod_revision)
        if shape.place is not None:
            self._opened[shape.place] += times
        for reach in shape.reach:
            revisions = self._reach.get(reach)
            if revisions is None:
                revisions = self._reach[reach] = array("Q")
            if times > 0:
                insort(revisions, mod_revision)
            else:
                del revisions[bisect_left(revisions, mod_revision)]
        self._similar.count(shape.similar, times)
        if shape.unread:
            self._unread_names[shape.resource] += times

    def _grow(self, nodes: int) -> None:
        more = nodes - len(self._shape_of)
        if more > 0:
            self._shape_of.extend([0] * more)
            self._mod_of.extend([0] * more)

    # -- what is written meanwhile

    def _absorb_until(self, revision: int) -> None:
        if self._follows is None:
            self._stale = "the watch was ended"
            return
        try:
            for key, stored, at in self._follows.until(revision):
                self._absorb(key, stored, at)
        except (RevisionCompacted, SourceUnreachable) as exc:
            # What was not told is seen in a new look, from which a new watch goes on; or etcd is gone.
            self.close()
            self._stale = exc.message

    def _absorb(self, key: bytes, stored: StoredValue | None, at: int) -> None:
        if stored is None:
            self._source.note_deletion(key)
        if key.startswith(self._long_lived) and (stored is None or stored.version == 1):
            self.now.forget_landmarks()
        if self._cluster.no_encryption:
            self._enveloped.discard(key)
            if stored is not None and looks_enveloped(stored.value):
                self._enveloped.add(key)
        if self._stale or at <= self._from or not key.startswith(self._prefix):
            return
        if key.startswith(self._read_through):
            self._stale = f"what values are read through was changed, at revision {at}"
            return
        node = self._index.find(key)
        if node is not None and node < len(self._mod_of) and self._mod_of[node] >= at:
            return  # the look has seen it
        old = self._shape_at(node)
        self._touched = True
        found = self._examiner.examine(stored) if stored is not None else None
        if found is not None and found.verdict.outcome not in _SETTLED:
            self._stale = f"a value that does not read was written, at revision {at}"
            return
        reaches = {*old.reach, *(self._shape(found).reach if found is not None else ())}
        before = {reach: self._span(reach) for reach in reaches}
        self._remove(key)
        if found is not None:
            self._add(found)
        if any(self._matters(reach[0], before[reach], self._span(reach)) for reach in reaches):
            self._stale = (
                f"what opens under an encryption key of values that do not has changed, at revision {at}"
            )

    def _shape_at(self, node: int | None) -> _Shape:
        there = node is not None and node < len(self._shape_of)
        return self._shapes[self._shape_of[node]] if node is not None and there else _NOTHING

    def _span(self, reach: _Reach) -> tuple[int, int] | None:
        revisions = self._reach.get(reach)
        return (revisions[0], revisions[-1]) if revisions else None

    def _matters(self, name: KeyName, before: tuple[int, int] | None, after: tuple[int, int] | None) -> bool:
        """Say whether a value does not open of which more or less is known by when its key opened others."""
        if before is None or after is None:
            return before != after and self._ledger.has_unread(name, 0, _EVER)
        return any(
            old != new and self._ledger.has_unread(name, min(old, new), max(old, new))
            for old, new in zip(before, after, strict=True)
        )

    # -- what is said of one value

    def _alike(self, found: Examination) -> Alike:
        stored = found.stored
        node = self._index.find(stored.key)
        there = node is not None and node < len(self._mod_of) and self._mod_of[node] == stored.mod_revision
        # What was examined in between, earlier revisions among it, speaks for nothing that is stored now.
        self._examiner.readers.opened.hold(
            {reach: revisions for reach, revisions in self._reach.items() if revisions}
        )
        target = look_last(self._examiner, stored) if there else None
        if target is not None and self._shape(target) != self._shape_at(node):
            # A search that is made for every target may show more than the look over everything did.
            self._remove(stored.key)
            self._add(target)
            self._builder.refresh()
        own = self._shape_at(node) if there else _NOTHING
        unread = self._unread_names.copy()
        if own.unread:
            unread[own.resource] -= 1
        failing = own.counted.keys if own.counted is not None and not own.counted.opened else ()
        return Alike(
            target,
            {
                name: self._ledger.of(name, stored, target_counts=name in failing)
                for name in found.encryption_keys
            },
            self._opened[found.rule, found.transformer] > 0,
            self._similar.of(found, similarity_of(found, self._examiner)),
            few_names(unread),
            self._count,
        )

    def _refuse_enveloped(self, stored: StoredValue) -> None:
        if looks_enveloped(stored.value):
            raise encrypted(stored.key)
        if self._enveloped:
            raise encrypted(min(self._enveloped))


def _put_back(revision: int, before: int) -> RefusedByRule:
    return refuse(
        Rule.OTHER_CLUSTER,
        f"etcd stands at revision {revision}, and stood at {before} a moment ago: it was put back to an older "
        "state, or another one answers",
        hint="find out which etcd answers; then make a new plan",
    )


def _may_be_under_kms(found: Examination) -> bool:
    return not found.stored.value.startswith(_NOT_UNDER_KMS)


def _without_most_of_its_value(found: Examination) -> Examination:
    """Return an examination with as much of the value as anybody compares with others: there may be many."""
    stored = found.stored
    if len(stored.value) <= _KEPT_OF_A_VALUE:
        return found
    return msgspec.structs.replace(
        found, stored=msgspec.structs.replace(stored, value=stored.value[:_KEPT_OF_A_VALUE])
    )


class _FollowedNow(EtcdNow):
    """What stands in etcd now; landmarks are listed again only once one of their kind was made or deleted.

    Those of before a run bind it to its cluster at least as well as those of a moment ago. Every change begins with
    them, so that all its checks read the source as it stands then.
    """

    def __init__(self, client: EtcdClient, look: KeptLook) -> None:
        super().__init__(client)
        self._of = client
        self._look = look
        self._newest: NewestMarks | None = None

    def forget_landmarks(self) -> None:
        """List them again when they are asked for."""
        self._newest = None

    def landmarks(self, layout: StorageLayout, *, target: bytes) -> Landmarks:
        """Return what stays, as it stands now."""
        if not self._look.catch_up_now():
            return super().landmarks(layout, target=target)
        if self._newest is None:
            self._newest = read_newest(self._of, layout)
        return self._newest.landmarks(layout, target=target)
