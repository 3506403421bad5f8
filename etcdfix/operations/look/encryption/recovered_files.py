"""Recovered configurations as files: recorded first, then written, for their owner alone."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from etcdfix.errors import AuditError, ConfigurationError, RemediationRefused
from etcdfix.operations.look.encryption.merge import subject_of
from etcdfix.operations.look.encryption.recover import Found, Recovered, Saved, marked_file
from etcdfix.remediation.audit.log import AuditLog
from etcdfix.remediation.audit.record import Entry, Operator, RecordType, Verb
from etcdfix.remediation.durable import SafeDirectory, default_audit_log, open_directory
from etcdfix.report.configurations import FileRecord
from etcdfix.report.model import ReportConfiguration
from etcdfix.report.origin import shown_file, shown_word
from etcdfix.sources.base import SourceDescription

_WHAT = "recovered configuration"
_DIGITS = 16


def save_configurations(
    found: Found, directory: Path, description: SourceDescription, *, audit_log: Path | None, etcd_user: str
) -> Saved:
    """Write every configuration that API servers would take to a file of its own, and record that first.

    A file that is there already with the same bytes stays, and is recorded again: it was looked up once more.

    The directory is made, with mode 0700, where what is above it is there. Without an ``audit_log`` the default one is
    used where it can be written.

    Raises:
        ConfigurationError: Another file has one of the names.
        RemediationRefused: The directory, or the audit log that was named, is not safe; or a file cannot be written.
        AuditError: The record could not be made durable in the audit log that was named: nothing was written.
    """
    wanted = [(one, one.configuration) for one in found.recovered if one.configuration is not None]
    if not wanted:
        return Saved()
    operator = Operator.of_this_process(etcd_user=etcd_user)
    with ExitStack() as stack:
        place = stack.enter_context(open_directory(directory, create=directory.absolute().parent.is_dir()))
        texts = {one.name: marked_file(configuration, one.file.sha256) for one, configuration in wanted}
        missing = {one.name for one, _ in wanted if not _is_there(place, file_name(one), texts[one.name])}
        files = {one.name: shown_file(directory / file_name(one), texts[one.name]) for one, _ in wanted}
        records: list[FileRecord] = []
        no_record = ""
        try:
            path = audit_log if audit_log is not None else default_audit_log()
            log = stack.enter_context(
                AuditLog.open(path, operator=operator, create_directory=audit_log is None)
            )
            for one, _ in wanted:
                link = log.append(_entry(operator, found, one, files[one.name], description))
                records.append(FileRecord(str(log.path), link.sequence, f"sha256:{link.sha256}"))
        except (RemediationRefused, AuditError) as error:
            if audit_log is not None:
                raise
            no_record = error.message
        for one, _ in wanted:
            if one.name in missing:
                place.create(file_name(one), texts[one.name], what=_WHAT)
    return Saved(files=files, records=tuple(records), no_record=no_record)


def file_name(one: Recovered) -> str:
    """Return what a file is called: the beginning of the digest by which Nodes name the configuration is in it."""
    return f"encryption-config-{one.file.sha256.removeprefix('sha256:')[:_DIGITS]}.yaml"


def _is_there(place: SafeDirectory, name: str, text: bytes) -> bool:
    """Say whether a file is there already."""
    try:
        same = place.read(name, limit=len(text)) == text
    except FileNotFoundError:
        return False
    except OSError:
        same = False
    if not same:
        raise ConfigurationError(
            f"--save-dir: {place.path / name} is there already, and is not what would be written",
            hint="name another directory; what stands there may be the last copy of a key",
        )
    return True


def _entry(
    operator: Operator,
    found: Found,
    one: Recovered,
    file: ReportConfiguration,
    description: SourceDescription,
) -> Entry:
    source = (
        f"{description.type} {shown_word(description.path)}"
        if description.path is not None
        else "a live etcd"
    )
    return Entry(
        type=RecordType.REVEAL,
        verb=Verb.REVEAL,
        operator=operator,
        subject=subject_of(file),
        cluster_uid=found.cluster or "",
        header_revision=description.revision if description.path is None else 0,
        detail=f"EncryptionConfiguration {one.file.sha256} recovered from the bootstrap data in {source}, to be "
        f"written to {file.path} {file.sha256}",
    )
