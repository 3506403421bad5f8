"""Requests to a stand-in API server, and what their paths name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote


class Request(NamedTuple):
    """One request that arrived.

    Attributes:
        path: With its query.
        raw: The body as it travelled.
    """

    method: str
    path: str
    raw: bytes = b""
    authorization: str | None = None
    accept: str = "application/json"
    content_type: str = ""

    @property
    def body(self) -> Any:
        """The body as JSON; None where there is none, or none that is JSON."""
        try:
            return json.loads(self.raw) if self.raw else None
        except ValueError:
            return None

    @property
    def size(self) -> int:
        return len(self.raw)

    @property
    def place(self) -> str:
        """The path without its query."""
        return self.path.partition("?")[0]

    @property
    def query(self) -> Mapping[str, str]:
        return dict(parse_qsl(self.path.partition("?")[2], keep_blank_values=True))


class Target(NamedTuple):
    """What a path below ``/api`` or ``/apis`` names; ``name`` is "" for a collection."""

    group: str
    version: str
    resource: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def target_of(path: str) -> Target | None:
    """Take a path apart; None for one that names no resource."""
    parts = [unquote(part) for part in path.strip("/").split("/")]
    if parts[0] == "api" and len(parts) > 2:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in {"finalize", "status"}:
        return Target(group, version, rest[2], rest[1], *rest[3:5])
    return Target(group, version, rest[0], "", *rest[1:3])
