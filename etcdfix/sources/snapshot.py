"""A saved snapshot, or a copied database file, as a source of stored values.

What is damaged is walked around and told in :attr:`SnapshotSource.problems`; only a file out of which nothing
can be read raises.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from etcdfix.model.errors import SourceError
from etcdfix.model.model import KeptRevision, StoredValue
from etcdfix.sources.base import DAMAGE_NOTE, ProblemList, Segment, Source, SourceDescription
from etcdfix.sources.bbolt.freelist import conflict
from etcdfix.sources.bbolt.page import BUCKET_ELEMENT, Meta, page_corrupt
from etcdfix.sources.bbolt.salvage import WHOLE_FILE, SalvagedTree
from etcdfix.sources.bbolt.tree import Bucket, Tree
from etcdfix.sources.dbfile import DatabaseFile
from etcdfix.sources.errors import NotASnapshot, PageCorrupt, RevisionCompacted
from etcdfix.sources.mvcc import RevisionIndex, holds_revisions, parse_revision_key, show_key
from etcdfix.sources.pages import Page

SALVAGE_NOTE: Final = (
    "salvaged (--salvage): the newest revision of each key on whole pages of the file, live and free ones alike;"
    " keys are missing, show an older value, or appear although they were deleted"
)
"""Stands first among the problems of a salvaged file."""

_U64_SIZE: Final = 8
_MAX_VERSION_SIZE: Final = 64


class AppliedState(NamedTuple):
    """How far the raft log had been applied to a database file, and what decides about requests after that.

    Attributes:
        entry: Raft index of the last entry that it shows.
        term: Its term; None where etcd did not keep it (before 3.5).
        alarms: Serialized ``AlarmMember`` of each active alarm.
    """

    entry: int
    term: int | None
    revision: int
    alarms: tuple[bytes, ...]
    leases: frozenset[int]
    authentication: bool


class SnapshotSource(Source):
    """The keys of one database file at one revision.

    Args:
        path: From ``etcdctl snapshot save``, or a copy of ``member/snap/db``; gzip is unpacked.
        revision: Main revision to read at; 0 for the newest.
        salvage: Read every whole leaf page, whatever leads to it, and call the result incomplete.

    Raises:
        NotASnapshot: No such file, no file, empty, text, without a valid meta page, or not etcd's.
        SourceLocked: A running etcd holds the file.
        RevisionCompacted: ``revision`` was compacted, or does not exist yet.
        PageCorrupt: The page that leads to all others is damaged.
        SourceError: The file cannot be opened or unpacked.
    """

    def __init__(self, path: Path, *, revision: int = 0, salvage: bool = False) -> None:
        self._salvage = salvage
        self._path = path
        self._problems = ProblemList()
        self._first_damage: PageCorrupt | None = None
        self._closed = False
        self._file = DatabaseFile(path)
        try:
            for problem in self._file.problems:
                self._problems.add(problem)
            self._tree, bucket = self._open_salvaged() if salvage else self._open_key_bucket()
            self._index = RevisionIndex(self._tree, bucket, self._on_damage, in_order=not salvage)
            self._pin(revision)
            self._etcd_version = self._read_version()
            doubt = "" if salvage else conflict(self._tree)
            self._warning = doubt and (
                f"Do not restore this file: {doubt}, so etcd fails or writes over data. What was read of it is right."
            )
        except PageCorrupt as damage:
            self._file.close()
            damage.message = f"{path}: nothing can be read: {damage.message}"
            if self._file.size < self._file.promised_size:
                damage.message += f"; its meta page promises {self._file.promised_size} bytes"
            damage.hint = self._file.how_to_replace()
            if not salvage:
                damage.hint += "; --salvage shows what is whole in it"
            raise
        except BaseException:
            self._file.close()
            raise

    def _on_damage(self, damage: PageCorrupt) -> None:
        self._first_damage = self._first_damage or damage
        self._problems.add(damage.message)

    def _open_key_bucket(self) -> tuple[Tree, Bucket]:
        """Find the bucket ``key``, from the older meta page where the newer one leads nowhere.

        A transaction never overwrites pages of the one before it, so the older tree is whole: it lacks only
        the last commit.
        """
        newest, *older = self._file.metas
        try:
            return self._key_bucket(newest)
        except PageCorrupt as damage:
            if not older:
                raise
            what = f"{damage.message}; transaction {newest.txid} cannot be read, trying the one before it"
            self._problems.add(what)
            found = self._key_bucket(older[0])
            self._first_damage = damage
            return found

    def _open_salvaged(self) -> tuple[Tree, Bucket]:
        """Take every whole leaf page of revisions for the bucket ``key``."""
        tree = SalvagedTree(
            self._file.image,
            size=self._file.size,
            meta=self._file.metas[0],
            on_damage=self._on_damage,
            wanted=holds_revisions,
        )
        if next(tree.leaves(WHOLE_FILE), None) is None:
            raise PageCorrupt("no whole page of revisions is in the file")
        self._problems.add(SALVAGE_NOTE)
        return tree, WHOLE_FILE

    def _key_bucket(self, meta: Meta) -> tuple[Tree, Bucket]:
        tree = Tree(self._file.image, size=self._file.size, meta=meta, on_damage=self._on_damage)
        self._first_damage = None
        bucket = tree.bucket(b"key")
        if bucket is None:
            if self._first_damage is not None:
                raise self._first_damage
            entries = list(
                islice((entry for leaf in tree.leaves(tree.root) for entry in tree.entries(leaf)), 16)
            )
            if not all(entry.flags & BUCKET_ELEMENT for entry in entries):
                raise page_corrupt(meta.root, "keys stand where the buckets are listed")
            listed = (show_key(tree.image[entry.key_start : entry.value_start]) for entry in entries)
            names = ", ".join(listed) or "none"
            raise NotASnapshot(
                f"{self._path}: a bbolt database, but not etcd's: it has no bucket `key` (buckets: {names})"
            )
        if bucket.inline is None:
            tree.page(bucket.root)
        return tree, bucket

    def _meta_revision(self, name: bytes) -> int:
        parsed = parse_revision_key(self._lookup(b"meta", name)[:17])
        return parsed[0].main if parsed is not None else 0

    def _lookup(self, bucket_name: bytes, key: bytes) -> bytes:
        """Return a small value, cut at some size; empty when it is not there or cannot be reached."""
        try:
            bucket = self._tree.bucket(bucket_name)
            found = self._tree.find(bucket, key) if bucket is not None else None
        except PageCorrupt as damage:
            self._on_damage(damage)
            return b""
        if found is None:
            return b""
        entry = found[1]
        return self._tree.image[
            entry.value_start : min(entry.value_end, entry.value_start + _MAX_VERSION_SIZE)
        ]

    def _pin(self, revision: int) -> None:
        """Work out the bounds of what can be read, and the revision to read at.

        Format:
            etcd v3.6 ``server/storage/mvcc/kvstore.go``, ``restore``: the current revision is the last one in
            the bucket, 1 in an empty store, and never below the finished or scheduled compaction. A scheduled
            compaction may have removed part of what lies below it, so it bounds like a finished one.
        """
        finished = self._meta_revision(b"finishedCompactRev")
        scheduled = self._meta_revision(b"scheduledCompactRev")
        compacted = max(finished, scheduled)
        current = max(1, self._index.newest_main(), compacted)
        if revision and not compacted <= revision <= current:
            what = "was compacted" if revision < compacted else "does not exist yet"
            raise RevisionCompacted(
                f"{self._path}: revision {revision} {what}: the file holds revisions {max(compacted, 1)} to {current}",
                revision=revision,
                compacted=compacted,
                current=current,
                hint="leave --revision out to read the newest",
            )
        self._compacted = compacted
        self._revision = revision or current
        self._at_revision = revision if revision and revision < current else None

    def _read_version(self) -> str | None:
        """Return etcd's version: of the storage (3.6 and later), or of the cluster (``major.minor.0``)."""
        raw = self._lookup(b"meta", b"storageVersion") or self._lookup(b"cluster", b"clusterVersion")
        text = raw.decode("ascii", "replace")
        return text if text and text.replace(".", "").isalnum() and text.isascii() else None

    def describe(self) -> SourceDescription:
        """Say where the data comes from."""
        sentence = self._file.integrity + (" (of the unpacked file)" if self._file.compressed else "")
        sentence += "; salvaged" if self._salvage else ""
        return SourceDescription(
            type="snapshot",
            path=str(self._path),
            revision=self._revision,
            segments=(Segment(from_key="", revision=self._revision),),
            sha256=f"sha256:{self._file.sha256}",
            etcd_version=self._etcd_version,
            integrity=sentence,
            file_modified_at=self._file.modified_at,
            warning=self._warning,
        )

    def pages(self, prefix: bytes) -> Iterator[Page]:
        """Yield the current value of every key that starts with ``prefix``, in byte order of the keys.

        Raises:
            SourceError: The file cannot be read to its end, or there is no room to sort its keys.
        """
        self._require_open()
        return self._index.pages(prefix, at_revision=self._at_revision)

    def _require_open(self) -> None:
        if self._closed:
            raise SourceError(f"{self._path}: already closed")

    def get(self, key: bytes) -> StoredValue | None:
        """Return one key's current value, or None."""
        self._require_open()
        return self._index.get(key, at_revision=self._at_revision)

    def before(self, key: bytes, revision: int) -> StoredValue | None:
        """Return what a key held just before a main revision, None where it held nothing or that is not kept."""
        self._require_open()
        return self._index.get(key, at_revision=revision - 1) if revision > 0 else None

    def lacks_predecessor(self, stored: StoredValue) -> bool:
        """Say whether the change before this one should still be kept under the same key, and is not.

        Never in a file of which part is lost: it may be there.
        """
        if self._salvage or stored.version < 2 or stored.mod_revision - 1 < self._compacted:
            return False
        missing = self.before(stored.key, stored.mod_revision) is None
        return missing and self._first_damage is None

    def applied(self) -> AppliedState | None:
        """Return how far the raft log had been applied to this file, and what decides about requests after that.

        None where the file does not say, where damage hides part of it, and where it is read at an earlier revision.

        Format:
            etcd v3.6 ``server/storage/schema``: bucket ``meta`` (``consistent_index`` and, since 3.5, ``term``, 8 bytes
            big-endian each), ``alarm`` (keys are ``AlarmMember``), ``lease`` (keys are ids, 8 bytes big-endian),
            ``auth`` (``authEnabled`` is 1 where it is on).
        """
        index = self._lookup(b"meta", b"consistent_index")
        if len(index) != _U64_SIZE or self._salvage or self._at_revision is not None:
            return None
        term = self._lookup(b"meta", b"term")
        leases = self._keys_of(b"lease")
        state = AppliedState(
            entry=int.from_bytes(index, "big"),
            term=int.from_bytes(term, "big") if len(term) == _U64_SIZE else None,
            revision=self._revision,
            alarms=tuple(self._keys_of(b"alarm")),
            leases=frozenset(
                int.from_bytes(key, "big", signed=True) for key in leases if len(key) == _U64_SIZE
            ),
            authentication=self._lookup(b"auth", b"authEnabled") == b"\x01",
        )
        return state if not self.problems else None

    def _keys_of(self, bucket_name: bytes) -> list[bytes]:
        try:
            bucket = self._tree.bucket(bucket_name)
            pages = self._tree.leaves(bucket) if bucket is not None else ()
            return [
                bytes(self._tree.image[entry.key_start : entry.value_start])
                for page in pages
                for entry in self._tree.entries(page)
            ]
        except PageCorrupt as damage:
            self._on_damage(damage)
            return []

    def compacted_revision(self) -> int | None:
        """Return the oldest revision that is kept; 0 where nothing was compacted, None where damage hides it."""
        return self._compacted if self._compacted or self._first_damage is None else None

    def history(self, key: bytes) -> Iterator[KeptRevision]:
        """Yield every revision of ``key`` that is still kept, oldest first, newer than the pinned one included."""
        self._require_open()
        return self._index.history(key)

    def has_several(self, key: bytes) -> bool:
        """Say whether more than one revision of a key is kept, without reading their values."""
        self._require_open()
        return self._index.has_several(key)

    def superseded(self) -> Iterator[StoredValue]:
        """Yield every value that is still kept and is not the one that :meth:`current` yields, keys in byte order."""
        self._require_open()
        return self._index.superseded(at_revision=self._at_revision)

    def estimate(self) -> int:
        """Return how many keys there are, deleted ones that still leave a trace included."""
        self._require_open()
        return self._index.estimate()

    @property
    def problems(self) -> list[str]:
        """Reasons why what was yielded is not everything; complete once everything was yielded."""
        note = [DAMAGE_NOTE] if self._first_damage is not None else []
        return [*self._problems.sentences(), *note]

    @property
    def page_file(self) -> int | None:
        """Descriptor of the file, unpacked."""
        return self._file.descriptor

    def close(self) -> None:
        """Let go of the file, its lock, and temporary files."""
        if not self._closed:
            self._closed = True
            self._index.close()
            self._file.close()
