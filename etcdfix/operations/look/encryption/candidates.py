"""Which candidate opens which of the values that cannot be read: found by looking, proven by opening.

Each value is tried with each candidate once, so the work grows with both; memory does with neither. The values wait in
an unlinked temporary file, as they are stored.
"""

from __future__ import annotations

import contextlib
import hashlib
from bisect import insort
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from etcdfix.encryption.config import EncryptionConfiguration, KeyedProvider
from etcdfix.encryption.envelope import ENCRYPTED_PREFIX
from etcdfix.encryption.kms.envelopes import KMSPending
from etcdfix.errors import EndedEarly
from etcdfix.examine import Examiner, Reading
from etcdfix.examine_all import Progress, View, examine_all, no_progress
from etcdfix.examine_jobs import Helpers, Jobs
from etcdfix.model import Outcome, StoredValue
from etcdfix.operations.look.encryption.whole import Whole
from etcdfix.operations.look.in_scope import pages_in, resolved
from etcdfix.report.encryption_model import (
    CandidateOnGroup,
    CandidateResult,
    EncryptionTryReport,
    FindingGroup,
)
from etcdfix.report.model import Remedy
from etcdfix.report.origin import report_origin, shown_word
from etcdfix.report.saved_report import SavedReport
from etcdfix.report.tally import MAX_NAMES, OTHERS
from etcdfix.scope import ScopeRequest
from etcdfix.sources.base import Source
from etcdfix.sources.pages import paged
from etcdfix.spool import Spool
from etcdfix.storagekey import display
from etcdfix.text.commands import NO_COMMAND, Command
from etcdfix.text.safetext import quote_command
from etcdfix.text.words import counted
from etcdfix.verdicts.causes import Cause
from etcdfix.verdicts.deletability import FAILED
from etcdfix.verdicts.examination import Examination, KeyName, PlainCount

if TYPE_CHECKING:
    from etcdfix.encryption.kms.plugins import KMSPlugins

_MOST_EXAMPLES: Final = 5
_WINDOW: Final = 512
_WINDOW_BYTES: Final = 8 << 20


class NamedCandidate(msgspec.Struct, frozen=True):
    """A configuration that may open what today's does not.

    Attributes:
        name: By which people know it.
        configuration: With its keys.
        is_key: It was made of a single key.
    """

    name: str
    configuration: EncryptionConfiguration
    is_key: bool = False

    @property
    def fingerprints(self) -> list[str]:
        """Return the fingerprints of a single key: several where its file may mean several."""
        providers = [provider for rule in self.configuration.rules for provider in rule.providers]
        keys = [key for p in providers if isinstance(p, KeyedProvider) for key in p.keys]
        return list(dict.fromkeys(key.material.fingerprint for key in keys)) if self.is_key else []


class TryRequest(Reading, frozen=True, kw_only=True):
    """Everything that decides what is tried.

    Attributes:
        candidates: In the order of the command line.
        scope: Where to look for unreadable values.
        report: A saved scan whose findings are tried instead; None for a scan of its own.
    """

    candidates: tuple[NamedCandidate, ...]
    scope: ScopeRequest = msgspec.field(default_factory=ScopeRequest)
    report: SavedReport | None = None


class Tried(msgspec.Struct, frozen=True):
    """What came out: the report, and how the look at everything went."""

    report: EncryptionTryReport
    whole: Whole


class _Finding(msgspec.Struct, frozen=True):
    stored: StoredValue
    place: KeyName
    damaged: bool


class _OnGroup(msgspec.Struct):
    opens: int = 0
    right_key: int = 0
    undetermined: int = 0
    named: str = ""


class _Group(msgspec.Struct):
    by_candidate: list[_OnGroup]
    findings: int = 0
    opened: int = 0
    damaged: int = 0
    not_opened: list[str] = []
    opened_example: bytes = b""


class _Result(msgspec.Struct):
    opens: int = 0
    right_key: int = 0
    undetermined: int = 0
    opened: list[str] = []
    not_opened: list[str] = []


def try_candidates(
    source: Source,
    request: TryRequest,
    *,
    plugins: KMSPlugins | None = None,
    progress: Progress = no_progress,
    jobs: Jobs = 1,
) -> Tried:
    """Find what does not open today, and try every candidate on it.

    Args:
        source: Where the values are.
        request: The candidates.
        plugins: The KMS plugins of today's configuration and of all candidates; None to ask none.
        progress: Counts the values for a display.
        jobs: How many processes look for what does not open today; the result is the same for any number.

    Raises:
        ConfigurationError: The scope names something that does not exist.
        SourceError: Nothing could be read.
    """
    today = Examiner.of_cluster(source, request, plugins)
    examiners = [_examiner(source, request, candidate, today, plugins) for candidate in request.candidates]
    for examiner in examiners:
        assert examiner.transformers is not None  # each has a configuration
        today.know_names(examiner.transformers.names)
    cluster = today.kube_system_uid(source)
    with contextlib.closing(Spool(_Finding)) as findings:
        gathering = _Gathering(findings)
        if request.report is not None:
            pages = paged(gathering.reported(source, request.report))
        else:
            scope, ranges = resolved(request.scope, today, source)
            request = msgspec.structs.replace(request, scope=scope)
            pages = pages_in(source, ranges, gathering.denied)
        helpers = Helpers(today, request, source, jobs) if jobs != 1 else None
        ending = examine_all(
            today, pages, gathering.take, plain=gathering.take_plain, helpers=helpers, progress=progress
        )
        # A scope, or a report, may hold no object at all.
        everything = request.scope.everything and request.report is None
        whole = Whole.of(source, ending, gathering.objects, everything=everything)
        counting = _Counting(request, examiners)
        total = findings.count
        if whole.ended is None:
            try:
                counting.run(progress(findings.drain(), "unreadable values", total), plugins)
            except KeyboardInterrupt as exc:
                ended = EndedEarly.of(exc)
                problem = f"{ended.reason} after {counting.tried} of {counted(total, 'value')} were tried"
                whole = msgspec.structs.replace(whole, ended=ended, problems=(*whole.problems, problem))
    groups = counting.groups(request)
    # What the user may not read is no finding: nothing is concluded of it.
    reasons = msgspec.structs.replace(whole, limited_to="").incomplete_reasons(0)
    reasons += [f"lost {display(key)}: permission denied" for key in gathering.denied]
    if request.report is not None:
        reasons += request.report.problems
    if counting.untold:
        reasons.append(f"undetermined under some candidate: {counted(counting.untold, 'value')}")
    report = EncryptionTryReport(
        **report_origin(source.describe(), request.configuration, cluster),
        findings=counting.tried,
        opened=counting.opened,
        undetermined_today=gathering.undetermined,
        readable_now=gathering.readable_now,
        changed=gathering.changed,
        gone=gathering.gone,
        candidates=counting.candidates(),
        groups=groups,
        next=_next(request, groups),
        complete=not reasons,
        incomplete_reasons=reasons,
    )
    return Tried(report, whole)


def _examiner(
    source: Source,
    request: TryRequest,
    candidate: NamedCandidate,
    today: Examiner,
    plugins: KMSPlugins | None,
) -> Examiner:
    """Return what examines under a candidate; where today's configuration reads every CRD, nobody reads them again."""
    reading = msgspec.structs.replace(request, configuration=candidate.configuration)
    if today.readers.unreadable_crds and not candidate.is_key:
        return Examiner.of_cluster(source, reading, plugins)
    examiner = Examiner.of(reading, plugins)
    examiner.know_as(today)
    return examiner


class _Gathering:
    """Keeps what does not open today."""

    def __init__(self, findings: Spool[_Finding]) -> None:
        self._findings = findings
        self._reported = False
        self.denied: list[bytes] = []
        self.objects = 0
        self.readable_now = 0
        self.undetermined = 0
        self.changed = 0
        self.gone = 0

    def reported(self, source: Source, report: SavedReport) -> Iterator[StoredValue]:
        """Yield what a saved report speaks of, as it is today."""
        self._reported = True
        for key in sorted(report.findings):
            stored = source.get(key)
            if stored is None:
                self.gone += 1
                continue
            digest = f"sha256:{hashlib.sha256(stored.value).hexdigest()}"
            self.changed += digest != report.findings[key].value_sha256
            yield stored

    def take(self, found: Examination, _view: View) -> None:
        outcome = found.verdict.outcome
        if outcome is Outcome.NOT_AN_OBJECT:
            return
        self.objects += 1
        enveloped = found.stored.value.startswith(ENCRYPTED_PREFIX)
        unreadable = outcome in FAILED or outcome is Outcome.UNDETERMINED
        if outcome is Outcome.DECRYPT_FAILURE or (enveloped and unreadable):
            self.undetermined += outcome is Outcome.UNDETERMINED
            place = KeyName(found.rule, found.transformer, found.kms_key_id_sha256)
            self._findings.append(_Finding(found.stored, place, found.verdict.is_damage))
        elif self._reported and not unreadable:
            self.readable_now += 1

    def take_plain(self, counts: Sequence[PlainCount]) -> None:
        count = sum(plain.count for plain in counts)
        self.objects += count
        if self._reported:
            self.readable_now += count


class _Counting:
    """Tries every candidate on every value, a few values at a time."""

    def __init__(self, request: TryRequest, examiners: Sequence[Examiner]) -> None:
        self._names = [candidate.name for candidate in request.candidates]
        self._candidates = request.candidates
        self._examiners = examiners
        self._results = [_Result() for _ in examiners]
        self._groups: dict[KeyName, _Group] = {}
        self.tried = self.opened = self.untold = 0

    def run(self, findings: Iterator[_Finding], plugins: KMSPlugins | None) -> None:
        if plugins is None:
            for finding in findings:
                self._count(finding, [examiner.examine(finding.stored) for examiner in self._examiners])
            return
        for window in _windows(findings):
            for finding, found in zip(window, self._behind_plugins(window, plugins), strict=True):
                self._count(finding, found)

    def _behind_plugins(self, window: list[_Finding], plugins: KMSPlugins) -> list[list[Examination]]:
        """Let the data keys of a whole window be asked for before the first of them is waited for."""
        plugins.deferring = True
        try:
            first = [
                [_unless_pending(examiner, finding.stored) for examiner in self._examiners]
                for finding in window
            ]
        finally:
            plugins.deferring = False
        return [
            [
                found if found is not None else examiner.examine(finding.stored)
                for found, examiner in zip(row, self._examiners, strict=True)
            ]
            for finding, row in zip(window, first, strict=True)
        ]

    def _count(self, finding: _Finding, found: Iterable[Examination]) -> None:
        self.tried += 1
        group = self._group(finding.place)
        group.findings += 1
        group.damaged += finding.damaged
        key = finding.stored.key
        opened = untold = False
        for number, examination in enumerate(found):
            result, here = self._results[number], group.by_candidate[number]
            if _opens(examination):
                opened = True
                result.opens += 1
                here.opens += 1
                _keep(result.opened, key)
                continue
            _keep(result.not_opened, key)
            if _is_right_key(examination):
                result.right_key += 1
                here.right_key += 1
                if examination.verdict.cause is Cause.KEY_RENAMED:
                    here.named = finding.place.transformer
            elif examination.verdict.outcome is Outcome.UNDETERMINED:
                untold = True
                result.undetermined += 1
                here.undetermined += 1
        self.opened += opened
        group.opened += opened
        if opened:
            group.opened_example = group.opened_example or key
        else:
            self.untold += untold
            _keep(group.not_opened, key)

    def _group(self, place: KeyName) -> _Group:
        if place not in self._groups and len(self._groups) >= MAX_NAMES:
            place = KeyName("", OTHERS, "")
        found = self._groups.get(place)
        if found is None:
            found = self._groups[place] = _Group([_OnGroup() for _ in self._examiners])
        return found

    def candidates(self) -> list[CandidateResult]:
        return [
            CandidateResult(
                name=candidate.name,
                kind="key" if candidate.is_key else "configuration",
                key_fingerprints=candidate.fingerprints,
                opens=result.opens,
                right_key=result.right_key,
                undetermined=result.undetermined,
                opened=result.opened,
                not_opened=result.not_opened,
            )
            for candidate, result in zip(self._candidates, self._results, strict=True)
        ]

    def groups(self, request: TryRequest) -> list[FindingGroup]:
        rows = sorted(self._groups.items(), key=lambda item: (-item[1].findings, item[0]))
        return [self._published(request, place, group) for place, group in rows]

    def _published(self, request: TryRequest, place: KeyName, group: _Group) -> FindingGroup:
        return FindingGroup(
            transformer=place.transformer,
            resources=place.rule.split(",") if place.rule else [],
            kms_key_id_sha256=place.key or None,
            findings=group.findings,
            opened=group.opened,
            damaged=group.damaged,
            opened_by=[
                name
                for name, here in zip(self._names, group.by_candidate, strict=True)
                if here.opens == group.findings
            ],
            candidates=[
                CandidateOnGroup(
                    candidate=name,
                    opens=here.opens,
                    right_key=here.right_key,
                    named=here.named,
                    undetermined=here.undetermined,
                )
                for name, here in zip(self._names, group.by_candidate, strict=True)
                if here.opens or here.right_key or here.undetermined
            ],
            not_opened=group.not_opened,
            next=self._next(request, group),
        )

    def _next(self, request: TryRequest, group: _Group) -> Remedy | None:
        best = self._best(group)
        if best is None:
            return None
        candidate, here = best
        if candidate.is_key:
            return Remedy(
                f"Put the key of {candidate.name} into the configuration of every API server, after the first one: it "
                f"opens {here.opens} of {group.findings}",
                NO_COMMAND,
                "",
            )
        path = shown_word(candidate.configuration.path)
        if request.configuration is None:
            return Remedy(
                f"Read them with {path}: it opens {here.opens} of {group.findings}",
                Command(
                    text=request.same_again.scan_of(
                        reading=tuple(
                            path if word == "FILE" else word for word in request.same_again.with_configuration
                        )
                    )
                ),
                "",
            )
        return Remedy(
            f"{path} opens {here.opens} of {group.findings}: single ones can be written again under today's write key",
            Command(text=request.same_again.reencrypt(group.opened_example, path)),
            "For all of them: put its key into the configuration of every API server, after the first one.",
        )

    def _best(self, group: _Group) -> tuple[NamedCandidate, _OnGroup] | None:
        """Return the candidate that opens most, configurations before single keys, the first among equals."""
        pairs = list(zip(self._candidates, group.by_candidate, strict=True))
        candidate, here = max(pairs, key=lambda pair: (pair[1].opens, not pair[0].is_key))
        return (candidate, here) if here.opens else None


def _windows(findings: Iterator[_Finding]) -> Iterator[list[_Finding]]:
    window: list[_Finding] = []
    size = 0
    for finding in findings:
        window.append(finding)
        size += len(finding.stored.value)
        if len(window) >= _WINDOW or size >= _WINDOW_BYTES:
            yield window
            window, size = [], 0
    if window:
        yield window


def _unless_pending(examiner: Examiner, stored: StoredValue) -> Examination | None:
    try:
        return examiner.examine(stored)
    except KMSPending:
        return None


def _opens(found: Examination) -> bool:
    """Say whether a value opens, decodes, and fits its etcd key."""
    outcome, cause = found.verdict.outcome, found.verdict.cause
    return outcome is Outcome.READABLE or (
        outcome is Outcome.INCONSISTENT and cause is not Cause.IDENTITY_MISMATCH
    )


def _is_right_key(found: Examination) -> bool:
    """Say whether a value was written with a key of the candidate, although it does not open as it is."""
    verdict = found.verdict
    return verdict.key_proven or bool(verdict.fitting_key) or verdict.outcome is Outcome.INCONSISTENT


def _keep(examples: list[str], key: bytes) -> None:
    shown = display(key)
    if len(examples) < _MOST_EXAMPLES or shown < examples[-1]:
        insort(examples, shown)
        del examples[_MOST_EXAMPLES:]


def _next(request: TryRequest, groups: Sequence[FindingGroup]) -> Remedy | None:
    """Return the one thing to do next; None where no candidate opens anything."""
    files: dict[str, None] = {}
    configs = {c.name: c.configuration for c in request.candidates if not c.is_key}
    keys: dict[str, None] = {}
    for group in groups:
        openers = [entry for entry in group.candidates if entry.opens]
        if openers:
            best = max(openers, key=lambda entry: (entry.opens, entry.candidate in configs))
            (files if best.candidate in configs else keys)[best.candidate] = None
    if not files and not keys:
        return None
    if not files or request.configuration is None:
        return next((group.next for group in groups if group.next is not None), None)
    paths = [configs[name].path for name in files]
    also = f"; then add {', '.join(keys)}" if keys else ""
    return Remedy(
        f"Join today's configuration with what opens them, look at what it reads, and deploy its keys{also}",
        Command(
            text=quote_command(
                [
                    "etcdfix",
                    "encryption",
                    "merge",
                    request.configuration.path,
                    *paths,
                    "--output-file",
                    "FILE",
                ]
            )
        ),
        "",
    )
