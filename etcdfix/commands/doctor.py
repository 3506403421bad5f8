"""What would keep etcdfix from its work on a cluster, or make it doubtful: every check, one after the other.

A check that cannot be made says so in its place, and the next one is made. Nothing is written but the files that prove
that backups and the audit log could be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from etcdfix.apiserver.servers import APIAccess
from etcdfix.commands.doctoring.access import check_etcd_user, check_kubeconfig
from etcdfix.commands.doctoring.certificates import check_tls
from etcdfix.commands.doctoring.check import ok, told_by, unknown, warn
from etcdfix.commands.doctoring.contents import (
    check_clock,
    check_configuration,
    check_identity,
    check_kubernetes,
    check_revision,
)
from etcdfix.commands.doctoring.keys import check_keys, check_plugins, examine_keys
from etcdfix.commands.doctoring.members import (
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
from etcdfix.commands.doctoring.places import check_audit_log, check_backup_directories
from etcdfix.commands.opening import Inputs, open_source
from etcdfix.errors import (
    ClusterMismatch,
    ConfigurationError,
    EndedEarly,
    EtcdfixError,
    SourceDenied,
    SourceError,
)
from etcdfix.examine import Examiner
from etcdfix.examine_all import Progress, no_progress
from etcdfix.examine_jobs import Helpers, Jobs
from etcdfix.inputs.releases import LAST_MINOR
from etcdfix.model import ClusterIdentity
from etcdfix.remediation.identify import identify
from etcdfix.remediation.places import RecordPaths
from etcdfix.report.doctor import Check, DoctorReport, State
from etcdfix.report.model import ReportSource
from etcdfix.report.origin import TOOL, shown_configuration, shown_source, shown_word, timestamp
from etcdfix.sources.base import Source, SourceDescription
from etcdfix.sources.connection import connection_from_options
from etcdfix.sources.etcd.client import EtcdClient, MemberStatus
from etcdfix.sources.etcd.failures import CallFailed
from etcdfix.verdicts.severity import keep_memory

if TYPE_CHECKING:
    from etcdfix.encryption.config import EncryptionConfiguration
    from etcdfix.encryption.kms.plugins import KMSPlugins

_FIRST: Final = "see reach and cluster first"
_AGAIN: Final = "run it again"


class _CannotLookError(Exception):
    """What a check looks at is not there."""


@dataclass(slots=True, kw_only=True)
class Doctor:
    """One look at everything; :meth:`examine` makes every check.

    Attributes:
        ended: What ended the look early; None where nothing did.
    """

    inputs: Inputs
    configuration: EncryptionConfiguration | None
    places: RecordPaths
    api: APIAccess | None = None
    plugins: KMSPlugins | None = None
    progress: Callable[[Source], Progress] = lambda _source: no_progress
    jobs: Jobs = 1
    ended: EndedEarly | None = None
    _stack: ExitStack = field(default_factory=ExitStack)
    _asked: list[Asked] = field(default_factory=list)
    _source: Source | None = None
    _examiner: Examiner | None = None
    _uid: str | None = None
    _identity: ClusterIdentity | None = None

    def examine(self) -> DoctorReport:
        """Make every check, and return what was found.

        Raises:
            ConfigurationError: Options or files that they name make no sense.
        """
        run = self.inputs.run_options()
        with self._stack:
            checks = [check for name, make in self._checks() for check in self._made(name, make)]
            warning = keep_memory(past=run.of_the_past)
            warned = any(check.next_step.startswith(warning) for check in checks)
            return DoctorReport(
                tool=TOOL,
                generated_at=timestamp(datetime.now(UTC)),
                source=self._shown_source(),
                encryption_config=shown_configuration(self.configuration),
                checks=checks,
                ended=self.ended.reason if self.ended is not None else None,
                do_not_restart=warning if warned else "",
            )

    def _checks(self) -> Iterator[tuple[str, Callable[[], Iterable[Check]]]]:
        """Yield name and check, in the order of the report; what rests on an earlier one is decided after it."""
        inputs, live = self.inputs, self.inputs.file is None
        yield "reach", self._reach
        if live:
            connection = connection_from_options(**inputs.connection)
            yield "tls", lambda: check_tls(connection, now=datetime.now(UTC))
        yield (
            "configuration",
            lambda: check_configuration(self.configuration, no_encryption=inputs.no_encryption),
        )
        yield "cluster", self._cluster
        if live:
            yield "version", lambda: check_versions(self._statuses)
            if self._answered:
                yield "members", lambda: check_leader(self._answered)
            yield "members", lambda: check_members(self._client, self._statuses)
            yield "alarms", lambda: check_alarms(self._client)
            yield "space", lambda: check_space(self._statuses)
        if self._examiner is not None:
            yield "version", lambda: check_kubernetes(*self._opened, LAST_MINOR)
        if live and not inputs.revision:  # an old revision says nothing of now
            yield "clock", lambda: check_clock(*self._opened, now=datetime.now(UTC))
        yield "revision", lambda: check_revision(self._opened[0])
        yield "keys", self._keys
        if live and connection.user is not None:
            prefix = inputs.reading(None).layout.prefix_bytes
            yield "etcd-user", lambda: check_etcd_user(self._client, prefix)
        yield "backup-dir", lambda: check_backup_directories(self.places)
        yield "audit-log", lambda: check_audit_log(self.places)
        if (api := self.api) is not None:
            yield "kubeconfig", lambda: check_kubeconfig(api, self._identity)

    def _made(self, name: str, check: Callable[[], Iterable[Check]]) -> Iterator[Check]:
        if self.ended is not None:
            yield unknown(name, f"not looked at: {self.ended.reason}", _AGAIN)
            return
        try:
            yield from check()
        except KeyboardInterrupt as exc:
            self.ended = EndedEarly.of(exc)
            yield unknown(name, f"not looked at to the end: {self.ended.reason}", _AGAIN)
        except _CannotLookError:
            read = self._source is not None or self.inputs.file is not None
            why = "the data could not be read" if read else "etcd was not reached"
            yield unknown(name, f"not looked at: {why}", _FIRST)
        except ConfigurationError:
            raise
        except (EtcdfixError, CallFailed) as exc:
            sure = isinstance(exc, ClusterMismatch) or (name == "cluster" and isinstance(exc, SourceDenied))
            yield told_by(name, State.FAIL if sure else State.UNKNOWN, exc, otherwise=_FIRST)

    @property
    def _answered(self) -> list[MemberStatus]:
        return [asked.status for asked in self._asked if asked.status is not None]

    @property
    def _statuses(self) -> list[MemberStatus]:
        if not self._answered:
            raise _CannotLookError
        return self._answered

    @property
    def _client(self) -> EtcdClient:
        from etcdfix.sources.live import LiveSource  # noqa: PLC0415 - a file needs none

        if not isinstance(self._source, LiveSource):
            raise _CannotLookError
        return self._source.client

    @property
    def _opened(self) -> tuple[Source, Examiner]:
        if self._source is None or self._examiner is None:
            raise _CannotLookError
        return self._source, self._examiner

    def _reach(self) -> Iterator[Check]:
        if self.inputs.file is None:
            self._asked = ask_endpoints(connection_from_options(**self.inputs.connection))
            yield from check_reach(self._asked)
            # The check of the cluster names endpoints of different clusters.
            if all(asked.error is not None for asked in self._asked) or any(
                check_one_cluster(self._answered)
            ):
                return
        try:
            # Each check says what the source would say while it is opened.
            self._source = self._stack.enter_context(open_source(self.inputs, say=lambda _notice: None))
        except SourceError as exc:
            step = "see that this is the right file, or that etcd runs and this is its port for clients"
            yield told_by("reach", State.FAIL, exc, otherwise=step)
            return
        if self.inputs.file is not None:
            told = f"{self.inputs.file} can be read: {self._source.describe().integrity}"
            again = "take another snapshot or copy, if you can"
            yield warn("reach", told, again) if self._source.problems else ok("reach", told)

    def _cluster(self) -> Iterator[Check]:
        mixed = list(check_one_cluster(self._answered))
        yield from mixed
        if self._source is None:
            if not mixed:
                raise _CannotLookError
            return
        examiner = Examiner.of_cluster(self._source, self.inputs.reading(self.configuration), self.plugins)
        self._uid = examiner.kube_system_uid(self._source)
        self._examiner = examiner
        yield check_identity(self._uid)
        self._identity = identify(self._source, examiner, self.places.directories)

    def _keys(self) -> Iterator[Check]:
        source, examiner = self._opened
        reading = self.inputs.reading(self.configuration)
        helpers = Helpers(examiner, reading, source, self.jobs) if self.jobs != 1 else None
        seen = examine_keys(source, examiner, self.progress(source), helpers)
        self.ended = seen.ending.ended
        yield from check_keys(
            seen,
            self.configuration,
            source.problems,
            prefix=reading.layout.prefix,
            limited_to=source.describe().limited_to,
            no_encryption=self.inputs.no_encryption,
            past=reading.run.of_the_past,
        )
        reports = self.plugins.reports() if self.plugins is not None else None
        yield from check_plugins(self.configuration, reports, past=reading.run.of_the_past)

    def _shown_source(self) -> ReportSource:
        if self._source is not None:
            return shown_source(self._source.describe(), self._uid)
        file = self.inputs.file
        kind, endpoints = "kine" if self.inputs.kine is not None else "snapshot", None
        if file is None:
            connection = connection_from_options(**self.inputs.connection)
            kind, endpoints = "etcd", tuple(map(shown_word, connection.endpoints))
        path = str(file) if file is not None else None
        return shown_source(SourceDescription(kind, path, endpoints, 0, True, (), None, None, None), None)
