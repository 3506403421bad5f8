"""Puts the stored bytes of one value right: the bytes that an API server wrote, without encrypting anything anew.

So no write key is needed, and a KMS plugin is only asked to open. Where a tag proves the repair, or an unencrypted
object decodes after one of the few fixed undos, nothing has to be accepted; AES-CBC proves nothing.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from etcdfix.errors import EtcdfixError
from etcdfix.examine_all import Progress, no_progress
from etcdfix.maybe_newer import NOT_THE_OBJECT
from etcdfix.model import Outcome, Repair, RepairKind, StoredValue
from etcdfix.readable_revision import newest_kept, reads
from etcdfix.remediation.audit.record import Result, Verb
from etcdfix.remediation.backup.file import digest
from etcdfix.remediation.change import (
    Change,
    ChangeRequest,
    Confirmer,
    Rewritable,
    carry_out,
)
from etcdfix.remediation.commit import ChangeOutcome
from etcdfix.remediation.durable import Step, no_step
from etcdfix.remediation.places import place_warnings
from etcdfix.remediation.preflight.api_servers import check_api_servers
from etcdfix.remediation.preflight.cluster import Acceptances, Cluster
from etcdfix.remediation.preflight.members import KeyReading
from etcdfix.remediation.preflight.noencryption import encrypted, looks_enveloped
from etcdfix.remediation.preflight.similar_values import Alike
from etcdfix.remediation.preflight.surroundings import FRESH
from etcdfix.remediation.preflight.target import (
    check_writable,
    moved_meanwhile,
    read_target,
    require_alive,
    require_configuration,
)
from etcdfix.repair import RepairSearch
from etcdfix.report.advice.change import repair_risks
from etcdfix.rules import Rule, acceptance, refuse
from etcdfix.sources.live import LiveSource
from etcdfix.storagekey import display
from etcdfix.text.safetext import key_word, quote_command
from etcdfix.verdicts.causes import Cause
from etcdfix.verdicts.examination import Examination
from etcdfix.verdicts.protected import protected_reason


class RepairRequest(ChangeRequest, frozen=True, kw_only=True):
    """One repair."""

    key: bytes


class RepairPreview(Rewritable, frozen=True, kw_only=True):
    """What is shown before a value is repaired.

    Attributes:
        repaired: What the value is then: readable.
        alike: What the other values came to.
    """

    repair: Repair
    repaired: Examination
    alike: Alike


def run_repair(
    cluster: Cluster,
    request: RepairRequest,
    confirmer: Confirmer,
    *,
    preview: Callable[[RepairPreview], None],
    progress: Progress = no_progress,
    step: Step = no_step,
) -> ChangeOutcome:
    """Repair one value, or find out whether it could be.

    Raises:
        EtcdfixError: As of :func:`~etcdfix.remediation.change.carry_out`; nothing was changed.
    """
    key, accepted = request.key, request.accepted
    step("check: configuration")
    require_configuration(cluster)
    target = read_target(cluster, key, accepted, step)
    landmarks, reading, stored = target
    step("check: examine")
    if cluster.no_encryption and looks_enveloped(stored.value):
        raise encrypted(key)
    found = cluster.examiner.examine(stored)
    _require_unread(found)
    identity, warnings = check_writable(cluster, target, accepted, request.record_paths.directories, step)
    step("check: everything else")
    same_start = _SameStart(stored)
    alike, _ = (cluster.surroundings or FRESH).look(
        cluster, reading, found, progress, see=same_start.see, graph=False
    )
    if alike.target is None:
        raise moved_meanwhile(key)
    found = alike.target
    _require_unread(found)
    if request.expected is not None:
        step("check: plan")
        request.expected.check_stored(stored, identity)
        request.expected.check_verdict(found)
    step("check: repair")
    search = cluster.examiner.search_repair(found)
    repair, repaired = _require_repair(found, search)
    same_start.check(found, repair)
    _check_proof(found, repair, accepted)
    step("check: object")
    _check_object(cluster, reading, found, repaired)
    step("check: API servers")
    servers = check_api_servers(found, identity, request.api, accepted)
    step("check: lease")
    lease = require_alive(cluster, stored)
    step("check: places")
    warnings += place_warnings(request.record_paths)
    shown = RepairPreview(
        reading=reading,
        found=found,
        repair=repair,
        repaired=repaired,
        identity=identity,
        lease=lease,
        servers=servers,
        alike=alike,
        warnings=tuple(warnings),
    )
    outcome = carry_out(
        cluster,
        request,
        Change(
            verb=Verb.REPAIR,
            found=found,
            reading=reading,
            identity=identity,
            servers=servers,
            landmarks=landmarks,
            replaced=shown,
            counts=alike.counts,
            value=search.value,
            lease=stored.lease,
            detail=f"{repair.words} (proof: {repair.proof}); now {digest(search.value)}",
        ),
        confirmer,
        preview=lambda: preview(shown),
        step=step,
    )
    if outcome.result is not Result.REPAIRED:
        return outcome
    step("read back")
    doubtful, told = _read_back(cluster, outcome, search.value, key)
    return msgspec.structs.replace(outcome, doubtful=doubtful, warnings=(*outcome.warnings, told))


_NOTHING_TO_REPAIR = {
    Outcome.READABLE: (
        Rule.READABLE,
        "the value is readable: there is nothing to repair",
        "leave it as it is",
    ),
    Outcome.INCONSISTENT: (
        Rule.INCONSISTENT,
        "the API server accepts the value as it is, so its bytes are not put right behind its back",
        "heal it through the API: etcdfix explain KEY names the way",
    ),
    Outcome.NOT_AN_OBJECT: (
        Rule.NOT_AN_OBJECT,
        "the key holds no object of the API",
        "leave it: it is bookkeeping, or not Kubernetes'",
    ),
}


def _require_unread(found: Examination) -> None:
    key, refusal = found.stored.key, _NOTHING_TO_REPAIR.get(found.verdict.outcome)
    if refusal is not None:
        rule, why, hint = refusal
        hint = hint.replace("KEY", quote_command([key_word(key)]))
        raise refuse(rule, f"{display(key)}: {why}", hint=hint)


def _require_repair(found: Examination, search: RepairSearch) -> tuple[Repair, Examination]:
    if search.repair is not None and search.repaired is not None:
        return search.repair, search.repaired
    key, verdict = found.stored.key, found.verdict
    others = quote_command(["etcdfix", "explain", key_word(key)])
    if search.ambiguous:
        raise refuse(Rule.SEVERAL_REPAIRS, f"{display(key)}: {search.why_not}", hint=f"other ways: {others}")
    if verdict.outcome is Outcome.UNDETERMINED:
        raise refuse(
            Rule.UNDETERMINED, f"nothing is proven against {display(key)}: {verdict.message}",
            hint="the plugin may answer later; see etcdfix scan",
        )  # fmt: skip
    raise refuse(
        Rule.NOT_REPAIRABLE,
        f"{display(key)} ({verdict.cause}): {search.why_not}",
        hint=f"other ways: {others}",
    )


def _check_proof(found: Examination, repair: Repair, accepted: Acceptances) -> None:
    """Refuse what nothing proves, unless that is accepted; of what the cluster depends on, that as well."""
    for risk in repair_risks(found, repair):
        if accepted.accepts(risk):
            continue
        key, hint = display(found.stored.key), f"if that is understood: {acceptance(risk)}"
        if risk is Rule.CLUSTER_BREAKING:
            why = protected_reason(found.directory.group_resource, found.namespace)
            raise refuse(
                Rule.CLUSTER_BREAKING, f"{why}; wrong bytes in {key} may break the cluster", hint=hint
            )
        if risk is Rule.NEWER_THAN_KNOWN:
            raise refuse(
                risk,
                f"{key}: {repair.words}, and an object of this etcd key comes out; but a newer API server may have "
                "written the value as it is",
                hint=f"find out whether one of the cluster is newer than this etcdfix knows; {hint}",
            )
        if repair.kind is RepairKind.NAME:
            raise refuse(
                risk,
                f"{key}: {repair.words}, and an object of this etcd key comes out; but nothing proves that its name is "
                "damaged: another key may have that name, or this one had it",
                hint=f"give the key that wrote it its name back in the configuration; {hint}",
            )
        raise refuse(
            risk,
            f"{key}: {repair.words}, and an object of this etcd key comes out; but AES-CBC has no tag, so nothing "
            "proves that its contents are those that were written",
            hint=f"an earlier revision, a snapshot or an API server's memory may have it whole; {hint}",
        )


class _SameStart:
    """Looks for other values that begin as one does whose prefix or first bytes would be put back.

    A name that is one bit off may be the name of a key that somebody gave another name: then others have it too, and
    the configuration alone cures all of them. And first bytes that another object of the resource has as well are those
    of an encoding that is newer than this tool.
    """

    def __init__(self, stored: StoredValue) -> None:
        self._stored = stored
        self._prefix = b":".join(stored.value.split(b":", _COLONS)[:_COLONS]) + b":"
        self._failing: bytes | None = None
        self._same_magic: bytes | None = None

    def see(self, found: Examination) -> None:
        """Look at one value."""
        value, key = found.stored.value, found.stored.key
        alike = value.startswith(self._prefix) and key != self._stored.key
        if alike and not found.opened and self._failing is None:
            self._failing = key
        if (
            found.verdict.cause is Cause.MAGIC_DAMAGED
            and key != self._stored.key
            and self._same_magic is None
        ):
            self._same_magic = key if value[:_MAGIC_SIZE] == self._stored.value[:_MAGIC_SIZE] else None

    def check(self, found: Examination, repair: Repair) -> None:
        """Refuse where another value begins in the same way, and does not read either."""
        if repair.kind is RepairKind.MAGIC and self._same_magic is not None:
            raise refuse(
                Rule.FAILS_LIKE_OTHERS,
                f"{display(found.stored.key)} begins with the same four bytes as {display(self._same_magic)}, which "
                f"does not read either: that may be a newer encoding, and then it is {NOT_THE_OBJECT}",
                hint="use an etcdfix that knows the cluster's release",
            )
        if self._failing is None or repair.kind not in {RepairKind.PREFIX, RepairKind.NAME}:
            return
        raise refuse(
            Rule.CURABLE_BY_CONFIGURATION,
            f"{display(found.stored.key)} begins like {display(self._failing)}, which does not open either: that is "
            "the name of an encryption key, not a damaged prefix",
            hint="give the key that wrote them its name back in the configuration",
        )


_COLONS = 5
_MAGIC_SIZE = 4


def _check_object(cluster: Cluster, reading: KeyReading, found: Examination, repaired: Examination) -> None:
    """Hold the object that comes out against the newest earlier revision of the same generation: one uid for all."""
    with LiveSource(cluster.client.connection, revision=reading.revision) as source:
        kept = newest_kept(
            source, cluster.examiner.apart(), found.stored, reads, generations=False, newest_fails=True
        )
    before = kept.examination.decoded if kept is not None else None
    after = repaired.decoded
    if kept is None or before is None or after is None or before.uid == after.uid:
        return
    raise refuse(
        Rule.OTHER_OBJECT,
        f"the object that comes out of {display(found.stored.key)} has another uid than the one that stood there at "
        f"mod_revision {kept.examination.stored.mod_revision}, and no API server changes a uid",
        hint="that revision reads: see etcdfix explain KEY".replace(
            "KEY", quote_command([key_word(found.stored.key)])
        ),
    )


def _read_back(cluster: Cluster, outcome: ChangeOutcome, value: bytes, key: bytes) -> tuple[bool, str]:
    try:
        now = cluster.now.read_key(key).stored
        if now is None or now.mod_revision != outcome.revision:
            return False, "not read back: the key was written or deleted again since; look at it"
        found = cluster.examiner.apart().examine(now)
    except EtcdfixError as exc:
        return True, f"not read back: {exc.message}"
    if now.value == value and found.verdict.outcome is Outcome.READABLE:
        return False, "read back: it opens, and the object is whole"
    return (
        True,
        f"READ BACK, AND IT IS NOT AS IT WAS WRITTEN ({found.verdict.outcome}): undo it, and look at etcd's members",
    )
