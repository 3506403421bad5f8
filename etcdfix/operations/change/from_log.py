"""A write of etcd's write-ahead log that may be put back.

Committed is not applied: etcd may have refused what stands in its log. So it is said how sure each write is, and one
that is only possible is taken where a person names its entry.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from etcdfix.copies.log import Log
from etcdfix.examine_all import Progress, no_progress
from etcdfix.model import Confidence, Outcome
from etcdfix.operations.change.candidate import Candidate
from etcdfix.remediation.preflight.cluster import Cluster
from etcdfix.remediation.preflight.members import KeyReading
from etcdfix.remediation.preflight.same_object import newest_readable, uid_of
from etcdfix.rules import Rule, refuse
from etcdfix.sources.wal.model import LoggedWrite, WriteKind
from etcdfix.storagekey import display
from etcdfix.text.commands import RunOptions, look
from etcdfix.text.safetext import key_word
from etcdfix.text.words import counted

_MOST_WRITES: Final = 64
"""The newest ones of the key are looked at, where no entry is named. All of them are in memory at once."""

_NOT_A_VALUE: Final = {
    WriteKind.DELETE: "a deletion",
    WriteKind.LEASE_REVOCATION: "the end of a lease, which deleted the key",
}


def of_log(
    cluster: Cluster,
    key: bytes,
    directory: Path,
    entry: int | None = None,
    *,
    run: RunOptions,
    progress: Progress = no_progress,
) -> Candidate:
    """Return a write of a key: that of an entry, or the newest that reads and is of the key's object.

    The entry is a Raft index; None is the newest write that will do.

    Raises:
        RefusedByRule: It holds no such write.
        OtherHistory: The log is of another history.
        SourceError: The log, or the database beside it, cannot be read.
    """
    with Log([directory], cluster.source, cluster.examiner, progress=progress) as judged:
        judged.require()
        history = judged
        chosen, told = _choose(
            cluster,
            key,
            directory,
            entry,
            history,
            look("explain", key_word(key), "--history", "--in", f"log:{directory}").line(run),
        )
        told = (*told, *judged.notes)
        stored = chosen.stored()
        assert stored is not None  # it has a value
        named = judged.cluster_of(chosen)
        deleted_at = _deleted_at(history.writes(key), chosen)
        agreed_until = history.agreed_until(chosen.entry_index)
    return Candidate(
        stored=stored,
        origin=f"entry {chosen.entry_index} of the write-ahead log in {directory}",
        cluster=named,
        unnamed="; ".join(judged.notes),
        # What is certain was replayed from a known state of this very history.
        generation=chosen.create_revision or 0 if chosen.confidence is Confidence.CERTAIN else 0,
        deleted_at=deleted_at,
        agreed_until=agreed_until,
        told=told,
    )


def _deleted_at(writes: Iterable[LoggedWrite], chosen: LoggedWrite) -> int:
    place = (chosen.entry_index, chosen.operation)
    later = [write for write in writes if (write.entry_index, write.operation) > place]
    if not later or any(write.confidence is not Confidence.CERTAIN for write in (chosen, *later)):
        return 0
    *puts, last = later
    of_it = all(
        write.kind is WriteKind.PUT and write.create_revision == chosen.create_revision for write in puts
    )
    return last.mod_revision or 0 if of_it and last.kind is not WriteKind.PUT else 0


def _choose(
    cluster: Cluster,
    key: bytes,
    directory: Path,
    entry: int | None,
    history: Log,
    look: str,
) -> tuple[LoggedWrite, tuple[str, ...]]:
    writes = history.writes(key)
    if entry is not None:
        write = _of_entry(key, directory, entry, writes, look)
    else:
        reading = cluster.now.read_key(key)
        write = _newest(cluster, reading, key, directory, deque(writes, maxlen=_MOST_WRITES), look)
    told = [_sureness(write), history.about, *history.problems]
    if write.lease is None:
        told.append(
            "the write kept the lease that the key had, which is not in it: it is put back without one"
        )
    newer = sum(other.entry_index > write.entry_index for other in history.writes(key))
    if newer:
        stands = "stands" if newer == 1 else "stand"
        told.append(f"{counted(newer, 'later write')} of the key {stands} in the log, and not in this value")
    return write, tuple(told)


def _of_entry(
    key: bytes, directory: Path, entry: int, writes: Iterable[LoggedWrite], look: str
) -> LoggedWrite:
    found = [write for write in writes if write.entry_index == entry]
    if not found:
        raise refuse(
            Rule.GONE,
            f"entry {entry} of the log in {directory} is no write of {display(key)}",
            hint=f"see its writes: {look}",
        )
    write = found[-1]
    if write.value is None or write.refused:
        what = _NOT_A_VALUE.get(write.kind, "a write that keeps the value before it")
        raise refuse(
            Rule.GONE,
            f"entry {entry} of the log in {directory} is {'refused by etcd' if write.refused else what}: it holds no "
            f"value of {display(key)}",
            hint=f"see its writes: {look}",
        )
    return write


def _newest(
    cluster: Cluster, reading: KeyReading, key: bytes, directory: Path, writes: deque[LoggedWrite], look: str
) -> LoggedWrite:
    examiner = cluster.examiner.apart()
    present = newest_readable(cluster, reading, key)
    uid = uid_of(present) if present is not None else ""
    for write in reversed(writes):
        stored = write.stored()
        if stored is None or write.refused:
            continue
        found = examiner.examine(stored)
        if found.verdict.outcome is not Outcome.READABLE or (uid and uid_of(found) not in {uid, ""}):
            continue
        if write.confidence is Confidence.POSSIBLE:
            raise refuse(
                Rule.LOGGED_ONLY,
                f"the newest write of {display(key)} in the log that reads is entry {write.entry_index}, and nothing "
                f"shows that etcd applied it: {write.doubt}",
                hint=f"compare it with the others: {look}; then name one with --entry INDEX",
            )
        return write
    raise refuse(
        Rule.GONE,
        f"no write of {display(key)} in the log in {directory} reads and is of its object ({len(writes)} looked at)",
        hint=f"see them: {look}; another member's log may reach further back",
    )


def _sureness(write: LoggedWrite) -> str:
    if write.confidence is Confidence.POSSIBLE:
        return f"nothing shows that etcd applied it, as accepted by --entry: {write.doubt}"
    at = f"at mod_revision {write.mod_revision}" if write.mod_revision else "at a revision that nothing tells"
    doubt = f": {write.doubt}" if write.doubt else ""
    return f"etcd applied it {at}: {write.confidence}{doubt}"
