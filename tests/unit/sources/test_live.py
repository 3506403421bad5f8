from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest

from etcdfix.model.errors import EtcdfixError, SourceUnreachable
from etcdfix.model.model import StoredValue
from etcdfix.sources.base import Segment
from etcdfix.sources.connection import EtcdConnection
from etcdfix.sources.errors import RevisionCompacted, SourceDenied
from etcdfix.sources.etcd import client as client_module
from etcdfix.sources.etcd import history, paging
from etcdfix.sources.live import LiveSource
from tests.support.etcd_proxy import RANGE, Refusal
from tests.support.scripted_etcd import (
    COMPACTED,
    INVALID_TOKEN,
    NO_LEADER,
    PERMISSION_DENIED,
    TIMED_OUT,
    WATCH,
    Call,
    ScriptedEtcd,
    Store,
)

PREFIX = b"/registry/"


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "_FIRST_PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(client_module, "_LONGEST_PAUSE_SECONDS", 0.02)
    monkeypatch.setattr(history, "_PROGRESS_PAUSE_SECONDS", 0.005)


@pytest.fixture
def pages_of_ten(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FIRST_LIMIT", "SMALLEST_LIMIT", "LARGEST_LIMIT"):
        monkeypatch.setattr(paging, name, 10)


def key(number: int) -> bytes:
    return PREFIX + b"k%03d" % number


def pairs(count: int, *, size: int = 1) -> dict[bytes, bytes]:
    return {key(number): bytes([number]) * size for number in range(count)}


@pytest.fixture
def etcd() -> Iterator[ScriptedEtcd]:
    with ScriptedEtcd(pairs(45)) as server:
        yield server


def live(*servers: ScriptedEtcd, **options: Any) -> LiveSource:
    for_source = {name: options.pop(name) for name in ("revision", "on_notice") if name in options}
    options = {"dial_timeout_seconds": 0.5, "command_timeout_seconds": 0.5} | options
    endpoints = tuple(server.endpoint for server in servers)
    return LiveSource(EtcdConnection(endpoints=endpoints, **options), **for_source)


def values(source: LiveSource, prefix: bytes = PREFIX) -> dict[bytes, bytes]:
    found = list(source.current(prefix))
    keys = [stored.key for stored in found]
    assert keys == sorted(set(keys))
    return {stored.key: stored.value for stored in found}


def from_range(number: int, refusal: Refusal) -> Callable[[Call], Any]:
    seen = 0

    def script(call: Call) -> Any:
        nonlocal seen
        seen += call.path == RANGE
        return refusal if call.path == RANGE and seen >= number else None

    return script


# Pages


@pytest.mark.usefixtures("pages_of_ten")
def test_the_next_page_is_asked_for_before_the_first_value_is_handed_out(etcd: ScriptedEtcd) -> None:
    with live(etcd) as source:
        scan = source.current(PREFIX)
        assert etcd.ranges() == []
        next(scan)
        etcd.wait_for_ranges(2)
        for _ in range(9):
            next(scan)
        assert len(etcd.ranges()) == 2
        next(scan)
        etcd.wait_for_ranges(3)
        assert isinstance(scan, Generator)
        scan.close()


# Compaction


@pytest.mark.usefixtures("pages_of_ten")
def test_a_scan_that_begins_anew_is_at_one_revision_again(etcd: ScriptedEtcd) -> None:
    """What is read before the scan proper, at an older revision, is no part of it."""
    with live(etcd) as source:
        source.get(key(7))
        etcd.store.put(key(1), b"")
        etcd.store.compact()
        source.get(key(9))
        assert [segment.from_key for segment in source.describe().segments] == ["", key(9).decode()]
        values(source, key(4)[:-1])
        assert [segment.from_key for segment in source.describe().segments] == ["", key(4)[:-1].decode()]
        values(source, b"")
        description = source.describe()
    assert description.single_revision
    assert description.segments == (Segment("", etcd.store.revision),)


@pytest.mark.usefixtures("pages_of_ten")
def test_what_is_looked_up_aside_moves_nothing(etcd: ScriptedEtcd) -> None:
    """A finding's history is looked up between two pages; the report rests on the pages alone."""
    first, notices = etcd.store.revision, list[str]()
    with live(etcd, on_notice=notices.append) as source:
        scan = source.current(PREFIX)
        next(scan)
        etcd.wait_for_ranges(2)
        etcd.store.put(key(44), b"changed")
        second = etcd.store.compact()
        with source.aside():
            assert [kept.stored.value for kept in source.history(key(44)) if kept.stored] == [b"changed"]
        assert source.describe().segments == (Segment("", first),)
        assert (source.describe().revision, notices) == (first, [])
        rest = list(scan)
        assert rest[-1].value == b"changed"
        # The second page was on its way at the old revision.
        at = key(19) + b"\0"
        assert source.describe().segments == (Segment("", first), Segment(key(20).decode(), second))
        assert [request.key for request in etcd.ranges() if request.limit][1:4] == [key(9) + b"\0", at, at]
        with source.aside(), pytest.raises(ZeroDivisionError):
            raise ZeroDivisionError
        assert len(notices) == 1


@pytest.mark.usefixtures("pages_of_ten")
def test_a_loss_right_after_a_compaction_does_not_lose_the_revision(etcd: ScriptedEtcd) -> None:
    pinned = etcd.store.revision

    def script(call: Call) -> Refusal | None:
        if call.path != RANGE or len(etcd.ranges()) < 3:
            return None
        return COMPACTED if call.request.revision else NO_LEADER

    etcd.script = script
    with live(etcd) as source:
        assert len(values(source)) == 20
        assert source.describe().revision == pinned
        (problem,) = source.problems
        assert "no leader" in problem
        etcd.script = lambda _call: None
        etcd.store.put(key(50), b"")
        assert len(values(source, b"")) == 46
        assert source.describe().segments == (Segment("", pinned + 1),)


def test_an_etcd_that_calls_even_the_newest_revision_compacted(etcd: ScriptedEtcd) -> None:
    etcd.script = from_range(1, COMPACTED)
    with live(etcd) as source:
        for read in (lambda: list(source.current(PREFIX)), lambda: source.get(key(0))):
            with pytest.raises(RevisionCompacted):
                read()
    assert len(etcd.ranges()) == 2


# Pages that cannot be had


@pytest.mark.usefixtures("pages_of_ten")
def test_a_key_larger_than_any_answer_ends_what_is_read(etcd: ScriptedEtcd) -> None:
    etcd.script = lambda call: (
        Refusal("RESOURCE_EXHAUSTED", "larger than max")
        if call.path == RANGE and call.request.key == key(9) + b"\0"
        else None
    )
    with live(etcd) as source:
        assert len(values(source)) == 10
        (problem,) = source.problems
    assert problem.startswith(f"lost after key {key(9).decode()}: ")


def test_time_outs_make_the_page_small(etcd: ScriptedEtcd) -> None:
    etcd.script = lambda call: TIMED_OUT if call.path == RANGE and call.request.limit > 20 else None
    notices: list[str] = []
    with live(etcd, on_notice=notices.append) as source:
        assert values(source) == pairs(45)
        assert source.problems == []
    assert [request.limit for request in etcd.ranges()] == [500, 62, *[7] * 7]
    assert [notice.partition("; ")[2] for notice in notices] == [
        "asking for fewer keys at a time: 62", "asking for fewer keys at a time: 7",
    ]  # fmt: skip


# Lost before, lost midway


def test_nothing_was_read_yet(etcd: ScriptedEtcd) -> None:
    etcd.script = from_range(1, NO_LEADER)
    with live(etcd) as source:
        for read in (lambda: list(source.current(PREFIX)), lambda: list(source.history(key(0)))):
            with pytest.raises(SourceUnreachable, match="no leader"):
                read()
        assert source.problems == []


# History


def watches(server: ScriptedEtcd) -> int:
    return sum(request.HasField("create_request") for request in server.requests(WATCH))


@pytest.mark.parametrize(
    ("refusal", "error", "count"),
    [
        (NO_LEADER, SourceUnreachable, 3),
        (INVALID_TOKEN, SourceDenied, 3),
        (TIMED_OUT, SourceUnreachable, 1),
        (PERMISSION_DENIED, SourceDenied, 1),
    ],
    ids=lambda value: getattr(value, "details", None),
)
def test_history_that_cannot_be_had(refusal: Refusal, error: type[EtcdfixError], count: int) -> None:
    with ScriptedEtcd({b"a": b"1"}) as server, live(server) as source:
        server.script = lambda call: refusal if call.path == WATCH else None
        with pytest.raises(error):
            list(source.history(b"a"))
        assert watches(server) == count


def test_history_that_breaks_midway_does_not_start_afresh() -> None:
    store = Store()
    first = store.put(b"a", b"1")
    store.compact()
    store.put(b"a", b"2")

    def script(call: Call) -> Refusal | None:
        second = call.path == WATCH and call.request.create_request.start_revision > 1
        return NO_LEADER if second else None

    with ScriptedEtcd(store) as server, live(server) as source:
        server.script = script
        kept = source.history(b"a")
        assert next(kept).revision.main == first
        with pytest.raises(SourceUnreachable):
            next(kept)
        assert watches(server) == 2


# A step back


def test_before_a_revision() -> None:
    store = Store()
    first, second = store.put(b"a", b"1"), store.put(b"a", b"2")
    third, fourth = store.delete(b"a"), store.put(b"a", b"4")
    with ScriptedEtcd(store) as server, live(server) as source:
        assert source.before(b"a", second) == StoredValue(b"a", b"1", first, first, 1, 0)
        assert source.before(b"a", third) == StoredValue(b"a", b"2", second, first, 2, 0)
        assert source.before(b"a", fourth) is None
        assert source.before(b"a", fourth + 1) == source.get(b"a")
        assert source.before(b"b", fourth) is None
        assert watches(server) == 0


def test_what_was_before_a_compaction_is_not_known() -> None:
    store = Store()
    store.put(b"a", b"1")
    second = store.put(b"a", b"2")
    store.compact()
    with ScriptedEtcd(store) as server, live(server) as source:
        pinned = source.get(b"a")
        revision = source.describe().revision
        assert source.before(b"a", second) is None
        assert source.problems == []
        assert (source.describe().revision, source.get(b"a")) == (revision, pinned)


def test_the_copy_of_one_member_is_read_serializably_and_from_no_other(etcd: ScriptedEtcd) -> None:
    connection = EtcdConnection(endpoints=(etcd.endpoint,))
    with LiveSource(connection, of_member=1) as source:
        assert next(source.current(PREFIX)).key == key(0)
        assert source.get(key(1)) is not None
    assert all(request.serializable for request in etcd.ranges())
    with LiveSource(connection, of_member=2) as source:
        with pytest.raises(SourceUnreachable, match="member 1 answers there, and not 2"):
            next(source.current(PREFIX))
        with pytest.raises(SourceUnreachable, match="member 1 answers there"):
            source.get(key(1))
    with LiveSource(connection) as source:
        list(source.current(PREFIX))
    assert not etcd.ranges()[-1].serializable
