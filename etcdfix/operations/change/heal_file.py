"""Whether the file of kine is the one that the API servers read now: a copy says nothing of what stands there."""

from __future__ import annotations

from collections.abc import Sequence

from etcdfix.apiserver.all_servers import AllServers
from etcdfix.apiserver.authorization import can_i
from etcdfix.apiserver.holders import revision_by_each
from etcdfix.apiserver.patience import AGAIN
from etcdfix.rules import Rule, refuse
from etcdfix.sources.kine import KineSource


def check_current(source: KineSource, all_servers: AllServers, unchecked: Sequence[str]) -> None:
    """Refuse unless the file and each API server stand at one revision.

    The file is read before the servers are asked and after. What a server finds then lies between the two: below it
    would read another datastore, and above it the file would be a copy that nobody writes any more.

    Args:
        source: The file as it stood once.
        all_servers: The API servers.
        unchecked: Addresses of servers that need not have an answer, where another one has.

    Raises:
        RefusedByRule: A server stands elsewhere, or does not say where.
        SourceError: The file cannot be read.
    """
    before = _revision(source)
    answers = revision_by_each(all_servers)
    after = _revision(source)
    shown = any(said.revision is not None for _server, said in answers)
    for server, said in answers:
        if said.revision is None:
            if shown and server.address in unchecked:
                continue
            raise refuse(
                Rule.UNCHECKED_SERVER,
                f"the API server at {server.address} does not say at which revision it stands ({said.why}), so "
                f"nothing shows that it reads {source.path}",
                hint=AGAIN
                if said.again_after is not None
                else f"let it answer; its user needs to list namespaces: {can_i('list', '', 'namespaces', '', '')}",
            )
        if not before <= said.revision <= after:
            stands = f"{before}" if before == after else f"{before} to {after}"
            raise refuse(
                Rule.OTHER_CLUSTER,
                f"{source.path} is not what the API server at {server.address} reads: the file stands at revision "
                f"{stands}, the server at {said.revision}",
                hint="name the file that the running k3s has open, not a copy: --kine /var/lib/rancher/k3s/server/db/"
                "state.db",
            )


def _revision(source: KineSource) -> int:
    with source.again() as now:
        return now.revision
