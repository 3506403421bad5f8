"""Several EncryptionConfigurations joined to one file, with a record of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import BinaryIO

from etcdfix.commands.encryption.check import short_names
from etcdfix.encryption.config import load_configuration, parse_configuration
from etcdfix.encryption.config_merge import MADE_BY, merge, merged_file
from etcdfix.encryption.config_model import EncryptionConfiguration
from etcdfix.encryption.transformer import Transformers
from etcdfix.inputs.ownfiles import HEAD_SUFFIX
from etcdfix.model.errors import ConfigurationError
from etcdfix.remediation.audit.log import RESERVE_SUFFIX
from etcdfix.remediation.audit.record import Operator, Verb
from etcdfix.remediation.key_files import KeyFile, record_key_files
from etcdfix.remediation.places import RecordPaths
from etcdfix.report.configurations import EncryptionMergeReport, MergeDecision, RuleKeys
from etcdfix.report.model import ReportConfiguration
from etcdfix.report.origin import TOOL, shown_file, shown_word, timestamp


def require_new(output: Path, audit_log: Path | None) -> None:
    """Refuse an output that is there already: it holds keys, and the file it replaced may be the last copy."""
    log = RecordPaths(audit_log=audit_log).log_path
    taken = (log.with_name(log.name + suffix) for suffix in ("", HEAD_SUFFIX, RESERVE_SUFFIX))
    if str(output) == "-":
        trouble = "keys are not written to a terminal or a pipe"
    elif os.path.lexists(output):
        trouble = "it is there already"
    elif os.path.realpath(output) in map(os.path.realpath, taken):
        trouble = "it is the audit log, or a file that belongs to it"
    else:
        return
    raise ConfigurationError(f"--output-file {output}: {trouble}", hint="name a new file")


def merge_files(
    paths: Sequence[Path],
    output: Path,
    open_output: Callable[[], AbstractContextManager[BinaryIO]],
    *,
    audit_log: Path | None,
) -> EncryptionMergeReport:
    """Write the union of some files, today's first. It is recorded once all of it is written, before it gets its name.

    Without an ``audit_log`` the default one is used where it can be written.

    Raises:
        RemediationRefused: The audit log that was named, or its directory, is not safe. Nothing was written.
        AuditError: The record could not be made durable. Nothing was written.
    """
    if len(paths) < 2:
        raise ConfigurationError("one file is not enough", hint="name two or more: FILE FILE...")
    configurations = [load_configuration(path) for path in paths]
    made_at = timestamp()
    names = short_names([shown_word(configuration.path) for configuration in configurations])
    merged = merge(configurations, names)
    text = merged_file(merged, configurations, made_at=made_at)
    written = shown_file(output, text)
    files = [ReportConfiguration(shown_word(one.path), one.sha256) for one in configurations]
    detail = f"encryption {MADE_BY}: {', '.join(f'{one.path} {one.sha256}' for one in files)}"
    with open_output() as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
        file, operator = KeyFile(output.name, text, written, detail), Operator.of_this_process()
        records, no_record = record_key_files([file], Verb.MERGE, audit_log, operator)
    return EncryptionMergeReport(
        tool=TOOL,
        generated_at=made_at,
        files=files,
        output=written,
        rules=rules_of(parse_configuration(text, path=str(output))),
        decisions=[MergeDecision(*one) for one in merged.decisions],
        audit_record=next(iter(records), None),
        no_record=no_record,
    )


def rules_of(configuration: EncryptionConfiguration) -> list[RuleKeys]:
    """Return what a configuration has for each resource that it names."""
    return [
        RuleKeys(rule.rule.split(","), [key.named for key in rule.keys])
        for rule in dict.fromkeys(Transformers.from_configuration(configuration).rules)
        if rule.rule is not None
    ]
