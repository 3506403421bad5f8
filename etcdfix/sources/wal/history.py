"""What a log did to each key, and how sure that is. The reasoning stands in ``docs/wal.md``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from etcdfix.model import Confidence, StoredValue
from etcdfix.sources.base import Source
from etcdfix.sources.wal.base import Base, EmptyBase, FileBase
from etcdfix.sources.wal.comparison import Compared, Comparison
from etcdfix.sources.wal.entries import LogEntries, Run
from etcdfix.sources.wal.model import Kinship, LoggedWrite, WriteKind
from etcdfix.sources.wal.requests import Delete, Put, asked_by, in_range, writes_of
from etcdfix.sources.wal.revisions import Claim
from etcdfix.sources.wal.trace import CHANGED, UNCHANGED, KeyRecord, RunTrace, Trace
from etcdfix.text.words import counted
from etcdfix.wire import raft


class LogHistory:
    """What the log did to each key; made by ``WriteAheadLog.history``.

    Attributes:
        agreement: Whether it is of the same history as what is stored now. Of another one nothing is given.
        replayed: From where it was replayed, one clause; "" where there was no base, so that nothing is certain.
        overrun: It made revisions to which the live etcd has not come, a clause; "" where nothing says so. What made
            them is ``possible``, however the log was replayed.

    Raises:
        SourceError: A source, or the log, cannot be read.
    """

    def __init__(
        self,
        log: LogEntries,
        present: Source | None,
        others: Sequence[Source] = (),
        *,
        reads: Callable[[StoredValue], bool] = lambda _: True,
        reached: int = 0,
    ) -> None:
        self._log = log
        self._reached = reached
        self._reads = reads
        self._present = present
        self._stores = [source for source in (present, *others) if source is not None]
        self._problems: list[str] = []
        bases = self._bases()
        self._trace = Trace(log, bases)
        try:
            comparison, compared = self._compare()
            wrong = any(run.replay is not None and run.replay.wrong for run in self._trace.runs)
            if bases and (compared.contradicted or wrong):
                self._problems.append(
                    "replaying the log does not lead to what is stored now: the state that it began with is of another"
                    " history, or etcd refused requests for a reason that is not in the log; nothing of it is certain"
                )
                self._trace.close()
                self._trace = Trace(log, {})
                comparison, compared = self._compare()
            self._points = comparison.points(compared.claims)
            self.agreement = comparison.judge(compared)
            self._finish(compared)
        except BaseException:
            self._trace.close()
            raise

    def _compare(self) -> tuple[Comparison, Compared]:
        comparison = Comparison(self._trace, self._log.committed, self._stores, self._present, self._reads)
        return comparison, comparison.compare()

    def _finish(self, compared: Compared) -> None:
        self._newest_agreed = max(compared.agreed, default=0)
        known_now = self._stores if self._present is None else [self._present]
        self._newest_stored = max((store.describe().revision for store in known_now), default=0)
        self.overrun = self._overrun()
        known = [run for run in self._trace.runs if run.base is not None and run.end > run.begin]
        self.replayed = "; ".join(run.base.name for run in known if run.base is not None)
        self._certain = {run.run.first: self._certain_of(run) for run in known}
        for run in known:
            if run.stopped:
                self._problems.append(f"nothing after it is certain: {run.stopped}")
        if self._trace.lost_ranges:
            self._problems.append(f"{counted(self._trace.lost_ranges, 'range deletion')} are left out")

    def _bases(self) -> dict[int, Base]:
        """Return what each run can be replayed from: the earliest state that lies in it."""
        files = [base for base in map(FileBase.of, self._stores) if base is not None]
        found: dict[int, Base] = {}
        for run in self._log.runs:
            if self._begins_empty(run):
                found[run.first] = EmptyBase()
                continue
            fitting = [
                base
                for base in files
                if run.first - 1 <= base.applied.entry < run.last and self._same_term(base)
            ]
            if fitting:
                found[run.first] = min(fitting, key=lambda base: base.applied.entry)
        return found

    def _same_term(self, base: FileBase) -> bool:
        place = self._log.place_of(base.applied.entry)
        if place is None or base.applied.term is None:
            return True
        return self._log.entry(place)[0].term == base.applied.term

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

    def _overrun(self) -> str:
        """Say that the log made revisions to which the live etcd has not come; "" where it did not."""
        made = max(
            (
                run.revisions[entry - run.run.first]
                for run in self._trace.runs
                for entry in run.last_changed(run.end)
                if entry <= self._log.committed
            ),
            default=0,
        )
        return _overrun(made, self._reached) if self._reached and made > self._reached else ""

    # --- how sure a write is

    def _certain_of(self, trace: RunTrace) -> bytearray:
        """Mark the entries of a run for which the replay and independent witnesses agree.

        Between two witnessed entries the revision grew by a known number. Where each entry between asked for a change
        and by the replay made one, none can have been refused: etcd would be behind. Where the replay itself refused
        one, the two could have been swapped for a reason unknown, so only what is witnessed itself is certain.
        """
        certain = bytearray(len(trace.run.places))
        if self.agreement.kinship is not Kinship.SAME_HISTORY:
            return certain
        begin = trace.begin
        clean = True
        for place in range(trace.begin, trace.end):
            if trace.effects[place] == UNCHANGED:
                clean = False
            if trace.witnessed[place]:
                certain[place] = 1
                if clean:
                    for between in range(begin, place):
                        certain[between] = trace.effects[between] == CHANGED
                begin, clean = place + 1, True
        agreed = self.agreement.newest_agreed_index - trace.run.first
        for place in range(max(agreed + 1, 0), len(certain)):
            certain[place] = 0
        return certain

    def writes(self, key: bytes) -> Iterator[LoggedWrite]:
        """Yield every write of one key, oldest first, values read from the files as they are asked for.

        Range deletions and lease revocations that reached the key are among them, ``possible`` where nothing tells
        whether they did. What a replay refuses is told with ``refused``.

        Raises:
            SourceError: The log cannot be read any more.
        """
        if self.agreement.kinship is Kinship.OTHER_HISTORY:
            return
        records = list(self._trace.of_key(key))
        claim = self._present_claim(key, records)
        for record in sorted(
            [*records, *self._reaching(key, records)], key=lambda one: (one.entry, one.number)
        ):
            yield self._told(key, record, claim)

    def _present_claim(self, key: bytes, records: list[KeyRecord]) -> Claim | None:
        if self._present is None or not records:
            return None
        last = records[-1]
        if (
            last.kind is not WriteKind.PUT
            or last.fallback
            or last.keeps_value
            or last.entry > self._log.committed
        ):
            return None
        stored = self._present.get(key)
        if stored is None or self._trace.value_of(last.entry, last.number) != stored.value:
            return None
        run = self._trace.run_of(last.entry)
        claim = Claim(last.entry, stored.mod_revision)
        return claim if self._points[run.run.first].fits(claim) else None

    def _reaching(self, key: bytes, records: list[KeyRecord]) -> Iterator[KeyRecord]:
        """Yield range deletions and lease revocations that may have reached a key, where no replay tells."""
        for one in self._trace.ranges:
            if in_range(key, one.begin, one.end):
                yield _unsure(one.entry, one.number, WriteKind.DELETE, 0)
        held = {record.lease for record in records if record.kind is WriteKind.PUT and record.lease > 0}
        for lease in held:
            for entry in self._trace.revoked.get(lease, ()):
                before = [record for record in records if record.entry < entry]
                if before and before[-1].kind is WriteKind.PUT and before[-1].lease in {lease, -1}:
                    yield _unsure(entry, 0, WriteKind.LEASE_REVOCATION, lease)

    def _told(self, key: bytes, record: KeyRecord, claim: Claim | None) -> LoggedWrite:
        run = self._trace.run_of(record.entry)
        place = self._log.place_of(record.entry)
        assert place is not None
        entry, data = self._log.entry(place)
        asked = asked_by(entry, data)
        value, range_end = None, b""
        for write, _ in writes_of(asked.action):
            if write.number == record.number and record.kind is not WriteKind.LEASE_REVOCATION:
                if isinstance(write, Put):
                    value = None if write.keeps_value else write.value
                elif isinstance(write, Delete):
                    range_end = write.range_end
        sure = self._held_against_now(self._sure(record, run, claim))
        known = (
            sure.confidence is not Confidence.POSSIBLE
            and record.replayed
            and record.changed
            and record.create
        )
        return LoggedWrite(
            key=key,
            kind=record.kind,
            entry_index=record.entry,
            operation=record.number,
            term=entry.term,
            value=value,
            keeps_value=record.keeps_value,
            lease=None if record.lease < 0 else record.lease,
            mod_revision=sure.revision,
            create_revision=record.create if known else None,
            version=record.version if known else None,
            confidence=sure.confidence,
            doubt=sure.doubt,
            after_revision=sure.after,
            before_revision=sure.before,
            user=asked.user,
            range_end=range_end,
            refused=record.replayed and not record.changed,
        )

    def _sure(self, record: KeyRecord, run: RunTrace, claim: Claim | None) -> _Sure:
        points = self._points[run.run.first]
        if record.entry > self._log.committed:
            _, after, _ = points.revision(record.entry)
            return _Sure(None, Confidence.POSSIBLE, "it stands above the last commit of the log", after, None)
        revision, after, before = points.revision(record.entry)
        place = record.entry - run.run.first
        if record.replayed:
            if not record.changed:
                why = "replayed, it changed nothing: a compare did not hold, or etcd refused it"
                return _Sure(None, Confidence.POSSIBLE, why, after, before)
            made = run.revisions[place]
            if self._certain[run.run.first][place]:
                return _Sure(made, Confidence.CERTAIN, "", None, None)
            if self.agreement.kinship is Kinship.NOT_COMPARED:
                why = "nothing that is stored was compared with the end of the log"
            elif record.entry > self._newest_agreed and made <= self._newest_stored:
                why = "nothing that is stored shows that the log is of this history up to there"
                return _Sure(None, Confidence.POSSIBLE, why, after, before)
            elif record.entry > self.agreement.newest_agreed_index:
                why = "nothing that is stored shows yet that it took effect"
                if not self._reached:
                    why += ": a live etcd, or snap/db of that member, would"
            else:
                why = "requests beside it were refused, and no compare confirms this one"
            return _Sure(made, Confidence.LIKELY, why, None, None)
        doubt = "the log was not replayed from a known state up to it"
        if record.fallback:
            return _Sure(None, Confidence.POSSIBLE, "it stands in the branch for failure", after, before)
        if record.taken_along:
            why = "nothing tells whether the key was in that range, or under that lease, then"
            return _Sure(None, Confidence.POSSIBLE, why, after, before)
        if claim is not None and claim.entry == record.entry:
            return _Sure(claim.revision, Confidence.LIKELY, doubt, None, None)
        compared = self.agreement.kinship is Kinship.SAME_HISTORY
        if compared and record.entry > self._newest_agreed:
            why = "nothing that is stored shows that the log is of this history up to there"
            return _Sure(None, Confidence.POSSIBLE, why, after, before)
        if revision is not None:
            return _Sure(revision, Confidence.LIKELY, doubt, None, None)
        return _Sure(None, Confidence.POSSIBLE, f"{doubt}, and no later compare confirms it", after, before)

    def _held_against_now(self, sure: _Sure) -> _Sure:
        """Return how sure a write is; one of a revision that the live etcd has not come to was never made there."""
        if not sure.revision or not self._reached or sure.revision <= self._reached:
            return sure
        why = _overrun(sure.revision, self._reached)
        return _Sure(None, Confidence.POSSIBLE, why, None, None)

    def replayed_until(self, entry: int) -> int:
        """Return the revision up to which everything after an entry is told, with none missing; 0 for unknown."""
        run = self._trace.run_with(entry)
        if run is None or run.replay is None or run.stopped:
            return 0
        return run.replay.revision

    def agreed_until(self, entry: int) -> int:
        """Return the revision up to which the log has every write after an entry, as what is stored now bears out.

        It is that of the newest write that stands there as the log has it, with no gap between the two; 0 for unknown.
        """
        run = self._trace.run_with(entry)
        if run is None or run.replay is None or not entry <= self._newest_agreed <= run.run.last:
            return 0
        return run.revisions[self._newest_agreed - run.run.first]

    # --- which keys

    def keys(self, prefix: bytes = b"") -> Iterator[bytes]:
        """Yield every key below a prefix that some entry names, or a replay found in a range, in byte order."""
        if self.agreement.kinship is Kinship.OTHER_HISTORY:
            return
        for key, _ in self._trace.by_key(prefix):
            yield key

    def deleted(self, prefix: bytes = b"") -> Iterator[bytes]:
        """Yield, in byte order, every key whose last write in the log may be a deletion, whatever is stored now."""
        if self.agreement.kinship is Kinship.OTHER_HISTORY:
            return
        for key, records in self._trace.by_key(prefix):
            effective = [record for record in records if record.changed or not record.replayed]
            if not effective:
                continue
            if effective[-1].kind is not WriteKind.PUT or any(
                one.entry > effective[-1].entry for one in self._reaching(key, records)
            ):
                yield key

    def directory_of(self, entry: int) -> Path:
        """Return the directory whose files hold an entry, where several logs were joined."""
        place = self._log.place_of(entry)
        assert place is not None
        return self._log.segment_of(place).path.parent

    @property
    def problems(self) -> list[str]:
        """Reasons why what is given is not everything: one sentence each."""
        return list(self._problems)

    def close(self) -> None:
        """Let go of temporary files."""
        self._trace.close()


def _overrun(made: int, reached: int) -> str:
    return (
        f"it made revision {made}, and this etcd has come to {reached} only: it was restored from an older state, or "
        "the log is of another one"
    )


class _Sure(NamedTuple):
    revision: int | None
    confidence: Confidence
    doubt: str
    after: int | None
    before: int | None


def _unsure(entry: int, number: int, kind: WriteKind, lease: int) -> KeyRecord:
    return KeyRecord(
        entry,
        number,
        kind,
        fallback=False,
        replayed=False,
        changed=False,
        taken_along=True,
        keeps_value=False,
        expected=-1,
        create=0,
        version=0,
        lease=lease,
    )
