"""What one API server has of one object in its memory; its answers are those of the recordings, where there are any."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from collections.abc import Callable
from typing import Any, cast

import pytest

from etcdfix.apiserver import memory
from etcdfix.apiserver.client import NoReply, RefusalReason, Reply, Server
from etcdfix.apiserver.memory import Memory, Remembered, ServerMemory, remember, remember_kind
from etcdfix.apiserver.objects import APIObject
from etcdfix.copies import rescued
from etcdfix.model.model import GroupResource
from tests.support.fixtures import Patch
from tests.support.golden import golden_folder, needs_golden

THING = APIObject("", "v1", "secrets", "shop", "db")
METADATA = {"name": "db", "namespace": "shop", "uid": "u-1", "resourceVersion": "17"}
SECRET = "c2VjcmV0LXRoYXQtbXVzdC1ub3QtYmUtc2hvd24="


class Played:
    """A server with one answer to everything, or one that is a function of the path."""

    address = "https://played"

    def __init__(self, answer: Reply | NoReply | Callable[[str], Reply | NoReply]) -> None:
        self.answer = answer
        self.paths: list[str] = []
        self.accepted: list[str] = []
        self.memory = ServerMemory(self.server)

    @property
    def server(self) -> Server:
        return cast("Server", self)

    def ask(self, path: str, *, accept: str = "", longest: int = 1 << 20) -> Reply | NoReply:
        self.paths.append(path)
        self.accepted.append(accept)
        reply = self.answer(path) if callable(self.answer) else self.answer
        if isinstance(reply, Reply) and reply.body is not None and len(reply.body) > longest:
            return Reply(reply.status, None, reply.retry_after)
        return reply

    def word_for(self, name: str) -> Memory:
        return self.memory.ask(APIObject("", "v1", "secrets", "shop", name), "Secret").word


def body(**changes: Any) -> bytes:
    document: dict[str, Any] = {
        "kind": "Secret", "apiVersion": "v1", "metadata": METADATA, "data": {"password": SECRET},
    }  # fmt: skip
    return json.dumps(document | changes).encode() + b"\n"


def said(reply: Reply | NoReply, thing: APIObject = THING, **how: Any) -> Remembered:
    return remember(Played(reply).server, thing, **({"kind": "Secret"} | how))


def status(code: int, retry_after: int | None = None, **details: str) -> Reply:
    document = {"kind": "Status", "apiVersion": "v1", "message": SECRET, "details": details, "code": code}
    return Reply(code, json.dumps(document).encode(), retry_after)


def test_an_object_that_is_held_is_given_byte_for_byte() -> None:
    one = Played(Reply(200, body()))
    found = remember(one.server, THING, kind="Secret")
    assert found.word is Memory.HELD
    assert found.raw == body()
    assert found.identity is not None
    assert (found.identity.uid, found.identity.resource_version) == ("u-1", "17")
    assert (found.identity.kind, found.identity.version, found.identity.deleting) == ("Secret", "v1", False)
    assert one.paths == ["/api/v1/namespaces/shop/secrets/db?resourceVersion=0"]
    assert SECRET not in repr(found)


def test_metadata_alone_reveal_nothing() -> None:
    one = Played(Reply(200, body(kind="PartialObjectMetadata", apiVersion="meta.k8s.io/v1", data={})))
    found = remember(one.server, THING, kind="Secret", metadata_only=True)
    assert (found.word, found.raw) == (Memory.HELD, b"")
    assert one.accepted[0].startswith("application/json;as=PartialObjectMetadata;")


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"kind": "ConfigMap"}, "kind"),
        ({"kind": "PartialObjectMetadata"}, "kind"),
        ({"apiVersion": "v2"}, "apiVersion"),
        ({"metadata": METADATA | {"name": "other"}}, "name"),
        ({"metadata": METADATA | {"namespace": "other"}}, "namespace"),
        ({"metadata": METADATA | {"uid": ""}}, "uid"),
        ({"metadata": METADATA | {"resourceVersion": "0x11"}}, "resourceVersion"),
        ({"metadata": METADATA | {"resourceVersion": ""}}, "resourceVersion"),
        ({"metadata": METADATA | {"resourceVersion": "1" * 20}}, "resourceVersion"),
    ],
)
def test_what_is_not_the_object_that_was_asked_for_is_not_kept(changes: dict[str, Any], problem: str) -> None:
    found = said(Reply(200, body(**changes)))
    assert found.word is Memory.OTHER_OBJECT
    assert problem in found.detail
    assert found.raw == b""


@pytest.mark.parametrize(
    "raw", [b"", b"<html>", b"[" * 100_000, b"{}", body().replace(b"c2Vj", b"\xff\xfe\xfd\xfc")]
)
def test_what_cannot_be_understood_is_not_kept(raw: bytes) -> None:
    found = said(Reply(200, raw))
    assert (found.word, found.raw) == (Memory.OTHER_OBJECT, b"")


def test_an_object_beyond_any_size_is_not_kept(monkeypatch: Patch) -> None:
    monkeypatch.setattr(memory, "LONGEST_OBJECT", 20)
    assert said(Reply(200, body())).word is Memory.NO_ANSWER
    monkeypatch.undo()
    assert memory.LONGEST_OBJECT == rescued.MAX_OBJECT_BYTES


@pytest.mark.parametrize(
    ("reply", "word"),
    [
        (status(404, name="db"), Memory.NOT_HELD),
        (status(404), Memory.NOT_SERVED),
        (Reply(404, b"404 page not found\n"), Memory.NOT_SERVED),
        (status(401), Memory.UNKNOWN_USER),
        (status(403), Memory.DENIED),
        (status(429, 18), Memory.CACHE_LOST),
        (Reply(429, b"Too many requests, please try again later.\n", 1), Memory.OVERLOADED),
        (Reply(429, b'{"kind":"Status', 1), Memory.OVERLOADED),
        (status(500), Memory.READ_ERROR),
        (status(503, 5), Memory.NO_ANSWER),
        (status(504, 1), Memory.NO_ANSWER),
        (NoReply(RefusalReason.TIMED_OUT, "no answer within 10 s"), Memory.NO_ANSWER),
    ],
)
def test_what_each_refusal_means(reply: Reply | NoReply, word: Memory) -> None:
    found = said(reply)
    assert found.word is word
    assert SECRET not in found.detail
    assert remember_kind(Played(reply).server, THING).word is word


def test_a_name_that_no_request_can_carry_is_not_asked_for() -> None:
    one = Played(Reply(200, body()))
    found = remember(one.server, APIObject("", "v1", "secrets", "shop", "a/../b"), kind="Secret")
    assert found.word is Memory.NOT_HELD
    assert one.paths == []


@needs_golden
def test_the_recorded_answers_of_a_real_server() -> None:
    """Every GET with resourceVersion=0 of the recordings that was sent as we send it."""
    path = golden_folder("apiserver-http") / "exchanges.jsonl.gz"
    shape = re.compile(
        r"/apis?/(?:([^/]+)/)?(v1)(?:/namespaces/([^/]+))?/([^/]+)/([^/?]+)\?resourceVersion=0$"
    )
    words: Counter[tuple[int, Memory]] = Counter()
    for line in gzip.decompress(path.read_bytes()).splitlines():
        exchange = json.loads(line)
        if exchange["kind"] != "exchange" or "same_as" in exchange or "body" not in exchange["response"]:
            continue
        request, response = exchange["request"], exchange["response"]
        match = shape.match(request["path"])
        plain = request["headers"].get("Accept", "application/json") == "application/json"
        if request["method"] != "GET" or match is None or not plain:
            continue
        thing = APIObject(match[1] or "", match[2], match[4], match[3] or "", match[5])
        found = said(Reply(response["status"], response["body"].encode()), thing, kind="")
        words[response["status"], found.word] += 1
        if found.identity is not None:
            assert found.raw.decode() == response["body"]
    assert set(words) == {
        (200, Memory.HELD), (403, Memory.DENIED), (404, Memory.NOT_HELD), (500, Memory.READ_ERROR),
        (503, Memory.NO_ANSWER),
    }  # fmt: skip
    assert words[200, Memory.HELD] > 50


SECRETS = GroupResource("", "secrets")
GONE = NoReply(RefusalReason.UNREACHABLE, "no connection comes about")
LOST = Reply(500, b"{}")
CACHE_LOST = Reply(429, b'{"kind":"Status"}', 3)
DENIED = Reply(403, b"{}")


def held(name: str, kind: str = "Secret", version: str = "v1") -> Reply:
    metadata = f'{{"name":"{name}","namespace":"shop","uid":"u","resourceVersion":"7"}}'
    return Reply(200, f'{{"kind":"{kind}","apiVersion":"{version}","metadata":{metadata}}}'.encode())


def name_in(path: str) -> str:
    return path.rpartition("/")[2].partition("?")[0]


def test_a_server_that_is_gone_is_left_alone_after_three() -> None:
    played = Played(GONE)
    for name in "abc":
        assert played.memory.why_not(SECRETS) is None
        assert played.word_for(name) is Memory.NO_ANSWER
    gone = played.memory.why_not(SECRETS)
    assert gone is not None
    assert gone.word is Memory.NO_ANSWER
    assert played.memory.why_not(GroupResource("apps", "deployments")) is gone


def test_a_lost_memory_ends_the_kind_and_no_other() -> None:
    for answer in (CACHE_LOST, LOST):
        played = Played(answer)
        played.word_for("a")
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
    assert [played.word_for(name) for name in ("bad", "a", "bad", "b")] == [
        Memory.READ_ERROR, Memory.HELD, Memory.READ_ERROR, Memory.HELD,
    ]  # fmt: skip
    assert played.memory.why_not(SECRETS) is None
    for name in ("bad", "bad", "bad"):
        played.word_for(name)
    assert played.memory.why_not(SECRETS) is not None


def test_rights_that_are_missing_end_the_kind_after_three_and_an_unknown_user_at_once() -> None:
    played = Played(DENIED)
    for name in "abc":
        assert played.memory.why_not(SECRETS) is None
        assert played.word_for(name) is Memory.DENIED
    assert played.memory.why_not(SECRETS) is not None
    unknown = Played(Reply(401, b"{}"))
    unknown.word_for("a")
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


def test_a_resource_that_is_not_served_and_versions_that_nobody_tells() -> None:
    widget = APIObject("example.com", "", "widgets", "shop", "w")
    none = Played(Reply(404, b""))
    assert none.memory.ask(widget, "").word is Memory.NOT_SERVED
    assert none.memory.why_not(GroupResource("example.com", "widgets")) is not None
    mute = Played(Reply(503, b"", 5))
    assert mute.memory.ask(widget, "").word is Memory.NO_ANSWER
