"""What would keep etcdfix from its work on a cluster, or make it doubtful: every check, one after the other.

A check that cannot be made says so in its place, and the next one is made. Nothing is written but the files that prove
that backups and the audit log could be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from etcdfix.apiserver.kubeconfig import APIAccess, KubeconfigInvalid, KubernetesClientMissing
from etcdfix.commands.doctoring import etcd
from etcdfix.commands.doctoring.keys import check_keys, check_plugins, check_source, count_keys
from etcdfix.commands.doctoring.needs import (
    ELSEWHERE,
    check_audit_log,
    check_configuration,
    check_directory,
    check_kubeconfig,
    check_kubernetes,
)
from etcdfix.commands.opening import Inputs, open_source
from etcdfix.decoding.kubeobject import ObjectReader
from etcdfix.examine.all import Progress, no_progress
from etcdfix.examine.first_pass import FirstPass, Jobs
from etcdfix.examine.one import Examiner
from etcdfix.model.errors import (
    ConfigurationError,
    DecodeError,
    EndedEarly,
    EtcdfixError,
    RemediationRefused,
    SourceUnreachable,
)
from etcdfix.model.model import ClusterIdentity
from etcdfix.model.rules import Rule, acceptance
from etcdfix.remediation.audit.record import unicode_text
from etcdfix.remediation.identify import identify
from etcdfix.remediation.places import RecordPaths, same_disk_warning
from etcdfix.report.doctor import Check, CheckState, DoctorReport, fail, ok, unknown, warn
from etcdfix.report.model import ReportSource
from etcdfix.report.origin import TOOL, shown_configuration, shown_source, shown_word, timestamp
from etcdfix.sources.base import Source, SourceDescription
from etcdfix.sources.connection import EtcdConnection, connection_from_options
from etcdfix.sources.errors import ClusterMismatch, SourceDenied
from etcdfix.sources.etcd.client import EtcdClient
from etcdfix.sources.etcd.endpoints import MemberStatus
from etcdfix.sources.etcd.failures import CallFailed
from etcdfix.text.commands import Part, scan
from etcdfix.text.words import counted, fit

if TYPE_CHECKING:
    from etcdfix.encryption.config_model import EncryptionConfiguration
    from etcdfix.encryption.kms.plugins import KMSPlugins

_LONGEST: Final = 1000
_FIRST: Final = "make etcd answer first: see the check reach"
_API: Final = "try the kubeconfig: kubectl --kubeconfig FILE get --raw /readyz; docs/runbooks/denied.md"
_AHEAD: Final = timedelta(seconds=60)
_SILENT: Final = timedelta(minutes=5)
_NEVER: Final = datetime.min.replace(tzinfo=UTC)


@dataclass(slots=True, kw_only=True)
class Doctor:
    """One look at everything; :meth:`examine` makes every check. ``ended`` is what ended the look early."""

    inputs: Inputs
    configuration: EncryptionConfiguration | None
    places: RecordPaths
    api: APIAccess | None = None
    plugins: KMSPlugins | None = None
    progress: Callable[[Source], Progress] = lambda _source: no_progress
    jobs: Jobs = 1
    ended: EndedEarly | None = None
    _stack: ExitStack = field(default_factory=ExitStack)
    _statuses: list[MemberStatus] = field(default_factory=list)
    _source: Source | None = None
    _examiner: Examiner | None = None
    _identity: ClusterIdentity | None = None
    _do_not_restart: str = ""

    def examine(self) -> DoctorReport:
        """Make every check, and return what was found."""
        with self._stack:
            checks = [check for name, make in self._checks() for check in self._made(name, make)]
            return DoctorReport(
                tool=TOOL,
                generated_at=timestamp(datetime.now(UTC)),
                source=self._shown_source(),
                encryption_config=shown_configuration(self.configuration),
                checks=checks,
                ended=self.ended.reason if self.ended is not None else None,
                do_not_restart=self._do_not_restart,
            )

    def _checks(self) -> Iterator[tuple[str, Callable[[], Iterable[Check]]]]:
        """Yield name and check, in the order of the report; what rests on an earlier one is decided after it."""
        inputs, live, now = self.inputs, self.inputs.file is None, datetime.now(UTC)
        yield "reach", self._reach
        if live:
            yield "tls", lambda: etcd.check_tls(self._connection, now)
        yield "configuration", lambda: check_configuration(self.configuration, told_none=inputs.no_encryption)
        yield "cluster", self._cluster
        if self._statuses:
            yield "version", lambda: etcd.check_versions(self._statuses)
            yield "members", lambda: etcd.check_leader(self._statuses)
            yield "space", lambda: map(etcd.check_space, self._statuses)
        if (client := self._client()) is not None:
            yield "members", lambda: etcd.check_members(client, self._statuses)
            yield "alarms", lambda: etcd.check_alarms(client)
            if client.connection.user is not None:
                prefix = inputs.reading(None).layout.path()
                yield "etcd-user", lambda: [etcd.check_etcd_user(client, prefix)]
        if (source := self._source) is not None and (examiner := self._examiner) is not None:
            yield "members", lambda: etcd.check_same_data(source)
            yield "version", lambda: check_kubernetes(source, examiner)
            if live and not inputs.revision:  # an old revision says nothing of now
                yield "clock", lambda: [check_clock(source, examiner, now)]
            yield "revision", lambda: [check_revision(source)]
            yield "keys", lambda: self._keys(source, examiner)
        for path in self.places.directories:
            named = bool(self.places.backup_directories)
            yield "backup-dir", partial(check_directory, path, named=named)
        yield "backup-dir", lambda: [warn(one, ELSEWHERE) for one in same_disk_warning(self.places)]
        yield "audit-log", lambda: check_audit_log(self.places)
        if (api := self.api) is not None:
            yield "kubeconfig", lambda: check_kubeconfig(api, self._identity)

    def _made(self, name: str, check: Callable[[], Iterable[Check]]) -> Iterator[Check]:
        """Make a check; its text is valid Unicode, and of bounded length."""
        found: list[Check] = []
        try:
            found.extend(check() if self.ended is None else ())
        except KeyboardInterrupt as exc:
            self.ended = EndedEarly.of(exc)
        except (KubernetesClientMissing, KubeconfigInvalid, ClusterMismatch, RemediationRefused) as exc:
            found.append(etcd.told_by(exc, _API if name == "kubeconfig" else ELSEWHERE))
        except ConfigurationError:
            raise
        except (EtcdfixError, CallFailed) as exc:
            sure = name == "reach" or (name == "cluster" and isinstance(exc, SourceDenied))
            found.append(etcd.told_by(exc, _FIRST, CheckState.FAIL if sure else CheckState.UNKNOWN))
        for one in found:
            what, step = (unicode_text(fit(text, _LONGEST)) for text in (one.what, one.next_step))
            yield msgspec.structs.replace(one, name=name, what=what, next_step=step)

    @property
    def _connection(self) -> EtcdConnection:
        return connection_from_options(**self.inputs.connection)

    def _client(self) -> EtcdClient | None:
        from etcdfix.sources.live import LiveSource  # noqa: PLC0415 - a file needs none

        return self._source.client if isinstance(self._source, LiveSource) else None

    def _reach(self) -> Iterator[Check]:
        if self.inputs.file is None:
            endpoints = self._connection.endpoints
            answers = etcd.ask_endpoints(self._connection)
            yield from map(etcd.check_reach, endpoints, answers)
            self._statuses = [found for found in answers if isinstance(found, MemberStatus)]
            errors = sum(isinstance(found, EtcdfixError) for found in answers)
            # The check of the cluster names endpoints of different clusters.
            if errors == len(endpoints) or len({status.cluster_id for status in self._statuses}) > 1:
                return
        # Each check says what the source would say while it is opened.
        self._source = self._stack.enter_context(open_source(self.inputs, say=lambda _notice: None))
        if self.inputs.file is not None:
            told = f"{self.inputs.file} can be read: {self._source.describe().integrity}"
            again = "take another snapshot or copy, if you can"
            yield warn(told, again) if self._source.problems else ok(told)

    def _cluster(self) -> Iterator[Check]:
        ids = {status.endpoint: f"{status.cluster_id:x}" for status in self._statuses}
        if len(set(ids.values())) > 1:
            told = ", ".join(f"{endpoint} is {found}" for endpoint, found in ids.items())
            what = f"the endpoints belong to different clusters: {told}"
            yield fail(what, "name the endpoints of one cluster only")
            return
        if self._source is None:
            yield unknown("etcd and its values were not checked: etcd was not reached", _FIRST)
            return
        examiner = Examiner.of_cluster(self._source, self.inputs.reading(self.configuration), self.plugins)
        self._examiner = examiner
        self._identity = identify(self._source, examiner, self.places.directories)
        if uid := examiner.kube_system_uid(self._source):
            yield ok(f"namespace kube-system has the uid {fit(uid, 100)}")
        else:
            what = "namespace kube-system cannot be read: nothing names this cluster"
            accepted = acceptance(Rule.UNKNOWN_CLUSTER)
            yield warn(what, f"check --encryption-config and --etcd-prefix; a change may need {accepted}")

    def _keys(self, source: Source, examiner: Examiner) -> Iterator[Check]:
        reading = self.inputs.reading(self.configuration)
        first_pass = FirstPass(examiner, reading, source, self.jobs) if self.jobs != 1 else None
        summary, ending = count_keys(source, examiner, reading, self.progress(source), first_pass)
        self.ended, self._do_not_restart = ending.ended, summary.do_not_restart
        yield from check_source(source, reading, summary, ending)
        yield from check_keys(summary, no_encryption=self.inputs.no_encryption)
        yield from check_plugins(reading, self.plugins.reports() if self.plugins is not None else None)

    def _shown_source(self) -> ReportSource:
        if self._source is not None:
            uid = self._identity.uid if self._identity is not None else None
            return shown_source(self._source.describe(), uid or None)
        file = self.inputs.file
        kind, endpoints = "kine" if self.inputs.kine is not None else "snapshot", None
        if file is None:
            kind, endpoints = "etcd", tuple(map(shown_word, self._connection.endpoints))
        path = str(file) if file is not None else None
        return shown_source(
            SourceDescription(type=kind, path=path, endpoints=endpoints, revision=0, segments=()), None
        )


def check_clock(source: Source, examiner: Examiner, now: datetime) -> Check:
    """Say what the newest renewal of a Lease says of this machine's clock: nodes renew every few seconds."""
    reader, newest = ObjectReader(examiner.decoder), _NEVER
    for path in ("leases/kube-node-lease/", "leases/kube-system/"):
        for stored in source.current(examiner.layout.path(path)):
            plaintext = examiner.plaintext(examiner.examine(stored))
            try:
                lease = reader.builtin(plaintext or b"", "coordination.k8s.io", "Lease").value
                renewed = datetime.fromisoformat(lease["spec"]["renewTime"])
                newest = max(newest, renewed.astimezone(UTC) if renewed.tzinfo is not None else _NEVER)
            # The last at the ends of the calendar.
            except (DecodeError, KeyError, TypeError, ValueError, OverflowError):
                continue
    if newest == _NEVER:
        return unknown("no Lease can be read to compare this clock with", "compare the clocks: timedatectl")
    apart = f"{abs(now - newest).total_seconds():,.0f} s"
    if newest > now + _AHEAD:
        what = (
            f"a Lease was renewed {apart} in the future: this machine's clock is behind, or theirs is ahead"
        )
        return warn(what, "compare the clocks: timedatectl. Records and certificates depend on them")
    if now - newest > _SILENT:
        what = f"no Lease was renewed for {apart}: the control plane is down, or this clock is ahead"
        return warn(
            what, "check whether API servers and controller managers run, and the clocks: timedatectl"
        )
    return ok(f"a Lease was renewed {apart} from now by this clock")


def check_revision(source: Source) -> Check:
    """Say how much history is kept: no date, for nothing in etcd tells one."""
    description, key = source.describe(), b"compact_rev_key"
    revision = description.revision
    try:
        compacted = source.compacted_revision()
    except (SourceDenied, SourceUnreachable):
        compacted = None
    kept = "how far etcd is compacted could not be told"
    if compacted is not None:
        count = counted(max(0, revision - compacted), "revision")
        kept = f"compacted up to {compacted}: the last {count} are kept"
    kept = f"revision {revision}, {kept if compacted != 0 else 'never compacted: every revision is kept'}"
    try:
        stored = source.get(key)
    except SourceDenied:
        return unknown(f"{kept}; the etcd user may not read {key.decode()}", "grant it, if you want to know")
    # What API servers compact in kine, it notes under a key of its own.
    if stored is None or description.type == "kine":
        return ok(kept)
    text = stored.value
    if not text.isdigit() or len(text) > len(str(2**63)):
        what = f"{kept}; {key.decode()} holds no number, so API servers cannot compact"
        return warn(what, "find out who wrote it: an API server writes it again after its next compaction")
    if int(text) > revision:
        what = (
            f"{kept}; API servers had compacted up to {int(text)}: this etcd was put back to an earlier state"
        )
        advice = "the API servers' caches are of later revisions: first scan, and only if nothing is wrong restart them"
        return warn(what, advice, scan(source=[Part.NOW]))
    return ok(f"{kept}; API servers compacted up to {int(text)}")
