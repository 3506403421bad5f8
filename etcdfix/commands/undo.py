"""Undoes a change: puts back exactly the bytes that it replaced or deleted, from its backup.

The audit log says that these bytes were at this key of this cluster, and that what stands there now is what the change
put: so no encryption configuration is needed, and nothing has to be unreadable. A backup whose log is lost or broken is
undone by itself, only where nothing is, with the digest that the change printed.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from etcdfix.copies.model import Place, Wanted, examined_copy
from etcdfix.remediation.audit.record import Verb
from etcdfix.remediation.backup.file import Backup
from etcdfix.remediation.change import UNDO, Change, ChangeRequest, Chosen, Confirmer, carry_out
from etcdfix.remediation.checks.undo import standing_of
from etcdfix.remediation.cluster import Cluster
from etcdfix.remediation.commit import ChangeOutcome
from etcdfix.remediation.durable import Step, no_step
from etcdfix.remediation.present import Present


class UndoRequest(ChangeRequest, frozen=True, kw_only=True):
    """One change to undo; ``value_sha256`` is ``sha256:<hex>`` that the value to put back must have, "" for any."""

    backup: Backup
    value_sha256: str = ""


def run_undo(
    cluster: Cluster,
    request: UndoRequest,
    confirmer: Confirmer,
    *,
    preview: Callable[[Change], None],
    step: Step = no_step,
) -> ChangeOutcome:
    """Undo a change, or find out whether it could be.

    Raises:
        EtcdfixError: As of :func:`~etcdfix.remediation.change.carry_out`; nothing was changed.
    """
    backup, stored = request.backup, request.backup.content.stored
    present = Present(cluster, stored.key, request, alone=True, ours=True, step=step)
    found = cluster.examiner.apart().examine(stored)
    copy = examined_copy(found, Place.BACKUP, f"backup {backup.path}", f"backup:{backup.path}")
    copy = msgspec.structs.replace(copy, cluster=backup.content.cluster.named)
    wanted = Wanted.gone(stored.key, cluster.examiner.layout)
    standing = standing_of(backup, present)
    change = Change(
        Verb.UNDO,
        present,
        request,
        choose=lambda _change: Chosen(copy, wanted, standing=standing),
        expected_digest=request.value_sha256,
    )
    return carry_out(UNDO, change, confirmer, preview=preview, warnings=standing.doubts, step=step)
