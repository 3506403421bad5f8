"""The published shape of what a rescue came to (``etcdfix/v1``, kind ``RescueReport``)."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from etcdfix.report.model import PublishedReport, Remedy, ReportConfiguration
from etcdfix.rescued import Fit


class Rescued(StrEnum):
    """What became of one object."""

    SAVED = "saved"
    ALREADY_SAVED = "already-saved"
    """By an earlier run, at the mod revision of the report; it was not asked for again."""
    READABLE = "readable"
    """An API server reads it from etcd: it was written anew after the report, and needs no rescue."""
    NOT_HELD = "not-held"
    """No server has it in memory."""
    REFUSED = "refused"
    """A server would not give it to this user, or gave something else."""
    NOT_ASKED = "not-asked"
    """No server could be asked to the end; it may still be held."""


SAVED_STATES: Final = frozenset({Rescued.SAVED, Rescued.ALREADY_SAVED})
"""Of what is saved, by this run or an earlier one."""


class RescuedObject(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One object of a rescue.

    Attributes:
        key: Etcd key, as far as it is text.
        key_base64: The same, where it is not plain UTF-8; then this counts.
        group: API group, "" for the core group.
        resource: Plural resource.
        namespace: "" for an object without one.
        name: Its name.
        state: What became of it.
        mod_revision: Of its etcd key, by the report; left out where none says it.
        resource_version: Of what is saved; with equal mod_revision, it is the object that the unreadable value holds.
        fit: How the two compare; ``unknown`` where nothing is saved, or no report says the mod revision.
        file: Name of the file in the directory; left out where nothing is saved.
        sha256: Of the file.
        server: That gave it.
        detail: Why it is not saved, by server; left out where it is.
    """

    key: str
    key_base64: str | None = None
    group: str
    resource: str
    namespace: str
    name: str
    state: Rescued
    mod_revision: int = 0
    resource_version: str = ""
    fit: Fit = Fit.UNKNOWN
    file: str = ""
    sha256: str = ""
    server: str = ""
    detail: str = ""


class RescueKind(msgspec.Struct, frozen=True, kw_only=True):
    """The objects of one resource, counted.

    Attributes:
        group: API group, "" for the core group.
        resource: Plural resource.
        objects: All of them.
        saved: By this run.
        already_saved: By an earlier one.
        older: How many of both are older than the value in etcd.
        readable: Need no rescue.
        not_held: Are in no server's memory.
        refused: Were not given.
        not_asked: Could not be asked for to the end.
    """

    group: str
    resource: str
    objects: int = 0
    saved: int = 0
    already_saved: int = 0
    older: int = 0
    readable: int = 0
    not_held: int = 0
    refused: int = 0
    not_asked: int = 0


class RescueServer(msgspec.Struct, frozen=True, kw_only=True):
    """One API server.

    Attributes:
        server: Its address.
        asked: It could be asked.
        requests: For objects in its memory.
        given: Objects that it gave.
        detail: Why it could not be asked, or not to the end, and which kinds it has lost from its memory.
    """

    server: str
    asked: bool
    requests: int = 0
    given: int = 0
    detail: str = ""


class RescueReport(PublishedReport, frozen=True, kw_only=True):
    """What was saved, and what was not.

    Attributes:
        report: The report that named the objects, and its digest; null where keys were named.
        kube_system_uid: Of the API servers' cluster; null where it cannot be read.
        directory: Where the files are.
        audit_log: Where the digests are on record.
        servers: Each that was found.
        kinds: Counts, by resource.
        objects: Each object, by etcd key.
        left_out: How many of the report are no matter for a rescue, by outcome, or by why nobody can ask for them.
        next: What to do next, in this order.
        warnings: One sentence each.
        complete: Everything is saved as etcd has it, or needs no rescue.
        incomplete_reasons: Why not, one clause each.
    """

    kind: str = "RescueReport"
    report: ReportConfiguration | None
    kube_system_uid: str | None
    directory: str
    audit_log: str
    servers: list[RescueServer]
    kinds: list[RescueKind]
    objects: list[RescuedObject]
    left_out: dict[str, int]
    next: list[Remedy] = msgspec.field(default_factory=list)
    warnings: list[str]
    complete: bool
    incomplete_reasons: list[str]
    finished_at: str
