"""Who makes which objects again once they are gone: what the rows of ``recreation_rules.toml`` mean."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Mapping
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import Annotated, Final

import msgspec

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
        comes_back: Whether that happens without a person.
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
    """What every row has.

    Attributes:
        source: Id of where that is written.
        recreated_by: Id of the maker; "" for nobody.
    """

    source: Text
    recreated_by: str = ""


class NeverRule(Row, frozen=True, kw_only=True):
    """A directory of what stands for data, and why nobody's making it again would help."""

    path: Text
    why: Text


class ResourceRule(Row, frozen=True, kw_only=True):
    """A resource that one party alone writes."""

    group: str = ""
    resource: Text


class OwnerRule(Row, frozen=True, kw_only=True):
    """A kind of owner, and a directory of what its controller makes."""

    group: str = ""
    kind: Text
    makes: Text


class Condition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A field of a custom resource that has one of these values or, where ``absent``, is not there."""

    field: Text
    values: tuple[str | bool, ...] = ()
    absent: bool = False


class SpecRule(Row, frozen=True, kw_only=True):
    """A kind of custom resource whose spec names the Secret that its controller writes.

    Attributes:
        path: Directory below the storage prefix.
        field: Path of the field with the Secret's name, ``[]`` after a list; "" for the resource's own name.
        own_name: Where the field is empty, the Secret has the resource's own name.
        when: The controller creates the Secret only where all of these hold.
        namespace: Field that says where the Secret is; "" for the resource's own namespace.
    """

    path: Text
    field: str = ""
    own_name: bool = False
    when: tuple[Condition, ...] = ()
    namespace: str = ""


class OwnershipLabel(Row, frozen=True, kw_only=True):
    """A label or annotation that says who made an object.

    Attributes:
        name: Of the label or annotation.
        value: Of the label, "" for any. Values of annotations are not known.
        paths: Directories of the objects on which it says so; empty for all.
    """

    name: Text
    value: str = ""
    paths: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return f"{self.name}={self.value}" if self.value else self.name


@cache
def _whole(pattern: str) -> Callable[[str], re.Match[str] | None]:
    return re.compile(pattern).fullmatch


class NameRule(Row, frozen=True, kw_only=True):
    """Names that somebody uses.

    Attributes:
        path: Directory of the object.
        names: Exactly these.
        pattern: Or what matches the whole name.
        namespace: Only there; "" for anywhere.
        counterpart: Key below the storage prefix of the object that explains the name. ``{name}`` stands for the
            pattern's first group, ``{namespace}`` for the object's own. Without that object the rule does not count.
        beside: Keys of objects that only a cluster with such a maker has: without any of them the rule does not count.
        type: Of the Secrets that are called like that; a known other one speaks against it.
        owned: Such objects have an owner reference: one that is known to have none was made by somebody else.
    """

    path: Text
    names: frozenset[str] = frozenset()
    pattern: str = ""
    namespace: str = ""
    counterpart: str = ""
    beside: tuple[str, ...] = ()
    type: str = ""
    owned: bool = False

    def part_of(self, name: str) -> str | None:
        """Return the part of a name that is another object's, "" for none; None for a name that does not fit."""
        match = _whole(self.pattern)(name) if self.pattern else None
        if match is None:
            return "" if name in self.names else None
        return match[1] if match.re.groups else ""


class Rules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file; its own comments say what holds for each list."""

    openshift_signs: tuple[str, ...]
    serving_certificate: tuple[str, ...]
    never: tuple[NeverRule, ...]
    sole_writers: tuple[ResourceRule, ...]
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


def marks_of(labels: Mapping[str, object], annotations: Container[str], path: str) -> dict[str, str]:
    """Return the labels and annotations that say who made an object, what says most first, with ids of makers."""
    found = {}
    for label in RULES.labels:
        there = label.name in labels or label.name in annotations
        fits = labels.get(label.name) == label.value if label.value else there
        if fits and (not label.paths or path in label.paths):
            found[str(label)] = label.recreated_by
    return found
