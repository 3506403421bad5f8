"""Asks a Kubernetes API server whether its user may do by the API what etcdfix is about to do behind its back.

Whoever holds etcd's credentials can delete anything. With ``--kubeconfig`` a second authority is asked: the API server
of the same cluster (the uid of kube-system must be the one that etcd holds, as far as both can read it), and its
authorizers, for the two permissions that upstream wants for an unsafe deletion. Only a clear yes to both counts.
Everything else refuses, in words of its own.

Format: ``authorization.k8s.io/v1`` SelfSubjectAccessReview, ``authentication.k8s.io/v1`` SelfSubjectReview (served
since Kubernetes 1.28).
"""

from __future__ import annotations

from typing import Any

import msgspec

from etcdfix.apiserver.client import (
    AuthorizationRefused,
    RefusalReason,
    Reply,
    Server,
    decode,
    malformed,
    shorten,
)
from etcdfix.apiserver.objects import APIObject, Served
from etcdfix.model.model import ClusterIdentity, GroupResource, KnownBy
from etcdfix.text.safetext import quote_command

UNSAFE_DELETE_VERB = "unsafe-delete-ignore-read-errors"
VERBS = (UNSAFE_DELETE_VERB, "delete")

UNKNOWN_USER = "unknown"

_KUBE_SYSTEM = "/api/v1/namespaces/kube-system"
_FOUND, _CANNOT_READ = 200, 500
_ACCESS_REVIEW = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_SUBJECT_REVIEW = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


class Authorization(msgspec.Struct, frozen=True, kw_only=True):
    """A clear yes to every question.

    Attributes:
        user_name: As whom the API server knows the kubeconfig's user; ``unknown`` where it does not say.
        server: Address of the API server.
        kube_system_uid: Of its kube-system namespace, equal to etcd's; "" where etcd holds none that can be read.
        verbs: What was allowed.
    """

    user_name: str
    server: str
    kube_system_uid: str
    verbs: tuple[str, ...] = VERBS


class _AccessSpec(msgspec.Struct):
    attributes: dict[str, Any] = msgspec.field(name="resourceAttributes")


class _AccessStatus(msgspec.Struct):
    allowed: bool
    denied: bool = False
    reason: str = ""
    evaluation_error: str = msgspec.field(name="evaluationError", default="")


class _AccessReview(msgspec.Struct):
    kind: str
    spec: _AccessSpec
    status: _AccessStatus


def authorize(
    server: Server, thing: APIObject, *, cluster: ClusterIdentity, verbs: tuple[str, ...] = VERBS
) -> Authorization:
    """Ask a server of this cluster for permissions on exactly one object.

    Args:
        server: That :func:`check_cluster` found to be of this cluster.
        thing: The object.
        cluster: Which cluster etcd holds.
        verbs: What is asked for; by default both of an unsafe deletion.

    Raises:
        ValueError: Resource or name are empty, which would ask about every one.
        AuthorizationRefused: Anything but a clear yes.
    """
    if not thing.resource or not thing.name:
        raise ValueError("resource and name must not be empty")
    user_name = _user_name(server)
    for verb in verbs:
        _check_access(server, verb, thing)
    return Authorization(user_name=user_name, server=server.address, kube_system_uid=cluster.uid, verbs=verbs)


def authorize_all(server: Server, resource: GroupResource) -> str:
    """Ask a server for both permissions on every object of a resource, in every namespace.

    Who may delete a single object by its name alone gets a no here, and :func:`authorize` would be told yes.

    Returns:
        As whom the server knows the user.

    Raises:
        AuthorizationRefused: Anything but a clear yes.
    """
    user_name = _user_name(server)
    for verb in VERBS:
        _check_access(server, verb, APIObject(resource.group, "", resource.resource, "", ""))
    return user_name


def check_cluster(server: Server, cluster: ClusterIdentity) -> str:
    """Have a server show that it belongs to the cluster whose etcd this is.

    A server that cannot read its kube-system (500) may still have it in memory. Where it has not, and the Namespace in
    etcd cannot be read either, nothing can be compared; that is said, and no more.

    Returns:
        Why it could not be compared, part of a sentence; "" where it was.

    Raises:
        AuthorizationRefused: It belongs to another, or does not say.
    """
    found = _kube_system(server, must_answer=cluster.known_by is KnownBy.VALUE)
    if found is None:
        return "it cannot read its kube-system either, so it was not compared which cluster it is of"
    if cluster.uid:
        theirs, ours = f"has the uid {shorten(found.metadata.uid)}", f"has {shorten(cluster.uid)}"
        same = found.metadata.uid == cluster.uid
    else:
        # What a server has in memory, or reads, carries the mod revision of its key.
        theirs = f"stands at resourceVersion {shorten(found.metadata.resource_version)}"
        ours = f"stands at mod_revision {cluster.changed}"
        same = found.metadata.resource_version == str(cluster.changed)
    if not same:
        raise AuthorizationRefused(
            f"the API server at {server.address} belongs to another cluster: its kube-system {theirs}, the one in "
            f"etcd {ours}",
            reason=RefusalReason.OTHER_CLUSTER,
            hint="choose the kubeconfig, or its context, of the cluster that this etcd belongs to",
        )
    return ""


def cluster_of(server: Server) -> ClusterIdentity:
    """Return which cluster a server says that it is of, for whoever knows none; unknown where it cannot tell.

    Raises:
        AuthorizationRefused: It does not say.
    """
    found = _kube_system(server, must_answer=False)
    return ClusterIdentity.by_uid(found.metadata.uid if found is not None else "")


def _kube_system(server: Server, *, must_answer: bool) -> Served | None:
    """Return a server's kube-system, from etcd or from its memory; None where it has it in neither."""
    what = "the API server's kube-system namespace"
    hint = (
        "the kubeconfig's user needs get on namespaces/kube-system: "
        + can_i("get", "", "namespaces", "", "kube-system")
        + "; docs/runbooks/denied.md has the whole ClusterRole"
    )
    reply = server.send("GET", _KUBE_SYSTEM)
    if isinstance(reply, Reply) and reply.status == _CANNOT_READ:
        remembered = server.send("GET", f"{_KUBE_SYSTEM}?resourceVersion=0")
        if isinstance(remembered, Reply) and remembered.status == _FOUND:
            reply = remembered
        elif not must_answer:
            return None
    found = decode(server.require(reply, what=what, hint=hint), Served, what)
    if found.kind != "Namespace" or found.metadata.name != "kube-system" or not found.metadata.uid:
        raise malformed(what)
    return found


def _user_name(server: Server) -> str:
    what = "the name of its user"
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    try:
        answer = server.require(server.send("POST", _SUBJECT_REVIEW, body), what=what)
        name = decode(answer, dict[str, Any], what)["status"]["userInfo"]["username"]
    except (AuthorizationRefused, LookupError, TypeError):
        # Servers before 1.28 do not serve it; a name is good to have, not a condition.
        return UNKNOWN_USER
    return (shorten(name) if isinstance(name, str) else "") or UNKNOWN_USER


def _check_access(server: Server, verb: str, thing: APIObject) -> None:
    every = f"every object of {GroupResource(thing.group, thing.resource)}"
    what = f"the permission to {verb} {thing if thing.name else every}"
    wanted = {
        "verb": verb, "group": thing.group, "resource": thing.resource, "namespace": thing.namespace,
        "name": thing.name,
    }  # fmt: skip
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {name: value for name, value in wanted.items() if value}},
    }
    hint = "kubectl --kubeconfig FILE auth can-i create selfsubjectaccessreviews.authorization.k8s.io"
    reply = server.send("POST", _ACCESS_REVIEW, body)
    found = decode(server.require(reply, what=what, hint=hint), _AccessReview, what)
    answered = {name: found.spec.attributes.get(name, "") for name in wanted}
    if found.kind != "SelfSubjectAccessReview" or answered != wanted:
        raise malformed(what)
    status = found.status
    if status.evaluation_error:
        raise AuthorizationRefused(
            f"the API server is in doubt about {what}: {shorten(status.evaluation_error)}",
            reason=RefusalReason.EVALUATION_ERROR,
        )
    if not status.allowed or status.denied:
        because = f": {shorten(status.reason)}" if status.reason else ""
        raise AuthorizationRefused(
            f"the API server denies {what}{because}",
            reason=RefusalReason.DENIED,
            hint=can_i(verb, thing.group, thing.resource, thing.namespace, thing.name),
        )


def can_i(verb: str, group: str, resource: str, namespace: str, name: str) -> str:
    """Return the command by which a person asks whether a verb is allowed on one object; without a name, on all."""
    place = ["-n", namespace] if namespace else [] if name else ["--all-namespaces"]
    what = f"{GroupResource(group, resource)}/{name}" if name else str(GroupResource(group, resource))
    return quote_command(["kubectl", "--kubeconfig", "FILE", "auth", "can-i", verb, what, *place])
