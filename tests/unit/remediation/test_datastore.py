"""What stands under keys now, in kine's file: what an etcd with the same objects answers, but for what kine lacks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from etcdfix.errors import RevisionCompacted, SourceError
from etcdfix.model import ClusterIdentity
from etcdfix.remediation.datastore import KineNow
from etcdfix.remediation.landmarks import Landmark, Landmarks, find_elsewhere
from etcdfix.remediation.preflight.members import KeyReading
from etcdfix.remediation.same_etcd import Held, Recorded, hold_against_history
from etcdfix.remediation.writer import Expected, evaluate_compare
from etcdfix.rules import Rule
from etcdfix.sources.kine import KineSource
from etcdfix.storagekey import StorageLayout
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
    opened = KineNow(KineSource(k3s.path))
    yield opened
    opened.close()


def test_a_key_is_read_as_it_stands_at_the_question(k3s: KineWriter, now: KineNow) -> None:
    before = now.read_key(KEY)
    written = k3s.put(KEY, b"second")
    after = now.read_key(KEY)
    assert (before.stored is not None, after.stored is not None) == (True, True)
    assert before.stored is not None
    assert after.stored is not None
    assert (before.stored.value, after.stored.value) == (b"first", b"second")
    assert (after.stored.mod_revision, after.revision) == (written, written)
    assert after.stored.create_revision == before.stored.mod_revision
    gone = k3s.delete(KEY)
    assert now.read_key(KEY) == KeyReading(stored=None, revision=gone, cluster_id=0, member_id=0)


def test_of_the_past_it_tells_nothing(k3s: KineWriter, now: KineNow) -> None:
    """A record of another file is told by its path."""
    with pytest.raises(RevisionCompacted):
        now.read_at(KEY, k3s.newest)


def test_a_record_is_not_said_to_be_compacted(k3s: KineWriter, now: KineNow) -> None:
    """Nothing is: the past is not asked. What can be held against the record still is."""
    recorded = Recorded(
        key=KEY, mod_revision=1, value_sha256="", revision=1, cluster_id="0", identity=ClusterIdentity()
    )
    assert hold_against_history(now, recorded, now.read_key(KEY)) == Held()
    later = msgspec.structs.replace(recorded, revision=k3s.newest + 1)
    assert hold_against_history(now, later, now.read_key(KEY)).is_older


def test_it_is_a_file(k3s: KineWriter, now: KineNow) -> None:
    assert now.file == k3s.path


def test_a_compaction_moves_nothing(k3s: KineWriter, now: KineNow) -> None:
    """kine counts no versions: what can be counted of them goes with what is compacted."""
    k3s.put(KEY, b"second")
    k3s.put(KEY, b"third")
    expected = Expected(key=KEY, stored=now.read_key(KEY).stored, landmarks=now.landmarks(LAYOUT, target=KEY))
    k3s.compact(k3s.newest)
    k3s.checkpoint("TRUNCATE")
    assert evaluate_compare(now, expected).difference is None
    moved = k3s.put(KEY, b"third")
    outlook = evaluate_compare(now, expected)
    assert outlook.revision == moved
    assert outlook.difference is not None
    assert outlook.difference.rule == Rule.MOVED


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


def test_no_kube_system_is_a_landmark_too(tmp_path: Path) -> None:
    writer = KineWriter(tmp_path / "other.db")
    writer.put(KEY, b"first")
    now = KineNow(KineSource(writer.path))
    assert now.landmarks(LAYOUT, target=KEY).marks == (Landmark(KUBE_SYSTEM, 0),)
    now.close()
    writer.close()


def test_a_sighting_shows_what_became_of_the_landmarks(k3s: KineWriter, now: KineNow) -> None:
    marks = now.landmarks(LAYOUT, target=KEY).with_mark(Landmark(b"/registry/secrets/shop/home", 0, 0))
    last = marks.marks[1].key
    k3s.delete(last)
    k3s.put(last, b"again")
    written = k3s.put(marks.marks[2].key, b"changed")
    seen = now.sight(KEY, marks)
    assert seen.reading.revision == written
    assert seen.revisions == (2, written - 1, 6, 5, 0)
    elsewhere = find_elsewhere(marks, seen.revisions, seen.reading.revision)
    assert elsewhere is not None
    assert "was deleted and made again" in elsewhere.text


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
