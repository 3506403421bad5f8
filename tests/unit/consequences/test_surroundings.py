"""The pass over everything: what is kept, what is counted, what is in the way of a whole picture."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from etcdfix.consequences import Surroundings, SurroundingsRequest, look_around
from etcdfix.errors import SourceError
from etcdfix.storagekey import StorageLayout
from tests.support.impact_objects import Cluster
from tests.support.memory_source import MemorySource, stored

LAYOUT = StorageLayout("/registry")
SEALED = b"k8s:enc:aescbc:v1:key1:" + bytes(48)


def look(source: MemorySource, **settings: Any) -> Surroundings:
    settings.setdefault("keep", lambda _found: False)
    return look_around(source, SurroundingsRequest(layout=LAYOUT), **settings)


def test_no_more_than_a_thousand_examinations_are_kept() -> None:
    values = {f"/registry/secrets/shop/s-{n:04}": SEALED for n in range(1100)}
    found = look(MemorySource(values), keep=lambda _found: True)
    assert len(found.kept) == 1000
    assert found.undetermined == 1100


def test_every_key_passes_the_display() -> None:
    cluster = Cluster()
    cluster.pod("a")
    cluster.pod("b")
    seen: list[tuple[str, int | None, int]] = []

    def watch(items: Iterator[Any], label: str, estimate: int | None) -> Iterator[Any]:
        passed = list(items)
        seen.append((label, estimate, len(passed)))
        return iter(passed)

    look(cluster.source(), watch=watch)
    assert seen == [("keys", None, 2), ("waiting for KMS", 0, 0)]


def test_a_source_that_gives_nothing_is_an_error_and_one_that_breaks_off_a_problem() -> None:
    records = [stored("/registry/pods/shop/a"), stored("/registry/pods/shop/b")]
    with pytest.raises(SourceError):
        look(MemorySource(records, fails_after=0))
    found = look(MemorySource(records, fails_after=1, problems=["a page is damaged"]))
    assert found.incomplete_reasons(0) == [
        "a page is damaged",
        "the source was lost midway: the connection was lost",
    ]


def test_another_prefix_is_suggested() -> None:
    found = look(MemorySource({"/kubernetes.io/pods/shop/a": b"", "/kubernetes.io/secrets/shop/b": b""}))
    assert (found.below_prefix, found.suggested_prefixes) == (False, ["/kubernetes.io"])


def test_the_head_of_a_report_says_what_was_read() -> None:
    cluster = Cluster()
    cluster.namespace("kube-system", uid="uid-of-the-cluster")
    origin = look(cluster.source()).origin()
    assert origin["source"].kube_system_uid == "uid-of-the-cluster"
    assert (origin["source"].type, origin["encryption_config"]) == ("snapshot", None)


def test_keys_that_cannot_be_typed_are_given_as_bytes_too() -> None:
    found = look(MemorySource([stored(b"/registry/secrets/shop/\xff"), stored("/registry/secrets/shop/a")]))
    entries = sorted((found.entry(node) for node in found.index.nodes()), key=lambda e: e.key)
    assert [(e.name, e.key_base64) for e in entries] == [
        ("\\xff", "L3JlZ2lzdHJ5L3NlY3JldHMvc2hvcC//"),
        ("a", None),
    ]
