"""What a stand-in API server says: objects and Status, in the forms that an Accept header asks for."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import yaml

Headers = tuple[tuple[str, str], ...]
JSON_TYPE = "application/json"
YAML_TYPE = "application/yaml"
TEXT_TYPE = "text/plain; charset=utf-8"
NOT_CACHED: Headers = (("Cache-Control", "no-cache, private"),)
NO_SNIFFING: Headers = (("X-Content-Type-Options", "nosniff"),)


class Answer(NamedTuple):
    """One answer; ``lines`` of a watch follow the headers."""

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
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.metadata = metadata or {}
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.headers = headers

    @property
    def status(self) -> dict[str, Any]:
        found = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self.metadata,
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "details": self.details,
            "code": self.code,
        }
        return {name: value for name, value in found.items() if value is not None and value != ""}

    def answer(self, accept: str) -> Answer:
        code = self.code
        body, content_type = rendered(self.status, accept)
        return Answer(code, body, content_type, self.headers)


def about(resource: str, name: str, **more: Any) -> dict[str, Any]:
    """Return the details of a Status about an object; ``resource`` as ``secrets`` or ``widgets.example.com``."""
    plural, _, group = resource.partition(".")
    return {"name": name, **({"group": group} if group else {}), "kind": plural, **more}


def not_found(resource: str, name: str) -> Refusal:
    return Refusal(404, "NotFound", f'{resource} "{name}" not found', details=about(resource, name))


def internal_error(text: str) -> Refusal:
    details = {"causes": [{"message": text}]}
    return Refusal(500, "InternalError", f"Internal error occurred: {text}", details=details)


def forbidden(resource: str, name: str, why: str) -> Refusal:
    details = about(resource, name) if name else {k: v for k, v in about(resource, "").items() if v}
    shown = f' "{name}"' if name else ""
    return Refusal(403, "Forbidden", f"{resource}{shown} is forbidden: {why}", details=details)


def conflict(resource: str, name: str, why: str) -> Refusal:
    message = f'Operation cannot be fulfilled on {resource} "{name}": {why}'
    return Refusal(409, "Conflict", message, details=about(resource, name))


def already_exists(resource: str, name: str) -> Refusal:
    message = f'{resource} "{name}" already exists'
    return Refusal(409, "AlreadyExists", message, details=about(resource, name))


def invalid(what: str, causes: Iterable[tuple[str, str, str]], *, details: Mapping[str, Any]) -> Refusal:
    """Return a 422; ``causes`` are reason, message and field; ``what`` as ``secrets "web"``."""
    causes = list(causes)
    text = ", ".join(f"{field}: {message}" for _, message, field in causes)
    listed = [{"reason": reason, "message": message, "field": field} for reason, message, field in causes]
    return Refusal(422, "Invalid", f"{what} is invalid: {text}", details={**details, "causes": listed})


def too_many_requests(message: str, seconds: int) -> Refusal:
    """Return the 429 of a lost cache; that of overload is :data:`OVERLOADED`."""
    return Refusal(
        429,
        "TooManyRequests",
        message,
        details={"retryAfterSeconds": seconds},
        headers=(("Retry-After", str(seconds)),),
    )


UNAUTHORIZED = Refusal(401, "Unauthorized", "Unauthorized")
PAGE_NOT_FOUND = Answer(404, b"404 page not found\n", TEXT_TYPE, NO_SNIFFING)
NO_SUCH_RESOURCE = Refusal(404, "NotFound", "the server could not find the requested resource", details={})
OVERLOADED = Answer(
    429, b"Too many requests, please try again later.\n", TEXT_TYPE, (("Retry-After", "1"), *NO_SNIFFING)
)


def text(body: str, status: int = 200) -> Answer:
    """Return plain text, as the health checks do."""
    return Answer(status, body.encode(), TEXT_TYPE, NO_SNIFFING)


def rendered(value: Mapping[str, Any], accept: str) -> tuple[bytes, str]:
    """Return an object's bytes and their type; protobuf is not rendered here."""
    wanted = accept.split(",", maxsplit=1)[0]
    kind = wanted.split(";")[0].strip()
    if kind == YAML_TYPE:
        return yaml.safe_dump(value, allow_unicode=True, default_flow_style=False).encode(), YAML_TYPE
    if ";as=" in wanted and value.get("kind") == "Status":
        return (json.dumps(value, ensure_ascii=False, indent=2)).encode(), JSON_TYPE
    return json_line(value), JSON_TYPE


def json_line(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
