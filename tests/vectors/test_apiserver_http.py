"""The stand-in API server against the recordings of a real one, exchange by exchange.

Each scenario is played with the recording's clock: what was done to servers, files and etcd is done to the stand-in,
and each request is asked again. Compared are the status, the headers ``Content-Type``, ``Retry-After``,
``Cache-Control``, ``X-Content-Type-Options``, ``Warning`` (of reads) and whether those of priority and fairness are
there, the whole body, and, where it is recorded, what stands in etcd afterwards (but for CustomResourceDefinitions).

Not compared are times, the revision of a list and of a bookmark, continue tokens, the first revision that a cache
knows, and which of two words a wrong key's noise gives (``invalid padding on input``, ``invalid PKCS7 data``). Taken
from the recording are uids, the revisions of what is written, and when custom resources and health checks come back
after a restart. :data:`LEFT_OUT` counts what is not compared at all, and why. Among that are reads that a server
answers otherwise while it starts (5.5 s), and reads whose answer is the recorded one of the same request up to 1.6 s
before or after.
"""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from typing import Any

import pytest

from tests.support.apiserver.comparing import normalised
from tests.support.apiserver.process import configuration_of
from tests.support.apiserver.recording import Record, load
from tests.support.apiserver.replay import SHIFT_SECONDS, Replay, Watching
from tests.support.apiserver.requests import Request
from tests.support.golden import golden_folder, needs_golden

pytestmark = needs_golden

SCENARIOS = (
    "A-idle", "A-key-lost-gate-off", "A-key-lost-gate-on", "A-reads-refused", "A-reads-refused-gate-on",
    "A-same-key-name", "B-restart-crd", "B-restart-secrets", "B-restart-secrets-gate-on", "B-restart-widgets",
    "C-damaged-configmap-plain", "C-damaged-secret-flipped", "C-damaged-secret-truncated-gate-on",
    "C-damaged-widget-plain", "D-put-back-json-encrypted", "D-put-back-json-over-good", "D-put-back-json-plain",
    "D-put-back-older-bytes", "E-cache-behind", "E-two-servers", "F-discovery-and-rights", "G-load",
)  # fmt: skip

COMPARED = (11_045, 243, 30)  # exchanges, values in etcd, streams that are held open
LEFT_OUT = {
    "a server that starts is not as far yet": 18,
    "a change of state comes up to 1.6 s earlier or later": 120,
    "no HTTP answer: the server is not up": 46,
    "protobuf": 22,
    "a CustomResourceDefinition that sets the scene, with the status that the server gives it": 19,
    "a discovery document": 15,
    "a Table": 14,
    "an admission policy that sets the scene": 8,
    "a 422 in the server's own words, which quotes the object in an order of its own": 3,
    "Endpoints before a server has written them": 2,
    "a SelfSubjectRulesReview": 2,
    "a rule of priority and fairness that sets the scene": 2,
    "RBAC's reason for a path": 1,
}


@cache
def _scenarios() -> dict[str, list[Record]]:
    return load(golden_folder("apiserver-http") / "exchanges.jsonl.gz")


@cache
def _played(name: str) -> Replay:
    replay = Replay(_scenarios()[name])
    replay.play()
    return replay


def test_every_scenario_is_played() -> None:
    assert sorted(_scenarios()) == sorted(SCENARIOS)


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_stand_in_answers_as_recorded(name: str) -> None:
    different = [
        f"{c.record['step']} {c.record['request']['method']} {c.record['request']['path']}: {c.difference}"
        for c in [*_played(name).compared, *_played(name).stored]
        if c.difference
    ]
    assert not different, "\n".join(different[:10])


@pytest.mark.parametrize("name", SCENARIOS)
def test_streams_that_are_held_open_show_the_same_events(name: str) -> None:
    for watching in _played(name).watching:
        assert _events(line.decode() for _, line in watching.seen) == _events(
            entry["line"] for entry in watching.record["lines"]
        )
        if watching.record["ended_how"] == "by the server":
            assert _end(watching) == pytest.approx(watching.record["ended"], abs=SHIFT_SECONDS)
        else:
            assert watching.ended is None


def test_what_is_compared_and_what_is_left_out() -> None:
    left_out: Counter[str] = Counter()
    compared = stored = 0
    for name in SCENARIOS:
        played = _played(name)
        left_out.update(c.left_out for c in played.compared if c.left_out)
        compared += sum(not c.left_out for c in played.compared)
        stored += len(played.stored)
    recorded = sum(r["kind"] in {"exchange", "watch"} for records in _scenarios().values() for r in records)
    streams = sum(len(_played(name).watching) for name in SCENARIOS)
    assert dict(left_out) == LEFT_OUT
    assert (compared, stored, streams) == COMPARED
    assert compared + streams + sum(left_out.values()) == recorded


def test_a_difference_would_be_seen() -> None:
    """The comparison is no rubber stamp: a stand-in that forgets one rule differs."""
    records = _scenarios()["A-key-lost-gate-off"]
    replay = Replay(records)
    replay.behaviour.given_up_after = 20.0
    replay.play()
    assert any(c.difference for c in replay.compared)


def test_a_server_tells_which_file_of_keys_it_has_loaded() -> None:
    """The metric names the SHA-256 of the file; a recorded file was the JSON that the record has."""
    told = 0
    for records in _scenarios().values():
        files: dict[str, Any] = {}
        for record in records:
            files |= {record["server"]: record["encryption"]} if "encryption" in record else {}
            for line in record.get("metrics", []):
                if "last_config_info" in line:
                    configuration = configuration_of(files[record["server"]])
                    assert configuration is not None
                    assert f'hash="{configuration.sha256}"' in line
                    told += 1
    assert told == 10


def test_a_422_quotes_the_secret() -> None:
    """What the table leaves out for its words: the answer to a patch that does not fit holds the whole object."""
    records = _scenarios()["F-discovery-and-rights"]
    recorded = next(r for r in records if r["step"] == 134)
    secret = "cGFzc3dvcmQgb2Ygb3BhcXVl"
    assert secret in recorded["response"]["body"]
    replay = Replay([r for r in records if r["step"] < 134])
    replay.play()
    answer = next(iter(replay.serving.values())).answer(replay.request(recorded))
    assert answer.status == recorded["response"]["status"] == 422
    assert secret in answer.body.decode()


def _events(lines: Any) -> list[Any]:
    request = Request("GET", "/?watch=1")
    found = [normalised(request, line.encode())[0] for line in lines]
    for event in found:
        if event["type"] == "DELETED":  # no answer tells the revision of a deletion
            event["object"]["metadata"].pop("resourceVersion")
    # Bookmarks come by the clock of the server.
    return [event for event in found if event["type"] != "BOOKMARK"]


def _end(watching: Watching) -> float:
    assert watching.ended is not None, json.dumps(watching.record["request"])
    return watching.ended
