"""What one saved report says, as a row of a fleet's report: read once, one finding in memory at a time.

The file may come from anybody. Numbers that contradict each other are told, text is shortened, lists are cut.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated, Final

import msgspec

from etcdfix.reports.base import fit
from etcdfix.reports.contradictions import MOST_COUNTED, MOST_REVISION, OUT_OF_ORDER, SeenFindings
from etcdfix.reports.fleet_model import (
    FleetCluster,
    FleetCounts,
    FleetFinding,
    FleetKeyLoss,
    NewFindings,
)
from etcdfix.reports.model import KMSPluginSummary, KMSSummary, ReportBaseline
from etcdfix.reports.next_steps import PLUGIN_REMEDIES, plugin_problems
from etcdfix.reports.origin import timestamp
from etcdfix.reports.report_file import ReportFile
from etcdfix.text.words import counted

MOST_FINDINGS: Final = 10
_MOST_LISTED: Final = 10
_MOST_WORD: Final = 200
_MOST_KEYS: Final = 1_001
"""A scan counts a thousand by name, and the others as one."""

Number = Annotated[int, msgspec.Meta(ge=0, le=MOST_COUNTED)]
"""A count."""

Revision = Annotated[int, msgspec.Meta(ge=0, le=MOST_REVISION)]
"""Of etcd."""


class _Source(msgspec.Struct):
    type: str
    revision: Revision
    path: str | None = None
    sha256: str | None = None
    kube_system_uid: str | None = None
    cluster_name: str = ""
    file_modified_at: str = ""


class _Configuration(msgspec.Struct):
    path: str


class _Scope(msgspec.Struct):
    prefixes: list[str] = []
    resources: list[str] = []
    namespaces: list[str] = []


class ReportHead(msgspec.Struct):
    """What stands before the findings of a report, as far as a fleet needs it."""

    generated_at: str
    source: _Source
    encryption_config: _Configuration | None
    scope: _Scope
    baseline: ReportBaseline | None = None

    @property
    def made_at(self) -> datetime:
        """When the scan began.

        Raises:
            msgspec.ValidationError: The report does not say.
        """
        made_at = time_of(self.generated_at)
        if made_at is None:
            raise msgspec.ValidationError("its generated_at is no time")
        return made_at

    @property
    def paths(self) -> tuple[str, str, str]:
        """Snapshot, configuration and baseline of the scan, "" for none."""
        configuration, baseline = self.encryption_config, self.baseline
        return (
            self.source.path or "",
            configuration.path if configuration is not None else "",
            baseline.path if baseline is not None else "",
        )


class _Finding(msgspec.Struct):
    key: str
    outcome: str
    key_base64: str | None = None
    cause: str | None = None
    severity: str | None = None
    mod_revision: Revision = 0
    message: str = ""
    baseline: bool = False
    shared: str = ""


class TransformerInReport(msgspec.Struct):
    """What a report counts under one encryption key."""

    transformer: str
    resources: list[str]
    key_fingerprint: str | None
    keys: Number
    failures: Number
    undetermined: Number


class KMSKeyInReport(msgspec.Struct):
    """What a report counts under one KMS key id."""

    transformer: str
    key_id_sha256: str | None
    keys: Number
    opened: Number


class _SharedWords(msgspec.Struct, frozen=True):
    id: str
    message: str


class _Lost(msgspec.Struct):
    transformer: str
    resources: list[str]
    key_fingerprint: str | None
    failures: Number
    of: Number
    shared: list[_SharedWords] = []


class _KMS(msgspec.Struct):
    plugins: list[KMSPluginSummary] = []
    keys: list[KMSKeyInReport] = []


class _Summary(msgspec.Struct):
    keys: Number
    readable: Number
    stale: Number
    decrypt_failures: Number
    decode_failures: Number
    inconsistent: Number
    undetermined: Number
    not_objects: Number
    by_transformer: list[TransformerInReport]
    kms: _KMS | None
    known_findings: Number = 0
    severity: str | None = None
    at_stake: str = ""
    do_not_restart: str = ""
    key_loss: list[_Lost] = []


class _End(msgspec.Struct):
    source: _Source
    summary: _Summary
    complete: bool
    incomplete_reasons: list[str]


class ReadRow(msgspec.Struct, frozen=True):
    """A row, and what several clusters are compared by.

    Attributes:
        row: What is published.
        sha256: Of the file that was scanned, "" for none.
        transformers: Counts under each encryption key.
        kms_keys: Counts under each KMS key id.
    """

    row: FleetCluster
    sha256: str
    transformers: list[TransformerInReport]
    kms_keys: list[KMSKeyInReport]


class _Findings(msgspec.Struct):
    """What is kept of the findings as they pass; ``first``: with the id of what the summary says of each."""

    seen: SeenFindings = msgspec.field(default_factory=SeenFindings)
    new: Counter[str] = msgspec.field(default_factory=Counter)
    first: list[tuple[FleetFinding, str]] = []

    def add(self, finding: _Finding) -> None:
        field = self.seen.take(finding)
        if not field:
            return
        if not finding.baseline:
            self.new[field] += 1
        if len(self.first) < MOST_FINDINGS:
            self.first.append((_shortened(finding), fit(finding.shared, _MOST_WORD)))

    def first_of(self, summary: _Summary) -> list[FleetFinding]:
        """Return the first findings, each with its message; of a lost key, that stands once for all."""
        messages = {words.id: words.message for lost in summary.key_loss for words in lost.shared}
        return [
            msgspec.structs.replace(finding, message=finding.message or fit(messages.get(shared, "")))
            for finding, shared in self.first
        ]


def read_row(
    report: ReportFile, head: ReportHead, *, path: str, name: str, named_by: str, now: datetime
) -> ReadRow:
    """Read a report to its end.

    Args:
        report: The file.
        head: Its head, which was looked at already.
        path: Of the file, as it is shown.
        name: Of the cluster.
        named_by: Who says so.
        now: For the age of what was scanned.

    Raises:
        msgspec.MsgspecError: It is cut, or not as it has to be.
    """
    found = _Findings()
    decode = msgspec.json.Decoder(_Finding).decode
    for finding in report.findings():
        found.add(decode(finding))
    end = report.end(_End)
    summary = end.summary
    kms = summary.kms or _KMS()
    reasons = list(end.incomplete_reasons)
    in_order = not any(one.endswith(OUT_OF_ORDER) for one in reasons)
    doubts = [*found.seen.contradictions(summary, in_order=in_order), *_more_doubts(found, head, end)]
    if not end.complete and not reasons:
        reasons.append("the report does not say why")
    reasons += doubts
    seen_at = _seen_at(head.made_at, end.source)
    age = int((now - seen_at).total_seconds()) if seen_at is not None else -1
    row = FleetCluster(
        name=fit(name, _MOST_WORD),
        named_by=named_by,
        kube_system_uid=fit(end.source.kube_system_uid, _MOST_WORD) if end.source.kube_system_uid else None,
        same_uid=0,
        report=path,
        report_sha256=report.sha256,
        generated_at=timestamp(head.made_at),
        source_type=fit(end.source.type, _MOST_WORD),
        revision=end.source.revision,
        data_from=timestamp(seen_at) if seen_at is not None else "",
        data_age_seconds=age if age >= 0 else None,
        limited_to=_limits(head.scope),
        counts=FleetCounts(**{field: getattr(summary, field) for field in FleetCounts.__struct_fields__}),
        severity=fit(summary.severity, _MOST_WORD) if summary.severity is not None else None,
        at_stake=fit(summary.at_stake),
        do_not_restart=bool(summary.do_not_restart),
        key_loss=[_loss(lost) for lost in summary.key_loss[:_MOST_LISTED]],
        key_losses=len(summary.key_loss),
        baseline=_baseline(head.baseline),
        new=NewFindings(**found.new),
        first_findings=found.first_of(summary),
        complete=end.complete and not reasons,
        lost_midway=bool(doubts) or _is_lost_midway(end),
        incomplete_reasons=[fit(reason) for reason in reasons[:_MOST_LISTED]],
    )
    return ReadRow(
        row,
        fit(end.source.sha256 or "", _MOST_WORD),
        summary.by_transformer[:_MOST_KEYS],
        kms.keys[:_MOST_KEYS],
    )


def time_of(text: str) -> datetime | None:
    """Return a time of RFC 3339 in UTC; None for what is none, or has no time zone."""
    try:
        found = datetime.fromisoformat(text)
        return found.astimezone(UTC) if found.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None


def _seen_at(made_at: datetime, source: _Source) -> datetime | None:
    """Return when what was scanned was so; None for a snapshot whose report does not tell."""
    return time_of(source.file_modified_at) if source.type == "snapshot" else made_at


def _more_doubts(found: _Findings, head: ReportHead, end: _End) -> Iterator[str]:
    """Say where a report calls something known, or decided, that cannot be."""
    known = sum(found.seen.counts.values()) - sum(found.new.values())
    if known and head.baseline is None:
        yield f"the report contradicts itself: a baseline knew {counted(known, 'finding')}, and there was none"
    if end.complete and end.summary.undetermined:
        keys = counted(end.summary.undetermined, "key")
        yield f"the report contradicts itself: it is complete, and {keys} undetermined"


def _is_lost_midway(end: _End) -> bool:
    """Say whether anything else than values that could not be decided keeps a report from being complete."""
    undecided = {f"undetermined: {counted(end.summary.undetermined, 'key')}"}
    if end.summary.kms is not None:
        known = [plugin for plugin in end.summary.kms.plugins if plugin.state in PLUGIN_REMEDIES]
        undecided.update(plugin_problems(KMSSummary(known, [])))
    if not end.incomplete_reasons:
        return not end.complete
    return bool(set(end.incomplete_reasons) - undecided)


def _limits(scope: _Scope) -> list[str]:
    namespaces = [f"namespace {name}" for name in scope.namespaces]
    return [fit(word, _MOST_WORD) for word in [*scope.resources, *scope.prefixes, *namespaces][:_MOST_LISTED]]


def _loss(lost: _Lost) -> FleetKeyLoss:
    return FleetKeyLoss(
        fit(lost.transformer, _MOST_WORD),
        shown_resources(lost.resources),
        fit(lost.key_fingerprint, _MOST_WORD) if lost.key_fingerprint is not None else None,
        lost.failures,
        lost.of,
    )


def shown_resources(resources: list[str]) -> list[str]:
    """Return the first of some resources, none longer than an honest one."""
    return [fit(resource, _MOST_WORD) for resource in resources[:_MOST_LISTED]]


def _baseline(baseline: ReportBaseline | None) -> ReportBaseline | None:
    if baseline is None:
        return None
    return ReportBaseline(*(fit(text) for text in (baseline.path, baseline.sha256, baseline.generated_at)))


def _shortened(finding: _Finding) -> FleetFinding:
    encoded = finding.key_base64
    return FleetFinding(
        key=fit(finding.key),
        key_base64=encoded if encoded is not None and fit(encoded) == encoded else None,
        outcome=fit(finding.outcome, _MOST_WORD),
        cause=fit(finding.cause, _MOST_WORD) if finding.cause is not None else None,
        severity=fit(finding.severity, _MOST_WORD) if finding.severity is not None else None,
        mod_revision=finding.mod_revision,
        message=fit(finding.message),
        baseline=finding.baseline,
    )
