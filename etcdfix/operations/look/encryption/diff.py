"""What several EncryptionConfigurations do otherwise, as a report."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from etcdfix.encryption.config import EncryptionConfiguration, load_configuration
from etcdfix.encryption.config_diff import (
    Difference,
    DifferenceKind,
    KeyOfRule,
    ResourceLists,
    compare_configurations,
)
from etcdfix.encryption.transformer import IDENTITY
from etcdfix.errors import ConfigurationError
from etcdfix.report.configurations_model import (
    ComparedRule,
    ConfigurationDifference,
    ConfiguredKeyName,
    EncryptionDiffReport,
    FileList,
    KeyInPlace,
)
from etcdfix.report.origin import TOOL, shown_configurations, shown_word, timestamp

_ADD: Final = "add it to the files that lack it, behind what writes there, before anything is written anew"
_NEXT: Final[Mapping[DifferenceKind, str]] = {
    DifferenceKind.WRITTEN_NOT_READ: "add it to the files that lack it, before another object is written; "
    "docs/runbooks/control-plane-nodes-disagree.md says in which order API servers get it",
    DifferenceKind.OTHER_BYTES: "find out which bytes values were written with (etcdfix encryption try); until "
    "then keep both: etcdfix encryption merge",
    DifferenceKind.RENAMED: "a value names its key, so give every file both names: etcdfix encryption merge",
    DifferenceKind.MISSING: _ADD,
    DifferenceKind.WRITE_KEY: "every file reads what the others write: finish the rotation that this looks like",
    DifferenceKind.KMS_ENDPOINT: "right where each node has a plugin of its own; see that all lead to one KMS and key",
    DifferenceKind.ORDER: "nothing becomes unreadable; make them equal, so that the next difference is seen",
}


def load_configurations(paths: Sequence[Path]) -> list[EncryptionConfiguration]:
    """Read several configurations.

    Raises:
        ConfigurationError: One of them is refused by API servers, or they are too few.
    """
    if len(paths) < 2:
        raise ConfigurationError("one file is not enough", hint="name two or more: FILE FILE...")
    return [load_configuration(path) for path in paths]


def diff_files(paths: Sequence[Path]) -> EncryptionDiffReport:
    """Say what files do otherwise.

    Raises:
        ConfigurationError: One of them is refused by API servers, or there is only one.
    """
    configurations = load_configurations(paths)
    found = compare_configurations(configurations)
    names = short_names([shown_word(configuration.path) for configuration in configurations])
    return EncryptionDiffReport(
        tool=TOOL,
        generated_at=timestamp(),
        files=shown_configurations(configurations),
        differences=[_published(difference, names) for difference in found.differences],
        rules=[_rule(rule) for rule in found.rules],
    )


def _rule(rule: ResourceLists) -> ComparedRule:
    return ComparedRule(
        list(rule.resources),
        rule.same,
        [
            FileList(covered, [ConfiguredKeyName(key.transformer, key.key_fingerprint) for key in keys])
            for covered, keys in zip(rule.covered, rule.lists, strict=True)
        ],
    )


def _published(difference: Difference, names: Sequence[str]) -> ConfigurationDifference:
    key = difference.key or KeyOfRule("", "")
    return ConfigurationDifference(
        difference=difference.kind.value,
        level=difference.level.value,
        resources=list(difference.resources),
        transformer=key.transformer,
        key_fingerprint=key.key_fingerprint,
        has=list(difference.has),
        lacks=list(difference.lacks),
        others=[
            KeyInPlace(other.transformer, other.key_fingerprint, list(files))
            for other, files in difference.others
        ],
        message=_message(difference, names),
        next_step=_NEXT[difference.kind],
    )


def _message(difference: Difference, names: Sequence[str]) -> str:
    def files(numbers: Sequence[int]) -> str:
        return " and ".join(names[number] for number in numbers)

    key, has, lacks = difference.key, files(difference.has), files(difference.lacks)
    others = "; ".join(f"{other} in {files(numbers)}" for other, numbers in difference.others)
    resources = ", ".join(difference.resources)
    match difference.kind:
        case DifferenceKind.WRITTEN_NOT_READ:
            if key is not None and key.transformer == IDENTITY:
                return (
                    f"{resources}: values that {has} writes, unencrypted, cannot be read with {lacks}: no "
                    "identity there"
                )
            instead = f". In its place: {others}" if others else ""
            return f"{resources}: values that {has} writes, with {key}, cannot be read with {lacks}{instead}"
        case DifferenceKind.WRITE_KEY:
            return f"{resources}: {key} writes in {has}; {others}; each file reads what the others write"
        case DifferenceKind.OTHER_BYTES:
            return f"{resources}: {key} in {has} has other bytes elsewhere: {others}"
        case DifferenceKind.RENAMED:
            return f"{resources}: {key} in {has} has another name elsewhere: {others}"
        case DifferenceKind.MISSING:
            what = "identity, for values that are stored unencrypted," if str(key) == IDENTITY else str(key)
            return f"{resources}: {what} is in {has}, and not in {lacks}"
        case DifferenceKind.ORDER:
            return f"{resources}: {has} have the same keys in another order"
        case DifferenceKind.KMS_ENDPOINT:
            return f"{key} has another endpoint in {lacks} than in {has}"


def short_names(paths: Sequence[str]) -> list[str]:
    """Return paths without the directories that all of them share, where that leaves them different."""
    if len(set(paths)) < len(paths) or len(paths) < 2:
        return list(paths)
    try:
        shared = os.path.commonpath([Path(path).parent for path in paths])
    except ValueError:  # absolute and relative ones
        return list(paths)
    return [str(Path(path).relative_to(shared)) for path in paths] if shared else list(paths)
