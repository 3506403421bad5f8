"""What stands under keys now, in kine's file, and what is said where that is not what was examined."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from etcdfix.model.errors import SourceError
from etcdfix.model.model import ClusterIdentity, StoredValue
from etcdfix.model.rules import Rule
from etcdfix.model.storagekey import StorageLayout
from etcdfix.remediation.datastore import (
    Expected,
    KeyReading,
    KineNow,
    Landmark,
    Landmarks,
    Sighting,
    find_difference,
    find_elsewhere,
)
from etcdfix.remediation.same_etcd import EtcdComparison, Recorded, compare_with_etcd
from etcdfix.sources.errors import RevisionCompacted
from etcdfix.sources.kine import KineSource
from tests.support.kine import KineWriter

KEY = b"/registry/secrets/shop/db"
KUBE_SYSTEM = b"/registry/namespaces/kube-system"
LAYOUT = StorageLayout("/registry")


@pytest.fixture
def k3s(tmp_path: Path) -> Iterator[KineWriter]:
    writer = KineWriter(tmp_path / "state.db")
    writer.put(KUBE_SYSTEM, b"a namespace")
    for number in range(5):
        writer.put(b"/registry/serviceaccounts/shop/%d" % number, b"an account")
    writer.put(KEY, b"first")
    yield writer
    writer.close()


@pytest.fixture
def now(k3s: KineWriter) -> Iterator[KineNow]:
    with KineSource(k3s.path) as source:
        yield KineNow(source)


def test_a_key_is_read_as_it_stands_at_the_question(k3s: KineWriter, now: KineNow) -> None:
    """Of the past it tells nothing: a record of another file is told by its path."""
    before = now.read_key(KEY).stored
    written = k3s.put(KEY, b"second")
    after = now.read_key(KEY)
    assert before is not None
    assert after.stored is not None
    assert (after.stored.value, after.stored.mod_revision) == (b"second", written)
    assert after.stored.create_revision == before.mod_revision
    assert (before.value, after.revision) == (b"first", written)
    with pytest.raises(RevisionCompacted):
        now.read_at(KEY, k3s.newest)
    gone = k3s.delete(KEY)
    assert now.read_key(KEY) == KeyReading(stored=None, revision=gone, cluster_id=0, member_id=0)


def test_a_record_is_not_said_to_be_compacted(k3s: KineWriter, now: KineNow) -> None:
    """Nothing is: the past is not asked. What can be held against the record still is."""
    recorded = Recorded(
        key=KEY, mod_revision=1, value_sha256="", revision=1, cluster_id="0", identity=ClusterIdentity()
    )
    assert compare_with_etcd(now, recorded, ClusterIdentity(), now.read_key(KEY)) == EtcdComparison()
    later = msgspec.structs.replace(recorded, revision=k3s.newest + 1)
    assert compare_with_etcd(now, later, ClusterIdentity(), now.read_key(KEY)).is_older


def test_a_compaction_moves_nothing(k3s: KineWriter, now: KineNow) -> None:
    """kine counts no versions: what can be counted of them goes with what is compacted."""
    k3s.put(KEY, b"second")
    k3s.put(KEY, b"third")
    expected = Expected(key=KEY, stored=now.read_key(KEY).stored, landmarks=now.landmarks(LAYOUT, target=KEY))
    k3s.compact(k3s.newest)
    k3s.checkpoint("TRUNCATE")
    assert find_difference(expected, now.sight(KEY, expected.landmarks)) is None
    moved = k3s.put(KEY, b"third")
    seen = now.sight(KEY, expected.landmarks)
    difference = find_difference(expected, seen)
    assert (seen.reading.revision, difference and difference.rule) == (moved, Rule.MOVED)


def test_landmarks_are_kube_system_and_what_was_made_last(k3s: KineWriter, now: KineNow) -> None:
    found = now.landmarks(LAYOUT, target=KEY)
    assert found == Landmarks(
        (
            Landmark(KUBE_SYSTEM, 2),
            *(Landmark(b"/registry/serviceaccounts/shop/%d" % number, 3 + number) for number in (4, 3, 2)),
        ),
        k3s.newest,
    )
    assert now.landmarks(LAYOUT, target=KUBE_SYSTEM).marks == found.marks[1:]
    marks = found.with_mark(Landmark(b"/registry/secrets/shop/home", 0, 0))
    last = marks.marks[1].key
    k3s.delete(last)
    again = k3s.put(last, b"again")
    written = k3s.put(marks.marks[2].key, b"changed")
    seen = now.sight(KEY, marks)
    assert (seen.reading.revision, seen.revisions) == (written, (2, again, 6, 5, 0))
    k3s.delete(KUBE_SYSTEM)
    assert now.landmarks(LAYOUT, target=KEY).marks[0] == Landmark(KUBE_SYSTEM, 0)  # a landmark too


def test_a_file_that_cannot_be_read_whole_decides_nothing(k3s: KineWriter, now: KineNow) -> None:
    k3s.checkpoint("TRUNCATE")
    k3s.connection.close()
    raw = bytearray(k3s.path.read_bytes())
    page = 4096
    raw[2 * page + 8 : 3 * page] = b"\xff" * (page - 8)
    k3s.path.write_bytes(raw)
    for ask in (
        lambda: now.read_key(KEY),
        lambda: now.sight(KEY, Landmarks()),
        lambda: now.landmarks(LAYOUT, target=KEY),
    ):
        with pytest.raises(SourceError):
            ask()


NS = b"/r/namespaces/kube-system"
MARKS = (Landmark(NS, 2), Landmark(b"/r/namespaces/shop", 40))
HOME = Landmark(b"/r/secrets/shop/home", 41, 43)


def seen_as(revision: int, *revisions: int, stored: StoredValue | None = None) -> Sighting:
    reading = KeyReading(stored=stored, revision=revision, cluster_id=1, member_id=1)
    return Sighting(reading=reading, revisions=revisions)


def test_one_on_which_the_change_rests_takes_the_place_of_the_same() -> None:
    """It must not have been written since either."""
    rested = Landmark(MARKS[1].key, 40, 44)
    assert Landmarks(MARKS, 50).with_mark(rested) == Landmarks((MARKS[0], rested), 50)
    assert Landmarks(MARKS, 50).with_mark(HOME) == Landmarks((*MARKS, HOME), 50)
    assert (HOME.compared, MARKS[0].compared) == (("mod_revision", 43), ("create_revision", 2))


@pytest.mark.parametrize(
    ("marks", "revisions", "revision", "words"),
    [
        (MARKS, (2, 40), 50, ""),
        (MARKS, (2, 40), 99, ""),
        (MARKS, (2, 39), 99, "shop was made at revision 39 here, and at 40 there"),
        (MARKS, (2, 50), 99, "shop was made at revision 50 here, and at 40 there"),
        (MARKS, (3, 0), 99, "kube-system was made at revision 3 here, and at 2 there"),
        # One that is certain counts more than one that is not, and than what comes before it.
        (MARKS, (0, 39), 99, "shop was made at revision 39 here, and at 40 there"),
        ((Landmark(NS, 0),), (7,), 99, "kube-system was made at revision 7 here, and did not exist there"),
        (MARKS, (2, 40), 49, "etcd stands at revision 49 here, and stood at 50 there"),
        (MARKS, (2, 0), 49, "etcd stands at revision 49 here, and stood at 50 there"),
        ((HOME,), (43,), 50, ""),
        ((HOME,), (42,), 60, "home was written at revision 42 here, and at 43 there"),
        # What may have happened since.
        (MARKS, (2, 0), 60, "shop is gone: since"),
        (MARKS, (2, 51), 60, "shop was made at revision 51: since"),
        ((Landmark(NS, 0),), (51,), 60, "kube-system was made at revision 51: since"),
        (MARKS, (0, 0), 60, "/r/namespaces/kube-system is gone; /r/namespaces/shop is gone: since"),
        ((HOME,), (51,), 60, "home was written at revision 51: since"),
    ],
)  # fmt: skip
def test_whether_it_is_another_cluster(
    marks: tuple[Landmark, ...], revisions: tuple[int, ...], revision: int, words: str
) -> None:
    found = find_elsewhere(Landmarks(marks, 50), seen_as(revision, *revisions))
    if not words:
        assert found is None
        return
    assert found is not None
    assert words in found.text
    certain = not words.endswith("since")
    certainly = "this is another cluster or a restored copy, not the one that was examined: "
    assert found.text.startswith(certainly) is certain
    assert found.hint.startswith("if you know that this was done just now, try again") is not certain


EXAMINED = StoredValue(b"k", b"examined", 5, 4, 2, 0)


def test_what_proves_another_cluster_is_said_before_the_value() -> None:
    """There the key may have gone any way; that it moved would be a lie."""
    expected = Expected(key=b"k", stored=EXAMINED, landmarks=Landmarks((Landmark(b"/n", 3),), 9))
    for present in (None, msgspec.structs.replace(EXAMINED, value=b"other")):
        found = find_difference(expected, seen_as(9, 2, stored=present))
        assert found is not None
        assert found.rule is Rule.OTHER_CLUSTER
        assert "/n was made at revision 2 here, and at 3 there" in found.text
    same = msgspec.structs.replace(expected, landmarks=Landmarks())
    for change in ({"value": b"other"}, {"lease": 7}):
        other = find_difference(same, seen_as(9, stored=msgspec.structs.replace(EXAMINED, **change)))
        assert other is not None
        assert "this is another cluster or a restored copy, or members disagree" in other.text
