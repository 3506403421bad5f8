"""Rings of waits: the work for a namespace with very many pods."""

from __future__ import annotations

import sys

import pytest

from etcdfix.graph.cycles import cyclic_waits
from tests.support.impact_objects import Cluster


@pytest.mark.parametrize("finalizer", ["example.com/wait-for-secrets", "example.com/secret-3"])
def test_the_work_grows_with_the_objects_and_no_faster(finalizer: str) -> None:
    """Calls of functions are counted, not seconds."""

    def calls(count: int) -> int:
        cluster = Cluster()
        cluster.namespace("shop")
        for number in range(count):
            cluster.pod(f"pod-{number}", "shop", finalizers=(f"{finalizer}-{number}", finalizer))
            cluster.secret(f"secret-{number}", "shop")
        index = cluster.index()
        inside = [node for node in index.nodes() if index.place(node)[1] == "shop"]
        counted = 0

        def note(*_: object) -> None:
            nonlocal counted
            counted += 1

        sys.setprofile(note)
        try:
            found = cyclic_waits(index, inside)
        finally:
            sys.setprofile(None)
        assert 0 < len(found) <= 100
        return counted

    calls(2)
    few, many = calls(96), calls(384)  # more objects than the index keeps places of
    assert many < 5 * few
