"""Objects of a namespace that wait for one another, so that none of them goes.

Source: KEP-5080 (pods go first); the finalizers' owners.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Final

from etcdfix.graph.index import FOREGROUND_FINALIZER, ORPHAN_FINALIZER, ImpactIndex
from etcdfix.graph.model import CyclicWait
from etcdfix.graph.uses import Role
from etcdfix.model import Confidence
from etcdfix.storagekey import ResourcePrefix

_PODS: Final = "pods"
_MOST_NAMED: Final = 100
# Their owners do their work without waiting for anything else in the namespace.
_SELF_CONTAINED: Final = frozenset({"batch.kubernetes.io/job-tracking", ORPHAN_FINALIZER})
_CLAIM_PROTECTION: Final = "kubernetes.io/pvc-protection"
_SHORTEST_WORD: Final = 4


def cyclic_waits(index: ImpactIndex, inside: Iterable[int]) -> tuple[CyclicWait, ...]:
    """Return the cyclic waits among the objects of a namespace that is, or would be, deleted.

    Pods wait for their finalizers, everything else waits for the pods: whatever makes a pod wait for something else
    of its namespace closes a ring. What a foreign finalizer waits for is opaque; its name may tell.
    """
    by_directory: dict[ResourcePrefix, list[int]] = {}
    by_name: dict[str, list[int]] = {}
    others: set[int] = set()
    pods = []
    for node in inside:
        directory, _, name = index.place(node)
        if directory.path != _PODS:
            others.add(node)
            by_directory.setdefault(directory, []).append(node)
            by_name.setdefault(name, []).append(node)
        elif index.finalizers(node):
            pods.append(node)
    found = (
        CyclicWait(index.ref(pod), index.ref(other), finalizer, confidence)
        for pod in pods
        for finalizer in index.finalizers(pod)
        if finalizer not in _SELF_CONTAINED
        for other, confidence in (
            ((node, Confidence.CERTAIN) for node in _held_dependents(index, pod, others))
            if finalizer == FOREGROUND_FINALIZER
            else ((node, Confidence.LIKELY) for node in _named_by(finalizer, by_directory, by_name))
        )
    )
    return tuple(islice(found, _MOST_NAMED))


def _named_by(
    finalizer: str, by_directory: dict[ResourcePrefix, list[int]], by_name: dict[str, list[int]]
) -> Iterable[int]:
    """Return the first objects that a finalizer's name points at: by their own name, or by their kind."""
    rest = finalizer.lower().rpartition("/")[2]
    found = by_name.get(rest, [])[:_MOST_NAMED] if len(rest) >= _SHORTEST_WORD else []
    for directory, nodes in by_directory.items():
        if _names(rest, directory):
            found = [*found, *nodes[:_MOST_NAMED]]
    return dict.fromkeys(found)


def _held_dependents(index: ImpactIndex, pod: int, others: set[int]) -> Iterable[int]:
    """Return dependents that the pod waits for and that do not go by the collector's hand alone."""
    for node in index.dependents(pod):
        blocks = any(owner.node == pod and owner.blocks for owner in index.owners(node))
        waits_for_pod = _CLAIM_PROTECTION in index.finalizers(node) and any(
            edge.source == pod and edge.use.role in {Role.CLAIM, Role.EPHEMERAL_CLAIM}
            for edge in index.users(node)
        )
        if blocks and node in others and (waits_for_pod or index.unreadable(node)):
            yield node


def _names(rest: str, directory: ResourcePrefix) -> bool:
    """Tell whether the last part of a finalizer's name, in lower case, has the name of a kind in it."""
    letters = "".join(c for c in rest if c.isalnum())
    words = {directory.resource.lower(), directory.resource.lower().removesuffix("s"), directory.kind.lower()}
    if directory.resource.endswith("ies"):
        words.add(directory.resource[:-3] + "y")
    return any(len(word) >= _SHORTEST_WORD and word in letters for word in words)
