"""What API servers have of an object in memory: a GET with ``resourceVersion=0``.

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

from collections import Counter
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from etcdfix.apiserver.client import NOT_UNDERSTOOD, NoReply, Reply, Server
from etcdfix.apiserver.objects import (
    METADATA_LIST,
    METADATA_ONLY,
    APIObject,
    Served,
    VersionsUnknown,
    in_each_version,
)
from etcdfix.apiserver.servers import AllServers, side_by_side
from etcdfix.model.model import GroupResource, GroupVersionKind
from etcdfix.model.storagekey import api_path

LONGEST_OBJECT: Final = 16 << 20
"""In bytes: JSON takes more room than etcd, where an object has 1.5 MiB at most unless etcd was told otherwise."""

_LONGEST_STATUS: Final = 1 << 16
_PARTIAL: Final = "PartialObjectMetadata"
_IN_A_ROW: Final = 3
"""So many objects of a kind that a server does not give: it is asked for no more of them."""


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
        deleting: It has a deletionTimestamp.
    """

    version: str
    kind: str
    namespace: str
    name: str
    uid: str
    resource_version: str
    deleting: bool = False


class Remembered(msgspec.Struct, frozen=True, kw_only=True):
    """What one server said of its memory of one object.

    Attributes:
        detail: Why, or what exactly; "" where the word says it all.
        path: Path of the object in the version that was asked for; "" where none could be.
        identity: None unless it is held.
        raw: The very bytes of the answer; b"" unless it is held and was asked for whole.
    """

    word: Memory
    detail: str = ""
    path: str = ""
    identity: Identity | None = None
    raw: bytes = b""

    def __repr__(self) -> str:
        # Without the bytes: a traceback ends up in a ticket.
        return f"Remembered({self.word!r}, {self.detail!r}, {len(self.raw)} bytes)"


class Holder(NamedTuple):
    """An API server, and what it says of its memory of one object."""

    server: Server
    memory: Remembered

    @property
    def may_hold(self) -> bool:
        """It gives nothing from memory any more; a change may find the object in the process all the same."""
        return self.memory.word in {Memory.READ_ERROR, Memory.CACHE_LOST}


def remember(server: Server, thing: APIObject, *, kind: str = "", metadata_only: bool = False) -> Remembered:
    """Ask a server for an object as it has it in memory, in its own version and then in others.

    A version may not be served, and the conversion to one may fail; another one may still be given.

    Args:
        server: To ask; it is known to be of this cluster.
        thing: The object.
        kind: That the answer must have; "" where only a CRD can tell.
        metadata_only: Reveal nothing: ask for names and revisions alone.
    """
    if not thing.path:
        return Remembered(word=Memory.NOT_HELD, detail="no request can name the object")
    best: Remembered | None = None
    try:
        for each in in_each_version(server, thing):
            found = _remember(server, each, kind, metadata_only=metadata_only)
            if found.word not in {Memory.NOT_SERVED, Memory.READ_ERROR}:
                return found
            best = found if best is None or best.word is Memory.NOT_SERVED else best
    except VersionsUnknown as exc:
        return best or Remembered(word=Memory.NO_ANSWER, detail=exc.detail)
    not_served = f"it does not serve {GroupResource(thing.group, thing.resource)}"
    return best or Remembered(word=Memory.NOT_SERVED, detail=not_served)


def _remember(server: Server, thing: APIObject, kind: str, *, metadata_only: bool) -> Remembered:
    path = thing.path
    accept = METADATA_ONLY if metadata_only else "application/json"
    reply = server.ask(f"{path}?resourceVersion=0", accept=accept, longest=LONGEST_OBJECT)
    if isinstance(reply, NoReply) or reply.status != 200:
        found = _refused(reply, thing)
    else:
        found = _held(reply.body, thing, "" if metadata_only else kind, metadata_only=metadata_only)
    return msgspec.structs.replace(found, path=path)


def remember_kind(server: Server, thing: APIObject) -> Remembered:
    """Ask a server whether it has any memory of an object's kind, by a LIST of which only the status is looked at.

    Returns:
        ``held`` where it has; ``cache-lost`` or ``read-error`` where it has not; else why nothing is known.
    """
    found = Remembered(word=Memory.NOT_SERVED)
    try:
        for each in in_each_version(server, thing):
            path = api_path(each.group, each.version, each.resource, "", None)
            reply = server.ask(f"{path}?resourceVersion=0", accept=METADATA_LIST, longest=_LONGEST_STATUS)
            if isinstance(reply, Reply) and reply.status == 200:
                return Remembered(word=Memory.HELD)
            found = _refused(reply, each)
            if found.word is not Memory.NOT_SERVED:
                break
    except VersionsUnknown as exc:
        return Remembered(word=Memory.NO_ANSWER, detail=exc.detail)
    return found


def remembered_by_each(all_servers: AllServers, thing: APIObject) -> list[Holder]:
    """Ask each server for what it has in memory, for metadata alone."""
    return side_by_side(
        all_servers.servers,
        lambda server: Holder(server, remember(server, thing, metadata_only=True)),
        lambda server, why: Holder(server, Remembered(word=Memory.NO_ANSWER, detail=why)),
    )


class ServerMemory:
    """Asks one API server for object after object, and no longer than it helps.

    A server is asked nothing more of a kind once its memory of that is lost, and nothing more at all once it is gone.

    Attributes:
        gone: Why it is asked nothing more; None where it still is.
        lost: Why it is asked for nothing more of some kinds.
    """

    def __init__(self, server: Server, *, metadata_only: bool = False) -> None:
        self.server = server
        self.gone: Remembered | None = None
        self.lost: dict[GroupResource, Remembered] = {}
        self._metadata_only = metadata_only
        self._versions: dict[GroupResource, str] = {}
        self._in_a_row: Counter[GroupResource] = Counter()
        self._unanswered = 0

    def why_not(self, resource: GroupResource) -> Remembered | None:
        """Return what it said when it was last asked for a kind; None where it is still asked."""
        return self.gone or self.lost.get(resource)

    def lost_words(self) -> str:
        """Return why it is asked nothing more, or nothing more of some kinds; "" where it is still asked."""
        gone = [] if self.gone is None else [self.gone.detail or self.gone.word]
        return "; ".join([*gone, *(f"{kind}: {why.detail or why.word}" for kind, why in self.lost.items())])

    def ask(self, thing: APIObject, kind: str) -> Remembered:
        """Ask for one object, "" for a version or kind that only the server or a CRD can tell.

        Where it is not given, remember what that says of the others.
        """
        resource = GroupResource(thing.group, thing.resource)
        version = self._versions.get(resource, thing.version)
        thing = msgspec.structs.replace(thing, version=version)
        found = remember(self.server, thing, kind=kind, metadata_only=self._metadata_only)
        if found.identity is not None:
            self._versions[resource] = found.identity.version
        if found.word in {Memory.HELD, Memory.NOT_HELD, Memory.OTHER_OBJECT}:
            self._in_a_row[resource] = self._unanswered = 0
            return found
        self._in_a_row[resource] += 1
        busy = found.word in {Memory.OVERLOADED, Memory.NO_ANSWER}
        self._unanswered = self._unanswered + 1 if busy else 0
        if found.word is Memory.UNKNOWN_USER:
            self.gone = found
        elif found.word in {Memory.CACHE_LOST, Memory.NOT_SERVED}:
            self.lost[resource] = found
        elif found.word is Memory.READ_ERROR and self._in_a_row[resource] == 1:
            # Does it fail to read this object, or has it lost its memory of the kind? Where the version is not known,
            # a LIST may fail for the version that it is converted to.
            lost = {Memory.CACHE_LOST, Memory.READ_ERROR} if version else {Memory.CACHE_LOST}
            if remember_kind(self.server, thing).word in lost:
                detail = "it has lost its memory of the kind"
                self.lost[resource] = Remembered(word=Memory.CACHE_LOST, detail=detail)
        elif self._unanswered >= _IN_A_ROW:
            self.gone = _given_up(found)
        elif self._in_a_row[resource] >= _IN_A_ROW:
            self.lost[resource] = _given_up(found)
        return found


def _given_up(found: Remembered) -> Remembered:
    return Remembered(word=found.word, detail=f"given up after {_IN_A_ROW} objects in a row: {found.detail}")


def _refused(reply: Reply | NoReply, thing: APIObject) -> Remembered:
    if isinstance(reply, NoReply):
        return Remembered(word=Memory.NO_ANSWER, detail=reply.text)
    status = reply.status_object()
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
            return Remembered(word=Memory.CACHE_LOST, detail="it has lost its memory of the kind (429)")
        case 429:
            return Remembered(word=Memory.OVERLOADED, detail="it is overloaded (429)")
        case 500:
            return Remembered(word=Memory.READ_ERROR, detail="it had to read etcd, and failed (500)")
    return Remembered(word=Memory.NO_ANSWER, detail=f"it answered {reply.status}")


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
