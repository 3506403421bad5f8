"""Which clusters of a fleet use the same key: by the digest of a KMS key id, or by the fingerprint of the bytes.

Never by a name: every second cluster calls its key ``key1``. What clusters use is sorted in a temporary file, so that
memory does not depend on how many there are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from typing import Final

import msgspec

from etcdfix.operations.look.fleet_row import ReadRow, shown_resources
from etcdfix.operations.look.sorted_rows import SortedRows
from etcdfix.reports.base import fit
from etcdfix.reports.fleet_model import KeyUse, SharedKey
from etcdfix.reports.rows import Rows

KMS_KEY_ID: Final = "kms-key-id"
ENCRYPTION_KEY: Final = "encryption-key"
_MOST_USES: Final = 1_000
_MOST_WORD: Final = 200
_IDS: Final = {
    KMS_KEY_ID: re.compile(r"sha256:[0-9a-f]{64}"),
    ENCRYPTION_KEY: re.compile(r"fp:[0-9a-f]{16}"),
}
_ORDER: Final = ("nowhere", "in-part", "everywhere")
_BYTES: Final = 8
_UID: Final = "uid "
_MEMORY_BYTES: Final = 256 << 10


class _Use(msgspec.Struct, frozen=True):
    """One use of one key; ``cluster`` is what :class:`_Clusters` calls the cluster of the report."""

    kind: str
    id: str
    cluster: str
    use: KeyUse


class _Clusters:
    """Tells which reports are of one cluster: those of one uid; where it is not known, of one file or one name."""

    def __init__(self) -> None:
        self._uids: dict[str, str] = {}
        self._same: dict[str, str] = {}

    def add(self, read: ReadRow) -> str:
        """Take a report; return what its cluster is called until all were taken."""
        row = read.row
        facts = [f"file {read.sha256}"] if read.sha256 else []
        facts += [f"name {row.name}"] if row.named_by != "file" else []
        if row.kube_system_uid:
            for fact in facts:
                self._uids.setdefault(fact, f"{_UID}{row.kube_system_uid}")
            return f"{_UID}{row.kube_system_uid}"
        first, *others = [self.of(fact) for fact in facts or [f"report {row.report}"]]
        self._same.update((other, first) for other in others if other != first)
        return first

    def settle(self) -> None:
        """Once all were taken: give those without a uid that of the first with the same file or name."""
        for fact, uid in self._uids.items():
            called = self.of(fact)
            if not called.startswith(_UID):
                self._same[called] = uid

    def of(self, called: str) -> str:
        """Return what a cluster is called by now."""
        last = called
        while last in self._same:
            last = self._same[last]
        if last != called:
            self._same[called] = last
        return last


class SharedKeys:
    """Gathers what clusters use, and says what several of them do."""

    def __init__(self) -> None:
        self._clusters = _Clusters()
        self._uses: SortedRows[_Use] = SortedRows(_Use, memory_bytes=_MEMORY_BYTES)
        self._added = 0

    def add(self, read: ReadRow) -> None:
        """Take what one report counts under its keys.

        Raises:
            SourceError: There is no room for it.
        """
        cluster = self._clusters.add(read)
        for key in read.transformers:
            readable = max(key.keys - key.failures - key.undetermined, 0)
            self._add(
                read,
                cluster,
                ENCRYPTION_KEY,
                key.key_fingerprint,
                key.transformer,
                key.resources,
                key.keys,
                readable,
            )
        for held in read.kms_keys:
            readable = min(held.opened, held.keys)
            self._add(
                read, cluster, KMS_KEY_ID, held.key_id_sha256, held.transformer, [], held.keys, readable
            )

    def _add(
        self,
        read: ReadRow,
        cluster: str,
        kind: str,
        named: str | None,
        transformer: str,
        resources: list[str],
        keys: int,
        readable: int,
    ) -> None:
        if named is None or not _IDS[kind].fullmatch(named):
            return
        row = read.row
        use = KeyUse(
            cluster=row.name,
            report=row.report,
            transformer=fit(transformer, _MOST_WORD),
            resources=shown_resources(resources),
            keys=keys,
            readable=readable,
            unreadable=keys - readable,
        )
        turn = f"{kind}\0{named}\0{row.name}\0".encode() + self._added.to_bytes(_BYTES)
        self._added += 1
        self._uses.add(turn, _Use(kind, named, cluster, use))

    def finish(self) -> Rows[SharedKey]:
        """Return the keys that several clusters use: those that read nowhere first, then those of most clusters.

        Raises:
            SourceError: There is no room for them.
        """
        self._clusters.settle()
        shared: SortedRows[SharedKey] = SortedRows(SharedKey, memory_bytes=_MEMORY_BYTES)
        for (kind, named), uses in groupby(self._uses.finish(), key=lambda use: (use.kind, use.id)):
            found = self._shared(kind, named, uses)
            if found.clusters > 1:
                worst = _ORDER.index(found.reads).to_bytes(1)
                most = (2 ** (8 * _BYTES) - 1 - found.clusters).to_bytes(_BYTES)
                shared.add(worst + most + f"{kind}\0{named}".encode(), found)
        return shared.finish()

    def _shared(self, kind: str, named: str, uses: Iterator[_Use]) -> SharedKey:
        clusters: set[str] = set()
        listed: list[KeyUse] = []
        count = keys = readable = 0
        for one in uses:
            clusters.add(self._clusters.of(one.cluster))
            count += 1
            keys += one.use.keys
            readable += one.use.readable
            if len(listed) < _MOST_USES:
                listed.append(one.use)
        reads = "everywhere" if readable == keys else "in-part" if readable else "nowhere"
        return SharedKey(
            type=kind,
            id=named,
            reads=reads,
            clusters=len(clusters),
            without_uid=sum(not cluster.startswith(_UID) for cluster in clusters),
            keys=keys,
            readable=readable,
            unreadable=keys - readable,
            uses=listed,
            uses_in_all=count,
        )
