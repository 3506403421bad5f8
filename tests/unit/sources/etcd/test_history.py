from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from etcdfix.sources.etcd import client as client_module
from etcdfix.sources.etcd import history as history_module
from etcdfix.sources.etcd.failures import CallFailed, FailureKind
from etcdfix.sources.etcd.history import watch_history, watch_superseded
from etcdfix.sources.etcd.paging import (
    FIRST_LIMIT,
    GOOD_PAGES,
    LARGEST_LIMIT,
    NO_BOUND,
    SMALLEST_LIMIT,
    TARGET_BYTES,
    PageSize,
    RangeEnd,
    bounds_of,
)
from etcdfix.wire.etcd import message
from tests.support.connections import connected
from tests.support.scripted_etcd import WATCH, Call, ScriptedEtcd

KEY = b"/registry/secrets/shop/a"
LAG_SECONDS = 0.05


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_module, "_PROGRESS_PAUSE_SECONDS", LAG_SECONDS / 8)
    monkeypatch.setattr(client_module, "_FIRST_PAUSE_SECONDS", 0.001)


@pytest.fixture(params=["3.5.1", "3.6.8"])
def etcd(request: pytest.FixtureRequest) -> Iterator[ScriptedEtcd]:
    with ScriptedEtcd(version=request.param) as server:
        server.lag_seconds = LAG_SECONDS
        server.in_order = request.param == "3.6.8"
        yield server


def history_of(
    server: ScriptedEtcd, *, until: int | None = None, key: bytes = KEY
) -> list[tuple[int, bytes | None]]:
    store = server.store
    until = until if until is not None else store.revision
    newest = store.at(until).get(key)
    with connected(server.endpoint, dial_timeout_seconds=2, command_timeout_seconds=2) as client:
        found = watch_history(
            client, key, until=until, last=newest.mod_revision if newest is not None else 0, timeout_seconds=5
        )
        return [(revision, value.value if value is not None else None) for revision, value in found]


def watch_requests(server: ScriptedEtcd, kind: str) -> list[Any]:
    return [request for request in server.requests(WATCH) if request.HasField(kind)]


def test_up_to_a_revision(etcd: ScriptedEtcd) -> None:
    store = etcd.store
    first, gone = store.put(KEY, b"1"), store.delete(KEY)
    store.put(KEY, b"2")
    assert history_of(etcd, until=first) == [(first, b"1")]
    assert history_of(etcd, until=gone) == [(first, b"1"), (gone, None)]
    assert history_of(etcd, until=first - 1) == []


def test_what_was_there_at_the_compacted_revision(etcd: ScriptedEtcd) -> None:
    store = etcd.store
    store.put(KEY, b"1")
    second = store.put(KEY, b"2")
    store.put(b"other", b"-")
    compacted = store.compact()
    third, fourth = store.delete(KEY), store.put(KEY, b"4")
    assert history_of(etcd) == [(second, b"2"), (third, None), (fourth, b"4")]
    starts = [request.create_request.start_revision for request in watch_requests(etcd, "create_request")]
    assert starts == [1, compacted + 1]
    assert [request.revision for request in etcd.ranges()] == [1, compacted]


def failing(server: ScriptedEtcd, **asked: Any) -> CallFailed:
    with pytest.raises(CallFailed) as caught:
        history_of(server, **asked)
    return caught.value


def test_a_compaction_between_the_two_watches(etcd: ScriptedEtcd) -> None:
    store = etcd.store
    store.put(KEY, b"1")
    store.compact()
    store.put(KEY, b"2")

    def script(call: Call) -> None:
        if call.path == WATCH and call.request.create_request.start_revision > 1:
            store.put(KEY, b"3")
            store.put(KEY, b"4")
            store.compact()

    etcd.script = script
    assert failing(etcd).failure.kind is FailureKind.COMPACTED


def test_a_watch_that_ends_early_is_no_complete_history(etcd: ScriptedEtcd) -> None:
    header = message("ResponseHeader")(cluster_id=etcd.cluster_id, revision=2)
    etcd.store.put(KEY, b"1")
    etcd.script = lambda call: (
        [message("WatchResponse")(header=header, created=True)] if call.path == WATCH else None
    )
    assert "the watch ended early" in failing(etcd).failure.message


def superseded_of(
    server: ScriptedEtcd, *, until: int | None = None, prefix: bytes = b""
) -> list[tuple[bytes, bytes]]:
    with connected(server.endpoint, dial_timeout_seconds=2, command_timeout_seconds=2) as client:
        found = watch_superseded(
            client,
            bounds_of(prefix),
            until=until if until is not None else server.store.revision,
            timeout_seconds=5,
        )
        return [(record.key, record.value) for record in found]


def test_what_was_replaced_before_the_compaction_is_gone_and_what_stood_then_is_not(
    etcd: ScriptedEtcd,
) -> None:
    store = etcd.store
    store.put(KEY, b"1")
    store.put(KEY, b"2")
    compacted = store.compact()
    assert superseded_of(etcd) == []
    store.put(KEY, b"3")
    assert superseded_of(etcd) == [(KEY, b"2")]
    with pytest.raises(CallFailed) as caught:
        superseded_of(etcd, until=compacted - 1)
    assert caught.value.failure.kind is FailureKind.COMPACTED


def test_a_previous_value_that_does_not_come_is_not_passed_over(etcd: ScriptedEtcd) -> None:
    store = etcd.store
    store.put(KEY, b"1")
    store.put(KEY, b"2")

    def compact_before_the_events(call: Call) -> Any:
        if call.path == WATCH and call.request.create_request.prev_kv:
            event = message("Event")(kv=store.at(store.revision)[KEY])
            return iter([message("WatchResponse")(header=etcd._header(), events=[event])])
        return None

    etcd.script = compact_before_the_events
    with pytest.raises(CallFailed) as caught:
        superseded_of(etcd)
    assert "previous value" in caught.value.failure.message


@pytest.mark.parametrize(
    ("size_bytes", "keys", "limit"),
    [
        (500 * 16_384, 500, TARGET_BYTES // 16_384),
        (500 * 100, 500, LARGEST_LIMIT),
        (0, 1, LARGEST_LIMIT),
        (500 << 20, 500, SMALLEST_LIMIT),
    ],
)
def test_a_page_is_sized_by_bytes(size_bytes: int, keys: int, limit: int) -> None:
    page = PageSize()
    assert page.limit == FIRST_LIMIT
    page.learn(size_bytes, keys)
    assert page.limit == limit


def test_small_values_do_not_lift_a_ceiling_at_once() -> None:
    page = PageSize()
    page.shrink()
    for _ in range(GOOD_PAGES - 1):
        page.learn(100, 100)
        assert page.limit == FIRST_LIMIT // 2
    page.learn(100, 100)
    assert page.limit == FIRST_LIMIT


MANY = 1_000_000
"""Keys that a range holds, as etcd has counted: too many to be counted for each page."""


def learned(first: bytes, last: bytes, *, keys: int = 10, limit: int = 10, end: bytes = b"/z") -> bytes:
    reach = RangeEnd(end)
    reach.learn(first, last, keys, MANY, limit)
    return reach.guess


def test_a_guess_is_above_the_last_key_and_not_behind_the_end() -> None:
    chance = random.Random(4)
    for _ in range(5000):
        first, last, end = sorted(
            {bytes(chance.choices(b"\0\x01/ab\xfe\xff", k=chance.randint(1, 12))) for _ in range(9)}
        )[:3]
        guess = learned(first, last, end=end, keys=chance.randint(1, 9), limit=chance.randint(1, 10_000))
        assert last < guess <= end
        guess = learned(first, last, end=NO_BOUND)
        assert guess == NO_BOUND or guess > last
