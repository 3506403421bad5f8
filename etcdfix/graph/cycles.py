"""Objects of a namespace that wait for one another, so that none of them goes.

Source: KEP-5080 (pods go first); the finalizers' owners.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from itertools import islice
from typing import Final

from etcdfix.graph.index import FOREGROUND_FINALIZER, ORPHAN_FINALIZER, ImpactIndex
from etcdfix.graph.model import CyclicWait, WaitStep
from etcdfix.graph.uses import Role
from etcdfix.model import Confidence
from etcdfix.storagekey import ResourcePrefix, StorageCodec

_PODS: Final = "pods"
_MOST_NAMED: Final = 100

# Finalizers whose owner does its work without waiting for anything else in the namespace.
_SELF_CONTAINED: Final = frozenset({"batch.kubernetes.io/job-tracking"})
_CLAIM_PROTECTION: Final = "kubernetes.io/pvc-protection"
_SHORTEST_WORD: Final = 4


class WaitReason(StrEnum):
    """Why one object waits for another."""

    ORDER = "pods go first"
    FOREGROUND = "foregroundDeletion waits for blocking dependents"
    CLAIM = "kubernetes.io/pvc-protection waits for the pods that use the claim"
    NAMED = "the finalizer's name points at it"
    DOMAIN = "the finalizer has the domain of its API group, and may wait for it"


def cyclic_waits(index: ImpactIndex, inside: Iterable[int]) -> tuple[CyclicWait, ...]:
    """Return the cyclic waits among the objects of a namespace that is, or would be, deleted.

    Pods wait for their finalizers, everything else waits for the pods: whatever makes a pod wait for something else
    of its namespace closes a ring. What a foreign finalizer waits for is opaque; its name may tell.
    """
    inside = list(inside)
    pods = [node for node in inside if index.finalizers(node) and index.place(node)[0].path == _PODS]
    others = _Others()
    for node in inside if pods else ():
        directory, _, name = index.place(node)
        if directory.path != _PODS:
            others.add(node, directory, name)
    cycles = (
        cycle
        for pod in pods
        for finalizer in index.finalizers(pod)
        for cycle in _cycles_of(index, pod, finalizer, others)
    )
    return tuple(islice(cycles, _MOST_NAMED))


class _Others:
    """What waits for the pods of a namespace: in its order, and by what a finalizer's name may point at."""

    def __init__(self) -> None:
        self.nodes: dict[int, None] = {}
        self._by_directory: dict[ResourcePrefix, list[int]] = {}
        self._by_name: dict[str, list[int]] = {}

    def add(self, node: int, directory: ResourcePrefix, name: str) -> None:
        self.nodes[node] = None
        self._by_directory.setdefault(directory, []).append(node)
        self._by_name.setdefault(name, []).append(node)

    def named_by(self, finalizer: str) -> list[int]:
        """Return the first objects that a finalizer's name points at: by their kind, or by their own name."""
        rest = finalizer.lower().rpartition("/")[2]
        found = set(self._by_name.get(rest, ())[:_MOST_NAMED]) if len(rest) >= _SHORTEST_WORD else set()
        for directory, nodes in self._by_directory.items():
            if _names(rest, directory):
                found.update(nodes[:_MOST_NAMED])
        if len(found) <= 1:
            return list(found)
        return list(islice((node for node in self.nodes if node in found), _MOST_NAMED))

    def in_domain_of(self, finalizer: str) -> int | None:
        """Return the first object of a custom resource whose group has a finalizer's domain."""
        found = [
            nodes[0]
            for directory, nodes in self._by_directory.items()
            if _shares_domain(finalizer, directory)
        ]
        return next((node for node in self.nodes if node in found), None) if found else None


def _cycles_of(index: ImpactIndex, pod: int, finalizer: str, others: _Others) -> list[CyclicWait]:
    if finalizer in _SELF_CONTAINED or finalizer == ORPHAN_FINALIZER:
        return []
    if finalizer == FOREGROUND_FINALIZER:
        return [
            _ring(index, pod, other, WaitReason.FOREGROUND, Confidence.CERTAIN, finalizer)
            for other in _held_dependents(index, pod, others)
        ]
    named = others.named_by(finalizer)
    if named:
        return [_ring(index, pod, other, WaitReason.NAMED, Confidence.LIKELY, finalizer) for other in named]
    if not others.nodes:
        return []
    in_domain = others.in_domain_of(finalizer)
    if in_domain is not None:
        return [_ring(index, pod, in_domain, WaitReason.DOMAIN, Confidence.POSSIBLE, finalizer)]
    # It may wait for any of them, or for something outside: one of them stands for all.
    first = index.ref(next(iter(others.nodes)))
    step = WaitStep(index.ref(pod), first, f"finalizer {finalizer} may wait for it, or for any other")
    back = WaitStep(first, index.ref(pod), WaitReason.ORDER)
    return [CyclicWait((step, back), Confidence.POSSIBLE, _way_out(finalizer, Confidence.POSSIBLE))]


def _held_dependents(index: ImpactIndex, pod: int, others: _Others) -> list[int]:
    """Return dependents that the pod waits for and that do not go by the collector's hand alone."""
    held = []
    for node in index.dependents(pod):
        blocks = any(owner.node == pod and owner.blocks for owner in index.owners(node))
        if not blocks or node not in others.nodes:
            continue
        waits_for_pod = _CLAIM_PROTECTION in index.finalizers(node) and any(
            edge.source == pod and edge.use.role in {Role.CLAIM, Role.EPHEMERAL_CLAIM}
            for edge in index.users(node)
        )
        if waits_for_pod or index.unreadable(node):
            held.append(node)
    return held


def _ring(
    index: ImpactIndex, pod: int, other: int, reason: WaitReason, confidence: Confidence, finalizer: str
) -> CyclicWait:
    there = WaitStep(index.ref(pod), index.ref(other), f"finalizer {finalizer}: {reason}")
    claim = reason is WaitReason.FOREGROUND and _CLAIM_PROTECTION in index.finalizers(other)
    back = WaitStep(index.ref(other), index.ref(pod), WaitReason.CLAIM if claim else WaitReason.ORDER)
    return CyclicWait((there, back), confidence, _way_out(finalizer, confidence))


def _way_out(finalizer: str, confidence: Confidence) -> str:
    if confidence is Confidence.POSSIBLE:
        return f"see that the controller of finalizer {finalizer} runs; only where it is gone for good, take it off"
    return f"remove finalizer {finalizer} from the pod, once what it guards is safe"


def _names(rest: str, directory: ResourcePrefix) -> bool:
    """Tell whether the last part of a finalizer's name, in lower case, has the name of a kind in it."""
    letters = "".join(c for c in rest if c.isalnum())
    words = {directory.resource.lower(), directory.resource.lower().removesuffix("s"), directory.kind.lower()}
    if directory.resource.endswith("ies"):
        words.add(directory.resource[:-3] + "y")
    return any(len(word) >= _SHORTEST_WORD and word in letters for word in words)


def _shares_domain(finalizer: str, directory: ResourcePrefix) -> bool:
    """Tell whether a finalizer has the domain of a custom resource's group: whose it is, not what it waits for."""
    domain, group = finalizer.lower().rpartition("/")[0], directory.group
    custom = directory.codec is StorageCodec.CUSTOM_RESOURCE
    return bool(custom and domain and (domain == group or domain.endswith(f".{group}")))
