"""At which revision an API server finds its datastore: what a LIST that reads it says of itself.

Metadata of one object at most are asked for, and nothing of an answer is ever shown.
"""

from __future__ import annotations

import msgspec

from etcdfix.apiserver.client import NoReply, Server
from etcdfix.apiserver.objects import METADATA_LIST, NOT_UNDERSTOOD

_LONGEST = 1 << 20
_LISTS = ("/api/v1/namespaces", "/apis/coordination.k8s.io/v1/leases")
"""Kinds that every cluster has: where one cannot be read, the other may be."""


class _ListMeta(msgspec.Struct):
    resource_version: str = msgspec.field(name="resourceVersion")


class _List(msgspec.Struct):
    metadata: _ListMeta


def revision_seen_by(server: Server) -> int | str:
    """Return the newest revision as a server sees it, or why it is not known.

    A LIST without a resourceVersion shows what is newest: it is read from the datastore, or from a cache that has
    caught up with it.
    """
    why = ""
    for path in _LISTS:
        reply = server.send("GET", f"{path}?limit=1", accept=METADATA_LIST, longest=_LONGEST)
        if isinstance(reply, NoReply):
            return reply.text
        if reply.status == 200:
            try:
                return int(msgspec.json.decode(reply.body or b"", type=_List).metadata.resource_version)
            except (*NOT_UNDERSTOOD, ValueError):
                return f"its answer to a list of {path} could not be understood"
        why = why or f"a list of {path} was answered with {reply.status}"
    return why
