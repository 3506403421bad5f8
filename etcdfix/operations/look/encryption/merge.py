"""Several EncryptionConfigurations joined to one file, with a record of it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import BinaryIO

from etcdfix.encryption.config import EncryptionConfiguration, parse_configuration
from etcdfix.encryption.config_merge import MADE_BY, merge, merged_file
from etcdfix.encryption.config_rules import parse_group_resource
from etcdfix.encryption.transformer import Transformers
from etcdfix.errors import AuditError, ConfigurationError, RemediationRefused
from etcdfix.operations.look.encryption.diff import load_configurations, short_names
from etcdfix.remediation.audit.log import AuditLog
from etcdfix.remediation.audit.record import Entry, Operator, RecordType, Subject, Verb
from etcdfix.remediation.durable import default_audit_log
from etcdfix.reports.configurations_model import (
    EncryptionMergeReport,
    MergeDecision,
    MergedKey,
    MergedRule,
    MergeRecord,
)
from etcdfix.reports.model import ReportConfiguration
from etcdfix.reports.origin import TOOL, shown_configurations, shown_word, timestamp

OpenOutput = Callable[[], AbstractContextManager[BinaryIO]]
"""Opens the file that is written."""


def require_new(output: Path) -> None:
    """See that the output is a file that is not there yet: it holds keys, and the one it replaced may be the last copy.

    Raises:
        ConfigurationError: It is there, or is no file.
    """
    if str(output) == "-":
        raise ConfigurationError(
            "--output-file -: keys are not written to a terminal or a pipe", hint="name a new file"
        )
    if os.path.lexists(output):
        raise ConfigurationError(f"--output-file {output} is there already", hint="name a new file")


def merge_files(
    paths: Sequence[Path], output: Path, open_output: OpenOutput, *, audit_log: Path | None
) -> EncryptionMergeReport:
    """Write the union of some files, once it stands in an audit log.

    Args:
        paths: Today's file first.
        output: What is written.
        open_output: Opens it.
        audit_log: Where to record it; None for the default one, which is done without where it cannot be written.

    Raises:
        ConfigurationError: A file is refused by API servers, or no single one reads what all of them read.
        RemediationRefused: The audit log that was named, or its directory, is not safe.
        AuditError: The record could not be made durable.
    """
    configurations = load_configurations(paths)
    made_at = timestamp()
    names = short_names([shown_word(configuration.path) for configuration in configurations])
    merged = merge(configurations, names)
    text = merged_file(merged, configurations, made_at=made_at)
    written = ReportConfiguration(shown_word(str(output)), f"sha256:{hashlib.sha256(text).hexdigest()}")
    with open_output() as stream:
        record, no_record = _record(audit_log, configurations, written)
        stream.write(text)
    return EncryptionMergeReport(
        tool=TOOL,
        generated_at=made_at,
        files=shown_configurations(configurations),
        output=written,
        rules=_rules(parse_configuration(text, path=str(output)), configurations),
        decisions=[
            MergeDecision(one.kind.value, list(one.resources), one.transformer, one.message)
            for one in merged.decisions
        ],
        audit_record=record,
        no_record=no_record,
    )


def _rules(merged: EncryptionConfiguration, files: Sequence[EncryptionConfiguration]) -> list[MergedRule]:
    before = [Transformers.from_configuration(file) for file in files]
    rules = []
    for rule in dict.fromkeys(Transformers.from_configuration(merged).rules):
        assert rule.rule is not None  # of a rule that is in the file
        resources = rule.rule.split(",")
        name = parse_group_resource(resources[0])
        lists = [
            {(key.transformer, key.key_fingerprint) for key in one.for_resource(name).keys} for one in before
        ]
        keys = [
            MergedKey(
                key.transformer,
                key.key_fingerprint,
                next(
                    (at for at, one in enumerate(lists) if (key.transformer, key.key_fingerprint) in one), -1
                ),
            )
            for key in rule.keys
        ]
        rules.append(MergedRule(resources, keys))
    return rules


def _record(
    log: Path | None, files: Sequence[EncryptionConfiguration], written: ReportConfiguration
) -> tuple[MergeRecord | None, str]:
    """Record a merge before its file is there; return where, or why not."""
    path = log if log is not None else default_audit_log()
    operator = Operator.of_this_process()
    entry = Entry(
        type=RecordType.MERGE,
        verb=Verb.MERGE,
        operator=operator,
        subject=Subject(
            key=b"", group="apiserver.config.k8s.io", api_version="v1", resource="encryptionconfigurations",
            namespace="", name=written.path,
        ),
        detail=f"encryption {MADE_BY}: "
        + ", ".join(f"{shown_word(file.path)} {file.sha256}" for file in files)
        + f" merged into {written.path} {written.sha256}",
    )  # fmt: skip
    try:
        with AuditLog.open(path, operator=operator, create_directory=log is None) as opened:
            link = opened.append(entry)
    except (RemediationRefused, AuditError) as error:
        if log is not None:
            raise
        return None, error.message
    return MergeRecord(str(path), link.sequence, f"sha256:{link.sha256}"), ""
