"""What API servers have to say before a change: whether they read the object, and whether it may be deleted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from etcdfix.apiserver.objects import Answer, Foretold
from etcdfix.apiserver.permissions import can_i
from etcdfix.copies.model import Place
from etcdfix.examine.verdicts.causes import Cause
from etcdfix.examine.verdicts.damage import Damage
from etcdfix.examine.verdicts.examination import Examination
from etcdfix.model.errors import RefusedByRule
from etcdfix.model.model import ServerBehaviour
from etcdfix.model.rules import Rule, refuse, unless_accepted
from etcdfix.remediation.cluster import require_unencrypted
from etcdfix.remediation.facts import must_be_had

if TYPE_CHECKING:
    from etcdfix.remediation.change import Change
    from etcdfix.remediation.present import Present


def foretold_of(found: Examination) -> Foretold:
    """Return what an API server that has our configuration says of a value."""
    verdict = found.verdict
    return Foretold(
        verdict.upstream_message,
        empty=verdict.apiserver is ServerBehaviour.SERVES_EMPTY,
        plugin_silent=verdict.cause is Cause.KMS_UNREACHABLE,
    )


def configuration_wrong(present: Present, change: Change) -> Iterator[RefusedByRule]:
    """No API server reads the value. With --no-encryption, nothing in etcd is encrypted."""
    put = None if change.deletes else change.copy.stored
    if put is not None:
        require_unencrypted(present.cluster, put)
    yield from must_be_had(present.servers)


def no_api_server(present: Present, change: Change) -> Iterator[RefusedByRule]:
    """An API server was asked, or all if damage is only possible.

    A KMS plugin that is silent looks like an outage: then a declaration in a script is not enough either.
    """
    of_a_file = change.of(Place.OBJECT)
    needs = f"--from {change.copy.source}" if of_a_file else ""
    needs = "--declare-key-lost" if change.accepted.key_lost else needs
    accepted = change.accepts(Rule.NO_API_SERVER)
    if present.request.api is None and needs and not accepted:
        why = f"{needs}: no API server is asked whether it has the key and reads the object"
        yield unless_accepted(Rule.NO_API_SERVER, why, hint="--kubeconfig FILE")
    servers = present.servers
    if present.request.api is not None and servers.authorization is None and not accepted:
        found = present.name
        said = "; ".join(f"{asked.server}: {asked.detail}" for asked in servers.answers)
        may = can_i("get", found.directory.group, found.directory.resource, found.namespace, found.name)
        denied = any(asked.answer is Answer.DENIED for asked in servers.answers)
        granted = f"have the user allowed to get it ({may}), or " if denied else ""
        why = f"no API server could say whether it reads {present.shown} ({said})"
        yield unless_accepted(Rule.NO_API_SERVER, why, hint=f"{granted}name another one: --server URL")
    if not change.goes:
        return
    if present.found.verdict.damage is Damage.POSSIBLE:
        yield from _every_one_fails(present)
    silent = present.found.verdict.cause is Cause.KMS_UNREACHABLE
    if (
        change.needs_declaration
        and silent
        and servers.authorization is None
        and not change.accepted.at_terminal
    ):
        text = (
            f"the KMS plugin of {present.shown} does not answer, which may be an outage, and no API "
            "server answered"
        )
        hint = "--kubeconfig FILE; only if there is no API server, declare the key lost at a terminal"
        yield refuse(Rule.NO_API_SERVER, text, hint=hint)


def _every_one_fails(present: Present) -> Iterator[RefusedByRule]:
    """A server with a new key under the old name leaves a value that looks damaged, and reads it."""
    key, servers = present.shown, present.servers
    if present.request.api is None:
        text = f"{key}: its damage is only possible, and no API server was asked whether it reads it"
        yield refuse(Rule.NO_API_SERVER, text, hint="have every API server asked: --kubeconfig FILE")
        return
    missing = [
        f"{asked.server}: {asked.answer}"
        for asked in servers.answers
        if asked.answer is not Answer.READ_ERROR
    ]
    if missing or not servers.all_known:
        why = "; ".join(missing or servers.warnings) or "service default/kubernetes lists no API server"
        told = f"{key}: its damage is only possible, and not every API server cannot read it ({why})"
        hint = "see that each API server of service default/kubernetes answers, and try again"
        yield refuse(Rule.NO_API_SERVER, told, hint=hint)
