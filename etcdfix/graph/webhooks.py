"""Webhooks that may hold a namespace which is being deleted: nobody answers them.

Every deletion in a namespace asks the admission webhooks that match it, and every read of a custom resource in another
version than the stored one asks the conversion webhook of its definition. Where the Service of such a webhook is gone,
the request fails, and the namespace controller tries in vain until somebody helps.

Which requests a webhook is asked about depends on selectors and conditions that are not followed here. That a webhook
holds the namespace is certain only where the conditions of the Namespace say so.

Source: Kubernetes ``apiserver/pkg/util/webhook/serviceresolver.go`` (a Service that is not there is an error).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from etcdfix.graph.fields import Plain, at, items, mapping, text
from etcdfix.graph.index import ImpactIndex
from etcdfix.graph.model import WebhookHold
from etcdfix.model.storagekey import CRD_PATH, ResourcePrefix

_SLICE_OF: Final = "kubernetes.io/service-name"
_MOST: Final = 1000
_ASKED_BY_DELETION: Final = frozenset({"*", "DELETE", "UPDATE"})
_OF_THE_API_SERVER: Final = "default/kubernetes"


class Webhook(msgspec.Struct, frozen=True, array_like=True):
    """One admission webhook that calls a Service and refuses what the Service does not answer.

    Attributes:
        position: In its configuration, from 0.
        service: ``namespace/name``.
        asked: ``group/resource`` of what it is asked about when something is deleted or updated; ``*`` for any.
    """

    name: str
    position: int
    service: str
    asked: tuple[str, ...]

    def may_ask(self, group: str, resource: str) -> bool:
        """Tell whether a deletion of such objects may ask it."""
        return any(f"{g}/{r}" in self.asked for g in ("*", group) for r in ("*", resource))


def webhooks_of(plain: Plain) -> tuple[Webhook, ...]:
    """Return those webhooks of a configuration that call a Service and refuse what it does not answer."""
    found = []
    for position, entry in enumerate(map(mapping, items(plain.get("webhooks"))[:_MOST])):
        service = service_of(mapping(entry.get("clientConfig")))
        if service and entry.get("failurePolicy") != "Ignore":
            asked = dict.fromkeys(_asked(map(mapping, items(entry.get("rules")))))
            found.append(Webhook(text(entry.get("name")), position, service, tuple(asked)))
    return tuple(found)


def _asked(rules: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    for rule in rules:
        if not _ASKED_BY_DELETION.isdisjoint(map(text, items(rule.get("operations")))):
            for group in map(text, items(rule.get("apiGroups"))):
                yield from (
                    f"{group}/{text(name).partition('/')[0]}" for name in items(rule.get("resources"))
                )


def service_of(client: Mapping[str, Any]) -> str:
    """Return the Service that a ``clientConfig`` calls as ``namespace/name``; "" for none."""
    service = mapping(client.get("service"))
    namespace, name = text(service.get("namespace")), text(service.get("name"))
    return f"{namespace}/{name}" if namespace and name else ""


def ready_service(plain: Plain, namespace: str, name: str) -> str:
    """Return the Service, ``namespace/name``, that an EndpointSlice or Endpoints gives a ready address; "" for none."""
    for endpoint in map(mapping, items(plain.get("endpoints"))):
        # Upstream: a condition that nobody set counts as ready.
        if items(endpoint.get("addresses")) and at(endpoint, "conditions.ready") is not False:
            service = text(mapping(at(plain, "metadata.labels")).get(_SLICE_OF))
            return f"{namespace}/{service}" if service else ""
    subsets = map(mapping, items(plain.get("subsets")))
    return f"{namespace}/{name}" if any(items(subset.get("addresses")) for subset in subsets) else ""


def service_problem(index: ImpactIndex, service: str) -> str:
    """Return why nobody answers for a Service, as :attr:`~etcdfix.graph.model.WebhookHold.problem`; "" if one does."""
    if index.stored(f"services/specs/{service}") is None:
        return "missing"
    if all(said.endpoint_of != service for said in index.extracts.values()):
        return "not-ready" if service != _OF_THE_API_SERVER else ""
    namespace = index.node(f"namespaces/{service.partition('/')[0]}")
    return "terminating" if namespace is not None and index.ends(namespace) else ""


def webhook_holds(
    index: ImpactIndex, namespace: int, contents: Iterable[tuple[ResourcePrefix, list[int]]]
) -> tuple[WebhookHold, ...]:
    """Return the webhooks that hold the deletion of a namespace, or may, and that nobody answers.

    Args:
        index: Of the cluster.
        namespace: Node of the Namespace.
        contents: What is in it, by directory.
    """
    said = " ".join(one.message for one in index.details(namespace).conditions if one.problem)
    own = index.place(namespace)[0]
    inside = [(directory, len(nodes)) for directory, nodes in contents if not index.without_crd(directory)]
    found = []

    def hold(
        configuration: bytes, service: str, problem: str, asked: Sequence[tuple[str, int]], **of: Any
    ) -> None:
        names, counts = zip(*asked, strict=True)
        found.append(
            WebhookHold(
                configuration=index.ref_of(configuration),
                service=index.ref_of(index.layout.path(f"services/specs/{service}")),
                problem=problem,
                resources=tuple(names),
                count=sum(counts),
                **of,
            )
        )

    # Of a type of which no request is answered it does not matter whether objects are there: a LIST fails, too.
    counts = dict.fromkeys(index.kinds.never_answered(), 0) | dict(inside)
    for directory, count in counts.items():
        crd = index.kinds.definition(directory)
        if crd is None or not crd.webhook_service:
            continue
        problem = "no-certificate" if crd.bundle_broken else service_problem(index, crd.webhook_service)
        if problem:
            name = f"{crd.plural}.{crd.group}"
            failed = f"conversion webhook for {crd.group}/" in said and f"Kind={crd.kind} failed" in said
            key = index.layout.path(f"{CRD_PATH}/{name}")
            hold(key, crd.webhook_service, problem, [(name, count)], webhook="", position=0, certain=failed)
    configurations = [
        (node, extract.webhooks) for node, extract in index.extracts.items() if extract.webhooks
    ]
    for node, webhooks in sorted(configurations, key=lambda item: index.keys[item[0]]):
        for webhook in webhooks:
            asked = [
                (str(directory.group_resource), count)
                for directory, count in (*inside, (own, 1))
                if webhook.may_ask(directory.group, directory.resource)
            ]
            if asked and (problem := service_problem(index, webhook.service)):
                failed = f'failed calling webhook "{webhook.name}"' in said
                of = {"webhook": webhook.name, "position": webhook.position, "certain": failed}
                hold(index.key(node), webhook.service, problem, asked, **of)
    return tuple(found)
