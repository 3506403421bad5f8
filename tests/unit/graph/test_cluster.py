"""The pass over everything: what is kept, what is counted, what is in the way of a whole picture."""

from __future__ import annotations

import itertools
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest

from etcdfix.commands.explaining.impact import impact_of
from etcdfix.commands.namespace import concerns_namespace, namespace_report
from etcdfix.commands.orphans import orphans_report
from etcdfix.errors import SourceError
from etcdfix.examine import Reading
from etcdfix.graph.cluster import ClusterIndex, index_cluster
from etcdfix.sources.pages import Page
from etcdfix.storagekey import StorageLayout
from tests.support.breaking_in import Heard, heard
from tests.support.impact_objects import Cluster, owner
from tests.support.memory_source import MemorySource, stored
from tests.support.objects import json_object

LAYOUT = StorageLayout("/registry")
SEALED = b"k8s:enc:aescbc:v1:key1:" + bytes(48)


def look(source: MemorySource, **settings: Any) -> ClusterIndex:
    settings.setdefault("keep", lambda _found: False)
    return index_cluster(source, Reading(layout=LAYOUT), **settings)


def test_no_more_than_a_thousand_examinations_are_kept() -> None:
    values = {f"/registry/secrets/shop/s-{n:04}": SEALED for n in range(1100)}
    found = look(MemorySource(values), keep=lambda _found: True)
    assert len(found.kept) == 1000
    assert found.undetermined == 1100


def test_what_matters_more_takes_the_place_of_what_matters_less() -> None:
    values = {f"/registry/secrets/shop/s-{n:04}": SEALED for n in range(1100)}
    values |= {f"/registry/services/specs/shop/{n}": SEALED for n in range(3)}
    weights = {"secrets": 1, "services": 2}
    found = look(MemorySource(values), keep=lambda e: weights[e.directory.resource])
    assert len(found.kept) == 1000
    assert sum(key.startswith(b"/registry/services/") for key in found.kept) == 3
    assert b"/registry/secrets/shop/s-0000" in found.kept
    # What comes too late and matters no more does not.
    found = look(MemorySource(values), keep=lambda e: 3 - weights[e.directory.resource])
    assert not any(key.startswith(b"/registry/services/") for key in found.kept)


def test_groups_of_aggregated_apis_are_known_by_their_service_and_supposed_where_it_cannot_be_read() -> None:
    cluster = Cluster()
    services: list[tuple[str, object]] = [
        ("v1.wardle.example.com", {"name": "wardle", "namespace": "wardle"}),
        ("v1.apps", None),
        ("v1.example.com", None),
    ]
    for name, service in services:
        spec = {"group": name.partition(".")[2], "version": "v1", "service": service}
        key = cluster.key("apiregistration.k8s.io/apiservices", "", name)
        cluster.values[key] = json_object("apiregistration.k8s.io/v1", "APIService", name, "", spec=spec)
    cluster.break_(cluster.key("apiregistration.k8s.io/apiservices", "", "v1.broken.example.com"))
    assert look(cluster.source()).aggregated == {"wardle.example.com", "broken.example.com"}


def test_every_key_passes_the_display() -> None:
    cluster = Cluster()
    cluster.pod("a")
    cluster.pod("b")
    seen: list[tuple[str, int | None, int]] = []

    def watch(items: Iterator[Any], label: str, estimate: int | None) -> Iterator[Any]:
        passed = list(items)
        seen.append((label, estimate, sum(len(item) if isinstance(item, Page) else 1 for item in passed)))
        return iter(passed)

    look(cluster.source(), progress=watch)
    assert seen == [("keys", None, 2), ("values checked a second time", 0, 0)]


def test_a_source_that_gives_nothing_is_an_error_and_one_that_breaks_off_a_problem() -> None:
    records = [stored("/registry/pods/shop/a"), stored("/registry/pods/shop/b")]
    with pytest.raises(SourceError):
        look(MemorySource(records, fails_after=0))
    found = look(MemorySource(records, fails_after=1, problems=["a page is damaged"]))
    assert found.incomplete_reasons(0) == [
        "a page is damaged",
        "the source was lost midway: the connection was lost",
    ]


def owned_by_each_other() -> Cluster:
    cluster = Cluster()
    cluster.namespace("shop", terminating=True)
    cluster.define("example.com", "Widget")
    for n in range(4):
        cluster.secret(f"s{n}")
        cluster.pod(f"p{n}", owners=(owner("ReplicaSet", "r1"),))
        cluster.add("example.com/v1", "Widget", f"w{n}", "shop", owners=(owner("Pod", f"p{n}"),))
    cluster.break_(cluster.secret("broken"))
    return cluster


@pytest.mark.thorough
def test_after_a_signal_at_any_moment_every_report_comes_out() -> None:
    """It is heard when a function of the index begins, or has come back from C; each 31st of these moments is tried."""
    cluster, layout = owned_by_each_other(), StorageLayout()
    request, keys = Reading(layout=layout, configuration=None), list(cluster.values)
    left, ended = 0, Counter[bool]()

    def at_its_moment(frame: FrameType, event: str, _argument: object) -> None:
        nonlocal left
        if event in {"call", "c_return"} and "/graph/" in frame.f_code.co_filename:
            left -= 1
            if left == 0:
                signal.raise_signal(signal.SIGTERM)

    for moment in itertools.count(1, 31):
        left, found = moment, None
        with heard():
            sys.setprofile(at_its_moment)
            try:
                found = index_cluster(cluster.source(), request, keep=concerns_namespace(layout, "shop"))
            except Heard:
                pass  # after the pass
            finally:
                sys.setprofile(None)
        if found is not None:
            ended[found.ended is not None] += 1
            namespace_report(found, "shop")
            orphans_report(found)
            for key in keys:
                impact_of(found, key.encode(), found.kept.get(key.encode()))
        if left > 0:
            break
    assert ended[True] > 50
