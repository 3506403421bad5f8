"""The stand-in API server against the recordings of a real one, exchange by exchange.

Each scenario is played with the recording's clock: what was done to servers, files and etcd is done to the stand-in,
and each request that the stand-in knows is asked again. Compared are the status, ``Content-Type`` and ``Retry-After``,
the body, and, where it is recorded, what stands in etcd afterwards. Not compared are times, managedFields, a list's
own revision, and which of two words a wrong key's noise gives. A read may differ where the recorded server gave the
stand-in's answer up to 1.6 s before or after, and while a server starts (5.5 s).
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from tests.support.apiserver.process import configuration_of
from tests.support.apiserver.recording import Record, load
from tests.support.apiserver.replay import Replay
from tests.support.golden import golden_folder, needs_golden

pytestmark = needs_golden

SCENARIOS = (
    "A-idle", "A-key-lost-gate-off", "A-reads-refused", "A-same-key-name", "B-restart-secrets",
    "C-damaged-configmap-plain", "C-damaged-secret-flipped", "C-damaged-widget-plain",
    "D-put-back-json-encrypted", "D-put-back-json-over-good", "D-put-back-json-plain", "D-put-back-older-bytes",
    "E-cache-behind", "E-two-servers", "F-discovery-and-rights", "G-load",
)  # fmt: skip
"""Not those with AllowUnsafeMalformedObjectDeletion, nor those about custom resources after a start."""


@cache
def _scenarios() -> dict[str, list[Record]]:
    return load(golden_folder("apiserver-http") / "exchanges.jsonl.gz")


@cache
def _played(name: str) -> Replay:
    replay = Replay(_scenarios()[name])
    replay.play()
    return replay


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_stand_in_answers_as_recorded(name: str) -> None:
    different = [
        f"{c.record['step']} {c.record['request']['method']} {c.record['request']['path']}: {c.difference}"
        for c in [*_played(name).compared, *_played(name).stored]
        if c.difference
    ]
    assert not different, "\n".join(different[:10])


def test_what_is_compared() -> None:
    played = [_played(name) for name in SCENARIOS]
    assert len(_scenarios()) == len(SCENARIOS) + 6
    assert sum(len(replay.compared) for replay in played) == 4929
    assert sum(len(replay.stored) for replay in played) == 92
    assert sum(replay.shifted for replay in played) == 48


def test_a_difference_would_be_seen() -> None:
    """The comparison is no rubber stamp: a stand-in that forgets one rule differs."""
    replay = Replay(_scenarios()["A-key-lost-gate-off"])
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
