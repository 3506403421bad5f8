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

from collections.abc import Collection, Iterable
from typing import Final

import msgspec

from etcdfix.graph.collector import collect
from etcdfix.graph.index import (
    FINISHED,
    FOREGROUND,
    OPAQUE,
    READY,
    ImpactIndex,
)
from etcdfix.graph.model import (
    Blocker,
    Condition,
    DeletionStage,
    ObjectRef,
    Propagation,
    ResourceContent,
    Stays,
    WebhookHold,
)
from etcdfix.graph.owners import OF_THE_COLLECTOR
from etcdfix.graph.webhooks import service_problem, webhook_holds
from etcdfix.model.storagekey import ResourcePrefix, StorageLayout, builtin_directories

PODS: Final = "pods"
_API_SERVICES: Final = "apiregistration.k8s.io/apiservices"
_NAMESPACES: Final = "namespaces"
_MOST_NAMED: Final = 100
_UNKNOWN_API: Final = "its APIService cannot be read or judged, so whether it answers is not known"


class NamespaceState(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is known about the end of a namespace.

    Attributes:
        exists: Null where its key was not seen, and not everything was.
        judged: Its object can be read, or is proven broken.
        phase: As stored; "" where it is not known.
        contents: What it holds, by resource; ``stages``: what has to go, in the order in which it goes.
        order_lost: A pod cannot be read: the rest is deleted while pods may still run.
        frozen: The Namespace object itself fails the LIST of its type: no namespace of the cluster is processed.
        unavailable_apis: APIs that fail discovery, which holds every namespace of the cluster, each with the reason.
        unknown_apis: APIs that may.
        webhooks: Of one that is being deleted: the webhooks that hold it, or may, and that nobody answers.
        certain: Whether what holds it does so for certain; False where none of it could be judged.
    """

    name: str
    object: ObjectRef
    exists: bool | None
    readable: bool
    judged: bool
    terminating_since: str | None
    phase: str
    conditions: tuple[Condition, ...]
    spec_finalizers: tuple[str, ...]
    finalizers: tuple[str, ...]
    contents: tuple[ResourceContent, ...]
    stages: tuple[DeletionStage, ...]
    order_lost: bool
    frozen: bool
    unavailable_apis: dict[str, str]
    unknown_apis: dict[str, str]
    webhooks: tuple[WebhookHold, ...] = ()
    certain: bool = True

    def stage(self, name: str) -> DeletionStage:
        """Return one stage."""
        return next(stage for stage in self.stages if stage.name == name)

    @property
    def blockers(self) -> tuple[Blocker, ...]:
        """What blocks it, in the order of the stages, the first hundred of each."""
        return tuple(blocker for stage in self.stages for blocker in stage.blockers)

    @property
    def held(self) -> bool:
        """Whether anything that is known keeps it from finishing, or would."""
        return (
            bool(self.own_finalizers or self.blockers or self.unavailable_apis or self.webhooks)
            or self.frozen
        )

    @property
    def problems(self) -> tuple[Condition, ...]:
        """The conditions that report a problem."""
        return tuple(condition for condition in self.conditions if condition.problem)

    @property
    def own_finalizers(self) -> tuple[str, ...]:
        """Its finalizers of both kinds that are not the namespace controller's own."""
        return (*self.finalizers, *(token for token in self.spec_finalizers if token != "kubernetes"))  # noqa: S105

    @property
    def terminating(self) -> bool:
        """Whether it is being deleted."""
        return bool(self.terminating_since) or self.phase == "Terminating"

    def count(self, stays: Stays) -> int:
        """Return how many objects in it stay for one reason."""
        return sum(content.count for content in self.contents if content.stays == stays)


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
    key = namespace_key(index.layout, name)
    own = index.find(key)
    if own is not None and (own in without or not index.exists(own)):
        own = None
    inside = [node for node in index.inside(name) if node not in without]
    if own is None and not inside:
        return None
    details = index.details(own)
    unreadable = own is not None and index.unreadable(own)
    frozen = unreadable and own is not None and not index.serves_empty(own)
    blind = {
        path: left
        for path, nodes in index.unlistable.items()
        if (left := [n for n in nodes if n not in without])
    }
    directories = index.by_directory(inside)
    webhooks = webhook_holds(index, own, directories) if own is not None and index.ends(own) else ()
    webhooks = tuple(hold for hold in webhooks if index.find(hold.configuration.raw_key) not in without)
    # What no API serves, the controller does not see: it holds nothing, and is left behind (recorded).
    unserved = {
        directory.path
        for directory, _ in directories
        if is_served(index, directory, aggregated) is False and not index.crd_unreadable(directory)
    }
    seen = [node for directory, nodes in directories if directory.path not in unserved for node in nodes]
    held = [blocker for node in seen if (blocker := _held(index, node, now)) is not None]
    broken = [_unreadable(index, node) for node in seen if index.unreadable(node)]
    elsewhere = [
        _unreadable(index, node)
        for path, nodes in blind.items()
        for node in nodes
        if _holds(index, path, node, name)
    ]
    resources = {resource for hold in webhooks if hold.certain for resource in hold.resources}
    # Recorded: an object of another namespace that cannot be read keeps the namespace, and its pods, but nothing else.
    pods_stay = PODS not in blind and (PODS in resources or any(_is_pod(blocker) for blocker in held))
    contents = []
    for directory, nodes in directories:
        failing = any(index.unreadable(node) and not index.serves_empty(node) for node in nodes)
        stays: Stays | None = None
        if frozen:
            stays = Stays.NOT_PROCESSED
        elif index.crd_unreadable(directory):
            stays = Stays.CRD_UNREADABLE
        elif directory.path in unserved:
            stays = Stays.NOT_SERVED
        elif failing or (directory.path == PODS and PODS in blind):
            stays = Stays.NOT_LISTED
        elif pods_stay and directory.path != PODS:
            stays = Stays.PODS_FIRST
        elif str(directory.group_resource) in resources:
            stays = Stays.WEBHOOK
        contents.append(ResourceContent(directory.group, directory.resource, len(nodes), stays))
    built_in = {directory.group for directory in builtin_directories()}
    unknown = [index.place(node)[2] for node in blind.get(_API_SERVICES, ())]
    state = NamespaceState(
        name=name,
        object=index.ref_of(key),
        exists=own is not None or (None if index.problems else False),
        readable=own is not None and not unreadable,
        judged=not unreadable or (own is not None and index.lost(own)),
        terminating_since=(index.terminating_since(own) if own is not None else "") or None,
        phase=details.phase,
        conditions=details.conditions,
        spec_finalizers=details.spec_finalizers,
        finalizers=index.finalizers(own) if own is not None else (),
        contents=tuple(contents),
        stages=(
            _stage("elsewhere", elsewhere),
            _stage("unreadable", broken),
            _stage("pods", filter(_is_pod, held)),
            _stage("rest", (blocker for blocker in held if not _is_pod(blocker))),
        ),
        order_lost=PODS in blind,
        frozen=frozen,
        unavailable_apis=_unavailable_apis(index, without),
        # Those that every API server serves itself answer anyhow.
        unknown_apis={api: _UNKNOWN_API for api in unknown if api.partition(".")[2] not in built_in},
        webhooks=webhooks,
    )
    return msgspec.structs.replace(
        state, certain=_is_certain(state, {one.reason for one in (*broken, *elsewhere)})
    )


def _is_certain(state: NamespaceState, unreadable: Collection[str]) -> bool:
    """Tell whether a namespace is held even if the API servers can read all that could not be judged here."""
    if state.judged and "undetermined" not in unreadable and not state.webhooks:
        return True
    finalizers = any(blocker.reason == "finalizers" for blocker in state.blockers)
    if state.terminating and (state.own_finalizers or state.problems or finalizers):
        return True
    nodes = any(blocker.reason == "node" for blocker in state.blockers)
    broken = set(unreadable) - {"undetermined"}
    return bool(broken or nodes or state.unavailable_apis or (state.frozen and state.judged))


def freed_by(index: ImpactIndex, removed: int) -> tuple[NamespaceState, ...]:
    """Return the namespaces that are being deleted and that finish once an object is gone, as they are then."""
    directory, namespace, _ = index.place(removed)
    of_namespaces = directory.namespaced is not False or directory.path == _NAMESPACES
    everywhere = of_namespaces and not index.serves_empty(removed)
    found: list[NamespaceState] = []
    for ref in terminating_namespaces(index)[:_MOST_NAMED]:
        if everywhere or ref.name == namespace:
            after = namespace_state(index, ref.name, without={removed})
            if after is not None and after.stage("elsewhere").blockers:
                break  # so it is for all of them
            if after is not None and after.exists and not after.held:
                found.append(after)
    return tuple(found)


def namespace_key(layout: StorageLayout, name: str) -> bytes:
    """Return the key of a Namespace object."""
    return layout.path(f"{_NAMESPACES}/{name}")


def terminating_namespaces(index: ImpactIndex) -> tuple[ObjectRef, ...]:
    """Return the namespaces that are being deleted, as far as their objects can be read."""
    found = [node for node, said in index.extracts.items() if said.namespace is not None and index.ends(node)]
    return tuple(index.ref(node) for node in sorted(found, key=index.keys.__getitem__))


def is_served(index: ImpactIndex, directory: ResourcePrefix, aggregated: Collection[str]) -> bool | None:
    """Tell whether an API serves a resource; None where its CRD was not seen and not everything was."""
    if not index.without_crd(directory) or directory.group in aggregated:
        return True
    return None if index.problems and not index.crd_unreadable(directory) else False


def _holds(index: ImpactIndex, path: str, node: int, name: str) -> bool:
    """Tell whether an object that fails its LIST is outside of a namespace, and of a type that holds namespaces."""
    directory, namespace, own = index.place(node)
    return own != name if path == _NAMESPACES else directory.namespaced is not False and namespace != name


def _unreadable(index: ImpactIndex, node: int) -> Blocker:
    reason = "serves-empty" if index.serves_empty(node) else "unreadable"
    return Blocker(index.ref(node), reason if index.lost(node) else "undetermined")


def _held(index: ImpactIndex, node: int, now: str) -> Blocker | None:
    """Return what keeps a readable object from going: its finalizers, or its node; None for nothing."""
    if index.unreadable(node):
        return None
    finalizers, since = index.finalizers(node), index.terminating_since(node)
    runs_on = index.node_of(node) if index.place(node)[0].path == PODS else None
    state = node_state(index, runs_on) if runs_on is not None else None
    past = bool(since) and runs_on is not None and (not now or since < now)
    of_node = past or (runs_on is not None and not index.flags[node] & FINISHED and state != "ready")
    waits = set(finalizers) - OF_THE_COLLECTOR or (
        since and finalizers and _waits_for_dependents(index, node)
    )
    if not of_node and not waits:
        return None
    return Blocker(
        index.ref(node),
        "node" if of_node else "finalizers",
        finalizers=finalizers,
        terminating_since=since or None,
        node=index.place(runs_on)[2] if runs_on is not None else None,
        node_state=state,
        past_grace=past,
    )


def _waits_for_dependents(index: ImpactIndex, node: int) -> bool:
    """Tell whether an object whose finalizers are the garbage collector's own is kept all the same.

    Only of one that was marked for deletion: the namespace controller deletes with Background, which takes them off.
    """
    foreground = index.flags[node] & FOREGROUND
    played = collect(index, node, by_api=Propagation.FOREGROUND if foreground else Propagation.ORPHAN)
    return bool(played.stays or played.uncertain)


def node_state(index: ImpactIndex, node: int) -> str:
    """Return what its Node object says of a pod's kubelet."""
    if not index.exists(node):
        return "unknown" if index.problems else "absent"
    if index.unreadable(node) or index.flags[node] & OPAQUE:
        return "unknown"
    return "ready" if index.flags[node] & READY else "not-ready"


def _stage(name: str, blockers: Iterable[Blocker]) -> DeletionStage:
    def weight(blocker: Blocker) -> tuple[bool, bool, bool]:
        proven = blocker.reason in {"unreadable", "node"}
        return not blocker.past_grace, not _is_pod(blocker), not proven

    found = sorted(blockers, key=weight)
    return DeletionStage(name, tuple(found[:_MOST_NAMED]), len(found))


def _is_pod(blocker: Blocker) -> bool:
    return (blocker.object.group, blocker.object.resource) == ("", PODS)


def _unavailable_apis(index: ImpactIndex, without: Collection[int]) -> dict[str, str]:
    """Return the APIs that do not answer, with the reason: an APIService says so, or its Service is not stored."""
    found = {}
    for node, said in index.extracts.items():
        if (said.service or said.unavailable is not None) and node not in without:
            lost = said.service and not index.problems and service_problem(index, said.service) == "missing"
            reasons = (said.unavailable, f"its Service {said.service} does not exist" if lost else "")
            found[index.place(node)[2]] = ": ".join(filter(None, reasons))
    return {name: why for name, why in sorted(found.items()) if why}
