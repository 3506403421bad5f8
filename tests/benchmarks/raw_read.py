"""Read every page of a live etcd with our own client, and throw it away: what reading alone costs.

``python -m tests.benchmarks.raw_read HOST:PORT`` prints how many keys and bytes there were.
"""

from __future__ import annotations

import sys

from etcdfix.sources.connection import EtcdConnection
from etcdfix.sources.etcd.client import EtcdClient
from etcdfix.sources.etcd.paging import PageSize, RangeEnd, after, bounds_of
from etcdfix.wire.etcd import RANGE, message

PAGE_SECONDS = 60.0


def read_all(endpoint: str) -> tuple[int, int]:
    """Read as a scan does: pages of the same sizes and ranges, the next one asked for before the last is looked at.

    Returns:
        The number of keys, and the bytes of all answers.
    """
    client = EtcdClient(EtcdConnection(endpoints=(endpoint,)), on_notice=lambda _notice: None)
    page = PageSize()
    keys = size = revision = 0
    start, end = bounds_of(b"")
    reach = RangeEnd(end)
    try:
        pending = client.ask(
            RANGE,
            message("RangeRequest")(key=start, range_end=end, limit=page.limit),
            timeout_seconds=PAGE_SECONDS,
        )
        while True:
            found, answer = client.answer(pending)
            revision = revision or found.header.revision
            keys, size = keys + len(found.kvs), size + len(answer)
            if not found.more and reach.guess == end:
                break
            start = after(found.kvs[-1].key) if found.kvs else start
            if found.more:
                page.learn(len(answer), len(found.kvs))
                first, last = found.kvs[0].key, found.kvs[-1].key
                reach.learn(first, last, len(found.kvs), found.count, page.limit)
            else:
                reach.widen()
            request = message("RangeRequest")(
                key=start, range_end=reach.guess, limit=page.limit, revision=revision
            )
            pending = client.ask(RANGE, request, timeout_seconds=PAGE_SECONDS)
    finally:
        client.close()
    return keys, size


if __name__ == "__main__":
    print("{} keys, {} bytes".format(*read_all(sys.argv[1])))
