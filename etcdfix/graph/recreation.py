"""Who makes a broken object again, as far as what is readable around it proves.

Somebody deletes what he is told comes back: what is not proven is called "by hand". Who makes what stands in
``recreation_rules.toml``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterator, Mapping
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import Annotated, Any, Final, NamedTuple

import msgspec

from etcdfix.examine.verdicts.examination import Examination
from etcdfix.graph.fields import Plain, at, mapping
from etcdfix.graph.index import ImpactIndex
from etcdfix.graph.kinds import relative_key
from etcdfix.graph.model import Assessment
from etcdfix.graph.uses import SECRETS, TOKEN_LIST
from etcdfix.model.model import Confidence, Outcome
from etcdfix.text.safetext import safe_text

Text = Annotated[str, msgspec.Meta(min_length=1)]


class ComesBack(StrEnum):
    """Whether an object is there again after its deletion."""

    BY_ITSELF = "by-itself"
    AFTER_A_STEP = "after-a-step"
    NOT_NEEDED = "not-needed"
    NO = "no"


class Maker(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Somebody who makes objects.

    Attributes:
        name: As people call it.
        how: What a person has to do or know, one sentence; "" for nothing.
        openshift: Exists in a cluster of OpenShift only.
        source: Id of where that is written.
    """

    name: Text
    comes_back: ComesBack
    how: str = ""
    openshift: bool = False
    source: str = ""


class Row(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a row of the file says of one directory.

    Attributes:
        path: Directory of the objects below the storage prefix; "" for all.
        source: Id of where that is written.
        recreated_by: Id of the maker; "" for nobody.
        why: Nobody's making such an object again would help: why.
    """

    path: str = ""
    source: Text
    recreated_by: str = ""
    why: str = ""


class OwnerRule(Row, frozen=True, kw_only=True):
    """A kind of owner, and a directory of what its controller makes."""

    group: str = ""
    kind: Text
    makes: Text


class SpecCondition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A field of a custom resource that has one of these values or, where ``absent``, is not there."""

    field: Text
    values: tuple[str | bool, ...] = ()
    absent: bool = False


class SpecRule(Row, frozen=True, kw_only=True):
    """A kind of custom resource whose spec names the Secret that its controller writes.

    Attributes:
        field: Path of the field with the Secret's name, ``[]`` after a list; "" for the resource's own name.
        own_name: Where the field is empty, the Secret has the resource's own name.
        when: The controller creates the Secret only where all of these hold.
        namespace: Field that says where the Secret is; "" for the resource's own namespace.
    """

    field: str = ""
    own_name: bool = False
    when: tuple[SpecCondition, ...] = ()
    namespace: str = ""


class OwnershipLabel(Row, frozen=True, kw_only=True):
    """A label or annotation that says who made an object.

    Attributes:
        value: Of the label, "" for any. Values of annotations are not known.
        paths: Directories of the objects on which it says so; empty for all.
    """

    name: Text
    value: str = ""
    paths: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return f"{self.name}={self.value}" if self.value else self.name


class NameRule(Row, frozen=True, kw_only=True):
    """Names that somebody uses.

    Attributes:
        names: Exactly these.
        pattern: Or what matches the whole name.
        namespace: Only there; "" for anywhere.
        counterpart: Key below the storage prefix of the object that explains the name. ``{name}`` stands for the
            pattern's first group, ``{namespace}`` for the object's own. Without that object the rule does not count.
        beside: Keys of objects that only a cluster with such a maker has: without any of them the rule does not count.
        type: Of the Secrets that are called like that; a known other one speaks against it.
        owned: Such objects have an owner reference: one that is known to have none was made by somebody else.
    """

    names: frozenset[str] = frozenset()
    pattern: str = ""
    namespace: str = ""
    counterpart: str = ""
    beside: tuple[str, ...] = ()
    type: str = ""
    owned: bool = False

    def part_of(self, name: str) -> str | None:
        """Return the part of a name that is another object's, "" for none; None for a name that does not fit."""
        match = _compiled(self.pattern).fullmatch(name) if self.pattern else None
        if match is None:
            return "" if name in self.names else None
        return match[1] if match.re.groups else ""


_compiled = cache(re.compile)


class Rules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file; its own comments say what holds for each list."""

    openshift_signs: tuple[str, ...]
    serving_certificate: tuple[str, ...]
    never: tuple[Row, ...]
    sole_writers: tuple[Row, ...]
    owners: tuple[OwnerRule, ...]
    specs: tuple[SpecRule, ...]
    labels: tuple[OwnershipLabel, ...]
    names: tuple[NameRule, ...]
    makers: dict[str, Maker]
    sources: dict[str, Text]


RULES: Final = msgspec.toml.decode(
    files(__package__).joinpath("recreation_rules.toml").read_bytes(), type=Rules
)
MAKERS: Final = RULES.makers
TOKEN_TYPE: Final = "kubernetes.io/service-account-token"  # noqa: S105 - no password
_BY_HAND: Final = Maker("by hand", ComesBack.NO)
_NEVER: Final = {rule.path: rule.why for rule in RULES.never}
_SOLE_WRITERS: Final = {rule.path: MAKERS[rule.recreated_by] for rule in RULES.sole_writers}
_OWNERS: Final = {(rule.group, rule.kind, rule.makes): MAKERS[rule.recreated_by] for rule in RULES.owners}
_SPECS: Final = {rule.path: rule for rule in RULES.specs}
_LONGEST_NAME: Final = 120
_SERVICES: Final = "services/specs"
_ENDPOINTS: Final = "services/endpoints"
_SLICES: Final = "endpointslices"


class Recreation(msgspec.Struct, frozen=True):
    """Who makes an object again.

    Attributes:
        recreated_by: Who; the name is ``by hand`` where nobody is known to. Safe for a terminal.
        confidence: ``certain`` or ``likely``; None for ``by hand``.
        basis: Why that is thought, in a clause; "" for ``by hand``. Safe for a terminal.
    """

    recreated_by: Maker
    confidence: Confidence | None = None
    basis: str = ""


class Claim(NamedTuple):
    """A spec by which a controller makes a Secret, or the endpoints of a Service.

    Attributes:
        namespace: Of the object that is made.
        wanted: Name of the Secret, or what :func:`endpoints_of` returns.
        maker: Id of who makes it.
        by: The object with the spec, as text.
    """

    namespace: str
    wanted: str
    maker: str
    by: str


def marks_of(labels: Mapping[str, object], annotations: Container[str], path: str) -> dict[str, str]:
    """Return the labels and annotations that say who made an object, what says most first, with ids of makers."""
    found = {}
    for label in RULES.labels:
        there = label.name in labels or label.name in annotations
        fits = labels.get(label.name) == label.value if label.value else there
        if fits and (not label.paths or path in label.paths):
            found[str(label)] = label.recreated_by
    return found


def shown(text: str) -> str:
    """Return text out of an object at a length that fits a line, and safe for a terminal."""
    safe = safe_text(text[: _LONGEST_NAME + 1])
    return safe if len(safe) <= _LONGEST_NAME else f"{safe[:_LONGEST_NAME]}…"


def who_recreates(index: ImpactIndex, node: int, assessment: Assessment) -> Recreation:
    """Return who makes an object again: the first that is certain, else the first that is likely."""
    path = index.place(node)[0].path
    if path in _NEVER:
        return Recreation(msgspec.structs.replace(_BY_HAND, how=_NEVER[path]))
    openshift = any(index.stored(key) is not None for key in RULES.openshift_signs)
    candidates = _candidates(index, node, assessment)
    found = [one for one in candidates if openshift or not one.recreated_by.openshift]
    certain = (one for one in found if one.confidence is Confidence.CERTAIN)
    return next(certain, found[0] if found else Recreation(_BY_HAND))


def _candidates(index: ImpactIndex, node: int, assessment: Assessment) -> Iterator[Recreation]:
    path = index.place(node)[0].path
    if path in _SOLE_WRITERS:
        yield from _by_names(index, node, assessment)
        yield Recreation(
            _SOLE_WRITERS[path], Confidence.LIKELY, f"nobody else writes {assessment.object.resource}"
        )
        return
    yield from _by_owners(index, path, assessment)
    yield from _by_claims(index, path, assessment)
    for mark, maker in assessment.last_known.marks.items():
        yield Recreation(MAKERS[maker], Confidence.LIKELY, f"it was marked {mark}")
    if path == SECRETS:
        yield from _by_token(assessment)
    yield from _by_names(index, node, assessment)


def _by_owners(index: ImpactIndex, path: str, assessment: Assessment) -> Iterator[Recreation]:
    for owner in assessment.last_known.owners:
        directory, _ = index.kinds.of_owner(owner.api_version, owner.kind)
        maker = _OWNERS.get((directory.group, owner.kind, path)) if directory is not None else None
        if directory is None or maker is None or not owner.controller:
            continue
        node = index.stored(relative_key(directory, assessment.object.namespace, owner.name))
        if node is not None and index.uid(node) == owner.uid and not index.terminating_since(node):
            basis = f"owned by {shown(owner.kind)} {shown(owner.name)}, which is there"
            yield Recreation(maker, Confidence.CERTAIN, basis)


def _by_claims(index: ImpactIndex, path: str, assessment: Assessment) -> Iterator[Recreation]:
    name, namespace = assessment.object.name, assessment.object.namespace
    if path == SECRETS:
        claimed = index.claims.get((namespace, name))
        if claimed is not None:
            yield Recreation(MAKERS[claimed.maker], Confidence.CERTAIN, f"named by {shown(claimed.by)}")
    elif path in (_ENDPOINTS, _SLICES):
        # A slice that had no owner was made by a person, beside those of the controller.
        service = name if path == _ENDPOINTS else name.rpartition("-")[0]
        claimed = index.claims.get((namespace, endpoints_of(service)))
        if claimed is not None and not (path == _SLICES and assessment.last_known.revision):
            yield Recreation(MAKERS[claimed.maker], Confidence.LIKELY, f"kept for {shown(claimed.by)}")


def _by_token(assessment: Assessment) -> Iterator[Recreation]:
    known, maker = assessment.last_known, MAKERS["token-controller"]
    if known.type == TOKEN_TYPE:
        of = f" of ServiceAccount {shown(known.token_of)}" if known.token_of else ""
        yield Recreation(maker, Confidence.CERTAIN, f"it was a token{of}")
    for user in assessment.users if not known.revision else ():
        account = user.object.name
        if user.path == TOKEN_LIST and assessment.object.name.startswith(f"{account}-token-"):
            yield Recreation(
                maker, Confidence.LIKELY, f"a token of ServiceAccount {shown(account)}, by its list"
            )


def _by_names(index: ImpactIndex, node: int, assessment: Assessment) -> Iterator[Recreation]:
    ref, known, path = assessment.object, assessment.last_known, index.place(node)[0].path
    for rule in RULES.names:
        if rule.path != path or rule.namespace not in ("", ref.namespace):
            continue
        part = rule.part_of(ref.name)
        # The last readable revision may speak against it; owners that it has were asked before.
        contradicted = known.revision and (rule.owned or (rule.type and known.type != rule.type))
        if part is None or contradicted:
            continue
        basis = "by its name"
        if rule.counterpart:
            other = index.stored(rule.counterpart.format(namespace=ref.namespace, name=part))
            if other is None or index.terminating_since(other):
                continue
            if any(edge.source == other and edge.use.heuristic for edge in index.users(node)):
                continue  # the operator is told to use this one: it is the user's own
            resource = index.ref(other).full_resource
            there = "/".join(shown(text) for text in index.place(other)[1:] if text)
            basis = (
                f"it is called after {resource} {there}"
                if part
                else f"each of {index.ref(other).resource} has one"
            )
        elif rule.beside and all(index.stored(key) is None for key in rule.beside):
            continue
        yield Recreation(MAKERS[rule.recreated_by], Confidence.LIKELY, basis)


def read_claims(found: Examination, read: Callable[[Examination], Plain | None]) -> list[Claim]:
    """Return what the spec of a readable object claims; ``read`` gives all of it.

    Raises:
        KMSPending: Only while plugins defer, and not for a value whose key they have just given.
    """
    path, namespace, name = found.directory.path, found.namespace, found.name
    rule = _SPECS.get(path)
    if found.verdict.outcome is not Outcome.READABLE or (rule is None and path != _SERVICES):
        return []
    whole = read(found)
    if whole is None:
        return []
    if rule is not None:
        by = f"{found.directory.resource}.{found.directory.group} {name}"
        secrets = claimed_secrets(rule, namespace, name, whole)
        return [Claim(*secret, rule.recreated_by, by) for secret in secrets]
    claims = []
    # The controllers keep the endpoints of a Service that has a selector and is no mere alias.
    if mapping(at(whole, "spec.selector")) and at(whole, "spec.type") != "ExternalName":
        by = f"services {name}, which has a selector"
        claims.append(Claim(namespace, endpoints_of(name), "controller-manager", by))
    annotations = mapping(at(whole, "metadata.annotations"))
    for annotation in RULES.serving_certificate:
        value = annotations.get(annotation)
        if isinstance(value, str) and value:
            claims.append(Claim(namespace, value, "openshift-service-ca", f"services {name}"))
    return claims


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
