"""The options of a LIST: selectors, versions, and the tokens by which a list goes on."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

from tests.support.apiserver.answers import Refusal, invalid


def selected(item: Mapping[str, Any], query: Mapping[str, str]) -> bool:
    metadata = item["metadata"]
    for part in filter(None, query.get("labelSelector", "").split(",")):
        name, _, value = part.partition("=")
        if metadata.get("labels", {}).get(name) != value.lstrip("="):
            return False
    for part in filter(None, query.get("fieldSelector", "").split(",")):
        name, _, value = part.partition("=")
        if metadata.get(name.removeprefix("metadata.")) != value.lstrip("="):
            return False
    return True


def token_of(revision: int, start: str) -> str:
    token = json.dumps(
        {"v": "meta.k8s.io/v1", "rv": revision, "start": start + "\x00"}, separators=(",", ":")
    )
    return base64.urlsafe_b64encode(token.encode()).decode().rstrip("=")


def relative(key: bytes, below: bytes) -> str:
    return key[len(below) :].decode()


def continued(token: str, below: bytes) -> tuple[int, bytes]:
    """Return the revision that a token names (0 without one), and the last key that has been listed."""
    if not token:
        return 0, b""
    try:
        found = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    except ValueError:
        why = "invalid character 'i' looking for beginning of value"
        text = f"invalid continue token: continue key is not valid: {why}"
        raise Refusal(400, "BadRequest", text) from None
    return found["rv"], below + found["start"].strip("/\x00").encode()


def check_list_options(version: str, match: str, token: str) -> None:
    if version and not version.isdigit():
        why = f'strconv.ParseUint: parsing "{version}": invalid syntax'
        text = f'invalid resource version: resourceVersion: Invalid value: "{version}": {why}'
        raise Refusal(400, "BadRequest", text)
    if token and version not in {"", "0"}:
        raise Refusal(400, "BadRequest", "specifying resource version is not allowed when using continue")
    forbidden = ""
    if match and not version:
        forbidden = "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided"
    elif match == "Exact" and version == "0":
        forbidden = 'Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
    if forbidden:
        raise invalid(
            'ListOptions.meta.k8s.io ""',
            [("FieldValueForbidden", forbidden, "resourceVersionMatch")],
            details={"group": "meta.k8s.io", "kind": "ListOptions"},
        )
