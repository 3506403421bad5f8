"""Saves what running API servers still have in memory of objects that cannot be read. Reads only.

First each server is asked for some of the objects in the ordinary way, as it reads them from etcd: one that reads such
an object has the encryption key, and then nothing is lost but a configuration. After that each object is asked for at
one server after the other, until one gives it as etcd has it. Each that is given is on disk before the next is asked
for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Final, NamedTuple, TypeAlias

import msgspec

from etcdfix.apiserver.all_servers import AllServers
from etcdfix.apiserver.ask_memory import Pace, ServerMemory
from etcdfix.apiserver.memory import Remembered
from etcdfix.apiserver.objects import Answer, Said, look_for
from etcdfix.errors import EndedEarly, EtcdfixError, NotDurable, RefusedByRule
from etcdfix.operations.look.rescue_report import (
    Afterwards,
    fit_now,
    next_steps,
    reasons_of,
    rescued_object,
    without_any,
)
from etcdfix.operations.look.rescue_targets import Target, Targets
from etcdfix.remediation.rescue.record import BATCH, RescueRecord
from etcdfix.remediation.rescue.store import Origin, RescueStore
from etcdfix.report.model import ReportConfiguration
from etcdfix.report.origin import TOOL, shown_word, timestamp
from etcdfix.report.rescue import Rescued, RescuedObject, RescueReport, RescueServer
from etcdfix.report.saved_report import SavedReport
from etcdfix.rescued import Fit, SavedObject
from etcdfix.rules import Rule, refuse
from etcdfix.text import commands
from etcdfix.text.words import counted

DEFAULT_PER_SECOND: Final = 10.0

_MOST_SAMPLES: Final = 3
"""So many of the objects that fail alike are asked for in the ordinary way, at each server."""
_MOST_REASONS: Final = 3


RescueProgress: TypeAlias = Callable[[Iterable[Target], int], Iterable[Target]]
"""Yields the items, so many, and shows how far it is."""


class RescueRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be saved; ``per_second`` requests at most are sent, to all servers together."""

    targets: Targets
    report: SavedReport | None = None
    afterwards: Afterwards = Afterwards()
    per_second: float = DEFAULT_PER_SECOND


class RescueResult(NamedTuple):
    """The report of a rescue, and what ended it early; None where nothing did."""

    report: RescueReport
    ended: EndedEarly | None


def announcement(request: RescueRequest) -> str:
    """Return how many objects of what are about to be asked for, from which report."""
    counts = Counter(str(target.resource) for target in request.targets.objects)
    named = ", ".join(f"{count} {resource}" for resource, count in counts.most_common(_MOST_REASONS))
    more = len(counts) - _MOST_REASONS
    what = named + (f" and {counted(more, 'more kind')}" if more > 0 else "")
    source = (
        f", named by {shown_word(request.report.path)} ({request.report.sha256})" if request.report else ""
    )
    return f"contents of {what} asked of API servers{source}"


def run_rescue(
    request: RescueRequest,
    all_servers: AllServers,
    store: RescueStore,
    record: RescueRecord,
    *,
    progress: RescueProgress = lambda items, _count: items,
    sleep: Callable[[float], None] | None = None,
) -> RescueResult:
    """Save what can be saved, and say what became of each object.

    Raises:
        RefusedByRule: A server reads an object that the report calls unreadable.
        UnsafePlace: The audit log is not safe.
        AuditError: Nothing could be recorded beforehand.
    """
    pace = Pace(request.per_second) if sleep is None else Pace(request.per_second, sleep=sleep)
    work = _Rescue(request, all_servers, store, record, pace)
    work.look_plainly()
    on_record = record.announce(announcement(request))
    ended: EndedEarly | None = None
    try:
        work.rescue(progress, on_record)
    except KeyboardInterrupt as exc:
        ended = EndedEarly.of(exc)
    finally:
        work.put_on_record()
    return RescueResult(report=work.report(ended), ended=ended)


class _Rescue:
    """One run; what became of each object stands in ``outcomes``."""

    def __init__(
        self,
        request: RescueRequest,
        all_servers: AllServers,
        store: RescueStore,
        record: RescueRecord,
        pace: Pace,
    ) -> None:
        self.outcomes: dict[bytes, RescuedObject] = {}
        self._request = request
        self._all_servers = all_servers
        self._store = store
        self._record = record
        self._pace = pace
        self._servers = [ServerMemory(all_servers, server, pace) for server in all_servers.servers]
        self._given: Counter[str] = Counter()
        self._problems: list[str] = []
        self._warnings: list[str] = []
        self._unrecorded: list[SavedObject] = []
        self._on_record: frozenset[str] = frozenset()
        self._unproven = 0
        self._began = timestamp()

    def look_plainly(self) -> None:
        """Ask each server for some objects as it reads them from etcd."""
        alike: dict[tuple[str, ...], list[Target]] = {}
        for target in self._request.targets.objects:
            alike.setdefault(target.alike, []).append(target)
        for group in alike.values():
            samples = [group[0], group[len(group) // 2], group[-1]]
            for target in {sample.key: sample for sample in samples[:_MOST_SAMPLES]}.values():
                self._look_plainly_for(target)

    def _look_plainly_for(self, target: Target) -> None:
        found_at_all = False
        for server in self._all_servers.servers:
            self._pace.wait()
            said = self._all_servers.within(partial(look_for, server, target.thing, certain=True))
            if said is None or said.answer is not Answer.READS_IT:
                found_at_all = found_at_all or said is None or said.answer is not Answer.NOT_FOUND
                if said is None or said.answer in {Answer.NO_ANSWER, Answer.DENIED}:
                    why = said.detail if said is not None else "it does not answer in time"
                    self._warnings.append(
                        f"{server.address} did not say whether it reads {target.thing} from etcd: {why}"
                    )
                continue
            found_at_all = True
            if _later(said, target):
                detail = (
                    f"{server.address} reads it: written anew after the report, at {said.resource_version}"
                )
                self.outcomes[target.key] = rescued_object(target, Rescued.READABLE, detail=detail)
                continue
            raise self._is_read(server.address, target)
        if not found_at_all:
            self._warnings.append(
                f"no API server finds {target.thing}: it was deleted after the report, or they read another etcd"
            )

    def _is_read(self, server: str, target: Target) -> RefusedByRule:
        text = f"the API server at {server} reads {target.thing} from etcd: it needs no rescue"
        hint = "get it through the API; nothing was saved"
        if self._request.report is not None:
            text += ", and the configuration by which it was called unreadable is wrong or old"
            hint = (
                "compare with that server's --encryption-provider-config, --etcd-servers and --etcd-prefix; then: "
                f"{commands.scan().line(self._request.afterwards.run)}"
            )
        return refuse(Rule.CONFIGURATION_WRONG, text, hint=hint)

    def rescue(self, progress: RescueProgress, on_record: frozenset[str]) -> None:
        """Ask for each object, and save what is given.

        What is saved and whose digest is not on record is asked for again: only what a server gives is put on record,
        never what happens to lie in the directory.
        """
        self._on_record = on_record
        targets = [target for target in self._request.targets.objects if target.key not in self.outcomes]
        for target in progress(targets, len(targets)):
            try:
                self.outcomes[target.key] = self._rescue_one(target)
            except NotDurable as exc:
                # What could not be kept must not be asked for.
                self._problems.append(f"saving ended: {exc.message}{f' ({exc.hint})' if exc.hint else ''}")
                return

    def _rescue_one(self, target: Target) -> RescuedObject:
        before = self._store.has(target.key, target.mod_revision) if target.mod_revision else None
        if before is not None and before.sha256 in self._on_record:
            return rescued_object(target, Rescued.ALREADY_SAVED, before)
        best: SavedObject | None = None
        new = False
        said: list[tuple[str, Remembered]] = []
        for server in self._servers:
            why_not = server.why_not(target.resource)
            if why_not is not None:
                said.append((server.address, why_not))
                continue
            found = server.ask(target.thing, target.kind)
            said.append((server.address, found))
            if found.identity is None:
                continue
            self._given[server.address] += 1
            saved, is_new = self._save(target, found, server.address)
            new = new or is_new
            if best is None or int(saved.resource_version) > int(best.resource_version):
                best = saved
            if fit_now(best, target) is Fit.EQUAL:
                break
        if best is None and before is not None:
            self._unproven += 1
            return rescued_object(target, Rescued.ALREADY_SAVED, before, "its digest is not on record")
        if best is None:
            return without_any(target, said)
        return rescued_object(target, Rescued.SAVED if new else Rescued.ALREADY_SAVED, best)

    def _save(self, target: Target, found: Remembered, server: str) -> tuple[SavedObject, bool]:
        assert found.identity is not None  # it was given
        origin = Origin(
            server=server,
            at=datetime.now(UTC),
            cluster_uid=self._all_servers.cluster.uid,
            mod_revision=target.mod_revision,
        )
        saved, new = self._store.save(target.key, target.thing, found.identity, found.raw, origin)
        if saved.sha256 not in self._on_record and all(
            one.sha256 != saved.sha256 for one in self._unrecorded
        ):
            self._unrecorded.append(saved)
            if len(self._unrecorded) >= BATCH:
                self.put_on_record()
        return saved, new

    def put_on_record(self) -> None:
        """Record the digests of what servers gave, and that are not on record yet."""
        objects = self._unrecorded
        if not objects:
            return
        try:
            self._record.saved(objects)
        except EtcdfixError as exc:
            self._problems.append(
                f"the digests of {counted(len(objects), 'saved object')} are not on record: {exc.message} (run again)"
            )
        self._unrecorded = []

    def report(self, ended: EndedEarly | None) -> RescueReport:
        """Return what it came to."""
        by_key = {
            target.key: self.outcomes.get(target.key) or rescued_object(target, Rescued.NOT_ASKED)
            for target in self._request.targets.objects
        }
        objects = [*by_key.values()]
        saved_report = self._request.report
        reasons = [*([ended.reason] if ended is not None else []), *self._problems, *reasons_of(objects)]
        if reasons:
            reasons += [f"{one.server} could not be asked: {one.why}" for one in self._all_servers.absent]
        if self._unproven:
            reasons.append(
                f"{counted(self._unproven, 'object')} saved by an earlier run are not on record, and no server gives "
                "them any more: nothing shows that the files are unchanged"
            )
        absent = [
            RescueServer(server=one.server, asked=False, detail=one.why) for one in self._all_servers.absent
        ]
        steps = next_steps(self._request.afterwards, by_key, str(self._store.path), all_asked=not absent)
        return RescueReport(
            tool=TOOL,
            generated_at=self._began,
            report=ReportConfiguration(shown_word(saved_report.path), saved_report.sha256)
            if saved_report is not None
            else None,
            kube_system_uid=self._all_servers.cluster.uid or None,
            directory=shown_word(str(self._store.path)),
            audit_log=shown_word(str(self._record.log)),
            servers=[*map(self._server, self._servers), *absent],
            objects=objects,
            left_out=self._request.targets.left_out,
            next=[*steps],
            warnings=[
                *(saved_report.problems if saved_report is not None else ()),
                *self._all_servers.warnings,
                *self._warnings,
                *self._record.warnings,
            ],
            complete=not reasons,
            incomplete_reasons=reasons,
            finished_at=timestamp(),
        )

    def _server(self, server: ServerMemory) -> RescueServer:
        lost = [f"{resource}: {why.detail}" for resource, why in server.lost.items()]
        return RescueServer(
            server=server.address,
            asked=True,
            requests=server.requests,
            given=self._given[server.address],
            detail="; ".join([*([server.gone.detail] if server.gone is not None else []), *lost]),
        )


def _later(said: Said, target: Target) -> bool:
    """Say whether what a server reads was written after the report; unknown revisions prove nothing."""
    with suppress(ValueError):
        return 0 < target.mod_revision < int(said.resource_version)
    return False
