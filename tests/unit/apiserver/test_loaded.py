"""Which EncryptionConfiguration a server says that it has loaded; the lines are those of the recordings."""

from __future__ import annotations

import gzip
import hashlib
import json
from typing import cast

import pytest

from etcdfix.apiserver.client import NoReply, RefusalReason, Reply, Server
from etcdfix.apiserver.holders import loaded_configuration
from tests.support.golden import golden_folder, needs_golden

ONE = "sha256:" + hashlib.sha256(b"one").hexdigest()
OTHER = "sha256:" + hashlib.sha256(b"other").hexdigest()
NAME = "apiserver_encryption_config_controller_last_config_info"


class Played:
    def __init__(self, reply: Reply | NoReply) -> None:
        self._reply = reply

    def send(self, method: str, path: str, *, accept: str, longest: int) -> Reply | NoReply:
        assert (method, path, accept, longest > 1 << 20) == ("GET", "/metrics", "text/plain", True)
        return self._reply


def said(*lines: str) -> str:
    text = "\n".join(["# TYPE other counter", "other 1", *lines, "last 2", ""])
    return loaded_configuration(cast("Server", Played(Reply(200, text.encode()))))


@pytest.mark.parametrize("line", [
    "", f'other{{hash="{ONE}"}} 1', f'{NAME}{{apiserver_id_hash="{ONE}"}} 1', f'{NAME}{{hash="sha256:12"}} 1',
    f'# {NAME}{{hash="{ONE}"}} 1', f'{NAME}_more{{hash="{ONE}"}} 1',
])  # fmt: skip
def test_what_is_no_digest(line: str) -> None:
    assert said(line) == ""


@pytest.mark.parametrize(
    "reply", [Reply(403, b"no"), Reply(200, None), NoReply(RefusalReason.TIMED_OUT, "no answer within 3 s")]
)
def test_a_server_that_says_nothing(reply: Reply | NoReply) -> None:
    assert loaded_configuration(cast("Server", Played(reply))) == ""


@needs_golden
def test_of_the_recordings_each_is_the_digest_of_the_file_in_force() -> None:
    """They have the configuration as an object; the file was its JSON."""
    raw = gzip.decompress((golden_folder("apiserver-http") / "exchanges.jsonl.gz").read_bytes())
    in_force: dict[str, str] = {}
    seen = 0
    for line in raw.splitlines():
        event = json.loads(line)
        if event.get("encryption"):
            in_force[event["scenario"]] = json.dumps(event["encryption"])
        if event.get("metrics"):
            digest = hashlib.sha256(in_force[event["scenario"]].encode()).hexdigest()
            assert said(*event["metrics"]) == f"sha256:{digest}"
            seen += 1
    assert seen == 10
