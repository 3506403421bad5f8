"""Clients of a test's own, beside those that the commands open."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from etcdfix.sources.connection import EtcdConnection
from etcdfix.sources.etcd.client import EtcdClient


@contextmanager
def connected(*endpoints: str, **options: Any) -> Iterator[EtcdClient]:
    """Open a client that says nothing; ``options`` are those of :class:`EtcdConnection`."""
    client = EtcdClient(EtcdConnection(endpoints=endpoints, **options), on_notice=lambda _notice: None)
    try:
        yield client
    finally:
        client.close()
