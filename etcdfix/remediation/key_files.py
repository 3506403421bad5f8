"""Files with encryption keys that etcdfix writes: recorded before they are there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from etcdfix.model.errors import ConfigurationError, RemediationRefused
from etcdfix.remediation.audit.record import Operator, Record, RecordType, Subject, Verb
from etcdfix.remediation.durable import SafeDirectory, open_directory
from etcdfix.remediation.errors import AuditError
from etcdfix.remediation.places import RecordPaths
from etcdfix.report.configurations import FileRecord
from etcdfix.report.model import ReportConfiguration


class KeyFile(NamedTuple):
    """A file to be written: its name in its directory, how reports show it, and what the record says of it."""

    name: str
    text: bytes
    shown: ReportConfiguration
    detail: str


def save_key_files(
    folder: Path,
    files: Sequence[KeyFile],
    *,
    audit_log: Path | None,
    operator: Operator,
    cluster_uid: str,
    revision: int,
) -> tuple[list[FileRecord], str]:
    """Record files as revealed, and write them, for their owner alone; return as :func:`record_key_files` does.

    A file that is there already with the same bytes stays, and is recorded again: it was looked up once more. The
    directory is made, with mode 0700, where what is above it is there.
    Raises ConfigurationError, RemediationRefused or AuditError.
    """
    with open_directory(folder, create=folder.absolute().parent.is_dir()) as place:
        missing = [file for file in files if not _is_there(place, file)]
        recorded = record_key_files(files, Verb.REVEAL, audit_log, operator, cluster_uid, revision)
        for file in missing:
            place.create(file.name, file.text, what="recovered configuration")
    return recorded


def _is_there(place: SafeDirectory, file: KeyFile) -> bool:
    try:
        same = place.read(file.name, limit=len(file.text)) == file.text
    except FileNotFoundError:
        return False
    except OSError:
        same = False
    if not same:
        raise ConfigurationError(
            f"{place.path / file.name} is there already, and is not what would be written",
            hint="name another directory; what stands there may be the last copy of a key",
        )
    return True


def record_key_files(
    files: Sequence[KeyFile],
    verb: Verb,
    audit_log: Path | None,
    operator: Operator,
    cluster_uid: str = "",
    revision: int = 0,
) -> tuple[list[FileRecord], str]:
    """Record that files are about to be written, each with what is in it; return the records, and why there is none.

    Without an ``audit_log`` the default one is used where it can be written. Raises RemediationRefused or AuditError.
    """
    records: list[FileRecord] = []
    try:
        with RecordPaths(audit_log=audit_log).open_log(operator) as log:
            for file in files:
                entry = Record(
                    type=RecordType(verb.value),
                    verb=verb,
                    operator=operator,
                    subject=Subject(
                        group="apiserver.config.k8s.io",
                        api_version="v1",
                        resource="encryptionconfigurations",
                        name=file.shown.path,
                    ),
                    cluster_uid=cluster_uid,
                    header_revision=revision,
                    detail=f"{file.detail}, to be written to {file.shown.path} {file.shown.sha256}",
                )
                link = log.append(entry)
                records.append(FileRecord(str(log.path), link.sequence, f"sha256:{link.sha256}"))
    except (RemediationRefused, AuditError) as error:
        if audit_log is not None:
            raise
        return records, error.message
    return records, ""
