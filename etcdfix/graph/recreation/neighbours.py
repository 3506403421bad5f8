"""What stands around broken objects: who put marks on their readable siblings, and which specs name them.

Gathered while everything is examined once. Labels, names of annotations, names of Secrets and of Services are kept,
nothing else.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

from etcdfix.graph.contents import ContentReader
from etcdfix.graph.recreation.recreators import (
    CLAIMS,
    CONTROLLER_MANAGER,
    OPENSHIFT_SERVICE_CA,
    SERVING_CERTIFICATE,
    Recreator,
    claimed_secrets,
    endpoints_of,
    recreator_of_marks,
    selects,
)
from etcdfix.model import Outcome
from etcdfix.verdicts.examination import Examination

_MOST_SIBLINGS: Final = 300
_MOST_CLAIMS: Final = 200_000
_CLAIMS_BY_PATH: Final = {claim.path: claim for claim in CLAIMS}
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
    """A readable object beside a broken one; ``recreator`` is None where nobody put a mark on it."""

    name: str
    recreator: Recreator | None
    mark: str


class Claimed(NamedTuple):
    """A spec by which a controller makes a Secret, or endpoints; ``by`` is the object, as text."""

    recreator: Recreator
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
        claim = _CLAIMS_BY_PATH.get(path)
        if not wanted and claim is None and path != _SERVICES:
            return
        whole = self._reader.whole(found)
        if whole is None:
            return
        labels, annotations = _marks(whole)
        if siblings is not None and wanted:
            owner = recreator_of_marks(labels, tuple(annotations), path)
            siblings.append(Sibling(found.name, *(owner if owner is not None else (None, ""))))
        if len(self._claims) >= _MOST_CLAIMS:
            return
        if claim is not None:
            by = f"{found.directory.resource}.{found.directory.group} {found.name}"
            for secret in claimed_secrets(claim, found.namespace, found.name, whole):
                self._claims[secret] = Claimed(claim.recreator, by)
        elif path == _SERVICES:
            if selects(whole):
                by = f"services {found.name}, which has a selector"
                self._claims[found.namespace, endpoints_of(found.name)] = Claimed(CONTROLLER_MANAGER, by)
            for annotation in SERVING_CERTIFICATE:
                value = annotations.get(annotation)
                if isinstance(value, str) and value:
                    self._claims[found.namespace, value] = Claimed(
                        OPENSHIFT_SERVICE_CA, f"services {found.name}"
                    )

    def claim(self, namespace: str, wanted: str) -> Claimed | None:
        """Return the spec by which a controller makes a Secret, or what :func:`endpoints_of` stands for."""
        return self._claims.get((namespace, wanted))

    def like(self, place: Place, name: str) -> Sibling | None:
        """Return a marked sibling that is called alike: one random or counted ending apart."""
        stem = _stem(name)
        if len(stem) < _SHORTEST_STEM:
            return None
        return next(
            (s for s in self._siblings.get(place, ()) if s.recreator is not None and _stem(s.name) == stem),
            None,
        )

    def ruler(self, place: Place) -> tuple[Recreator, int, int] | None:
        """Return who has marked nearly all readable siblings, how many, and of how many."""
        siblings = self._siblings.get(place, [])
        counts: dict[Recreator, int] = {}
        for sibling in siblings:
            if sibling.recreator is not None:
                counts[sibling.recreator] = counts.get(sibling.recreator, 0) + 1
        if not counts:
            return None
        recreator = max(counts, key=lambda r: counts[r])
        count = counts[recreator]
        return (recreator, count, len(siblings)) if count >= max(_FEW, _NEARLY_ALL * len(siblings)) else None


def _stem(name: str) -> str:
    return _RANDOM_END.sub("", name)


def _marks(whole: dict[str, Any]) -> tuple[dict[str, str], dict[str, Any]]:
    metadata = whole.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    labels, annotations = metadata.get("labels"), metadata.get("annotations")
    return (
        {str(k): str(v) for k, v in labels.items()} if isinstance(labels, dict) else {},
        annotations if isinstance(annotations, dict) else {},
    )
