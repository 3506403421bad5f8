"""Webhooks that hold a namespace which is being deleted: nobody answers them.

Every deletion in a namespace asks the admission webhooks that match it, and every read of a custom resource in another
version than the stored one asks the conversion webhook of its definition. Where the Service of such a webhook is gone,
the request fails, and the namespace controller tries in vain until somebody helps.

Source: Kubernetes ``apiserver/pkg/util/webhook/serviceresolver.go`` (a Service that is not there is an error);
``apiextensions-apiserver/pkg/apiserver/conversion`` (nothing is asked where the versions are equal).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Final, NamedTuple

from etcdfix.graph.admission import Webhook
from etcdfix.graph.index import ImpactIndex, NamespaceDetails
from etcdfix.graph.model import ObjectRef, WebhookHold
from etcdfix.graph.tables import OTHER_VERSION, encoded
from etcdfix.storagekey import CRD_PATH, ResourcePrefix

_ITSELF: Final = ResourcePrefix("namespaces", "", "namespaces", "Namespace", namespaced=False, version="v1")
_ENDPOINTS: Final = ("endpointslices", "services/endpoints")


class _Group(NamedTuple):
    directory: ResourcePrefix
    nodes: list[int]
    version: str
    aggregated: bool


def webhook_holds(
    index: ImpactIndex, namespace: str, inside: Iterable[int], aggregated: Collection[str]
) -> tuple[WebhookHold, ...]:
    """Return the webhooks that hold the deletion of a namespace, or may, and that nobody answers."""
    node = index.node(f"namespaces/{namespace}")
    details = index.namespaces.get(node) if node is not None else None
    if details is None:
        return ()
    groups = []
    for directory, nodes in index.by_directory(inside):
        if not index.without_crd(directory):
            definition = index.kinds.definition(directory)
            version = definition.preferred_version if definition is not None else directory.version
            groups.append(_Group(directory, nodes, version, directory.group in aggregated))
    told = " ".join(condition.message for condition in details.conditions if condition.problem)
    return (
        *_conversions(index, namespace, groups, told),
        *_admissions(index, namespace, details, groups, told),
    )


def service_problem(index: ImpactIndex, service: str) -> tuple[str, bool]:
    """Return why nobody answers for a Service, and whether that is certain; ("", True) where somebody does.

    ``missing``: it is not stored; ``not-ready``: none of its endpoints is ready; ``terminating``: its namespace is
    being deleted, and its pods go first.
    """
    node = index.node(f"services/specs/{service}")
    if node is None or not index.exists(node):
        return "missing", not index.problems
    namespace = service.partition("/")[0]
    own = index.node(f"namespaces/{namespace}")
    details = index.namespaces.get(own) if own is not None else None
    ends = details is not None and (details.phase == "Terminating" or bool(index.terminating_since(own or 0)))
    if service in index.endpoints.values():
        return ("terminating", False) if ends else ("", True)
    if service == "default/kubernetes":  # the API server itself answers for it
        return "", True
    judged = not index.problems and not any(path in index.unlistable for path in _ENDPOINTS)
    return "not-ready", ends and judged


def _conversions(
    index: ImpactIndex, namespace: str, groups: Iterable[_Group], told: str
) -> Iterator[WebhookHold]:
    here = {group.directory.path: group for group in groups}
    for directory, nodes in index.by_directory(
        node for node, flags in enumerate(index.flags) if flags & OTHER_VERSION
    ):
        definition = index.kinds.definition(directory)
        if definition is None or directory.namespaced is False:
            continue
        if not definition.webhook_service or not definition.preferred_version:
            continue
        problem, sure = service_problem(index, definition.webhook_service)
        if not problem:
            continue
        kind = f"Kind={definition.kind} failed"
        reported = f"conversion webhook for {definition.group}/" in told and kind in told
        own = [node for node in nodes if index.place(node)[1] == namespace]
        yield WebhookHold(
            configuration=index.ref_of(_key(index, f"{CRD_PATH}/{definition.plural}.{definition.group}")),
            webhook="",
            position=0,
            service=_service(index, definition.webhook_service),
            problem=problem,
            certain=reported or (sure and bool(own)),
            resources=(f"{definition.plural}.{definition.group}",) if directory.path in here and own else (),
            count=len(own),
            elsewhere=len(nodes) - len(own),
        )


def _admissions(
    index: ImpactIndex, namespace: str, details: NamespaceDetails, groups: list[_Group], told: str
) -> Iterator[WebhookHold]:
    for node, webhooks in sorted(index.webhooks.items(), key=lambda item: index.relative(item[0])):
        for webhook in webhooks:
            if not webhook.selects(namespace, details.labels):
                continue
            problem, sure = service_problem(index, webhook.service)
            if not problem:
                continue
            asked = list(_asked(index, webhook, groups))
            if asked:
                reported = f'failed calling webhook "{webhook.name}"' in told
                yield WebhookHold(
                    configuration=index.ref(node),
                    webhook=webhook.name,
                    position=webhook.position,
                    service=_service(index, webhook.service),
                    problem=problem,
                    certain=reported or (sure and any(known for _, _, known in asked)),
                    resources=tuple(name for name, _, _ in asked),
                    count=sum(count for _, count, _ in asked),
                )


def _asked(index: ImpactIndex, webhook: Webhook, groups: list[_Group]) -> Iterator[tuple[str, int, bool]]:
    """Yield what a webhook is asked about: resource, number of objects, and whether that is certain."""
    for group in groups:
        waits = [node for node in group.nodes if index.finalizers(node)]
        # Who takes a finalizer off updates the object.
        for operation, nodes in (("DELETE", group.nodes), ("UPDATE", waits)):
            asked = webhook.asked(operation, group.directory, group.version) if nodes else False
            if asked is not False:
                name = group.directory.resource
                full = f"{name}.{group.directory.group}" if group.directory.group else name
                yield full, len(nodes), asked is True and not group.aggregated
                break
    # The controller writes the conditions of the Namespace, and at last takes its own finalizer off.
    for subresource in ("finalize", "status"):
        asked = webhook.asked("UPDATE", _ITSELF, "v1", subresource)
        if asked is not False:
            yield f"namespaces/{subresource}", 1, asked is True
            return


def _service(index: ImpactIndex, service: str) -> ObjectRef:
    return index.ref_of(_key(index, f"services/specs/{service}"))


def _key(index: ImpactIndex, relative: str) -> bytes:
    return index.layout.prefix_bytes + encoded(relative)
