"""What is shown before a value is put back: the value, what speaks for it, and what makes room."""

from __future__ import annotations

from collections.abc import Iterator

from etcdfix.model import Outcome
from etcdfix.operations.change.preview import MASK, api_lines, cluster_lines, warning_lines
from etcdfix.operations.change.restore import OwnWrite, RestorePreview
from etcdfix.remediation.preflight.cluster import Cluster
from etcdfix.remediation.preflight.deletion import Preflight
from etcdfix.storagekey import display
from etcdfix.text.safetext import safe_text
from etcdfix.verdicts.deletability import IDENTITY


def restore_preview_lines(cluster: Cluster, shown: RestorePreview) -> Iterator[str]:
    """Yield what will be put back, and what that cannot bring back."""
    found, stored = shown.found, shown.candidate.stored
    yield f"Key          {safe_text(display(stored.key))}"
    yield f"From         {safe_text(shown.candidate.origin)}"
    yield from _speaks_for(shown)
    was = f", was at mod_revision {stored.mod_revision}" if stored.mod_revision else ""
    yield f"Value        {len(stored.value)} bytes{was}"
    if found.gvk is not None:
        version = f"{found.gvk.group}/{found.gvk.version}".lstrip("/")
        yield f"Object       {safe_text(f'{version} {found.gvk.kind} {found.namespace}/{found.name}')}"
    verdict = found.verdict
    why = "" if verdict.outcome is Outcome.READABLE else f": {safe_text(verdict.message)}"
    yield f"Examined     {verdict.outcome}{why}"
    if shown.candidate.file is not None:
        yield from _sealed_lines(shown)
    yield from cluster_lines(cluster, shown.identity)
    yield from api_lines(shown.servers)
    if stored.lease:
        kept = f"{shown.lease & MASK:x} is attached again" if shown.lease else "is left out, as accepted"
        yield f"Lease        {kept}"
    if shown.replaced is None:
        yield "There now    nothing"
    else:
        present = shown.replaced
        yield (
            f"There now    {len(present.stored.value)} bytes at mod_revision {present.stored.mod_revision}, "
            f"{_why_replaced(present)}; backed up first"
        )
        if isinstance(present, Preflight) and present.protected:
            yield f"             CLUSTER-BREAKING, as accepted: {safe_text(present.protected)};"
            yield "             whoever uses the object sees this earlier state of it again"
    yield from warning_lines(shown.warnings)
    yield ""
    yield "Dependents that the garbage collector has deleted meanwhile do not come back with their owner."


def _speaks_for(shown: RestorePreview) -> Iterator[str]:
    """Yield what speaks for the value, and what was accepted because nothing does."""
    source, candidate = shown.source, shown.candidate
    for line in candidate.told:
        yield f"             {safe_text(line)}"
    if source.intent is not None:
        yield "             a true undo: this audit log lists these bytes at this key"
        return
    if source.listed:
        yield "             a backup that this audit log knows, and NO true undo: the key went on without it"
    elif not candidate.revision:
        yield "             NOT a backup that this audit log knows, as accepted"
    if source.by_itself:
        yield f"             by itself: its own digests fit, and the one that was given; {safe_text(source.by_itself)}"
    elif not source.same_object:
        yield "             perhaps of ANOTHER OBJECT that had this name, as accepted"
    elif candidate.revision:
        yield "             an earlier value of the same object, as this etcd keeps it"
    else:
        yield "             it is of the object that is at the key, or was there last"


def _sealed_lines(shown: RestorePreview) -> Iterator[str]:
    """Yield how an object is written, and whether anything newer is lost by it."""
    how = shown.candidate.transformer
    sealed = "no encryption" if how == IDENTITY else how
    yield f"Written with {safe_text(sealed)}, as JSON; the same object was read from it"
    if shown.proof:
        yield f"             API servers write so too: {safe_text(display(shown.proof))} is stored under it"
    yield f"Newer        {safe_text(shown.newer)}"


def _why_replaced(present: Preflight | OwnWrite) -> str:
    """Return why what is there now may make room."""
    if isinstance(present, OwnWrite):
        return f"{present.found.verdict.outcome}, put there by record {present.intent.link.sequence} of this audit log"
    return f"{present.found.verdict.outcome}, {present.found.verdict.cause}"
