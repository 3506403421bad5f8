"""Looks, once an object is gone, whether API servers serve its resource again: LIST, watch cache, ``/readyz``.

A server whose watch cache could not list a resource tries again by itself, within about a minute after the last value
that it cannot read is gone. Only statuses are looked at, and names of checks; what a server lists may be Secrets.

Format: kube-apiserver 1.36, ``/readyz`` (one line for each check where not all of them pass); ``meta.k8s.io/v1``
PartialObjectMetadataList.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from enum import StrEnum
from functools import partial

import msgspec

from etcdfix.errors import EtcdfixError
from etcdfix.remediation.api_client import (
    Access,
    NoReply,
    RefusalReason,
    Server,
    open_access,
    run_within,
    without_user,
)
from etcdfix.remediation.api_servers import DEFAULT_TIMEOUT_SECONDS, APIAccess

SECONDS = 60.0
"""So long is looked, where not all is well before."""

_EVERY_SECONDS = 2.0
_REQUEST_SECONDS = 10.0
_METADATA_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1, application/json"
_FAILING_CHECK = re.compile(rb"^\[-\]([\w/.-]+)", re.MULTILINE | re.ASCII)
# Of a list nothing is wanted but the status.
_LONGEST_LIST = 0
_LONGEST_CHECKS = 1 << 16


class State(StrEnum):
    """How one way of asking came out."""

    WELL = "well"
    FAILING = "failing"
    NOT_SEEN = "not-seen"


class Sign(msgspec.Struct, frozen=True):
    """What one request showed.

    Attributes:
        what: Which, as it is shown.
        state: In one word.
        text: What it came to, part of a sentence.
    """

    what: str
    state: State
    text: str


class ServerSigns(msgspec.Struct, frozen=True, kw_only=True):
    """How one API server stood when it was looked at last.

    Attributes:
        server: Its address, as it may be shown.
        signs: One for each request.
        seconds: How long after the beginning.
    """

    server: str
    signs: tuple[Sign, ...]
    seconds: float

    @property
    def failing(self) -> bool:
        """Something is not well yet."""
        return any(sign.state is State.FAILING for sign in self.signs)


def look_until_well(
    api: APIAccess,
    servers: Sequence[str],
    collection: str,
    *,
    seconds: float = SECONDS,
) -> tuple[ServerSigns, ...]:
    """Look at API servers until all is well with each of them, or the time is over; at least once.

    Args:
        api: As whom.
        servers: Their addresses, as they may be shown.
        collection: Path of all objects of the resource in the API; "" where none is known, for ``/readyz`` alone.
        seconds: For everything together; 0 looks once.

    Raises:
        KubernetesClientMissing: The extra is not installed.
        KubeconfigInvalid: The file cannot be read, or lacks the context.
        AuthorizationRefused: The credentials could not be obtained.
    """
    began = time.monotonic()
    access = open_access(
        str(api.kubeconfig),
        api.context,
        timeout_seconds=DEFAULT_TIMEOUT_SECONDS,
        request_seconds=_REQUEST_SECONDS,
    )
    found: dict[str, ServerSigns] = {}
    left = list(servers)
    try:
        while left:
            looks = run_within(
                [partial(_look, access, server, collection) for server in left], _REQUEST_SECONDS
            )
            passed = time.monotonic() - began
            for server, signs in zip(left, looks, strict=True):
                if not isinstance(signs, tuple):
                    signs = (Sign("server", State.FAILING, _why_none(signs)),)
                found[server] = ServerSigns(server=server, signs=signs, seconds=passed)
            left = [server for server in left if found[server].failing]
            if not left or passed + _EVERY_SECONDS > seconds:
                break
            time.sleep(_EVERY_SECONDS)
    finally:
        access.close()
    return tuple(found[server] for server in servers)


def _why_none(failure: BaseException | None) -> str:
    if isinstance(failure, EtcdfixError):
        return failure.message
    return f"no answer within {_REQUEST_SECONDS:g} s" if failure is None else type(failure).__name__


def _look(access: Access, server: str, collection: str) -> tuple[Sign, ...]:
    url = access.url if without_user(access.url) == server else server
    for tls_name in access.tls_names(url):
        asked = access.server(url, tls_name)
        ready = asked.send("GET", "/readyz", longest=_LONGEST_CHECKS)
        if not isinstance(ready, NoReply) or ready.reason is not RefusalReason.TLS_FAILED:
            break
    if isinstance(ready, NoReply):
        return (Sign("server", State.FAILING, ready.text),)
    lists = (
        [("LIST", collection), ("resourceVersion=0", f"{collection}?resourceVersion=0")] if collection else []
    )
    names = [name.decode() for name in _FAILING_CHECK.findall(ready.body or b"")]
    not_ready = f"fails: {', '.join(names)}" if names else f"answers {ready.status}"
    return (*(_list(asked, what, path) for what, path in lists), _sign("/readyz", ready.status, not_ready))


def _list(server: Server, what: str, path: str) -> Sign:
    reply = server.send("GET", path, accept=_METADATA_ONLY, longest=_LONGEST_LIST)
    if isinstance(reply, NoReply):
        return Sign(what, State.FAILING, reply.text)
    return _sign(what, reply.status, f"answers {reply.status}")


def _sign(what: str, status: int, failing: str) -> Sign:
    if status == 200:
        return Sign(what, State.WELL, "works")
    if status in {401, 403}:
        return Sign(what, State.NOT_SEEN, f"may not be looked at by this user ({status})")
    if status == 404:
        return Sign(what, State.NOT_SEEN, "is not served (404)")
    return Sign(what, State.FAILING, failing)
