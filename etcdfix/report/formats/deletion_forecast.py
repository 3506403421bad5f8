"""The forecast of a deletion through the API, as text."""

from __future__ import annotations

from collections.abc import Iterator

from etcdfix.graph.deletion_model import DeletionForecast, HeldBy, Wait
from etcdfix.graph.model import ObjectRef
from etcdfix.report.formats.text import shown
from etcdfix.report.impact_model import ImpactReport
from etcdfix.text.words import counted

_FEW = 3
_HELD_BY = {
    HeldBy.KUBELET: "kubelet",
    HeldBy.CONTENTS: "its contents",
    HeldBy.UNREADABLE_OBJECTS: "its contents",
    HeldBy.NOT_NOTICED: "garbage collector",
    HeldBy.OWNER_UNKNOWN: "dependents with an unknown owner",
    HeldBy.OWNER_INVALID: "dependents with an impossible owner",
    HeldBy.RING: "ring of owners",
}


def verb(report: ImpactReport) -> str:
    """Return what the report is about: deleting an object, where the API can do that, else losing it."""
    return "deleting" if report.deletion is not None and report.deletion.possible else "losing"


def _heading(found: DeletionForecast) -> str:
    """Return what is forecast."""
    if found.by_default and found.terminating_since is not None:
        return f"Deletion through the API, {found.policy}: under way"
    if found.by_default:
        return f"Deletion through the API, {found.policy}: kubectl's default (see also --policy foreground, orphan)"
    return f"Deletion through the API, {found.policy}"


def _state(found: DeletionForecast) -> str:
    """Return what becomes of the object, and since when."""
    since = f" (Terminating since {found.terminating_since})" if found.terminating_since is not None else ""
    return f"refused: {found.text}" if found.result == "refused" else found.text + since


def _wait_cells(wait: Wait, about: ObjectRef) -> tuple[str, str, str, str]:
    """Return what holds objects up, who ends it, what it waits for, and which objects.

    Args:
        wait: One wait.
        about: The object that is deleted.
    """
    held_by = f"finalizer {wait.name}" if wait.held_by is HeldBy.FINALIZER else _HELD_BY[wait.held_by]
    ended_by = wait.ended_by or ("nobody" if wait.permanent else "not known")
    text = f"FOR EVER: {wait.text}" if wait.permanent else wait.text
    names = ", ".join(map(str, wait.objects[:_FEW])) + (", …" if wait.count > _FEW else "")
    objects = f"{counted(wait.count, 'object')}: {names}"
    if wait.objects == (about,):
        objects = "the object itself"
    if wait.since is not None:
        objects += f", Terminating since {wait.since}"
    return held_by, ended_by, text, objects


def deletion_lines(report: ImpactReport, max_rows: int) -> Iterator[str]:
    """Yield the forecast as text; none where there is none."""
    found = report.deletion
    if found is None:
        return
    yield ""
    yield shown(_heading(found))
    yield f"  {shown(_state(found))}"
    own = [wait for wait in found.waits if wait.holds_object]
    others = [wait for wait in found.waits if not wait.holds_object]
    for title, waits in (("it waits for", own), ("held up too, without holding it", others)):
        if waits:
            yield f"  {title}"
            for wait in waits[:max_rows]:
                held_by, ended_by, text, objects = map(shown, _wait_cells(wait, report.object))
                by = f" (ended by: {ended_by})" if ended_by != held_by else ""
                yield f"    {held_by}{by}: {text}"
                yield f"      {objects}"
            if len(waits) > max_rows:
                yield f"    … {len(waits) - max_rows} of {len(waits)} not shown; -o json has them"
    yield from (f"  {shown(note)}" for note in found.notes)
