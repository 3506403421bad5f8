"""What must hold before an API server is asked to write an object anew from its memory; nothing here changes anything.

A value is left alone where a heal is not what it needs; what would make any heal unsafe refuses, whatever the value.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from etcdfix.apiserver.all_servers import AllServers
from etcdfix.apiserver.authorization import can_i
from etcdfix.apiserver.holders import Holder, authorize_by_first, read_by_each, remembered_by_each
from etcdfix.apiserver.memory import Memory
from etcdfix.apiserver.objects import Answer, APIObject
from etcdfix.apiserver.patience import AGAIN
from etcdfix.apiserver.servers import ServerAnswer, ServerAnswers
from etcdfix.encryption.config import ProviderType
from etcdfix.errors import ConfigurationError
from etcdfix.graph.recreation import values_at
from etcdfix.model import ClusterIdentity, Outcome, StoredValue
from etcdfix.remediation.change import Rewritable
from etcdfix.remediation.durable import Step
from etcdfix.remediation.landmarks import Landmarks
from etcdfix.remediation.places import RecordPaths
from etcdfix.remediation.preflight.api_servers import foretold_of
from etcdfix.remediation.preflight.cluster import Acceptances, Cluster
from etcdfix.remediation.preflight.same_object import said_uids
from etcdfix.remediation.preflight.target import Target, check_writable
from etcdfix.report.objects import Viewer
from etcdfix.rescued import SavedObject, read_saved
from etcdfix.rules import Rule, acceptance, refuse
from etcdfix.storagekey import ResourcePrefix, api_path, display
from etcdfix.text.commands import RunOptions, copies, rescue
from etcdfix.text.safetext import key_word
from etcdfix.verdicts.deletability import FAILED, LOST_KEY, key_may_be_lost
from etcdfix.verdicts.examination import Examination

VERBS: Final = ("patch", "get")
"""What the kubeconfig's user needs: ``get`` too, or nothing shows that other servers read what was written."""


SILENT: Final = frozenset({Answer.NO_ANSWER, Answer.DENIED})
"""Answers that say nothing of a server's configuration; they alone can be accepted."""


class LeftAlone(msgspec.Struct, frozen=True):
    """A key that is not healed, and why.

    Attributes:
        rule: In one word.
        why: One sentence, without its full stop.
        hint: What to do instead, "" for nothing.
        well: Nothing needs to be done: today's configuration opens it.
    """

    key: bytes
    rule: Rule
    why: str
    hint: str = ""
    well: bool = False


class Healable(Rewritable, frozen=True, kw_only=True):
    """A value that an API server can write anew; what makes room is the value itself. One with a lease is left alone.

    Attributes:
        landmarks: Of the cluster, read before anything else was.
        thing: The object, in the version that is asked for.
        holders: The servers to ask, one after the other until etcd moves, and the path at each.
        uid_from: What says it, where no server answers from memory any more; "" where one does.
        saved: The copy on disk that the result is compared with; None where there is none of this very write.
    """

    landmarks: Landmarks
    lease: None = None
    thing: APIObject
    holders: tuple[Holder, ...]
    uid: str
    uid_from: str
    saved: SavedObject | None

    @property
    def ended(self) -> bool:
        """No server answers from memory any more: which of them still holds it is not known."""
        return bool(self.uid_from)

    @property
    def key(self) -> bytes:
        """Complete etcd key."""
        return self.found.stored.key

    @property
    def mod_revision(self) -> int:
        """At which it was examined."""
        return self.found.stored.mod_revision


class Ground(msgspec.Struct, frozen=True, kw_only=True):
    """What all objects of a run share.

    Attributes:
        cluster: Where, read with today's configuration.
        copies: What was rescued, by etcd key, the newest resourceVersion first.
        step: Told the name of each step before it is taken.
    """

    cluster: Cluster
    identity: ClusterIdentity
    all_servers: AllServers
    saved: Path
    copies: Mapping[bytes, tuple[SavedObject, ...]]
    run: RunOptions
    accepted: Acceptances
    places: RecordPaths
    step: Step

    @property
    def unchecked_servers(self) -> tuple[str, ...]:
        """Addresses of servers that need not have an answer."""
        return self.accepted.named(Rule.UNCHECKED_SERVER)

    @property
    def rescue(self) -> str:
        """The command that saves what a scan found unreadable."""
        return rescue(("--from-report", "REPORT"), str(self.saved)).line(self.run)

    def what_is_left(self, key: bytes) -> str:
        """Return the command that lists every copy of an object, each with the command that puts it back."""
        return copies(key_word(key), options=["--rescued", str(self.saved)]).line(self.run)

    def saved_of(self, stored: StoredValue) -> tuple[SavedObject, ...]:
        """Return what was saved of the present generation of a key, the newest first.

        Before it another object may have stood there.
        """
        copies = self.copies.get(stored.key, ())
        return tuple(each for each in copies if int(each.resource_version) >= stored.create_revision)


def lost_key_or_why(found: Examination) -> LeftAlone | None:
    """Return None for a value whose encryption key is lost, by its verdict; else why it is left alone."""
    verdict, key = found.verdict, found.stored.key
    if found.opened:
        readable = verdict.outcome is Outcome.READABLE
        return LeftAlone(
            key,
            Rule.READABLE,
            "today's configuration opens it: there is nothing to heal"
            if readable
            else f"today's configuration opens it, and it is {verdict.outcome}: {verdict.message}",
            "" if readable else "its encryption key is not what is wrong: see etcdfix explain KEY",
            well=readable,
        )
    if verdict.outcome is Outcome.NOT_AN_OBJECT:
        return LeftAlone(key, Rule.NOT_AN_OBJECT, "it is no object of the API")
    if verdict.outcome not in FAILED:
        return LeftAlone(
            key,
            Rule.UNDETERMINED,
            f"it is not proven that today's configuration cannot read it: {verdict.message}",
            "see etcdfix explain KEY",
        )
    if verdict.cause not in LOST_KEY or not key_may_be_lost(found):
        return LeftAlone(
            key,
            Rule.NOT_HEALABLE,
            f"its encryption key is not lost, but {verdict.cause}: {verdict.message}",
            "an API server's memory is not what it needs first: see etcdfix explain KEY",
        )
    if found.stored.lease:
        return LeftAlone(key, Rule.NOT_HEALABLE, "it has a lease, and goes by itself")
    return None


def check_write_key(cluster: Cluster, directory: ResourcePrefix) -> None:
    """Refuse where an API server would write the object without encryption, or so that nothing here can prove it.

    Raises:
        RefusedByRule: Today's configuration writes the resource in plain, or under KMS and no plugin is asked.
    """
    assert cluster.examiner.transformers is not None  # there is a configuration
    transformers = cluster.examiner.transformers.for_resource(directory.group_resource)
    provider = transformers.keys[0].provider
    if provider is ProviderType.KMS and cluster.examiner.plugins is None:
        raise refuse(
            Rule.WRITE_KEY,
            f"today's configuration writes {directory.group_resource} under KMS, and no plugin is asked: nothing would "
            "show what an API server has written",
            hint="leave --no-kms out; --kms-endpoint NAME=unix:///PATH says where the plugin listens",
        )
    if provider is ProviderType.IDENTITY:
        raise refuse(
            Rule.WRITE_KEY,
            f"today's configuration writes {directory.group_resource} without encryption, and the value is stored "
            "encrypted: an API server would leave its contents unencrypted",
            hint="name the configuration that the API servers use today, or give them one with a write key first",
        )


def look_at(ground: Ground, target: Target, found: Examination) -> Healable | LeftAlone:
    """Check one value whose encryption key is lost against etcd, its API servers, and what was rescued.

    Raises:
        RefusedByRule: Something speaks against healing anything.
        AuthorizationRefused: The user may not.
        SourceError: etcd could not be asked.
    """
    cluster, step, directory = ground.cluster, ground.step, found.directory
    check_write_key(cluster, directory)
    identity, warnings = check_writable(cluster, target, ground.accepted, ground.places.directories, step)
    if identity.is_same(ground.identity) is False:
        raise refuse(
            Rule.OTHER_CLUSTER,
            f"this etcd holds the cluster with {identity.describe()} now, and held the one with "
            f"{ground.identity.describe()} a moment ago",
            hint="name the members of one cluster with --endpoints",
        )
    saved = ground.saved_of(found.stored)
    version = next((each.version for each in saved), directory.version)
    thing = APIObject(directory.group, version, directory.resource, found.namespace, found.name)
    if not api_path(thing.group, version or "v1", thing.resource, thing.namespace, thing.name):
        return LeftAlone(found.stored.key, Rule.NOT_HEALABLE, "no request of the API can name it")
    step("check: memory of the API servers")
    first, *others = remembered_by_each(ground.all_servers, thing)
    # The first is the kubeconfig's, and may be a balancer: who changes something there may reach any server.
    memory = [*others, first]
    if all(each.memory.word is Memory.NOT_SERVED for each in memory):
        return LeftAlone(
            found.stored.key, Rule.NOT_HEALABLE, f"no API server serves {directory.group_resource}"
        )
    step("check: API servers")
    answers = read_by_each(ground.all_servers, thing, foretold_of(found))
    check_answers(thing, answers, ground.unchecked_servers)
    step("check: permission")
    servers = ServerAnswers(
        answers=answers,
        warnings=tuple(ground.all_servers.warnings),
        authorization=authorize_by_first(ground.all_servers, thing, VERBS),
    )
    chosen = _choose(ground, target, found, identity, memory)
    if isinstance(chosen, LeftAlone):
        return chosen
    step("check: saved copy")
    check_saved(ground, found, chosen)
    exact = (each for each in saved if int(each.resource_version) == found.stored.mod_revision)
    return Healable(
        landmarks=target.landmarks,
        reading=target.reading,
        found=found,
        identity=identity,
        servers=servers,
        thing=thing,
        holders=chosen.holders,
        uid=chosen.uid,
        uid_from=chosen.uid_from,
        saved=next(exact, None),
        warnings=tuple(warnings),
    )


def check_answers(thing: APIObject, answers: tuple[ServerAnswer, ...], unchecked: tuple[str, ...]) -> None:
    """Refuse unless every API server that was found looked for the object in etcd and failed to read it.

    Raises:
        RefusedByRule: One reads it, or one could not be asked and that is not accepted, or none could.
    """
    for said in answers:
        if said.answer is Answer.READS_IT:
            raise refuse(
                Rule.CONFIGURATION_WRONG,
                f"the API server at {said.server} reads {thing}: the configuration given here is wrong or old, that "
                "server has not loaded today's, or this is not its etcd",
                hint="compare with that server's --encryption-provider-config, --etcd-servers and --etcd-prefix",
            )
    for said in answers:
        if said.answer is Answer.READ_ERROR or (said.answer in SILENT and said.server in unchecked):
            continue
        if said.answer not in SILENT:
            raise refuse(
                Rule.OTHER_CLUSTER,
                f"the API server at {said.server} finds no {thing} that can fail to be read ({said.answer}), and etcd "
                "holds it: that server reads another etcd, or another prefix",
                hint="compare with that server's --etcd-servers and --etcd-prefix",
            )
        may = can_i("get", thing.group, thing.resource, thing.namespace, thing.name)
        accept = acceptance(Rule.UNCHECKED_SERVER, said.server)
        again = AGAIN if said.passing else "let it answer"
        raise refuse(
            Rule.UNCHECKED_SERVER,
            f"the API server at {said.server} does not say whether it reads {thing} ({said.detail or said.answer}), "
            "and nothing shows whether it has today's write key",
            hint=f"have the user allowed: {may}"
            if said.answer is Answer.DENIED
            else f"{again}; or, if it will start with today's configuration: {accept}",
        )
    if not any(said.answer is Answer.READ_ERROR for said in answers):
        raise refuse(
            Rule.NO_API_SERVER,
            f"no API server could be asked for {thing}",
            hint="name one that runs: --kubeconfig FILE, --server URL",
        )


class _Chosen(NamedTuple):
    """Which servers to ask, with which uid, and what says that where no server does."""

    holders: tuple[Holder, ...]
    uid: str
    uid_from: str = ""


def _choose(
    ground: Ground, target: Target, found: Examination, identity: ClusterIdentity, memory: list[Holder]
) -> _Chosen | LeftAlone:
    key, mod_revision = found.stored.key, found.stored.mod_revision
    given = [(each, each.memory.identity) for each in memory if each.memory.identity is not None]
    if not given:
        return _choose_ended(ground, target, identity, memory)
    if any(held.deleting for _holder, held in given):
        return LeftAlone(
            key,
            Rule.NOT_HEALABLE,
            "it is being deleted (deletionTimestamp): a heal would bring nothing back that stays",
        )
    exact = [(holder, held) for holder, held in given if held.resource_version == str(mod_revision)]
    if not exact:
        have = ", ".join(f"{holder.server.address}: {held.resource_version}" for holder, held in given)
        return LeftAlone(
            key,
            Rule.NOT_HEALABLE,
            f"no API server has this write of it in memory: the key stands at mod_revision {mod_revision}, they have "
            f"another resourceVersion ({have})",
            f"what they have is another write of it: save it ({ground.rescue}), and look which copies are left: "
            f"{ground.what_is_left(key)}",
        )
    uids = {held.uid for _holder, held in exact}
    if len(uids) > 1:
        raise refuse(
            Rule.OTHER_OBJECT,
            f"API servers have different objects in memory for {display(key)}, at the same resourceVersion",
            hint="look at each server by itself: its etcd, and its storage prefix",
        )
    return _Chosen(tuple(holder for holder, _held in exact), uids.pop())


def _choose_ended(
    ground: Ground, target: Target, identity: ClusterIdentity, memory: list[Holder]
) -> _Chosen | LeftAlone:
    stored = target.stored
    key = stored.key
    tried = tuple(each for each in memory if each.may_hold)
    if not tried:
        why = "; ".join(f"{each.server.address}: {each.memory.detail or each.memory.word}" for each in memory)
        overloaded = any(each.memory.word is Memory.OVERLOADED for each in memory)
        return LeftAlone(
            key,
            Rule.NOT_HEALABLE,
            f"no API server gives it from memory ({why})",
            AGAIN if overloaded else "",
        )
    copies = ground.saved_of(stored)
    if copies and copies[0].deleting:
        return LeftAlone(key, Rule.NOT_HEALABLE, "it was being deleted (deletionTimestamp) when it was saved")
    said = [(each.uid, f"saved copy {ground.saved / each.file}") for each in copies]
    for uid, origin, kept in said_uids(ground.cluster, target.reading, key, identity, ground.places):
        if _is_being_deleted(ground, kept):
            return LeftAlone(
                key, Rule.NOT_HEALABLE, f"it was being deleted (deletionTimestamp) already, by {origin}"
            )
        said.append((uid, origin))
    if not said:
        return LeftAlone(
            key,
            Rule.NOT_HEALABLE,
            "no API server gives it from memory any more, and no saved copy says its uid, nor does an earlier revision "
            "in etcd or a backup that the audit log lists",
            "a server that has run since before the key was lost may still hold it: name each with --server URL; "
            "--backup-dir and --audit-log name where backups are",
        )
    uid, uid_from = said[0]
    for other, origin in said:
        if other != uid:
            raise refuse(
                Rule.OTHER_OBJECT,
                f"the uid of {display(key)} is not certain: {uid} by {uid_from}, {other} by {origin}",
                hint="one of the two is a copy of another object of this name: look at both",
            )
    return _Chosen(tried, uid, uid_from)


def _is_being_deleted(ground: Ground, kept: Examination) -> bool:
    document = Viewer(ground.cluster.examiner).show(kept).document
    return next(values_at(document, "metadata.deletionTimestamp"), None) is not None


def check_saved(ground: Ground, found: Examination, chosen: _Chosen) -> None:
    """Refuse unless the object was saved first, and the saved copy is whole and of this cluster.

    Once no server gives it any more nobody can save it: then a copy that is there must still be one of it.

    Raises:
        RefusedByRule: It was not, or it is another's.
    """
    key, ended = found.stored.key, bool(chosen.uid_from)
    saved = next(
        (
            each
            for each in ground.saved_of(found.stored)
            if ended or int(each.resource_version) == found.stored.mod_revision
        ),
        None,
    )
    if saved is None and ended:
        return
    if saved is None:
        raise refuse(
            Rule.NOT_RESCUED,
            f"{display(key)} was not saved yet at mod_revision {found.stored.mod_revision}, and API servers still hold "
            f"it: a heal that goes wrong could end that ({ground.saved})",
            hint=f"save it first, and everything of its kind: {ground.rescue}",
        )
    if saved.uid != chosen.uid:
        raise refuse(
            Rule.OTHER_OBJECT,
            f"the saved copy of {display(key)} has the uid {saved.uid}, the API server's the uid {chosen.uid}",
            hint="it is a copy of another object of this name: look at both",
        )
    known = ground.identity.uid
    if saved.cluster_uid and known and saved.cluster_uid != known:
        raise refuse(
            Rule.OTHER_CLUSTER,
            f"the saved copy of {display(key)} is of another cluster: kube-system {saved.cluster_uid}, not {known}",
            hint="--saved: the directory that was saved from this cluster",
        )
    try:
        read_saved(ground.saved, saved)
    except ConfigurationError as exc:
        again = f"save it again: {ground.rescue}"
        gone = "no API server gives it any more: name a directory with --saved in which its copy is whole, or has none"
        raise refuse(Rule.NOT_RESCUED, exc.message, hint=gone if ended else again) from exc
