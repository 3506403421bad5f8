"""Which objects a rescue asks API servers for: named keys, what does not open of a kind, or what a report names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from etcdfix.apiserver.objects import APIObject
from etcdfix.examine.in_scope import resolved, values_in
from etcdfix.examine.one import Examiner
from etcdfix.examine.verdicts.deletability import FAILED, KMS_DOUBTS
from etcdfix.model.errors import ConfigurationError
from etcdfix.model.model import GroupResource
from etcdfix.model.scope import ScopeRequest
from etcdfix.model.storagekey import NO_OBJECTS, StorageLayout, api_path, display
from etcdfix.report.saved_report import SavedReport
from etcdfix.sources.base import Source


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """One object to ask for.

    Attributes:
        thing: As a request names it; its version is "" where only the server can tell.
        kind: That it must be; "" where only a CRD can tell.
        mod_revision: Of the etcd key; 0 where nothing says it.
        alike: Values that fail alike have the same.
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


def targets_of_keys(keys: Iterable[bytes], layout: StorageLayout) -> list[Target]:
    """Return the objects of etcd keys; of their values nothing is known; raises ConfigurationError."""
    found = []
    for key in sorted({*keys}):
        # Nothing is known of its value, so it is looked at by itself.
        target = _target(layout, key, alike=(display(key),))
        if target is None:
            raise ConfigurationError(
                f"{display(key)} holds no object that a request to an API server can name",
                hint="name the complete etcd key of one object; --etcd-prefix where it is not /registry",
            )
        found.append(target)
    return found


def targets_in(source: Source, examiner: Examiner, scope: ScopeRequest) -> list[Target]:
    """Return the objects of a scope whose values do not read; raises ConfigurationError or SourceError."""
    targets = []
    for stored in values_in(source, resolved(scope, examiner, source).ranges, []):
        found = examiner.examine(stored)
        outcome = found.verdict.outcome
        if _is_wanted(outcome, found.verdict.cause):
            alike = (outcome, found.transformer, found.rule or "")
            targets.append(_target(examiner.layout, stored.key, stored.mod_revision, alike))
    return _some(targets)


def targets_of_report(report: SavedReport) -> list[Target]:
    """Return the unreadable objects of a report; raises ConfigurationError."""
    layout = StorageLayout(report.scope.etcd_prefix)
    return _some(
        _target(layout, key, value.mod_revision, (value.outcome, value.transformer, value.rule or ""))
        for key, value in report.findings.items()
        if _is_wanted(value.outcome, value.cause)
    )


def _is_wanted(outcome: str, cause: str | None) -> bool:
    return outcome in FAILED or cause in KMS_DOUBTS


def _some(targets: Iterable[Target | None]) -> list[Target]:
    found = {target.key: target for target in targets if target is not None}
    if not found:
        raise ConfigurationError(
            "no object is unreadable that API servers could be asked for",
            hint="a rescue is for decrypt-failure and decode-failure; --encryption-config FILE tells what opens",
        )
    return [found[key] for key in sorted(found)]


def _target(
    layout: StorageLayout, key: bytes, mod_revision: int = 0, alike: Sequence[str] = ()
) -> Target | None:
    """Return the object of an etcd key; None where no request can name one."""
    where = layout.split(key)
    directory = where.directory
    thing = APIObject(directory.group, directory.version, directory.resource, where.namespace, where.name)
    path = api_path(thing.group, thing.version or "v1", thing.resource, thing.namespace, thing.name)
    if directory.codec in NO_OBJECTS or not where.well_formed or not path:
        return None
    resource = str(directory.group_resource)
    return Target(
        key=key, thing=thing, kind=directory.kind, mod_revision=mod_revision, alike=(resource, *alike)
    )
