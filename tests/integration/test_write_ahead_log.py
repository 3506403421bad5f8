"""The log of a real etcd: values written as an API server writes them, overwritten, deleted, compacted, found again."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import NamedTuple

import grpc
import pytest

from etcdfix.model.model import Confidence
from etcdfix.sources.connection import EtcdConnection
from etcdfix.sources.live import LiveSource
from etcdfix.sources.wal.entries import WriteAheadLog
from etcdfix.sources.wal.history import LogHistory
from etcdfix.sources.wal.model import WriteKind
from etcdfix.testing.servers import EtcdServer
from tests.support.apiserver import EtcdStore
from tests.support.objects import secret

pytestmark = pytest.mark.etcd

OBJECTS = 40
LATER = 500


class Logged(NamedTuple):
    etcd: EtcdServer
    store: EtcdStore
    wal: Path

    def beat(self, times: int) -> None:
        held: dict[bytes, int] = {}
        for turn in range(times):
            key = b"/registry/leases/kube-node-lease/n%02d" % (turn % 50)
            held[key] = self.store.put(key, os.urandom(300), mod_revision=held.get(key, 0)) or 0
        for key, revision in held.items():
            assert self.store.delete(key, mod_revision=revision)


@pytest.fixture
def logged(start_local_etcd: Callable[..., EtcdServer], tmp_path: Path) -> Iterator[Callable[..., Logged]]:
    with ExitStack() as stack:

        def start(*flags: str) -> Logged:
            etcd = start_local_etcd(flags=(f"--data-dir={tmp_path / 'data'}", *flags))
            store = stack.enter_context(closing(EtcdStore(etcd.endpoint)))
            return Logged(etcd, store, tmp_path / "data" / "member" / "wal")

        yield start


def damage(etcd: Logged) -> dict[bytes, tuple[int, bytes]]:
    held: dict[bytes, tuple[int, bytes]] = {}
    for number in range(OBJECTS):
        key, value = b"/registry/secrets/shop/s-%03d" % number, secret(f"s-{number}")
        revision = etcd.store.put(key, value, mod_revision=0)
        assert revision
        held[key] = revision, value
    for number, (key, (revision, _)) in enumerate(held.items()):
        if number % 2:
            assert etcd.store.delete(key, mod_revision=revision)
        else:
            assert etcd.store.put(key, b"garbage", mod_revision=revision)
    return held


def check_found(history: LogHistory, held: dict[bytes, tuple[int, bytes]], sure: Confidence) -> None:
    assert history.agreement.same
    for key, (revision, value) in held.items():
        first, second = history.writes(key)
        assert (first.mod_revision, first.value, first.confidence) == (revision, value, sure), key
        deleted = int(key[-3:]) % 2
        assert second.kind is (WriteKind.DELETE if deleted else WriteKind.PUT)
        assert second.mod_revision == revision + OBJECTS


def test_all_that_was_overwritten_or_deleted_is_found_at_its_revision(logged: Callable[..., Logged]) -> None:
    etcd = logged()
    held = damage(etcd)
    etcd.beat(LATER)
    last = etcd.store.put(b"/registry/configmaps/shop/last", b"some configuration of today", mod_revision=0)
    etcd.etcd.etcdctl("compact", "--physical", str(last))
    with (
        LiveSource(EtcdConnection(endpoints=(etcd.etcd.endpoint,))) as live,
        WriteAheadLog(etcd.wal) as log,
    ):
        history = LogHistory(log, live)
        check_found(history, held, Confidence.CERTAIN)
        assert not history.problems
        history.close()


def test_what_was_logged_and_refused_is_told_apart(logged: Callable[..., Logged]) -> None:
    etcd = logged()
    etcd.beat(100)
    granted = etcd.etcd.etcdctl("lease", "grant", "600").split()[1].decode()
    etcd.etcd.etcdctl("put", f"--lease={granted}", "/registry/events/shop/e1", "one")
    etcd.etcd.etcdctl("put", f"--lease={granted}", "/registry/events/shop/e2", "two")
    etcd.etcd.etcdctl("lease", "revoke", granted)
    with pytest.raises(AssertionError):
        etcd.etcd.etcdctl("put", f"--lease={granted}", "/registry/events/shop/e1", "never")
    etcd.etcd.etcdctl("put", "/registry/events/shop/e3", "three")
    etcd.etcd.etcdctl("put", "--ignore-value", "/registry/events/shop/e3")
    etcd.etcd.etcdctl(
        "txn",
        input=b'mod("/none") = "7"\n\nput /registry/x/a 1\n\nput /registry/x/b 2\nput /registry/x/c 3\n\n',
    )
    etcd.etcd.etcdctl("del", "--prefix", "/registry/x/")
    etcd.store.put(b"/registry/configmaps/shop/last", b"some configuration of today", mod_revision=0)
    with (
        LiveSource(EtcdConnection(endpoints=(etcd.etcd.endpoint,))) as live,
        WriteAheadLog(etcd.wal) as log,
    ):
        history = LogHistory(log, live)

        def told(key: bytes) -> list[tuple[object, ...]]:
            return [(one.kind, one.value, one.refused, one.mod_revision) for one in history.writes(key)]

        kept = live.get(b"/registry/configmaps/shop/last")
        assert kept is not None
        end = kept.mod_revision
        put, delete, revoked = WriteKind.PUT, WriteKind.DELETE, WriteKind.LEASE_REVOCATION
        assert told(b"/registry/events/shop/e1") == [
            (put, b"one", False, end - 7),
            (revoked, None, False, end - 5),
            (put, b"never", True, None),
        ]
        assert told(b"/registry/events/shop/e2") == [
            (put, b"two", False, end - 6),
            (revoked, None, False, end - 5),
        ]
        assert told(b"/registry/events/shop/e3") == [
            (put, b"three", False, end - 4),
            (put, None, False, end - 3),
        ]
        assert told(b"/registry/x/a") == [(put, b"1", True, None)]
        assert told(b"/registry/x/c") == [(put, b"3", False, end - 2), (delete, None, False, end - 1)]
        assert {one.confidence for one in history.writes(b"/registry/x/c")} <= {
            Confidence.CERTAIN,
            Confidence.LIKELY,
        }
        history.close()


def test_under_an_alarm_of_space_nothing_that_was_refused_is_certain(logged: Callable[..., Logged]) -> None:
    etcd = logged("--quota-backend-bytes=2500000")
    held = damage(etcd)
    refused: list[bytes] = []
    for number in range(400):
        key = b"/registry/configmaps/shop/c%03d" % number
        try:
            etcd.store.put(key, os.urandom(20_000), mod_revision=0)
        except grpc.RpcError:
            refused.append(key)
    assert refused
    with (
        LiveSource(EtcdConnection(endpoints=(etcd.etcd.endpoint,))) as live,
        WriteAheadLog(etcd.wal) as log,
    ):
        history = LogHistory(log, live)
        check_found(history, held, Confidence.CERTAIN)
        # The first one may be stored although it was answered with an error: etcd raises the alarm with it.
        for key in refused:
            stored = live.get(key)
            for one in history.writes(key):
                assert one.refused == (stored is None)
                assert one.confidence is not Confidence.CERTAIN or one.value == (stored and stored.value)
        history.close()
