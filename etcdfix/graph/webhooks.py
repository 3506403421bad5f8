"""Webhooks that hold a namespace which is being deleted: nobody answers them.

Every deletion in a namespace asks the admission webhooks that match it, and every read of a custom resource in another
version than the stored one asks the conversion webhook of its definition. Where the Service of such a webhook is gone,
the request fails, and the namespace controller tries in vain until somebody helps.

Source: Kubernetes ``apiserver/pkg/util/webhook/serviceresolver.go`` (a Service that is not there is an error);
``apiextensions-apiserver/pkg/apiserver/conversion`` (nothing is asked where the versions are equal).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from etcdfix.graph.fields import Plain, at, items, mapping, text
from etcdfix.graph.index import ImpactIndex, NamespaceDetails
from etcdfix.graph.model import ObjectRef, WebhookHold
from etcdfix.graph.tables import OTHER_VERSION, encoded
from etcdfix.model.storagekey import CRD_PATH, ResourcePrefix

_NAMESPACE_NAME: Final = "kubernetes.io/metadata.name"
_SLICE_OF: Final = "kubernetes.io/service-name"
_MOST: Final = 1000


_Flat = dict[str, str | list[str]]


class Webhook(msgspec.Struct, frozen=True, array_like=True):
    """One admission webhook that calls a Service and refuses what the Service does not answer.

    Attributes:
        position: In its configuration, from 0.
        service: ``namespace/name``.
        rules: As it states them: what it is asked about.
        labels: ``namespaceSelector.matchLabels``.
        expressions: ``namespaceSelector.matchExpressions``.
        doubtful: It asks more than that: an objectSelector, or matchConditions.
    """

    name: str
    position: int
    service: str
    rules: list[_Flat]
    labels: dict[str, str]
    expressions: list[_Flat]
    doubtful: bool

    def asked(
        self, operation: str, directory: ResourcePrefix, version: str, subresource: str = ""
    ) -> bool | None:
        """Tell whether a request is one of its rules'; None where that depends on what is not known here.

        With matchPolicy Equivalent, a rule for another version of the resource counts too.
        """
        fitting = [rule for rule in self.rules if _matches(rule, operation, directory, subresource)]
        if not fitting:
            return False
        sure = any(_has(rule, "apiVersions", version) for rule in fitting)
        return True if sure and not self.doubtful else None

    def selects(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Tell whether it is asked about a namespace with these labels."""
        known = {_NAMESPACE_NAME: namespace, **labels}
        return all(known.get(key) == value for key, value in self.labels.items()) and all(
            _fulfils(known.get(text(one.get("key"))), text(one.get("operator")), items(one.get("values")))
            for one in self.expressions
        )


def _matches(rule: Mapping[str, Any], operation: str, directory: ResourcePrefix, subresource: str) -> bool:
    plural = directory.resource
    names = [f"{plural}/{subresource}", f"{plural}/*", f"*/{subresource}"] if subresource else [plural, "*"]
    scope = "Namespaced" if directory.namespaced else "Cluster"
    return (
        _has(rule, "operations", operation)
        and _has(rule, "apiGroups", directory.group)
        and any(name in items(rule.get("resources")) for name in ("*/*", *names))
        and text(rule.get("scope")) in {"", "*", scope}
    )


def _has(rule: Mapping[str, Any], field: str, wanted: str) -> bool:
    return any(word in items(rule.get(field)) for word in ("*", wanted))


def _fulfils(value: str | None, operator: str, values: list[Any]) -> bool:
    match operator:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case _:
            return True  # no API server takes it; it selects what may be selected


def webhooks_of(plain: Plain) -> tuple[Webhook, ...]:
    """Return those webhooks of a configuration that call a Service and refuse what it does not answer."""
    found = []
    for position, entry in enumerate(map(mapping, items(plain.get("webhooks"))[:_MOST])):
        service = service_of(mapping(entry.get("clientConfig")))
        if not service or entry.get("failurePolicy") == "Ignore":
            continue
        selector = mapping(entry.get("namespaceSelector"))
        found.append(
            Webhook(
                text(entry.get("name")),
                position,
                service,
                list(map(_flat, items(entry.get("rules")))),
                labels_of(selector.get("matchLabels")),
                list(map(_flat, items(selector.get("matchExpressions")))),
                bool(mapping(entry.get("objectSelector")) or items(entry.get("matchConditions"))),
            )
        )
    return tuple(found)


def service_of(client: Mapping[str, Any]) -> str:
    """Return the Service that a ``clientConfig`` calls as ``namespace/name``; "" for none."""
    service = mapping(client.get("service"))
    namespace, name = text(service.get("namespace")), text(service.get("name"))
    return f"{namespace}/{name}" if namespace and name else ""


def labels_of(value: Any) -> dict[str, str]:
    """Return labels, those that are text."""
    return {key: label for key, label in mapping(value).items() if type(label) is str}


def ready_service(plain: Plain, namespace: str, name: str) -> str:
    """Return the Service, ``namespace/name``, that an EndpointSlice or Endpoints gives a ready address; "" for none."""
    for endpoint in map(mapping, items(plain.get("endpoints"))):
        # Upstream: a condition that nobody set counts as ready.
        if items(endpoint.get("addresses")) and at(endpoint, "conditions.ready") is not False:
            service = text(mapping(at(plain, "metadata.labels")).get(_SLICE_OF))
            return f"{namespace}/{service}" if service else ""
    subsets = map(mapping, items(plain.get("subsets")))
    return f"{namespace}/{name}" if any(items(subset.get("addresses")) for subset in subsets) else ""


def _flat(entry: Any) -> _Flat:
    """Return the fields that are texts or lists of texts: how deep others go is anybody's guess."""
    return {
        key: value if type(value) is str else [word for word in items(value) if type(word) is str]
        for key, value in mapping(entry).items()
    }


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
    return index.layout.path(encoded(relative))
