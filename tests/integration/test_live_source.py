"""A live etcd as a source: pages, revisions, compaction, history, several members.

The etcd is a container where a Docker engine runs, else a process (``etcdfix/testing/places.py``).
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from etcdfix.model.model import StoredValue
from etcdfix.sources.connection import EtcdConnection
from etcdfix.sources.etcd import paging
from etcdfix.sources.live import LiveSource
from etcdfix.testing.servers import EtcdServer, EtcdServers
from tests.support.etcd_members import etcd_members
from tests.support.etcd_proxy import RANGE, EtcdProxy, Refusal

pytestmark = pytest.mark.etcd


def live(*endpoints: str, **options: Any) -> LiveSource:
    for_source = {name: options.pop(name) for name in ("revision", "on_notice") if name in options}
    return LiveSource(EtcdConnection(endpoints=endpoints, **options), **for_source)


def pairs_below(prefix: bytes, count: int, *, size: int = 1) -> dict[bytes, bytes]:
    return {b"%s%05d" % (prefix, number): b"%05d" % number * max(1, size // 5) for number in range(count)}


def values(source: LiveSource, prefix: bytes) -> dict[bytes, bytes]:
    found = list(source.current(prefix))
    keys = [stored.key for stored in found]
    assert keys == sorted(set(keys))
    return {stored.key: stored.value for stored in found}


def asked_by(server: EtcdServer, key: bytes, *more: str) -> list[StoredValue]:
    printed = server.etcdctl("get", "--prefix", "-w", "json", *more, "--", key.decode())
    return [
        StoredValue(
            key=base64.b64decode(pair["key"]),
            value=base64.b64decode(pair.get("value", "")),
            mod_revision=pair["mod_revision"],
            create_revision=pair["create_revision"],
            version=pair["version"],
            lease=pair.get("lease", 0),
        )
        for pair in json.loads(printed).get("kvs", [])
    ]


@pytest.fixture
def pages_of_ten(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FIRST_LIMIT", "SMALLEST_LIMIT", "LARGEST_LIMIT"):
        monkeypatch.setattr(paging, name, 10)


@contextmanager
def before_page(server: EtcdServer, number: int, act: Callable[[], Refusal | None]) -> Iterator[EtcdProxy]:
    with EtcdProxy(server.endpoint) as proxy:

        def before(path: str, _request: bytes) -> Refusal | None:
            return act() if path == RANGE and proxy.ranges() == number else None

        proxy.before = before
        yield proxy


def test_everything_about_a_value(etcd: EtcdServer, prefix: bytes) -> None:
    lease = etcd.etcdctl("lease", "grant", "3600").decode().split()[1]
    etcd.etcdctl("put", f"--lease={lease}", (prefix + b"leased").decode(), "x")
    etcd.put(prefix + b"twice", b"1")
    etcd.put(prefix + b"twice", b"\x00\xff\n")
    etcd.put(prefix + b"empty", b"")
    with live(etcd.endpoint) as source:
        found = list(source.current(prefix))
    assert found == asked_by(etcd, prefix)
    assert [(stored.version, stored.lease) for stored in found] == [(1, 0), (1, int(lease, 16)), (2, 0)]


@pytest.mark.usefixtures("pages_of_ten")
def test_writes_during_a_scan_are_not_seen(etcd: EtcdServer, prefix: bytes) -> None:
    before = pairs_below(prefix, 45)
    etcd.put_all(before.items())
    with live(etcd.endpoint) as source:
        scan = source.current(prefix)
        found = {(first := next(scan)).key: first.value}
        etcd.put(prefix + b"00044", b"changed")
        etcd.put(prefix + b"00099", b"new")
        etcd.delete(prefix + b"00033")
        found |= {stored.key: stored.value for stored in scan}
        assert found == before
        # Nor afterwards: one source is one revision.
        assert source.get(prefix + b"00099") is None
        assert source.get(prefix + b"00033") is not None
        assert source.describe().single_revision


@pytest.mark.usefixtures("pages_of_ten")
def test_compaction_in_the_middle_of_a_scan(etcd: EtcdServer, prefix: bytes) -> None:
    before = pairs_below(prefix, 45)
    first_revision = etcd.put_all(before.items())
    keys = sorted(before)
    second_revision = 0

    def compact() -> None:
        nonlocal second_revision
        etcd.put(keys[0], b"changed, but read already")
        etcd.put(keys[30], b"changed")
        etcd.put(prefix + b"00031-new", b"new")
        etcd.delete(keys[40])
        second_revision = etcd.compact()

    notices: list[str] = []
    with before_page(etcd, 3, compact) as proxy, live(proxy.endpoint, on_notice=notices.append) as source:
        found = values(source, prefix)
        description = source.describe()
        assert source.problems == []
    after = before | {keys[30]: b"changed", prefix + b"00031-new": b"new"}
    del after[keys[40]]
    assert found == after
    assert not description.single_revision
    assert description.revision == second_revision
    first, second = description.segments
    assert (first.from_key, first.revision) == ("", first_revision)
    assert second.revision == second_revision
    assert keys[19].decode() < second.from_key <= keys[20].decode()
    assert any(str(second_revision) in notice for notice in notices)


@pytest.mark.usefixtures("pages_of_ten")
def test_a_revision_asked_for_is_never_left(etcd: EtcdServer, prefix: bytes) -> None:
    asked = etcd.put_all(pairs_below(prefix, 45).items())
    etcd.put(prefix + b"later", b"")

    def compact() -> None:
        etcd.compact()

    with before_page(etcd, 3, compact) as proxy, live(proxy.endpoint, revision=asked) as source:
        found = values(source, prefix)
        (problem,) = source.problems
        assert source.describe().single_revision
    assert sorted(found) == sorted(pairs_below(prefix, 20))
    assert "compacted" in problem


@pytest.fixture(scope="module")
def uncompacted(start_etcd: Callable[..., EtcdServer]) -> EtcdServer:
    return start_etcd()


def history_of(source: LiveSource, key: bytes) -> list[tuple[int, bytes | None]]:
    return [
        (kept.revision.main, kept.stored.value if kept.stored is not None else None)
        for kept in source.history(key)
    ]


def test_history_with_a_deletion(uncompacted: EtcdServer, prefix: bytes) -> None:
    key = prefix + b"k"
    first = uncompacted.put(key, b"1")
    second = uncompacted.put(key, b"2")
    uncompacted.put(prefix + b"other", b"-")
    uncompacted.delete(key)
    third = uncompacted.revision()
    fourth = uncompacted.put(key, b"4")
    uncompacted.put(prefix + b"other", b"-")
    with live(uncompacted.endpoint) as source:
        assert history_of(source, key) == [(first, b"1"), (second, b"2"), (third, None), (fourth, b"4")]
        newest = list(source.history(key))[-1].stored
        assert newest is not None
        assert (newest.create_revision, newest.version) == (fourth, 1)


@pytest.mark.usefixtures("pages_of_ten")
def test_a_member_dies_in_the_middle_of_a_scan(tmp_path: Path, prefix: bytes) -> None:
    with etcd_members(tmp_path) as members:
        expected = pairs_below(prefix, 45)
        first_one, second_one, _ = members.names
        members.server(second_one).put_all(expected.items())
        notices: list[str] = []
        with live(*members.endpoints(), on_notice=notices.append) as source:
            scan = source.current(prefix)
            found = {(first := next(scan)).key: first.value}
            members.stop(first_one)
            found |= {stored.key: stored.value for stored in scan}
            assert found == expected
            assert source.problems == []
            assert source.describe().single_revision
        assert any(members.endpoint(first_one) in notice for notice in notices)


@pytest.mark.docker
def test_paging_through_a_container(etcd_containers: EtcdServers) -> None:
    server = etcd_containers.start()
    try:
        assert server.kind == "container"
        expected = {
            b"/registry/secrets/shop/%05d" % number: bytes([number % 256]) * 999 for number in range(2_500)
        }
        revision = server.put_all(expected.items())
        with LiveSource(EtcdConnection(endpoints=(server.endpoint,))) as source:
            assert {stored.key: stored.value for stored in source.current(b"")} == expected
            assert source.describe().revision == revision
    finally:
        server.stop()
