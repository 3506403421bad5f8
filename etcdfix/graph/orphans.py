"""Keys that belong to nobody: their owner is gone, their CRD, their namespace, or no resource claims them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from typing import Final

import msgspec

from etcdfix.graph.index import ImpactIndex
from etcdfix.graph.model import OrphanGroup, OrphanReason
from etcdfix.graph.owners import owners_elsewhere, unowned
from etcdfix.model.model import Confidence
from etcdfix.model.storagekey import StorageCodec, display

_MOST_EXAMPLES: Final = 5
_ORDER: Final = list(OrphanReason)
# Concluded from a key that was not seen; the collector's own look-up of owners says the same.
_BY_ABSENCE: Final = frozenset({OrphanReason.CRD_GONE, OrphanReason.NAMESPACE_GONE})


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


def find_orphans(index: ImpactIndex, *, aggregated: Collection[str] = ()) -> Orphans:
    """Return everything that belongs to nobody."""
    found: dict[tuple[OrphanReason, str, str], list[int]] = {}
    exempt: Counter[str] = Counter()
    undecided: set[int] = set()
    gone = dict.fromkeys(filter(partial(unowned, index), index.nodes()), OrphanReason.OWNER_GONE)
    gone |= dict.fromkeys(owners_elsewhere(index, gone), OrphanReason.OWNER_ELSEWHERE)
    for node in index.nodes():
        for place in _reasons(index, node, gone):
            group = index.place(node)[0].group
            if place[0] is OrphanReason.CRD_GONE and group in aggregated:
                exempt[group] += 1
            elif place[0] in _BY_ABSENCE and index.problems:
                undecided.add(node)
            else:
                found.setdefault(place, []).append(node)
    groups = [_group(index, *place, nodes) for place, nodes in found.items()]
    different = {node for nodes in found.values() for node in nodes}
    return Orphans(
        tuple(sorted(groups, key=lambda group: (_ORDER.index(group.reason), group.prefix))),
        len(different),
        sum(map(index.sizes.__getitem__, different)),
        len(undecided),
        dict(sorted(exempt.items())),
    )


def _reasons(
    index: ImpactIndex, node: int, gone: Mapping[int, OrphanReason]
) -> Iterator[tuple[OrphanReason, str, str]]:
    directory, namespace, _ = index.place(node)
    if directory.codec in {StorageCodec.NOT_AN_OBJECT, StorageCodec.ALLOCATOR}:
        return
    if directory.codec is StorageCodec.UNKNOWN:
        start = display(index.keys[node].split(b"/", 1)[0])
        yield OrphanReason.UNCLAIMED, f"{index.layout.prefix}{start}", ""
        return
    prefix = f"{index.layout.prefix}{directory.path}/"
    if index.without_crd(directory) and not index.crd_unreadable(directory):
        yield OrphanReason.CRD_GONE, prefix, ""
    if namespace and directory.namespaced and index.stored(f"namespaces/{namespace}") is None:
        yield OrphanReason.NAMESPACE_GONE, f"{prefix}{namespace}/", namespace
    if node in gone:
        yield gone[node], prefix, ""


def _group(
    index: ImpactIndex, reason: OrphanReason, prefix: str, namespace: str, nodes: list[int]
) -> OrphanGroup:
    nodes.sort(key=index.keys.__getitem__)
    # An aggregated API server may keep its objects in the same etcd, without any CRD.
    doubtful = reason is OrphanReason.CRD_GONE or bool(index.problems)
    return OrphanGroup(
        reason,
        prefix,
        namespace,
        len(nodes),
        sum(map(index.sizes.__getitem__, nodes)),
        tuple(display(index.key(node)) for node in nodes[:_MOST_EXAMPLES]),
        Confidence.LIKELY if doubtful else Confidence.CERTAIN,
    )
