"""What a server says of its datastore and of its configuration, and when to ask it again; where there are recordings,
the answers are theirs."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Iterator
from typing import Any, cast

import pytest

from etcdfix.apiserver.client import NoReply, RefusalReason, Reply, Server
from etcdfix.apiserver.reading import SeenRevision, loaded_configuration, revision_seen_by
from tests.support.golden import golden_folder, needs_golden

LEASES = "/apis/coordination.k8s.io/v1/leases?limit=1"
NAMESPACES = "/api/v1/namespaces?limit=1"
METRICS = "/metrics"
ONE = "sha256:" + hashlib.sha256(b"one").hexdigest()
NAME = "apiserver_encryption_config_controller_last_config_info"
SILENCE = NoReply(RefusalReason.TIMED_OUT, "no answer within 3 s")


class Played:
    """Answers each path as it is told, and notes what it was asked."""

    def __init__(self, answers: dict[str, Reply | NoReply]) -> None:
        self._answers = answers
        self.asked: list[str] = []

    def ask(self, path: str, *, accept: str, longest: int) -> Reply | NoReply:
        assert longest > 0
        assert accept == "text/plain" if path == METRICS else "PartialObjectMetadataList" in accept
        self.asked.append(path)
        return self._answers[path]

    @property
    def server(self) -> Server:
        return cast("Server", self)


def listed(revision: object) -> Reply:
    return Reply(200, json.dumps({"kind": "List", "metadata": {"resourceVersion": revision}}).encode())


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        (listed("1234"), None, SeenRevision(1234)),
        (SILENCE, None, SeenRevision(why="no answer within 3 s")),
        (
            Reply(403, b"never shown"),
            Reply(500, b"never shown"),
            SeenRevision(why="a list of /api/v1/namespaces was answered with 403"),
        ),
        *[
            (
                reply,
                None,
                SeenRevision(why="its answer to a list of /api/v1/namespaces could not be understood"),
            )
            for reply in (
                *(Reply(200, body) for body in (None, b"{}", b"never shown")),
                *(listed(odd) for odd in ("", "12a", 7)),
            )
        ],
    ],
)
def test_at_which_revision_a_server_finds_its_datastore(
    first: Reply | NoReply, second: Reply | None, said: SeenRevision
) -> None:
    played = Played({NAMESPACES: first, **({LEASES: second} if second is not None else {})})
    assert revision_seen_by(played.server) == said
    assert played.asked == ([NAMESPACES] if second is None else [NAMESPACES, LEASES])


def loaded(*lines: str) -> str:
    text = "\n".join(["# TYPE other counter", "other 1", *lines, "last 2", ""])
    return loaded_configuration(Played({METRICS: Reply(200, text.encode())}).server)


@pytest.mark.parametrize("line", [
    "", f'other{{hash="{ONE}"}} 1', f'{NAME}{{apiserver_id_hash="{ONE}"}} 1', f'{NAME}{{hash="sha256:12"}} 1',
    f'# {NAME}{{hash="{ONE}"}} 1', f'{NAME}_more{{hash="{ONE}"}} 1',
])  # fmt: skip
def test_what_is_no_digest_of_a_configuration(line: str) -> None:
    assert loaded(line) == ""


@pytest.mark.parametrize("reply", [Reply(403, b"no"), Reply(200, None), SILENCE])
def test_a_server_that_tells_no_metrics(reply: Reply | NoReply) -> None:
    assert loaded_configuration(Played({METRICS: reply}).server) == ""


def recorded() -> Iterator[dict[str, Any]]:
    raw = gzip.decompress((golden_folder("apiserver-http") / "exchanges.jsonl.gz").read_bytes())
    yield from map(json.loads, raw.splitlines())


@needs_golden
def test_of_the_recordings_each_digest_is_that_of_the_file_in_force() -> None:
    """They have the configuration as an object; the file was its JSON."""
    in_force: dict[str, str] = {}
    seen = 0
    for event in recorded():
        if event.get("encryption"):
            in_force[event["scenario"]] = json.dumps(event["encryption"])
        if event.get("metrics"):
            digest = hashlib.sha256(in_force[event["scenario"]].encode()).hexdigest()
            assert loaded(*event["metrics"]) == f"sha256:{digest}"
            seen += 1
    assert seen == 10
