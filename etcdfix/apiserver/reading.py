"""Asks all API servers of a cluster whether they read one object from etcd, and one of them for the permission.

A configuration may be wrong in ways that nothing in etcd shows. An API server that reads the object is the proof: then
the configuration given here is wrong or old, and nothing may be changed on its word. Each server holds a configuration
of its own, so each is asked.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Final

import msgspec

from etcdfix.apiserver.client import NOT_UNDERSTOOD, AuthorizationRefused, NoReply, RefusalReason, Server
from etcdfix.apiserver.kubeconfig import APIAccess
from etcdfix.apiserver.objects import (
    METADATA_LIST,
    Answer,
    APIObject,
    Foretold,
    Served,
    ServerAnswer,
    read_object,
)
from etcdfix.apiserver.permissions import authorize
from etcdfix.apiserver.servers import (
    AllServers,
    ServerAnswers,
    open_all_servers,
    side_by_side,
)
from etcdfix.model.model import ClusterIdentity
from etcdfix.model.rules import Rule, refuse

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


class SeenRevision(msgspec.Struct, frozen=True):
    """Where a server finds its datastore.

    Attributes:
        revision: The newest, as the server sees it; None where it is not known.
        why: Why it is not, "" where it is.
        passing: The server may know it in a moment.
    """

    revision: int | None = None
    why: str = ""
    passing: bool = False


def ask_servers(
    api: APIAccess,
    thing: APIObject,
    cluster: ClusterIdentity,
    *,
    held: bool = True,
    readable_is_fine: bool = False,
    foretold: Foretold | None = None,
) -> ServerAnswers:
    """Ask each API server for an object, and one of them for the permission to delete it.

    With ``held``, etcd holds the object, so that a server which finds none reads something else. With
    ``readable_is_fine`` the change does not rest on the object being unreadable. ``foretold`` as for
    :func:`~etcdfix.apiserver.objects.read_object`.

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
    with open_all_servers(api, cluster) as all_servers:
        answers = list(read_by_each(all_servers, thing, foretold))
        doubts: list[AuthorizationRefused] = []
        counting: list[Server] = []
        for place, server in enumerate(all_servers.servers):
            said = answers[place]
            if held and said.answer is Answer.NOT_FOUND and not said.detail:
                detail = "though etcd holds it: it reads another etcd, or another prefix"
                text = f"the API server at {said.server} finds no {thing}, {detail}"
                hint = "compare with that server's --etcd-servers and --etcd-prefix"
                doubts.append(AuthorizationRefused(text, reason=RefusalReason.OTHER_CLUSTER, hint=hint))
                answers[place] = msgspec.structs.replace(said, detail=detail)
            elif said.answer not in _SILENT:
                counting.append(server)
        # What one reads that did not show whose it is still speaks against the configuration; nothing else does.
        for place, absent in enumerate(all_servers.absent, len(all_servers.servers)):
            if absent.unproven is None or absent.failure is None:
                continue
            said = read_object(absent.unproven, thing, certain=False, foretold=foretold)
            if said.answer in {Answer.READS_IT, *_SILENT}:
                answers[place] = said
            else:
                doubts.append(absent.failure)
        if not readable_is_fine:
            for said in answers:
                _refuse_readable(said, thing)
        if not counting and doubts:
            raise doubts[0]
        authorization = None
        if counting:
            compared = [server for server in counting if server.address not in all_servers.uncompared]
            authorization = authorize((compared or counting)[0], thing, cluster=cluster)
        return ServerAnswers(
            answers=tuple(
                _with_detail(said, all_servers.uncompared.get(said.server, "")) for said in answers
            ),
            warnings=(all_servers.unlisted,) if all_servers.unlisted else (),
            authorization=authorization,
            all_known=all_servers.all_known,
        )


def _with_detail(said: ServerAnswer, more: str) -> ServerAnswer:
    return msgspec.structs.replace(said, detail="; ".join(filter(None, (said.detail, more))))


def _refuse_readable(said: ServerAnswer, thing: APIObject) -> None:
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

    Raises:
        EtcdfixError: What a server said forbids to go on.
    """
    answers = side_by_side(
        all_servers.servers,
        partial(read_object, thing=thing, foretold=foretold),
        lambda server, why: ServerAnswer(server=server.address, answer=Answer.NO_ANSWER, detail=why),
    )
    absent = [
        ServerAnswer(
            server=each.server, answer=Answer.DENIED if each.denied else Answer.NO_ANSWER, detail=each.why
        )
        for each in all_servers.absent
    ]
    return (*answers, *absent)


def revision_by_each(all_servers: AllServers) -> list[tuple[Server, SeenRevision]]:
    """Ask each server for the newest revision of its datastore."""
    seen = side_by_side(all_servers.servers, revision_seen_by, lambda _server, why: SeenRevision(why=why))
    return [*zip(all_servers.servers, seen, strict=True)]


def revision_seen_by(server: Server) -> SeenRevision:
    """Return the newest revision as a server sees it, or why it is not known.

    A LIST without a resourceVersion shows what is newest: it is read from the datastore, or from a cache that has
    caught up with it.
    """
    refused: list[SeenRevision] = []
    for path in _LISTS:
        reply = server.ask(f"{path}?limit=1", accept=METADATA_LIST, longest=_LONGEST_LIST)
        if isinstance(reply, NoReply):
            return SeenRevision(why=reply.text)
        if reply.status == 200:
            try:
                found = msgspec.json.decode(reply.body or b"", type=Served)
                return SeenRevision(int(found.metadata.resource_version))
            except (*NOT_UNDERSTOOD, ValueError):
                return SeenRevision(why=f"its answer to a list of {path} could not be understood")
        why = f"a list of {path} was answered with {reply.status}"
        refused.append(SeenRevision(why=why, passing=reply.is_passing))
    return next((said for said in refused if said.passing), refused[0])


def loaded_by_each(all_servers: AllServers) -> list[tuple[Server, str]]:
    """Ask each server for the digest of the EncryptionConfiguration that it has loaded; "" where it says none."""
    loaded = side_by_side(all_servers.servers, loaded_configuration, lambda _server, _why: "")
    return [*zip(all_servers.servers, loaded, strict=True)]


def loaded_configuration(server: Server) -> str:
    """Return the digest of the EncryptionConfiguration file that a server has loaded; "" where it says no single one.

    Format:
        ``k8s.io/apiserver/pkg/server/options/encryptionconfig/metrics``: SHA-256 of the bytes of the file. Recorded
        with kube-apiserver 1.36. The user may not be allowed to ask.
    """
    reply = server.ask("/metrics", accept="text/plain", longest=_LONGEST_METRICS)
    if isinstance(reply, NoReply) or reply.status != 200:
        return ""
    digests = set(_LOADED.findall(reply.body or b""))
    return digests.pop().decode() if len(digests) == 1 else ""
