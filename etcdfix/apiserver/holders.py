"""Asks all API servers of a cluster about one object: who reads it from etcd, who has it in memory, and who may.

A configuration may be wrong in ways that nothing in etcd shows. An API server that reads the object is the proof: then
the configuration given here is wrong or old, and nothing may be changed on its word. Each server holds a configuration
of its own, so each is asked.

Only metadata are asked for; nothing of an answer is ever shown: what a server reads may be a Secret.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from time import sleep
from typing import Final, TypeVar

import msgspec

from etcdfix.apiserver.authorization import VERBS, Authorization, authorize
from etcdfix.apiserver.client import NoReply, RefusalReason, Server, require_done
from etcdfix.apiserver.errors import AuthorizationRefused
from etcdfix.apiserver.memory import Memory, Remembered, remember, served_versions
from etcdfix.apiserver.objects import (
    METADATA_LIST,
    NOT_UNDERSTOOD,
    Answer,
    APIObject,
    Foretold,
    Said,
    look_for,
)
from etcdfix.apiserver.patience import PASSING, pause_seconds
from etcdfix.apiserver.servers import (
    DEFAULT_TIMEOUT_SECONDS,
    AllServers,
    APIAccess,
    ServerAnswer,
    ServerAnswers,
    open_all_servers,
    require_servers,
)
from etcdfix.model.errors import EtcdfixError
from etcdfix.model.model import ClusterIdentity
from etcdfix.model.rules import Rule, refuse
from etcdfix.model.side_by_side import run_within
from etcdfix.model.storagekey import api_path

_Result = TypeVar("_Result")
_MOST_WAITS: Final = 2
"""So often a server that has too much to do is asked again."""
_LONGEST_METRICS: Final = 64 << 20
"""In bytes: metrics of a large cluster take several million."""

_LOADED: Final = re.compile(
    rb'^apiserver_encryption_config_controller_last_config_info\{(?:[^}\n]*,)?hash="(sha256:[0-9a-f]{64})"',
    re.MULTILINE,
)
_LONGEST_LIST: Final = 1 << 20
_LISTS: Final = ("/api/v1/namespaces", "/apis/coordination.k8s.io/v1/leases")
"""Kinds that every cluster has: where one cannot be read, the other may be."""
_SILENT: Final = frozenset({Answer.DENIED, Answer.NO_ANSWER})
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


def ask_servers(
    api: APIAccess,
    thing: APIObject,
    cluster: ClusterIdentity,
    *,
    held: bool = True,
    readable_is_fine: bool = False,
    foretold: Foretold | None = None,
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
) -> ServerAnswers:
    """Ask each API server for an object, and one of them for the permission to delete it.

    With ``held``, etcd holds the object, so that a server which finds none reads something else. With
    ``readable_is_fine`` the change does not rest on the object being unreadable. ``foretold`` as for
    :func:`~etcdfix.apiserver.objects.look_for`.

    Raises:
        KubernetesClientMissing: The extra is not installed.
        KubeconfigInvalid: The file cannot be read, or lacks the context.
        RefusedByRule: A server reads the object.
        AuthorizationRefused: A server is of another cluster, does not say of which it is, or says no.
    """
    if not cluster.is_known:
        raise AuthorizationRefused(
            "nothing in etcd names the cluster, so nothing can be compared with the API server's",
            reason=RefusalReason.OTHER_CLUSTER,
        )
    request_seconds = timeout_seconds / 3
    with open_all_servers(
        api, cluster, timeout_seconds=timeout_seconds, request_seconds=request_seconds
    ) as all_servers:
        answers = list(read_by_each(all_servers, thing, foretold))
        doubts: list[AuthorizationRefused] = []
        counting: list[Server] = []
        for place, server in enumerate(all_servers.servers):
            said, detail = answers[place], answers[place].detail
            if held and said.answer is Answer.NOT_FOUND and not detail:
                detail = "though etcd holds it: it reads another etcd, or another prefix"
                doubts.append(_elsewhere(f"the API server at {said.server} finds no {thing}, {detail}"))
            elif said.answer not in _SILENT:
                counting.append(server)
            uncompared = all_servers.uncompared.get(said.server, "")
            detail = "; ".join(filter(None, (detail, uncompared)))
            answers[place] = msgspec.structs.replace(said, detail=detail)
        # What one reads that did not show whose it is still speaks against the configuration; nothing else does.
        unproven = [
            (place, each)
            for place, each in enumerate(all_servers.absent, len(all_servers.servers))
            if each.unproven
        ]
        servers = [each.unproven for _, each in unproven if each.unproven is not None]
        look = partial(look_for, thing=thing, certain=False, foretold=foretold)
        for (place, each), (_, told) in zip(unproven, _each(all_servers, servers, look), strict=True):
            if isinstance(told, str):
                answers[place] = ServerAnswer(server=each.server, answer=Answer.NO_ANSWER, detail=told)
            elif told.answer in {Answer.READS_IT, *_SILENT}:
                answers[place] = ServerAnswer(server=each.server, answer=told.answer, detail=told.detail)
            elif each.failure is not None:
                doubts.append(each.failure)
        if not readable_is_fine:
            _refuse_readable(answers, thing)
        if not counting and doubts:
            raise doubts[0]
        authorization = None
        if counting:
            compared = [server for server in counting if server.address not in all_servers.uncompared]
            authorization = _authorize(all_servers, (compared or counting)[0], thing, VERBS)
        return ServerAnswers(
            answers=tuple(answers),
            warnings=(all_servers.unlisted,) if all_servers.unlisted else (),
            authorization=authorization,
            all_known=all_servers.all_known,
        )


def _elsewhere(text: str) -> AuthorizationRefused:
    hint = "compare with that server's --etcd-servers and --etcd-prefix"
    return AuthorizationRefused(text, reason=RefusalReason.OTHER_CLUSTER, hint=hint)


def _refuse_readable(answers: Sequence[ServerAnswer], thing: APIObject) -> None:
    for said in answers:
        if said.answer is Answer.READS_IT:
            detail = f" ({said.detail})" if said.detail else ""
            raise refuse(
                Rule.CONFIGURATION_WRONG,
                f"the API server at {said.server} reads {thing}{detail}: the configuration given here is wrong or old, "
                "or this is not that server's etcd",
                hint="compare with that server's --encryption-provider-config, --etcd-servers and --etcd-prefix",
            )


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


def revision_seen_by(server: Server) -> Standing:
    """Return the newest revision as a server sees it, or why it is not known.

    A LIST without a resourceVersion shows what is newest: it is read from the datastore, or from a cache that has
    caught up with it.
    """
    refused: list[Standing] = []
    for path in _LISTS:
        reply = server.send("GET", f"{path}?limit=1", accept=METADATA_LIST, longest=_LONGEST_LIST)
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
    return _authorize(all_servers, all_servers.servers[0], thing, verbs)


def _authorize(
    all_servers: AllServers, server: Server, thing: APIObject, verbs: tuple[str, ...]
) -> Authorization:
    seconds = _MOST_REQUESTS * all_servers.request_seconds
    call = partial(authorize, server, thing, cluster=all_servers.cluster, verbs=verbs)
    (said,) = run_within([call], seconds)
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
