"""Walking side by side: every key that differs is found, and none is made up where a stream ends early."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from etcdfix.commands.comparing.differences import Walk
from etcdfix.model import StoredValue
from tests.support.memory_source import stored

KEYS = [b"a", b"a\x00", b"a/b", b"b", b"c"]
Contents = dict[bytes, bytes]
_CONTENTS = st.dictionaries(st.sampled_from(KEYS), st.sampled_from([b"1", b"2"]))


def values(contents: Contents) -> list[StoredValue]:
    return [stored(key, contents[key]) for key in sorted(contents)]


@given(st.lists(_CONTENTS, min_size=2, max_size=4), st.sets(st.integers(0, 3)))
def test_as_a_naive_comparison(all_of_them: list[Contents], partial: set[int]) -> None:
    walk = Walk([iter(values(one)) for one in all_of_them], lambda at: at not in partial)
    found = {differing.key: differing for differing in walk}
    keys = {key for one in all_of_them for key in one}
    unknown = 0
    for key in keys:
        known = {one.get(key) for at, one in enumerate(all_of_them) if key in one or at not in partial}
        assert (key in found) == (len(known) > 1)
        unknown += len(known) == 1 and any(key not in one for one in all_of_them)
    assert list(found) == sorted(found)
    assert (walk.keys, walk.unknown) == (len(keys), unknown)
    for key, differing in found.items():
        assert [copy and copy.value for copy in differing.copies] == [one.get(key) for one in all_of_them]
        assert differing.unknown == {
            at for at, one in enumerate(all_of_them) if at in partial and key not in one
        }


def test_anything_of_a_record_counts() -> None:
    for changed in (
        stored("k", b"v", mod_revision=8),
        stored("k", b"v", create_revision=6),
        stored("k", b"v", version=3),
        stored("k", b"v", lease=1),
    ):
        assert len(list(Walk([iter([stored("k", b"v")]), iter([changed])], lambda _at: True))) == 1
