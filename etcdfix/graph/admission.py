"""Admission webhooks: what their configurations say of which requests they are asked, and by which Service.

Source: Kubernetes ``apiserver/pkg/admission/plugin/webhook/predicates`` (rules, namespace and object selectors).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from etcdfix.graph.fields import Plain, at, items, mapping, text
from etcdfix.storagekey import ResourcePrefix

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
