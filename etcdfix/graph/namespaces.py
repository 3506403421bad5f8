"""Why a namespace cannot finish deleting, and in which order its contents go.

The namespace controller deletes pods first, waits until they are gone, then everything else (KEP-5080). An object
that cannot be read fails the LIST of its type in every namespace, once the API server's cache of the type is lost: as
the controller asks for every type that there is, no namespace of the cluster finishes, not even an empty one. A pod
that cannot be read makes the pods' step fail, and then the rest is deleted while pods may still run.

A pod that is bound to a node goes only when its kubelet has ended it. Where the Node object is gone too, the pod
garbage collector forces the pod away within a minute; where the Node is there and its kubelet is not, nobody does.

Source: Kubernetes ``pkg/controller/namespace/deletion/namespaced_resources_deleter.go``,
``status_condition_utils.go``; KEP-5080.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain
from typing import Final

import msgspec

from etcdfix.graph.collector import collect
from etcdfix.graph.index import FOREGROUND_FINALIZER, ImpactIndex, NamespaceDetails
from etcdfix.graph.model import (
    Blocker,
    Condition,
    CyclicWait,
    DeletionStage,
    ObjectRef,
    Propagation,
    ResourceContent,
    Stays,
    WebhookHold,
)
from etcdfix.graph.owners import OF_THE_COLLECTOR
from etcdfix.graph.tables import FINISHED, FOREGROUND, OPAQUE, READY, encoded
from etcdfix.graph.uses import Role
from etcdfix.graph.webhooks import service_problem, webhook_holds
from etcdfix.model.storagekey import ResourcePrefix, StorageLayout, builtin_directories

_PODS: Final = "pods"
_API_SERVICES: Final = "apiregistration.k8s.io/apiservices"
_NAMESPACES: Final = "namespaces"
_KUBERNETES: Final = "kubernetes"
_CLAIM_PROTECTION: Final = "kubernetes.io/pvc-protection"
_MOST_NAMED: Final = 100


class NamespaceState(msgspec.Struct, frozen=True):
    """Everything that is known about the end of a namespace.

    Attributes:
        exists: Null where its key was not seen, and not everything was.
        phase: As stored; "" where it is not known.
        contents: What it holds, by resource; ``stages``: in which order that goes.
        order_lost: A pod cannot be read: the rest is deleted while pods may still run.
        frozen: The Namespace object itself fails the LIST of its type: no namespace of the cluster is processed.
        missing_apis: With the reason. The first ``unavailable_apis`` fail discovery, which holds every namespace of the
            cluster, the next ``unknown_apis`` may; the others have objects here and no readable CRD.
        elsewhere: Objects of namespaced types, and Namespaces, outside of it that cannot be read or judged, and so hold
            every namespace: the first hundred of ``elsewhere_count``.
        left_behind: How many objects in it stay stored although it finishes: no API serves them.
        judged: Whether its object can be read, or is proven broken.
        certain: Whether what holds it does so for certain; False where none of it could be judged.
        webhooks: Of one that is being deleted: the webhooks that hold it, or may, and that nobody answers.
    """

    name: str
    object: ObjectRef
    exists: bool | None
    readable: bool
    terminating_since: str | None
    phase: str
    conditions: tuple[Condition, ...]
    spec_finalizers: tuple[str, ...]
    finalizers: tuple[str, ...]
    contents: tuple[ResourceContent, ...]
    stages: tuple[DeletionStage, ...]
    order_lost: bool
    frozen: bool
    cycles: tuple[CyclicWait, ...]
    missing_apis: dict[str, str]
    elsewhere: tuple[Blocker, ...] = ()
    elsewhere_count: int = 0
    unavailable_apis: int = 0
    left_behind: int = 0
    unknown_apis: int = 0
    judged: bool = True
    certain: bool = True
    webhooks: tuple[WebhookHold, ...] = ()

    @property
    def held(self) -> bool:
        """Whether anything that is known keeps it from finishing, or would."""
        inside = any(stage.blocker_count for stage in self.stages)
        outside = self.elsewhere or self.unavailable_apis or self.webhooks
        return bool(self.own_finalizers or inside or outside) or self.frozen

    @property
    def problems(self) -> tuple[Condition, ...]:
        """The conditions that report a problem."""
        return tuple(condition for condition in self.conditions if condition.problem)

    @property
    def own_finalizers(self) -> tuple[str, ...]:
        """Its finalizers of both kinds that are not the namespace controller's own."""
        return (*self.finalizers, *(token for token in self.spec_finalizers if token != _KUBERNETES))

    @property
    def terminating(self) -> bool:
        """Whether it is being deleted."""
        return bool(self.terminating_since) or self.phase == "Terminating"

    @property
    def blockers(self) -> tuple[Blocker, ...]:
        """What blocks it, in the order of the stages, the first hundred of each."""
        return tuple(blocker for stage in self.stages for blocker in stage.blockers)


def namespace_state(
    index: ImpactIndex,
    name: str,
    *,
    aggregated: Collection[str] = (),
    now: str = "",
    without: Collection[int] = (),
) -> NamespaceState | None:
    """Return what keeps a namespace; None where neither its object nor anything in it was seen.

    Args:
        index: Of the cluster.
        name: Of the namespace.
        aggregated: API groups that belong to aggregated API servers.
        now: RFC 3339, UTC; tells which pods are past their grace period. "" for all that were marked for deletion.
        without: Nodes that count as gone.
    """
    found = index.find(namespace_key(index.layout, name))
    inside = [node for node in contents_of(index, name) if node not in without]
    exists = found is not None and index.exists(found) and found not in without
    if not exists and not inside:
        return None
    details = index.namespaces.get(found) if found is not None else None
    details = details or NamespaceDetails("", (), ())
    unreadable = exists and found is not None and index.unreadable(found)
    blind = {
        path: left
        for path, nodes in index.unlistable.items()
        if (left := [n for n in nodes if n not in without])
    }
    blockers = _blockers(index, inside, now)
    broken = _broken(index, inside)
    elsewhere = _broken(index, _elsewhere(index, blind, name))
    frozen = unreadable and found is not None and not index.serves_empty(found)
    since = index.terminating_since(found) if found is not None else ""
    ends = bool(since) or details.phase == "Terminating"
    webhooks = webhook_holds(index, name, inside, aggregated) if ends else ()
    webhooks = tuple(hold for hold in webhooks if index.find(hold.configuration.raw_key) not in without)
    held = {resource for hold in webhooks if hold.certain for resource in hold.resources}
    contents = _contents(index, inside, aggregated, blockers, blind, held, processed=not frozen)
    apis = {
        api: reason
        for api, reason in _unavailable_apis(index).items()
        if index.node(f"{_API_SERVICES}/{api}") not in without
    }
    unknown = _unknown_apis(index, blind.get(_API_SERVICES, ()))
    judged = not unreadable or (found is not None and index.lost(found))
    state = NamespaceState(
        name=name,
        object=index.ref_of(namespace_key(index.layout, name)),
        exists=exists or (None if index.problems else False),
        readable=exists and not unreadable,
        terminating_since=since or None,
        phase=details.phase,
        conditions=details.conditions,
        spec_finalizers=details.spec_finalizers,
        finalizers=index.finalizers(found) if found is not None else (),
        contents=contents,
        stages=_stages(index, contents, broken, blockers),
        order_lost=_PODS in blind,
        frozen=frozen,
        cycles=_cyclic_waits(index, inside),
        missing_apis=apis | unknown | _missing_apis(contents),
        elsewhere=_named(index, elsewhere),
        elsewhere_count=len(elsewhere),
        unavailable_apis=len(apis),
        left_behind=sum(c.count for c in contents if c.stays == Stays.NOT_SERVED),
        unknown_apis=len(unknown),
        judged=judged,
        webhooks=webhooks,
    )
    reasons = {one.reason for one in blockers} | {reason for _, reason in chain(broken, elsewhere)}
    return msgspec.structs.replace(state, certain=_is_certain(state, reasons))


def _is_certain(state: NamespaceState, reasons: set[str]) -> bool:
    """Tell whether a namespace is held even if the API servers can read all that could not be judged here."""
    if any(hold.certain for hold in state.webhooks):
        return True
    if state.judged and "undetermined" not in reasons and not state.webhooks:
        return True
    if state.terminating and (state.own_finalizers or state.problems or "finalizers" in reasons):
        return True
    broken = reasons - {"undetermined", "finalizers"}
    return bool(broken or state.unavailable_apis or (state.frozen and state.judged))


def freed_by(index: ImpactIndex, removed: int) -> tuple[NamespaceState, ...]:
    """Return the namespaces that are being deleted and that finish once an object is gone, as they are then."""
    directory, namespace, _ = index.place(removed)
    of_namespaces = directory.namespaced is not False or directory.path == _NAMESPACES
    everywhere = of_namespaces and not index.serves_empty(removed)
    found: list[NamespaceState] = []
    for ref in terminating_namespaces(index)[:_MOST_NAMED]:
        if everywhere or ref.name == namespace:
            after = namespace_state(index, ref.name, without={removed})
            if after is not None and after.elsewhere:
                return tuple(found)  # so it is for all of them
            if after is not None and after.exists and not after.held:
                found.append(after)
    return tuple(found)


def _elsewhere(index: ImpactIndex, blind: Mapping[str, Iterable[int]], name: str) -> Iterator[int]:
    for path, nodes in blind.items():
        for node in nodes:
            directory, namespace, own = index.place(node)
            if (
                own != name
                if path == _NAMESPACES
                else directory.namespaced is not False and namespace != name
            ):
                yield node


def _broken(index: ImpactIndex, nodes: Iterable[int]) -> list[tuple[int, str]]:
    """Return those that cannot be read, with the reason: pods first, since without them the order is lost."""
    found = []
    for node in filter(index.unreadable, nodes):
        reason = "serves-empty" if index.serves_empty(node) else "unreadable"
        reason = reason if index.lost(node) else "undetermined"
        not_pod = index.place(node)[0].path != _PODS
        found.append((not_pod, reason != "unreadable", index.relative(node), node, reason))
    return [(node, reason) for *_, node, reason in sorted(found)]


def _named(index: ImpactIndex, broken: list[tuple[int, str]]) -> tuple[Blocker, ...]:
    """Return those that are named: there may be many more, of which the number is enough."""
    return tuple(Blocker(index.ref(node), reason) for node, reason in broken[:_MOST_NAMED])


def namespace_key(layout: StorageLayout, name: str) -> bytes:
    """Return the key of a Namespace object."""
    return layout.path(f"namespaces/{name}")


def contents_of(index: ImpactIndex, namespace: str) -> list[int]:
    """Return the nodes of everything that lives in a namespace, in the order of their keys."""
    part = b"/" + encoded(namespace) + b"/"
    # Most keys are ruled out without taking them apart.
    near = [node for node in index.nodes() if part in index.relative(node)]
    return sorted((node for node in near if index.place(node)[1] == namespace), key=index.relative)


def terminating_namespaces(index: ImpactIndex) -> tuple[ObjectRef, ...]:
    """Return the namespaces that are being deleted, as far as their objects can be read."""
    return tuple(
        index.ref(node)
        for node, details in sorted(index.namespaces.items(), key=lambda item: index.relative(item[0]))
        if details.phase == "Terminating" or index.terminating_since(node)
    )


def _contents(
    index: ImpactIndex,
    inside: Iterable[int],
    aggregated: Collection[str],
    blockers: list[Blocker],
    blind: Collection[str],
    held: Collection[str],
    *,
    processed: bool,
) -> tuple[ResourceContent, ...]:
    # Recorded: an object of another namespace that cannot be read keeps the namespace, and its pods, but nothing else.
    pods_stay = _PODS not in blind and (_PODS in held or any(_is_pod(b.object) for b in blockers))
    contents = []
    for directory, nodes in index.by_directory(inside):
        served = is_served(index, directory, aggregated)
        broken = [node for node in nodes if index.unreadable(node)]
        blind_here = directory.path == _PODS and _PODS in blind
        unlistable = blind_here or not all(map(index.serves_empty, broken))
        stays = _stays(index, directory, served=served, unlistable=unlistable, pods_stay=pods_stay)
        if not stays and str(directory.group_resource) in held:
            stays = Stays.WEBHOOK
        stays = stays if processed else Stays.NOT_PROCESSED
        foreign = index.without_crd(directory) and directory.group in aggregated
        group, resource = directory.group, directory.resource
        contents.append(ResourceContent(group, resource, len(nodes), len(broken), served, foreign, stays))
    return tuple(contents)


def _stays(
    index: ImpactIndex, directory: ResourcePrefix, *, served: bool | None, unlistable: bool, pods_stay: bool
) -> str:
    """Return why the objects of a resource stay, "" for those that go: all but pods waits for these."""
    if index.crd_unreadable(directory):
        return Stays.CRD_UNREADABLE
    if served is False:
        return Stays.NOT_SERVED
    if unlistable:
        return Stays.NOT_LISTED
    return Stays.PODS_FIRST if pods_stay and directory.path != _PODS else ""


def is_served(index: ImpactIndex, directory: ResourcePrefix, aggregated: Collection[str]) -> bool | None:
    """Tell whether an API serves a resource; None where its CRD was not seen and not everything was."""
    if not index.without_crd(directory) or directory.group in aggregated:
        return True
    if index.problems and not index.crd_unreadable(directory):
        return None
    return False


def _blockers(index: ImpactIndex, inside: Iterable[int], now: str) -> list[Blocker]:
    blockers = []
    for node in inside:
        if index.unreadable(node):
            continue
        finalizers, since = index.finalizers(node), index.terminating_since(node)
        runs_on = index.node_of(node) if index.place(node)[0].path == _PODS else None
        state = node_state(index, runs_on) if runs_on is not None else None
        past = bool(since) and runs_on is not None and (not now or since < now)
        left = runs_on is not None and not index.flags[node] & FINISHED and (past or state != "ready")
        held = bool(set(finalizers) - OF_THE_COLLECTOR)
        if left or past or held or (since and finalizers and _waits_for_dependents(index, node)):
            blockers.append(
                Blocker(
                    index.ref(node),
                    "node" if left or past else "finalizers",
                    finalizers=finalizers,
                    terminating_since=since or None,
                    node=index.place(runs_on)[2] if runs_on is not None else None,
                    node_state=state,
                    past_grace=past,
                )
            )
    return blockers


def _waits_for_dependents(index: ImpactIndex, node: int) -> bool:
    """Tell whether an object whose finalizers are the garbage collector's own is kept all the same.

    Only of one that was marked for deletion: the namespace controller deletes with Background, which takes them off.
    """
    flags = index.flags[node]
    how = Propagation.FOREGROUND if flags & FOREGROUND else Propagation.ORPHAN
    played = collect(index, node, by_api=how)
    return bool(played.stays or played.uncertain)


def node_state(index: ImpactIndex, node: int) -> str:
    """Return what its Node object says of a pod's kubelet."""
    if not index.exists(node):
        return "unknown" if index.problems else "absent"
    if index.unreadable(node) or index.flags[node] & OPAQUE:
        return "unknown"
    return "ready" if index.flags[node] & READY else "not-ready"


def _stages(
    index: ImpactIndex,
    contents: tuple[ResourceContent, ...],
    broken: list[tuple[int, str]],
    blockers: list[Blocker],
) -> tuple[DeletionStage, ...]:
    held = sorted(blockers, key=lambda b: (not b.past_grace, b.reason != "node"))
    pods, rest = ([b for b in held if _is_pod(b.object) is pod] for pod in (True, False))
    plan = (
        ("unreadable", any(c.unreadable for c in contents), _named(index, broken), len(broken)),
        ("pods", any(_is_pod(c) for c in contents), tuple(pods[:_MOST_NAMED]), len(pods)),
        ("rest", not all(_is_pod(c) for c in contents), tuple(rest[:_MOST_NAMED]), len(rest)),
        ("namespace", True, (), 0),
    )
    return tuple(DeletionStage(name, waits, count) for name, there, waits, count in plan if there)


def _cyclic_waits(index: ImpactIndex, inside: Iterable[int]) -> tuple[CyclicWait, ...]:
    """Return the pods that wait for a dependent which goes after the pods only, or cannot be read."""
    found = []
    for pod in inside:
        if index.place(pod)[0].path != _PODS or FOREGROUND_FINALIZER not in index.finalizers(pod):
            continue
        for node in index.dependents(pod):
            blocks = any(owner.node == pod and owner.blocks for owner in index.owners(node))
            waits = _CLAIM_PROTECTION in index.finalizers(node) and any(
                edge.source == pod and edge.use.role in {Role.CLAIM, Role.EPHEMERAL_CLAIM}
                for edge in index.users(node)
            )
            if blocks and index.place(node)[0].path != _PODS and (waits or index.unreadable(node)):
                found.append(CyclicWait(index.ref(pod), index.ref(node), FOREGROUND_FINALIZER))
    return tuple(found[:_MOST_NAMED])


def _is_pod(ref: ObjectRef | ResourceContent) -> bool:
    return (ref.group, ref.resource) == ("", _PODS)


def _unavailable_apis(index: ImpactIndex) -> dict[str, str]:
    """Return the APIs that do not answer, with the reason: an APIService says so, or its Service is not stored."""
    found = {
        index.place(node)[2]: f"its Service {service} does not exist"
        for node, service in index.api_services.items()
        if service_problem(index, service) == ("missing", True)
    }
    for api, why in index.unavailable_apis.items():
        found[api] = f"{why}: {found[api]}" if api in found else why
    return dict(sorted(found.items()))


def _unknown_apis(index: ImpactIndex, unreadable: Iterable[int]) -> dict[str, str]:
    """Return the APIs whose APIServices cannot be read; those that every API server serves itself answer anyhow."""
    built_in = {directory.group for directory in builtin_directories()}
    names = [index.place(node)[2] for node in unreadable]
    why = "its APIService cannot be read or judged, so whether it answers is not known"
    return {name: why for name in names if name.partition(".")[2] not in built_in}


def _missing_apis(contents: tuple[ResourceContent, ...]) -> dict[str, str]:
    reasons: dict[str, str] = {
        Stays.CRD_UNREADABLE: "its CustomResourceDefinition cannot be read: API servers that run may still serve its "
        "objects, after a restart none does, and they are left behind",
        Stays.NOT_SERVED: "no CustomResourceDefinition: its objects are left behind when the namespace goes",
    }
    found = {f"{content.resource}.{content.group}": reasons.get(content.stays) for content in contents}
    return {api: reason for api, reason in found.items() if reason is not None}
