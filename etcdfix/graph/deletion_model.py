"""What a deletion through the API is forecast to do, as it is published (``etcdfix/v1``)."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from etcdfix.graph.model import ObjectRef, Propagation


class HeldBy(StrEnum):
    """What holds up objects that are being deleted."""

    FINALIZER = "finalizer"
    KUBELET = "kubelet"
    CONTENTS = "contents"
    UNREADABLE_OBJECTS = "unreadable-objects"
    NOT_NOTICED = "not-noticed"
    OWNER_UNKNOWN = "owner-unknown"
    OWNER_INVALID = "owner-invalid"
    RING = "ring"


class DeletionResult(StrEnum):
    """What becomes of the object itself."""

    GONE = "gone"
    TERMINATING = "terminating"
    NOT_TOLD = "cannot-be-told"
    REFUSED = "refused"


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that holds objects up, alike for all of them.

    Attributes:
        held_by: ``finalizer``; ``kubelet``: a pod that it has to end; ``contents`` of a Namespace or of a
            CustomResourceDefinition; ``unreadable-objects``: such contents, which no API deletes; ``not-noticed``: the
            collector does not see the deletion while the type cannot be listed; of dependents that block an owner:
            ``owner-unknown``: the collector cannot look up one of their owners; ``owner-invalid``: it never acts upon
            them; ``ring`` of owner references.
        name: The finalizer; "" for others.
        ended_by: Who ends it; "" where that is not known, or nobody does.
        text: What that waits for, in a clause.
        holds_object: The object of the forecast itself is not gone before.
        permanent: It is certain that nothing ends it by itself: somebody has to change the objects.
        since: The earliest ``deletionTimestamp`` among the objects; null where none has one yet.
        count: Number of objects.
        objects: The first hundred.
    """

    held_by: HeldBy
    name: str = ""
    ended_by: str = ""
    text: str
    holds_object: bool
    permanent: bool = False
    since: str | None = None
    count: int
    objects: tuple[ObjectRef, ...]


class DeletionForecast(msgspec.Struct, frozen=True, kw_only=True):
    """What an ordinary deletion through the API does to one object.

    Attributes:
        policy: ``propagationPolicy`` of the deletion.
        by_default: Nobody asked for a policy: it is that of a deletion under way, else the one that kubectl sends.
        possible: Whether an API server would do it; null where that is not known.
        result: ``gone``, where nothing but the collector's own work is waited for; ``terminating``;
            ``cannot-be-told``; ``refused``.
        terminating_since: It is being deleted already: its ``deletionTimestamp``; null where it is not.
        text: What happens to the object, in a sentence.
        waits: What holds up the object and what goes with it; what the object itself waits for first.
        notes: What else to know, a sentence each.
    """

    policy: Propagation
    by_default: bool
    possible: bool | None
    result: DeletionResult
    terminating_since: str | None
    text: str
    waits: tuple[Wait, ...]
    notes: tuple[str, ...]
