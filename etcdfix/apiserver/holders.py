"""Asks all API servers of a cluster about one object: who reads it from etcd, who has it in memory, and who may.

Only metadata are asked for; nothing of an answer is ever shown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from time import sleep
from typing import Final, TypeVar

import msgspec

from etcdfix.apiserver.all_servers import AllServers, require_servers
from etcdfix.apiserver.authorization import Authorization, authorize
from etcdfix.apiserver.client import NoReply, Server, require_done
from etcdfix.apiserver.memory import Memory, Remembered, remember, served_versions
from etcdfix.apiserver.objects import Answer, APIObject, Foretold, Said, look_for
from etcdfix.apiserver.patience import pause_seconds
from etcdfix.apiserver.revision import Standing, revision_seen_by
from etcdfix.apiserver.servers import ServerAnswer
from etcdfix.errors import EtcdfixError
from etcdfix.side_by_side import run_within
from etcdfix.storagekey import api_path

_Result = TypeVar("_Result")
_MOST_WAITS: Final = 2
"""So often a server that has too much to do is asked again."""
_LONGEST_METRICS: Final = 64 << 20
"""In bytes: metrics of a large cluster take several million."""

_LOADED: Final = re.compile(
    rb'^apiserver_encryption_config_controller_last_config_info\{(?:[^}\n]*,)?hash="(sha256:[0-9a-f]{64})"',
    re.MULTILINE,
)
_MOST_REQUESTS = 3  # one look may try the object in several versions, one after the other


class Holder(msgspec.Struct, frozen=True):
    """An API server, and what it says of its memory of one object.

    Attributes:
        server: Which.
        path: Of the object in its API, in the version in which it gave this answer; "" where none could be asked.
        memory: What it has.
    """

    server: Server
    path: str
    memory: Remembered

    @property
    def may_hold(self) -> bool:
        """It gives nothing from memory any more; a change may find the object in the process all the same."""
        return bool(self.path) and self.memory.word in {Memory.READ_ERROR, Memory.CACHE_LOST}


def read_by_each(
    all_servers: AllServers, thing: APIObject, foretold: Foretold | None = None
) -> tuple[ServerAnswer, ...]:
    """Ask each server for what etcd holds; those that cannot be asked stand among the answers.

    One that has too much to do is asked again, a little later.

    Raises:
        EtcdfixError: What a server said forbids to go on.
    """
    answers = [
        ServerAnswer(
            server=server.address,
            answer=said.answer,
            detail=said.detail,
            passing=said.again_after is not None,
        )
        if isinstance(said, Said)
        else ServerAnswer(server=server.address, answer=Answer.NO_ANSWER, detail=said)
        for server, said in _each_patiently(
            all_servers,
            lambda server: look_for(server, thing, certain=True, foretold=foretold),
            lambda said: said.again_after,
        )
    ]
    absent = [
        ServerAnswer(
            server=each.server, answer=Answer.DENIED if each.denied else Answer.NO_ANSWER, detail=each.why
        )
        for each in all_servers.absent
    ]
    return (*answers, *absent)


def remembered_by_each(all_servers: AllServers, thing: APIObject) -> list[Holder]:
    """Ask each server for what it has in memory; one that has too much to do again, a little later.

    Raises:
        EtcdfixError: What a server said forbids to go on.
    """
    return [
        said
        if isinstance(said, Holder)
        else Holder(server, "", Remembered(word=Memory.NO_ANSWER, detail=said))
        for server, said in _each_patiently(all_servers, lambda server: _recall(server, thing), _recall_after)
    ]


def revision_by_each(all_servers: AllServers) -> list[tuple[Server, Standing]]:
    """Ask each server for the newest revision of its datastore; one that has too much to do again, a little later."""
    told = _each_patiently(all_servers, revision_seen_by, lambda said: said.again_after)
    return [(server, Standing(why=said) if isinstance(said, str) else said) for server, said in told]


def loaded_by_each(all_servers: AllServers) -> list[tuple[Server, str]]:
    """Ask each server for the digest of the EncryptionConfiguration that it has loaded; "" where it says none."""
    asked = _each(all_servers, all_servers.servers, loaded_configuration)
    return [(server, said if said.startswith("sha256:") else "") for server, said in asked]


def loaded_configuration(server: Server) -> str:
    """Return the digest of the EncryptionConfiguration file that a server has loaded; "" where it says no single one.

    Format:
        ``k8s.io/apiserver/pkg/server/options/encryptionconfig/metrics``: SHA-256 of the bytes of the file. Recorded
        with kube-apiserver 1.36. The user may not be allowed to ask.
    """
    reply = server.send("GET", "/metrics", accept="text/plain", longest=_LONGEST_METRICS)
    if isinstance(reply, NoReply) or reply.status != 200:
        return ""
    digests = set(_LOADED.findall(reply.body or b""))
    return digests.pop().decode() if len(digests) == 1 else ""


def authorize_by_first(all_servers: AllServers, thing: APIObject, verbs: tuple[str, ...]) -> Authorization:
    """Ask one server for permissions on exactly one object.

    Raises:
        AuthorizationRefused: Anything but a clear yes, or no server can be asked.
    """
    require_servers(all_servers)
    server, seconds = all_servers.servers[0], _MOST_REQUESTS * all_servers.request_seconds
    (said,) = run_within(
        [lambda: authorize(server, thing, cluster=all_servers.cluster, verbs=verbs)], seconds
    )
    return require_done(said, seconds)


def _each_patiently(
    all_servers: AllServers, call: Callable[[Server], _Result], again_after: Callable[[_Result], int | None]
) -> list[tuple[Server, _Result | str]]:
    """Ask servers side by side, and those again that may say something else after so many seconds."""
    told = _each(all_servers, all_servers.servers, call)
    for _ in range(_MOST_WAITS):
        pauses = {
            place: seconds
            for place, (_server, said) in enumerate(told)
            if not isinstance(said, str) and (seconds := again_after(said)) is not None
        }
        if not pauses:
            break
        sleep(max(pauses.values()))
        for place, said in zip(
            pauses, _each(all_servers, [told[place][0] for place in pauses], call), strict=True
        ):
            told[place] = said
    return told


def _each(
    all_servers: AllServers, servers: Sequence[Server], call: Callable[[Server], _Result]
) -> list[tuple[Server, _Result | str]]:
    """Ask servers side by side; where there was no answer, say why."""
    seconds = _MOST_REQUESTS * all_servers.request_seconds
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


def _recall_after(holder: Holder) -> int | None:
    memory = holder.memory
    return pause_seconds(memory.retry_after) if memory.word is Memory.OVERLOADED else None


def _recall(server: Server, thing: APIObject) -> Holder:
    versions = served_versions(server, thing)
    if isinstance(versions, Said):
        return Holder(server, "", Remembered(word=Memory.NO_ANSWER, detail=versions.detail))
    found: Holder | None = None
    for version in versions:
        one = msgspec.structs.replace(thing, version=version)
        path = api_path(one.group, version, one.resource, one.namespace, one.name)
        said = Holder(server, path, remember(server, one, metadata_only=True))
        if said.memory.word is Memory.HELD:
            return said
        # What is said of the version that the value has counts before what is said of any other.
        found = said if found is None or found.memory.word is Memory.NOT_SERVED else found
    return found or Holder(server, "", Remembered(word=Memory.NOT_SERVED, detail="it does not serve it"))
