"""What is wrong with EncryptionConfigurations, and what several of them do otherwise, as a report."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from etcdfix.encryption.config import decode_rules, parse_configuration, read_configuration
from etcdfix.encryption.config_diff import Difference, DifferenceKind, compare_configurations
from etcdfix.encryption.config_lint import LintFinding, LintLevel, lint
from etcdfix.encryption.transformer import IDENTITY
from etcdfix.report.configurations import LEVELS, CheckFinding, EncryptionCheckReport
from etcdfix.report.model import ReportConfiguration
from etcdfix.report.origin import TOOL, shown_file, timestamp

_ADD: Final = "Add this key to the files that lack it, below their write key"
_NEXT: Final[Mapping[DifferenceKind, str]] = {
    DifferenceKind.WRITTEN_NOT_READ: f"{_ADD}, before another object is written: "
    "docs/runbooks/control-plane-nodes-disagree.md.",
    DifferenceKind.OTHER_BYTES: "Find out which bytes wrote the values: etcdfix encryption try. Keep both keys until "
    "then: etcdfix encryption merge.",
    DifferenceKind.RENAMED: "Give every file both names, since a value names its key: etcdfix encryption merge.",
    DifferenceKind.MISSING: f"{_ADD}.",
    DifferenceKind.WRITE_KEY: "Finish the key rotation. Every file reads what the others write.",
    DifferenceKind.KMS_ENDPOINT: "Check that all endpoints lead to one KMS and one key.",
    DifferenceKind.ORDER: "Put the keys into one order, so that you notice the next difference.",
}
_LEVELS: Final[Mapping[DifferenceKind, LintLevel]] = {
    DifferenceKind.WRITTEN_NOT_READ: LintLevel.ERROR,
    DifferenceKind.KMS_ENDPOINT: LintLevel.ADVICE,
    DifferenceKind.ORDER: LintLevel.ADVICE,
}
"""Of the differences that are no warning."""


def check_files(paths: Sequence[Path]) -> EncryptionCheckReport:
    """Return what is wrong with each file, and what several files do otherwise.

    Files are compared only where API servers take all of them.

    Raises:
        ConfigurationError: One cannot be read, or cannot be decoded.
    """
    files: list[ReportConfiguration] = []
    found: dict[LintFinding, list[int]] = {}
    raws = []
    for number, path in enumerate(paths):
        modes: list[os.stat_result] = []
        raws.append(raw := read_configuration(path, modes.append))
        files.append(shown_file(path, raw))
        for one in lint(raw, decode_rules(raw, path=str(path)), mode=modes[0].st_mode):
            found.setdefault(one, []).append(number)
    findings = [CheckFinding(files=at, **msgspec.structs.asdict(one)) for one, at in found.items()]
    compared = len(paths) > 1 and all(one.level is not LintLevel.ERROR for one in found)
    if compared:
        names = short_names([file.path for file in files])
        configurations = [
            parse_configuration(raw, path=file.path) for raw, file in zip(raws, files, strict=True)
        ]
        findings += [_finding(one, names) for one in compare_configurations(configurations)]
    findings.sort(key=lambda one: (LEVELS.index(one.level), not one.lacks))
    return EncryptionCheckReport(
        tool=TOOL, generated_at=timestamp(), files=files, compared=compared, findings=findings
    )


def _finding(difference: Difference, names: Sequence[str]) -> CheckFinding:
    return CheckFinding(
        check=difference.kind,
        level=_LEVELS.get(difference.kind, LintLevel.WARNING),
        files=list(difference.has),
        resources=list(difference.resources),
        key=difference.key,
        lacks=list(difference.lacks),
        message=_message(difference, names),
        next_step=_NEXT[difference.kind],
    )


def _message(difference: Difference, names: Sequence[str]) -> str:
    def files(numbers: Sequence[int]) -> str:
        return " and ".join(names[number] for number in numbers)

    key, has, lacks = difference.key, files(difference.has), files(difference.lacks)
    others = "; ".join(f"{other} in {files(numbers)}" for other, numbers in difference.others)
    resources = ", ".join(difference.resources)
    how = "unencrypted" if str(key) == IDENTITY else f"with {key}"
    instead = f". It has {others} instead" if others else ""
    return {
        DifferenceKind.WRITTEN_NOT_READ: f"{lacks} cannot read the {resources} that {has} writes {how}{instead}",
        DifferenceKind.WRITE_KEY: f"{has} writes {resources} with {key}, others write with another key: {others}",
        DifferenceKind.OTHER_BYTES: f"{resources}: {key} in {has} has other bytes elsewhere: {others}",
        DifferenceKind.RENAMED: f"{resources}: {key} in {has} has another name elsewhere: {others}",
        DifferenceKind.MISSING: f"{resources}: {key} is in {has} and not in {lacks}",
        DifferenceKind.ORDER: f"{resources}: {has} have the same keys in another order",
        DifferenceKind.KMS_ENDPOINT: f"{key} has another endpoint in {lacks} than in {has}",
    }[difference.kind]


def short_names(paths: Sequence[str]) -> list[str]:
    """Return paths without the directories that all of them share, where that leaves them different."""
    if len(set(paths)) < len(paths) or len(paths) < 2:
        return list(paths)
    try:
        shared = os.path.commonpath([Path(path).parent for path in paths])
    except ValueError:  # absolute and relative ones
        return list(paths)
    return [str(Path(path).relative_to(shared)) for path in paths] if shared else list(paths)
