"""Several etcds as one source: each key from where its API server looks for it, and from nowhere else."""

from __future__ import annotations

import msgspec

from etcdfix.model import StoredValue
from etcdfix.sources.base import Segment
from etcdfix.sources.pages import values_of
from etcdfix.sources.several import SeveralSources
from tests.support.memory_source import MemorySource, stored

EVENTS, LEASES = b"/registry/events/", b"/registry/leases/"


def values(*keys: str, revision: int) -> list[StoredValue]:
    return [stored(key, mod_revision=revision) for key in keys]


def several(said: list[str] | None = None) -> SeveralSources:
    main = MemorySource(
        values(
            "/a", "/registry/configmaps/x/a", "/registry/events/x/old", "/registry/pods/x/a", "/z", revision=5
        )
    )
    other = MemorySource(
        values(
            "compact_rev_key",
            "/registry/events/x/new",
            "/registry/leases/x/l",
            "/registry/pods/x/b",
            revision=70,
        )
    )
    return SeveralSources(
        main, {LEASES: other, EVENTS: other}, on_notice=(said if said is not None else []).append
    )


def keys(source: SeveralSources, prefix: bytes) -> list[tuple[str, int]]:
    return [(one.key.decode(), one.mod_revision) for one in source.current(prefix)]


def test_each_key_comes_from_its_own_etcd_in_the_order_of_all() -> None:
    said: list[str] = []
    source = several(said)
    assert keys(source, b"") == [
        ("/a", 5),
        ("/registry/configmaps/x/a", 5),
        ("/registry/events/x/new", 70),
        ("/registry/leases/x/l", 70),
        ("/registry/pods/x/a", 5),
        ("/z", 5),
    ]
    assert [one.key for one in values_of(source.pages(b""))] == [one.key for one in source.current(b"")]
    assert said[0].startswith("left out: 1 key of the main etcd")


def test_a_part_is_read_from_where_it_is() -> None:
    source = several()
    assert keys(source, EVENTS + b"x/") == [("/registry/events/x/new", 70)]
    assert keys(source, b"/registry/pods/") == [("/registry/pods/x/a", 5)]
    assert source.get(b"/registry/events/x/old") is None
    assert source.get(b"/registry/pods/x/b") is None
    assert source.get(b"/registry/leases/x/l") is not None


def test_what_was_overwritten_is_told_of_its_own_etcd_alone() -> None:
    assert {one.key for one in several().superseded()} <= {b"/registry/events/x/new", b"/registry/pods/x/a"}


def test_segments_tell_at_which_revision_of_its_own_each_was_read() -> None:
    source = several()
    list(source.current(b""))
    described = source.describe()
    assert not described.single_revision
    main = described.revision
    other = MemorySource(values("/registry/events/x/new", revision=70)).describe().revision
    at = {segment.from_key: segment.revision for segment in described.segments}
    assert at["/registry/events/"] == other
    assert at["/registry/leases/"] == other
    assert at["/registry/leases0"] == main
    assert list(described.segments) == sorted(described.segments, key=lambda segment: segment.from_key)


def test_a_segment_of_the_main_etcd_inside_another_ones_keys_counts_behind_them() -> None:
    class Compacted(MemorySource):
        def describe(self):  # type: ignore[no-untyped-def]
            moved = (Segment("", 5), Segment("/registry/events/x/m", 9))
            return msgspec.structs.replace(super().describe(), segments=moved)

    other = MemorySource(values("/registry/events/x/new", revision=70))
    source = SeveralSources(Compacted([]), {EVENTS: other}, on_notice=lambda _said: None)
    assert [(one.from_key, one.revision) for one in source.describe().segments] == [
        ("", 5),
        ("/registry/events/", other.describe().revision),
        ("/registry/events0", 9),
    ]
