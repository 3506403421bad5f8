"""What became of the objects of a rescue, as it is published."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from etcdfix.apiserver.fleet import Absent
from etcdfix.apiserver.memory import Memory, Remembered
from etcdfix.model import GroupResource
from etcdfix.operations.look.rescue_targets import Target
from etcdfix.reports.rescue_model import Rescued, RescuedObject, RescueKind, RescueServer
from etcdfix.rescued import Fit, SavedObject
from etcdfix.storagekey import display
from etcdfix.text.safetext import key_base64
from etcdfix.text.words import counted


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one object; the words of :class:`RescuedObject`."""

    state: Rescued
    saved: SavedObject | None = None
    detail: str = ""


def absent_server(absent: Absent) -> RescueServer:
    """Return a server that could not be asked."""
    return RescueServer(server=absent.server, asked=False, detail=absent.why)


def fit_now(saved: SavedObject, target: Target) -> Fit:
    """Return how a saved object stands to the mod revision of this report, which may be newer than the one it had."""
    return msgspec.structs.replace(saved, mod_revision=target.mod_revision).fit


_DENIED: Final = frozenset({Memory.DENIED, Memory.UNKNOWN_USER, Memory.OTHER_OBJECT})
_EMPTY: Final = frozenset({Memory.NOT_HELD, Memory.CACHE_LOST, Memory.READ_ERROR, Memory.NOT_SERVED})


def without_any(said: Sequence[tuple[str, Remembered]]) -> Outcome:
    """Return what it means that no server gave an object: the most hopeful of what they said."""
    words = {found.word for _server, found in said}
    state = Rescued.NOT_HELD
    if words - _DENIED - _EMPTY:
        state = Rescued.NOT_ASKED
    elif words & _DENIED:
        state = Rescued.REFUSED
    detail = "; ".join(f"{server}: {found.detail or found.word.value}" for server, found in said)
    return Outcome(state=state, detail=detail)


def published_object(target: Target, outcome: Outcome) -> RescuedObject:
    """Return one object with what became of it."""
    saved = outcome.saved
    return RescuedObject(
        key=display(target.key),
        key_base64=key_base64(target.key),
        group=target.thing.group,
        resource=target.thing.resource,
        namespace=target.thing.namespace,
        name=target.thing.name,
        state=outcome.state,
        mod_revision=target.mod_revision,
        resource_version=saved.resource_version if saved is not None else "",
        fit=fit_now(saved, target) if saved is not None else Fit.UNKNOWN,
        file=saved.file if saved is not None else "",
        sha256=saved.sha256 if saved is not None else "",
        server=saved.server if saved is not None else "",
        detail=outcome.detail,
    )


def counts_by_kind(objects: Iterable[RescuedObject]) -> list[RescueKind]:
    """Return the objects of each resource, counted."""
    counts: dict[GroupResource, Counter[str]] = {}
    for one in objects:
        count = counts.setdefault(GroupResource(one.group, one.resource), Counter())
        count["objects"] += 1
        count[one.state.replace("-", "_")] += 1
        count["older"] += one.fit is Fit.OLDER
    return [
        RescueKind(group=resource.group, resource=resource.resource, **count)
        for resource, count in counts.items()
    ]


def reasons_of(kinds: Iterable[RescueKind]) -> Iterator[str]:
    """Yield why not everything is saved as etcd has it, one clause each."""
    for kind in kinds:
        name = GroupResource(kind.group, kind.resource)
        for count, what in (
            (kind.not_held, "not in the memory of any server that could be asked"),
            (kind.refused, "refused"),
            (kind.not_asked, "not asked for to the end: may still be held, run again"),
            (kind.older, "saved in an older state than etcd has"),
        ):
            if count:
                yield f"{count} of {counted(kind.objects, 'object')} of {name} {what}"
