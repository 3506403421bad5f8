"""Which candidate opens which of the values that cannot be read: found by looking, proven by opening.

Each value is tried with each candidate once, so the work grows with both; memory does with neither. The values wait in
an unlinked temporary file, as they are stored.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from etcdfix.commands.encryption.whole import ByKey, keep_example, why_not_whole
from etcdfix.encryption.config_model import EncryptionConfiguration
from etcdfix.examine.all import Progress, examine_all, no_progress
from etcdfix.examine.first_pass import FirstPass, Jobs
from etcdfix.examine.one import Examiner, Reading
from etcdfix.examine.scope import pages_in, resolved
from etcdfix.examine.spool import Spool
from etcdfix.examine.verdicts.causes import Cause
from etcdfix.examine.verdicts.deletability import FAILED
from etcdfix.examine.verdicts.examination import Examination, KeyName, PlainCount
from etcdfix.model.errors import EndedEarly
from etcdfix.model.model import Outcome, StoredValue
from etcdfix.model.providers import ENCRYPTED_PREFIX
from etcdfix.model.scope import ScopeRequest
from etcdfix.model.storagekey import display
from etcdfix.report.document import Step
from etcdfix.report.encryption import (
    CandidateResult,
    EncryptionTryReport,
    FindingGroup,
    key_fields,
)
from etcdfix.report.origin import report_origin, shown_word
from etcdfix.sources.base import Source
from etcdfix.text.commands import Part, encryption_merge, fix, scan
from etcdfix.text.words import counted

if TYPE_CHECKING:
    from etcdfix.encryption.kms.plugins import KMSPlugins


class NamedCandidate(msgspec.Struct, frozen=True):
    """A configuration that may open what today's does not."""

    name: str
    configuration: EncryptionConfiguration


class TryRequest(Reading, frozen=True, kw_only=True):
    """Everything that decides what is tried."""

    candidates: tuple[NamedCandidate, ...] = ()
    scope: ScopeRequest = msgspec.field(default_factory=ScopeRequest)


class _Finding(msgspec.Struct, frozen=True):
    """A value that does not open today; ``proven``: today's configuration is shown not to open it."""

    stored: StoredValue
    name: KeyName
    damaged: bool
    proven: bool


def try_candidates(
    source: Source,
    request: TryRequest,
    *,
    plugins: KMSPlugins | None = None,
    progress: Progress = no_progress,
    jobs: Jobs = 1,
) -> tuple[EncryptionTryReport, EndedEarly | None]:
    """Find what does not open today, and try every candidate on it; return what ended the look early, too."""
    today = Examiner.of_cluster(source, request, plugins)
    examiners = [_examiner_of(candidate, source, request, today) for candidate in request.candidates]
    cluster = today.kube_system_uid(source)
    with contextlib.closing(Spool(_Finding)) as findings:
        trying = _Trying(request, findings)
        denied: list[bytes] = []
        scope, ranges = resolved(request.scope, today, source)
        ending = examine_all(
            today,
            pages_in(source, ranges, denied),
            trying.take,
            plain=trying.take_plain,
            first_pass=FirstPass(today, request, source, jobs) if jobs != 1 else None,
            progress=progress,
        )
        ended, everything = ending.ended, scope.everything
        reasons = why_not_whole(source, request.layout, ending, trying.objects, everything=everything)
        total = findings.count
        try:
            for finding in progress(findings.drain(), "values to try", total) if not ended else ():
                trying.count(finding, [one.examine(finding.stored) for one in examiners])
        except KeyboardInterrupt as exc:
            ended = EndedEarly.of(exc)
            reasons.append(f"{ended.reason} after {trying.tried} of {counted(total, 'value')} were tried")
    reasons += (f"lost {display(key)}: permission denied" for key in denied)
    if trying.untold:
        reasons.append(f"undetermined under some candidate: {counted(trying.untold, 'value')}")
    groups = trying.groups()
    report = EncryptionTryReport(
        **report_origin(source.describe(), request.configuration, cluster),
        findings=trying.tried,
        opened=trying.opened,
        undetermined_today=trying.undetermined_today,
        candidates=trying.candidates,
        groups=groups,
        next=_next(request, groups),
        complete=not reasons,
        incomplete_reasons=reasons,
    )
    return report, ended


def _examiner_of(candidate: NamedCandidate, source: Source, request: TryRequest, today: Examiner) -> Examiner:
    reading = msgspec.structs.replace(request, configuration=candidate.configuration)
    if today.readers.unreadable_crds:
        examiner = Examiner.of_cluster(source, reading, today.plugins)
    else:  # today's configuration reads every CRD: nobody reads them again
        examiner = Examiner.of(reading, today.plugins)
        examiner.share_crds_of(today)
    if examiner.transformers is not None:
        today.know_names(examiner.transformers.names)
    return examiner


class _Trying:
    """Keeps what does not open today, and counts what every candidate makes of each such value."""

    def __init__(self, request: TryRequest, findings: Spool[_Finding]) -> None:
        self._request, self._findings = request, findings
        self._groups: ByKey[FindingGroup] = ByKey()
        self._first_opened: dict[int, bytes] = {}
        self.candidates = [CandidateResult(name=one.name) for one in request.candidates]
        self.objects = self.undetermined_today = self.tried = self.opened = self.untold = 0

    def take(self, found: Examination) -> None:
        outcome, stored = found.verdict.outcome, found.stored
        if outcome is Outcome.NOT_AN_OBJECT:
            return
        self.objects += 1
        proven, untold = outcome is Outcome.DECRYPT_FAILURE, outcome is Outcome.UNDETERMINED
        if proven or (stored.value.startswith(ENCRYPTED_PREFIX) and (untold or outcome in FAILED)):
            self.undetermined_today += untold
            name = KeyName(found.rule, found.transformer, found.kms_key_id_sha256)
            self._findings.append(_Finding(stored, name, found.verdict.is_damage, proven))

    def take_plain(self, counts: Sequence[PlainCount]) -> None:
        self.objects += sum(plain.count for plain in counts)

    def count(self, finding: _Finding, found: Sequence[Examination]) -> None:
        self.tried += 1
        key = finding.stored.key
        group = self._groups.of(finding.name, lambda name: FindingGroup(**key_fields(name)))
        group.findings += 1
        group.damaged += finding.damaged
        opened = untold = False
        for candidate, examination in zip(self.candidates, found, strict=True):
            opens, right = _opens(examination), _is_right_key(examination)
            unknown = not right and examination.verdict.outcome is Outcome.UNDETERMINED
            keep_example(candidate.opened if opens else candidate.not_opened, key)
            candidate.opens += opens
            candidate.right_key += right and not opens
            candidate.undetermined += unknown
            if opens:
                group.opened_by[candidate.name] = group.opened_by.get(candidate.name, 0) + 1
            opened, untold = opened or opens, untold or unknown
        self.opened += opened
        group.opened += opened
        self.untold += untold and not opened
        if not opened:
            keep_example(group.not_opened, key)
        elif finding.proven:  # else fix refuses it: today's configuration may read it yet
            self._first_opened.setdefault(id(group), key)

    def groups(self) -> list[FindingGroup]:
        """Return the groups, most findings first, with what to do about each."""
        found = [
            group for _, group in sorted(self._groups.items(), key=lambda one: (-one[1].findings, one[0]))
        ]
        for group in found:
            group.next = _next_of(self._request, group, self._first_opened.get(id(group)))
        return found


def _opens(found: Examination) -> bool:
    """Say whether a value opens, decodes, and fits its etcd key."""
    outcome, cause = found.verdict.outcome, found.verdict.cause
    return outcome is Outcome.READABLE or (
        outcome is Outcome.INCONSISTENT and cause is not Cause.IDENTITY_MISMATCH
    )


def _is_right_key(found: Examination) -> bool:
    """Say whether a value was written with a key of the candidate, whether or not it opens as it is."""
    verdict = found.verdict
    return verdict.key_proven or bool(verdict.fitting_key) or verdict.outcome is Outcome.INCONSISTENT


def _best(request: TryRequest, group: FindingGroup) -> NamedCandidate | None:
    """Return the candidate that opens most, the first among equals."""
    opening = [one for one in request.candidates if one.name in group.opened_by]
    return max(opening, key=lambda one: group.opened_by[one.name], default=None)


def _next_of(request: TryRequest, group: FindingGroup, example: bytes | None) -> Step | None:
    candidate = _best(request, group)
    if candidate is None:
        return None
    opens = f"opens {group.opened_by[candidate.name]} of {group.findings}"
    path = shown_word(candidate.configuration.path)
    if request.configuration is None:
        reading = ("--encryption-config", path, Part.RELEASE)
        return Step(f"Read with {path}: it {opens}", scan(reading=reading))
    where = "the configuration of every API server, below the write key"
    if request.run.of_kine or example is None:
        return Step(f"Add the key of {path} to {where}: it {opens}")
    return Step(
        f"{path} {opens}. You can write one object again under today's write key",
        fix(example, f"candidate:{path}", seals=True),
        f"For all of them, add its key to {where}.",
    )


def _next(request: TryRequest, groups: Sequence[FindingGroup]) -> Step | None:
    best = dict.fromkeys(found for group in groups if (found := _best(request, group)) is not None)
    files = [shown_word(one.configuration.path) for one in best]
    if not files or request.configuration is None:
        return next((group.next for group in groups if group.next is not None), None)
    return Step(
        "Merge today's configuration with the files that help. Check what it reads, then deploy its keys",
        encryption_merge([request.configuration.path, *files]),
    )
