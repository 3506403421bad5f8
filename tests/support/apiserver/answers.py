"""What a stand-in API server says: objects and Status."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

Headers = tuple[tuple[str, str], ...]
JSON_TYPE = "application/json"
TEXT_TYPE = "text/plain; charset=utf-8"


class Answer(NamedTuple):
    """One answer; ``lines`` follow the headers one by one."""

    status: int
    body: bytes = b""
    content_type: str = JSON_TYPE
    headers: Headers = ()
    lines: Iterator[bytes] | None = None


class Refusal(Exception):
    """A Status that ends a request."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: Mapping[str, Any] | None = None,
        headers: Headers = (),
    ) -> None:
        super().__init__(message)
        self.code, self.reason, self.message = code, reason, message
        self.details, self.headers = details, headers

    def answer(self) -> Answer:
        found = {
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": self.message,
            "reason": self.reason, "details": self.details, "code": self.code,
        }  # fmt: skip
        shown = {name: value for name, value in found.items() if value is not None and value != ""}
        return Answer(self.code, json_line(shown), headers=self.headers)


def about(resource: str, name: str) -> dict[str, Any]:
    """Return the details of a Status about an object; ``resource`` as ``secrets`` or ``widgets.example.com``."""
    plural, _, group = resource.partition(".")
    return {**({"name": name} if name else {}), **({"group": group} if group else {}), "kind": plural}


def not_found(resource: str, name: str) -> Refusal:
    return Refusal(404, "NotFound", f'{resource} "{name}" not found', details=about(resource, name))


def internal_error(text: str) -> Refusal:
    details = {"causes": [{"message": text}]}
    return Refusal(500, "InternalError", f"Internal error occurred: {text}", details=details)


def forbidden(resource: str, name: str, why: str) -> Refusal:
    shown = f' "{name}"' if name else ""
    return Refusal(403, "Forbidden", f"{resource}{shown} is forbidden: {why}", details=about(resource, name))


def conflict(resource: str, name: str, why: str) -> Refusal:
    message = f'Operation cannot be fulfilled on {resource} "{name}": {why}'
    return Refusal(409, "Conflict", message, details=about(resource, name))


def already_exists(resource: str, name: str) -> Refusal:
    return Refusal(409, "AlreadyExists", f'{resource} "{name}" already exists', details=about(resource, name))


def too_many_requests(message: str, seconds: int) -> Refusal:
    """Return the 429 of a lost cache; that of overload is :data:`OVERLOADED`."""
    headers = (("Retry-After", str(seconds)),)
    return Refusal(429, "TooManyRequests", message, details={"retryAfterSeconds": seconds}, headers=headers)


UNAUTHORIZED = Refusal(401, "Unauthorized", "Unauthorized")
PAGE_NOT_FOUND = Answer(404, b"404 page not found\n", TEXT_TYPE)
NO_SUCH_RESOURCE = Refusal(404, "NotFound", "the server could not find the requested resource", details={})
OVERLOADED = Answer(429, b"Too many requests, please try again later.\n", TEXT_TYPE, (("Retry-After", "1"),))


def text(body: str) -> Answer:
    return Answer(200, body.encode(), TEXT_TYPE)


def json_line(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
