from __future__ import annotations

import pytest

from etcdfix.remediation.landmarks import (
    LONG_LIVED,
    Landmark,
    Landmarks,
    find_elsewhere,
    other_bytes,
)
from etcdfix.storagekey import builtin_directories

KUBE_SYSTEM = b"/r/namespaces/kube-system"
MARKS = (Landmark(KUBE_SYSTEM, 2), Landmark(b"/r/namespaces/shop", 40))


def test_one_on_which_the_change_rests_takes_the_place_of_the_same() -> None:
    rested = Landmark(MARKS[1].key, 40, 44)
    assert Landmarks(MARKS, 50).with_mark(rested) == Landmarks((MARKS[0], rested), 50)
    other = Landmark(b"/r/secrets/shop/home", 41, 43)
    assert Landmarks(MARKS, 50).with_mark(other) == Landmarks((*MARKS, other), 50)


def test_one_on_which_the_change_rests_must_not_have_been_written() -> None:
    marks = Landmarks((Landmark(b"/r/secrets/shop/home", 41, 43),), 50)
    assert marks.marks[0].compared == ("mod_revision", 43)
    assert MARKS[0].compared == ("create_revision", 2)
    assert find_elsewhere(marks, (43,), 50) is None
    for seen, words in (
        (42, "home was last changed at revision 42 here"),
        (51, "was written again at revision 51"),
    ):
        found = find_elsewhere(marks, (seen,), 60)
        assert found is not None
        assert words in found.text


def test_their_directories_are_known_ones() -> None:
    known = {directory.path for directory in builtin_directories()}
    assert set(LONG_LIVED) <= known
    assert len(set(LONG_LIVED)) == len(LONG_LIVED)
    # Values are large there, or do not stay.
    assert not {"configmaps", "secrets", "pods", "events", "leases"} & set(LONG_LIVED)


# What they say.


@pytest.mark.parametrize(("seen", "revision"), [((2, 40), 50), ((2, 40), 99)])
def test_the_same_cluster(seen: tuple[int, ...], revision: int) -> None:
    assert find_elsewhere(Landmarks(MARKS, 50), seen, revision) is None


@pytest.mark.parametrize(
    ("marks", "seen", "revision", "words"),
    [
        (MARKS, (2, 39), 99, "/r/namespaces/shop was made at revision 39 here and at 40 there"),
        (MARKS, (2, 50), 99, "/r/namespaces/shop was made at revision 50 here and at 40 there"),
        (MARKS, (3, 0), 99, "/r/namespaces/kube-system was made at revision 3 here and at 2 there"),
        # One that is certain counts more than one that is not, and than what comes before it.
        (MARKS, (0, 39), 99, "/r/namespaces/shop was made at revision 39 here and at 40 there"),
        ((Landmark(KUBE_SYSTEM, 0),), (7,), 99, "/r/namespaces/kube-system was made at revision 7 here and did"),
        (MARKS, (2, 40), 49, "etcd stands at revision 49 here and stood at 50 there"),
        (MARKS, (2, 0), 49, "etcd stands at revision 49 here and stood at 50 there"),
    ],
)  # fmt: skip
def test_another_cluster_for_certain(
    marks: tuple[Landmark, ...], seen: tuple[int, ...], revision: int, words: str
) -> None:
    found = find_elsewhere(Landmarks(marks, 50), seen, revision)
    assert found is not None
    assert found.text.startswith(
        f"this is another cluster or a restored copy, not the one that was examined: {words}"
    )
    assert "try again" not in found.hint


@pytest.mark.parametrize(
    ("marks", "seen", "words"),
    [
        (MARKS, (2, 0), "/r/namespaces/shop is gone"),
        (MARKS, (2, 51), "/r/namespaces/shop was deleted and made again at revision 51"),
        ((Landmark(KUBE_SYSTEM, 0),), (51,), "/r/namespaces/kube-system was made at revision 51"),
        (MARKS, (0, 0), "/r/namespaces/kube-system is gone; /r/namespaces/shop is gone"),
    ],
)
def test_what_may_have_happened_since(marks: tuple[Landmark, ...], seen: tuple[int, ...], words: str) -> None:
    found = find_elsewhere(Landmarks(marks, 50), seen, 60)
    assert found is not None
    assert found.text == f"{words}: since it was examined, or this is another cluster or a restored copy"
    assert found.hint.startswith("if you know that this was done just now, try again")


def test_other_bytes_at_the_same_revisions() -> None:
    assert "this is another cluster or a restored copy, or members disagree" in other_bytes().text
