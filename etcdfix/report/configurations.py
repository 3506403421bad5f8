"""The published shapes of what is said of EncryptionConfigurations as files (``etcdfix/v1``), and their documents.

No key material stands in any of them: encryption keys are named by transformer and fingerprint.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from etcdfix.model.model import KeyOfRule
from etcdfix.report.document import Case, CaseState, Column, Document, Facts, State, Status, Step, Table
from etcdfix.report.model import PublishedReport, ReportConfiguration, about
from etcdfix.text.words import counted

LEVELS: Final = ("error", "warning", "advice")
"""Levels of findings, the worst first."""


class RuleKeys(msgspec.Struct, frozen=True):
    """What a file has for some resources, in the order in which it is tried; the first one writes."""

    resources: list[str]
    keys: list[KeyOfRule]


class CheckFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong with a file, or that several files do otherwise.

    Attributes:
        check: Which, one word that does not change.
        level: ``error``: API servers refuse the file, or one file writes what another one cannot read; ``warning``: a
            file does not protect, or does not read, what it seems to; ``advice``.
        files: Which files have it, or write so; numbers count from 0 in ``files`` of the report.
        line: Where, from 1; 0 where it is about whole files.
        place: The same as a path, ``resources[0].providers[1]``; "" for whole files.
        key: Which encryption key or provider differs; null for none, or several.
    """

    check: str
    level: str
    files: list[int]
    line: int = 0
    place: str = ""
    resources: list[str] = []
    key: KeyOfRule | None = None
    lacks: list[int] = []
    message: str
    next_step: str


class EncryptionCheckReport(PublishedReport, frozen=True, kw_only=True):
    """What is wrong with some files, and what they do otherwise.

    Attributes:
        compared: There are several, and API servers take each of them.
        findings: The worst first.
    """

    kind: str = "EncryptionCheckReport"
    files: list[ReportConfiguration]
    compared: bool
    findings: list[CheckFinding]

    def document(self) -> Document:
        """Return how many findings there are, what to do about the worst, and all of them."""
        rows = [
            (
                one.level.upper(),
                one.check,
                ", ".join(str(at + 1) for at in one.files) + (f" line {one.line}" if one.line else ""),
                ", ".join(one.resources) or one.place,
                one.message,
                one.next_step,
            )
            for one in self.findings
        ]
        bad = any(one.level != "advice" for one in self.findings)
        return Document(
            status=Status(State.FINDINGS if bad else State.OK, self._headline()),
            about=about(self.tool, self.generated_at),
            next=Step(self.findings[0].next_step) if self.findings else None,
            sections=[
                Table(columns=_FINDING, rows=rows, noun="finding", brief=4),
                _files_table(self.files, wide=len(self.files) == 1),
            ],
        )

    def cases(self) -> Iterator[Case]:
        """Yield a test case for each finding, and one that passes where API servers take the files."""
        if all(one.check != "refused" for one in self.findings):
            yield Case(name="API servers accept the file", group=self.files[0].path)
        for one in self.findings:
            where = f"line {one.line}" if one.line else ",".join(one.resources)
            yield Case(
                name=f"{one.check} {where}".rstrip(),
                group=self.files[one.files[0]].path,
                state=CaseState.PASSED if one.level == "advice" else CaseState.FAILED,
                type=one.check,
                message=one.message,
                detail=[f"{one.level}: {one.message}", one.next_step],
            )

    def _headline(self) -> str:
        refused = any(one.check == "refused" for one in self.findings)
        if len(self.files) == 1:
            path = self.files[0].path
            told = f"API servers refuse {path}" if refused else f"API servers accept {path}"
        elif not self.compared:
            told = f"API servers refuse one of {len(self.files)} files, so they are not compared"
        else:
            differ = any(one.lacks and one.level != "advice" for one in self.findings)
            told = f"{len(self.files)} files {'do not ' if differ else ''}read and write alike"
        levels = [one.level for one in self.findings]
        nouns = zip(LEVELS, ("error", "warning", "tip"), strict=True)
        counts = [counted(levels.count(level), noun) for level, noun in nouns if level in levels]
        return f"{told}: {', '.join(counts) or 'nothing is wrong'}"


_FINDING: Final = (
    Column("LEVEL"),
    Column("CHECK"),
    Column("FILE"),
    Column("WHERE", folds=True, wide=True),
    Column("WHAT", folds=True),
    Column("WHAT TO DO", folds=True, wide=True),
)


def _files_table(files: Sequence[ReportConfiguration], *, wide: bool) -> Table:
    """Return the files of a report, by the numbers that its other tables use."""
    return Table(
        columns=(Column("FILE"), Column("PATH", folds=True), Column("SHA256", wide=True)),
        rows=[(str(number), file.path, file.sha256) for number, file in enumerate(files, start=1)],
        noun="file",
        brief=6,
        wide=wide,
    )


class MergeDecision(msgspec.Struct, frozen=True):
    """Something that had to be decided; ``decision`` says what kind, in one word that does not change."""

    decision: str
    resources: list[str]
    transformer: str
    message: str


class FileRecord(msgspec.Struct, frozen=True):
    """Where the making of a file stands in an audit log."""

    path: str
    sequence: int
    hash: str


MARKED: Final = (
    "The file holds encryption keys, and only its owner may read it. Check the write keys, then deploy the file "
    "unchanged. etcdfix makes no change with this file until API servers use it."
)
"""About a file that etcdfix made."""


def not_recorded(reason: str) -> list[str]:
    """Return the stake that says why no audit log has a record of a file; none where one has."""
    return [f"NOT RECORDED in an audit log: {reason}"] if reason else []


class EncryptionMergeReport(PublishedReport, frozen=True, kw_only=True):
    """What a merge made of ``files``, today's first. ``audit_record`` is null where nothing records it."""

    kind: str = "EncryptionMergeReport"
    files: list[ReportConfiguration]
    output: ReportConfiguration
    rules: list[RuleKeys]
    decisions: list[MergeDecision]
    audit_record: FileRecord | None
    no_record: str

    def document(self) -> Document:
        """Return where the file is, what had to be decided, and what comes first for each resource."""
        record = self.audit_record
        recorded = f"record {record.sequence} ({record.hash}) in {record.path}" if record else ""
        number = len(self.files)
        headline = f"WRITTEN: {self.output.path} reads everything that the {number} files read"
        return Document(
            status=Status(State.DONE, headline),
            about=Facts(facts=[("digest", self.output.sha256), ("record", recorded)]),
            stakes=[MARKED, *not_recorded(self.no_record)],
            sections=[
                Table(
                    title="What was decided" if self.decisions else "",
                    columns=(Column("DECISION"), Column("RESOURCES", folds=True), Column("WHAT", folds=True)),
                    rows=[(one.decision, ", ".join(one.resources), one.message) for one in self.decisions],
                    noun="decision",
                    brief=3,
                ),
                Table(
                    title="What the new file tries, in order; the first key of a resource writes",
                    columns=(Column("RESOURCES", folds=True), Column("KEYS", folds=True)),
                    rows=[(", ".join(rule.resources), ", ".join(map(str, rule.keys))) for rule in self.rules],
                    noun="rule",
                    brief=3,
                ),
                _files_table(self.files, wide=True),
            ],
        )
