"""Keys that belong to nobody: their owner is gone, their CRD, their namespace, or no resource claims them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import msgspec

from etcdfix.graph.index import ImpactIndex
from etcdfix.graph.kinds import Served
from etcdfix.graph.model import OrphanGroup, OrphanReason, OwnerState
from etcdfix.graph.owners import judge
from etcdfix.model.model import Confidence
from etcdfix.model.storagekey import StorageCodec, display

_MOST_EXAMPLES: Final = 5


class Orphans(msgspec.Struct, frozen=True):
    """All keys that belong to nobody.

    Attributes:
        groups: By reason, then by prefix. A key can stand in several.
        count: Number of different keys.
        size: Bytes of their values.
        undecided: How many keys have a Namespace or CRD that was not seen, where not everything was. What was not
            seen is not called gone: they stand in no group.
        aggregated: API group to how many keys it has that no CRD accounts for, since an aggregated API serves it:
            its server may keep its objects here. They stand in no group either.
    """

    groups: tuple[OrphanGroup, ...]
    count: int
    size: int
    undecided: int = 0
    aggregated: dict[str, int] = msgspec.field(default_factory=dict)


_NOTES: Final = {
    OrphanReason.OWNER_GONE: "the garbage collector deletes them once it sees them",
    OrphanReason.CRD_GONE: "no API serves them: only in etcd can they be seen, or deleted",
    OrphanReason.NAMESPACE_GONE: "their API serves them by path, but nothing cleans them up",
    OrphanReason.UNCLAIMED: "no resource of any known release is stored there",
    OrphanReason.OUTSIDE: "outside the storage prefix: another program's, or another prefix was used before",
}


def find_orphans(index: ImpactIndex, *, aggregated: Collection[str] = ()) -> Orphans:
    """Return everything that belongs to nobody."""
    found: dict[tuple[OrphanReason, str, str], list[int]] = {}
    undecided = 0
    exempt: dict[str, int] = {}
    for node in index.nodes():
        reasons = _reasons(index, node)
        if any(place[0] is OrphanReason.CRD_GONE for place in reasons):
            group = index.place(node)[0].group
            if group in aggregated:
                exempt[group] = exempt.get(group, 0) + 1
                reasons = [place for place in reasons if place[0] is not OrphanReason.CRD_GONE]
        if index.problems:
            told = [place for place in reasons if place[0] not in _BY_ABSENCE]
            undecided += len(told) < len(reasons)
            reasons = told
        for place in reasons:
            found.setdefault(place, []).append(node)
    groups = [_group(index, *place, nodes) for place, nodes in found.items()]
    confidence = Confidence.CERTAIN if index.outside_complete else Confidence.LIKELY
    groups += [
        OrphanGroup(
            OrphanReason.OUTSIDE, start, "", "", "", count, size, (), confidence, _NOTES[OrphanReason.OUTSIDE]
        )
        for start, (count, size) in index.outside.items()
        if start not in _BOOKKEEPING
    ]
    order = list(OrphanReason)
    groups.sort(key=lambda group: (order.index(group.reason), group.prefix))
    different = {node for nodes in found.values() for node in nodes}
    outside = [group for group in groups if group.reason is OrphanReason.OUTSIDE]
    return Orphans(
        tuple(groups),
        len(different) + sum(group.count for group in outside),
        sum(map(index.sizes.__getitem__, different)) + sum(group.size for group in outside),
        undecided=undecided,
        aggregated=dict(sorted(exempt.items())),
    )


# Concluded from a key that was not seen; of owners the collector's own look-up says the same.
_BY_ABSENCE: Final = frozenset({OrphanReason.CRD_GONE, OrphanReason.NAMESPACE_GONE})

# The API server's own key beside the storage prefix.
_BOOKKEEPING: Final = frozenset({"compact_rev_key"})


def _reasons(index: ImpactIndex, node: int) -> list[tuple[OrphanReason, str, str]]:
    directory, namespace, _ = index.place(node)
    stack = directory.codec
    if stack is StorageCodec.NOT_AN_OBJECT or stack is StorageCodec.ALLOCATOR:
        return []
    if stack is StorageCodec.UNKNOWN:
        start = display(index.relative(node).split(b"/", 1)[0])
        return [(OrphanReason.UNCLAIMED, f"{index.layout.prefix}{start}", "")]
    prefix = f"{index.layout.prefix}{directory.path}/"
    reasons = []
    if index.without_crd(directory) and not index.crd_unreadable(directory):
        reasons.append((OrphanReason.CRD_GONE, prefix, ""))
    if namespace and directory.namespaced:
        home = index.node(f"namespaces/{namespace}")
        if home is None or not index.exists(home):
            reasons.append((OrphanReason.NAMESPACE_GONE, f"{prefix}{namespace}/", namespace))
    if index.has_owners(node) and _all_owners_gone(index, node):
        reasons.append((OrphanReason.OWNER_GONE, prefix, ""))
    return reasons


def _all_owners_gone(index: ImpactIndex, node: int) -> bool:
    owners = index.owners(node)
    judged = judge(index, node, owners, {}).owners
    served = all(owner.served is Served.YES for owner in owners)
    return served and all(owner.state is OwnerState.ABSENT for owner in judged)


def _group(
    index: ImpactIndex, reason: OrphanReason, prefix: str, namespace: str, nodes: list[int]
) -> OrphanGroup:
    nodes.sort(key=index.relative)
    directory = index.place(nodes[0])[0]
    # An aggregated API server may keep its objects in the same etcd, without any CRD.
    doubtful = reason is OrphanReason.CRD_GONE or bool(index.problems)
    claimed = reason is not OrphanReason.UNCLAIMED
    return OrphanGroup(
        reason,
        prefix,
        directory.group if claimed else "",
        directory.resource if claimed else "",
        namespace,
        len(nodes),
        sum(map(index.sizes.__getitem__, nodes)),
        tuple(display(index.key(node)) for node in nodes[:_MOST_EXAMPLES]),
        Confidence.LIKELY if doubtful else Confidence.CERTAIN,
        _NOTES[reason],
    )
