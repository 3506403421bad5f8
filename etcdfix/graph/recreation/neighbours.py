"""What stands around broken objects: whose labels their readable siblings have, and which specs name them.

Gathered while everything is examined once. Labels, names of annotations, names of Secrets and of Services are kept,
nothing else.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from etcdfix.graph.contents import ContentReader
from etcdfix.graph.fields import Plain, at, mapping
from etcdfix.graph.recreation.rules import MAKERS, RULES, Maker, OwnershipLabel, SpecRule, labels_of
from etcdfix.model import Outcome
from etcdfix.verdicts.examination import Examination

_MOST_SIBLINGS: Final = 300
_MOST_CLAIMS: Final = 200_000
_SPECS: Final = {rule.path: rule for rule in RULES.specs}
_SERVICES: Final = "services/specs"
_FEW: Final = 3
_NEARLY_ALL: Final = 0.8
_SHORTEST_STEM: Final = 4
_RANDOM_END: Final = re.compile(r"(?:[-.][0-9a-z]{5}|[-.]?[0-9]+)$")


class Place(NamedTuple):
    """Objects of one resource in one namespace."""

    path: str
    namespace: str


class Sibling(NamedTuple):
    """A readable object beside a broken one; ``label`` is None where it has none that says who made it."""

    name: str
    label: OwnershipLabel | None


class Claimed(NamedTuple):
    """A spec by which a controller makes a Secret, or endpoints; ``by`` is the object, as text."""

    recreated_by: Maker
    by: str


class Neighbours:
    """Looks into readable objects beside the broken ones.

    Args:
        reader: Looks into them.
        places: Where broken objects are.
    """

    def __init__(self, reader: ContentReader, places: set[Place]) -> None:
        self._reader = reader
        self._siblings: dict[Place, list[Sibling]] = {place: [] for place in places}
        self._namespaces = {place.namespace for place in places}
        self._claims: dict[tuple[str, str], Claimed] = {}

    def take(self, found: Examination) -> None:
        """Look at one examined value.

        Raises:
            KMSPending: Only while plugins defer, and not for a value whose key they have just given.
        """
        if found.namespace not in self._namespaces or found.verdict.outcome is not Outcome.READABLE:
            return
        path = found.directory.path
        siblings = self._siblings.get(Place(path, found.namespace))
        wanted = siblings is not None and len(siblings) < _MOST_SIBLINGS
        rule = _SPECS.get(path)
        if not wanted and rule is None and path != _SERVICES:
            return
        whole = self._reader.whole(found)
        if whole is None:
            return
        labels, annotations = _labels(whole)
        if siblings is not None and wanted:
            label = next(labels_of(labels, tuple(annotations), path), None)
            siblings.append(Sibling(found.name, label))
        if len(self._claims) >= _MOST_CLAIMS:
            return
        if rule is not None:
            by = f"{found.directory.resource}.{found.directory.group} {found.name}"
            for secret in claimed_secrets(rule, found.namespace, found.name, whole):
                self._claims[secret] = Claimed(MAKERS[rule.recreated_by], by)
        elif path == _SERVICES:
            if selects(whole):
                by = f"services {found.name}, which has a selector"
                claimed = Claimed(MAKERS["controller-manager"], by)
                self._claims[found.namespace, endpoints_of(found.name)] = claimed
            for annotation in RULES.serving_certificate:
                value = annotations.get(annotation)
                if isinstance(value, str) and value:
                    claimed = Claimed(MAKERS["openshift-service-ca"], f"services {found.name}")
                    self._claims[found.namespace, value] = claimed

    def claim(self, namespace: str, wanted: str) -> Claimed | None:
        """Return the spec by which a controller makes a Secret, or what :func:`endpoints_of` stands for."""
        return self._claims.get((namespace, wanted))

    def like(self, place: Place, name: str) -> Sibling | None:
        """Return a labelled sibling that is called alike: one random or counted ending apart."""
        stem = _stem(name)
        if len(stem) < _SHORTEST_STEM:
            return None
        return next(
            (s for s in self._siblings.get(place, ()) if s.label is not None and _stem(s.name) == stem),
            None,
        )

    def ruler(self, place: Place) -> tuple[Maker, int, int] | None:
        """Return who has labelled nearly all readable siblings, how many, and of how many."""
        siblings = self._siblings.get(place, [])
        counts = Counter(s.label.recreated_by for s in siblings if s.label is not None)
        for maker, count in counts.most_common(1):
            if count >= max(_FEW, _NEARLY_ALL * len(siblings)):
                return MAKERS[maker], count, len(siblings)
        return None


def _stem(name: str) -> str:
    return _RANDOM_END.sub("", name)


def _labels(whole: Plain) -> tuple[dict[str, str], dict[str, Any]]:
    labels = mapping(at(whole, "metadata.labels"))
    return {str(k): str(v) for k, v in labels.items()}, mapping(at(whole, "metadata.annotations"))


def claimed_secrets(
    rule: SpecRule, namespace: str, name: str, whole: dict[str, Any]
) -> list[tuple[str, str]]:
    """Return namespace and name of each Secret that a custom resource's controller creates; none once it is deleted.

    Args:
        rule: Of its kind.
        namespace: Of the custom resource.
        name: Of the custom resource.
        whole: The custom resource.
    """
    if next(values_at(whole, "metadata.deletionTimestamp"), None) is not None:
        return []
    for condition in rule.when:
        found = list(values_at(whole, condition.field))
        if any(item not in condition.values for item in found) or not (found or condition.absent):
            return []
    if rule.namespace:
        namespace = next(_texts(whole, rule.namespace), "")
    names = list(_texts(whole, rule.field)) if rule.field else []
    if not names and rule.own_name:
        names = [name]
    return [(namespace, secret) for secret in names] if namespace else []


def endpoints_of(service: str) -> str:
    """Return the name under which a Service with a selector claims its endpoints; no Secret is called like that."""
    return f"endpoints/{service}"


def selects(service: dict[str, Any]) -> bool:
    """Tell whether the controllers keep the endpoints of a Service: it has a selector, and is no mere alias."""
    return bool(mapping(at(service, "spec.selector"))) and at(service, "spec.type") != "ExternalName"


def values_at(value: Any, path: str) -> Iterator[Any]:
    """Yield what stands at a path of fields, ``[]`` for every element; nothing where there is no such field."""
    name, _, rest = path.partition(".")
    found = value.get(name.removesuffix("[]")) if isinstance(value, dict) else None
    for item in found if name.endswith("[]") and isinstance(found, list) else [found]:
        if rest:
            yield from values_at(item, rest)
        elif item is not None:
            yield item


def _texts(value: Any, path: str) -> Iterator[str]:
    return (item for item in values_at(value, path) if isinstance(item, str) and item)
