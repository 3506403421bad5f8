"""Deletes one key: examined, previewed, confirmed, backed up, compared, recorded."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

import msgspec

from etcdfix.examine.all import Progress, no_progress
from etcdfix.model.errors import RefusedByRule
from etcdfix.model.rules import Rule
from etcdfix.remediation.audit.record import Verb
from etcdfix.remediation.change import DELETE, Change, ChangeRequest, Confirmer, carry_out
from etcdfix.remediation.checks.plan import expectation_of
from etcdfix.remediation.cluster import Cluster
from etcdfix.remediation.commit import ChangeOutcome
from etcdfix.remediation.durable import Step, no_step
from etcdfix.remediation.present import Present
from etcdfix.report.plan import DeletionPlan
from etcdfix.text.commands import explain
from etcdfix.text.commands import plan as make_plan

_EXPLAINED: Final = {
    Rule.NEVER_DELETABLE, Rule.CURABLE_BY_CONFIGURATION, Rule.ONLY_COPY, Rule.UNPROVEN_DAMAGE,
    Rule.NEWER_THAN_KNOWN, Rule.FAILS_LIKE_OTHERS, Rule.MASS_DAMAGE, Rule.VALUE_MOVED, Rule.PATTERN,
    Rule.DECLARATION, Rule.CLUSTER_BREAKING, Rule.ENDS_CACHED_READS,
}  # fmt: skip
"""Rules that refuse a value for what it is: a copy of the object may be a better way out."""


class DeleteRequest(ChangeRequest, frozen=True, kw_only=True):
    """One deletion; a reviewed plan may add a refusal."""

    key: bytes
    plan: DeletionPlan | None = None
    plan_file: str = ""


def run_delete(
    cluster: Cluster,
    request: DeleteRequest,
    confirmer: Confirmer,
    *,
    preview: Callable[[Change], None],
    progress: Progress = no_progress,
    step: Step = no_step,
) -> ChangeOutcome:
    """Delete one key, or find out whether it could be deleted; raises EtcdfixError."""
    plan = request.plan
    if plan is not None:
        again = make_plan(plan.report.path, request.plan_file).line(request.run)
        now = datetime.now(UTC)
        expected = expectation_of(plan, request.key, cluster, request.accepted, again=again, now=now)
        flags = (f"--plan {request.plan_file} ({plan.content_sha256})",)
        request = msgspec.structs.replace(request, expected=expected, plan_flags=flags)
    present = Present(cluster, request.key, request, progress=progress, step=step)
    try:
        return carry_out(DELETE, Change(Verb.DELETE, present, request), confirmer, preview=preview)
    except RefusedByRule as refusal:
        ways = f"every way out: {explain(request.key).line(request.run)}"
        if refusal.rule in _EXPLAINED and ways not in refusal.hint:
            refusal.hint = f"{refusal.hint}; {ways}" if refusal.hint else ways
        raise
