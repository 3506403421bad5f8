"""Compares what the stand-in answers with what is recorded."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

from tests.support.apiserver.answers import Answer
from tests.support.apiserver.recording import Record

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
# What noise looks like that a wrong key made depends on the noise.
_PADDING = re.compile(r"invalid padding on input|invalid PKCS7 data \(empty or not padded\)")
_FAILED_TRY = re.compile(rb"(?<=storage is \(re\)initializing): failed to list .*(?=\",\"reason\")")


def without_chance(text: str) -> str:
    """Return a text without what no two runs have in common: times, and the words for a wrong key's noise."""
    return _PADDING.sub("PADDING", _TIME.sub("TIME", text))


def difference_of(answer: Answer, response: Record, *, of_cache: bool = False) -> str:
    """Return how an answer differs from the recorded one, "" where it does not.

    ``of_cache``: the 429 of a lost cache may name one second more or less, and the reason of the try before or after.
    """
    body = answer.body
    if answer.status != response["status"]:
        return f"status {answer.status}, recorded {response['status']}: {body[:300]!r}"
    recorded = response["headers"]
    headers = {"Content-Type": answer.content_type, **dict(answer.headers)}
    wait, recorded_wait = headers.get("Retry-After"), recorded.get("Retry-After")
    if of_cache and wait and recorded_wait and abs(int(wait) - int(recorded_wait)) <= 1:
        headers["Retry-After"] = recorded_wait
        body = re.sub(rb'"retryAfterSeconds":\d+', f'"retryAfterSeconds":{recorded_wait}'.encode(), body)
    for name in ("Content-Type", "Retry-After"):
        if headers.get(name) != recorded.get(name):
            return f"{name}: {headers.get(name)!r}, recorded {recorded.get(name)!r}"
    text = response["body"].encode() if "body" in response else base64.b64decode(response["body_base64"])
    if of_cache and answer.status == 429:
        body, text = (_FAILED_TRY.sub(b"", each) for each in (body, text))
    ours, theirs = _normalised(body), _normalised(text)
    return "" if ours == theirs else f"body: {where(ours, theirs)}"


def _normalised(body: bytes) -> Any:
    """Return a body as it is compared: without times, who manages fields, and what other writers to etcd change."""
    shown = without_chance(body.decode())
    try:
        return without_managers(json.loads(shown))
    except ValueError:
        return shown


def without_managers(value: Any) -> Any:
    """Return JSON without managedFields; of a list's metadata only how much is left stays."""
    if not isinstance(value, dict):
        return value
    metadata = dict(value.get("metadata") or {})
    metadata.pop("managedFields", None)
    if "items" in value:
        metadata.pop("resourceVersion", None)
        metadata |= {"continue": bool(metadata["continue"])} if "continue" in metadata else {}
        value = {**value, "items": [without_managers(item) for item in value["items"]]}
    return {**value, "metadata": metadata}


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
