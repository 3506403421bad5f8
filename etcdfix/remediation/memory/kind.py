"""What must hold of everything of a kind before an API server writes the first object of it anew.

What one server writes under a key that another one lacks cannot be read by that one, and ends its cached reads of the
whole kind. So nothing may be left that only a server's memory holds; and what is stored under today's write key
already, where there is any, must be read by every server.
"""

from __future__ import annotations

from typing import Final

from etcdfix.apiserver.holders import Holder, loaded_by_each, read_by_each, remembered_by_each
from etcdfix.apiserver.memory import Memory
from etcdfix.apiserver.objects import Answer, APIObject
from etcdfix.model import Outcome
from etcdfix.remediation.memory.ground import Ground
from etcdfix.rescued import is_whole
from etcdfix.rules import Rule, acceptance, refuse
from etcdfix.storagekey import ResourcePrefix, display
from etcdfix.verdicts.examination import Examination

_NOTHING: Final = frozenset({Memory.NOT_HELD, Memory.NOT_SERVED, Memory.READ_ERROR, Memory.CACHE_LOST})
_SILENT: Final = frozenset({Memory.OVERLOADED, Memory.UNKNOWN_USER, Memory.DENIED, Memory.NO_ANSWER})


def check_kind(ground: Ground, directory: ResourcePrefix) -> int:
    """Return how many values of a resource do not open; a second time it is not looked at again.

    Raises:
        RefusedByRule: One was not saved, or a server does not read what is stored under today's write key.
        SourceError: etcd could not be asked.
    """
    resource = directory.group_resource
    if resource in ground.kinds:
        return ground.kinds[resource]
    ground.step("check: everything of the kind")
    examiner = ground.cluster.examiner.apart()
    unread = 0
    newest: Examination | None = None
    for stored in ground.cluster.source.current(examiner.layout.directory_prefix(directory)):
        found = examiner.examine(stored)
        if found.verdict.outcome is Outcome.NOT_AN_OBJECT:
            continue
        if not found.opened:
            unread += 1
            _check_rescued(ground, found)
        elif (
            found.verdict.outcome is Outcome.READABLE
            and not found.stale
            and (newest is None or newest.stored.mod_revision < stored.mod_revision)
        ):
            newest = found
    ground.cluster.require_everything()
    if newest is not None:
        _check_read_by_all(ground, newest)
    else:
        _check_loaded(ground, directory)
    ground.kinds[resource] = unread
    return unread


def _check_rescued(ground: Ground, found: Examination) -> None:
    """Refuse while an API server still gives an unreadable object that nothing else holds, or may give it."""
    stored, known = found.stored, ground.identity.uid
    saved = {
        each.resource_version
        for each in ground.copies.get(stored.key, ())
        if (not known or each.cluster_uid in {"", known}) and is_whole(ground.rescued, each)
    }
    if str(stored.mod_revision) in saved:
        return
    for holder in remembered_by_each(ground.all_servers, thing_of(found)):
        identity = holder.memory.identity
        if (
            identity.resource_version in saved
            if identity is not None
            else _has_nothing(holder, ground.unchecked)
        ):
            continue
        has = (
            "still has it in memory"
            if identity is not None
            else f"does not say whether it has it in memory: {holder.memory.detail}"
        )
        raise refuse(
            Rule.NOT_RESCUED,
            f"{display(stored.key)} cannot be read from etcd, it was not saved ({ground.rescued}), and the API server "
            f"at {holder.server.address} {has}",
            hint="save everything of the kind first, for a change that goes wrong can end what the servers remember of "
            f"it: {ground.save_first(found.directory.group_resource)}",
        )


def _has_nothing(holder: Holder, unchecked: tuple[str, ...]) -> bool:
    word = holder.memory.word
    return word in _NOTHING or (word in _SILENT and holder.server.address in unchecked)


def _check_read_by_all(ground: Ground, newest: Examination) -> None:
    for said in read_by_each(ground.all_servers, thing_of(newest)):
        if said.answer is Answer.READ_ERROR:
            raise refuse(
                Rule.WRITE_KEY,
                f"the API server at {said.server} does not read {display(newest.stored.key)}, which is stored under "
                f"today's write key ({newest.transformer}): what is written anew it could not read either",
                hint="give every API server the same EncryptionConfiguration, and wait until each has loaded it (it "
                "looks once a minute); do not restart those that hold the objects in memory",
            )


def _check_loaded(ground: Ground, directory: ResourcePrefix) -> None:
    """Refuse where a server says that it has loaded another file than the one given here.

    Nothing is stored yet that would show whether it reads what another one writes. A server that says nothing is not
    asked again: then the first object that is written is the test.
    """
    ours = ground.cluster.config_sha256
    for server, loaded in loaded_by_each(ground.all_servers):
        if not loaded or loaded == ours or server.address in ground.unchecked:
            continue
        accept = acceptance(Rule.UNCHECKED_SERVER, server.address)
        raise refuse(
            Rule.UNCHECKED_SERVER,
            f"the API server at {server.address} has loaded another EncryptionConfiguration ({loaded}) than the one "
            f"given here ({ours}), and nothing of {directory.group_resource} is stored under today's write key by "
            "which to see whether it reads that",
            hint="give every API server one file, wait until each has loaded it (it looks once a minute), and name "
            f"that file with --encryption-config; or, if both have the same write key: {accept}",
        )


def thing_of(found: Examination) -> APIObject:
    """Return an object as a request names it."""
    directory = found.directory
    return APIObject(directory.group, directory.version, directory.resource, found.namespace, found.name)
