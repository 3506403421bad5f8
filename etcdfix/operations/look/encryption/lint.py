"""What is wrong with an EncryptionConfiguration, as a report."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from pathlib import Path

from etcdfix.encryption.config import decode_rules, read_configuration
from etcdfix.encryption.config_lint import LintLevel, lint
from etcdfix.report.configurations_model import EncryptionLintReport, LintCounts, LintProblem
from etcdfix.report.model import ReportConfiguration
from etcdfix.report.origin import TOOL, shown_word, timestamp


def lint_file(path: Path) -> EncryptionLintReport:
    """Say what is wrong with a file.

    Raises:
        ConfigurationError: It cannot be read, or cannot be decoded.
    """
    modes: list[int] = []

    def note_mode(status: os.stat_result) -> None:
        modes.append(status.st_mode)

    raw = read_configuration(path, note_mode)
    found = lint(raw, decode_rules(raw, path=str(path)), mode=modes[0])
    counts = Counter(finding.level for finding in found)
    return EncryptionLintReport(
        tool=TOOL,
        generated_at=timestamp(),
        encryption_config=ReportConfiguration(
            shown_word(str(path)), f"sha256:{hashlib.sha256(raw).hexdigest()}"
        ),
        counts=LintCounts(*(counts[level] for level in LintLevel)),
        findings=[
            LintProblem(one.check.value, one.level.value, one.line, one.place, one.message, one.next_step)
            for one in found
        ],
    )
