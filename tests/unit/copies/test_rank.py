"""Which copy comes first, and whether it is of the object at the key."""

from __future__ import annotations

import pytest

from etcdfix.copies.model import Copy, Freshness, Life, LogProof, Place, Sameness, Wanted, Way
from etcdfix.copies.rank import alike, judged, ranked
from etcdfix.model import Confidence, GroupResource, Outcome

_KEY = b"/registry/secrets/shop/db"
_LIFE = Life(create_revision=10, mod_revision=50, version=5, uid="u1", uid_from="mod_revision 40 in etcd")


def _wanted(life: Life = _LIFE) -> Wanted:
    return Wanted(key=_KEY, resource=GroupResource("", "secrets"), value_sha256="sha256:now", life=life)


def _copy(place: Place = Place.REVISION, **fields: object) -> Copy:
    how: dict[str, object] = {
        "where": "there",
        "source": "revision:1",
        "mod_revision": 40,
        "create_revision": 10,
        "version": 4,
        "outcome": Outcome.READABLE,
        "value_sha256": "sha256:then",
        **fields,
    }
    return Copy(key=_KEY, place=place, **how)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("copy", "life", "same"),
    [
        (_copy(uid="u1", create_revision=3), _LIFE, Sameness.SAME),
        (_copy(uid="u2"), _LIFE, Sameness.OTHER),
        # Of a generation the uid is one, but only etcd's own history tells generations.
        (_copy(), Life(create_revision=10, mod_revision=50), Sameness.SAME),
        (_copy(create_revision=9), Life(create_revision=10, mod_revision=50), Sameness.UNKNOWN),
        # Where the object's uid is known, a value without one needs a person's word.
        (_copy(), _LIFE, Sameness.UNKNOWN),
        (_copy(Place.SNAPSHOT), Life(create_revision=10, mod_revision=50), Sameness.UNKNOWN),
        (_copy(Place.BACKUP, uid="u1"), Life(create_revision=10), Sameness.UNKNOWN),
        (_copy(Place.BIT, mod_revision=50), Life(mod_revision=50), Sameness.SAME),
        (_copy(Place.BIT, mod_revision=50, uid="u2"), _LIFE, Sameness.OTHER),
        (_copy(Place.MEMORY, mod_revision=50, create_revision=0), Life(mod_revision=50), Sameness.SAME),
        (_copy(Place.MEMORY, mod_revision=49, create_revision=0), Life(mod_revision=50), Sameness.UNKNOWN),
        (
            _copy(Place.LOG, log=LogProof(entry=7, create_revision=10)),
            Life(create_revision=10),
            Sameness.SAME,
        ),
        (_copy(Place.LOG, log=LogProof(entry=7)), Life(create_revision=10), Sameness.UNKNOWN),
        (_copy(Place.LOG, log=LogProof(entry=7, deleted_at=60)), Life(), Sameness.SAME),
        (_copy(Place.SNAPSHOT, uid="u1", history=Sameness.OTHER), _LIFE, Sameness.OTHER),
    ],
)
def test_whether_it_is_of_the_object_at_the_key(copy: Copy, life: Life, same: Sameness) -> None:
    assert judged(copy, _wanted(life)).same_object is same


@pytest.mark.parametrize(
    ("copy", "fresh", "later"),
    [
        (_copy(mod_revision=50, version=5), Freshness.CURRENT, 0),
        (_copy(), Freshness.OLDER, 1),
        (_copy(create_revision=3), Freshness.OLDER, None),
        (_copy(mod_revision=51), Freshness.UNKNOWN, None),
        (_copy(mod_revision=0), Freshness.UNKNOWN, None),
        (_copy(Place.SNAPSHOT, history=Sameness.UNKNOWN), Freshness.UNKNOWN, None),
    ],
)
def test_what_was_written_after_it(copy: Copy, fresh: Freshness, later: int | None) -> None:
    found = judged(copy, _wanted())
    assert (found.freshness, found.later_writes) == (fresh, later)


def test_the_order() -> None:
    """Each of these comes before the next."""
    best_first = [
        _copy(Place.BIT, mod_revision=50, uid="u1"),
        _copy(Place.MEMORY, mod_revision=50, uid="u1"),
        _copy(Place.LOG, uid="u1", sure=Confidence.LIKELY, mod_revision=45),
        _copy(uid="u1"),
        _copy(Place.SNAPSHOT, uid="u1"),
        _copy(uid="u1", mod_revision=39),
        _copy(Place.CANDIDATE, way=Way.SEAL, mod_revision=50, uid="u1"),
        _copy(uid="u1", doubt="something", mod_revision=45),
        _copy(Place.SNAPSHOT),
        _copy(uid="u2", mod_revision=49, create_revision=3),
        _copy(uid="u1", mod_revision=49, outcome=Outcome.DECODE_FAILURE),
    ]
    found = ranked(reversed(best_first), _wanted())
    assert [(one.place, one.mod_revision, one.uid) for one in found] == [
        (one.place, one.mod_revision, one.uid) for one in best_first
    ]


def test_two_that_differ_in_nothing_but_their_value() -> None:
    one, other = (
        _copy(Place.SNAPSHOT, value_sha256="sha256:a"),
        _copy(Place.SNAPSHOT, value_sha256="sha256:b"),
    )
    assert alike(one, other)
    assert not alike(one, one)
    assert not alike(one, _copy(Place.SNAPSHOT, value_sha256="sha256:b", mod_revision=41))


def test_bytes_that_changed_under_the_same_write_are_doubtful() -> None:
    assert "changed on disk" in judged(_copy(mod_revision=50), _wanted()).doubt
    assert "another history" in judged(_copy(Place.SNAPSHOT, mod_revision=51), _wanted()).doubt
