"""Deletes one key: examined, previewed, confirmed, backed up, compared, recorded.

The specification is section 6 of the product contract; a dry run takes the same road up to the preview, and from
there no sender is given to :func:`~etcdfix.remediation.commit.commit`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from etcdfix.apiserver.objects import Answer
from etcdfix.apiserver.recovery import SECONDS, ServerSigns, look_until_well
from etcdfix.apiserver.servers import APIAccess
from etcdfix.copies.bootstrap import with_what_it_keeps
from etcdfix.errors import EtcdfixError, RefusedByRule
from etcdfix.examine_all import Progress, no_progress
from etcdfix.model import Repair
from etcdfix.readable_revision import ReadableRevisions
from etcdfix.remediation.audit.record import Verb
from etcdfix.remediation.change import (
    Change,
    ChangeRequest,
    Confirmer,
    carry_out,
)
from etcdfix.remediation.commit import ChangeOutcome
from etcdfix.remediation.durable import Step, no_step
from etcdfix.remediation.offers import at_hand, remedy_of, saved_of
from etcdfix.remediation.places import place_warnings
from etcdfix.remediation.preflight.cached_reads import RescuedCopies
from etcdfix.remediation.preflight.cluster import Cluster
from etcdfix.remediation.preflight.deletion import Preflight, check_deletion
from etcdfix.remediation.preflight.expectation import expectation_of
from etcdfix.report.advice.ways import recovered_configuration
from etcdfix.report.plan import DeletionPlan
from etcdfix.rules import Rule
from etcdfix.text.commands import RunOptions
from etcdfix.text.commands import plan as make_plan
from etcdfix.text.notes import Note
from etcdfix.verdicts.examination import Examination

_OF_THE_VALUE: Final = frozenset(
    {
        Rule.NEVER_DELETABLE,
        Rule.CURABLE_BY_CONFIGURATION,
        Rule.ONLY_COPY,
        Rule.UNPROVEN_DAMAGE,
        Rule.NEWER_THAN_KNOWN,
        Rule.FAILS_LIKE_OTHERS,
        Rule.MASS_DAMAGE,
        Rule.VALUE_MOVED,
        Rule.PATTERN,
        Rule.DECLARATION,
        Rule.CLUSTER_BREAKING,
        Rule.ENDS_CACHED_READS,
    }
)
"""Refusals of a value that cannot be read, for what it is."""
_LIFTED: Final = frozenset({Rule.UNPROVEN_DAMAGE, Rule.CLUSTER_BREAKING})
"""Those of them that the command to put back an earlier revision lifts."""


class DeleteRequest(ChangeRequest, frozen=True, kw_only=True):
    """One deletion.

    Attributes:
        plan: What a reviewed plan expects, which may add a refusal; None without one.
        rescued: Directory of objects that were saved from API servers; None for none.
        brief: Nobody reads the preview: what is only told there is not looked for.
    """

    key: bytes
    plan: DeletionPlan | None = None
    plan_file: str = ""
    run: RunOptions = RunOptions()
    rescued: Path | None = None
    brief: bool = False


def run_delete(
    cluster: Cluster,
    request: DeleteRequest,
    confirmer: Confirmer,
    *,
    preview: Callable[[Preflight], None],
    progress: Progress = no_progress,
    step: Step = no_step,
) -> ChangeOutcome:
    """Delete one key, or find out whether it could be deleted.

    Raises:
        EtcdfixError: As of :func:`~etcdfix.remediation.change.carry_out`; nothing was changed.
    """
    plan, expected = request.plan, request.expected
    if plan is not None:
        expected = expectation_of(
            plan,
            request.key,
            cluster,
            request.accepted,
            again=make_plan(plan.report.path, request.plan_file).line(request.run),
            now=datetime.now(UTC),
        )
    step("check: landmarks")
    landmarks = cluster.now.landmarks(cluster.examiner.layout, target=request.key)
    try:
        checked = check_deletion(
            cluster,
            request.key,
            request.accepted,
            backup_directories=request.record_paths.directories,
            api=request.api,
            expected=expected,
            copies=RescuedCopies.load(request.rescued, request.record_paths.log_path),
            run=request.run,
            progress=progress,
            step=step,
        )
    except RefusedByRule as refusal:
        raise _with_ways_out(cluster, request, refusal) from None
    step("check: places")
    checked = msgspec.structs.replace(
        checked,
        warnings=(*checked.warnings, *place_warnings(request.record_paths)),
    )
    if not request.brief:
        checked = msgspec.structs.replace(
            checked,
            candidate=_unproven_repair(cluster, checked.found),
            readable=ReadableRevisions(cluster.source, cluster.examiner).of(checked.found).revision,
        )
    return carry_out(
        cluster,
        request,
        Change(
            verb=Verb.DELETE,
            found=checked.found,
            reading=checked.reading,
            identity=checked.identity,
            servers=checked.servers,
            landmarks=landmarks,
            rests_on=checked.moved_to,
            replaced=checked,
            counts=checked.alike.counts,
            declared_lost=checked.declared_lost,
            flags=(f"--plan {request.plan_file} ({plan.content_sha256})",) if plan is not None else (),
        ),
        confirmer,
        preview=lambda: preview(checked),
        step=step,
    )


def _unproven_repair(cluster: Cluster, found: Examination) -> Repair | None:
    """Return the only repair of a value that a pass, which looks for what is proven, did not find; None for none."""
    if found.repair is not None:
        return None
    try:
        return cluster.examiner.search_repair(found).repair
    except EtcdfixError:  # it is told to whoever decides, and decides nothing
        return None


def _with_ways_out(cluster: Cluster, request: DeleteRequest, refusal: RefusedByRule) -> RefusedByRule:
    """Add to a refusal that rests on the value how the configuration, or an earlier revision that reads, is had back.

    Only where it is known that one is kept.
    """
    if refusal.rule not in _OF_THE_VALUE:
        return refusal
    try:
        stored = cluster.now.read_key(request.key).stored
        if stored is None:
            return refusal
        found = cluster.examiner.apart().examine(stored)
        readable = ReadableRevisions(cluster.source, cluster.examiner).of(found).revision
    except EtcdfixError:  # the refusal counts
        return refusal
    cause = found.verdict.cause
    ways = [
        recovered_configuration(
            [cause] if cause is not None else [],
            found.transformer,
            with_what_it_keeps(request.run, cluster.source),
        )
    ]
    if readable is not None:
        breaking = refusal.rule == Rule.CLUSTER_BREAKING
        offer = at_hand(found, request.run, readable, breaking=breaking)[-1]
        ways.append(remedy_of(offer) if refusal.rule in _LIFTED else saved_of(offer))
    told = [f"{way.action}: {way.command.line(request.run)}" for way in ways if way is not None]
    if not told:
        return refusal
    hint = "; ".join([*told, refusal.hint] if refusal.hint else told)
    return RefusedByRule(refusal.message, rule=refusal.rule, hint=hint)


def recovery_lines(api: APIAccess, checked: Preflight, *, say: Callable[[str], None]) -> list[str]:
    """Look at the API servers that answered before, until they are well again; nothing here changes what was done.

    While other values are not known to be read, nothing is waited for.
    """
    servers = [said.server for said in checked.servers.answers if said.answer is not Answer.NO_ANSWER]
    if not servers:
        return []
    seconds = 0.0 if checked.alike.unread else SECONDS
    try:
        if seconds:
            say(
                Note(
                    f"waiting until the API servers have recovered, about {seconds:.0f} s at most; Ctrl-C ends the "
                    "waiting"
                )
            )
        collection = checked.found.directory.api_path("", None)
        return list(_looked_at(look_until_well(api, servers, collection, seconds=seconds)))
    except KeyboardInterrupt:
        return ["Not waited any longer. The deletion is done."]
    except EtcdfixError as exc:
        return [f"API servers were not looked at again: {exc.message}"]
    except Exception as exc:  # noqa: BLE001 - whatever it is, the deletion is done, and was told
        return [f"API servers were not looked at again ({type(exc).__name__})"]


def _looked_at(looked: Sequence[ServerSigns]) -> Iterator[str]:
    for one in looked:
        signs = ", ".join(f"{sign.what} {sign.text}" for sign in one.signs)
        yield f"API server {one.server}, after {one.seconds:.0f} s: {signs}"
    if any(one.failing for one in looked):
        yield (
            "Not everything works yet. Usually more values cannot be read (scan shows them), or an API server has "
            "another EncryptionConfiguration. Look again: kubectl get --raw '/readyz?verbose'"
        )
