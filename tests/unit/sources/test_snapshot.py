from __future__ import annotations

import base64
import gzip
import hashlib
import json
import struct
import tomllib
from pathlib import Path

import pytest

from etcdfix.model.model import StoredValue
from etcdfix.sources import base
from etcdfix.sources.base import Segment
from etcdfix.sources.bbolt.page import read_metas
from etcdfix.sources.errors import NotASnapshot, PageCorrupt, RevisionCompacted
from etcdfix.sources.snapshot import SnapshotSource
from tests.support.bbolt_writer import BoltWriter, database, delete, fnv, put

FIXTURES = Path(__file__).parents[3] / "fixtures/snapshots"
SMALL = FIXTURES / "small"
ALPHA = FIXTURES / "alpha"

ITEMS = [
    put(2, b"/registry/a", b"1"),
    put(3, b"/registry/b", b"2"),
    put(4, b"/registry/a", b"3", create=2, version=2),
    delete(5, b"/registry/b"),
]


def saved(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "saved.db"
    path.write_bytes(data)
    return path


def pairs(source: SnapshotSource, prefix: bytes = b"") -> list[tuple[bytes, bytes]]:
    return [(stored.key, stored.value) for stored in source.current(prefix)]


def value_of(stored: StoredValue | None) -> bytes:
    assert stored is not None
    return stored.value


def as_answered(stored: StoredValue) -> dict[str, object]:
    return {
        "key": base64.b64encode(stored.key).decode(),
        "value_size": len(stored.value),
        "value_sha256": hashlib.sha256(stored.value).hexdigest(),
        "mod_revision": stored.mod_revision,
        "create_revision": stored.create_revision,
        "version": stored.version,
        "lease": stored.lease,
    }


# Real databases.


def oracles() -> list[tuple[str, int]]:
    found = []
    for path in sorted(SMALL.glob("*.json.gz")):
        name = path.name.removesuffix(".json.gz")
        found += [(name, int(revision)) for revision in json.loads(gzip.decompress(path.read_bytes()))["at"]]
    return found


@pytest.mark.parametrize(("name", "revision"), oracles())
def test_equals_what_etcd_answered(name: str, revision: int) -> None:
    oracle = json.loads(gzip.decompress((SMALL / f"{name}.json.gz").read_bytes()))
    with SnapshotSource(SMALL / f"{name}.db.gz", revision=revision) as source:
        assert [as_answered(stored) for stored in source.current(b"")] == oracle["at"][str(revision)]
        for answer in oracle["at"][str(revision)][::50]:
            stored = source.get(base64.b64decode(answer["key"]))
            assert stored is not None
            assert as_answered(stored) == answer
        assert (source.describe().revision, source.problems) == (revision, [])


@pytest.mark.parametrize("name", ["history", "empty", "all-deleted", "large-values", "branches"])
def test_bounds_equal_those_of_etcd(name: str) -> None:
    oracle = json.loads(gzip.decompress((SMALL / f"{name}.json.gz").read_bytes()))
    path = SMALL / f"{name}.db.gz"
    with SnapshotSource(path) as source:
        assert source.describe().revision == oracle["current"]
        assert source.compacted_revision() == max(0, oracle["compacted"])
    with pytest.raises(RevisionCompacted, match="does not exist yet") as caught:
        SnapshotSource(path, revision=oracle["current"] + 1)
    assert (caught.value.compacted, caught.value.current) == (oracle["compacted"], oracle["current"])
    assert caught.value.revision == oracle["current"] + 1
    if oracle["compacted"] > 1:
        with pytest.raises(RevisionCompacted, match="was compacted"):
            SnapshotSource(path, revision=oracle["compacted"] - 1)


def test_description_of_alpha(tmp_path: Path) -> None:
    oracle = json.loads((ALPHA / "oracle.json").read_text())
    data = gzip.decompress((ALPHA / "snapshot.db.gz").read_bytes())
    assert hashlib.sha256(data).hexdigest() == oracle["snapshot_sha256"]
    path = saved(tmp_path, data)
    with SnapshotSource(path) as source:
        stored = list(source.current(b""))
        description = source.describe()
        assert len(stored) == 499
        assert [value.key for value in stored] == sorted(value.key for value in stored)
        assert {key.encode() for key in oracle["damage"]} <= {value.key for value in stored}
        assert source.problems == []
        assert source.estimate() == pytest.approx(499, rel=0.2)
    assert (description.type, description.path, description.endpoints) == ("snapshot", str(path), None)
    assert (description.revision, description.single_revision) == (589, True)
    assert description.segments == (Segment(from_key="", revision=589),)
    assert description.cluster_id is None
    # Of the database without its trailer, unlike the digest in oracle.json.
    assert description.sha256 == "sha256:" + hashlib.sha256(data[:-32]).hexdigest()
    assert description.etcd_version == "3.6.0"
    assert description.integrity == "SHA-256 trailer verified"


def test_manifest_is_true_and_complete() -> None:
    manifest = tomllib.loads((FIXTURES / "MANIFEST.toml").read_text())["file"]
    listed = {entry["path"]: entry for entry in manifest}
    there = {str(path.relative_to(FIXTURES)) for path in FIXTURES.glob("*/*") if path.is_file()}
    assert (set(listed), len(listed)) == (there, len(manifest))
    for path, entry in listed.items():
        assert hashlib.sha256((FIXTURES / path).read_bytes()).hexdigest() == entry["sha256"]
        assert entry["test_keys_only"] is True
        assert entry["made_by"]
        assert entry["fact"]
        if path.startswith("small/"):
            assert (FIXTURES / path).stat().st_size < 100_000


# The source protocol.


def test_file_is_not_touched(tmp_path: Path) -> None:
    path = saved(tmp_path, database(ITEMS, trailer=True))
    path.chmod(0o400)
    before = path.stat()
    with SnapshotSource(path) as source:
        list(source.current(b""))
        source.describe()
    after = path.stat()
    assert (after.st_mtime_ns, after.st_ctime_ns) == (before.st_mtime_ns, before.st_ctime_ns)


def test_before_a_revision(tmp_path: Path) -> None:
    with SnapshotSource(saved(tmp_path, database(ITEMS))) as source:
        assert value_of(source.before(b"/registry/a", 5)) == b"3"
        assert source.before(b"/registry/a", 4) == StoredValue(b"/registry/a", b"1", 2, 2, 1, 0)
        assert value_of(source.before(b"/registry/b", 5)) == b"2"
        # Not there yet, deleted, never there, before everything.
        assert source.before(b"/registry/a", 2) is None
        assert source.before(b"/registry/b", 6) is None
        assert source.before(b"/registry", 6) is None
        assert source.before(b"/registry/a", 0) is None


# Revisions.


def test_storage_version_wins_over_the_cluster_version(tmp_path: Path) -> None:
    path = tmp_path / "db"
    for storage, cluster, expected in [
        (b"3.6.0", b"3.5.0", "3.6.0"),
        (b"", b"3.5.0", "3.5.0"),
        (b"", b"", None),
        (b"\x1b[31m", b"3.5.0", None),
        (b"\xff" * 200, b"", None),
    ]:
        with path.open("wb+") as file:
            writer = BoltWriter(file)
            writer.bucket(b"cluster", [(b"clusterVersion", cluster)] if cluster else [], inline=True)
            writer.bucket(b"key", ITEMS)
            writer.bucket(b"meta", [(b"storageVersion", storage)] if storage else [], inline=True)
            writer.finish()
        with SnapshotSource(path) as source:
            assert source.describe().etcd_version == expected


# Damage.


def test_database_without_the_bucket_of_etcd(tmp_path: Path) -> None:
    path = tmp_path / "db"
    with path.open("wb+") as file:
        writer = BoltWriter(file)
        writer.bucket(b"blobs", [])
        writer.bucket(b"ind\x1bex", [])
        writer.finish()
    with pytest.raises(NotASnapshot, match=r"no bucket `key` \(buckets: blobs, ind\\x1bex\)"):
        SnapshotSource(path)


def patched(image: bytes, offset: int, layout: str, *numbers: int) -> bytes:
    out = bytearray(image)
    struct.pack_into(layout, out, offset, *numbers)
    return bytes(out)


def test_damage_in_the_root_page_is_not_mistaken_for_a_foreign_database(tmp_path: Path) -> None:
    image = database(ITEMS)
    root = read_metas(image)[0][0].root
    path = saved(tmp_path, patched(image, root * 4096 + 16 + 8, "<I", 0xFFFF_FFFF))
    with pytest.raises(PageCorrupt, match=f"nothing can be read: page {root}: leaf element 0 lies") as caught:
        SnapshotSource(path)
    assert str(caught.value).startswith(str(path))


def many(later: int = 0) -> list[tuple[bytes, bytes]]:
    """Revisions for several leaf pages; the last ten are of a later moment."""
    revisions = [number + (later if number > 190 else 0) for number in range(1, 201)]
    return [put(number, b"/registry/%05d" % at, bytes(300)) for at, number in enumerate(revisions)]


def test_a_copy_of_several_moments_is_not_taken_for_whole(tmp_path: Path) -> None:
    """The last page of keys was written again meanwhile: 490 revisions are missing, and every page is whole."""
    image, later = database(many()), database(many(later=500))
    branch = next(at for at in range(0, len(image), 4096) if image[at + 8] == 1)
    mixed = image[: branch - 4096] + later[branch - 4096 : branch] + image[branch:]
    with SnapshotSource(saved(tmp_path, mixed)) as source:
        list(source.current(b""))
        assert "begins with another key than the page above it says, as in a copy made" in source.problems[0]
        assert source.problems[-1] == base.DAMAGE_NOTE


@pytest.mark.parametrize(
    ("cut", "trailer", "hint"),
    [
        (
            None,
            False,
            "a copy made while etcd writes is of several moments: save one with `etcdctl snapshot save FILE`",
        ),
        (None, True, "copy the file again, or save a new one"),
        (3 * 4096, False, "the file was cut: copy the file again, or save a new one"),
        (3 * 4096 + 100, False, "the file was cut: copy the file again, or save a new one"),
    ],
)
def test_where_nothing_can_be_read_the_hint_is_that_of_the_damage(
    tmp_path: Path, cut: int | None, trailer: bool, hint: str
) -> None:
    image = database(many(), trailer=trailer)
    root = read_metas(image)[0][0].root
    keys = image[2 * 4096 + 8 : 3 * 4096]  # of a page that holds keys, where the buckets were listed
    image = image[: root * 4096 + 8] + keys + image[(root + 1) * 4096 :]
    with pytest.raises(PageCorrupt, match="nothing can be read: page") as caught:
        SnapshotSource(saved(tmp_path, image[:cut]))
    assert caught.value.hint == f"{hint}; --salvage shows what is whole in it"
    assert ("its meta page promises" in caught.value.message) == (cut is not None)


@pytest.mark.parametrize(
    ("ids", "flags", "doubt"),
    [
        ([], 16, ""),
        ([2], 16, "its list of free pages names page 2, which is in use or named twice"),
        ([1], 16, "its list of free pages names page 1, which it does not have"),
        ([99], 16, "its list of free pages names page 99, which it does not have"),
        ([], 2, "should be its list of free pages, but is not"),
    ],
)
def test_a_file_that_etcd_cannot_restore(tmp_path: Path, ids: list[int], flags: int, doubt: str) -> None:
    image = database(many(), freelist=True)
    at = len(image) - 4096
    listed = struct.pack("<HHI", flags, len(ids), 0) + b"".join(
        number.to_bytes(8, "little") for number in ids
    )
    image = image[: at + 8] + listed.ljust(4088, b"\0")
    with SnapshotSource(saved(tmp_path, image + hashlib.sha256(image).digest())) as source:
        assert len(list(source.current(b""))) == 200
        assert source.problems == []
        warning = source.describe().warning
        assert doubt in warning
        assert bool(doubt) == warning.startswith("Do not restore this file")


def test_older_transaction_helps_when_the_newer_leads_nowhere(tmp_path: Path) -> None:
    image = database(ITEMS, txid=10)
    root = read_metas(image)[0][0].root
    # The newer meta, on page 0, points to a page that is none.
    newer = bytearray(image[:4096])
    struct.pack_into("<Q", newer, 16 + 16, root + 1)
    struct.pack_into("<Q", newer, 16 + 40, root + 5)
    struct.pack_into("<Q", newer, 16 + 56, fnv(bytes(newer[16 : 16 + 56])))
    with SnapshotSource(saved(tmp_path, bytes(newer) + image[4096:] + bytes(5 * 4096))) as source:
        assert pairs(source) == [(b"/registry/a", b"3")]
        assert any(
            "transaction 10 cannot be read, trying the one before it" in text for text in source.problems
        )
        assert source.problems[-1] == base.DAMAGE_NOTE
