"""What is wrong with EncryptionConfigurations, and what several of them do otherwise, as a report.

Several files are those of control-plane nodes, or one before and after a change. They are compared by what they do, not
by their text: for each resource that any of them names, which encryption key writes and which ones read. Encryption
keys are compared by name and fingerprint, KMS providers by version and name.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from etcdfix.encryption.config import decode_rules, parse_configuration, place_of, read_configuration
from etcdfix.encryption.config_lint import LintLevel, lint
from etcdfix.encryption.config_model import EncryptionConfiguration, parse_group_resource, rule_name
from etcdfix.encryption.envelope import transformer_name
from etcdfix.encryption.transformer import Transformers
from etcdfix.golang.goyaml import line_of
from etcdfix.model.model import KeyOfRule
from etcdfix.model.providers import IDENTITY, ProviderType
from etcdfix.report.configurations import LEVELS, CheckFinding, EncryptionCheckReport
from etcdfix.report.model import ReportConfiguration
from etcdfix.report.origin import TOOL, shown_file, timestamp

_Lists = tuple[tuple[KeyOfRule, ...], ...]
"""What each file tries for a resource, in order; the first key writes."""
_ADD: Final = "Add this key to the files that lack it, below their write key"


def check_files(paths: Sequence[Path]) -> EncryptionCheckReport:
    """Return what is wrong with each file, and what several files do otherwise.

    Files are compared only where API servers take all of them.
    """
    files: list[ReportConfiguration] = []
    found: dict[object, CheckFinding] = {}
    raws = []
    for number, path in enumerate(paths):
        raws.append(raw := read_configuration(path))
        files.append(shown_file(path, raw))
        for one in lint(raw, decode_rules(raw, path=str(path)), mode=path.stat().st_mode):
            finding = CheckFinding(
                check=one.check,
                level=one.level,
                files=[],
                line=line_of(raw, one.path) if one.path else 0,
                place=place_of(one.path),
                message=one.message,
                next_step=one.next_step,
            )
            found.setdefault((one, finding.line), finding).files.append(number)
    findings = list(found.values())
    compared = len(paths) > 1 and all(one.level != LintLevel.ERROR for one in findings)
    if compared:
        configurations = [parse_configuration(raw, path=f.path) for raw, f in zip(raws, files, strict=True)]
        findings += _differences(configurations, short_names([file.path for file in files]))
    findings.sort(key=lambda one: (LEVELS.index(one.level), not one.lacks, one.line))
    return EncryptionCheckReport(
        tool=TOOL, generated_at=timestamp(), files=files, compared=compared, findings=findings
    )


def _differences(
    configurations: Sequence[EncryptionConfiguration], names: Sequence[str]
) -> Iterator[CheckFinding]:
    transformers = [Transformers.from_configuration(configuration) for configuration in configurations]
    entries = (entry for one in configurations for rule in one.rules for entry in rule.resources)
    alike: dict[_Lists, list[str]] = {}
    for name in dict.fromkeys(parse_group_resource(entry) for entry in entries if entry):
        lists = tuple(tuple(key.named for key in one.for_resource(name).keys) for one in transformers)
        alike.setdefault(lists, []).append(rule_name(name))
    for lists, resources in alike.items():
        yield from _of_resources(lists, resources, names)
    used: dict[KeyOfRule, dict[str, list[int]]] = {}
    for at, configuration in enumerate(configurations):
        for provider in configuration.kms_providers:
            name_of = transformer_name(ProviderType.KMS, provider.api_version, provider.name)
            used.setdefault(KeyOfRule(name_of, ""), {}).setdefault(provider.endpoint, []).append(at)
    for key, endpoints in used.items():
        first, *others = endpoints.values()
        lacks = list(dict.fromkeys(at for files in others for at in files))
        if lacks:
            yield CheckFinding(
                check="kms-endpoint-differs",
                level=LintLevel.ADVICE,
                files=first,
                key=key,
                lacks=lacks,
                message=f"{key} has another endpoint in {_said(lacks, names)} than in {_said(first, names)}",
                next_step="Check that all endpoints lead to one KMS and one key.",
            )


def _of_resources(lists: _Lists, resources: list[str], names: Sequence[str]) -> Iterator[CheckFinding]:
    """Yield which keys some files lack, the write keys first; where none lacks one, that they write with others."""
    writers = [keys[0] for keys in lists]
    what = ", ".join(resources)
    all_read = True
    for key in dict.fromkeys([*writers, *(key for keys in lists for key in keys)]):
        lacks = [at for at, keys in enumerate(lists) if key not in keys]
        if not lacks:
            continue
        writes = [at for at, writer in enumerate(writers) if writer == key]
        has = writes or [at for at in range(len(lists)) if at not in lacks]
        holder, without = _said(has, names), _said(lacks, names)
        message = f"{what}: {key} is in {holder} and not in {without}"
        if writes:
            all_read = False
            how = "unencrypted" if key.transformer == IDENTITY else f"with {key}"
            message = f"{without} cannot read the {what} that {holder} writes {how}"
        instead = dict.fromkeys(
            str(other) for at in lacks for other in lists[at] if _is_in_place_of(other, key)
        )
        yield CheckFinding(
            check="written-not-read" if writes else "key-missing",
            level=LintLevel.ERROR if writes else LintLevel.WARNING,
            files=has,
            resources=resources,
            key=key,
            lacks=lacks,
            message=f"{message}. It has {', '.join(instead)} instead" if instead else message,
            next_step=f"{_ADD}, before another object is written: docs/runbooks/control-plane-nodes-disagree.md."
            if writes
            else f"{_ADD}.",
        )
    if all_read and len(set(writers)) > 1:
        has = [at for at, writer in enumerate(writers) if writer == writers[0]]
        others = ", ".join(f"{names[at]} with {key}" for at, key in enumerate(writers) if at not in has)
        yield CheckFinding(
            check="write-key-differs",
            level=LintLevel.WARNING,
            files=has,
            resources=resources,
            key=writers[0],
            lacks=[at for at in range(len(lists)) if at not in has],
            message=f"{_said(has, names)} writes {what} with {writers[0]}, {others}",
            next_step="Finish the key rotation. Every file reads what the others write.",
        )


def _is_in_place_of(other: KeyOfRule, key: KeyOfRule) -> bool:
    """Say whether a key has the name of another one, or its bytes under the same provider."""
    if not key.key_fingerprint:
        return False
    same_provider = other.transformer.partition("/")[0] == key.transformer.partition("/")[0]
    return other.transformer == key.transformer or (
        same_provider and other.key_fingerprint == key.key_fingerprint
    )


def _said(files: Sequence[int], names: Sequence[str]) -> str:
    return " and ".join(names[number] for number in files)


def short_names(paths: Sequence[str]) -> list[str]:
    """Return paths without the directories that all of them share, where that leaves them different."""
    if len(set(paths)) < len(paths) or len(paths) < 2:
        return list(paths)
    try:
        shared = os.path.commonpath([Path(path).parent for path in paths])
    except ValueError:  # absolute and relative ones
        return list(paths)
    return [str(Path(path).relative_to(shared)) for path in paths] if shared else list(paths)
