"""The API servers of a cluster, reached once and asked one object after the other: who reads it, who remembers it.

A server that lost an encryption key while it ran answers from its memory what it can no longer read from etcd:
``resourceVersion=0`` asks for that, a plain GET for what etcd holds. Only metadata are asked for.

Format: ``meta.k8s.io/v1`` PartialObjectMetadata. Recorded with kube-apiserver 1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

import msgspec

from etcdfix.apiserver.authorization import Authorization, authorize
from etcdfix.apiserver.client import (
    NoReply,
    RefusalReason,
    Reply,
    Server,
    open_access,
    run_within,
    without_user,
)
from etcdfix.apiserver.objects import (
    METADATA_ONLY,
    NOT_UNDERSTOOD,
    Answer,
    APIObject,
    Said,
    look_for,
    other_versions,
)
from etcdfix.apiserver.reach import Reached, listed_by, reach
from etcdfix.apiserver.servers import DEFAULT_TIMEOUT_SECONDS, APIAccess, ServerAnswer
from etcdfix.errors import AuthorizationRefused, EtcdfixError
from etcdfix.model import ClusterIdentity
from etcdfix.storagekey import api_path

_Result = TypeVar("_Result")
_LONGEST_OBJECT = 8 << 20


class Remembered(msgspec.Struct, frozen=True):
    """An object as one server has it in memory, or reads it.

    Attributes:
        server: Which.
        path: Of the object in its API.
        uid: Of the object.
        resource_version: Of what it has in memory.
        terminating: It has a deletionTimestamp.
    """

    server: Server
    path: str
    uid: str
    resource_version: str
    terminating: bool


class Forgotten(msgspec.Struct, frozen=True):
    """A server that does not give an object from memory.

    Attributes:
        server: Which.
        path: Of the object in its API, as it was asked for last; "" where no request can name it.
        why: Part of a sentence.
        tried: It looked, and failed to read the object: it may have it in memory all the same.
    """

    server: Server
    path: str
    why: str
    tried: bool


class _Metadata(msgspec.Struct):
    name: str = ""
    uid: str = ""
    resource_version: str = msgspec.field(name="resourceVersion", default="")
    deletion_timestamp: str | None = msgspec.field(name="deletionTimestamp", default=None)


class _Found(msgspec.Struct):
    metadata: _Metadata


class Holders:
    """All API servers that were found, for as long as a command runs.

    Attributes:
        reached: Those that showed that they are of this cluster, in the order in which they were found.
        unreached: Of the others, why they cannot be asked.
        warnings: Why there may be more, one sentence each.
    """

    def __init__(self, cluster: ClusterIdentity, request_seconds: float) -> None:
        self.reached: list[Server] = []
        self.unreached: list[ServerAnswer] = []
        self.warnings: list[str] = []
        self._cluster = cluster
        self._request_seconds = request_seconds

    def read(self, thing: APIObject) -> tuple[ServerAnswer, ...]:
        """Ask each server for what etcd holds; those that could not be reached stand among the answers."""
        said = self._each(lambda server: look_for(server, thing, certain=True))
        answers = [
            ServerAnswer(server=server.address, answer=each.answer, detail=each.detail)
            if isinstance(each, Said)
            else ServerAnswer(server=server.address, answer=Answer.NO_ANSWER, detail=each)
            for server, each in said
        ]
        return (*answers, *self.unreached)

    def remember(self, thing: APIObject) -> list[Remembered | Forgotten]:
        """Ask each server for what it has in memory."""
        return [
            each if not isinstance(each, str) else Forgotten(server, "", each, tried=False)
            for server, each in self._each(lambda server: _recall(server, thing))
        ]

    def authorize(self, thing: APIObject, verbs: tuple[str, ...]) -> Authorization:
        """Ask the first server that was reached for permissions on exactly one object.

        Raises:
            AuthorizationRefused: Anything but a clear yes.
        """
        ((server, said),) = self._each(
            lambda server: authorize(
                server,
                group=thing.group,
                resource=thing.resource,
                namespace=thing.namespace,
                name=thing.name,
                cluster=self._cluster,
                verbs=verbs,
            ),
            only=self.reached[:1],
        )
        if isinstance(said, str):
            raise AuthorizationRefused(
                f"{server.address} was asked for permission: {said}", reason=RefusalReason.TIMED_OUT
            )
        return said

    def _each(
        self, call: Callable[[Server], _Result], *, only: list[Server] | None = None
    ) -> list[tuple[Server, _Result | str]]:
        """Ask servers side by side; where there was no answer, say why.

        Raises:
            EtcdfixError: What one of the calls raised.
        """
        servers = self.reached if only is None else only
        # One look may take several requests: versions are tried one after the other.
        seconds = 3 * self._request_seconds
        found = run_within([partial(call, server) for server in servers], seconds)
        told: list[tuple[Server, _Result | str]] = []
        for server, said in zip(servers, found, strict=True):
            if isinstance(said, EtcdfixError):
                raise said
            if said is None:
                told.append((server, f"no answer within {seconds:g} s"))
            elif isinstance(said, BaseException):
                told.append((server, type(said).__name__))
            else:
                told.append((server, said))
        return told


@contextmanager
def open_holders(
    api: APIAccess, cluster: ClusterIdentity, *, timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS
) -> Iterator[Holders]:
    """Reach the API servers: that of the kubeconfig, those that were named, and those that default/kubernetes lists.

    Args:
        api: Which, and as whom.
        cluster: Which cluster etcd holds.
        timeout_seconds: For the plugins of the kubeconfig; one request may take a third of it.

    Raises:
        KubernetesClientMissing: The extra is not installed.
        KubeconfigInvalid: The file cannot be read, or lacks the context.
        AuthorizationRefused: A server is of another cluster, or nothing would prove who answers.
    """
    if not cluster.is_known:
        raise AuthorizationRefused(
            "nothing in etcd names the cluster, so nothing can be compared with the API server's",
            reason=RefusalReason.OTHER_CLUSTER,
        )
    request_seconds = timeout_seconds / 3
    access = open_access(
        str(api.kubeconfig), api.context, timeout_seconds=timeout_seconds, request_seconds=request_seconds
    )
    try:
        holders = Holders(cluster, request_seconds)

        def reach_all(urls: list[str]) -> None:
            known = {server.address for server in holders.reached} | {
                each.server for each in holders.unreached
            }
            new = [url for url in dict.fromkeys(urls) if without_user(url) not in known]
            found = run_within([partial(reach, access, url, cluster) for url in new], timeout_seconds)
            for url, said in zip(new, found, strict=True):
                _take(holders, without_user(url), said)

        reach_all([access.url, *api.servers])
        if holders.reached:
            listed = listed_by(holders.reached[0], request_seconds)
            holders.warnings += filter(None, [listed.warning])
            reach_all(list(listed.urls))
        yield holders
    finally:
        access.close()


def _take(holders: Holders, address: str, said: Reached | BaseException | None) -> None:
    """Sort a server in by what came of reaching it.

    Raises:
        EtcdfixError: It is of another cluster, or nothing would prove who answers.
    """
    if isinstance(said, EtcdfixError):
        raise said
    if not isinstance(said, Reached):
        why = "no answer in time" if said is None else type(said).__name__
    elif said.failure is None:
        holders.reached.append(said.server)
        holders.warnings += filter(None, [said.warning and f"{address}: {said.warning}"])
        return
    else:
        why = said.why_not_reached or str(said.failure)
    holders.unreached.append(ServerAnswer(server=address, answer=Answer.NO_ANSWER, detail=why))


def _recall(server: Server, thing: APIObject) -> Remembered | Forgotten:
    """Ask one server for what it has in memory, in as many versions as it takes."""
    first = _recall_in(server, thing, thing.version) if thing.version else None
    if isinstance(first, Remembered):
        return first
    others = other_versions(server, thing)
    last: Remembered | Forgotten | None = first
    for version in () if isinstance(others, Said) else others:
        last = _recall_in(server, thing, version)
        if isinstance(last, Remembered):
            return last
    # What was said of the version that the value has counts before what is said of any other.
    return first or last or Forgotten(server, "", "no request can name it", tried=False)


def _recall_in(server: Server, thing: APIObject, version: str) -> Remembered | Forgotten:
    path = api_path(thing.group, version, thing.resource, thing.namespace, thing.name)
    if not path:
        return Forgotten(server, "", "no request can name it", tried=False)
    reply = server.send("GET", f"{path}?resourceVersion=0", accept=METADATA_ONLY, longest=_LONGEST_OBJECT)
    if isinstance(reply, NoReply):
        return Forgotten(server, path, reply.text, tried=False)
    if reply.status != 200:
        return Forgotten(server, path, f"it answers {reply.status}", tried=reply.status == 500)
    return _remembered(server, path, thing, reply)


def _remembered(server: Server, path: str, thing: APIObject, reply: Reply) -> Remembered | Forgotten:
    try:
        found = msgspec.json.decode(reply.body or b"", type=_Found).metadata
    except NOT_UNDERSTOOD:
        return Forgotten(server, path, "its answer cannot be understood", tried=False)
    if found.name != thing.name or not found.uid or not found.resource_version.isdecimal():
        return Forgotten(server, path, "its answer is not the object's metadata", tried=False)
    return Remembered(
        server, path, found.uid, found.resource_version, terminating=found.deletion_timestamp is not None
    )
