"""Would a deletion end what API servers still hold of other objects?

A running API server keeps the objects of a kind in memory although the encryption key of their values is lost. It gives
all of them up as soon as etcd tells it of the deletion of a value that it cannot read. So no such value is deleted
while others of its kind are neither saved (``etcdfix rescue``) nor healed, and a server has them.

A saved object counts where its digest is on the audit log, its file is unchanged, and its resourceVersion is the mod
revision at which the value stands now.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from etcdfix.apiserver.client import Server
from etcdfix.apiserver.kubeconfig import APIAccess
from etcdfix.apiserver.memory import Memory, Remembered, remember, remember_kind
from etcdfix.apiserver.objects import Answer, APIObject
from etcdfix.apiserver.servers import AllServers, ServerAnswers, open_all_servers
from etcdfix.copies.rescued import is_whole, read_index
from etcdfix.examine.verdicts.deletability import Deletability, deletability_of
from etcdfix.examine.verdicts.examination import Examination
from etcdfix.model.errors import RefusedByRule
from etcdfix.model.model import ClusterIdentity, StoredValue
from etcdfix.model.rules import Rule, unless_accepted
from etcdfix.model.storagekey import display
from etcdfix.remediation.audit.search import saved_digests
from etcdfix.remediation.facts import must_be_had
from etcdfix.text.words import counted

if TYPE_CHECKING:
    from etcdfix.remediation.change import Change
    from etcdfix.remediation.present import Present

_MOST_EXAMPLES: Final = 3
_LOST: Final = frozenset({Memory.CACHE_LOST, Memory.READ_ERROR, Memory.NOT_SERVED})


class RescuedCopies:
    """Saved objects that can be relied upon; None for no directory, which holds nothing.

    Raises:
        ConfigurationError: There is no index, or it is none.
        AuditLogUnreadable: The log cannot be read.
    """

    def __init__(self, directory: Path | None, log: Path) -> None:
        self._directory = directory or Path()
        self._objects = {} if directory is None else read_index(directory).by_key()
        self._digests = frozenset[str]() if directory is None else saved_digests(log, "")

    def has(self, stored: StoredValue, cluster: ClusterIdentity) -> bool:
        """Say whether the object of a value is saved as that holds it."""
        return any(
            saved.resource_version == str(stored.mod_revision)
            and saved.sha256 in self._digests
            and (not cluster.uid or saved.cluster_uid in {"", cluster.uid})
            and is_whole(self._directory, saved)
            for saved in self._objects.get(stored.key, ())
        )


class Kin:
    """Other values of a kind whose encryption key is lost too, gathered in the pass over everything."""

    def __init__(self, target: Examination, copies: RescuedCopies, cluster: ClusterIdentity) -> None:
        self.resource = target.directory.group_resource
        self.missing = 0
        self.examples: list[bytes] = []
        self._target, self._copies, self._cluster = target, copies, cluster

    @property
    def thing(self) -> APIObject:
        """The target, as a request names it; its version is "" where only a server can tell."""
        directory = self._target.directory
        return APIObject(
            directory.group, directory.version, directory.resource, self._target.namespace, self._target.name
        )

    def see(self, found: Examination) -> None:
        """Take one value."""
        same_kind = found.directory.group_resource == self.resource
        if not same_kind or found.stored.key == self._target.stored.key:
            return
        if deletability_of(found) is not Deletability.DECLARABLE:
            return
        if not self._copies.has(found.stored, self._cluster):
            self.missing += 1
            if len(self.examples) < _MOST_EXAMPLES:
                self.examples.append(found.stored.key)

    @property
    def save_first(self) -> str:
        """Return how they are saved, or written anew: the beginning of a hint."""
        return (
            f"save them first: etcdfix rescue {self.resource} --kubeconfig FILE --rescued DIR, then --rescued DIR "
            "here; or have them written anew: etcdfix fix KEY --from memory"
        )

    def describe(self, *, named: bool = True) -> str:
        """Return how many are not saved, and some of them: the subject of a sentence."""
        others = f"{counted(self.missing, 'other value')} of {self.resource} whose encryption key is lost"
        names = ", ".join(map(display, self.examples))
        return f"{others} ({names}{', …' if self.missing > len(self.examples) else ''})" if named else others


class CachedReads(NamedTuple):
    """Which API servers may hold others of a kind in memory: what each does, a clause; ``asked``: any could be."""

    holding: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    asked: bool = True


def cached_reads_of(
    kin: Kin, api: APIAccess | None, servers: ServerAnswers, cluster: ClusterIdentity
) -> CachedReads:
    """Ask the API servers whether they hold what nobody has saved.

    Raises:
        AuthorizationRefused: A server is of another cluster.
        ConfigurationError: The kubeconfig cannot be used.
    """
    if not kin.missing:
        return CachedReads()
    if api is None or all(answer.answer is Answer.NO_ANSWER for answer in servers.answers):
        return CachedReads(asked=False)
    with open_all_servers(api, cluster) as all_servers:
        return CachedReads(
            tuple(_holding(all_servers, kin.thing)),
            tuple(
                f"{each.server} may hold {kin.resource} in memory: {each.why}" for each in all_servers.absent
            ),
        )


def ends_cached_reads(present: Present, change: Change) -> Iterator[RefusedByRule | str]:
    """No API server gives up, with this deletion, what it alone holds of other objects whose key is lost."""
    yield from must_be_had(present.around)
    kin = present.kin
    if not kin.missing:
        return
    gives_up = "API servers that still hold them in memory give all of them up with this deletion"
    if change.accepts(Rule.ENDS_CACHED_READS):
        yield f"{kin.describe(named=False)}: {gives_up}"
        return
    ends = f"{kin.describe()}: {gives_up}"
    held = present.cached_reads
    if not held.asked:
        why = f"{ends}; no API server was asked whether it holds them"
        yield unless_accepted(Rule.ENDS_CACHED_READS, why, hint=f"--kubeconfig FILE; {kin.save_first}")
    elif held.holding:
        text = f"{ends} ({'; '.join(held.holding)})"
        yield unless_accepted(Rule.ENDS_CACHED_READS, text, hint=kin.save_first)
    else:
        yield from held.warnings


def _holding(all_servers: AllServers, thing: APIObject) -> Iterator[str]:
    for server in all_servers.servers:
        said = _kind_of(server, thing)
        if said.word is Memory.HELD:
            yield f"{server.address} holds them"
        elif said.word not in _LOST:
            yield f"{server.address} may hold them: {said.detail or said.word.value}"
    for absent in all_servers.absent:
        if not absent.unconnected:
            yield f"{absent.server} may hold them: {absent.why}"


def _kind_of(server: Server, thing: APIObject) -> Remembered:
    """Return what a server says of its memory of a kind, by one object of it that etcd holds and nobody can read.

    A server that gives that from memory has its memory of the kind; one that has lost it reads etcd, and fails. No
    right is needed beyond the one to get that object, unless it is too new for the server's memory.
    """
    found = remember(server, thing, metadata_only=True)
    return remember_kind(server, thing) if found.word is Memory.NOT_HELD else found
