"""Who makes a broken object again, as far as what is readable around it tells.

What stands around broken objects is gathered while everything is examined once: whose labels their readable siblings
have, and which specs name them. Labels, names of annotations, names of Secrets and of Services are kept, nothing else.

Somebody deletes what he is told comes back: whatever is not proven is called possible, and then counts as by hand.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator
from typing import Any, Final, NamedTuple

import msgspec

from etcdfix.graph.contents import ContentReader
from etcdfix.graph.fields import Plain, at, mapping
from etcdfix.graph.index import ImpactIndex
from etcdfix.graph.model import BY_HAND, Assessment, LastKnown, ObjectRef, OwnerReference
from etcdfix.graph.recreation_rules import (
    MAKERS,
    RULES,
    ComesBack,
    Maker,
    NameRule,
    OwnershipLabel,
    SpecRule,
    labels_of,
)
from etcdfix.graph.users import by_role
from etcdfix.graph.uses import SECRETS, Role
from etcdfix.model import Confidence, Outcome
from etcdfix.storagekey import StorageCodec
from etcdfix.text.safetext import safe_text
from etcdfix.verdicts.examination import Examination

TOKEN_TYPE: Final = "kubernetes.io/service-account-token"  # noqa: S105 - no password
_NOBODY: Final = Maker(BY_HAND, ComesBack.NO)
_NEVER: Final = {rule.path: rule.why for rule in RULES.never}
_SOLE_WRITERS: Final = {(rule.group, rule.resource): rule.recreated_by for rule in RULES.sole_writers}
_OWNERS: Final = {(rule.group, rule.kind, rule.makes): rule.recreated_by for rule in RULES.owners}
_NAMES: Final = {
    path: [rule for rule in RULES.names if rule.path == path] for path in {rule.path for rule in RULES.names}
}
# Most names fit no rule of their path: one look tells.
_NAMED: Final = {
    path: re.compile(
        "|".join(part for rule in rules for part in (rule.pattern, *map(re.escape, rule.names)) if part)
    )
    for path, rules in _NAMES.items()
}
_TOKENS: Final = MAKERS["token-controller"]
_LONGEST_NAME: Final = 120
_ENDPOINTS: Final = "services/endpoints"
_SLICES: Final = "endpointslices"
_EARLIER: Final = "earlier-generation"
_NOT_SEEN: Final = LastKnown("", Confidence.POSSIBLE, "none")


class Recreation(msgspec.Struct, frozen=True):
    """Who makes an object again.

    Attributes:
        recreated_by: Who; the name is ``by hand`` where nobody is known to. Safe for a terminal.
        confidence: None for ``by hand``.
        basis: Why that is thought, in a clause; "" for ``by hand``. Safe for a terminal.
    """

    recreated_by: Maker
    confidence: Confidence | None = None
    basis: str = ""


def shown(text: str) -> str:
    """Return text out of an object at a length that fits a line, and safe for a terminal."""
    safe = safe_text(text[: _LONGEST_NAME + 1])
    return safe if len(safe) <= _LONGEST_NAME else f"{safe[:_LONGEST_NAME]}…"


def who_recreates(
    index: ImpactIndex, node: int, neighbours: Neighbours, assessment: Assessment
) -> Recreation:
    """Return who makes an object again.

    What can be trusted most counts. Of what can be trusted alike the order is: resources that one party alone writes,
    owners of the last readable revision, specs that name the object, its own labels as of then, tokens, names, and
    labels on its readable siblings.
    """
    reason = _NEVER.get(index.place(node)[0].path)
    if reason is not None:
        return Recreation(msgspec.structs.replace(_NOBODY, how=reason))
    found = list(_Search(index, node, neighbours, assessment).everything())
    for confidence in (Confidence.CERTAIN, Confidence.LIKELY, Confidence.POSSIBLE):
        for recreation in found:
            if recreation.confidence is confidence:
                return recreation
    return Recreation(_NOBODY)


class _Search:
    """Everything that speaks for somebody who makes one object again."""

    def __init__(
        self,
        index: ImpactIndex,
        node: int,
        neighbours: Neighbours,
        assessment: Assessment,
    ) -> None:
        self._index = index
        self._node = node
        self._neighbours = neighbours
        self._assessment = assessment
        self._ref = assessment.object
        self._path = index.place(node)[0].path
        # What the same key held before somebody deleted it and made another object is no evidence against this one.
        self._another = assessment.last_known.basis == _EARLIER
        self._seen = _NOT_SEEN if self._another else assessment.last_known

    def everything(self) -> Iterator[Recreation]:
        for recreation in self._all():
            if not recreation.recreated_by.openshift or _is_openshift(self._index):
                yield recreation

    def _all(self) -> Iterator[Recreation]:
        named = list(self._by_names())
        alone = _SOLE_WRITERS.get((self._ref.group, self._ref.resource))
        if alone is not None:
            yield from named
            yield Recreation(MAKERS[alone], Confidence.LIKELY, f"nobody else writes {self._ref.resource}")
            return
        yield from self._by_owners()
        yield from self._by_claims()
        yield from self._by_labels()
        if self._path == SECRETS:
            yield from self._by_token()
        yield from named
        yield from self._by_siblings()

    # -- owners

    def _by_owners(self) -> Iterator[Recreation]:
        for owner in self._assessment.last_known.owners:
            recreation = self._by_owner(owner)
            if recreation is not None:
                if self._another:
                    recreation = msgspec.structs.replace(recreation, confidence=Confidence.POSSIBLE)
                yield recreation

    def _by_owner(self, owner: OwnerReference) -> Recreation | None:
        directory = self._index.kinds.of_api_version(owner.api_version, owner.kind)
        group = directory.group if directory is not None else owner.api_version.rpartition("/")[0]
        maker = _OWNERS.get((group, owner.kind, self._path))
        what = f"owned by {shown(owner.kind)} {shown(owner.name)}"
        if maker is None:
            if directory is not None and directory.codec is not StorageCodec.CUSTOM_RESOURCE:
                return None  # Kubernetes' own controllers make what the table says; the rest just goes with its owner
            controller = f"controller of {shown(owner.kind)}"
            return Recreation(
                Maker(controller, ComesBack.BY_ITSELF, "if that controller keeps making it"),
                Confidence.POSSIBLE,
                what if owner.controller else f"{what}, not as its controller",
            )
        recreated_by = MAKERS[maker]
        if not owner.controller:
            return Recreation(recreated_by, Confidence.POSSIBLE, f"{what}, not as its controller")
        node = None
        if directory is not None:
            middle = f"{self._ref.namespace}/" if directory.namespaced else ""
            node = self._index.node(f"{directory.path}/{middle}{owner.name}")
        if node is None or not self._index.exists(node) or self._index.uid(node) != owner.uid:
            return Recreation(recreated_by, Confidence.POSSIBLE, f"{what}, which was not found")
        if self._index.terminating_since(node):
            return Recreation(recreated_by, Confidence.POSSIBLE, f"{what}, which is being deleted")
        return Recreation(recreated_by, Confidence.CERTAIN, f"{what}, which is there")

    # -- specs

    def _by_claims(self) -> Iterator[Recreation]:
        name, namespace = self._ref.name, self._ref.namespace
        if self._path == SECRETS:
            claimed = self._neighbours.claim(namespace, name)
            if claimed is not None:
                yield Recreation(claimed.recreated_by, Confidence.CERTAIN, f"named by {shown(claimed.by)}")
        elif self._path in (_ENDPOINTS, _SLICES):
            # A slice that had no owner was made by a person, beside those of the controller.
            service = name if self._path == _ENDPOINTS else name.rpartition("-")[0]
            claimed = self._neighbours.claim(namespace, endpoints_of(service))
            if claimed is not None and not (self._path == _SLICES and self._seen.revision):
                yield Recreation(claimed.recreated_by, Confidence.LIKELY, f"kept for {shown(claimed.by)}")

    # -- labels

    def _by_labels(self) -> Iterator[Recreation]:
        known = self._assessment.last_known
        if not known.labels and not known.annotations:
            return
        for label in labels_of(known.labels, known.annotations, self._path):
            confidence = Confidence.POSSIBLE if self._another else label.confidence
            yield Recreation(MAKERS[label.recreated_by], confidence, f"it was marked {label}")

    def _by_siblings(self) -> Iterator[Recreation]:
        place = Place(self._path, self._ref.namespace)
        sibling = self._neighbours.like(place, self._ref.name)
        if sibling is not None:
            basis = f"its sibling {shown(sibling.name)} is marked {shown(str(sibling.label))}"
            yield Recreation(MAKERS[sibling.label.recreated_by], Confidence.POSSIBLE, basis)
        ruler = self._neighbours.ruler(place)
        if ruler is not None:
            recreated_by, count, of = ruler
            basis = f"{count} of {of} readable {shown(self._ref.resource)} of its namespace are marked so"
            yield Recreation(recreated_by, Confidence.POSSIBLE, basis)

    # -- tokens

    def _by_token(self) -> Iterator[Recreation]:
        seen = self._seen
        if seen.type == TOKEN_TYPE:
            of = f" of ServiceAccount {shown(seen.token_of)}" if seen.token_of else ""
            yield Recreation(_TOKENS, Confidence.CERTAIN, f"it was a token{of}")
        users = by_role(self._assessment.users)
        if seen.revision:
            return
        for user in users.get(Role.TOKEN_LIST, ()):
            account = user.object.name
            if self._ref.name.startswith(f"{account}-token-"):
                basis = f"a token of ServiceAccount {shown(account)}, by its list"
                yield Recreation(_TOKENS, Confidence.LIKELY, basis)
            elif users.keys() == {Role.TOKEN_LIST}:
                # Such a list may name other Secrets too, but those are used by somebody else as well.
                basis = f"in the list of ServiceAccount {shown(account)}"
                yield Recreation(_TOKENS, Confidence.POSSIBLE, basis)

    # -- names

    def _by_names(self) -> Iterator[Recreation]:
        named = _NAMED.get(self._path)
        if named is None or named.fullmatch(self._ref.name) is None:
            return
        for rule in _NAMES[self._path]:
            if rule.namespace in ("", self._ref.namespace):
                recreation = self._by_rule(rule)
                if recreation is not None:
                    yield recreation

    def _by_rule(self, rule: NameRule) -> Recreation | None:
        part = rule.part_of(self._ref.name)
        if part is None or self._contradicted(rule):
            return None
        recreated_by = MAKERS[rule.recreated_by]
        if not rule.counterpart:
            if not rule.beside or any(_there(self._index, key) for key in rule.beside):
                return Recreation(recreated_by, rule.confidence, "by its name")
            return Recreation(recreated_by, Confidence.POSSIBLE, "by its name alone")
        other = self._index.node(rule.counterpart.format(namespace=self._ref.namespace, name=part))
        if other is None or not self._index.exists(other) or self._index.terminating_since(other):
            return None
        if any(edge.source == other and edge.use.heuristic for edge in self._index.users(self._node)):
            return None  # the operator is told to use this one: it is the user's own
        ref = self._index.ref(other)
        basis = f"it is called after {_short(ref)}" if part else f"each of {ref.resource} has one"
        return Recreation(recreated_by, rule.confidence, basis)

    def _contradicted(self, rule: NameRule) -> bool:
        """Tell whether the last readable revision speaks against a rule; owners that it has were asked before."""
        if not self._seen.revision:
            return False
        return rule.owned or bool(rule.type and self._seen.type != rule.type)


def _is_openshift(index: ImpactIndex) -> bool:
    return any(_there(index, key) for key in RULES.openshift_signs)


def _there(index: ImpactIndex, key: str) -> bool:
    node = index.node(key)
    return node is not None and index.exists(node)


def _short(ref: ObjectRef) -> str:
    namespace = f"{shown(ref.namespace)}/" if ref.namespace else ""
    return f"{ref.full_resource} {namespace}{shown(ref.name)}"


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
    """A readable object beside a broken one, with a label that says who made it."""

    name: str
    label: OwnershipLabel


class Siblings(msgspec.Struct):
    """The first readable objects of one place.

    Attributes:
        count: How many were looked at.
        makers: How many each maker has labelled.
        by_stem: The first labelled one of each name, its random or counted ending left out.
    """

    count: int = 0
    makers: Counter[str] = msgspec.field(default_factory=Counter)
    by_stem: dict[str, Sibling] = msgspec.field(default_factory=dict)

    def add(self, name: str, label: OwnershipLabel | None) -> None:
        """Count one more."""
        self.count += 1
        if label is not None:
            self.makers[label.recreated_by] += 1
            self.by_stem.setdefault(_stem(name), Sibling(name, label))


class Claimed(NamedTuple):
    """A spec by which a controller makes a Secret, or endpoints; ``by`` is the object, as text."""

    recreated_by: Maker
    by: str


class ClaimExtract(NamedTuple):
    """What a spec claims: namespace and name of a Secret, or what :func:`endpoints_of` stands for; and who makes it.

    Attributes:
        maker: Id of who does.
        by: The object with the spec, as text.
    """

    namespace: str
    wanted: str
    maker: str
    by: str


class NeighbourExtract(msgspec.Struct, array_like=True, gc=False):
    """What one readable object tells of broken ones beside it.

    Attributes:
        sibling: It counts as a sibling.
        label: Number of the label that says who made it, -1 for none.
        claims: What its spec claims.
    """

    sibling: bool
    label: int
    claims: list[ClaimExtract]


class NeighbourReader:
    """Looks into readable objects beside the broken ones."""

    def __init__(self, reader: ContentReader, places: Collection[Place]) -> None:
        self._reader = reader
        # More than these are not counted, wherever they are looked into.
        self._left = dict.fromkeys(places, _MOST_SIBLINGS)
        self._namespaces = {place.namespace for place in places}

    def read(self, found: Examination) -> NeighbourExtract | None:
        """Look at one value that was examined just now; return None where it tells nothing.

        Raises:
            KMSPending: Only while plugins defer, and not for a value whose key they have just given.
        """
        if found.namespace not in self._namespaces or found.verdict.outcome is not Outcome.READABLE:
            return None
        path = found.directory.path
        place = Place(path, found.namespace)
        sibling = self._left.get(place, 0) > 0
        if not sibling and path not in _SPECS and path != _SERVICES:
            return None
        whole = self._reader.whole(found)
        if whole is None:
            return None
        labels, annotations = _labels(whole)
        label = None
        if sibling:
            self._left[place] -= 1
            label = next(labels_of(labels, tuple(annotations), path), None)
        return NeighbourExtract(
            sibling,
            -1 if label is None else RULES.labels.index(label),
            list(_claims(found, whole, annotations)),
        )


def _claims(found: Examination, whole: Plain, annotations: dict[str, Any]) -> Iterator[ClaimExtract]:
    path, namespace, name = found.directory.path, found.namespace, found.name
    rule = _SPECS.get(path)
    if rule is not None:
        by = f"{found.directory.resource}.{found.directory.group} {name}"
        for secret in claimed_secrets(rule, namespace, name, whole):
            yield ClaimExtract(*secret, rule.recreated_by, by)
    elif path == _SERVICES:
        if selects(whole):
            by = f"services {name}, which has a selector"
            yield ClaimExtract(namespace, endpoints_of(name), "controller-manager", by)
        for annotation in RULES.serving_certificate:
            value = annotations.get(annotation)
            if isinstance(value, str) and value:
                yield ClaimExtract(namespace, value, "openshift-service-ca", f"services {name}")


class Neighbours:
    """What stands around the broken objects."""

    def __init__(self, places: Collection[Place]) -> None:
        self._siblings = {place: Siblings() for place in places}
        self._claims: dict[tuple[str, str], Claimed] = {}

    def absorb(self, found: Examination, extracted: NeighbourExtract | None) -> None:
        """Take in one examined value, and what :meth:`NeighbourReader.read` says of it."""
        if extracted is None:
            return
        siblings = self._siblings.get(Place(found.directory.path, found.namespace))
        if extracted.sibling and siblings is not None and siblings.count < _MOST_SIBLINGS:
            siblings.add(found.name, RULES.labels[extracted.label] if extracted.label >= 0 else None)
        if len(self._claims) < _MOST_CLAIMS:
            for claim in extracted.claims:
                self._claims[claim.namespace, claim.wanted] = Claimed(MAKERS[claim.maker], claim.by)

    def claim(self, namespace: str, wanted: str) -> Claimed | None:
        """Return the spec by which a controller makes a Secret, or what :func:`endpoints_of` stands for."""
        return self._claims.get((namespace, wanted))

    def like(self, place: Place, name: str) -> Sibling | None:
        """Return a labelled sibling that is called alike: one random or counted ending apart."""
        stem = _stem(name)
        siblings = self._siblings.get(place)
        return siblings.by_stem.get(stem) if siblings is not None and len(stem) >= _SHORTEST_STEM else None

    def ruler(self, place: Place) -> tuple[Maker, int, int] | None:
        """Return who has labelled nearly all readable siblings, how many, and of how many."""
        siblings = self._siblings.get(place)
        if siblings is None or not siblings.makers:
            return None
        for maker, count in siblings.makers.most_common(1):
            if count >= max(_FEW, _NEARLY_ALL * siblings.count):
                return MAKERS[maker], count, siblings.count
        return None


def _stem(name: str) -> str:
    return _RANDOM_END.sub("", name)


def _labels(whole: Plain) -> tuple[dict[str, str], dict[str, Any]]:
    labels = mapping(at(whole, "metadata.labels"))
    return {str(k): str(v) for k, v in labels.items()}, mapping(at(whole, "metadata.annotations"))


def claimed_secrets(
    rule: SpecRule, namespace: str, name: str, whole: dict[str, Any]
) -> list[tuple[str, str]]:
    """Return namespace and name of each Secret that a custom resource's controller creates; none once it is deleted."""
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
