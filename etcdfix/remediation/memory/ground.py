"""What all objects have in common that API servers write anew from memory: the cluster, its servers, what was saved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec

from etcdfix.apiserver.client import AGAIN, Server
from etcdfix.apiserver.memory import Holder
from etcdfix.apiserver.objects import ServerAnswer
from etcdfix.apiserver.permissions import can_i
from etcdfix.apiserver.reading import revision_by_each
from etcdfix.apiserver.servers import AllServers, open_all_servers
from etcdfix.copies.rescued import SavedObject, read_index
from etcdfix.examine.verdicts.examination import Examination
from etcdfix.model.model import ClusterIdentity, GroupResource, StoredValue
from etcdfix.model.rules import Rule, acceptance, refuse
from etcdfix.remediation.change import ChangeRequest
from etcdfix.remediation.checks.sealing import require_write_key
from etcdfix.remediation.cluster import Cluster, find_cluster
from etcdfix.remediation.durable import Step
from etcdfix.remediation.places import place_warnings
from etcdfix.sources.kine import KineSource
from etcdfix.text.commands import RunOptions, copies, rescue
from etcdfix.text.safetext import key_word


class Kind(NamedTuple):
    """What is stored of a kind.

    Attributes:
        unread: How many values do not open.
        newest: The newest that is stored under today's write key; None for none.
        newest_read_by: Which servers read that one.
        loaded: The configuration file that each server says it has loaded, where there is no such value.
        unsaved: Keys of values that do not open and are not saved, who may give each, and in which words.
    """

    unread: int
    newest: Examination | None
    newest_read_by: tuple[ServerAnswer, ...]
    loaded: tuple[tuple[Server, str], ...]
    unsaved: tuple[tuple[bytes, Holder, str], ...]


class Ground(msgspec.Struct, frozen=True, kw_only=True):
    """What all objects of a run share; made by :func:`open_ground`."""

    cluster: Cluster
    identity: ClusterIdentity
    all_servers: AllServers
    rescued: Path
    copies: Mapping[bytes, Sequence[SavedObject]]
    run: RunOptions
    unchecked: tuple[str, ...]
    warnings: tuple[str, ...]
    kinds: dict[GroupResource, Kind]
    step: Step

    def save_first(self, resource: GroupResource) -> str:
        """Return the command that saves what servers hold of a kind."""
        return rescue([str(resource)], str(self.rescued)).line(self.run)

    def what_is_left(self, key: bytes) -> str:
        """Return the command that lists every copy of an object, each with the command that puts it back."""
        return copies(key_word(key), options=["--rescued", str(self.rescued)]).line(self.run)

    def saved_of(self, stored: StoredValue) -> tuple[SavedObject, ...]:
        """Return what was saved of the present generation of a key, the newest first.

        Before it another object may have stood there.
        """
        saved = self.copies.get(stored.key, ())
        return tuple(each for each in saved if int(each.resource_version) >= stored.create_revision)


@contextmanager
def open_ground(
    cluster: Cluster,
    request: ChangeRequest,
    rescued: Path | None,
    run: RunOptions,
    step: Step,
    *,
    resource: str = "RESOURCE",
) -> Iterator[Ground]:
    """Come to the API servers of a cluster, and to what was saved of their memory, of this resource first of all.

    Raises RefusedByRule, ConfigurationError or SourceError.
    """
    step("check: configuration")
    require_write_key(cluster)
    if request.api is None:
        raise refuse(
            Rule.NO_API_SERVER, "no API server was named, and an API server writes the object anew",
            hint="--kubeconfig FILE, and --server URL for each further one",
        )  # fmt: skip
    step("check: saved objects")
    if rescued is None:
        raise refuse(
            Rule.NOT_RESCUED,
            "nothing says that what API servers hold in memory was saved: a change that goes wrong can end it",
            hint=f"save everything of the kind first: {rescue([resource]).line(run)}; then --rescued DIR here",
        )
    index = read_index(rescued)
    step("check: cluster")
    identity = find_cluster(cluster, request.record_paths.directories)
    if not identity.is_known:
        raise refuse(
            Rule.UNKNOWN_CLUSTER,
            f"nothing in {cluster.kept_in} names the cluster, so nothing shows that the API servers are of this one",
            hint="name the file that k3s has open, and the API server's --etcd-prefix"
            if cluster.is_kine
            else "--main-endpoints LIST, or --manifest FILE, where namespaces lie in another etcd",
        )
    step("check: places")
    warnings = [*place_warnings(request.record_paths)]
    unchecked = request.accepted.named(Rule.UNCHECKED_SERVER)
    with open_all_servers(request.api, identity) as all_servers:
        all_servers.require_any()
        known = {*(one.address for one in all_servers.servers), *(one.server for one in all_servers.absent)}
        warnings += [
            f"{acceptance(Rule.UNCHECKED_SERVER, url)} fits no API server"
            for url in unchecked
            if url not in known
        ]
        if isinstance(cluster.source, KineSource):
            step("check: the file is what the API servers read")
            check_current(cluster.source, all_servers, unchecked)
        yield Ground(
            cluster=cluster,
            identity=identity,
            all_servers=all_servers,
            rescued=rescued,
            copies=index.by_key(),
            run=run,
            unchecked=unchecked,
            warnings=tuple(warnings),
            kinds={},
            step=step,
        )


def check_current(source: KineSource, all_servers: AllServers, unchecked: Sequence[str]) -> None:
    """Refuse unless the file of kine and each API server stand at one revision: a copy says nothing of today.

    The file is read before the servers are asked and after. What a server finds then lies between the two: below it
    would read another datastore, and above it the file would be a copy that nobody writes any more.
    Raises RefusedByRule or SourceError.
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
                if said.passing
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
