"""Times become revisions only where several objects agree; what contradicts itself tells nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from etcdfix.errors import SourceDenied
from etcdfix.examine import Examiner, Reading
from etcdfix.model import StoredValue
from etcdfix.operations.look.revision_times import Around, Landmark, landmarks_of, revisions_around
from etcdfix.storagekey import StorageLayout
from tests.support.memory_source import MemorySource, stored

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def marks(*places: tuple[int, int]) -> list[Landmark]:
    """Return landmarks: a revision, and how many minutes after noon it was written."""
    return [Landmark(revision, NOON + timedelta(minutes=minutes)) for revision, minutes in places]


def test_the_second_on_each_side_counts() -> None:
    around = marks((10, -50), (20, -40), (30, -30), (40, 30), (50, 40), (60, 50))
    assert revisions_around(NOON, around) == Around(20, 50)


def test_one_object_proves_nothing() -> None:
    assert revisions_around(NOON, marks((10, -50), (40, 30))) == Around(None, None)
    assert revisions_around(NOON, []) == Around(None, None)


def test_a_minute_is_left_on_both_sides() -> None:
    assert revisions_around(NOON, marks((10, -1), (20, 0), (30, 0), (40, 1))) == Around(None, None)


def test_an_old_time_at_a_new_revision_is_not_believed() -> None:
    """An object that was put back: what was written just before it is not old for that."""
    around = marks(*((n, -100 + n) for n in range(10, 30)), *((n, n) for n in range(50, 90)), (95, -90))
    assert revisions_around(NOON, around) == Around(28, 51)


def test_a_clock_that_is_ahead_does_not_make_old_values_new() -> None:
    found = revisions_around(
        NOON, marks((5, 10_000), *((n, -200 + n) for n in range(10, 90)), (100, 5), (101, 6))
    )
    assert found.after == 100
    assert found.before is None  # nothing stands before the one that is ahead


def test_many_contradictions_tell_nothing() -> None:
    """A datastore that was written anew, in the order of its keys."""
    mixed = marks(*((n, -100 if n % 2 else 100) for n in range(10, 60)))
    assert revisions_around(NOON, mixed) == Around(None, None)


def lease(renewed: object, created: object) -> bytes:
    return json.dumps(
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": "n", "namespace": "kube-node-lease", "creationTimestamp": created},
            "spec": {"renewTime": renewed},
        }
    ).encode()


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (
            lease("2026-03-01T12:00:00.000000Z", "2026-02-01T00:00:00Z"),
            [(3, datetime(2026, 2, 1, tzinfo=UTC)), (9, NOON)],
        ),
        (lease(None, None), []),
        (b"broken", []),
        (b"k8s:enc:kms:v2:prov:x", []),
    ],
)
def test_what_objects_state(value: bytes, expected: list[tuple[int, datetime]]) -> None:
    key = "/registry/leases/kube-node-lease/n"
    source = MemorySource([stored(key, value, mod_revision=9, create_revision=3)])
    examiner = Examiner.of_cluster(source, Reading(layout=StorageLayout()))
    assert landmarks_of(source, examiner) == [Landmark(*one) for one in expected]


def test_what_may_not_be_read_states_nothing() -> None:
    """A scan with few rights is a scan all the same."""

    class Denied(MemorySource):
        def current(self, prefix: bytes) -> Iterator[StoredValue]:
            if prefix == b"/registry/leases/":
                raise SourceDenied("permission denied")
            return super().current(prefix)

    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "n"}}
    pod["metadata"]["creationTimestamp"] = "2026-03-01T12:00:00Z"  # type: ignore[index]
    source = Denied([stored("/registry/pods/n/p", json.dumps(pod).encode(), create_revision=4)])
    examiner = Examiner.of_cluster(source, Reading(layout=StorageLayout()))
    assert landmarks_of(source, examiner) == [Landmark(4, NOON)]
