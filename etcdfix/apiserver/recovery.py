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
from functools import partial

import msgspec

from etcdfix.apiserver.client import (
    Access,
    NoReply,
    RefusalReason,
    open_access,
)
from etcdfix.apiserver.objects import METADATA_LIST
from etcdfix.apiserver.servers import DEFAULT_TIMEOUT_SECONDS, APIAccess
from etcdfix.model.errors import EtcdfixError
from etcdfix.model.side_by_side import run_within

SECONDS = 60.0
"""So long is looked, where not all is well before."""

_EVERY_SECONDS = 2.0
_REQUEST_SECONDS = 10.0
_READYZ = "/readyz"
_ANYTHING = "*/*"
_FAILING_CHECK = re.compile(rb"^\[-\]([\w/.-]+)", re.MULTILINE | re.ASCII)
# Of a list nothing is wanted but the status.
_LONGEST_LIST = 0
_LONGEST_CHECKS = 1 << 16


class Sign(msgspec.Struct, frozen=True):
    """What one request came to: which, as it is shown, and the rest of the sentence.

    What may not be seen is not failing: to ask again helps nothing.
    """

    what: str
    text: str
    failing: bool = False


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
        """Something is not healthy yet."""
        return any(sign.failing for sign in self.signs)


def look_until_well(
    api: APIAccess, servers: Sequence[str], collection: str, *, seconds: float = SECONDS
) -> tuple[ServerSigns, ...]:
    """Look at API servers until all is well with each of them, or the time is over; at least once.

    What is well is not asked for again.

    Args:
        api: As whom.
        servers: Their addresses, as they may be shown.
        collection: Path of all objects of the resource in the API; "" where none is known, for ``/readyz`` alone.
        seconds: For everything together, the last requests apart; 0 looks once.

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
    lists = {"LIST": collection, "resourceVersion=0": f"{collection}?resourceVersion=0"} if collection else {}
    paths = {**lists, _READYZ: _READYZ}
    signs: dict[tuple[str, str], Sign] = {}
    seen_at: dict[str, float] = {}
    left = [(server, what) for server in servers for what in paths]
    try:
        while True:
            asked = [partial(_ask, access, server, what, paths[what]) for server, what in left]
            for place, found in zip(left, run_within(asked, _REQUEST_SECONDS), strict=True):
                signs[place] = found if isinstance(found, Sign) else _none(place[1], found)
                seen_at[place[0]] = time.monotonic() - began
            left = [place for place in left if signs[place].failing]
            if not left or time.monotonic() - began + _EVERY_SECONDS > seconds:
                break
            time.sleep(_EVERY_SECONDS)
    finally:
        access.close()
    return tuple(
        ServerSigns(
            server=server, signs=tuple(signs[server, what] for what in paths), seconds=seen_at[server]
        )
        for server in servers
    )


def _none(what: str, failure: BaseException | None) -> Sign:
    why = f"no answer within {_REQUEST_SECONDS:g} s" if failure is None else type(failure).__name__
    return Sign(what, failure.message if isinstance(failure, EtcdfixError) else why, failing=True)


def _ask(access: Access, server: str, what: str, path: str) -> Sign:
    accept, longest = (_ANYTHING, _LONGEST_CHECKS) if what == _READYZ else (METADATA_LIST, _LONGEST_LIST)
    for tls_name in access.tls_names(server):
        reply = access.server(server, tls_name).send("GET", path, accept=accept, longest=longest)
        if not isinstance(reply, NoReply) or reply.reason is not RefusalReason.TLS_FAILED:
            break
    if isinstance(reply, NoReply):
        return Sign(what, reply.text, failing=True)
    if reply.status == 200:
        return Sign(what, "works")
    if reply.status in {401, 403}:
        return Sign(what, f"may not be looked at by this user ({reply.status})")
    if reply.status == 404:
        return Sign(what, "is not served (404)")
    checks = [name.decode() for name in _FAILING_CHECK.findall(reply.body or b"")]
    return Sign(what, f"fails: {', '.join(checks)}" if checks else f"answers {reply.status}", failing=True)
