"""Which objects a rescue asks API servers for: what a saved report names unreadable, and keys that a person names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import msgspec

from etcdfix.apiserver.objects import APIObject
from etcdfix.errors import ConfigurationError
from etcdfix.model import GroupResource
from etcdfix.report.saved_report import ReportedFinding, SavedReport
from etcdfix.storagekey import NO_OBJECTS, StorageLayout, api_path, display
from etcdfix.verdicts.deletability import FAILED, KMS_DOUBTS

_NO_OBJECT: Final = "no-object-of-the-api"
_NO_NAME: Final = "no-request-can-name-it"
_WHY: Final = {
    _NO_OBJECT: "it holds no object of the API",
    _NO_NAME: "no request to an API server can name it",
}


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """One object to ask for.

    Attributes:
        thing: As a request names it; its version is "" where only the server can tell.
        kind: That it must be; "" where only a CRD can tell.
        mod_revision: Of the etcd key, by the report; 0 where none says it.
        alike: Values of one report that fail alike have the same.
    """

    key: bytes
    thing: APIObject
    kind: str
    mod_revision: int = 0
    alike: tuple[str, ...] = ()

    @property
    def resource(self) -> GroupResource:
        """Group and plural resource."""
        return GroupResource(self.thing.group, self.thing.resource)


class Targets(msgspec.Struct, frozen=True, kw_only=True):
    """What to ask for.

    Attributes:
        left_out: How many of the report are no matter for a rescue, by outcome or by why nobody can ask for them.
    """

    objects: tuple[Target, ...]
    left_out: dict[str, int]


def targets_of(report: SavedReport | None, keys: Sequence[bytes], etcd_prefix: str) -> Targets:
    """Return the unreadable objects of a report; where keys are named, those, and the report's of the same kinds.

    Of the storage prefixes, that of a report counts.

    One look at an object is all that its kind may have left: so nobody saves a part of a kind by mistake.

    Raises:
        ConfigurationError: A key holds no object of the API, or nothing is left to ask for.
    """
    layout = StorageLayout(report.scope.etcd_prefix if report is not None else etcd_prefix)
    found: dict[bytes, Target] = {}
    left_out: Counter[str] = Counter()
    reported = report.findings if report is not None else {}
    for key in keys:
        target, why = _target(layout, key, reported.get(key))
        if target is None:
            raise ConfigurationError(
                f"{display(key)}: {_WHY[why]}",
                hint="name the complete etcd key of one object; --etcd-prefix where it is not /registry",
            )
        found[key] = target
    kinds = {target.resource for target in found.values()}
    for key, value in reported.items():
        target, why = _target(layout, key, value)
        if target is not None and kinds and target.resource not in kinds:
            continue
        if value.outcome not in FAILED and value.cause not in KMS_DOUBTS:
            left_out[value.outcome] += 1
        elif target is None:
            left_out[why] += 1
        else:
            found[key] = target
    if not found:
        named = ", ".join(f"{count} {outcome}" for outcome, count in sorted(left_out.items()))
        raise ConfigurationError(
            f"the report names no object that API servers could be asked for ({named or 'nothing is unreadable'})",
            hint="a rescue is for objects that cannot be read: decrypt-failure, decode-failure",
        )
    return Targets(objects=tuple(found[key] for key in sorted(found)), left_out=dict(left_out))


def _target(layout: StorageLayout, key: bytes, value: ReportedFinding | None) -> tuple[Target | None, str]:
    """Return what to ask for, or the word for why nobody can."""
    directory, shared = layout.locate(key)
    where = layout.split(key, directory, shared, namespaced=directory.namespaced)
    if directory.codec in NO_OBJECTS:
        return None, _NO_OBJECT
    thing = APIObject(directory.group, directory.version, directory.resource, where.namespace, where.name)
    nameable = api_path(thing.group, thing.version or "v1", thing.resource, thing.namespace, thing.name)
    if not where.well_formed or not nameable:
        return None, _NO_NAME
    resource = str(GroupResource(thing.group, thing.resource))
    # Of a key that no report names, nothing is known: each is looked at by itself.
    alike = (
        (resource, display(key))
        if value is None
        else (resource, value.outcome, value.transformer, value.rule or "")
    )
    revision = value.mod_revision if value is not None else 0
    return Target(key=key, thing=thing, kind=directory.kind, mod_revision=revision, alike=alike), ""
