"""``rescue``: save what running API servers still have in memory of objects that cannot be read. Reads only.

First each server is asked for some of the objects in the ordinary way, as it reads them from etcd: one that reads such
an object has the encryption key, and then nothing is lost but a configuration. After that each object is asked for at
one server after the other, until one gives it as etcd has it. Each that is given is on disk before the next is asked
for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple, TypeAlias

import msgspec

from etcdfix.apiserver.client import Pace
from etcdfix.apiserver.kubeconfig import APIAccess
from etcdfix.apiserver.memory import Remembered, ServerMemory
from etcdfix.apiserver.objects import Answer, ServerAnswer, read_object
from etcdfix.apiserver.servers import AllServers, open_all_servers
from etcdfix.commands.rescuing.objects import Target, next_steps, outcome_of, reads_it, without_any
from etcdfix.copies.rescued import SavedObject
from etcdfix.model.errors import EndedEarly, EtcdfixError
from etcdfix.model.model import ClusterIdentity, GroupResource
from etcdfix.remediation.errors import NotDurable
from etcdfix.remediation.places import RecordPaths, disk_warning, lasting_warnings
from etcdfix.remediation.saved_objects import BATCH, RescueRecord, RescueStore
from etcdfix.report.model import ReportConfiguration
from etcdfix.report.origin import TOOL, shown_word, timestamp
from etcdfix.report.rescue import Rescued, RescuedObject, RescueReport, RescueServer
from etcdfix.report.saved_report import SavedReport
from etcdfix.text.commands import RunOptions
from etcdfix.text.words import counted

RescueProgress: TypeAlias = Callable[[Iterable[Target], int], Iterable[Target]]
"""Yields the items, so many, and shows how far it is."""


class RescueRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be saved, and where."""

    targets: list[Target]
    words: tuple[str, ...]
    api: APIAccess
    cluster: ClusterIdentity
    directory: Path
    places: RecordPaths
    report: SavedReport | None = None
    run: RunOptions = RunOptions()


class RescueResult(NamedTuple):
    """The report of a rescue, and what ended it early; None where nothing did."""

    report: RescueReport
    ended: EndedEarly | None


def run_rescue(
    request: RescueRequest,
    *,
    say: Callable[[str], None],
    progress: RescueProgress = lambda items, _count: items,
) -> RescueResult:
    """Save what can be saved, and say what became of each object.

    Raises RefusedByRule, UnsafePlace, NotDurable, AuditError, AuthorizationRefused or SourceUnreachable.
    """
    with RescueStore.open(request.directory) as store:
        kept = {"the saved objects": (store.path,), "the audit log": (request.places.log_path.parent,)}
        for warning in (*lasting_warnings(store.path, named=True), *disk_warning(kept)):
            say(f"warning: {warning}")
        with open_all_servers(request.api, request.cluster, pace=Pace()) as all_servers:
            all_servers.require_any()
            say(
                f"{store.path} will hold what servers have of {counted(len(request.targets), 'object')}, Secrets "
                "unmasked; restart no API server meanwhile"
            )
            work = _Rescue(request, all_servers, store)
            work.look_plainly()
            ended = work.rescue(progress)
            return RescueResult(report=work.report(ended), ended=ended)


class _Rescue:
    """One run; what became of each object stands in ``outcomes``."""

    def __init__(self, request: RescueRequest, all_servers: AllServers, store: RescueStore) -> None:
        self.outcomes: dict[bytes, RescuedObject] = {}
        self._request, self._all_servers, self._store = request, all_servers, store
        self._servers = [ServerMemory(server) for server in all_servers.servers]
        self._record = RescueRecord(
            request.places,
            store.path,
            cluster_uid=all_servers.cluster.uid,
            resources=sorted({str(target.resource) for target in request.targets}),
        )
        self._given: Counter[str] = Counter()
        self._problems: list[str] = []
        self._warnings: list[str] = []
        self._unrecorded: dict[str, SavedObject] = {}
        self._on_record: frozenset[str] = frozenset()
        self._unproven = 0
        self._began = timestamp()

    def look_plainly(self) -> None:
        """Ask each server for three objects of each resource as it reads them from etcd."""
        by_resource: dict[GroupResource, list[Target]] = {}
        for target in self._request.targets:
            by_resource.setdefault(target.resource, []).append(target)
        for each in by_resource.values():
            for target in {one.key: one for one in (each[0], each[len(each) // 2], each[-1])}.values():
                self._look_plainly_for(target)

    def _look_plainly_for(self, target: Target) -> None:
        found_at_all = False
        for server in self._all_servers.servers:
            said = read_object(server, target.thing)
            found_at_all |= said.answer is not Answer.NOT_FOUND
            if said.answer in {Answer.NO_ANSWER, Answer.DENIED}:
                self._warnings.append(
                    f"{server.address} did not say whether it reads {target.thing} from etcd: {said.detail}"
                )
            elif said.answer is Answer.READS_IT and not _later(said, target):
                raise reads_it(server.address, target, self._request.run)
            elif said.answer is Answer.READS_IT:
                detail = (
                    f"{server.address} reads it: written anew meanwhile, at revision {said.resource_version}"
                )
                self.outcomes[target.key] = outcome_of(target, Rescued.READABLE, detail=detail)
        if not found_at_all:
            self._warnings.append(
                f"no API server finds {target.thing}: it was deleted meanwhile, or they read another etcd"
            )

    def rescue(self, progress: RescueProgress) -> EndedEarly | None:
        """Ask for each object, and save what is given; return what ended it early.

        It is recorded first that contents are asked for. What is saved and whose digest is not on record is asked for
        again: only what a server gives is put on record, never what happens to lie in the directory.
        """
        counts = Counter(str(target.resource) for target in self._request.targets)
        named = ", ".join(f"{count} {resource}" for resource, count in counts.items())
        report = self._request.report
        by = f", named by {shown_word(report.path)} ({report.sha256})" if report is not None else ""
        self._on_record = self._record.announce(f"contents of {named} asked of API servers{by}")
        targets = [target for target in self._request.targets if target.key not in self.outcomes]
        try:
            for target in progress(targets, len(targets)):
                self.outcomes[target.key] = self._rescue_one(target)
        except NotDurable as exc:
            # What could not be kept must not be asked for.
            self._problems.append(f"saving ended: {exc.message}{f' ({exc.hint})' if exc.hint else ''}")
        except KeyboardInterrupt as exc:
            return EndedEarly.of(exc)
        finally:
            self._put_on_record()
        return None

    def _rescue_one(self, target: Target) -> RescuedObject:
        before = self._store.has(target.key, target.mod_revision) if target.mod_revision else None
        if before is not None and before.sha256 in self._on_record:
            return outcome_of(target, Rescued.SAVED, before)
        best: SavedObject | None = None
        said: list[tuple[str, Remembered]] = []
        for server in self._servers:
            found = server.why_not(target.resource) or server.ask(target.thing, target.kind)
            said.append((server.server.address, found))
            if found.identity is None:
                continue
            self._given[server.server.address] += 1
            saved = self._save(target, found, server.server.address)
            if best is None or int(saved.resource_version) > int(best.resource_version):
                best = saved
            if best.resource_version == str(target.mod_revision):
                break
        if best is not None:
            return outcome_of(target, Rescued.SAVED, best)
        if before is not None:
            self._unproven += 1
            return outcome_of(target, Rescued.SAVED, before, "its digest is not on record")
        return without_any(target, said)

    def _save(self, target: Target, found: Remembered, server: str) -> SavedObject:
        assert found.identity is not None  # it was given
        saved = self._store.save(
            target.key,
            target.thing,
            found.identity,
            found.raw,
            server=server,
            cluster_uid=self._all_servers.cluster.uid,
            mod_revision=target.mod_revision,
        )
        if saved.sha256 not in self._on_record:
            self._unrecorded[saved.sha256] = saved
            if len(self._unrecorded) >= BATCH:
                self._put_on_record()
        return saved

    def _put_on_record(self) -> None:
        objects = [*self._unrecorded.values()]
        if not objects:
            return
        try:
            self._record.saved(objects)
        except EtcdfixError as exc:
            self._problems.append(
                f"the digests of {counted(len(objects), 'saved object')} are not on record: {exc.message} (run again)"
            )
        self._unrecorded = {}

    def report(self, ended: EndedEarly | None) -> RescueReport:
        """Return what it came to."""
        request, absent = self._request, self._all_servers.absent
        by_key = {
            target.key: self.outcomes.get(target.key) or outcome_of(target, Rescued.NOT_ASKED)
            for target in request.targets
        }
        reasons = [ended.reason] if ended is not None else []
        reasons += self._problems
        lacking = sum(bool(one.lacks()) for one in by_key.values())
        if lacking:
            reasons.append(f"{lacking} of {counted(len(by_key), 'object')} not saved as etcd has them")
        if reasons:
            reasons += [f"{one.server} could not be asked: {one.why}" for one in absent]
        if self._unproven:
            reasons.append(
                f"{counted(self._unproven, 'object')} saved by an earlier run are not on record, and no server gives "
                "them any more: nothing shows that the files are unchanged"
            )
        report, uid = request.report, self._all_servers.cluster.uid
        unnamed = (
            [] if request.cluster.is_known else ["nothing but these API servers says which cluster it is"]
        )
        asked = [
            RescueServer(
                server=one.server.address,
                asked=True,
                requests=one.server.requests,
                given=self._given[one.server.address],
                detail=one.lost_words(),
            )
            for one in self._servers
        ]
        return RescueReport(
            tool=TOOL,
            generated_at=self._began,
            report=ReportConfiguration(shown_word(report.path), report.sha256) if report else None,
            kube_system_uid=uid or None,
            directory=shown_word(str(self._store.path)),
            audit_log=shown_word(str(self._record.log)),
            servers=[
                *asked,
                *(RescueServer(server=one.server, asked=False, detail=one.why) for one in absent),
            ],
            objects=[*by_key.values()],
            next=[*next_steps(request.words, by_key, str(self._store.path), all_asked=not absent)],
            warnings=[
                *(report.problems if report is not None else ()),
                *unnamed,
                *self._all_servers.warnings,
                *self._warnings,
                *self._record.warnings,
            ],
            complete=not reasons,
            incomplete_reasons=reasons,
            finished_at=timestamp(),
        )


def _later(said: ServerAnswer, target: Target) -> bool:
    """Say whether what a server reads was written since; unknown revisions prove nothing."""
    version = said.resource_version
    return version.isdecimal() and 0 < target.mod_revision < int(version)
