from __future__ import annotations

import base64
import json

from etcdfix.model import Evidence, Outcome, ServerBehaviour
from etcdfix.verdicts.causes import Cause
from tests.support.examinations import examination, readable
from tests.support.reports import write


def test_names_one_per_line_in_order() -> None:
    found = [
        readable("/registry/pods/shop/a"),
        examination("/registry/pods/shop/b"),
        readable("/registry/pods/shop/c", evidence=(Evidence("unknown fields", "ignored"),)),
        examination("/registry/pods/shop/d", outcome=Outcome.UNDETERMINED, cause=Cause.KMS_UNREACHABLE),
        examination("/registry/pods/shop/with space"),
    ]
    assert write("name", found).decode().splitlines() == [
        "/registry/pods/shop/b",
        "/registry/pods/shop/d",
        "/registry/pods/shop/with space",
    ]


def test_names_that_cannot_be_printed_are_encoded() -> None:
    keys = [b"/registry/secrets/shop/\xff", b"/registry/secrets/a\nb/c", "/registry/secrets/\u202e".encode()]
    written = write("name", [examination(key) for key in keys]).decode()
    assert written.count("\n") == len(keys)
    assert written.replace("\n", "").isprintable()
    decoded = [base64.b64decode(line.removeprefix("base64:")) for line in written.splitlines()]
    assert decoded == keys


def test_status_is_one_line_per_resource() -> None:
    found = [examination(f"/registry/{resource}/shop/a") for resource in ("pods", "secrets", "deployments")]
    parsed = [json.loads(line) for line in write("status", found).splitlines()]
    assert [status["details"]["kind"] for status in parsed] == ["pods", "secrets", "deployments"]
    assert {status["reason"] for status in parsed} == {"StorageReadError"}


def test_status_stops_at_the_cap() -> None:
    found = [examination(f"/registry/pods/shop/{n:03}") for n in range(101)]
    (full,) = [json.loads(line) for line in write("status", found[:100]).splitlines()]
    (cut,) = [json.loads(line) for line in write("status", found).splitlines()]
    (moved,) = [json.loads(line) for line in write("status", found, max_causes=101).splitlines()]
    assert [len(s["details"]["causes"]) for s in (full, cut, moved)] == [100, 101, 101]
    assert cut["details"]["causes"][100] == {
        "reason": "FieldValueTooMany",
        "message": "too many errors, the list is truncated",
    }
    assert full["details"]["causes"] == cut["details"]["causes"][:100]
    assert moved["details"]["causes"][100]["field"] == "/registry/pods/shop/100"


def test_nothing_corrupt_prints_nothing() -> None:
    found = [
        readable("/registry/pods/shop/a"),
        examination(
            outcome=Outcome.UNDETERMINED, cause=Cause.KMS_UNREACHABLE, apiserver=ServerBehaviour.NOT_ASKED
        ),
    ]
    assert write("status", found) == b""
    assert write("name", found[:1]) == b""
