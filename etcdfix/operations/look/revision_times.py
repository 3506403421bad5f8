"""Before and after which revisions a time lies: etcd keeps no times, but its objects state when they were created.

An object was created at its create revision, and says when; a Lease was renewed at its mod revision, and says when.
Some of either are read before a scan. A server's clock may be wrong, and who puts an old value back writes an old time
at a new revision. So one object proves nothing: two have to agree, a minute is left on both sides, and where many
objects contradict each other, nothing is known. What is not known hides nothing.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from etcdfix.encryption.envelope import ENCRYPTED_PREFIX
from etcdfix.errors import SourceError
from etcdfix.examine import Examiner
from etcdfix.model import Outcome, StoredValue
from etcdfix.sources.base import Source
from etcdfix.storagekey import StorageLayout

if TYPE_CHECKING:
    from etcdfix.reports.printers.objects import Viewer

# Made all the time, encrypted by few, and put back by hand by nobody.
_DIRECTORIES: Final = (
    b"leases/", b"pods/", b"replicasets/", b"jobs/", b"events/", b"endpointslices/", b"controllerrevisions/",
    b"minions/", b"namespaces/",
)  # fmt: skip
_MOST_EACH: Final = 300
_MARGIN: Final = timedelta(minutes=1)
_AGREEING: Final = 2
_MOST_CONTRADICTING: Final = 0.1
_TIME: Final = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.[0-9]{1,9})?Z")


class Landmark(NamedTuple):
    """A revision, and the time of it that an object states."""

    revision: int
    time: datetime


class Around(NamedTuple):
    """The last revision that is known to lie before a time, and the first one after it; None for not known."""

    before: int | None
    after: int | None


def landmarks_of(source: Source, examiner: Examiner) -> list[Landmark]:
    """Return what a few hundred objects of each of some resources state; what may not be read states nothing.

    Encrypted values are passed over: no KMS plugin is asked for this.
    """
    from etcdfix.reports.printers.objects import Viewer  # noqa: PLC0415 - a scan without times does not need it

    apart = examiner.apart()
    viewer = Viewer(apart, reveal=True)
    found: list[Landmark] = []
    with source.aside():
        for directory in _DIRECTORIES:
            with contextlib.suppress(SourceError):  # the scan says itself what it cannot read
                for stored in islice(source.current(_place(apart.layout, directory)), _MOST_EACH):
                    found += _landmarks_in(apart, viewer, stored)
    return found


def _landmarks_in(examiner: Examiner, viewer: Viewer, stored: StoredValue) -> Iterator[Landmark]:
    if stored.value.startswith(ENCRYPTED_PREFIX):
        return
    examined = examiner.examine(stored)
    if examined.verdict.outcome is not Outcome.READABLE:
        return
    shown = viewer.show(examined)
    if shown.whole:
        yield from _stated(shown.document, stored.create_revision, stored.mod_revision)


def _place(layout: StorageLayout, directory: bytes) -> bytes:
    return layout.prefix_bytes + directory


def _stated(document: dict[str, Any], created: int, written: int) -> Iterator[Landmark]:
    for part, field, revision in (
        ("metadata", "creationTimestamp", created),
        ("spec", "renewTime", written),
    ):
        fields = document.get(part)
        time = _time(fields.get(field)) if isinstance(fields, dict) else None
        if time is not None and revision > 0:
            yield Landmark(revision, time)


def _time(text: object) -> datetime | None:
    match = _TIME.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        return None
    try:
        return datetime.fromisoformat(match[1]).replace(tzinfo=UTC)
    except ValueError:
        return None


def revisions_around(time: datetime, landmarks: Sequence[Landmark]) -> Around:
    """Return between which revisions a time lies, by what objects state."""
    later = sorted(mark.revision for mark in landmarks if mark.time - _MARGIN > time)
    after = later[_AGREEING - 1] if len(later) >= _AGREEING else None
    earlier = [mark.revision for mark in landmarks if mark.time + _MARGIN < time]
    if after is not None:
        contradicting = sum(revision > after for revision in earlier)
        of_all = sum(mark.revision > after for mark in landmarks)
        if contradicting > of_all * _MOST_CONTRADICTING:
            return Around(None, None)
    agreed = sorted(revision for revision in earlier if not later or revision < later[0])
    return Around(agreed[-_AGREEING] if len(agreed) >= _AGREEING else None, after)
