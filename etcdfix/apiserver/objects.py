"""One object, as a request names it, and what a server says of it when it reads it from etcd.

Nothing of an answer is ever shown: what a server reads may be a Secret. Only metadata are asked for, where a server
knows how to give them alone.

Format: ``meta.k8s.io/v1`` PartialObjectMetadata and Status, APIGroup of discovery.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum
from typing import Any, Final, NamedTuple

import msgspec

from etcdfix.apiserver.client import NOT_UNDERSTOOD, NoReply, Reply, Server, Status
from etcdfix.model.model import GroupResource
from etcdfix.model.storagekey import api_path

METADATA_ONLY: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1, application/json"
METADATA_LIST: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1, application/json"
# Servers that know no PartialObjectMetadata send the whole object: as JSON some 1.4 times of what etcd takes.
_LONGEST_OBJECT: Final = 8 << 20


# Of the Status of a read error; a decoder's error has none without the gate.
_READ_ERROR_REASONS: Final = frozenset({"StorageReadError", "InternalError", ""})
_READ_ERRORS: Final = ("StorageError: corrupt object", "unable to transform key")
_OUTAGE: Final = ("code = Unavailable", "code = DeadlineExceeded")
_WITHHELD: Final = re.compile(r"<\d+ bytes withheld>")


class Answer(StrEnum):
    """What one API server said of the object."""

    READS_IT = "reads-it"
    NOT_FOUND = "not-found"
    READ_ERROR = "read-error"
    EMPTY = "empty"
    DENIED = "denied"
    NO_ANSWER = "no-answer"


class ServerAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What one API server said of an object that it read from etcd.

    Attributes:
        server: Its address, as it may be shown.
        detail: Why, or what exactly; "" where the answer says it all.
        resource_version: resourceVersion of the object that it read; "" where it read none.
        passing: It may say something else in a moment.
    """

    server: str
    answer: Answer
    detail: str = ""
    resource_version: str = ""
    passing: bool = False


class Foretold(NamedTuple):
    """What an API server that has the same configuration says of the value at hand.

    Attributes:
        message: Its words for why it cannot read it, data withheld; "" where they are not known.
        empty: It makes an empty object of it.
        plugin_silent: Its KMS plugin does not answer here, so that a server whose plugin is silent too says nothing.
    """

    message: str
    empty: bool = False
    plugin_silent: bool = False

    def is_read_error(self, body: bytes | None) -> bool:
        """Say whether an answer at 500 is a Status that says that etcd holds a value which cannot be read.

        With the gate AllowUnsafeMalformedObjectDeletion the words are the same for every value. Without it they are the
        bare cause, which must be the one that is foretold: ``unexpected EOF`` is said of connections as well.
        """
        try:
            found = msgspec.json.decode(body or b"", type=Status)
        except NOT_UNDERSTOOD:
            return False
        if (found.kind, found.code) != ("Status", 500) or (found.reason or "") not in _READ_ERROR_REASONS:
            return False
        if self.plugin_silent and any(code in found.message for code in _OUTAGE):
            return False
        if any(sign in found.message for sign in _READ_ERRORS):
            return True
        # Go's protobuf writes one of two kinds of space, by build.
        ours, told = (each.replace("\u00a0", " ") for each in (self.message, found.message))
        parts = [re.escape(part) for part in _WITHHELD.split(ours)]
        told = told.removeprefix("Internal error occurred: ")
        return any(parts) and re.fullmatch(".*".join(parts), told, re.DOTALL) is not None


class APIObject(msgspec.Struct, frozen=True):
    """One object, as a request names it.

    Attributes:
        group: API group, "" for the core group.
        version: API version, "" where it is not known.
        resource: Plural resource.
        namespace: "" for an object without one.
        name: Its name.
    """

    group: str
    version: str
    resource: str
    namespace: str
    name: str

    def __str__(self) -> str:
        place = f"{self.namespace}/" if self.namespace else ""
        return f"{GroupResource(self.group, self.resource)} {place}{self.name}"

    @property
    def path(self) -> str:
        """Its path in the API; "" where no request can name it. An unknown version counts as v1."""
        return api_path(self.group, self.version or "v1", self.resource, self.namespace, self.name)


class VersionsUnknown(Exception):
    """Raised when a server does not tell in which versions it serves a group; ``detail`` says why."""

    def __init__(self, detail: str, *, passing: bool = False) -> None:
        super().__init__(detail)
        self.detail = detail
        self.passing = passing


class Metadata(msgspec.Struct):
    """``meta/v1`` ObjectMeta, as far as it names an object."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = msgspec.field(name="resourceVersion", default="")
    deletion_timestamp: str | None = msgspec.field(name="deletionTimestamp", default=None)


class Served(msgspec.Struct):
    """An object, as a server gives it."""

    kind: str
    metadata: Metadata
    api_version: str = msgspec.field(name="apiVersion", default="")


class _Version(msgspec.Struct):
    version: str


class _APIGroup(msgspec.Struct):
    kind: str
    versions: list[_Version]
    preferred: _Version | None = msgspec.field(name="preferredVersion", default=None)


def read_object(
    server: Server, thing: APIObject, *, certain: bool = True, foretold: Foretold | None = None
) -> ServerAnswer:
    """Ask a server for the object as it reads it from etcd, in as many versions as it takes.

    A version may fail to be converted to, and one may not be served; another one of the same object may still be read.

    Args:
        server: To ask.
        thing: The object.
        certain: The server is one of this cluster, so that whatever it says at 200 comes from an API server.
        foretold: What it says if it cannot read the value in etcd; anything else is no answer then. None: whoever asks
            only wants to know whether it reads it, so that any failure will do.
    """
    if not thing.path:
        return ServerAnswer(server=server.address, answer=Answer.NOT_FOUND, detail="no request can name it")
    failed: ServerAnswer | None = None
    try:
        for each in in_each_version(server, thing):
            # Without a resourceVersion: the server reads it from etcd, not from its memory.
            reply = server.ask(each.path, accept=METADATA_ONLY, longest=_LONGEST_OBJECT)
            said = _judge(server.address, thing.name, reply, certain=certain, foretold=foretold)
            if said is None:
                continue
            if isinstance(reply, NoReply) or reply.status != 500:
                return said
            if failed is None or said.answer is Answer.READ_ERROR:
                failed = said
    except VersionsUnknown as exc:
        unknown = ServerAnswer(
            server=server.address, answer=Answer.NO_ANSWER, detail=exc.detail, passing=exc.passing
        )
        return failed or unknown
    # A page that is not there says nothing: what stands before a server answers so too.
    detail = "it answered 404, and no Status that names the object"
    return failed or ServerAnswer(server=server.address, answer=Answer.NO_ANSWER, detail=detail)


def _judge(
    server: str, name: str, reply: Reply | NoReply, *, certain: bool, foretold: Foretold | None
) -> ServerAnswer | None:
    """Return what an answer says of the object; None where the version is not served."""

    def say(answer: Answer, detail: str = "", **more: Any) -> ServerAnswer:
        return ServerAnswer(server=server, answer=answer, detail=detail, **more)

    if isinstance(reply, NoReply):
        return say(Answer.NO_ANSWER, reply.text)
    match reply.status:
        case 200:
            try:
                metadata = msgspec.json.decode(reply.body or b"", type=Served).metadata
            except NOT_UNDERSTOOD:
                detail = "it answered 200, and the answer cannot be understood"
                return say(Answer.READS_IT if certain else Answer.NO_ANSWER, detail)
            if metadata.name or metadata.uid:
                return say(Answer.READS_IT, resource_version=metadata.resource_version)
            # Of a value that holds nothing, an API server makes an object that has neither.
            if foretold is None or foretold.empty:
                return say(Answer.EMPTY)
            return say(Answer.NO_ANSWER, "it answered with an empty object, and etcd holds more than that")
        case 404:
            status = reply.status_object()
            names_it = status is not None and status.details.name == name
            return say(Answer.NOT_FOUND) if names_it else None
        case 401:
            return say(Answer.DENIED, "it does not know the kubeconfig's user (401)")
        case 403:
            return say(Answer.DENIED, "it does not let the kubeconfig's user get the object (403)")
        case 500:
            fails = foretold is None or foretold.is_read_error(reply.body)
            other = "it answered 500, and not that it cannot read this value"
            return say(Answer.READ_ERROR) if fails else say(Answer.NO_ANSWER, other)
    overload = ": it has too much to do" if reply.status == 429 else ""
    return say(Answer.NO_ANSWER, f"it answered {reply.status}{overload}", passing=reply.is_passing)


def in_each_version(server: Server, thing: APIObject) -> Iterator[APIObject]:
    """Yield the object in its own version, then in the others that a server serves; it is asked only for those.

    Raises:
        VersionsUnknown: The server does not tell which others it serves.
    """
    if thing.version:
        yield thing
    for version in _other_versions(server, thing):
        other = msgspec.structs.replace(thing, version=version)
        if other.path:
            yield other


def _other_versions(server: Server, thing: APIObject) -> list[str]:
    if not thing.group:
        return [] if thing.version else ["v1"]  # the core group has no other
    reply = server.ask(api_path(thing.group, "v1", "x", "", None).removesuffix("/v1/x"))
    if isinstance(reply, NoReply):
        raise VersionsUnknown(reply.text)
    if reply.status == 404:
        return []
    if reply.status != 200:
        detail = f"asked which versions it serves, it answered {reply.status}"
        raise VersionsUnknown(detail, passing=reply.is_passing)
    try:
        found = msgspec.json.decode(reply.body or b"", type=_APIGroup)
    except NOT_UNDERSTOOD as exc:
        raise VersionsUnknown("which versions it serves could not be understood") from exc
    preferred = [found.preferred.version] if found.preferred is not None else []
    served = dict.fromkeys([*preferred, *(version.version for version in found.versions)])
    return [version for version in served if version != thing.version]
