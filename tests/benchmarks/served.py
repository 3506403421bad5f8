"""A real etcd on data that was made: restored once, kept beside the data, started for a measurement."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from etcdfix.testing.places import Tools, Wanted, free_port, start_process
from tests.benchmarks.large_data import Made

QUOTA = "--quota-backend-bytes=8000000000"


def restored(made: Made, tools: Tools) -> Wanted:
    """Make the data directory of an etcd out of the data, unless that was done before."""
    wanted = Wanted(tools=tools, folder=made.folder / "etcd", snapshot=made.database, flags=(QUOTA,))
    wanted.folder.mkdir(exist_ok=True)
    data, half = wanted.folder / "data", wanted.folder / "data.half"
    if not data.exists():
        shutil.rmtree(half, ignore_errors=True)
        wanted.restore(half)
        half.rename(data)
    return wanted


@contextmanager
def serving(made: Made, tools: Tools) -> Iterator[str]:
    """Start an etcd that holds the data; return its ``host:port``. It ends with the block.

    Raises:
        NoEtcdError: It does not start.
    """
    wanted = restored(made, tools)
    client, peer = (f"127.0.0.1:{free_port()}" for _ in range(2))
    folder: Path = wanted.folder
    end = start_process(
        tools, folder, wanted.arguments(str(folder), listen=client, advertise=client, peer=peer)
    )
    try:
        yield client
    finally:
        end()
