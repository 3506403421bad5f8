"""Compares what the stand-in answers with what is recorded."""

from __future__ import annotations

import base64
import copy
import json
import re
from typing import Any

import yaml

from tests.support.apiserver.answers import Answer
from tests.support.apiserver.recording import Record
from tests.support.apiserver.requests import Request

HEADERS = ("Content-Type", "Retry-After", "Cache-Control", "X-Content-Type-Options")
_PRIORITY = "X-Kubernetes-Pf-Flowschema-Uid"
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
# What noise looks like that a wrong key made depends on the noise.
_PADDING = re.compile(r"invalid padding on input|invalid PKCS7 data \(empty or not padded\)")
_FAILED_TRY = re.compile(rb"(?<=storage is \(re\)initializing): failed to list .*(?=\",\"reason\")")


def without_chance(text: str) -> str:
    """Return a text without what no two runs have in common: times, and the words for a wrong key's noise."""
    return _PADDING.sub("PADDING", _TIME.sub("TIME", text))


def difference_of(
    request: Request, answer: Answer, body: bytes, response: Record, *, of_cache: bool = False
) -> str:
    """Return how an answer differs from the recorded one, "" where it does not.

    ``of_cache``: the 429 of a lost cache may name one second more or less, and the reason of the try before or after.
    """
    if answer.status != response["status"]:
        return f"status {answer.status}, recorded {response['status']}: {body[:300]!r}"
    recorded = response["headers"]
    headers = {"Content-Type": answer.content_type, **dict(answer.headers)}
    wait, recorded_wait = headers.get("Retry-After"), recorded.get("Retry-After")
    if of_cache and wait and recorded_wait and abs(int(wait) - int(recorded_wait)) <= 1:
        headers["Retry-After"] = recorded_wait
        body = re.sub(rb'"retryAfterSeconds":\d+', f'"retryAfterSeconds":{recorded_wait}'.encode(), body)
    # A write may warn of what is in the object; the stand-in looks at no certificates.
    for name in (*HEADERS, *(["Warning"] if request.method == "GET" else [])):
        if headers.get(name) != recorded.get(name):
            return f"{name}: {headers.get(name)!r}, recorded {recorded.get(name)!r}"
    if (_PRIORITY in headers) != (_PRIORITY in recorded):
        return f"{_PRIORITY}: {_PRIORITY in headers}, recorded {_PRIORITY in recorded}"
    text = response["body"].encode() if "body" in response else base64.b64decode(response["body_base64"])
    if of_cache and answer.status == 429:
        body, text = (_FAILED_TRY.sub(b"", each) for each in (body, text))
    ours, theirs = normalised(request, body), normalised(request, text)
    if ours != theirs:
        return f"body: {where(ours, theirs)}"
    return ""


def normalised(request: Request, body: bytes) -> Any:
    """Return a body as it is compared.

    JSON is parsed, a watch line by line. Left out of it: times, a list's own resourceVersion (other writers use the
    same etcd) and its continue token (which carries it).
    """
    try:
        text = without_chance(body.decode())
    except UnicodeDecodeError:
        return body
    if request.query.get("watch"):
        lines = [line for line in text.split("\n") if line]
        return [_plain(json.loads(line)) for line in lines]
    if request.accept.startswith("application/yaml"):
        return yaml.safe_load(text)
    try:
        return _plain(json.loads(text))
    except ValueError:
        return text


def _plain(value: Any) -> Any:
    if isinstance(value, dict) and value.get("type") == "ERROR":
        value["object"]["message"] = re.sub(r"\(\d+\)$", "", value["object"]["message"])
    if isinstance(value, dict) and value.get("type") == "BOOKMARK":
        value["object"]["metadata"].pop("resourceVersion")
    if isinstance(value, dict) and isinstance(value.get("metadata"), dict) and "items" in value:
        found = copy.copy(value)
        found["metadata"] = {
            name: ("TOKEN" if item else "") if name == "continue" else item
            for name, item in value["metadata"].items()
            if name != "resourceVersion"
        }
        return found
    return value


def where(ours: Any, theirs: Any, path: str = "") -> str:
    """Return the first place where two values differ."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for name in [*theirs, *ours]:
            if name not in ours:
                return f"{path}.{name} is missing: {str(theirs[name])[:200]}"
            if name not in theirs:
                return f"{path}.{name} is too much: {str(ours[name])[:200]}"
            if ours[name] != theirs[name]:
                return where(ours[name], theirs[name], f"{path}.{name}")
    if isinstance(ours, list) and isinstance(theirs, list):
        if len(ours) != len(theirs):
            return f"{path}: {len(ours)} items, recorded {len(theirs)}"
        for index, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            if one != other:
                return where(one, other, f"{path}[{index}]")
    return f"{path}: {str(ours)[:300]} recorded {str(theirs)[:300]}"
