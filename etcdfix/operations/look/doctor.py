"""What would keep etcdfix from its work on a cluster, or make it doubtful: every check, one after the other.

A check that cannot be made says so in its place, and the next one is made. Nothing is written but the files that prove
that backups and the audit log could be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from etcdfix.apiserver.servers import APIAccess
from etcdfix.errors import (
    ClusterMismatch,
    ConfigurationError,
    EndedEarly,
    EtcdfixError,
    SourceDenied,
    SourceError,
)
from etcdfix.examine import Examiner, Reading
from etcdfix.examine_all import Progress, no_progress
from etcdfix.examine_jobs import Helpers, Jobs
from etcdfix.model import ClusterIdentity
from etcdfix.operations.look.doctoring.access import check_etcd_user, check_kubeconfig
from etcdfix.operations.look.doctoring.certificates import check_tls
from etcdfix.operations.look.doctoring.check import ok, told_by, unknown, warn
from etcdfix.operations.look.doctoring.contents import (
    check_clock,
    check_configuration,
    check_identity,
    check_kubernetes,
    check_revision,
)
from etcdfix.operations.look.doctoring.keys import KeysSeen, check_keys, check_plugins, examine_keys
from etcdfix.operations.look.doctoring.members import (
    Asked,
    ask_endpoints,
    check_alarms,
    check_leader,
    check_members,
    check_one_cluster,
    check_reach,
    check_space,
    check_versions,
)
from etcdfix.operations.look.doctoring.places import check_audit_log, check_backup_directories
from etcdfix.remediation.identify import identify
from etcdfix.remediation.places import RecordPaths
from etcdfix.report.doctor import Check, CheckCounts, DoctorReport, State
from etcdfix.report.model import ReportSource
from etcdfix.report.origin import TOOL, shown_configuration, shown_source, shown_word, timestamp
from etcdfix.sources.base import Source
from etcdfix.sources.connection import EtcdConnection
from etcdfix.sources.etcd.client import EtcdClient, MemberStatus
from etcdfix.sources.etcd.failures import CallFailed
from etcdfix.verdicts.severity import keep_memory

if TYPE_CHECKING:
    from etcdfix.encryption.kms.plugins import KMSPlugins

_FIRST: Final = "see reach and cluster first"
_LOOK: Final = "see that this is the right file, or that etcd runs and this is its port for clients"
_AGAIN: Final = "run it again"


class DoctorRequest(Reading, frozen=True, kw_only=True):
    """Everything that decides what is looked at.

    Attributes:
        connection: How to reach a live etcd; None for a file.
        at_revision: An old revision is read, which says nothing of now.
    """

    connection: EtcdConnection | None
    file: str = ""
    at_revision: bool = False
    no_encryption: bool = False
    newest_known: int
    places: RecordPaths = msgspec.field(default_factory=RecordPaths)
    api: APIAccess | None = None


class DoctorResult(msgspec.Struct, frozen=True):
    """The report, and what ended the look early; None where nothing did."""

    report: DoctorReport
    ended: EndedEarly | None = None


def examine_health(
    request: DoctorRequest,
    *,
    open_source: Callable[[], Source],
    now: Callable[[], datetime],
    plugins: KMSPlugins | None = None,
    progress: Callable[[Source], Progress] = lambda _source: no_progress,
    jobs: Jobs = 1,
) -> DoctorResult:
    """Make every check.

    Raises:
        ConfigurationError: Options or files that they name make no sense.
    """
    with ExitStack() as stack:
        visit = _Visit(request, open_source, now, plugins, progress, jobs, stack)
        visit.make_all()
        return visit.result()


class _CannotLookError(Exception):
    """What a check looks at is not there."""


@dataclass(slots=True)
class _Visit:
    request: DoctorRequest
    open_source: Callable[[], Source]
    now: Callable[[], datetime]
    plugins: KMSPlugins | None
    progress: Callable[[Source], Progress]
    jobs: Jobs
    stack: ExitStack
    checks: list[Check] = field(default_factory=list)
    ended: EndedEarly | None = None
    asked: list[Asked] = field(default_factory=list)
    source: Source | None = None
    examiner: Examiner | None = None
    uid: str | None = None
    identity: ClusterIdentity | None = None

    def make_all(self) -> None:
        """Make every check, in the order of the report."""
        request, make, connection = self.request, self._make, self.request.connection
        make("reach", self._reach)
        if connection is not None:
            make("tls", lambda: check_tls(connection, now=self.now()))
        make(
            "configuration",
            lambda: check_configuration(request.configuration, no_encryption=request.no_encryption),
        )
        make("cluster", self._cluster)
        if connection is not None:
            make("version", lambda: check_versions(self._statuses))
            if self._answered:
                make("members", lambda: check_leader(self._statuses))
            make("members", lambda: check_members(self._client, self._statuses))
            make("alarms", lambda: check_alarms(self._client))
            make("space", lambda: check_space(self._statuses))
        if self.source is not None and self.examiner is not None:
            make("version", lambda: check_kubernetes(*self._opened, request.newest_known))
        if connection is not None and not request.at_revision:
            make("clock", lambda: check_clock(*self._opened, now=self.now()))
        make("revision", lambda: check_revision(self._opened[0]))
        make("keys", self._keys)
        if connection is not None and connection.user is not None:
            make("etcd-user", lambda: check_etcd_user(self._client, request.layout.prefix_bytes))
        make("backup-dir", lambda: check_backup_directories(request.places))
        make("audit-log", lambda: check_audit_log(request.places))
        if request.api is not None:
            make("kubeconfig", partial(check_kubeconfig, request.api, self.identity))

    def result(self) -> DoctorResult:
        """Return what was found."""
        states = [check.state for check in self.checks]
        warning = keep_memory(past=self.request.run.of_the_past)
        warned = any(check.next_step.startswith(warning) for check in self.checks)
        report = DoctorReport(
            tool=TOOL,
            generated_at=timestamp(self.now()),
            source=self._shown_source(),
            encryption_config=shown_configuration(self.request.configuration),
            checks=self.checks,
            counts=CheckCounts(*(states.count(state) for state in State)),
            ended=self.ended.reason if self.ended is not None else None,
            do_not_restart=warning if warned else "",
        )
        return DoctorResult(report, self.ended)

    def _make(self, name: str, check: Callable[[], Iterable[Check]]) -> None:
        """Make one check; one that fails says so in its place."""
        if self.ended is not None:
            self.checks.append(unknown(name, f"not looked at: {self.ended.reason}", _AGAIN))
            return
        try:
            for found in check():
                self.checks.append(found)
        except KeyboardInterrupt as exc:
            self.ended = EndedEarly.of(exc)
            self.checks.append(unknown(name, f"not looked at to the end: {self.ended.reason}", _AGAIN))
        except _CannotLookError:
            read = self.source is not None or self.request.connection is None
            why = "the data could not be read" if read else "etcd was not reached"
            self.checks.append(unknown(name, f"not looked at: {why}", _FIRST))
        except ConfigurationError:
            raise
        except (EtcdfixError, CallFailed) as exc:
            sure = isinstance(exc, ClusterMismatch) or (name == "cluster" and isinstance(exc, SourceDenied))
            self.checks.append(told_by(name, State.FAIL if sure else State.UNKNOWN, exc, otherwise=_FIRST))

    @property
    def _answered(self) -> list[MemberStatus]:
        return [asked.status for asked in self.asked if asked.status is not None]

    @property
    def _statuses(self) -> list[MemberStatus]:
        if not self._answered:
            raise _CannotLookError
        return self._answered

    @property
    def _client(self) -> EtcdClient:
        from etcdfix.sources.live import LiveSource  # noqa: PLC0415 - a file needs none

        if not isinstance(self.source, LiveSource):
            raise _CannotLookError
        return self.source.client

    @property
    def _opened(self) -> tuple[Source, Examiner]:
        if self.source is None or self.examiner is None:
            raise _CannotLookError
        return self.source, self.examiner

    def _reach(self) -> Iterator[Check]:
        if self.request.connection is not None:
            self.asked = ask_endpoints(self.request.connection)
            yield from check_reach(self.asked)
            # Endpoints of different clusters are told of where it belongs.
            if any(asked.error is None for asked in self.asked) and not any(
                check_one_cluster(self._answered)
            ):
                yield from self._open()
            return
        yield from self._open()
        if self.source is not None:
            told = f"{self.request.file} can be read: {self.source.describe().integrity}"
            again = "take another snapshot or copy, if you can"
            yield warn("reach", told, again) if self.source.problems else ok("reach", told)

    def _open(self) -> Iterator[Check]:
        try:
            self.source = self.stack.enter_context(self.open_source())
        except SourceError as exc:
            yield told_by("reach", State.FAIL, exc, otherwise=_LOOK)

    def _cluster(self) -> Iterator[Check]:
        mixed = list(check_one_cluster(self._answered))
        yield from mixed
        if self.source is None:
            if not mixed:
                raise _CannotLookError
            return
        examiner = Examiner.of_cluster(self.source, self.request, self.plugins)
        self.uid = examiner.kube_system_uid(self.source)
        self.examiner = examiner
        yield check_identity(self.uid)
        self.identity = identify(self.source, examiner, self.request.places.directories)

    def _keys(self) -> Iterator[Check]:
        request, (source, examiner) = self.request, self._opened
        helpers = Helpers(examiner, request, source, self.jobs) if self.jobs != 1 else None
        seen: KeysSeen = examine_keys(source, examiner, self.progress(source), helpers)
        if seen.ending.ended is not None:
            self.ended = seen.ending.ended
        past = request.run.of_the_past
        yield from check_keys(
            seen,
            request.configuration,
            source.problems,
            prefix=request.layout.prefix,
            limited_to=source.describe().limited_to,
            no_encryption=request.no_encryption,
            past=past,
        )
        reports = self.plugins.reports() if self.plugins is not None else None
        yield from check_plugins(request.configuration, reports, past=past)

    def _shown_source(self) -> ReportSource:
        if self.source is not None:
            return shown_source(self.source.describe(), self.uid)
        connection = self.request.connection
        return ReportSource(
            type="etcd" if connection is not None else "kine" if self.request.run.of_kine else "snapshot",
            path=None if connection is not None else shown_word(self.request.file),
            endpoints=list(map(shown_word, connection.endpoints)) if connection is not None else None,
            revision=0,
            single_revision=True,
            segments=[],
            cluster_id=None,
            kube_system_uid=None,
            sha256=None,
            etcd_version=None,
        )
