"""The published shapes of what is said of EncryptionConfigurations as files (``etcdfix/v1``), field by field.

No key material stands in any of them: encryption keys are named by transformer and fingerprint.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from etcdfix.report.cases import Case, CaseState
from etcdfix.report.model import PublishedReport, ReportConfiguration


class LintCounts(msgspec.Struct, frozen=True):
    """How many findings of each level."""

    error: int
    warning: int
    advice: int


class LintProblem(msgspec.Struct, frozen=True):
    """One finding of ``encryption lint``.

    Attributes:
        check: Which, one word that does not change.
        level: ``error``: API servers refuse the file; ``warning``: it does not protect, or does not read, what it seems
            to; ``advice``.
        line: Where, from 1; 0 where it is about the file as a whole.
        place: The same as a path, ``resources[0].providers[1]``; "" for the whole file.
        message: What was found.
        next_step: What to do.
    """

    check: str
    level: str
    line: int
    place: str
    message: str
    next_step: str


class EncryptionLintReport(PublishedReport, frozen=True, kw_only=True):
    """What is wrong with one file, the worst first."""

    kind: str = "EncryptionLintReport"
    encryption_config: ReportConfiguration
    counts: LintCounts
    findings: list[LintProblem]

    def cases(self) -> Iterator[Case]:
        """Yield a test case for each problem, and one that passes where API servers take the file."""
        path = self.encryption_config.path
        if not self.counts.error:
            yield Case(name="API servers accept the file", group=path)
        for problem in self.findings:
            where = f"line {problem.line}" if problem.line else problem.place
            yield Case(
                name=f"{problem.check} {where}".rstrip(),
                group=path,
                state=CaseState.PASSED if problem.level == "advice" else CaseState.FAILED,
                type=problem.check,
                message=problem.message,
                detail=[f"{problem.level}: {problem.message}", problem.next_step],
            )


class ConfiguredKeyName(msgspec.Struct, frozen=True):
    """An encryption key, KMS provider or identity; ``key_fingerprint`` is "" for the latter two."""

    transformer: str
    key_fingerprint: str


class FileList(msgspec.Struct, frozen=True):
    """What one file has for a resource.

    Attributes:
        covered: Whether it names the resource, or a wildcard for it; else identity alone serves.
        keys: In the order in which they are tried; the first one writes.
    """

    covered: bool
    keys: list[ConfiguredKeyName]


class ComparedRule(msgspec.Struct, frozen=True):
    """What the files have for some resources; ``files`` has one list for each, in the order given."""

    resources: list[str]
    same: bool
    files: list[FileList]


class KeyInPlace(msgspec.Struct, frozen=True):
    """What some files have in the place of a key; ``files`` counts from 0."""

    transformer: str
    key_fingerprint: str
    files: list[int]


class ConfigurationDifference(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that differs.

    Attributes:
        difference: Which, one word that does not change.
        level: ``danger``: one file writes what another one cannot read; ``warning``: values may not be read everywhere;
            ``note``: nothing becomes unreadable.
        resources: For which; empty where it is not about a resource.
        transformer: Which encryption key or provider; "" where it is about several.
        key_fingerprint: Its fingerprint, or "".
        has: Files that have it, or write so; numbers count from 0 in ``files`` of the report.
        lacks: Files that do not.
        others: What those have in its place.
        message: The same for people.
        next_step: What to do.
    """

    difference: str
    level: str
    resources: list[str]
    transformer: str
    key_fingerprint: str
    has: list[int]
    lacks: list[int]
    others: list[KeyInPlace]
    message: str
    next_step: str


class EncryptionDiffReport(PublishedReport, frozen=True, kw_only=True):
    """What several files do otherwise, the worst first."""

    kind: str = "EncryptionDiffReport"
    files: list[ReportConfiguration]
    differences: list[ConfigurationDifference]
    rules: list[ComparedRule]


class MergedKey(msgspec.Struct, frozen=True):
    """A key of the merged file; ``file`` is the first that has it, from 0."""

    transformer: str
    key_fingerprint: str
    file: int


class MergedRule(msgspec.Struct, frozen=True):
    """What the merged file has for some resources, in the order in which it is tried; the first one writes."""

    resources: list[str]
    keys: list[MergedKey]


class MergeDecision(msgspec.Struct, frozen=True):
    """Something that had to be decided.

    Attributes:
        decision: What kind, one word that does not change.
        resources: For which; empty where it is not about a resource.
        transformer: Which encryption key or provider, "" for none.
        message: What was decided and why.
    """

    decision: str
    resources: list[str]
    transformer: str
    message: str


class MergeRecord(msgspec.Struct, frozen=True):
    """Where the merge stands in an audit log."""

    path: str
    sequence: int
    hash: str


class EncryptionMergeReport(PublishedReport, frozen=True, kw_only=True):
    """What a merge made.

    Attributes:
        files: What was merged, today's first.
        output: The file that was written, and its digest.
        rules: What it has for each resource.
        decisions: What had to be decided.
        audit_record: The record of it; null where there is none.
        no_record: Why there is none, else "".
    """

    kind: str = "EncryptionMergeReport"
    files: list[ReportConfiguration]
    output: ReportConfiguration
    rules: list[MergedRule]
    decisions: list[MergeDecision]
    audit_record: MergeRecord | None
    no_record: str
