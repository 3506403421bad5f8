"""Has API servers write anew, from their memory, what they can no longer read from etcd: one object after the other.

It is the only change that goes through the API. Each object has its own checks, backup, record of the intent, request
and record of the outcome, by :func:`~etcdfix.remediation.change.carry_out` like every change; the
run stops at the first surprise. What is healed before that stays healed, and a second run goes on.

A server's own dry run cannot work here: it reads etcd, and fails. So a dry run is all the checks, and no request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import msgspec

from etcdfix.apiserver.all_servers import open_all_servers, require_servers
from etcdfix.apiserver.memory import identity_in
from etcdfix.errors import EtcdfixError, NotDurable, RefusedByRule
from etcdfix.operations.change.batch import Confirmed, ended_by, timer_kept
from etcdfix.operations.change.heal_file import check_current
from etcdfix.operations.change.heal_kind import check_kind
from etcdfix.operations.change.heal_look import (
    Ground,
    Healable,
    LeftAlone,
    look_at,
    lost_key_or_why,
)
from etcdfix.operations.change.heal_sender import HealSender, intent_detail
from etcdfix.remediation.audit.record import Result, Verb
from etcdfix.remediation.change import (
    Change,
    ChangeRequest,
    Confirmer,
    carry_out,
)
from etcdfix.remediation.commit import ChangeOutcome
from etcdfix.remediation.durable import Step, no_step
from etcdfix.remediation.patcher import now_text
from etcdfix.remediation.places import place_warnings
from etcdfix.remediation.preflight.cluster import Cluster, find_cluster
from etcdfix.remediation.preflight.target import read_target, require_write_key
from etcdfix.remediation.rescue.store import Origin, RescueStore
from etcdfix.rescued import newest_first, read_index
from etcdfix.rules import Rule, acceptance, refuse
from etcdfix.sources.kine import KineSource
from etcdfix.storagekey import ResourcePrefix, display
from etcdfix.text.commands import RunOptions


class HealConfirmer(Confirmer, Protocol):
    """The person before a heal, or the script that stands for one."""

    def confirm_number(self, number: int) -> bool:
        """Say whether the number of objects was typed back."""
        ...


class HealRequest(ChangeRequest, frozen=True, kw_only=True):
    """One run.

    Attributes:
        many: The keys are those of a report: each that needs no heal is left alone, and the number is typed. Else
            there is one, and it refuses.
        report_cluster_uid: uid of kube-system in the report, "" where it says none.
    """

    keys: tuple[bytes, ...]
    saved: Path
    many: bool = False
    report_cluster_uid: str = ""
    run: RunOptions = RunOptions()


class HealPreview(msgspec.Struct, frozen=True, kw_only=True):
    """What is shown before anything is asked.

    Attributes:
        unread: For each resource how many of its values do not open.
    """

    healable: tuple[Healable, ...]
    left_alone: tuple[LeftAlone, ...]
    unread: dict[str, int]
    saved: Path
    warnings: tuple[str, ...]


class Healed(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one object.

    Attributes:
        server: The API server that wrote it, "" where none is known to have.
        changed: Paths of the fields that admission changed.
        saved_file: The answer of the server, where it was kept beside what was rescued; else "".
        uid_from: What says the uid, where no server gave it from memory any more; "" where one did.
    """

    key: bytes
    uid: str
    outcome: ChangeOutcome
    server: str = ""
    changed: tuple[str, ...] = ()
    saved_file: str = ""
    uid_from: str = ""

    @property
    def ended(self) -> bool:
        """No server gave it from memory any more: which of them still held it was not known."""
        return bool(self.uid_from)

    @property
    def well(self) -> bool:
        """It went as it should, so that the run may go on."""
        return self.outcome.result in {None, Result.HEALED} and self.outcome.certain


def run_heal(
    cluster: Cluster,
    request: HealRequest,
    confirmer: HealConfirmer,
    *,
    preview: Callable[[HealPreview], None],
    told: Callable[[Healed], None],
    left: Callable[[LeftAlone], None],
    step: Step = no_step,
) -> bool:
    """Heal what was named, or find out whether it could be healed.

    Returns:
        Whether everything went as it should; False where the run stopped at an outcome that it has told.

    Raises:
        RemediationRefused: A rule says no; nothing was changed but what was told before.
        AuditError: The record cannot be made durable; likewise.
        SourceError: etcd could not be asked; likewise.
    """
    step("check: configuration")
    require_write_key(cluster)
    if request.api is None:
        raise refuse(
            Rule.NO_API_SERVER, "no API server was named, and an API server it is that heals",
            hint="--kubeconfig FILE, and --server URL for each further one",
        )  # fmt: skip
    step("check: saved objects")
    index = read_index(request.saved)
    step("check: cluster")
    identity = find_cluster(cluster, request.record_paths.directories)
    if not identity.is_known:
        raise refuse(
            Rule.UNKNOWN_CLUSTER,
            f"nothing in {cluster.kept_in} names the cluster, so nothing shows that the API servers are of this one",
            hint="name the file that k3s has open, and the API server's --etcd-prefix"
            if cluster.is_kine
            else "--main-endpoints LIST, or --manifest FILE, where namespaces lie in another etcd",
        )
    if request.report_cluster_uid and identity.uid and request.report_cluster_uid != identity.uid:
        raise refuse(
            Rule.OTHER_CLUSTER,
            f"the report is of another cluster: kube-system {request.report_cluster_uid}, not {identity.uid}",
            hint="a report of this cluster: etcdfix scan -o json",
        )
    step("check: places")
    warnings = place_warnings(request.record_paths)
    with open_all_servers(request.api, identity) as all_servers:
        require_servers(all_servers)
        known = {*(one.address for one in all_servers.servers), *(one.server for one in all_servers.absent)}
        warnings += tuple(
            f"{acceptance(Rule.UNCHECKED_SERVER, url)} fits no API server"
            for url in request.accepted.named(Rule.UNCHECKED_SERVER)
            if url not in known
        )
        if isinstance(cluster.source, KineSource):
            step("check: the file is what the API servers read")
            check_current(cluster.source, all_servers, request.accepted.named(Rule.UNCHECKED_SERVER))
        run = _Run(
            Ground(
                cluster=cluster,
                identity=identity,
                all_servers=all_servers,
                saved=index.directory,
                run=request.run,
                copies={key: newest_first(objects) for key, objects in index.by_key().items()},
                accepted=request.accepted,
                places=request.record_paths,
                step=step,
            ),
            request,
            confirmer,
            told,
            left,
        )
        found = [run.look(key) for key in dict.fromkeys(request.keys)]
        alone = tuple(each for each in found if isinstance(each, LeftAlone))
        healable = tuple(each for each in found if isinstance(each, Healable))
        for each in alone:
            left(each)
        if not healable:
            raise _nothing_to_heal(request, alone)
        unread = run.check_kinds(healable)
        shown = HealPreview(
            healable=healable, left_alone=alone, unread=unread, saved=request.saved, warnings=warnings
        )
        return run.go(shown, preview)


def _nothing_to_heal(request: HealRequest, alone: tuple[LeftAlone, ...]) -> RefusedByRule:
    if not request.many:
        (one,) = alone
        return refuse(one.rule, f"{display(one.key)}: {one.why}", hint=one.hint)
    if alone and all(each.well for each in alone):
        return refuse(
            Rule.READABLE, "today's configuration opens everything that the report names", hint="scan again"
        )
    return refuse(
        Rule.NOT_HEALABLE,
        f"nothing of what the report names can be healed: {alone[0].why if alone else 'it names nothing'}",
        hint="etcdfix copies says which copies are left" if alone else "etcdfix scan -o json writes a report",
    )


class _Run:
    """One run over one or many objects."""

    def __init__(
        self,
        ground: Ground,
        request: HealRequest,
        confirmer: HealConfirmer,
        told: Callable[[Healed], None],
        left: Callable[[LeftAlone], None],
    ) -> None:
        self._left = left
        self._ground = ground
        self._request = request
        self._confirmer = confirmer
        self._told = told

    def look(self, key: bytes) -> Healable | LeftAlone:
        """Check one key from the beginning."""
        ground = self._ground
        try:
            target = read_target(ground.cluster, key, ground.accepted, ground.step)
        except RefusedByRule as exc:
            if not self._request.many or exc.rule != Rule.GONE:
                raise
            return LeftAlone(key, Rule.GONE, exc.message)
        ground.step("check: examine")
        found = ground.cluster.examiner.examine(target.stored)
        alone = lost_key_or_why(found)
        return alone if alone is not None else look_at(ground, target, found)

    def check_kinds(self, healable: Iterable[Healable]) -> dict[str, int]:
        """Check everything of the resources that are concerned; say how many values of each do not open."""
        self._ground.step("check: everything of the kind")
        directories: dict[str, ResourcePrefix] = {
            str(each.found.directory.group_resource): each.found.directory for each in healable
        }
        return {name: check_kind(self._ground, each) for name, each in directories.items()}

    def go(self, shown: HealPreview, preview: Callable[[HealPreview], None]) -> bool:
        """Show it, have it confirmed, and heal one object after the other; say whether all went well."""
        request, step = self._request, self._ground.step
        if not request.many:
            return self._heal(shown.healable[0], self._confirmer, lambda: preview(shown))
        preview(shown)
        number = len(shown.healable)
        if not request.dry_run:
            step("confirm")
            if not self._confirmer.confirm_number(number):
                raise refuse(
                    Rule.NOT_CONFIRMED,
                    f"{number} was not typed back; nothing was changed",
                    hint="type the number at a terminal, or give --yes in a script",
                )
        for before in shown.healable:
            # Time has passed, and other objects were written: each is looked at again by itself.
            again = before if request.dry_run else self.look(before.key)
            if isinstance(again, LeftAlone) and again.well:
                # A controller that writes an object often heals it by that.
                self._left(again)
                continue
            if isinstance(again, LeftAlone):
                raise refuse(
                    again.rule,
                    f"{display(again.key)} could be healed a moment ago, and not any more: {again.why}",
                    hint="run this again: what was healed is left alone",
                )
            with timer_kept():
                well = self._heal(again, Confirmed(), lambda: None)
            if not well:
                return False
        return True

    def _heal(self, healable: Healable, confirmer: Confirmer, preview: Callable[[], None]) -> bool:
        at = now_text()
        ground, request = self._ground, self._request
        sender = HealSender(ground, healable, at)
        outcome = carry_out(
            ground.cluster,
            request,
            Change(
                verb=Verb.HEAL,
                found=healable.found,
                reading=healable.reading,
                identity=healable.identity,
                servers=healable.servers,
                landmarks=healable.landmarks,
                replaced=healable,
                detail=intent_detail(at),
            ),
            confirmer,
            preview=preview,
            sender=sender,
            step=ground.step,
        )
        healed = Healed(
            key=healable.key,
            uid=healable.uid,
            outcome=outcome,
            server=sender.server,
            changed=sender.changed,
            uid_from=healable.uid_from,
        )
        if healable.ended and sender.answer is not None:
            healed = self._with_answer(healed, healable, sender.answer)
        self._told(healed)
        if request.many and outcome.signals:
            raise ended_by(outcome.signals[0])
        return healed.well

    def _with_answer(self, healed: Healed, healable: Healable, answer: bytes) -> Healed:
        """Keep what a server answered whose memory could not be saved any more: the only copy outside etcd."""
        outcome, identity = healed.outcome, identity_in(answer, healable.thing)
        try:
            if identity is None or identity.uid != healable.uid:
                raise NotDurable("the answer is not the object's", path=self._request.saved)
            origin = Origin(
                server=healed.server,
                at=datetime.now(UTC),
                cluster_uid=self._ground.identity.uid,
                mod_revision=outcome.revision,
            )
            with RescueStore.open(self._request.saved, step=self._ground.step) as store:
                kept, _new = store.save(healable.key, healable.thing, identity, answer, origin)
        except EtcdfixError as exc:
            warning = f"the answer of the API server was not kept: {exc.message}"
            outcome = msgspec.structs.replace(outcome, warnings=(*outcome.warnings, warning))
            return msgspec.structs.replace(healed, outcome=outcome)
        return msgspec.structs.replace(healed, saved_file=str(self._request.saved / kept.file))
