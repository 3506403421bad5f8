"""Sizes as a person reads them."""

from __future__ import annotations

import io

import msgspec
import pytest

from etcdfix.operations.look.index_cluster import ClusterIndexRequest, index_cluster
from etcdfix.operations.look.orphans import orphans_report
from etcdfix.report.formats.orphans import write_table
from tests.support.impact_objects import Cluster


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (1, "1 byte"),
        (1023, "1023 bytes"),
        (1024, "1.0 KiB"),
        (3 << 19, "1.5 MiB"),
        (5 << 30, "5.0 GiB"),
    ],
)
def test_sizes(size: int, words: str) -> None:
    cluster = Cluster()
    cluster.values["/registry/strange/thing"] = b"x"
    found = index_cluster(
        cluster.source(), ClusterIndexRequest(layout=cluster.layout), keep=lambda _found: False
    )
    report = msgspec.structs.replace(orphans_report(found), size=size)
    stream = io.BytesIO()
    write_table(report, stream, 100)
    assert stream.getvalue().startswith(f"1 key of {words} belong to nobody\n".encode())
