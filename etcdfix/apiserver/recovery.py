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
from contextlib import closing
from typing import NamedTuple

from etcdfix.apiserver.client import AuthorizationRefused, NoReply, RefusalReason
from etcdfix.apiserver.kubeconfig import Access, APIAccess, open_access
from etcdfix.apiserver.objects import METADATA_LIST
from etcdfix.apiserver.servers import DEFAULT_TIMEOUT_SECONDS, side_by_side

SECONDS = 60.0
"""So long is looked, where not all is well before."""

_EVERY_SECONDS = 2.0
_REQUEST_SECONDS = 10.0
_READYZ = "/readyz"
_FAILING_CHECK = re.compile(rb"^\[-\]([\w/.-]+)", re.MULTILINE | re.ASCII)
_LONGEST_CHECKS = 1 << 16


class Sign(NamedTuple):
    """What one server said to one request.

    Attributes:
        request: The request as it is shown.
        text: The rest of the sentence.
        failing: What may not be seen is not failing: to ask again helps nothing.
    """

    server: str
    request: str
    text: str
    failing: bool = False


def watch_recovery(
    api: APIAccess, servers: Sequence[str], collection: str, *, seconds: float = SECONDS
) -> tuple[list[Sign], float]:
    """Look at API servers until all is well with each of them, or the time is over; at least once.

    What is well is not asked for again.

    Args:
        api: As whom.
        servers: Their addresses, as they may be shown.
        collection: Path of all objects of the resource in the API; "" where none is known, for ``/readyz`` alone.
        seconds: For everything together, the last requests apart; 0 looks once.

    Returns:
        The last signs, and after how many seconds they were seen.

    Raises:
        KubernetesClientMissing: The extra is not installed.
        KubeconfigInvalid: The file cannot be read, or lacks the context.
        AuthorizationRefused: The credentials could not be obtained.
    """
    began = time.monotonic()
    lists = {"LIST": collection, "resourceVersion=0": f"{collection}?resourceVersion=0"} if collection else {}
    paths = {**lists, _READYZ: _READYZ}
    signs = {
        (server, request): Sign(server, request, "was not asked", failing=True)
        for server in servers
        for request in paths
    }
    access = open_access(api, timeout_seconds=DEFAULT_TIMEOUT_SECONDS, request_seconds=_REQUEST_SECONDS)
    with closing(access):
        while True:
            failing = [place for place, sign in signs.items() if sign.failing]
            asked = side_by_side(
                failing,
                lambda place: _ask(access, *place, paths[place[1]]),
                lambda place, why: Sign(*place, why, failing=True),
            )
            signs.update(zip(failing, asked, strict=True))
            spent = time.monotonic() - began
            if not any(sign.failing for sign in asked) or spent + _EVERY_SECONDS > seconds:
                return [*signs.values()], spent
            time.sleep(_EVERY_SECONDS)


def _ask(access: Access, server: str, request: str, path: str) -> Sign:
    accept, longest = ("*/*", _LONGEST_CHECKS) if request == _READYZ else (METADATA_LIST, 0)
    for tls_name in access.tls_names(server):
        try:
            reply = access.server(server, tls_name).send("GET", path, accept=accept, longest=longest)
        except AuthorizationRefused as exc:
            return Sign(server, request, exc.message, failing=True)
        if not isinstance(reply, NoReply) or reply.reason is not RefusalReason.TLS_FAILED:
            break
    if isinstance(reply, NoReply):
        return Sign(server, request, reply.text, failing=True)
    if reply.status == 200:
        return Sign(server, request, "works")
    if reply.status in {401, 403}:
        return Sign(server, request, f"may not be looked at by this user ({reply.status})")
    if reply.status == 404:
        return Sign(server, request, "is not served (404)")
    checks = [name.decode() for name in _FAILING_CHECK.findall(reply.body or b"")]
    text = f"fails: {', '.join(checks)}" if checks else f"answers {reply.status}"
    return Sign(server, request, text, failing=True)
