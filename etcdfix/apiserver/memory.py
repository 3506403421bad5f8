"""Asks one API server what it has of one object in its memory: a GET with ``resourceVersion=0``.

A running server keeps every object of a kind that it serves as it was when it last read it, also when the key that
would open the stored value is lost. It gives that up for the whole kind as soon as etcd tells it of a change that it
cannot read; a server that was started since has never had it. Then the same GET is answered from etcd (500, or 200 for
a value that can be read), and a LIST with 429 and a Status. An overloaded server says 429 too, in plain text: it may
still have everything, and is to be asked again.

Nothing of an answer is ever shown: it may be a Secret.

Format: kube-apiserver 1.36, ``staging/src/k8s.io/apiserver/pkg/storage/cacher/delegator.go`` (which read is served from
where), ``meta.k8s.io/v1`` ObjectMeta and Status.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from etcdfix.apiserver.client import NoReply, Reply, Server
from etcdfix.apiserver.objects import (
    METADATA_LIST,
    METADATA_ONLY,
    NOT_UNDERSTOOD,
    APIObject,
    Said,
    Served,
    Status,
    other_versions,
)
from etcdfix.model.model import GroupVersionKind
from etcdfix.model.storagekey import api_path

LONGEST_OBJECT: Final = 16 << 20
"""In bytes: JSON takes more room than etcd, where an object has 1.5 MiB at most unless etcd was told otherwise."""

_LONGEST_STATUS: Final = 1 << 16
_PARTIAL: Final = "PartialObjectMetadata"


class Memory(StrEnum):
    """What an API server has of an object in its memory."""

    HELD = "held"
    OTHER_OBJECT = "other-object"
    """It answers 200, with something else than was asked for."""
    NOT_HELD = "not-held"
    """Its memory has no object of that name."""
    NOT_SERVED = "not-served"
    """It does not serve the resource in this version."""
    READ_ERROR = "read-error"
    """It had to read etcd, and could not read the value: it has nothing in memory, of this object at least."""
    CACHE_LOST = "cache-lost"
    """It says that it has no memory of the whole kind."""
    OVERLOADED = "overloaded"
    """It has too much to do; nothing is known of its memory."""
    UNKNOWN_USER = "unknown-user"
    DENIED = "denied"
    NO_ANSWER = "no-answer"


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """What names an object, in its own words.

    Attributes:
        version: API version of the answer.
        kind: Its kind.
        namespace: "" for an object without one.
        name: Its name.
        uid: Its uid.
        resource_version: A decimal number; the mod revision of the value that the server read.
        generation: 0 where there is none.
        deleting: It has a deletionTimestamp.
    """

    version: str
    kind: str
    namespace: str
    name: str
    uid: str
    resource_version: str
    generation: int = 0
    deleting: bool = False


class Remembered(msgspec.Struct, frozen=True, kw_only=True):
    """What one server said of its memory of one object.

    Attributes:
        word: In one word.
        detail: Why, or what exactly; "" where the word says it all.
        identity: Of the object; None unless it is held.
        raw: The very bytes of the answer; b"" unless it is held and was asked for whole.
        retry_after: Seconds after which to ask again, as the server says; None where it says none.
    """

    word: Memory
    detail: str = ""
    identity: Identity | None = None
    raw: bytes = b""
    retry_after: int | None = None

    def __repr__(self) -> str:
        # Without the bytes: a traceback ends up in a ticket.
        return f"Remembered({self.word!r}, {self.detail!r}, {len(self.raw)} bytes)"


def remember(server: Server, thing: APIObject, *, kind: str = "", metadata_only: bool = False) -> Remembered:
    """Ask a server for an object as it has it in memory.

    Args:
        server: To ask; it is known to be of this cluster.
        thing: The object; its version must be known.
        kind: That the answer must have; "" where only a CRD can tell.
        metadata_only: Reveal nothing: ask for names and revisions alone.
    """
    path = api_path(thing.group, thing.version, thing.resource, thing.namespace, thing.name)
    if not path:
        return Remembered(word=Memory.NOT_HELD, detail="no request can name the object")
    accept = METADATA_ONLY if metadata_only else "application/json"
    reply = server.send("GET", f"{path}?resourceVersion=0", accept=accept, longest=LONGEST_OBJECT)
    if isinstance(reply, NoReply):
        return Remembered(word=Memory.NO_ANSWER, detail=reply.text)
    if reply.status != 200:
        return _refused(reply, thing)
    return _held(reply.body, thing, "" if metadata_only else kind, metadata_only=metadata_only)


def caches(server: Server, thing: APIObject) -> Remembered:
    """Ask a server whether it has any memory of an object's kind, by a LIST of which only the status is looked at.

    Returns:
        ``held`` where it has; ``cache-lost`` or ``read-error`` where it has not; else why nothing is known.
    """
    found = _caches(server, thing) if thing.version else Remembered(word=Memory.NOT_SERVED)
    if found.word is not Memory.NOT_SERVED:
        return found
    versions = served_versions(server, thing)
    if isinstance(versions, Said):
        return Remembered(word=Memory.NO_ANSWER, detail=versions.detail)
    for version in versions:
        if version != thing.version:
            found = _caches(server, msgspec.structs.replace(thing, version=version))
            if found.word is not Memory.NOT_SERVED:
                break
    return found


def _caches(server: Server, thing: APIObject) -> Remembered:
    path = api_path(thing.group, thing.version, thing.resource, "", None)
    reply = server.send("GET", f"{path}?resourceVersion=0", accept=METADATA_LIST, longest=_LONGEST_STATUS)
    if isinstance(reply, NoReply):
        return Remembered(word=Memory.NO_ANSWER, detail=reply.text)
    return Remembered(word=Memory.HELD) if reply.status == 200 else _refused(reply, thing)


def served_versions(server: Server, thing: APIObject) -> tuple[str, ...] | Said:
    """Return the versions in which to ask a server for an object, the likeliest first; or why they are not known."""
    others = other_versions(server, thing)
    if isinstance(others, Said):
        return others if not thing.version else (thing.version,)
    return (thing.version, *others) if thing.version else others


def _refused(reply: Reply, thing: APIObject) -> Remembered:
    status = _status(reply.body)
    match reply.status:
        case 401:
            return Remembered(word=Memory.UNKNOWN_USER, detail="it does not know the kubeconfig's user (401)")
        case 403:
            return Remembered(
                word=Memory.DENIED, detail="it does not let the kubeconfig's user get such objects (403)"
            )
        case 404 if status is not None and status.details.name == thing.name:
            return Remembered(word=Memory.NOT_HELD)
        case 404:
            return Remembered(word=Memory.NOT_SERVED, detail="it does not serve the resource (404)")
        case 429 if status is not None:
            # An overloaded server says so in plain text.
            text = "it has lost its memory of the kind (429)"
            return Remembered(word=Memory.CACHE_LOST, detail=text, retry_after=reply.retry_after)
        case 429:
            return Remembered(
                word=Memory.OVERLOADED, detail="it is overloaded (429)", retry_after=reply.retry_after
            )
        case 500:
            return Remembered(word=Memory.READ_ERROR, detail="it had to read etcd, and failed (500)")
    return Remembered(
        word=Memory.NO_ANSWER, detail=f"it answered {reply.status}", retry_after=reply.retry_after
    )


def _status(body: bytes | None) -> Status | None:
    try:
        found = msgspec.json.decode(body or b"", type=Status)
    except NOT_UNDERSTOOD:
        return None
    return found if found.kind == "Status" else None


def _held(body: bytes | None, thing: APIObject, kind: str, *, metadata_only: bool) -> Remembered:
    if body is None:
        size = LONGEST_OBJECT >> 20
        return Remembered(word=Memory.NO_ANSWER, detail=f"the object is larger than {size} MiB")
    try:
        found = msgspec.json.decode(body, type=Served)
        body.decode()
    except NOT_UNDERSTOOD:
        return Remembered(word=Memory.OTHER_OBJECT, detail="its answer is no object that can be understood")
    problem = _misfit(found, thing, kind, metadata_only=metadata_only)
    if problem:
        return Remembered(word=Memory.OTHER_OBJECT, detail=f"its answer has another {problem}")
    metadata = found.metadata
    identity = Identity(
        version=thing.version,
        kind=found.kind,
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        resource_version=metadata.resource_version,
        generation=metadata.generation,
        deleting=metadata.deletion_timestamp is not None,
    )
    return Remembered(word=Memory.HELD, identity=identity, raw=b"" if metadata_only else body)


def _misfit(found: Served, thing: APIObject, kind: str, *, metadata_only: bool) -> str:
    metadata = found.metadata
    partial = found.kind == _PARTIAL
    if partial is not metadata_only or not found.kind or (kind and found.kind != kind):
        return "kind"
    if not partial and found.api_version != GroupVersionKind(thing.group, thing.version, "").api_version:
        return "apiVersion"
    if metadata.name != thing.name:
        return "name"
    if metadata.namespace != thing.namespace:
        return "namespace"
    if not metadata.uid:
        return "uid than any object has"
    number = metadata.resource_version
    if not (number.isascii() and number.isdigit() and len(number) < 20 and int(number)):
        return "resourceVersion than API servers write"
    return ""
