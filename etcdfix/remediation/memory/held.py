"""What is known of one object that an API server may write anew from its memory; nothing here changes anything."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from etcdfix.apiserver.client import AGAIN, Server
from etcdfix.apiserver.memory import Holder, Memory, remembered_by_each
from etcdfix.apiserver.objects import APIObject, ServerAnswer
from etcdfix.apiserver.permissions import Authorization, authorize
from etcdfix.apiserver.reading import loaded_by_each, read_by_each
from etcdfix.apiserver.servers import AllServers, ServerAnswers, open_all_servers
from etcdfix.copies.rescued import SavedObject, is_whole, read_index
from etcdfix.examine.verdicts.deletability import LOST_KEY, key_may_be_lost
from etcdfix.examine.verdicts.examination import Examination
from etcdfix.graph.recreation import values_at
from etcdfix.model.closing import Closing
from etcdfix.model.errors import RefusedByRule
from etcdfix.model.model import ClusterIdentity, Outcome
from etcdfix.model.rules import Rule, refuse
from etcdfix.model.storagekey import api_path
from etcdfix.remediation.checks.servers import foretold_of
from etcdfix.remediation.facts import Facts, fact
from etcdfix.remediation.present import Present
from etcdfix.remediation.uids import said_uids
from etcdfix.report.objects import Viewer
from etcdfix.text.commands import copies, rescue
from etcdfix.text.safetext import key_word

VERBS = ("patch", "get")
"""What the kubeconfig's user needs: ``get`` too, or nothing shows that other servers read what was written."""


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


class Chosen(NamedTuple):
    """Which servers to ask, one after the other until etcd moves, and with which uid.

    Attributes:
        uid_from: What says the uid, where no server answers from memory any more; "" where one does.
    """

    holders: tuple[Holder, ...]
    uid: str
    uid_from: str = ""

    @property
    def ended(self) -> bool:
        """No server answers from memory any more: which of them still holds it is not known."""
        return bool(self.uid_from)


class HeldObject(Facts, Closing):
    """What etcd, API servers and saved copies say of one object.

    Attributes:
        unchecked: The addresses of servers that are accepted although they do not answer.
    """

    def __init__(self, present: Present) -> None:
        super().__init__(present.step)
        self.present, self.unchecked = present, present.request.accepted.named(Rule.UNCHECKED_SERVER)

    def close(self) -> None:
        """Ask no server any more."""
        if isinstance(servers := self.known.get("all_servers"), AllServers):
            servers.close()

    def save_first(self) -> str:
        """Return the command that saves what servers hold of its kind."""
        request, resource = self.present.request, self.present.name.directory.group_resource
        return rescue([str(resource)], str(request.rescued or "DIR")).line(request.run)

    def what_is_left(self) -> str:
        """Return the command that lists every copy of the object, each with the command that puts it back."""
        key = key_word(self.present.key)
        return copies(key, options=["--rescued", str(self.rescued)]).line(self.present.request.run)

    @fact()
    def rescued(self) -> Path:
        """The directory of what was saved."""
        if self.present.request.rescued is None:
            raise refuse(
                Rule.NOT_RESCUED,
                "nothing says that what API servers hold in memory was saved: a change that goes wrong can end it",
                hint=f"save everything of the kind first: {self.save_first()}; then --rescued DIR here",
            )
        return self.present.request.rescued

    @fact("saved objects")
    def saved_objects(self) -> Mapping[bytes, Sequence[SavedObject]]:
        """What was saved, by etcd key, the newest first."""
        return read_index(self.rescued).by_key()

    @fact()
    def named_cluster(self) -> ClusterIdentity:
        """Which cluster it is: nothing stands in for that here."""
        cluster, identity = self.present.cluster, self.present.identity
        if not identity.is_known:
            raise refuse(
                Rule.UNKNOWN_CLUSTER,
                f"nothing in {cluster.kept_in} names the cluster, so nothing shows that the API servers are of it",
                hint="name the file that k3s has open, and the API server's --etcd-prefix"
                if cluster.is_kine
                else "--main-endpoints LIST, or --manifest FILE, where namespaces lie in another etcd",
            )
        return identity

    @fact("API servers of the cluster")
    def all_servers(self) -> AllServers:
        """Every API server of the cluster that etcd holds."""
        api = self.present.request.api
        if api is None:
            raise refuse(
                Rule.NO_API_SERVER, "no API server was named, and an API server writes the object anew",
                hint="--kubeconfig FILE, and --server URL for each further one",
            )  # fmt: skip
        found = open_all_servers(api, self.named_cluster)
        try:
            found.require_any()
        except BaseException:
            found.close()
            raise
        return found

    def _no(self, why: str, hint: str = "") -> RefusedByRule:
        return refuse(Rule.NOT_FROM_MEMORY, f"{self.present.shown}: {why}", hint=hint)

    @property
    def mod_revision(self) -> int:
        """At which it was examined."""
        return self.present.stored.mod_revision

    @fact()
    def found(self) -> Examination:
        """The value, whose encryption key is lost."""
        found, verdict = self.present.first, self.present.first.verdict
        if found.opened or verdict.cause not in LOST_KEY or not key_may_be_lost(found):
            raise self._no(
                f"its encryption key is not lost, but {verdict.cause}: {verdict.message}",
                "an API server's memory is not what it needs first: see etcdfix explain KEY",
            )
        if found.stored.lease:
            raise self._no("it has a lease, and goes by itself")
        return found

    @fact()
    def copies(self) -> tuple[SavedObject, ...]:
        """What was saved of the present generation of the key, the newest first: another object may have been there."""
        stored = self.found.stored
        saved = self.saved_objects.get(stored.key, ())
        return tuple(each for each in saved if int(each.resource_version) >= stored.create_revision)

    @fact()
    def thing(self) -> APIObject:
        """The object, in the version that is asked for."""
        directory = self.found.directory
        version = next((each.version for each in self.copies), directory.version)
        thing = APIObject(directory.group, version, directory.resource, self.found.namespace, self.found.name)
        if not api_path(thing.group, version or "v1", thing.resource, thing.namespace, thing.name):
            raise self._no("no request of the API can name it")
        return thing

    @fact("memory of the API servers")
    def memory(self) -> tuple[Holder, ...]:
        """What each server has of it in memory.

        The first server is the kubeconfig's, and may be a balancer: who changes something there may reach any server.
        """
        first, *others = remembered_by_each(self.all_servers, self.thing)
        if all(each.memory.word is Memory.NOT_SERVED for each in (first, *others)):
            raise self._no(f"no API server serves {self.found.directory.group_resource}")
        return (*others, first)

    @fact("API servers")
    def answers(self) -> tuple[ServerAnswer, ...]:
        """Whether each server reads it from etcd."""
        return read_by_each(self.all_servers, self.thing, foretold_of(self.found))

    @fact("permission")
    def authorization(self) -> Authorization:
        """That the user may; what servers said goes on record."""
        all_servers = self.all_servers
        said = authorize(all_servers.servers[0], self.thing, cluster=all_servers.cluster, verbs=VERBS)
        self.present.take_servers(
            ServerAnswers(answers=self.answers, warnings=tuple(all_servers.warnings), authorization=said)
        )
        return said

    @fact()
    def chosen(self) -> Chosen:
        """The servers that have this very write in memory; those that may, where none gives anything any more."""
        given = [(each, each.memory.identity) for each in self.memory if each.memory.identity is not None]
        if not given:
            return self._chosen_of_ended()
        if any(held.deleting for _holder, held in given):
            raise self._no("it is being deleted (deletionTimestamp): what is written anew would not stay")
        exact = [(holder, held) for holder, held in given if held.resource_version == str(self.mod_revision)]
        if not exact:
            have = ", ".join(f"{holder.server.address}: {held.resource_version}" for holder, held in given)
            raise self._no(
                f"no API server has this write of it in memory: the key stands at mod_revision {self.mod_revision}, "
                f"they have another resourceVersion ({have})",
                f"save what they have ({self.save_first()}), and look which copies are left: {self.what_is_left()}",
            )
        uids = {held.uid for _holder, held in exact}
        if len(uids) > 1:
            raise refuse(
                Rule.OTHER_OBJECT,
                f"API servers have different objects in memory for {self.present.shown}, at the same resourceVersion",
                hint="look at each server by itself: its etcd, and its storage prefix",
            )
        return Chosen(tuple(holder for holder, _held in exact), uids.pop())

    def _chosen_of_ended(self) -> Chosen:
        tried = tuple(each for each in self.memory if each.may_hold)
        if not tried:
            why = "; ".join(
                f"{each.server.address}: {each.memory.detail or each.memory.word}" for each in self.memory
            )
            overloaded = any(each.memory.word is Memory.OVERLOADED for each in self.memory)
            raise self._no(f"no API server gives it from memory ({why})", AGAIN if overloaded else "")
        said = [*self._said_uids()]
        if not said:
            raise self._no(
                "no API server gives it from memory any more, and its uid is unknown: it is in no saved copy, "
                "earlier revision in etcd, or backup that the audit log lists",
                "a server that started before the key was lost may still hold it: name each with --server URL; "
                "name the backups with --backup-dir and --audit-log",
            )
        uid, uid_from = said[0]
        for other, origin in said:
            if other != uid:
                raise refuse(
                    Rule.OTHER_OBJECT,
                    f"the uid of {self.present.shown} is not certain: {uid} by {uid_from}, {other} by {origin}",
                    hint="one of the two is a copy of another object of this name: look at both",
                )
        return Chosen(tried, uid, uid_from)

    def _said_uids(self) -> Iterator[tuple[str, str]]:
        """Yield what else says its uid, and where that stands; refuse an object that was being deleted already."""
        deleted = "it was being deleted (deletionTimestamp)"
        if self.copies and self.copies[0].deleting:
            raise self._no(f"{deleted} when it was saved")
        for each in self.copies:
            yield each.uid, f"saved copy {self.rescued / each.file}"
        for uid, origin, kept in said_uids(self.present):
            document = Viewer(self.present.cluster.examiner).show(kept).document
            if next(values_at(document, "metadata.deletionTimestamp"), None) is not None:
                raise self._no(f"{deleted} already, by {origin}")
            yield uid, origin

    @property
    def exact(self) -> SavedObject | None:
        """The copy on disk that the result is compared with; None where there is none of this very write."""
        return next((one for one in self.copies if int(one.resource_version) == self.mod_revision), None)

    @property
    def saved(self) -> SavedObject | None:
        """The copy that shows that it was saved first: of this very write, of any where no server gives it any more."""
        return next(iter(self.copies), None) if self.chosen.ended else self.exact

    @fact("everything of the kind")
    def kind(self) -> Kind:
        """What is stored of its kind."""
        cluster, directory = self.present.cluster, self.found.directory
        examiner = cluster.examiner.independent_copy()
        unread, newest = 0, None
        unsaved: list[tuple[bytes, Holder, str]] = []
        for stored in cluster.source.current(examiner.layout.directory_prefix(directory)):
            found = examiner.examine(stored)
            if found.verdict.outcome is Outcome.NOT_AN_OBJECT:
                continue
            if not found.opened:
                unread += 1
                unsaved += self._unsaved(found)
            elif (
                found.verdict.outcome is Outcome.READABLE
                and not found.stale
                and (newest is None or newest.stored.mod_revision < stored.mod_revision)
            ):
                newest = found
        cluster.require_everything()
        loaded: list[tuple[Server, str]] = []
        read_by: tuple[ServerAnswer, ...] = ()
        if newest is None:
            loaded = loaded_by_each(self.all_servers)
        else:
            read_by = read_by_each(self.all_servers, thing_of(newest))
        return Kind(unread, newest, read_by, tuple(loaded), tuple(unsaved))

    def _unsaved(self, found: Examination) -> Iterator[tuple[bytes, Holder, str]]:
        """Yield who gives an unreadable object that nothing else holds, or may give it."""
        stored, known = found.stored, self.present.identity.uid
        saved = {
            each.resource_version
            for each in self.saved_objects.get(stored.key, ())
            if (not known or each.cluster_uid in {"", known}) and is_whole(self.rescued, each)
        }
        if str(stored.mod_revision) in saved:
            return
        for holder in remembered_by_each(self.all_servers, thing_of(found)):
            identity = holder.memory.identity
            if identity is None:
                yield (
                    stored.key, holder,
                    f"does not say whether it has it in memory: {holder.memory.detail or holder.memory.word}",
                )  # fmt: skip
            elif identity.resource_version not in saved:
                yield stored.key, holder, "still has it in memory"


def thing_of(found: Examination) -> APIObject:
    """Return an object as a request names it."""
    directory = found.directory
    return APIObject(directory.group, directory.version, directory.resource, found.namespace, found.name)
