"""Formats of ``encryption lint``, ``diff`` and ``merge``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import BinaryIO, Final

from etcdfix.report.base import Output
from etcdfix.report.configurations_model import (
    EncryptionDiffReport,
    EncryptionLintReport,
    EncryptionMergeReport,
)
from etcdfix.report.formats.machine import write_document, write_yaml
from etcdfix.report.formats.text import aligned, shown
from etcdfix.report.model import ReportConfiguration
from etcdfix.text.safetext import safe_text
from etcdfix.text.words import counted

_LEVELS: Final = {"danger": "DANGER", "warning": "WARNING", "note": "NOTE"}


def write_lint(report: EncryptionLintReport, stream: BinaryIO) -> None:
    """Write the worst of it in one line, then each finding with its line and what to do."""
    output = Output(stream)
    counts, path = report.counts, shown(report.encryption_config.path)
    if counts.error:
        output.line(
            f"REFUSED by API servers: {path} has {_told(counts.error, counts.warning, counts.advice)}"
        )
    elif counts.warning:
        output.line(f"WARNING: {path} has {_told(0, counts.warning, counts.advice)}")
    elif counts.advice:
        output.line(f"Nothing wrong with {path}; {_told(0, 0, counts.advice)}")
    else:
        output.line(f"Nothing wrong with {path}.")
    for finding in report.findings:
        output.line()
        where = f"line {finding.line}" if finding.line else "the file"
        place = f" {shown(finding.place)}" if finding.place else ""
        output.line(f"{finding.level.upper()}  {finding.check}  {where}{place}")
        output.prose(safe_text(_sentence(finding.message)), "  ")
        output.prose(f"next: {safe_text(finding.next_step)}", "  ")


def _told(errors: int, warnings: int, advice: int) -> str:
    parts = [counted(number, noun) for number, noun in ((errors, "error"), (warnings, "warning")) if number]
    if advice:
        parts.append(f"{counted(advice, 'piece')} of advice")
    return ", ".join(parts)


def write_diff(report: EncryptionDiffReport, stream: BinaryIO) -> None:
    """Write what is worst in one line, then every difference, then what each file has for what differs."""
    output = Output(stream)
    dangers = [one for one in report.differences if one.level == "danger"]
    if dangers:
        output.prose(f"DANGER: {safe_text(_sentence(dangers[0].message))}")
    elif report.differences:
        output.prose(f"DIFFERENT: {safe_text(_sentence(report.differences[0].message))}")
    else:
        output.line(f"NO DIFFERENCE: {len(report.files)} files read and write alike.")
    if report.differences:
        output.prose(f"Next: {safe_text(report.differences[0].next_step)}")
    output.line()
    _files(output, report.files)
    for difference in report.differences:
        output.line()
        output.line(f"{_LEVELS[difference.level]}  {difference.difference}")
        output.prose(safe_text(_sentence(difference.message)), "  ")
        output.prose(f"next: {safe_text(difference.next_step)}", "  ")
    for rule in report.rules:
        if rule.same:
            continue
        output.line()
        output.line(f"{shown(', '.join(rule.resources))}: what is tried, in order; the first one writes")
        for number, file in enumerate(rule.files, start=1):
            keys = ", ".join(_key(key.transformer, key.key_fingerprint) for key in file.keys)
            output.prose(
                f"{number}. {shown(keys)}{'' if file.covered else ' (not named in this file)'}", "  "
            )


def write_merge(report: EncryptionMergeReport, stream: BinaryIO) -> None:
    """Write where the file is, what had to be decided, and what comes first for each resource."""
    output = Output(stream)
    output.line(f"WRITTEN: {shown(report.output.path)} reads what any of {len(report.files)} files reads.")
    output.prose(
        "It holds their keys (mode 0600), and it is marked: etcdfix changes nothing by it. It may be a "
        "--candidate-config, and the --encryption-config of what only looks."
    )
    output.line()
    _files(output, report.files)
    output.line(f"  = {shown(report.output.path)}  {report.output.sha256}")
    output.line()
    if report.decisions:
        output.line("What was decided")
    for decision in report.decisions:
        where = f"{', '.join(decision.resources)}: " if decision.resources else ""
        output.prose(f"- {decision.decision}: {safe_text(_sentence(where + decision.message))}", "  ")
    if not report.decisions:
        output.line("Nothing had to be decided.")
    for rule in report.rules:
        output.line()
        output.line(f"{shown(', '.join(rule.resources))}: what is tried, in order; the first one writes")
        rows = [
            (f"{number}.", shown(_key(key.transformer, key.key_fingerprint)), _origin(key.file))
            for number, key in enumerate(rule.keys, start=1)
        ]
        output.lines(aligned(rows))
    output.line()
    if report.audit_record is not None:
        record = report.audit_record
        output.line(f"Recorded: {shown(record.path)}, record {record.sequence} ({record.hash})")
    else:
        output.prose(f"NOT RECORDED in an audit log: {safe_text(report.no_record)}")


def _origin(file: int) -> str:
    return f"of file {file + 1}" if file >= 0 else "added"


def _files(output: Output, files: Sequence[ReportConfiguration]) -> None:
    for number, file in enumerate(files, start=1):
        output.line(f"  {number}. {shown(file.path)}  {file.sha256}")


def _key(transformer: str, fingerprint: str) -> str:
    return f"{transformer} ({fingerprint})" if fingerprint else transformer


def _sentence(text: str) -> str:
    return text if text.endswith((".", ":")) else f"{text}."


LINT_FORMATS: Final[Mapping[str, Callable[[EncryptionLintReport, BinaryIO], None]]] = {
    "table": write_lint, "json": write_document, "yaml": write_yaml,
}  # fmt: skip
DIFF_FORMATS: Final[Mapping[str, Callable[[EncryptionDiffReport, BinaryIO], None]]] = {
    "table": write_diff, "json": write_document, "yaml": write_yaml,
}  # fmt: skip
MERGE_FORMATS: Final[Mapping[str, Callable[[EncryptionMergeReport, BinaryIO], None]]] = {
    "table": write_merge, "json": write_document, "yaml": write_yaml,
}  # fmt: skip
