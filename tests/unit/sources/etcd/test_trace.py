"""What is told of requests to etcd: ranges and counts, and nothing that is stored or secret."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest

from etcdfix.sources.etcd.trace import Exchange, listening, question, told_afterwards, told_stream
from etcdfix.wire.etcd import AUTHENTICATE, RANGE, WATCH, message


def listened(make: Callable[[], object]) -> list[Exchange]:
    found: list[Exchange] = []
    with listening(found.append):
        make()
    return found


def test_nothing_is_made_where_nobody_listens() -> None:
    assert question("a:1", RANGE.path, message("RangeRequest")(key=b"k")) is None


@pytest.mark.parametrize(("found", "keys"), [({"count": 7}, 7), ({}, 0)])
def test_where_only_the_count_was_wanted_it_is_told(found: dict[str, int], keys: int) -> None:
    def ask() -> None:
        asked = question("a:1", RANGE.path, message("RangeRequest")(key=b"k", count_only=True))
        assert asked is not None
        asked.answered(message("RangeResponse")(**found), 0)
        asked.failed("CANCELLED", 0)  # told once

    (came,) = listened(ask)
    assert (came.keys, came.status) == (keys, "")


def test_no_user_and_no_password_is_told() -> None:
    request = message("AuthenticateRequest")(name="ada", password="not-to-be-shown")
    answer = message("AuthenticateResponse")(token="nor-this")

    def ask() -> None:
        asked = question("a:1", AUTHENTICATE.path, request)
        assert asked is not None
        asked.answered(answer, 0)

    told = repr(listened(ask))
    assert "Auth/Authenticate" in told
    assert not re.search("ada|not-to-be-shown|nor-this", told)


@pytest.mark.parametrize(
    "key", [b"/bootstrap/0123456789ab", b"/proxy/bootstrap/0123456789ab\0", b"bootstrap/01"]
)
@pytest.mark.parametrize("end", [b"", b"/proxy/bootstrap/0123456789ac"])
def test_the_digest_of_a_servers_token_is_withheld(key: bytes, end: bytes) -> None:
    """Pages begin behind the last key of the one before, and prefixes end beside it: neither is a key any more."""

    def ask() -> None:
        asked = question("a:1", RANGE.path, message("RangeRequest")(key=key, range_end=end))
        assert asked is not None
        asked.failed("UNAVAILABLE", 0)

    (told,) = listened(ask)
    assert b"01" not in told.key + told.range_end
    assert told.key.endswith(b"bootstrap/<withheld>")


def test_a_listener_that_fails_keeps_no_answer_back() -> None:
    """The answer to a change must reach whoever made it, though standard error takes nothing any more."""

    def broken(_exchange: Exchange) -> None:
        raise BrokenPipeError

    with listening(broken):
        asked = question("a:1", RANGE.path, message("RangeRequest")(key=b"k"))
        assert asked is not None
        asked.failed("UNAVAILABLE", 0)


def test_nobody_who_listens_can_come_between_a_change_and_its_record() -> None:
    told: list[str] = []
    with listening(lambda exchange: told.append(exchange.status)):
        with told_afterwards():
            asked = question("a:1", RANGE.path, message("RangeRequest")(key=b"k"))
            assert asked is not None
            asked.failed("UNAVAILABLE", 0)
            assert told == []
        assert told == ["UNAVAILABLE"]


def watched(answers: Callable[[Iterator[Any]], Generator[Any, None, None]]) -> Generator[Any, None, None]:
    create = message("WatchCreateRequest")(key=b"/a", range_end=b"/b", start_revision=3)
    return told_stream("a:1", WATCH.path, iter([message("WatchRequest")(create_request=create)]), answers)


def test_a_watch_is_told_by_its_first_request_and_its_events() -> None:
    closed = []

    def answers(requests: Iterator[Any]) -> Generator[Any, None, None]:
        try:
            next(requests)
            yield message("WatchResponse")(created=True)
            response = message("WatchResponse")()
            response.events.add().kv.value = b"not-to-be-shown"
            yield response
            yield message("WatchResponse")()
        finally:
            closed.append(True)

    def ask() -> None:
        stream = watched(answers)
        next(stream)
        next(stream)
        stream.close()  # before its end, as those who watch do

    (told,) = listened(ask)
    assert (told.method, told.key, told.range_end, told.revision) == ("Watch/Watch", b"/a", b"/b", 3)
    assert told.keys == 1
    assert closed == [True]


def test_a_watch_without_an_answer_is_not_told() -> None:
    def answers(_requests: Iterator[Any]) -> Generator[Any, None, None]:
        yield from ()

    assert listened(lambda: list(watched(answers))) == []
