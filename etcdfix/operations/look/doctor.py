"""What would keep etcdfix from its work on a cluster, or make it doubtful: every check, one after the other.

A check that cannot be made says so in its place, and the next one is made. Nothing is written but the files that prove
that backups and the audit log could be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
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
from etcdfix.sources.etcd.client import EtcdClient
from etcdfix.sources.etcd.failures import CallFailed
from etcdfix.verdicts.severity import keep_memory

if TYPE_CHECKING:
    from etcdfix.encryption.kms.plugins import KMSPlugins

_OF_CONTENTS: Final = ("clock", "revision", "keys")
_FIRST: Final = "see reach and cluster first"
_LOOK: Final = "see that this is the right file, or that etcd runs and this is its port for clients"
_AGAIN: Final = "run it again"
_NOT_REACHED: Final = ("not looked at: etcd was not reached", _FIRST)
_NOT_READ: Final = ("not looked at: the data could not be read", _FIRST)


class DoctorRequest(Reading, frozen=True, kw_only=True):
    """Everything that decides what is looked at.

    Attributes:
        connection: How to reach a live etcd; None for a file.
        file: The file, as it is shown; "" for a live etcd.
        at_revision: An old revision is read, which says nothing of now.
        no_encryption: The operator says that nothing is encrypted at rest.
        newest_known: Minor of the newest release that etcdfix knows.
        places: Where backups and the audit log would go.
        api: Which API server to ask; None for none.
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

    Args:
        request: What to look at.
        open_source: Opens the etcd or the file.
        now: Tells the time.
        plugins: The KMS plugins to ask; None to ask none.
        progress: Counts the values of a source for a display.
        jobs: How many processes examine values; the result is the same for any number.

    Raises:
        ConfigurationError: Options or files that they name make no sense.
    """
    with ExitStack() as stack:
        visit = _Visit(request, open_source, now, plugins, progress, jobs, stack)
        visit.make_all()
        return visit.result()


class _Visit:
    """The checks as they are made."""

    def __init__(
        self,
        request: DoctorRequest,
        open_source: Callable[[], Source],
        now: Callable[[], datetime],
        plugins: KMSPlugins | None,
        progress: Callable[[Source], Progress],
        jobs: Jobs,
        stack: ExitStack,
    ) -> None:
        self._request = request
        self._open_source = open_source
        self._now = now
        self._plugins = plugins
        self._progress = progress
        self._jobs = jobs
        self._stack = stack
        self._checks: list[Check] = []
        self._ended: EndedEarly | None = None
        self._asked: list[Asked] = []
        self._source: Source | None = None
        self._examiner: Examiner | None = None
        self._uid: str | None = None
        self._identity: ClusterIdentity | None = None

    def make_all(self) -> None:
        """Make every check, in the order of the report."""
        request = self._request
        self._make("reach", self._reach)
        if request.connection is not None:
            self._make("tls", partial(check_tls, request.connection, now=self._now()))
        self._make(
            "configuration",
            partial(check_configuration, request.configuration, no_encryption=request.no_encryption),
        )
        self._make("cluster", self._cluster)
        if request.connection is not None:
            self._of_etcd()
        self._of_contents()
        if request.connection is not None and request.connection.user is not None:
            client = self._client()
            if client is None:
                self._cannot("etcd-user")
            else:
                self._make("etcd-user", partial(check_etcd_user, client, request.layout.prefix_bytes))
        self._make("backup-dir", partial(check_backup_directories, request.places))
        self._make("audit-log", partial(check_audit_log, request.places))
        if request.api is not None:
            self._make("kubeconfig", partial(check_kubeconfig, request.api, self._identity))

    def result(self) -> DoctorResult:
        """Return what was found."""
        states = [check.state for check in self._checks]
        warning = keep_memory(past=self._request.run.of_the_past)
        warned = any(check.next_step.startswith(warning) for check in self._checks)
        report = DoctorReport(
            tool=TOOL,
            generated_at=timestamp(self._now()),
            source=self._shown_source(),
            encryption_config=shown_configuration(self._request.configuration),
            checks=self._checks,
            counts=CheckCounts(*(states.count(state) for state in State)),
            ended=self._ended.reason if self._ended is not None else None,
            do_not_restart=warning if warned else "",
        )
        return DoctorResult(report, self._ended)

    def _make(self, name: str, check: Callable[[], Iterable[Check]]) -> None:
        """Make one check; one that fails says so in its place.

        Raises:
            ConfigurationError: Options make no sense: then nothing else does.
        """
        if self._ended is not None:
            self._checks.append(unknown(name, f"not looked at: {self._ended.reason}", _AGAIN))
            return
        try:
            for found in check():
                self._checks.append(found)
        except KeyboardInterrupt as exc:
            self._ended = EndedEarly.of(exc)
            self._checks.append(unknown(name, f"not looked at to the end: {self._ended.reason}", _AGAIN))
        except ConfigurationError:
            raise
        except (EtcdfixError, CallFailed) as exc:
            sure = isinstance(exc, ClusterMismatch) or (name == "cluster" and isinstance(exc, SourceDenied))
            self._checks.append(told_by(name, State.FAIL if sure else State.UNKNOWN, exc, otherwise=_FIRST))

    @property
    def _why_not(self) -> tuple[str, str]:
        """Why a check cannot be made, and what to do about that."""
        return _NOT_READ if self._source is not None or self._request.connection is None else _NOT_REACHED

    def _cannot(self, *names: str) -> None:
        """Say of checks that they cannot be made."""
        for name in names:
            self._make(name, partial(lambda check: [check], unknown(name, *self._why_not)))

    # Where the data is

    def _reach(self) -> Iterator[Check]:
        if self._request.connection is None:
            yield from self._open()
            if self._source is not None:
                told = f"{self._request.file} can be read: {self._source.describe().integrity}"
                doubtful = bool(self._source.problems)
                yield (
                    warn("reach", told, "take another snapshot or copy, if you can")
                    if doubtful
                    else ok("reach", told)
                )
            return
        self._asked = ask_endpoints(self._request.connection)
        yield from check_reach(self._asked)
        if any(asked.error is None for asked in self._asked):
            yield from self._open()

    def _open(self) -> Iterator[Check]:
        if any(check_one_cluster([asked.status for asked in self._asked if asked.status is not None])):
            return  # said where it belongs
        try:
            self._source = self._stack.enter_context(self._open_source())
        except SourceError as exc:
            yield told_by("reach", State.FAIL, exc, otherwise=_LOOK)

    def _cluster(self) -> Iterator[Check]:
        mixed = list(check_one_cluster([asked.status for asked in self._asked if asked.status is not None]))
        yield from mixed
        if self._source is None:
            if not mixed:
                yield unknown("cluster", *self._why_not)
            return
        examiner = Examiner.of_cluster(self._source, self._request, self._plugins)
        self._uid = examiner.kube_system_uid(self._source)
        self._examiner = examiner
        yield check_identity(self._uid)
        self._identity = identify(self._source, examiner, self._request.places.directories)

    def _client(self) -> EtcdClient | None:
        from etcdfix.sources.live import LiveSource  # noqa: PLC0415 - a file needs none

        return self._source.client if isinstance(self._source, LiveSource) else None

    # What is asked of it

    def _of_etcd(self) -> None:
        client = self._client()
        statuses = [asked.status for asked in self._asked if asked.status is not None]
        if not statuses:
            self._cannot("version")
        else:
            self._make("version", partial(check_versions, statuses))
            self._make("members", partial(check_leader, statuses))
        if client is None:
            self._cannot("members", "learner", "alarms")
        else:
            self._make("members", partial(check_members, client, statuses))
            self._make("alarms", partial(check_alarms, client))
        if not statuses:
            self._cannot("space")
        else:
            self._make("space", partial(check_space, statuses))

    def _of_contents(self) -> None:
        request = self._request
        source, examiner = self._source, self._examiner
        current = request.connection is not None and not request.at_revision
        if source is None or examiner is None:
            self._cannot(*_OF_CONTENTS[not current :])
            return
        self._make("version", partial(check_kubernetes, source, examiner, request.newest_known))
        if current:
            self._make("clock", lambda: check_clock(source, examiner, now=self._now()))
        self._make("revision", partial(check_revision, source))
        self._make("keys", partial(self._keys, source, examiner))

    def _keys(self, source: Source, examiner: Examiner) -> Iterator[Check]:
        request = self._request
        helpers = Helpers(examiner, request, source, self._jobs) if self._jobs != 1 else None
        seen: KeysSeen = examine_keys(source, examiner, self._progress(source), helpers)
        if seen.ending.ended is not None:
            self._ended = seen.ending.ended
        yield from check_keys(
            seen,
            request.configuration,
            source.problems,
            prefix=request.layout.prefix,
            limited_to=source.describe().limited_to,
            no_encryption=request.no_encryption,
            past=request.run.of_the_past,
        )
        yield from check_plugins(
            request.configuration,
            self._plugins.reports() if self._plugins is not None else None,
            past=request.run.of_the_past,
        )

    def _shown_source(self) -> ReportSource:
        if self._source is not None:
            return shown_source(self._source.describe(), self._uid)
        connection = self._request.connection
        return ReportSource(
            type="etcd" if connection is not None else "kine" if self._request.run.of_kine else "snapshot",
            path=None if connection is not None else shown_word(self._request.file),
            endpoints=list(map(shown_word, connection.endpoints)) if connection is not None else None,
            revision=0,
            single_revision=True,
            segments=[],
            cluster_id=None,
            kube_system_uid=None,
            sha256=None,
            etcd_version=None,
        )
