"""What the API servers are asked before a change: whether they read the object, and whether it may be deleted."""

from __future__ import annotations

from etcdfix.apiserver.authorization import can_i
from etcdfix.apiserver.holders import ask_servers
from etcdfix.apiserver.objects import Answer, APIObject, Foretold
from etcdfix.apiserver.servers import APIAccess, ServerAnswers
from etcdfix.model import ClusterIdentity, ServerBehaviour
from etcdfix.remediation.preflight.cluster import Acceptances
from etcdfix.rules import Rule, acceptance, refuse
from etcdfix.storagekey import display
from etcdfix.verdicts.causes import Cause
from etcdfix.verdicts.examination import Examination


def require_api(api: APIAccess | None, accepted: Acceptances, *, always: str = "") -> None:
    """Refuse a declaration where no API server can contradict it.

    ``always`` names the option because of which one must be asked whatever is declared.

    Raises:
        RefusedByRule: None was named, and that is not accepted.
    """
    needs = "--declare-key-lost" if accepted.key_lost else always
    if needs and api is None and not accepted.accepts(Rule.NO_API_SERVER):
        raise refuse(
            Rule.NO_API_SERVER,
            f"{needs}: no API server is asked whether it has the key and reads the object",
            hint="--kubeconfig FILE; only if there is none that could be asked: "
            + acceptance(Rule.NO_API_SERVER),
        )


def require_read_errors(found: Examination, api: APIAccess | None, servers: ServerAnswers) -> None:
    """Refuse where damage is only possible, and not every API server said that it cannot read the object.

    One with a new key under the old name leaves a value that looks the same, and reads it.

    Raises:
        RefusedByRule: Not each of them did.
    """
    key = display(found.stored.key)
    if api is None:
        raise refuse(
            Rule.NO_API_SERVER,
            f"{key}: its damage is only possible, and no API server was asked: one with a new key under the old name "
            "would read it",
            hint="have every API server asked: --kubeconfig FILE",
        )
    missing = [
        f"{asked.server}: {asked.answer}"
        for asked in servers.answers
        if asked.answer is not Answer.READ_ERROR
    ]
    if missing or not servers.all_known:
        why = "; ".join(missing or servers.warnings) or "service default/kubernetes lists no API server"
        raise refuse(
            Rule.NO_API_SERVER,
            f"{key}: its damage is only possible, and not every API server said that it cannot read it ({why})",
            hint="see that each API server that service default/kubernetes lists answers, and try again",
        )


def check_api_servers(
    found: Examination,
    identity: ClusterIdentity,
    api: APIAccess | None,
    accepted: Acceptances,
    *,
    held: bool = True,
    readable_is_fine: bool = False,
) -> ServerAnswers:
    """Ask the API servers, if any were named, whether they read the object, and whether it may be deleted.

    Raises:
        RefusedByRule: One reads the object, or none answered.
        AuthorizationRefused: One does not clearly say yes.
        ConfigurationError: The kubeconfig cannot be used.
    """
    if api is None:
        return ServerAnswers()
    directory = found.directory
    thing = APIObject(directory.group, directory.version, directory.resource, found.namespace, found.name)
    servers = ask_servers(
        api,
        thing,
        identity,
        held=held,
        readable_is_fine=readable_is_fine,
        # Where nothing rests on the object being unreadable, it does not matter how a server fails.
        foretold=foretold_of(found) if held and not readable_is_fine else None,
    )
    if servers.authorization is None and not accepted.accepts(Rule.NO_API_SERVER):
        said = "; ".join(f"{asked.server}: {asked.detail}" for asked in servers.answers)
        may = can_i("get", directory.group, directory.resource, found.namespace, found.name)
        denied = any(asked.answer is Answer.DENIED for asked in servers.answers)
        granted = f"have the user allowed to get it ({may}), or " if denied else ""
        raise refuse(
            Rule.NO_API_SERVER,
            f"no API server could say whether it reads {display(found.stored.key)} ({said})",
            hint=f"{granted}name another one: --server URL; only if there is none that could be asked: "
            + acceptance(Rule.NO_API_SERVER),
        )
    return servers


def foretold_of(found: Examination) -> Foretold:
    """Return what an API server that has our configuration says of a value."""
    verdict = found.verdict
    return Foretold(
        verdict.upstream_message,
        empty=verdict.apiserver is ServerBehaviour.SERVES_EMPTY,
        plugin_silent=verdict.cause is Cause.KMS_UNREACHABLE,
    )
