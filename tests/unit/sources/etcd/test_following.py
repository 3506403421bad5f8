"""What is written from a revision on, and how a watch of it ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest

from etcdfix.errors import RevisionCompacted, SourceUnreachable
from etcdfix.sources.etcd.failures import CallFailed, Failure, FailureKind
from etcdfix.sources.etcd.following import Following
from etcdfix.wire.etcd import EVENT_DELETE, message


class Client:
    """Plays the answers of a watch."""

    def __init__(self, *answers: Any) -> None:
        self.asked: list[Any] = []
        self._answers = answers
        self.closed = False

    def watch(
        self, requests: Iterator[Any], *, timeout_seconds: float, on_quiet: Callable[[], object]
    ) -> Generator[Any, None, None]:
        self.requests = requests
        self.asked.append(next(requests))
        assert timeout_seconds > 0
        try:
            for answer in self._answers:
                if isinstance(answer, Exception):
                    raise answer
                if answer is None:
                    on_quiet()
                    continue
                yield answer
        finally:
            self.closed = True


def created() -> Any:
    return message("WatchResponse")(created=True)


def events(*told: tuple[bytes, int, bool]) -> Any:
    answer = message("WatchResponse")()
    for key, revision, deleted in told:
        event = answer.events.add()
        event.type = EVENT_DELETE if deleted else 0
        event.kv.key, event.kv.mod_revision = key, revision
    return answer


def following(client: Client, start: int = 5) -> Following:
    return Following(client, start=start)  # type: ignore[arg-type]


def test_everything_up_to_a_revision_comes() -> None:
    client = Client(created(), events((b"a", 5, False), (b"b", 5, True)), events((b"c", 7, False)))
    with following(client) as found:
        assert found.revision == 4
        told = [(key, stored is None, at) for key, stored, at in found.until(5)]
        assert told == [(b"a", False, 5), (b"b", True, 5)]
        assert list(found.until(5)) == []
        assert [key for key, _, _ in found.until(6)] == [b"c"]  # what came beyond it too
        assert found.revision == 7
    assert client.closed
    request = client.asked[0].create_request
    assert (request.key, request.range_end, request.start_revision) == (b"\0", b"\0", 5)


def test_the_stream_up_stays_open_until_the_end() -> None:
    """Where nothing more can come from us, a server ends the watch."""
    client = Client(created(), events((b"a", 5, False)))
    found = following(client)
    ended: list[object] = []
    waiting = threading.Thread(target=lambda: ended.extend(client.requests), daemon=True)
    waiting.start()
    list(found.until(5))
    waiting.join(0.05)
    assert waiting.is_alive()
    found.close()
    waiting.join(30)
    assert not waiting.is_alive()
    assert ended == []


def test_what_was_compacted_before_it_was_told() -> None:
    gone = message("WatchResponse")(canceled=True, compact_revision=9)
    with following(Client(created(), gone)) as found, pytest.raises(RevisionCompacted) as caught:
        list(found.until(6))
    assert (caught.value.revision, caught.value.compacted) == (5, 9)


def test_a_watch_that_cannot_be_made_or_breaks() -> None:
    failed = CallFailed(Failure(FailureKind.UNREACHABLE, "the connection was lost"))
    client = Client(failed)
    with pytest.raises(SourceUnreachable, match="the connection was lost"):
        following(client)
    with following(Client(created(), failed)) as found, pytest.raises(SourceUnreachable):
        list(found.until(6))


def test_a_watch_that_lags_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    client = Client(created(), None, events((b"a", 5, False)), None, None)
    with following(client) as found:
        assert len(list(found.until(5))) == 1
        until = found.until(6)
        now = 0.0

        def late() -> float:
            nonlocal now
            now += 20
            return now

        monkeypatch.setattr(time, "monotonic", late)
        with pytest.raises(SourceUnreachable, match="was not told by its watch for 40 s"):
            list(until)
