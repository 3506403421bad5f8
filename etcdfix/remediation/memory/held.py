"""What must hold of one object before an API server is asked to write it anew; nothing here changes anything."""

from __future__ import annotations

from typing import Final, NamedTuple, NoReturn

import msgspec

from etcdfix.apiserver.authorization import can_i
from etcdfix.apiserver.holders import Holder, authorize_by_first, read_by_each, remembered_by_each
from etcdfix.apiserver.memory import Memory
from etcdfix.apiserver.objects import Answer, APIObject
from etcdfix.apiserver.patience import AGAIN
from etcdfix.apiserver.servers import ServerAnswer, ServerAnswers
from etcdfix.encryption.config import ProviderType
from etcdfix.errors import ConfigurationError
from etcdfix.graph.recreation import values_at
from etcdfix.model import Outcome
from etcdfix.remediation.audit.record import Verb
from etcdfix.remediation.change import PATCH, Change, ChangeRequest, ask
from etcdfix.remediation.checks.servers import foretold_of
from etcdfix.remediation.memory.ground import Ground
from etcdfix.remediation.preflight.cluster import Cluster
from etcdfix.remediation.present import Present
from etcdfix.remediation.uids import said_uids
from etcdfix.report.objects import Viewer
from etcdfix.rescued import SavedObject, read_saved
from etcdfix.rules import Rule, acceptance, refuse
from etcdfix.storagekey import ResourcePrefix, api_path, display
from etcdfix.verdicts.deletability import FAILED, LOST_KEY, key_may_be_lost
from etcdfix.verdicts.examination import Examination

VERBS: Final = ("patch", "get")
"""What the kubeconfig's user needs: ``get`` too, or nothing shows that other servers read what was written."""

SILENT: Final = frozenset({Answer.NO_ANSWER, Answer.DENIED})
"""Answers that say nothing of a server's configuration; they alone can be accepted."""


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """A value that an API server can write anew; what makes room is the value itself. One with a lease is refused.

    Attributes:
        thing: The object, in the version that is asked for.
        holders: The servers to ask, one after the other until etcd moves, and the path at each.
        uid_from: What says it, where no server answers from memory any more; "" where one does.
        saved: The copy on disk that the result is compared with; None where there is none of this very write.
    """

    present: Present
    found: Examination
    thing: APIObject
    holders: tuple[Holder, ...]
    uid: str
    uid_from: str
    saved: SavedObject | None
    warnings: tuple[str, ...]

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


def check_held(ground: Ground, request: ChangeRequest, key: bytes) -> Held:
    """Check one value against etcd, its API servers, and what was saved of them.

    Raises:
        RefusedByRule: An API server must not, or cannot, write it anew.
        AuthorizationRefused: The user may not.
        SourceError: etcd could not be asked.
    """
    cluster, step = ground.cluster, ground.step
    present = Present(cluster, key, request, alone=True, step=step)
    found = present.first
    _check_lost(found)
    _check_write_key(cluster, found.directory)
    warnings = ask(PATCH, present, Change(Verb.FIX, present, request))
    if present.identity.is_same(ground.identity) is False:
        raise refuse(
            Rule.OTHER_CLUSTER,
            f"this etcd holds the cluster with {present.identity.describe()} now, and held the one with "
            f"{ground.identity.describe()} a moment ago",
            hint="name the members of one cluster with --endpoints",
        )
    saved, directory = ground.saved_of(found.stored), found.directory
    version = next((each.version for each in saved), directory.version)
    thing = APIObject(directory.group, version, directory.resource, found.namespace, found.name)
    if not api_path(thing.group, version or "v1", thing.resource, thing.namespace, thing.name):
        _no(key, "no request of the API can name it")
    step("check: memory of the API servers")
    first, *others = remembered_by_each(ground.all_servers, thing)
    # The first is the kubeconfig's, and may be a balancer: who changes something there may reach any server.
    memory = [*others, first]
    if all(each.memory.word is Memory.NOT_SERVED for each in memory):
        _no(key, f"no API server serves {directory.group_resource}")
    step("check: API servers")
    answers = read_by_each(ground.all_servers, thing, foretold_of(found))
    check_answers(thing, answers, ground.unchecked)
    step("check: permission")
    present.take_servers(
        ServerAnswers(
            answers=answers,
            warnings=tuple(ground.all_servers.warnings),
            authorization=authorize_by_first(ground.all_servers, thing, VERBS),
        )
    )
    chosen = _choose(ground, found, memory) or _choose_ended(ground, present, memory)
    step("check: saved copy")
    _check_saved(ground, found, chosen)
    return Held(
        present=present,
        found=found,
        thing=thing,
        holders=chosen.holders,
        uid=chosen.uid,
        uid_from=chosen.uid_from,
        saved=next((one for one in saved if int(one.resource_version) == found.stored.mod_revision), None),
        warnings=(*ground.warnings, *warnings),
    )


def _no(key: bytes, why: str, hint: str = "", rule: Rule = Rule.NOT_FROM_MEMORY) -> NoReturn:
    raise refuse(rule, f"{display(key)}: {why}", hint=hint)


_EXPLAIN: Final = "see etcdfix explain KEY"


def _check_lost(found: Examination) -> None:
    """Refuse a value whose encryption key is not lost, by its verdict."""
    verdict, key = found.verdict, found.stored.key
    if found.opened and verdict.outcome is Outcome.READABLE:
        _no(key, "today's configuration opens it: there is nothing to fix", rule=Rule.READABLE)
    if found.opened:
        _no(
            key, f"today's configuration opens it, and it is {verdict.outcome}: {verdict.message}",
            f"its encryption key is not what is wrong: {_EXPLAIN}", Rule.READABLE,
        )  # fmt: skip
    if verdict.outcome is Outcome.NOT_AN_OBJECT:
        _no(key, "it is no object of the API", rule=Rule.NOT_AN_OBJECT)
    if verdict.outcome not in FAILED:
        _no(
            key, f"it is not proven that today's configuration cannot read it: {verdict.message}", _EXPLAIN,
            Rule.UNDETERMINED,
        )  # fmt: skip
    if verdict.cause not in LOST_KEY or not key_may_be_lost(found):
        _no(
            key, f"its encryption key is not lost, but {verdict.cause}: {verdict.message}",
            f"an API server's memory is not what it needs first: {_EXPLAIN}",
        )  # fmt: skip
    if found.stored.lease:
        _no(key, "it has a lease, and goes by itself")


def _check_write_key(cluster: Cluster, directory: ResourcePrefix) -> None:
    """Refuse where an API server would write the object without encryption, or so that nothing here can prove it."""
    assert cluster.examiner.transformers is not None  # there is a configuration
    provider = cluster.examiner.transformers.for_resource(directory.group_resource).keys[0].provider
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


def _choose(ground: Ground, found: Examination, memory: list[Holder]) -> _Chosen | None:
    """Return the servers that have this very write in memory; None where none gives anything from memory any more."""
    key, mod_revision = found.stored.key, found.stored.mod_revision
    given = [(each, each.memory.identity) for each in memory if each.memory.identity is not None]
    if not given:
        return None
    if any(held.deleting for _holder, held in given):
        _no(key, "it is being deleted (deletionTimestamp): what is written anew would not stay")
    exact = [(holder, held) for holder, held in given if held.resource_version == str(mod_revision)]
    if not exact:
        have = ", ".join(f"{holder.server.address}: {held.resource_version}" for holder, held in given)
        _no(
            key,
            f"no API server has this write of it in memory: the key stands at mod_revision {mod_revision}, they have "
            f"another resourceVersion ({have})",
            f"what they have is another write of it: save it ({ground.save_first(found.directory.group_resource)}), "
            f"and look which copies are left: {ground.what_is_left(key)}",
        )
    uids = {held.uid for _holder, held in exact}
    if len(uids) > 1:
        raise refuse(
            Rule.OTHER_OBJECT,
            f"API servers have different objects in memory for {display(key)}, at the same resourceVersion",
            hint="look at each server by itself: its etcd, and its storage prefix",
        )
    return _Chosen(tuple(holder for holder, _held in exact), uids.pop())


def _choose_ended(ground: Ground, present: Present, memory: list[Holder]) -> _Chosen:
    """Return the servers that may hold an object which none of them gives, and what else says its uid."""
    key = present.key
    tried = tuple(each for each in memory if each.may_hold)
    if not tried:
        why = "; ".join(f"{each.server.address}: {each.memory.detail or each.memory.word}" for each in memory)
        overloaded = any(each.memory.word is Memory.OVERLOADED for each in memory)
        _no(key, f"no API server gives it from memory ({why})", AGAIN if overloaded else "")
    copies = ground.saved_of(present.stored)
    if copies and copies[0].deleting:
        _no(key, "it was being deleted (deletionTimestamp) when it was saved")
    said = [(each.uid, f"saved copy {ground.rescued / each.file}") for each in copies]
    for uid, origin, kept in said_uids(present):
        document = Viewer(ground.cluster.examiner).show(kept).document
        if next(values_at(document, "metadata.deletionTimestamp"), None) is not None:
            _no(key, f"it was being deleted (deletionTimestamp) already, by {origin}")
        said.append((uid, origin))
    if not said:
        _no(
            key,
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


def _check_saved(ground: Ground, found: Examination, chosen: _Chosen) -> None:
    """Refuse unless the object was saved first, and the saved copy is whole and of this cluster.

    Once no server gives it any more nobody can save it: then a copy that is there must still be one of it.
    """
    key, ended, known = found.stored.key, bool(chosen.uid_from), ground.identity.uid
    again = ground.save_first(found.directory.group_resource)
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
            f"it: a change that goes wrong could end that ({ground.rescued})",
            hint=f"save it first, and everything of its kind: {again}",
        )
    if saved.uid != chosen.uid:
        raise refuse(
            Rule.OTHER_OBJECT,
            f"the saved copy of {display(key)} has the uid {saved.uid}, the API server's the uid {chosen.uid}",
            hint="it is a copy of another object of this name: look at both",
        )
    if saved.cluster_uid and known and saved.cluster_uid != known:
        raise refuse(
            Rule.OTHER_CLUSTER,
            f"the saved copy of {display(key)} is of another cluster: kube-system {saved.cluster_uid}, not {known}",
            hint="--rescued: the directory that was saved from this cluster",
        )
    try:
        read_saved(ground.rescued, saved)
    except ConfigurationError as exc:
        gone = (
            "no API server gives it any more: name a directory with --rescued in which its copy is whole, or that has "
            "none"
        )
        raise refuse(
            Rule.NOT_RESCUED, exc.message, hint=gone if ended else f"save it again: {again}"
        ) from exc
