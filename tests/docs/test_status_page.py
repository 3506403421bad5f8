"""What the page of the report says of a Status holds against what a real API server answered."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import msgspec

from tests.support.collecting import scan
from tests.support.golden import golden_folder, needs_golden
from tests.support.memory_source import MemorySource

PAGE = Path(__file__).parents[2] / "docs/report.md"


def ours() -> dict[str, Any]:
    reporter, _ = scan(MemorySource({"/registry/secrets/shop/web": b"k8s\x00broken"}))
    assert reporter.conclusion is not None
    (status,) = reporter.conclusion.statuses
    built: dict[str, Any] = msgspec.to_builtins(status)
    return built


def said_of_a_server() -> str:
    found = re.search(
        r"`details.name` is the etcd prefix[^;]*; a kube-apiserver says `(.*)` there", PAGE.read_text()
    )
    assert found is not None
    return found[1]


def recorded() -> list[dict[str, Any]]:
    with gzip.open(golden_folder("apiserver-http") / "exchanges.jsonl.gz", "rt") as lines:
        bodies = [
            json.loads(line).get("response", {}).get("body") or ""
            for line in lines
            if "StorageReadError" in line
        ]
    return [
        status for body in bodies if body and (status := json.loads(body)).get("reason") == "StorageReadError"
    ]


@needs_golden
def test_the_name_is_all_in_which_a_server_differs() -> None:
    statuses, own = recorded(), ours()
    assert len(statuses) == 11
    for status in statuses:
        assert status["details"].pop("name") == said_of_a_server()
        assert status.keys() == own.keys()
        assert {*status["details"], "name"} == own["details"].keys()
        plain = {field: value for field, value in status.items() if field != "details"}
        assert plain == {field: own[field] for field in plain}
        assert status["details"]["kind"] == own["details"]["kind"]
        for cause in status["details"]["causes"]:
            assert cause.keys() == own["details"]["causes"][0].keys()
            assert cause["reason"] == own["details"]["causes"][0]["reason"]
            assert cause["message"].startswith(
                f"StorageError: corrupt object, Code: 7, Key: {cause['field']}, "
            )
