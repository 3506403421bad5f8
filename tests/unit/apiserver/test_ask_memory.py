"""How one server is asked for object after object: at an even pace, patiently, and no longer than it helps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from etcdfix.apiserver.ask_memory import Pace, ServerMemory
from etcdfix.apiserver.client import NoReply, RefusalReason, Reply, Server
from etcdfix.apiserver.memory import Memory
from etcdfix.apiserver.objects import APIObject
from etcdfix.apiserver.servers import AllServers
from etcdfix.model.model import GroupResource
from tests.support.fixtures import Patch

SECRETS = GroupResource("", "secrets")
GONE = NoReply(RefusalReason.UNREACHABLE, "no connection comes about")
LOST = Reply(500, b"{}")
CACHE_LOST = Reply(429, b'{"kind":"Status"}', 3)
BUSY = Reply(429, b"Too many requests, please try again later.\n", 7)
DENIED = Reply(403, b"{}")


def held(name: str, kind: str = "Secret", version: str = "v1") -> Reply:
    metadata = f'{{"name":"{name}","namespace":"shop","uid":"u","resourceVersion":"7"}}'
    return Reply(200, f'{{"kind":"{kind}","apiVersion":"{version}","metadata":{metadata}}}'.encode())


class Played:
    """A server whose answers are a function of the path, and the time that nobody waits for."""

    address = "https://played"

    def __init__(self, answer: Callable[[str], Reply | NoReply]) -> None:
        self.answer = answer
        self.paths: list[str] = []
        self.slept: list[float] = []
        self.memory = ServerMemory(
            cast("AllServers", self),
            cast("Server", self),
            Pace(10, sleep=self.slept.append, clock=lambda: 100.0),
        )

    def send(self, _method: str, path: str, **_how: Any) -> Reply | NoReply:
        self.paths.append(path)
        return self.answer(path)

    def within(self, call: Callable[[], Any]) -> Any:
        return call()

    def ask(self, name: str) -> Memory:
        return self.memory.ask(APIObject("", "v1", "secrets", "shop", name), "Secret").word


def name_in(path: str) -> str:
    return path.rpartition("/")[2].partition("?")[0]


def test_requests_pass_at_an_even_pace() -> None:
    slept: list[float] = []
    now = [0.0]
    pace = Pace(4, sleep=slept.append, clock=lambda: now[0])
    for _ in range(3):
        pace.wait()
    assert slept == [0.25, 0.5]  # the clock of this test stands still
    now[0] = 10.0
    pace.wait()
    pace.wait()
    assert slept == [0.25, 0.5, 0.25]  # what was not used is not saved up


def test_a_server_that_gives_is_asked_on() -> None:
    played = Played(lambda path: held(name_in(path)))
    assert [played.ask(name) for name in "abcd"] == [Memory.HELD] * 4
    assert played.memory.requests == 4
    assert played.memory.why_not(SECRETS) is None


def test_a_server_that_is_gone_is_left_alone_after_three() -> None:
    played = Played(lambda _path: GONE)
    for name in "abc":
        assert played.memory.why_not(SECRETS) is None
        assert played.ask(name) is Memory.NO_ANSWER
    gone = played.memory.why_not(SECRETS)
    assert gone is not None
    assert gone.word is Memory.NO_ANSWER
    assert played.memory.why_not(GroupResource("apps", "deployments")) is gone


def test_a_lost_memory_ends_the_kind_and_no_other() -> None:
    for answer in (CACHE_LOST, LOST):
        played = Played(lambda _path, answer=answer: answer)  # type: ignore[misc]
        played.ask("a")
        lost = played.memory.why_not(SECRETS)
        assert lost is not None
        assert lost.word is Memory.CACHE_LOST
        assert played.memory.why_not(GroupResource("", "configmaps")) is None


def test_one_object_that_cannot_be_read_is_not_the_kind() -> None:
    def answer(path: str) -> Reply:
        if path == "/api/v1/secrets?resourceVersion=0":
            return Reply(200, b"{}")
        return LOST if name_in(path) == "bad" else held(name_in(path))

    played = Played(answer)
    assert [played.ask(name) for name in ("bad", "a", "bad", "b")] == [
        Memory.READ_ERROR, Memory.HELD, Memory.READ_ERROR, Memory.HELD,
    ]  # fmt: skip
    assert played.memory.why_not(SECRETS) is None
    for name in ("bad", "bad", "bad"):
        played.ask(name)
    assert played.memory.why_not(SECRETS) is not None


def test_an_overloaded_server_is_waited_for() -> None:
    left = [BUSY, BUSY]
    played = Played(lambda path: left.pop() if left else held(name_in(path)))
    assert played.ask("a") is Memory.HELD
    assert [seconds for seconds in played.slept if seconds >= 1] == [7, 7]
    assert played.memory.requests == 3


def test_rights_that_are_missing_end_the_kind_after_three_and_an_unknown_user_at_once() -> None:
    played = Played(lambda _path: DENIED)
    for name in "abc":
        assert played.memory.why_not(SECRETS) is None
        assert played.ask(name) is Memory.DENIED
    assert played.memory.why_not(SECRETS) is not None
    unknown = Played(lambda _path: Reply(401, b"{}"))
    unknown.ask("a")
    assert unknown.memory.gone is not None


def test_a_version_that_is_not_served_gives_way_to_one_that_is() -> None:
    group = b'{"kind":"APIGroup","preferredVersion":{"version":"v2"},"versions":[{"version":"v2"},{"version":"v1"}]}'
    widget = APIObject("example.com", "", "widgets", "shop", "w")

    def answer(path: str) -> Reply:
        if path == "/apis/example.com":
            return Reply(200, group)
        return held(name_in(path), "Widget", "example.com/v1") if "/v1/" in path else Reply(404, b"")

    played = Played(answer)
    found = played.memory.ask(widget, "")
    assert found.identity is not None
    assert found.identity.version == "v1"
    before = len(played.paths)
    played.memory.ask(widget, "")
    assert len(played.paths) == before + 1  # the version is known now
    older = APIObject("example.com", "v3", "widgets", "shop", "w")
    assert Played(answer).memory.ask(older, "").word is Memory.HELD


def test_a_resource_that_is_not_served_and_versions_that_nobody_tells(monkeypatch: Patch) -> None:
    widget = APIObject("example.com", "", "widgets", "shop", "w")
    none = Played(lambda _path: Reply(404, b""))
    assert none.memory.ask(widget, "").word is Memory.NOT_SERVED
    assert none.memory.why_not(GroupResource("example.com", "widgets")) is not None
    mute = Played(lambda _path: Reply(503, b"", 5))
    assert mute.memory.ask(widget, "").word is Memory.NO_ANSWER
    slow = Played(lambda path: held(name_in(path)))
    monkeypatch.setattr(slow, "within", lambda _call: None)
    assert slow.memory.ask(widget, "").word is Memory.NO_ANSWER
    assert slow.ask("a") is Memory.NO_ANSWER
