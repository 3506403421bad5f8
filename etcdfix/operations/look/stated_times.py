"""When an object says that it was written: etcd itself keeps no times."""

from __future__ import annotations

import re
from typing import Any, Final

from etcdfix.model import Outcome
from etcdfix.reports.history_model import Written
from etcdfix.reports.printers.objects import Form, Viewer
from etcdfix.verdicts.examination import Examination
from etcdfix.verdicts.plaintext import bounded

_TIME: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")


def stated_times(metadata: dict[str, Any]) -> frozenset[tuple[str, str]]:
    """Return the times that an object states, each with the manager that it belongs to, "" for its creation."""
    found = {(metadata.get("creationTimestamp"), "")}
    entries = metadata.get("managedFields")
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and isinstance(entry.get("manager", ""), str):
            found.add((entry.get("time"), bounded(entry.get("manager", ""))))
    return frozenset((time, by) for time, by in found if isinstance(time, str) and _TIME.fullmatch(time))


def newest_stated(viewer: Viewer, found: Examination) -> Written | None:
    """Return the newest time that a value states, None for none: it was written then, or later.

    Args:
        viewer: Of the examiner that examined it.
        found: The value, with its bytes.
    """
    if found.verdict.outcome not in {Outcome.READABLE, Outcome.INCONSISTENT}:
        return None
    shown = viewer.show(found)
    metadata = shown.document.get("metadata") if shown.form is Form.OBJECT else None
    times = stated_times(metadata) if isinstance(metadata, dict) else ()
    if not times:
        return None
    time, by = max(times)
    return Written(time=time, by=by, exact=False)
