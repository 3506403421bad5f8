from __future__ import annotations

import platform
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from etcdfix.sources.connection import EtcdConnection
from etcdfix.sources.etcd.channel import FutureCancelledError, ReadOnlyChannel, open_channel
from etcdfix.sources.etcd.endpoints import parse_endpoint
from etcdfix.sources.etcd.tls import TLSMaterial
from etcdfix.wire.descriptors import ReadMethod
from etcdfix.wire.etcd import RANGE, READ_METHODS, STATUS, WATCH, message
from tests.support.breaking_in import Heard, heard
from tests.support.scripted_etcd import ScriptedEtcd

# Every method of etcd 3.6 that is not on the list of read methods: most write, the others are not needed.
NOT_READING = {
    "Auth": (
        "AuthDisable", "AuthEnable", "AuthStatus", "RoleAdd", "RoleDelete", "RoleGrantPermission",
        "RoleList", "RoleRevokePermission", "UserAdd", "UserChangePassword", "UserDelete",
        "UserGrantRole", "UserList", "UserRevokeRole",
    ),
    "Cluster": ("MemberAdd", "MemberPromote", "MemberRemove", "MemberUpdate"),
    "KV": ("Compact", "DeleteRange", "Put", "Txn"),
    "Lease": ("LeaseGrant", "LeaseKeepAlive", "LeaseLeases", "LeaseRevoke"),
    "Maintenance": ("Defragment", "Downgrade", "Hash", "HashKV", "MoveLeader", "Snapshot"),
}  # fmt: skip
PATHS = [
    f"/etcdserverpb.{service}/{method}" for service, methods in NOT_READING.items() for method in methods
]


@pytest.fixture
def etcd() -> Iterator[ScriptedEtcd]:
    with ScriptedEtcd({b"k": b"v"}) as server:
        yield server


@pytest.fixture
def channel(etcd: ScriptedEtcd) -> Iterator[ReadOnlyChannel]:
    endpoint = parse_endpoint(etcd.endpoint, has_tls_material=False)
    opened = open_channel(endpoint, TLSMaterial(), EtcdConnection())
    yield opened
    opened.close()


def test_the_lists_together_are_all_methods_of_etcd() -> None:
    assert len(PATHS) == 32
    assert not set(PATHS) & set(READ_METHODS)
    assert len(set(PATHS) | set(READ_METHODS)) == 41


@pytest.mark.parametrize("path", PATHS)
def test_no_other_method_goes_through(etcd: ScriptedEtcd, channel: ReadOnlyChannel, path: str) -> None:
    # With the messages of a read method, so that nothing but the list can refuse it.
    method = ReadMethod(path, RANGE.request, RANGE.response)
    request = message(RANGE.request)(key=b"k")
    with pytest.raises(ValueError, match="is not a read method of etcd"):
        channel.start(method, request, timeout_seconds=1)
    with pytest.raises(ValueError, match="is not a read method of etcd"):
        channel.stream(method, iter([request]), timeout_seconds=1)
    assert etcd.calls == []


def test_a_read_method_with_other_messages_is_none(channel: ReadOnlyChannel) -> None:
    with pytest.raises(ValueError, match="is not a read method"):
        channel.start(ReadMethod(RANGE.path, STATUS.request, STATUS.response), None, timeout_seconds=1)


class Interrupted:
    """Plays gRPC's channel, and the stream that it opens: meanwhile a signal comes."""

    def __init__(self) -> None:
        self.cancelled = threading.Event()

    def stream_stream(self, *_: object, **__: object) -> Callable[..., Interrupted]:
        return self.opened

    def opened(self, *_: object, **__: object) -> Interrupted:
        signal.raise_signal(signal.SIGTERM)
        return self

    def __next__(self) -> object:
        self.cancelled.wait(10)
        raise StopIteration

    def cancel(self) -> None:
        self.cancelled.set()


def test_a_signal_while_a_stream_is_opened_ends_it() -> None:
    """The signal waits until the stream and its thread are there; then neither may be left."""
    played, before = Interrupted(), set(threading.enumerate())
    with heard(), pytest.raises(Heard):
        next(ReadOnlyChannel(played).stream(WATCH, iter(()), timeout_seconds=5))
    assert played.cancelled.is_set()
    for thread in set(threading.enumerate()) - before:
        thread.join(5)
        assert not thread.is_alive()


def test_an_answer_that_is_not_wanted_any_more(channel: ReadOnlyChannel) -> None:
    answer = channel.start(RANGE, message("RangeRequest")(key=b"k"), timeout_seconds=5)
    answer.cancel()
    answer.cancel()
    with pytest.raises(FutureCancelledError):
        answer.result(timeout=5)


COUNT_HEAPS = """
import ctypes, sys, threading
import etcdfix.sources.etcd.channel
held = []
threads = [threading.Thread(target=lambda: held.append(bytearray(100_000))) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
file = libc.fopen(sys.argv[1].encode(), b"w")
libc.malloc_info(0, ctypes.c_void_p(file))
libc.fclose(ctypes.c_void_p(file))
"""


@pytest.mark.skipif("glibc" not in platform.libc_ver(), reason="only glibc has several heaps")
def test_all_threads_share_one_heap(tmp_path: Path) -> None:
    told = tmp_path / "heaps"
    subprocess.run([sys.executable, "-c", COUNT_HEAPS, str(told)], check=True, timeout=60)
    assert told.read_text().count("<heap nr=") == 1
