"""What must hold before an API server is asked to write an object anew from its memory.

What one server writes under a key that another one lacks cannot be read by that one, and ends its cached reads of the
whole kind. So nothing may be left that only a server's memory holds; and what is stored under today's write key
already, where there is any, must be read by every server.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from etcdfix.apiserver.client import AGAIN
from etcdfix.apiserver.memory import Memory
from etcdfix.apiserver.objects import Answer
from etcdfix.apiserver.permissions import can_i
from etcdfix.apiserver.reading import revision_by_each
from etcdfix.copies.rescued import read_saved
from etcdfix.model.errors import ConfigurationError, RefusedByRule
from etcdfix.model.providers import ProviderType
from etcdfix.model.rules import Rule, acceptance, refuse, unless_accepted
from etcdfix.model.storagekey import display
from etcdfix.remediation.checks.sealing import require_write_key
from etcdfix.remediation.facts import must_be_had
from etcdfix.sources.kine import KineSource

if TYPE_CHECKING:
    from etcdfix.remediation.change import Change
    from etcdfix.remediation.memory.held import HeldObject
    from etcdfix.remediation.present import Present

Refusals = Iterator[RefusedByRule]

SILENT: Final = frozenset({Answer.NO_ANSWER, Answer.DENIED})
"""Answers that say nothing of a server's configuration; they alone can be accepted."""
_NOTHING: Final = frozenset({Memory.NOT_HELD, Memory.NOT_SERVED, Memory.READ_ERROR, Memory.CACHE_LOST})
_SAYS_NOTHING: Final = frozenset({Memory.OVERLOADED, Memory.UNKNOWN_USER, Memory.DENIED, Memory.NO_ANSWER})


def _held(change: Change) -> HeldObject:
    assert change.held is not None  # these checks are asked of no other change
    return change.held


def not_from_memory(_present: Present, change: Change) -> Refusals:
    """An API server has this write in memory, and the encryption key is lost."""
    yield from must_be_had(_held(change).chosen)


def unknown_cluster(_present: Present, change: Change) -> Refusals:
    """From memory: something names the cluster."""
    yield from must_be_had(_held(change).named_cluster)


def write_key(present: Present, change: Change) -> Refusals:
    """The configuration encrypts and opens the value, and every API server has loaded it."""
    require_write_key(present.cluster)
    held, resource = _held(change), present.first.directory.group_resource
    transformers = present.cluster.examiner.transformers
    assert transformers is not None  # it was given
    provider = transformers.for_resource(resource).keys[0].provider
    if provider is ProviderType.KMS and present.cluster.examiner.plugins is None:
        why = f"today's configuration writes {resource} under KMS, and no plugin is asked"
        hint = "leave --no-kms out; --kms-endpoint NAME=unix:///PATH says where the plugin listens"
        yield refuse(Rule.WRITE_KEY, why, hint=hint)
    elif provider is ProviderType.IDENTITY:
        text = (
            f"today's configuration writes {resource} without encryption: an API server would leave its contents "
            "unencrypted"
        )
        instead = "name the configuration that the API servers use today, or give them one with a write key"
        yield refuse(Rule.WRITE_KEY, text, hint=instead)
    else:
        newest = held.kind.newest
        for said in held.kind.newest_read_by:
            if newest is not None and said.answer is Answer.READ_ERROR:
                text = (
                    f"the API server at {said.server} does not read {display(newest.stored.key)}, which is stored "
                    "under today's write key: what is written anew it could not read either"
                )
                instead = (
                    "give every API server the same EncryptionConfiguration, and wait a minute until each has loaded "
                    "it; do not restart those that hold the objects in memory"
                )
                yield refuse(Rule.WRITE_KEY, text, hint=instead)


def other_cluster(present: Present, change: Change) -> Refusals:
    """From memory: the API servers read this etcd, or the named file of kine."""
    held = _held(change)
    if isinstance(present.cluster.source, KineSource):
        _require_current(present.cluster.source, held)
    for said in held.answers:
        if said.answer not in {Answer.READS_IT, Answer.READ_ERROR, *SILENT}:
            text = (
                f"the API server at {said.server} finds no {held.thing} ({said.answer}), and etcd holds it: that "
                "server reads another etcd, or another prefix"
            )
            hint = "compare with that server's --etcd-servers and --etcd-prefix"
            yield refuse(Rule.OTHER_CLUSTER, text, hint=hint)


def _require_current(source: KineSource, held: HeldObject) -> None:
    """Refuse unless the file of kine and each API server stand at one revision: a copy says nothing of today.

    The file is read before the servers are asked and after. What a server finds then lies between the two: below it
    would read another datastore, and above it the file would be a copy that nobody writes any more.
    Raises RefusedByRule or SourceError.
    """
    before = _revision(source)
    answers = revision_by_each(held.all_servers)
    after = _revision(source)
    shown = any(said.revision is not None for _server, said in answers)
    for server, said in answers:
        if said.revision is None:
            if shown and server.address in held.unchecked:
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


def configuration_wrong(_present: Present, change: Change) -> Refusals:
    """From memory: no API server reads the object."""
    held = _held(change)
    for said in held.answers:
        if said.answer is Answer.READS_IT:
            why = (
                f"the API server at {said.server} reads {held.thing}: the configuration given here is wrong or old, "
                "or this is not its etcd"
            )
            hint = "compare with that server's --encryption-provider-config, --etcd-servers and --etcd-prefix"
            yield refuse(Rule.CONFIGURATION_WRONG, why, hint=hint)


def unchecked_server(present: Present, change: Change) -> Iterator[RefusedByRule | str]:
    """Every API server says that it cannot read the object."""
    held, accepted = _held(change), change.accepted.named(Rule.UNCHECKED_SERVER)
    thing, all_servers = held.thing, held.all_servers
    known = {*(one.address for one in all_servers.servers), *(one.server for one in all_servers.absent)}
    yield from (
        f"{acceptance(Rule.UNCHECKED_SERVER, url)} fits no API server" for url in accepted if url not in known
    )
    for said in held.answers:
        if said.answer not in SILENT or said.server in accepted:
            continue
        may = can_i("get", thing.group, thing.resource, thing.namespace, thing.name)
        answer = AGAIN if said.passing else "let it answer"
        hint = f"have the user allowed: {may}" if said.answer is Answer.DENIED else answer
        why = (
            f"the API server at {said.server} does not say if it reads {thing} ({said.detail or said.answer})"
        )
        yield unless_accepted(Rule.UNCHECKED_SERVER, why, hint=hint, name=said.server)
    if held.kind.newest is not None:
        return
    # Nothing is stored that would show whether a server reads what another one writes; one that says nothing of its
    # file is not asked again: then the first object that is written is the test.
    ours = present.cluster.config_sha256
    for server, loaded in held.kind.loaded:
        if loaded and loaded != ours and server.address not in accepted:
            text = (
                f"the API server at {server.address} has loaded another configuration ({loaded}), not {ours}"
            )
            instead = "give all one file, wait a minute, and name it here; or, if both have one write key"
            yield unless_accepted(Rule.UNCHECKED_SERVER, text, hint=instead, name=server.address)


def no_api_server(_present: Present, change: Change) -> Refusals:
    """From memory: an API server answers, and you may get and patch the object."""
    held = _held(change)
    if not any(said.answer is Answer.READ_ERROR for said in held.answers):
        hint = "name one that runs: --kubeconfig FILE, --server URL"
        yield refuse(Rule.NO_API_SERVER, f"no API server could be asked for {held.thing}", hint=hint)
        return
    yield from must_be_had(held.authorization)


def other_object(present: Present, change: Change) -> Refusals:
    """From memory: the saved copy has the uid of the object and is from this cluster."""
    held = _held(change)
    saved, known = held.saved, present.identity.uid
    if saved is None:
        return
    if saved.uid != held.chosen.uid:
        why = f"the saved copy of {present.shown} has the uid {saved.uid}, not {held.chosen.uid}"
        yield refuse(Rule.OTHER_OBJECT, why, hint="it is a copy of another object of this name: look at both")
    if saved.cluster_uid and known and saved.cluster_uid != known:
        why = f"the saved copy of {present.shown} is of the cluster {saved.cluster_uid}, not {known}"
        hint = "--rescued: the directory that was saved from this cluster"
        yield refuse(Rule.OTHER_CLUSTER, why, hint=hint)


def not_rescued(present: Present, change: Change) -> Refusals:
    """The objects of the kind in API server memory are saved."""
    held = _held(change)
    ended, again = held.chosen.ended, held.save_first()
    if held.saved is None and not ended:
        why = (
            f"{present.shown} was not saved yet at this mod_revision ({held.rescued}), and API servers hold "
            "it"
        )
        yield refuse(Rule.NOT_RESCUED, why, hint=f"save it first, and everything of its kind: {again}")
    if held.saved is not None:
        try:
            read_saved(held.rescued, held.saved)
        except ConfigurationError as exc:
            gone = "no API server gives it any more: --rescued DIR in which its copy is whole, or with none of it"
            yield refuse(Rule.NOT_RESCUED, exc.message, hint=gone if ended else f"save it again: {again}")
    accepted = change.accepted.named(Rule.UNCHECKED_SERVER)
    for key, holder, words in held.kind.unsaved:
        word = holder.memory.word
        if holder.memory.identity is None and (
            word in _NOTHING or (word in _SAYS_NOTHING and holder.server.address in accepted)
        ):
            continue
        text = f"{display(key)} is not saved ({held.rescued}), and API server {holder.server.address} {words}"
        yield refuse(Rule.NOT_RESCUED, text, hint=f"save everything of the kind first: {again}")
        return
