"""At which revision an API server finds its datastore: what a LIST that reads it says of itself.

Metadata of one object at most are asked for, and nothing of an answer is ever shown.
"""

from __future__ import annotations

import msgspec

from etcdfix.apiserver.client import NoReply, Server
from etcdfix.apiserver.objects import METADATA_LIST, NOT_UNDERSTOOD
from etcdfix.apiserver.patience import PASSING, pause_seconds

_LONGEST = 1 << 20
_LISTS = ("/api/v1/namespaces", "/apis/coordination.k8s.io/v1/leases")
"""Kinds that every cluster has: where one cannot be read, the other may be."""


class _ListMeta(msgspec.Struct):
    resource_version: str = msgspec.field(name="resourceVersion")


class _List(msgspec.Struct):
    metadata: _ListMeta


class Standing(msgspec.Struct, frozen=True):
    """Where a server finds its datastore.

    Attributes:
        revision: The newest, as the server sees it; None where it is not known.
        why: Why it is not, "" where it is.
        again_after: Seconds after which it may be; None where asking again helps nothing.
    """

    revision: int | None = None
    why: str = ""
    again_after: int | None = None


def revision_seen_by(server: Server) -> Standing:
    """Return the newest revision as a server sees it, or why it is not known.

    A LIST without a resourceVersion shows what is newest: it is read from the datastore, or from a cache that has
    caught up with it.
    """
    refused: list[Standing] = []
    for path in _LISTS:
        reply = server.send("GET", f"{path}?limit=1", accept=METADATA_LIST, longest=_LONGEST)
        if isinstance(reply, NoReply):
            return Standing(why=reply.text)
        if reply.status == 200:
            try:
                found = msgspec.json.decode(reply.body or b"", type=_List)
                return Standing(int(found.metadata.resource_version))
            except (*NOT_UNDERSTOOD, ValueError):
                return Standing(why=f"its answer to a list of {path} could not be understood")
        again_after = pause_seconds(reply.retry_after) if reply.status in PASSING else None
        refused.append(
            Standing(why=f"a list of {path} was answered with {reply.status}", again_after=again_after)
        )
    return next((said for said in refused if said.again_after is not None), refused[0])
