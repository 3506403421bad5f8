"""Deletes one key: examined, previewed, confirmed, backed up, compared, recorded.

The specification is section 6 of the product contract; a dry run takes the same road up to the preview, and from
there :func:`~etcdfix.remediation.commit.preview_only` instead of :func:`~etcdfix.remediation.commit.commit`.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from etcdfix.examine_all import Progress, no_progress
from etcdfix.operations.change.execute_change import (
    ChangeRequest,
    CheckedChange,
    Confirmer,
    execute_change,
)
from etcdfix.remediation.audit.record import Result, Verb
from etcdfix.remediation.commit import ChangeOutcome, place_warnings
from etcdfix.remediation.durable import Step, no_step
from etcdfix.remediation.landmarks import read_landmarks
from etcdfix.remediation.preflight.cluster import Cluster
from etcdfix.remediation.preflight.deletion import Preflight, check_deletion
from etcdfix.remediation.preflight.expectation import Expectation

_IDENTITY = "identity"


class DeleteRequest(ChangeRequest, frozen=True, kw_only=True):
    """One deletion.

    Attributes:
        key: Complete etcd key.
        plan: How the plan is named in the record, "" for none.
    """

    key: bytes
    plan: str = ""


def run_delete(
    cluster: Cluster,
    request: DeleteRequest,
    confirmer: Confirmer,
    *,
    preview: Callable[[Preflight], None],
    expected: Expectation | None = None,
    progress: Progress = no_progress,
    step: Step = no_step,
) -> ChangeOutcome:
    """Delete one key, or find out whether it could be deleted.

    Args:
        cluster: Where.
        request: What.
        confirmer: Confirms.
        preview: Shows what was found out, before anything is asked.
        expected: By a plan, which may add a refusal; None without one.
        progress: Counts the values of the pattern check for a display.
        step: Told the name of each step before it is taken.

    Raises:
        RemediationRefused: A rule says no, or a file cannot be made safe; nothing was changed.
        AuditError: The record cannot be made durable; nothing was changed.
        TransactionNotSent: No endpoint could be reached; nothing was changed.
        TransactionRefused: etcd says no; nothing was changed.
        SourceError: etcd could not be asked; nothing was changed.
    """
    step("check: landmarks")
    landmarks = read_landmarks(cluster.source.client, cluster.examiner.layout, target=request.key)
    checked = check_deletion(
        cluster,
        request.key,
        request.accepted,
        backup_directories=request.record_paths.directories,
        api=request.api,
        expected=expected,
        progress=progress,
        step=step,
    )
    step("check: places")
    checked = msgspec.structs.replace(
        checked, warnings=(*checked.warnings, *place_warnings(request.record_paths))
    )
    return execute_change(
        cluster,
        request,
        CheckedChange(
            verb=Verb.DELETE,
            done=Result.DELETED,
            found=checked.found,
            reading=checked.reading,
            identity=checked.identity,
            servers=checked.servers,
            landmarks=landmarks,
            moved_to=checked.moved_to,
            replaced=checked,
            counts=checked.alike.counts,
            declared_lost=checked.declared_lost,
            flags=(request.plan,) if request.plan else (),
        ),
        confirmer,
        preview=lambda: preview(checked),
        step=step,
    )
