"""Who makes a broken object again, as far as what is readable around it tells."""

from __future__ import annotations

from typing import Final

import msgspec

from etcdfix.impact.assess import Assessment
from etcdfix.impact.identity import ObjectRef
from etcdfix.impact.index import ImpactIndex
from etcdfix.impact.uses import SECRETS, Role
from etcdfix.model import Confidence
from etcdfix.planning.lastseen import LastSeen, SeenOwner
from etcdfix.planning.recreators import (
    NAME_RULES,
    OWNERS,
    RESOURCES,
    TOKEN_CONTROLLER,
    ComesBack,
    Recreator,
    recreator_of_marks,
)
from etcdfix.planning.surroundings import Place, Surroundings
from etcdfix.reports.plan_model import BY_HAND

TOKEN_TYPE: Final = "kubernetes.io/service-account-token"  # noqa: S105 - no password
_NOBODY: Final = Recreator(BY_HAND, ComesBack.NO, "")
_NODES: Final = "minions"


class Recreation(msgspec.Struct, frozen=True):
    """Who makes an object again.

    Attributes:
        recreator: Who; its name is ``by hand`` where nobody is known to.
        confidence: None for ``by hand``.
        basis: Why that is thought, in a clause; "" for ``by hand``.
    """

    recreator: Recreator
    confidence: Confidence | None = None
    basis: str = ""


def who_recreates(
    index: ImpactIndex, node: int, surroundings: Surroundings, assessment: Assessment, seen: LastSeen
) -> Recreation:
    """Return who makes an object again; what proves most counts.

    The order is: resources that one party alone writes, owners of the last readable revision, specs that name the
    object, its own marks as of then, tokens, patterns of names, and marks on its readable siblings.

    Args:
        index: Of the cluster.
        node: Of the object.
        surroundings: Of the broken objects.
        assessment: Of this one.
        seen: Its newest readable revision.
    """
    ref = assessment.object
    alone = RESOURCES.get((ref.group, ref.resource))
    path = index.place(node)[0].path
    by_name = _by_name(index, path, ref)
    if alone is not None:
        return by_name or Recreation(alone, Confidence.LIKELY, f"nobody else writes {ref.resource}")
    if seen.owners:
        return _by_owner(index, ref.namespace, seen.owners[0])
    is_secret = (ref.group, ref.resource) == ("", SECRETS)
    claimed = surroundings.claim(ref.namespace, ref.name) if is_secret else None
    if claimed is not None:
        return Recreation(claimed.recreator, Confidence.CERTAIN, f"named by {claimed.by}")
    known = assessment.last_known
    marked = recreator_of_marks(known.labels, known.annotations)
    if marked is not None:
        return Recreation(marked[0], Confidence.LIKELY, f"it was marked {marked[1]}")
    if is_secret:
        token = _token(assessment, seen)
        if token is not None:
            return token
    if by_name is not None:
        return by_name
    return _by_siblings(surroundings, Place(path, ref.namespace), ref) or Recreation(_NOBODY)


def _by_owner(index: ImpactIndex, namespace: str, owner: SeenOwner) -> Recreation:
    recreator = OWNERS.get((owner.group, owner.kind)) or Recreator(
        f"controller of {owner.kind}", ComesBack.BY_ITSELF, "if that controller keeps making it"
    )
    directory = index.kinds.directory(owner.group, owner.kind)
    there = False
    if directory is not None:
        middle = f"{namespace}/" if directory.namespaced else ""
        node = index.node(f"{directory.path}/{middle}{owner.name}")
        there = node is not None and index.exists(node) and index.uid(node) == owner.uid
    if there:
        return Recreation(
            recreator, Confidence.CERTAIN, f"owned by {owner.kind} {owner.name}, which is there"
        )
    return Recreation(
        recreator, Confidence.POSSIBLE, f"owned by {owner.kind} {owner.name}, which was not found"
    )


def _token(assessment: Assessment, seen: LastSeen) -> Recreation | None:
    """Say whether a Secret is the token of a ServiceAccount."""
    if seen.type == TOKEN_TYPE:
        of = f" of ServiceAccount {seen.token_of}" if seen.token_of else ""
        return Recreation(TOKEN_CONTROLLER, Confidence.CERTAIN, f"it was a token{of}")
    secret = assessment.secret
    if seen.type or secret is None:
        return None
    for user in secret.groups.get(Role.TOKEN_LIST, ()):
        account = user.object.name
        if assessment.object.name.startswith(f"{account}-token-"):
            return Recreation(
                TOKEN_CONTROLLER, Confidence.LIKELY, f"a token of ServiceAccount {account}, by its list"
            )
        if secret.groups.keys() == {Role.TOKEN_LIST}:
            # Such a list may name other Secrets too, but those are used by somebody else as well.
            return Recreation(
                TOKEN_CONTROLLER, Confidence.POSSIBLE, f"in the list of ServiceAccount {account}"
            )
    return None


def _by_name(index: ImpactIndex, path: str, ref: ObjectRef) -> Recreation | None:
    if path == "pods" and ref.namespace == "kube-system":
        node_name = _mirrored_on(index, ref.name)
        if node_name:
            kubelet = Recreator("kubelet", ComesBack.BY_ITSELF, "the mirror of a static Pod of its node")
            return Recreation(kubelet, Confidence.LIKELY, f"it is called after node {node_name}")
    for rule in NAME_RULES:
        if rule.path != path or (rule.namespace and rule.namespace != ref.namespace):
            continue
        match = rule.pattern.fullmatch(ref.name)
        if match is None:
            continue
        if not rule.counterpart:
            return Recreation(rule.recreator, Confidence.LIKELY, "by its name")
        other = index.node(f"{rule.counterpart}/{ref.namespace}/{match.group(1)}")
        if other is not None and index.exists(other):
            return Recreation(rule.recreator, Confidence.LIKELY, f"it is called after {index.ref(other)}")
    return None


def _mirrored_on(index: ImpactIndex, pod: str) -> str:
    """Return the node after which a static Pod's mirror is called."""
    parts = pod.split("-")
    for start in range(1, len(parts)):
        name = "-".join(parts[start:])
        node = index.node(f"{_NODES}/{name}")
        if node is not None and index.exists(node):
            return name
    return ""


def _by_siblings(surroundings: Surroundings, place: Place, ref: ObjectRef) -> Recreation | None:
    sibling = surroundings.like(place, ref.name)
    if sibling is not None and sibling.recreator is not None:
        return Recreation(
            sibling.recreator, Confidence.POSSIBLE, f"its sibling {sibling.name} is marked {sibling.mark}"
        )
    ruler = surroundings.ruler(place)
    if ruler is None:
        return None
    recreator, count, of = ruler
    return Recreation(
        recreator,
        Confidence.POSSIBLE,
        f"{count} of {of} readable {ref.resource} of its namespace are marked so",
    )
