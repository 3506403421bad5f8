"""Read every page of a live etcd with our own client, and throw it away: what reading alone costs.

``python -m tests.benchmarks.raw_read HOST:PORT`` prints how many keys and bytes there were.
"""

from __future__ import annotations

import sys

from etcdfix.sources.connection import EtcdConnection
from etcdfix.sources.etcd.client import EtcdClient
from etcdfix.sources.etcd.paging import PageSize, after, bounds_of
from etcdfix.wire.etcd import RANGE, message

PAGE_SECONDS = 60.0


def read_all(endpoint: str) -> tuple[int, int]:
    """Read as a scan does: pages of the same sizes, the next one asked for before the last is looked at.

    Returns:
        The number of keys, and the bytes of all answers.
    """
    client = EtcdClient(EtcdConnection(endpoints=(endpoint,)), on_notice=lambda _notice: None)
    page = PageSize()
    keys = size = revision = 0
    start, end = bounds_of(b"")
    try:
        more = True
        pending = client.ask(
            RANGE,
            message("RangeRequest")(key=start, range_end=end, limit=page.limit),
            timeout_seconds=PAGE_SECONDS,
        )
        while more:
            found, answer = client.answer(pending)
            revision = revision or found.header.revision
            keys, size, more = keys + len(found.kvs), size + len(answer), found.more
            if more:
                page.learn(len(answer), len(found.kvs))
                request = message("RangeRequest")(
                    key=after(found.kvs[-1].key), range_end=end, limit=page.limit, revision=revision
                )
                pending = client.ask(RANGE, request, timeout_seconds=PAGE_SECONDS)
    finally:
        client.close()
    return keys, size


if __name__ == "__main__":
    print("{} keys, {} bytes".format(*read_all(sys.argv[1])))
