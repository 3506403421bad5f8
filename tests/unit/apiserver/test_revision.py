"""At which revision a server finds its datastore; the lists are those of the recordings, where there are any."""

from __future__ import annotations

import gzip
import json
import re
from collections import defaultdict
from typing import cast

import pytest

from etcdfix.apiserver.client import NoReply, RefusalReason, Reply, Server
from etcdfix.apiserver.holders import Standing, revision_seen_by
from tests.support.golden import golden_folder, needs_golden

LEASES = "/apis/coordination.k8s.io/v1/leases?limit=1"
NAMESPACES = "/api/v1/namespaces?limit=1"


class Played:
    """Answers each path as it is told, and notes what it was asked."""

    def __init__(self, **answers: Reply | NoReply) -> None:
        self._answers = answers
        self.asked: list[str] = []

    def send(self, method: str, path: str, *, accept: str, longest: int) -> Reply | NoReply:
        assert (method, "PartialObjectMetadataList" in accept, longest > 0) == ("GET", True, True)
        self.asked.append(path)
        return self._answers["namespaces" if path == NAMESPACES else "leases"]

    @property
    def server(self) -> Server:
        return cast("Server", self)


def listed(revision: object) -> Reply:
    return Reply(200, json.dumps({"kind": "List", "metadata": {"resourceVersion": revision}}).encode())


def test_the_list_says_it() -> None:
    played = Played(namespaces=listed("1234"))
    assert revision_seen_by(played.server) == Standing(1234)
    assert played.asked == [NAMESPACES]


def test_where_none_says_it_the_first_says_why() -> None:
    played = Played(namespaces=Reply(403, b"never shown"), leases=Reply(500, b"never shown"))
    assert revision_seen_by(played.server) == Standing(
        why="a list of /api/v1/namespaces was answered with 403"
    )


@pytest.mark.parametrize("reply", [
    Reply(200, None), Reply(200, b"{}"), Reply(200, b"never shown"), listed(""), listed("12a"), listed(7),
])  # fmt: skip
def test_what_cannot_be_understood_says_nothing(reply: Reply) -> None:
    said = revision_seen_by(Played(namespaces=reply).server)
    assert said.why == "its answer to a list of /api/v1/namespaces could not be understood"


def test_silence_is_told() -> None:
    played = Played(namespaces=NoReply(RefusalReason.TIMED_OUT, "no answer within 3 s"))
    assert revision_seen_by(played.server) == Standing(why="no answer within 3 s")
    assert played.asked == [NAMESPACES]


@needs_golden
def test_recorded_lists_without_a_version_are_not_older_than_any_write_before_them() -> None:
    written: dict[str, list[tuple[float, int]]] = defaultdict(list)
    lists: list[tuple[str, float, int]] = []
    for line in gzip.decompress(
        (golden_folder("apiserver-http") / "exchanges.jsonl.gz").read_bytes()
    ).splitlines():
        exchange = json.loads(line)
        one = exchange["kind"] == "exchange" and "watch" not in exchange["request"]["path"]
        if not one or not exchange["response"].get("body", "").startswith("{"):
            continue
        request, response, began = exchange["request"], exchange["response"], exchange["t"]
        document = json.loads(response["body"])
        if request["method"] in {"POST", "PUT", "PATCH"} and response["status"] in {200, 201}:
            version = document.get("metadata", {}).get("resourceVersion", "")
            if version:
                written[exchange["scenario"]].append((began + exchange["took"], int(version)))
        plain = re.fullmatch(r"/apis?/[^?]*/[a-z]+(\?limit=[0-9]+)?", request["path"])
        a_list = plain and response["status"] == 200 and document.get("kind", "").endswith("List")
        if request["method"] == "GET" and a_list and "resourceVersion" in document["metadata"]:
            said = revision_seen_by(Played(namespaces=Reply(200, response["body"].encode())).server)
            assert said.revision is not None
            lists.append((exchange["scenario"], began, said.revision))
    assert len(lists) > 200
    for scenario, began, seen in lists:
        assert seen >= max((version for ended, version in written[scenario] if ended <= began), default=0)
