"""What is said of one object to an API server, and what the server says of it when it reads it from etcd.

Nothing of an answer is ever shown: what a server reads may be a Secret. Only metadata are asked for, where a server
knows how to give them alone.

Format: ``meta.k8s.io/v1`` PartialObjectMetadata and Status, APIGroup of discovery.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from etcdfix.apiserver.client import NoReply, Reply, Server
from etcdfix.apiserver.patience import PASSING, pause_seconds
from etcdfix.model.model import GroupResource
from etcdfix.model.storagekey import api_path

METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1, application/json"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1, application/json"
# Servers that know no PartialObjectMetadata send the whole object: as JSON some 1.4 times of what etcd takes.
_LONGEST_OBJECT = 8 << 20


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
            found = msgspec.json.decode(body or b"", type=_Failure)
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


class Said(msgspec.Struct, frozen=True):
    """What a server said of an object that it read from etcd.

    Attributes:
        answer: In one word.
        detail: Why, or what exactly; "" where the word says it all.
        resource_version: Of what it read; "" where it read nothing, or that does not say it.
        again_after: Seconds after which it may say something else; None where asking again helps nothing.
        failed: It answered 500, so that another version of the object may fare better.
    """

    answer: Answer
    detail: str = ""
    resource_version: str = ""
    again_after: int | None = None
    failed: bool = False


class Metadata(msgspec.Struct):
    """``meta/v1`` ObjectMeta, as far as it names an object."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = msgspec.field(name="resourceVersion", default="")
    generation: int = 0
    deletion_timestamp: str | None = msgspec.field(name="deletionTimestamp", default=None)


class Served(msgspec.Struct):
    """An object, as a server gives it."""

    kind: str
    metadata: Metadata
    api_version: str = msgspec.field(name="apiVersion", default="")


class _Failure(msgspec.Struct):
    kind: str
    code: int
    message: str
    reason: str | None = None


class _Details(msgspec.Struct):
    name: str = ""


class Status(msgspec.Struct):
    """``meta/v1`` Status, as far as it tells one refusal from another; its message may quote an object."""

    kind: str
    details: _Details = msgspec.field(default_factory=_Details)


class _Version(msgspec.Struct):
    version: str


class _APIGroup(msgspec.Struct):
    kind: str
    versions: list[_Version]
    preferred: _Version | None = msgspec.field(name="preferredVersion", default=None)


NOT_UNDERSTOOD = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What decoding an answer raises that is not what it should be."""


def look_for(server: Server, thing: APIObject, *, certain: bool, foretold: Foretold | None = None) -> Said:
    """Ask a server for the object, in as many versions as it takes.

    A version may fail to be converted to, and one may not be served; another one of the same object may still be read.

    Args:
        server: To ask.
        thing: The object.
        certain: The server is one of this cluster, so that whatever it says at 200 comes from an API server.
        foretold: What it says if it cannot read the value in etcd; anything else is no answer then. None: whoever asks
            only wants to know whether it reads it, so that any failure will do.
    """
    if not api_path(thing.group, thing.version or "v1", thing.resource, thing.namespace, thing.name):
        return Said(Answer.NOT_FOUND, "no request can name it")
    failed = None
    if thing.version:
        said = _look_in(server, thing, thing.version, certain=certain, foretold=foretold)
        if said is not None and not said.failed:
            return said
        failed = said
    others = other_versions(server, thing)
    if isinstance(others, Said):
        return failed or others
    for version in others:
        said = _look_in(server, thing, version, certain=certain, foretold=foretold)
        if said is not None and not said.failed:
            return said
        if failed is None or (said is not None and said.answer is Answer.READ_ERROR):
            failed = said or failed
    # A page that is not there says nothing: what stands before a server answers so too.
    return failed or Said(Answer.NO_ANSWER, "it answered 404, and no Status that names the object")


def _look_in(
    server: Server, thing: APIObject, version: str, *, certain: bool, foretold: Foretold | None
) -> Said | None:
    """Ask a server for the object in one version; None where it does not serve that."""
    path = api_path(thing.group, version, thing.resource, thing.namespace, thing.name)
    # Without a resourceVersion: the server reads it from etcd, not from its memory.
    reply = server.send("GET", path, accept=METADATA_ONLY, longest=_LONGEST_OBJECT)
    if isinstance(reply, NoReply):
        return Said(Answer.NO_ANSWER, reply.text)
    if reply.status == 200:
        said = _judge_found(reply.body, certain=certain)
        if said.answer is Answer.EMPTY and foretold is not None and not foretold.empty:
            return Said(Answer.NO_ANSWER, "it answered with an empty object, and etcd holds more than that")
        return said
    if reply.status == 404:
        return Said(Answer.NOT_FOUND) if _names(reply.body, thing.name) else None
    if reply.status == 401:
        return Said(Answer.DENIED, "it does not know the kubeconfig's user (401)")
    if reply.status == 403:
        return Said(Answer.DENIED, "it does not let the kubeconfig's user get the object (403)")
    if reply.status == 500:
        fails = foretold is None or foretold.is_read_error(reply.body)
        if fails:
            return Said(Answer.READ_ERROR, failed=True)
        return Said(Answer.NO_ANSWER, "it answered 500, and not that it cannot read this value", failed=True)
    return _no_answer(reply, "it answered")


def _no_answer(reply: Reply, answered: str) -> Said:
    again_after = pause_seconds(reply.retry_after) if reply.status in PASSING else None
    overload = ": it has too much to do" if reply.status == 429 else ""
    return Said(Answer.NO_ANSWER, f"{answered} {reply.status}{overload}", again_after=again_after)


def _judge_found(body: bytes | None, *, certain: bool) -> Said:
    try:
        found = msgspec.json.decode(body or b"", type=Served)
    except NOT_UNDERSTOOD:
        detail = "it answered 200, and the answer cannot be understood"
        return Said(Answer.READS_IT if certain else Answer.NO_ANSWER, detail)
    # Of a value that holds nothing, an API server makes an object that has neither.
    metadata = found.metadata
    reads = bool(metadata.name or metadata.uid)
    return Said(Answer.READS_IT if reads else Answer.EMPTY, resource_version=metadata.resource_version)


def _names(body: bytes | None, name: str) -> bool:
    """Say whether a Status at 404 is about the object, and not about a path that is not served."""
    try:
        found = msgspec.json.decode(body or b"", type=Status)
    except NOT_UNDERSTOOD:
        return False
    return found.kind == "Status" and found.details.name == name


def other_versions(server: Server, thing: APIObject) -> tuple[str, ...] | Said:
    """Return the versions of the object's group that a server serves, but the one that was asked for; or why not."""
    if not thing.group:
        return () if thing.version else ("v1",)  # the core group has no other
    reply = server.send("GET", api_path(thing.group, "v1", "x", "", None).removesuffix("/v1/x"))
    if isinstance(reply, NoReply):
        return Said(Answer.NO_ANSWER, reply.text)
    if reply.status == 404:
        return ()
    if reply.status != 200:
        return _no_answer(reply, "asked which versions it serves, it answered")
    try:
        found = msgspec.json.decode(reply.body or b"", type=_APIGroup)
    except NOT_UNDERSTOOD:
        return Said(Answer.NO_ANSWER, "which versions it serves could not be understood")
    preferred = [found.preferred.version] if found.preferred is not None else []
    served = dict.fromkeys([*preferred, *(version.version for version in found.versions)])
    return tuple(
        version
        for version in served
        if version != thing.version and api_path(thing.group, version, thing.resource, "", thing.name)
    )
