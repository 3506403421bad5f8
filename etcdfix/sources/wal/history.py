"""What a log did to each key, and how sure that is. ``docs/formats/wal.md`` has the reasons."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from etcdfix.model.closing import Closing
from etcdfix.model.model import Confidence, StoredValue
from etcdfix.sources.base import Source
from etcdfix.sources.wal.comparison import Claim, Comparison
from etcdfix.sources.wal.entries import Run, WriteAheadLog
from etcdfix.sources.wal.model import LoggedWrite, WriteKind
from etcdfix.sources.wal.replay import Base
from etcdfix.sources.wal.requests import in_range
from etcdfix.sources.wal.trace import (
    CHANGED,
    FALLBACK,
    KEPT_LEASE,
    REPLAYED,
    TAKEN_ALONG,
    KeyRecord,
    RunTrace,
    Trace,
    taken_along,
)
from etcdfix.text.words import counted
from etcdfix.wire import raft

_NOT_REPLAYED = "the log was not replayed from a known state up to it"
_NOT_ITS_HISTORY = "nothing that is stored shows that the log is of this history up to there"


class LogHistory(Closing):
    """What a log did to each key.

    Args:
        log: Not closed here.
        present: What is stored now: a live etcd, or a later file. The newest writes of the log are compared with it;
            None leaves everything at most ``likely``.
        others: Database files of the same history, as the ``snap/db`` beside, or older snapshots. Each may be the base
            of a replay: where its ``consistent_index`` lies in the log. A log that begins with the cluster is replayed
            from the empty store.
        reads: Says whether a stored value can be read: one that cannot may have been changed on disk.
        reached: To which revision the live etcd had come after the log was opened; 0 for a file, which may be older
            than the log.

    Attributes:
        agreement: Whether it is of the same history as what is stored now. Of another one nothing is given.
        replayed: From where it was replayed, one clause; "" where there was no base, so that nothing is certain.
        overrun: It made revisions to which the live etcd has not come, a clause; "" where nothing says so. What made
            them is ``possible``, however the log was replayed.
        problems: Why what is given is not everything, one sentence each.

    Raises:
        SourceError: A source, or the log, cannot be read.
    """

    def __init__(
        self,
        log: WriteAheadLog,
        present: Source | None,
        others: Sequence[Source] = (),
        *,
        reads: Callable[[StoredValue], bool] = lambda _: True,
        reached: int = 0,
    ) -> None:
        self._log, self._present, self._reads, self._reached = log, present, reads, reached
        self._stores = [source for source in (present, *others) if source is not None]
        self.problems: list[str] = []
        bases = self._bases()
        self._trace = Trace(log, bases)
        try:
            compared = self._compare()
            wrong = any(run.replay is not None and run.replay.wrong for run in self._trace.runs)
            if bases and (compared.contradicted or wrong):
                self.problems.append(
                    "replaying the log does not lead to what is stored now: the state that it began with is of another"
                    " history, or etcd refused requests for a reason that is not in the log; nothing of it is certain"
                )
                self._trace.close()
                self._trace = Trace(log, {})
                compared = self._compare()
            self._compared, self.agreement = compared, compared.agreement
            known_now = self._stores if present is None else [present]
            self._newest_stored = max((store.describe().revision for store in known_now), default=0)
        except BaseException:
            self._trace.close()
            raise
        runs = [run for run in self._trace.runs if run.base is not None and run.end > run.begin]
        self.replayed = "; ".join(run.base.name for run in runs if run.base is not None)
        self._certain = {run.run.first: self._certain_of(run) for run in runs}
        self.problems += [f"nothing after it is certain: {run.stopped}" for run in runs if run.stopped]
        if self._trace.lost_ranges:
            self.problems.append(f"{counted(self._trace.lost_ranges, 'range deletion')} are left out")
        changed = [(run, run.last_changed(log.committed)) for run in self._trace.runs]
        made = max((run.revision_at(entry) for run, entry in changed if entry), default=0)
        self.overrun = self._overrun(made)

    def close(self) -> None:
        """Let go of temporary files."""
        self._trace.close()

    def _compare(self) -> Comparison:
        return Comparison(self._trace, self._log.committed, self._stores, self._present, self._reads)

    # --- what it can be replayed from

    def _bases(self) -> dict[int, Base]:
        """Return what each run can be replayed from: the earliest state that lies in it."""
        files = [base for base in map(Base.of, self._stores) if base is not None]
        files.sort(key=lambda base: base.applied.entry)
        found: dict[int, Base] = {}
        for run in self._log.runs:
            lying = (base for base in files if run.first - 1 <= base.applied.entry < run.last)
            base = Base() if self._begins_empty(run) else next(filter(self._same_term, lying), None)
            if base is not None:
                found[run.first] = base
        return found

    def _same_term(self, base: Base) -> bool:
        place = self._log.place_of(base.applied.entry)
        return None in {place, base.applied.term} or self._log.entry(place or 0)[0].term == base.applied.term

    def _begins_empty(self, run: Run) -> bool:
        """Say whether a run begins with the store itself.

        A restored snapshot begins a log at 1 too, and names a snapshot (``etcdutl snapshot restore``) at the last of
        its changes of membership.
        """
        if run.first != 1:
            return False
        before = 0
        for entry, _ in self._log.entries(run):
            if entry.type == raft.NORMAL and entry.data_at < entry.data_end:
                break
            before = entry.at
        return not any(0 < snapshot <= before for snapshot in self._log.snapshots)

    # --- how sure a write is

    def _overrun(self, made: int) -> str:
        """Say that a revision is one to which the live etcd has not come; "" where it has."""
        if not self._reached or made <= self._reached:
            return ""
        return (
            f"it made revision {made}, and this etcd has come to {self._reached} only: it was restored from an older "
            "state, or the log is of another one"
        )

    def _certain_of(self, trace: RunTrace) -> bytearray:
        """Mark the entries of a run for which the replay and independent witnesses agree.

        Between two witnessed entries the revision grew by a known number. Where each entry between asked for a change
        and by the replay made one, none can have been refused: etcd would be behind. Where the replay itself refused
        one, the two could have been swapped for a reason unknown, so only what is witnessed itself is certain.
        """
        certain = bytearray(len(trace.run.places))
        if not self.agreement.same:
            return certain
        begin, clean = trace.begin, True
        for place in range(trace.begin, trace.end):
            clean = clean and not trace.refuses(place)
            if trace.witnessed[place]:
                certain[place] = 1
                if clean:
                    for between in range(begin, place):
                        certain[between] = trace.revisions[between] > 0
                begin, clean = place + 1, True
        unsafe = max(self.agreement.safe + 1 - trace.run.first, 0)
        certain[unsafe:] = bytes(len(certain[unsafe:]))
        return certain

    def writes(self, key: bytes) -> Iterator[LoggedWrite]:
        """Yield every write of one key, oldest first, values read from the files as they are asked for.

        Range deletions and lease revocations that reached the key are among them, ``possible`` where nothing tells
        whether they did. What a replay refuses is told with ``refused``.

        Raises:
            SourceError: The log cannot be read any more.
        """
        if self.agreement.same is False:
            return
        records = self._trace.of_key(key)
        claim = self._present_claim(key, records)
        every = [*records, *self._reaching(key, records)]
        for record in sorted(every, key=lambda one: (one.entry, one.number)):
            yield self._told(key, record, claim)

    def _present_claim(self, key: bytes, records: list[KeyRecord]) -> Claim | None:
        """Return what the present value says of the last write, where that has its bytes."""
        if self._present is None or not records or records[-1].bits & FALLBACK:
            return None
        claim = self._compared.claim_of(records[-1], self._present.get(key))
        return claim if claim is not None and self._compared.fits(claim) else None

    def _reaching(self, key: bytes, records: list[KeyRecord]) -> Iterator[KeyRecord]:
        """Yield range deletions and lease revocations that may have reached a key, where no replay tells."""
        for entry, deletion in self._trace.ranges:
            if in_range(key, deletion.key, deletion.range_end):
                yield taken_along(entry, deletion.number, WriteKind.DELETE)
        held = {record.lease for record in records if record.kind is WriteKind.PUT and record.lease > 0}
        for lease in held:
            for entry in self._trace.revoked.get(lease, ()):
                before = [record for record in records if record.entry < entry]
                if before and before[-1].kind is WriteKind.PUT and before[-1].lease in {lease, KEPT_LEASE}:
                    yield taken_along(entry, 0, WriteKind.LEASE_REVOCATION, lease=lease)

    def _told(self, key: bytes, record: KeyRecord, claim: Claim | None) -> LoggedWrite:
        sure = self._sure(record, claim)
        overrun = self._overrun(sure.revision or 0)
        if overrun:
            sure = _Sure(Confidence.POSSIBLE, overrun)
        known = sure.confidence is not Confidence.POSSIBLE and record.bits & CHANGED and record.create
        return LoggedWrite(
            key=key,
            kind=record.kind,
            entry_index=record.entry,
            operation=record.number,
            value=self._trace.value(record),
            lease=None if record.lease == KEPT_LEASE else record.lease,
            mod_revision=sure.revision,
            create_revision=record.create if known else None,
            version=record.version if known else None,
            confidence=sure.confidence,
            doubt=sure.doubt,
            refused=record.bits & (REPLAYED | CHANGED) == REPLAYED,
        )

    def _sure(self, record: KeyRecord, claim: Claim | None) -> _Sure:
        if record.entry > self._log.committed:
            return _Sure(Confidence.POSSIBLE, "it stands above the last commit of the log")
        if record.bits & REPLAYED:
            return self._sure_of_replayed(record)
        if record.bits & FALLBACK:
            return _Sure(Confidence.POSSIBLE, "it stands in the branch for failure")
        if record.bits & TAKEN_ALONG:
            why = "nothing tells whether the key was in that range, or under that lease, then"
            return _Sure(Confidence.POSSIBLE, why)
        if claim is not None and claim.entry == record.entry:
            return _Sure(Confidence.LIKELY, _NOT_REPLAYED, claim.revision)
        if self.agreement.same and record.entry > self.agreement.newest:
            return _Sure(Confidence.POSSIBLE, _NOT_ITS_HISTORY)
        revision = self._compared.points[self._trace.run_of(record.entry).run.first].revision(record.entry)
        if revision is not None:
            return _Sure(Confidence.LIKELY, _NOT_REPLAYED, revision)
        return _Sure(Confidence.POSSIBLE, f"{_NOT_REPLAYED}, and no later compare confirms it")

    def _sure_of_replayed(self, record: KeyRecord) -> _Sure:
        if not record.bits & CHANGED:
            why = "replayed, it changed nothing: a compare did not hold, or etcd refused it"
            return _Sure(Confidence.POSSIBLE, why)
        run = self._trace.run_of(record.entry)
        made = run.revision_at(record.entry)
        if self._certain[run.run.first][record.entry - run.run.first]:
            return _Sure(Confidence.CERTAIN, "", made)
        if self.agreement.same is None:
            why = "nothing that is stored was compared with the end of the log"
        elif record.entry > self.agreement.newest and made <= self._newest_stored:
            return _Sure(Confidence.POSSIBLE, _NOT_ITS_HISTORY)
        elif record.entry > self.agreement.safe:
            why = "nothing that is stored shows yet that it took effect"
            if not self._reached:
                why += ": a live etcd, or snap/db of that member, would"
        else:
            why = "requests beside it were refused, and no compare confirms this one"
        return _Sure(Confidence.LIKELY, why, made)

    def agreed_until(self, entry: int) -> int:
        """Return the revision up to which the log has every write after an entry, as what is stored now bears out.

        It is that of the newest write that stands there as the log has it, with no gap between the two; 0 for unknown.
        """
        run, newest = self._trace.run_with(entry), self.agreement.newest
        if run is None or run.replay is None or not entry <= newest <= run.run.last:
            return 0
        return run.revision_at(newest)

    # --- which keys

    def keys(self, prefix: bytes = b"") -> Iterator[bytes]:
        """Yield every key below a prefix that some entry names, or a replay found in a range, in byte order."""
        if self.agreement.same is not False:
            yield from (key for key, _ in self._trace.by_key(prefix))

    def deleted(self, prefix: bytes = b"") -> Iterator[bytes]:
        """Yield, in byte order, every key whose last write in the log may be a deletion, whatever is stored now."""
        for key, records in self._trace.by_key(prefix) if self.agreement.same is not False else ():
            effective = [record for record in records if record.bits & (REPLAYED | CHANGED) != REPLAYED]
            last = effective[-1] if effective else None
            reached = [one.entry for one in self._reaching(key, records)]
            if last is not None and (last.kind is not WriteKind.PUT or last.entry < max(reached, default=0)):
                yield key


class _Sure(NamedTuple):
    confidence: Confidence
    doubt: str
    revision: int | None = None
