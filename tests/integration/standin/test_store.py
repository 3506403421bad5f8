"""What a stand-in asks of its store: kine's database answers as the dictionary does, which counts as etcd."""

from __future__ import annotations

import shutil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etcdfix.sources.kine import KineSource
from tests.support.apiserver import KineStore, MemoryStore
from tests.support.apiserver.store import Event, Store

KEYS = (b"/registry/secrets/shop/a", b"/registry/secrets/shop/b", b"/registry/secretsother/c")
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["put", "put", "delete", "late put", "late delete"]),
        st.sampled_from(KEYS),
        st.binary(),
    ),
    max_size=20,
)


def written(store: Store, what: str, key: bytes, value: bytes) -> int | None:
    held = store.get(key)
    at = (held.mod_revision if held else 0) + (1 if what.startswith("late") else 0)
    if what.endswith("put"):
        return store.put(key, value, mod_revision=at)
    return store.delete(key, mod_revision=at)


def without_versions(event: Event) -> tuple[object, ...]:
    entry, previous = event.entry, event.previous
    return (
        event.key,
        event.revision,
        entry and entry._replace(version=0),
        previous and (previous.value, previous.mod_revision),
    )


@settings(max_examples=40)
@given(STEPS)
def test_kine_answers_as_the_dictionary(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, bytes, bytes]]
) -> None:
    folder = tmp_path_factory.mktemp("store")
    memory, kine = MemoryStore(), KineStore(folder / "state.db")
    feeds = memory.feed(), kine.feed()
    for what, key, value in steps:
        assert written(kine, what, key, value) == written(memory, what, key, value)
        assert kine.revision() == memory.revision()
        told = [[without_versions(event) for event in feed.take()] for feed in feeds]
        assert told[0] == told[1]
    for prefix in (b"/registry/secrets/", b"/registry/", b"/elsewhere/"):
        expected, revision = memory.range(prefix)
        assert kine.range(prefix) == ([entry._replace(version=0) for entry in expected], revision)
    with KineSource(kine.path) as source:
        assert source.revision == kine.revision()
        found = {stored.key: (stored.value, stored.mod_revision) for stored in source.current(b"")}
    assert found == {entry.key: (entry.value, entry.mod_revision) for entry in memory.range(b"/")[0]}
    kine.close()
    shutil.rmtree(folder)
