"""One look at everything for a run over many keys, kept while nothing speaks against that.

It implements :class:`~etcdfix.remediation.surroundings.Surroundings`. Before each key of the run, etcd's
watch says what was written since the look. The look stays where a value is gone or put that says nothing of others:
our own deletions and the copies that are put back are such, and so is nearly all that a cluster writes. After anything
else everything is looked at anew: another value that does not open; one under a key that opened nothing of late; one
that had opened, is gone, and spoke for the key of values that fail; a definition through which others are read; what
etcd compacted before it was told. Behind KMS plugins, whose answers no event tells, and for whoever may not read all
of etcd, each look is a fresh one.

Who refers to whom, and how many values open, is kept up to date. What failed goes on counting among what fails although
this run has deleted it: a deletion never speaks for the next one. But which value failed last before a target is asked
of those that still stand. Each target itself is examined anew, and all that was written since may speak against it.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable
from typing import Final

import msgspec

from etcdfix.examine.all import Progress, examine_all, look_last
from etcdfix.examine.maybe_newer import SimilarValues, similarity_of
from etcdfix.examine.one import Examiner
from etcdfix.examine.verdicts.deletability import FAILED
from etcdfix.examine.verdicts.examination import Examination
from etcdfix.examine.verdicts.key_loss import KeyLedger
from etcdfix.graph.cluster import IndexBuilder
from etcdfix.graph.contents import LEARNED_PATHS
from etcdfix.model.errors import RefusedByRule, SourceError, SourceUnreachable
from etcdfix.model.model import Outcome, StoredValue
from etcdfix.model.providers import IDENTITY
from etcdfix.model.rules import Rule, refuse
from etcdfix.model.storagekey import API_SERVICE_PATH, CRD_PATH, StorageLayout
from etcdfix.remediation.cluster import Cluster, encrypted, looks_enveloped
from etcdfix.remediation.datastore import EtcdNow, KeyReading, Landmarks
from etcdfix.remediation.surroundings import FRESH, Around, SameKeyEvidence, See, is_unread, note_unread
from etcdfix.sources.errors import RevisionCompacted
from etcdfix.sources.etcd.client import EtcdClient
from etcdfix.sources.live import LiveSource

_KEPT_OF_A_VALUE: Final = 8 << 10
_MOST_LOOKS: Final = 3
_SETTLED: Final = frozenset({Outcome.READABLE, Outcome.INCONSISTENT, Outcome.NOT_AN_OBJECT})


class LiveClusterView:
    """What stands around every value; ``looks`` says how often everything was looked at."""

    def __init__(self, cluster: Cluster, progress: Progress, say: Callable[[str], object]) -> None:
        assert isinstance(cluster.source, LiveSource)  # nothing else is changed here
        self._source: LiveSource = cluster.source
        self._cluster, self._progress, self._say = cluster, progress, say
        # What is examined for one key of the run says nothing of the others.
        self._examiner: Examiner = cluster.examiner.independent_copy()
        self._stale, self._touched = "nothing was looked at yet", False
        self._seen_to = self._changed_at = self.looks = 0
        self.now = _NowOfRun(cluster.client, self)
        layout = self._examiner.layout
        self._read_through = tuple(
            layout.path(f"{path}/") for path in (CRD_PATH, API_SERVICE_PATH, *LEARNED_PATHS)
        )

    @property
    def _always_fresh(self) -> bool:
        return self._examiner.plugins is not None or not self._source.reads_all

    def look(
        self,
        cluster: Cluster,
        reading: KeyReading,
        found: Examination,
        progress: Progress,
        *,
        see: See,
    ) -> Around:
        """Look at everything else, as it stands at the revision of the reading or later."""
        self.catch_up(reading.revision)
        if self._always_fresh:
            # What plugins and their data keys did for values that are gone speaks for nothing any more.
            cluster.examiner.start_over_with_plugins()
            return FRESH.look(cluster, reading, found, progress, see=see)
        if cluster.no_encryption and looks_enveloped(found.stored.value):
            raise encrypted(found.stored.key)
        cluster.require_everything()
        for other in self._unread.values():
            see(other)
        return Around(self._alike(found), self._builder.index)

    def catch_up_now(self) -> None:
        """Take in everything that was written up to now, so that all checks of a key read it; as :meth:`catch_up`."""
        self.catch_up(self._source.reached_revision())
        if self._always_fresh:
            self._cluster.examiner.learn_custom_resources(self._source)

    def catch_up(self, revision: int) -> None:
        """Take in everything that was written up to a revision, which was read just now.

        Raises RefusedByRule or SourceError.
        """
        before = max(self._changed_at, self._source.describe().revision)
        if revision < before:
            raise _put_back(revision, before)
        if self._always_fresh:
            self._source.move_to(revision)
            return
        if not self._stale:
            self._absorb_until(revision)
        for _ in range(_MOST_LOOKS):
            if not self._stale:
                break
            self._look_at_everything()
            self._absorb_until(self._source.describe().revision)
        if self._stale:
            hint = "nothing was changed; try again at a quieter moment"
            raise SourceError(f"what is written to etcd cannot be kept up with: {self._stale}", hint=hint)
        if self._touched:
            self._touched = False
            self._builder.refresh()
        self._source.move_to(max(revision, self._source.describe().revision))

    def note_change(self, revision: int) -> None:
        """Take note of the revision at which the run changed something; raises RefusedByRule."""
        if revision <= self._changed_at:
            raise _put_back(revision, self._changed_at)
        self._changed_at = revision

    def _look_at_everything(self) -> None:
        source, examiner = self._source, self._examiner
        if self.looks:
            self._say(f"everything is looked at again: {self._stale}")
        self.looks += 1
        # A compaction may move the pass on: what was written since this revision is told all the same.
        self._seen_to = source.reached_revision()
        source.move_to(self._seen_to)
        examiner.learn_custom_resources(source)
        self._cluster.examiner.share_crds_of(examiner)
        self._builder, self._ledger = IndexBuilder(examiner, source), KeyLedger()
        self._similar, self._settled = SimilarValues(examiner), _Settled()
        self._opened: Counter[tuple[str, str]] = Counter()
        self._unread: dict[bytes, Examination] = {}
        self._keys = 0

        pages = source.pages(self._examiner.layout.path())
        examine_all(examiner, pages, self._add, progress=self._progress, whole=True)
        if self._cluster.no_encryption:
            for stored in source.current(b""):
                if looks_enveloped(stored.value):
                    raise encrypted(stored.key)
        self._builder.finish(source.problems)
        self._stale, self._touched = "", False

    def _add(self, found: Examination) -> None:
        self._keys += 1
        self._builder.add(found)
        self._ledger.add(found)
        self._similar.add(found)
        if found.opened and found.verdict.outcome not in FAILED:
            self._opened[found.rule, found.transformer] += 1
        if is_unread(found) or not found.opened:
            stored = found.stored  # of its value as much as anybody compares with others: there may be many
            if len(stored.value) > _KEPT_OF_A_VALUE:
                stored = msgspec.structs.replace(stored, value=stored.value[:_KEPT_OF_A_VALUE])
            self._unread[stored.key] = msgspec.structs.replace(found, stored=stored)
        if found.verdict.outcome in _SETTLED:
            node = self._builder.index.find(found.stored.key)
            assert node is not None  # it was added
            self._settled.put(node, found)

    def _take_out(self, key: bytes) -> bool:
        """Forget the value of a key; say whether it spoke for the encryption key of others."""
        node = self._builder.index.find(key)
        unread = self._unread.pop(key, None)
        like = self._settled.pop(node) if node is not None else None
        gone = like or unread
        if gone is None:
            return False
        self._keys -= 1
        self._builder.forget(key)
        self._ledger.take_out(gone)
        self._similar.take_out(gone)
        if like is None or not like.opened:
            return False
        self._opened[like.rule, like.transformer] -= 1
        return like.transformer != IDENTITY and any(map(self._ledger.fails, like.encryption_keys))

    def _absorb_until(self, revision: int) -> None:
        try:
            for key, stored, at in self._source.written(self._seen_to, revision):
                why = self._stale or self._absorb(key, stored)
                self._stale = why if not why or self._stale else f"{why}, at revision {at}"
                self._seen_to = max(self._seen_to, at)
        except (RevisionCompacted, SourceUnreachable) as exc:
            # What was not told is seen in a new look; or etcd is gone.
            self._stale = exc.message

    def _absorb(self, key: bytes, stored: StoredValue | None) -> str:
        """Take in what was written to a key; return why everything is to be looked at anew, "" where it is not."""
        if self._cluster.no_encryption and stored is not None and looks_enveloped(stored.value):
            return "an encrypted value was written"
        if not self._examiner.layout.holds(key):
            return ""
        if key.startswith(self._read_through):
            return "what values are read through was changed"
        self._touched = True
        if self._take_out(key):
            return "a value is gone that opened under the key of others that fail"
        if stored is None:
            return ""
        found = self._examiner.examine(stored)
        if found.verdict.outcome not in _SETTLED:
            return "a value that does not read was written"
        if found.transformer != IDENTITY and not all(map(self._ledger.opened_last, found.encryption_keys)):
            return "a value opens under an encryption key that opened none of late"
        self._add(found)
        return ""

    def _alike(self, found: Examination) -> SameKeyEvidence:
        stored = found.stored
        seen = self._unread.get(stored.key)
        unread: Counter[str] = Counter()
        for other in self._unread.values():
            if other is not seen and is_unread(other):
                note_unread(unread, other)
        there = seen is not None and seen.stored.mod_revision == stored.mod_revision
        failing = seen.encryption_keys if seen is not None and there else ()
        return SameKeyEvidence(
            look_last(self._examiner, stored) if there else None,
            {
                name: self._ledger.beside(name, stored, target_counts=name in failing)
                for name in found.encryption_keys
            },
            self._opened[found.rule, found.transformer] > 0,
            self._similar.of(found, similarity_of(found, self._examiner)),
            unread,
            self._keys,
        )


class _Settled:
    """Which values read, or are served: by node, one of those that count alike."""

    def __init__(self) -> None:
        self._kinds: dict[object, int] = {}
        self._firsts: list[Examination] = []
        self._kind_of = array("i")

    def put(self, node: int, found: Examination) -> None:
        decoded = found.decoded
        read = None if decoded is None else (decoded.gvk, decoded.encoding)
        verdict = (found.verdict.outcome, found.verdict.cause)
        like = (found.directory, verdict, found.encryption_keys, found.opened, read)
        if like not in self._kinds:
            self._kinds[like] = len(self._firsts)
            stored = msgspec.structs.replace(found.stored, value=b"")
            self._firsts.append(msgspec.structs.replace(found, stored=stored))
        self._kind_of.extend([-1] * (node + 1 - len(self._kind_of)))
        self._kind_of[node] = self._kinds[like]

    def pop(self, node: int) -> Examination | None:
        kind = self._kind_of[node] if node < len(self._kind_of) else -1
        if kind < 0:
            return None
        self._kind_of[node] = -1
        return self._firsts[kind]


class _NowOfRun(EtcdNow):
    """What stands in etcd now: every change begins with its landmarks, and all its checks read what stands since."""

    def __init__(self, client: EtcdClient, look: LiveClusterView) -> None:
        super().__init__(client)
        self._look = look

    def landmarks(self, layout: StorageLayout, *, target: bytes) -> Landmarks:
        """List the keys of objects that stay, then take in what was written up to now."""
        found = super().landmarks(layout, target=target)
        self._look.catch_up_now()
        return found


def _put_back(revision: int, before: int) -> RefusedByRule:
    why = (
        f"etcd stands at revision {revision}, not past {before}: it was put back to an older state, or is another "
        "one"
    )
    return refuse(Rule.OTHER_CLUSTER, why, hint="find out which etcd answers; then make a new plan")
