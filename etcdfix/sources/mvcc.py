"""etcd's MVCC layout on top of bbolt: revision keys, key-value records, and the fold to "current".

The bucket ``key`` holds one record for each kept change, under its revision; which change is the last one of
which key is nowhere written down. etcd reads the whole bucket at start and builds an index in memory
(``server/storage/mvcc/kvstore.go``, ``restore``). We do the same in flat memory: one walk collects, for each
record, key + revision + place in the file as one byte string, these are sorted (:mod:`.sortedruns`), and every
question is a range of the sorted list.

Format:
    etcd v3.6 ``server/storage/mvcc/revision.go`` (bucket key), ``api/mvccpb/kv.proto`` (value),
    ``server/storage/schema/schema.go`` (buckets). The same since etcd 3.0.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final

from etcdfix.model.model import KeptRevision, Revision, StoredValue
from etcdfix.sources.bbolt.page import ELEMENT_SIZE, HEADER_SIZE, LEAF_ELEMENT, Image, page_corrupt
from etcdfix.sources.bbolt.tree import Bucket, Page, Tree
from etcdfix.sources.errors import PageCorrupt
from etcdfix.sources.keyvalue import key_and_mod_revision, parse_key_value
from etcdfix.sources.pages import (
    PLACE_SIZE,
    REVISION_KEY_SIZE,
    TOMBSTONE_KEY_SIZE,
    RecordPage,
    values_of,
)
from etcdfix.sources.sortedruns import SortedRecords
from etcdfix.text.safetext import shown_key

# An index record is: escaped etcd key, two zero bytes, revision key (17 bytes), place of the leaf element in the
# file (8 bytes). A zero byte inside an etcd key becomes 00 ff, so that records sort as (key, main, sub).
_TERMINATOR: Final = b"\x00\x00"
_KEY: Final = slice(None, -PLACE_SIZE)
_REVISION: Final = slice(-PLACE_SIZE, -8)
_MAIN: Final = slice(-PLACE_SIZE, -PLACE_SIZE + 8)
_PLACE: Final = slice(-8, None)
_BEFORE_ALL: Final = bytes(REVISION_KEY_SIZE)
_WHOLE_REVISION: Final = struct.Struct(">QxQ")

_BATCH: Final = 4096
PAGE_RECORDS: Final = 1024
"""So many index records make a page."""


def escape_key(key: bytes) -> bytes:
    """Return ``key`` in a form whose order survives a terminator of two zero bytes."""
    return key.replace(b"\x00", b"\x00\xff") if b"\x00" in key else key


def parse_revision_key(raw: bytes) -> tuple[Revision, bool] | None:
    """Read a key of the bucket ``key``: revision, and whether it marks a deletion; None if it is neither.

    Args:
        raw: 8 bytes main (big-endian), ``_``, 8 bytes sub, and ``t`` for a tombstone.

    Format:
        etcd v3.6 ``server/storage/mvcc/revision.go``, ``BytesToBucketKey`` and ``isTombstone``.
    """
    if len(raw) not in (REVISION_KEY_SIZE, TOMBSTONE_KEY_SIZE) or raw[8] != 0x5F or raw[0] > 0x7F:
        return None
    tombstone = len(raw) == TOMBSTONE_KEY_SIZE
    if tombstone and raw[17] != 0x74:
        return None
    return Revision(int.from_bytes(raw[:8], "big"), int.from_bytes(raw[9:17], "big")), tombstone


def show_key(key: bytes) -> str:
    """Return an etcd key for a sentence: printable ASCII, everything else escaped, at most 200 characters."""
    text = repr(shown_key(key)[:201])[2:-1]
    return text if len(text) <= 200 else text[:200] + "…"


def _unescaped(record: bytes) -> bytes:
    return record[_KEY][: -len(_TERMINATOR)].replace(b"\x00\xff", b"\x00")


class RevisionIndex:
    """Every kept revision of every key, found again by key."""

    def __init__(
        self, tree: Tree, bucket: Bucket, on_damage: Callable[[PageCorrupt], None], *, in_order: bool = True
    ) -> None:
        self._in_order = in_order
        self._tree = tree
        self._bucket = bucket
        self._image: Image = tree.image
        self._on_damage = on_damage
        self._records = SortedRecords()
        self._last = _BEFORE_ALL
        self.built = False

    def newest_main(self) -> int:
        """Return the highest main revision that is cheap to find: the last one in the last readable leaf."""
        newest = 0
        for leaf in self._tree.leaves(self._bucket, backwards=True):
            for entry in self._tree.entries(leaf):
                parsed = parse_revision_key(self._image[entry.key_start : entry.value_start])
                if parsed is not None:
                    newest = max(newest, parsed[0].main)
            if newest and self._in_order:
                break
        return newest

    def build(self) -> None:
        """Walk the bucket once and sort what was found; later calls do nothing.

        Raises:
            SourceError: The temporary file for sorting cannot be written.
        """
        if self.built:
            return
        self._records.close()
        self._records = SortedRecords()
        self._last = _BEFORE_ALL
        records: list[bytes] = []
        leaves = iter(self._tree.leaves(self._bucket))
        while (leaf := self._add_regular_leaves(leaves, records)) is not None:
            records += self._irregular_leaf(leaf)
        self._records.extend(records)
        self._records.finish()
        self.built = True

    def _add_regular_leaves(self, leaves: Iterator[Page], records: list[bytes]) -> Page | None:
        """Add the index records of leaf pages as etcd writes them.

        This loop runs once per kept revision and decides the speed of a scan, hence one pass without calls.
        bbolt writes keys and values of a page side by side in the order of the elements
        (``internal/common/inode.go``, ``WriteInodeToPage``), which checks all bounds with one comparison.
        """
        image, in_order, append = self._image, self._in_order, records.append
        last = self._last
        for leaf in leaves:
            mark = len(records)
            if mark > _BATCH:
                self._records.extend(records)
                records.clear()
                mark = 0
            self._last = last = last if in_order else _BEFORE_ALL
            end = leaf.end
            at = leaf.offset + HEADER_SIZE
            expected = at + leaf.count * ELEMENT_SIZE
            for flags, pos, key_size, value_size in LEAF_ELEMENT.iter_unpack(image[at:expected]):
                start = at + pos
                if start != expected or flags:
                    break
                value = start + key_size
                expected = value + value_size
                if expected > end:
                    break
                # 0x74 is "t", 0x5f is "_", 0x0a the tag of the record's key.
                if key_size != 17 and (key_size != 18 or image[start + 17] != 0x74):
                    break
                revision = image[start : start + 17]
                if revision <= last or revision[8] != 0x5F or value_size < 3 or image[value] != 0x0A:
                    break
                length = image[value + 1]
                value += 2
                if length > 0x7F:
                    length += (image[value] << 7) - 0x80
                    if length > 0x3FFF:
                        break
                    value += 1
                key = image[value : value + length]
                if value + length > expected or not key or b"\x00" in key:
                    break
                append(key + _TERMINATOR + revision + at.to_bytes(8, "big"))
                last = revision
                at += 16
            else:
                if last[0] <= 0x7F:
                    continue
            del records[mark:]
            return leaf
        return None

    def _irregular_leaf(self, leaf: Page) -> list[bytes]:
        image = self._image
        records: list[bytes] = []
        for entry in self._tree.entries(leaf):
            raw = image[entry.key_start : entry.value_start]
            parsed = parse_revision_key(raw) if not entry.flags else None
            if parsed is None:
                self._report(leaf.page_id, entry.key_start, f"a key of {len(raw)} bytes is no revision")
                continue
            (main, sub), tombstone = parsed
            revision = raw[:REVISION_KEY_SIZE]
            if revision <= self._last:
                self._report(
                    leaf.page_id, entry.key_start, f"revision {main}_{sub} is not above the one before it"
                )
            self._last = revision
            if entry.value_end == entry.value_start:
                # What `etcdutl snapshot restore --bump-revision` writes: it moves the revision, and is no key.
                continue
            data = image[entry.value_start : entry.value_end]
            try:
                key, mod = key_and_mod_revision(data)
            except ValueError as error:
                what = f"the record of revision {main}_{sub} is malformed: {error}"
                self._report(leaf.page_id, entry.value_start, what)
                continue
            if not tombstone and 0 < mod != main:
                # A bit of the revision key flipped, more likely than not: the record knows when it was written.
                what = f"the record of revision {main}_{sub} of key {show_key(key)} says mod_revision {mod}"
                self._report(leaf.page_id, entry.value_start, what)
                revision = mod.to_bytes(8, "big") + revision[8:]
            records.append(escape_key(key) + _TERMINATOR + revision + entry.offset.to_bytes(8, "big"))
        return records

    def _report(self, page_id: int, offset: int, what: str) -> None:
        self._on_damage(page_corrupt(page_id, f"byte {offset}: {what}"))

    def pages(self, prefix: bytes, *, at_revision: int | None = None) -> Iterator[RecordPage]:
        """Yield the value that every key under ``prefix`` had at a main revision (None: the newest).

        Keys come in byte order. A record that cannot be read is reported, and its key is left out: an older
        revision of it would not be its current value.
        """
        self.build()
        lower = escape_key(prefix)
        blocks = self._records.blocks(lower, successor(lower))
        return self._pages(fold(blocks, at_revision=at_revision))

    def get(self, key: bytes, *, at_revision: int | None = None) -> StoredValue | None:
        """Return the value that one key had at a main revision (None: the newest), or None."""
        self.build()
        return next(values_of(self._pages(fold(self._kept(key), at_revision=at_revision))), None)

    def history(self, key: bytes) -> Iterator[KeptRevision]:
        """Yield every kept revision of one key, oldest first; a tombstone has no value."""
        self.build()
        for block in self._kept(key):
            for record in block:
                main, sub = _WHOLE_REVISION.unpack_from(record, len(record) - PLACE_SIZE)
                if self._is_tombstone(record):
                    yield KeptRevision(Revision(main, sub), None)
                    continue
                stored = self._read_with_care(record)
                if stored is not None:
                    yield KeptRevision(Revision(main, sub), stored)

    def has_several(self, key: bytes) -> bool:
        """Say whether more than one revision of a key is kept."""
        self.build()
        return sum(map(len, self._kept(key))) > 1

    def superseded(self, *, at_revision: int | None = None) -> Iterator[StoredValue]:
        """Yield every kept value but the one that its key had at a main revision (None: the newest)."""
        self.build()
        return values_of(self._pages([_superseded(self._records.blocks(b"", None), at_revision)]))

    def _kept(self, key: bytes) -> Iterator[list[bytes]]:
        lower = escape_key(key) + _TERMINATOR
        return self._records.blocks(lower, successor(lower))

    def _is_tombstone(self, record: bytes) -> bool:
        at = int.from_bytes(record[_PLACE], "big")
        key_size: int = LEAF_ELEMENT.unpack_from(self._image, at)[2]
        return key_size == TOMBSTONE_KEY_SIZE

    def _pages(self, batches: Iterable[Iterable[bytes]]) -> Iterator[RecordPage]:
        records: list[bytes] = []
        for batch in batches:
            records.extend(batch)
            while len(records) >= PAGE_RECORDS:
                yield self._page(records[:PAGE_RECORDS])
                del records[:PAGE_RECORDS]
        if records:
            yield self._page(records)

    def _page(self, records: list[bytes]) -> RecordPage:
        packed = b"".join([record[-PLACE_SIZE:] for record in records])
        return RecordPage(self._image, packed, lambda place: self._read_with_care(records[place]))

    def _read_with_care(self, record: bytes) -> StoredValue | None:
        """Read what :func:`read_places` leaves out; None for a tombstone, and for what is reported as unreadable."""
        at = int.from_bytes(record[_PLACE], "big")
        _, pos, key_size, value_size = LEAF_ELEMENT.unpack_from(self._image, at)
        if key_size == TOMBSTONE_KEY_SIZE:
            return None
        start = at + pos + key_size
        try:
            stored = parse_key_value(self._image[start : start + value_size])
        except ValueError as error:
            self._report_record(record, start, f"is malformed: {error}")
            return None
        if stored.mod_revision != int.from_bytes(record[_MAIN], "big"):
            self._report_record(record, start, f"says mod_revision {stored.mod_revision}")
        return stored

    def _report_record(self, record: bytes, offset: int, what: str) -> None:
        page_id = offset // self._tree.page_size
        key = _unescaped(record)
        revision = record[_REVISION]
        main, sub = int.from_bytes(revision[:8], "big"), int.from_bytes(revision[9:], "big")
        self._report(page_id, offset, f"the record of revision {main}_{sub} of key {show_key(key)} {what}")

    def estimate(self) -> int:
        """Return how many keys there are, deleted ones that still leave a trace included."""
        self.build()
        return sum(map(len, fold(self._records.blocks(b"", None), at_revision=None)))

    def close(self) -> None:
        """Drop the index and its temporary file."""
        self._records.close()


def holds_revisions(tree: Tree, leaf: Page) -> bool:
    """Say whether a leaf page is one of the bucket ``key``, and every record of it is whole."""
    try:
        for entry in tree.entries(leaf):
            parsed = parse_revision_key(tree.image[entry.key_start : entry.value_start])
            if parsed is None or entry.flags:
                return False
            revision, tombstone = parsed
            record = parse_key_value(tree.image[entry.value_start : entry.value_end])
            if not record.key or (not tombstone and record.mod_revision != revision.main):
                return False
    except (PageCorrupt, ValueError):
        return False
    return True


def fold(blocks: Iterable[list[bytes]], *, at_revision: int | None) -> Iterator[Collection[bytes]]:
    """Reduce sorted index records to the last one of each key, not newer than a main revision.

    Tombstones win like any other revision and are dropped by the reader, which sees them in the file. A dict
    keeps the last of equal keys and the order of the first, which folds a block without a loop of our own.
    """
    limit = None if at_revision is None else at_revision.to_bytes(8, "big")
    held: tuple[bytes, bytes] | None = None
    for block in blocks:
        if limit is None:
            newest = {record[_KEY]: record for record in block}
        else:
            newest = {record[_KEY]: record for record in block if record[_MAIN] <= limit}
        if not newest:
            continue
        # The last key of a block may go on in the next one.
        if held is not None and held[0] not in newest:
            yield (held[1],)
        held = newest.popitem()
        yield newest.values()
    if held is not None:
        yield (held[1],)


def _superseded(blocks: Iterable[list[bytes]], at_revision: int | None) -> Iterator[bytes]:
    """Yield every sorted index record but the last one of each key that is not newer than a main revision."""
    limit = b"\xff" * 8 if at_revision is None else at_revision.to_bytes(8, "big")
    held = None
    for block in blocks:
        for record in block:
            if record[_MAIN] > limit:
                yield record
                continue
            if held is not None and held[_KEY] == record[_KEY]:
                yield held
            held = record


def successor(prefix: bytes) -> bytes | None:
    """Return the smallest byte string above everything that starts with ``prefix``; None where there is none."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1]) if stripped else None
