"""Deletes one key: examined, previewed, confirmed, backed up, compared, recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec

from etcdfix.apiserver.kubeconfig import APIAccess
from etcdfix.apiserver.objects import Answer
from etcdfix.apiserver.recovery import SECONDS, Sign, watch_recovery
from etcdfix.copies.bootstrap import with_what_it_keeps
from etcdfix.examine.all import Progress, no_progress
from etcdfix.model.errors import EtcdfixError, RefusedByRule
from etcdfix.model.rules import Rule
from etcdfix.remediation.audit.record import Verb
from etcdfix.remediation.change import DELETE, Change, ChangeRequest, Confirmer, carry_out
from etcdfix.remediation.checks.plan import expectation_of
from etcdfix.remediation.cluster import Cluster
from etcdfix.remediation.commit import ChangeOutcome
from etcdfix.remediation.durable import Step, no_step
from etcdfix.remediation.offers import at_hand, remedy_of, saved_of
from etcdfix.remediation.present import Present
from etcdfix.report.advice.ways import recovered_configuration
from etcdfix.report.plan import DeletionPlan
from etcdfix.text.commands import plan as make_plan
from etcdfix.text.notes import Note

_OF_THE_VALUE: Final = {
    Rule.NEVER_DELETABLE, Rule.CURABLE_BY_CONFIGURATION, Rule.ONLY_COPY, Rule.UNPROVEN_DAMAGE,
    Rule.NEWER_THAN_KNOWN, Rule.FAILS_LIKE_OTHERS, Rule.MASS_DAMAGE, Rule.VALUE_MOVED, Rule.PATTERN,
    Rule.DECLARATION, Rule.CLUSTER_BREAKING, Rule.ENDS_CACHED_READS,
}  # fmt: skip
"""Refusals of a value that cannot be read, for what it is."""
_LIFTED: Final = frozenset({Rule.UNPROVEN_DAMAGE, Rule.CLUSTER_BREAKING})
"""Those of them that the command to put back an earlier revision lifts."""


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
    """Delete one key, or find out whether it could be deleted.

    Raises:
        EtcdfixError: As of :func:`~etcdfix.remediation.change.carry_out`; nothing was changed.
    """
    plan, flags = request.plan, request.plan_flags
    if plan is not None:
        again = make_plan(plan.report.path, request.plan_file).line(request.run)
        now = datetime.now(UTC)
        expected = expectation_of(plan, request.key, cluster, request.accepted, again=again, now=now)
        flags = (f"--plan {request.plan_file} ({plan.content_sha256})",)
        request = msgspec.structs.replace(request, expected=expected, plan_flags=flags)
    present = Present(cluster, request.key, request, progress=progress, step=step)
    try:
        change = Change(Verb.DELETE, present, request)
        return carry_out(DELETE, change, confirmer, preview=preview, step=step)
    except RefusedByRule as refusal:
        refusal.hint = _with_ways_out(present, refusal)
        raise


def _with_ways_out(present: Present, refusal: RefusedByRule) -> str:
    """Return the hint of a refusal, after how the configuration, or an earlier revision that reads, is had back."""
    if refusal.rule not in _OF_THE_VALUE:
        return refusal.hint
    run = present.request.run
    try:
        found, readable = present.found, present.readable
    except EtcdfixError:  # the refusal counts
        return refusal.hint
    causes = [found.verdict.cause] if found.verdict.cause is not None else []
    kept = with_what_it_keeps(run, present.cluster.source)
    ways = [recovered_configuration(causes, found.transformer, kept)]
    if readable is not None:
        offer = at_hand(found, run, readable, breaking=refusal.rule == Rule.CLUSTER_BREAKING)[-1]
        ways.append(remedy_of(offer) if refusal.rule in _LIFTED else saved_of(offer))
    told = [f"{way.action}: {way.command.line(run)}" for way in ways if way is not None]
    return "; ".join(filter(None, (*told, refusal.hint)))


def recovery_lines(api: APIAccess, change: Change, *, say: Callable[[str], None]) -> list[str]:
    """Look at the API servers that answered before, until they are well again; nothing here changes what was done.

    While other values are not known to be read, nothing is waited for.
    """
    present = change.present
    servers = [said.server for said in present.servers.answers if said.answer is not Answer.NO_ANSWER]
    if not servers:
        return []
    seconds = 0.0 if present.alike.unread else SECONDS
    try:
        if seconds:
            say(
                Note(
                    f"waiting until the API servers have recovered, about {seconds:.0f} s at most; Ctrl-C ends "
                    "it"
                )
            )
        collection = present.found.directory.api_path("", None)
        return list(_recovery(*watch_recovery(api, servers, collection, seconds=seconds)))
    except KeyboardInterrupt:
        return ["Not waited any longer. The deletion is done."]
    except EtcdfixError as exc:
        return [f"API servers were not looked at again: {exc.message}"]
    except Exception as exc:  # noqa: BLE001 - whatever it is, the deletion is done, and was told
        return [f"API servers were not looked at again ({type(exc).__name__})"]


def _recovery(signs: Sequence[Sign], seconds: float) -> Iterator[str]:
    for server in dict.fromkeys(sign.server for sign in signs):
        told = ", ".join(f"{sign.request} {sign.text}" for sign in signs if sign.server == server)
        yield f"API server {server}, after {seconds:.0f} s: {told}"
    if any(sign.failing for sign in signs):
        yield (
            "Not everything works yet. Other values fail (see scan), or a server has another configuration: "
            "kubectl get --raw '/readyz?verbose'"
        )
