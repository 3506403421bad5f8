"""Several EncryptionConfigurations joined to one file, with a record of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from pathlib import Path
from typing import BinaryIO

from etcdfix.encryption.config import EncryptionConfiguration, load_configuration, parse_configuration
from etcdfix.encryption.config_merge import MADE_BY, merge, merged_file
from etcdfix.encryption.transformer import Transformers
from etcdfix.errors import AuditError, ConfigurationError, RemediationRefused, why
from etcdfix.inputs.ownfiles import HEAD_SUFFIX
from etcdfix.operations.look.encryption.check import short_names
from etcdfix.remediation.audit.log import RESERVE_SUFFIX, AuditLog
from etcdfix.remediation.audit.record import Entry, Operator, RecordType, Subject, Verb
from etcdfix.remediation.audit.record_line import Draft
from etcdfix.remediation.durable import default_audit_log
from etcdfix.report.configurations import (
    ConfiguredKey,
    EncryptionMergeReport,
    FileRecord,
    MergeDecision,
    RuleKeys,
)
from etcdfix.report.model import ReportConfiguration
from etcdfix.report.origin import TOOL, shown_file, shown_word, timestamp

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
    """Write the union of some files, and record it once the file is in place.

    Where the record cannot be made in an audit log that was named, the file goes again.

    Today's file is the first of ``paths``. Without an ``audit_log`` the default one is used where it can be written.

    Raises:
        ConfigurationError: A file is refused by API servers, or no single one reads what all of them read; or the
            output is the audit log, or a file beside it that belongs to it.
        RemediationRefused: The audit log that was named, or its directory, is not safe.
        AuditError: The record could not be made durable.
    """
    path = audit_log if audit_log is not None else default_audit_log()
    _require_other_file(output, path)
    if len(paths) < 2:
        raise ConfigurationError("one file is not enough", hint="name two or more: FILE FILE...")
    configurations = [load_configuration(path) for path in paths]
    made_at = timestamp()
    names = short_names([shown_word(configuration.path) for configuration in configurations])
    merged = merge(configurations, names)
    text = merged_file(merged, configurations, made_at=made_at)
    written = shown_file(output, text)
    with ExitStack() as stack:
        operator = Operator.of_this_process()
        log, no_record = None, ""
        try:
            log = stack.enter_context(
                AuditLog.open(path, operator=operator, create_directory=audit_log is None)
            )
            draft = log.draft(_entry(operator, configurations, written))
        except (RemediationRefused, AuditError) as error:
            if audit_log is not None:
                raise
            log, no_record = None, error.message
        with open_output() as stream:
            stream.write(text)
            made = os.fstat(stream.fileno())
        record = None
        if log is not None:
            try:
                record = _record(log, draft, output, made, must=audit_log is not None)
            except (RemediationRefused, AuditError) as error:
                if audit_log is not None:
                    raise
                no_record = error.message
    return EncryptionMergeReport(
        tool=TOOL,
        generated_at=made_at,
        files=[ReportConfiguration(shown_word(one.path), one.sha256) for one in configurations],
        output=written,
        rules=rules_of(parse_configuration(text, path=str(output))),
        decisions=[
            MergeDecision(one.kind.value, list(one.resources), one.transformer, one.message)
            for one in merged.decisions
        ],
        audit_record=record,
        no_record=no_record,
    )


def rules_of(configuration: EncryptionConfiguration) -> list[RuleKeys]:
    """Return what a configuration has for each resource that it names."""
    return [
        RuleKeys(
            rule.rule.split(","), [ConfiguredKey(key.transformer, key.key_fingerprint) for key in rule.keys]
        )
        for rule in dict.fromkeys(Transformers.from_configuration(configuration).rules)
        if rule.rule is not None
    ]


def _require_other_file(output: Path, log: Path) -> None:
    taken = (log.with_name(log.name + suffix) for suffix in ("", HEAD_SUFFIX, RESERVE_SUFFIX))
    if os.path.realpath(output) in map(os.path.realpath, taken):
        raise ConfigurationError(
            f"--output-file {output} is the audit log, or a file that belongs to it", hint="name a new file"
        )


def _entry(
    operator: Operator, files: Sequence[EncryptionConfiguration], written: ReportConfiguration
) -> Entry:
    return Entry(
        type=RecordType.MERGE,
        verb=Verb.MERGE,
        operator=operator,
        subject=subject_of(written),
        detail=f"encryption {MADE_BY}: "
        + ", ".join(f"{shown_word(file.path)} {file.sha256}" for file in files)
        + f" merged into {written.path} {written.sha256}",
    )


def subject_of(written: ReportConfiguration) -> Subject:
    """Return the subject of a record about an EncryptionConfiguration that etcdfix wrote to a file."""
    return Subject(
        key=b"", group="apiserver.config.k8s.io", api_version="v1", resource="encryptionconfigurations",
        namespace="", name=written.path,
    )  # fmt: skip


def _record(log: AuditLog, draft: Draft, output: Path, made: os.stat_result, *, must: bool) -> FileRecord:
    """Record a merge whose file is in place; where that fails and it must not, remove the file again.

    The file stays where something of the record is in the log all the same, so that the log stays true.
    """
    before = log.path.stat().st_size
    try:
        _sync(output.parent)
        link = log.append_draft(draft)
    except (RemediationRefused, AuditError, OSError) as error:
        reason = why(error) if isinstance(error, OSError) else error.message
        with suppress(OSError):
            if must and log.path.stat().st_size == before and os.path.samestat(output.lstat(), made):
                output.unlink()
        kept = f"{output} was made, see etcdfix audit verify for the record of it"
        raise AuditError(
            reason, path=log.path, hint=kept if os.path.lexists(output) else f"{output} was removed again"
        ) from error
    return FileRecord(str(log.path), link.sequence, f"sha256:{link.sha256}")


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
