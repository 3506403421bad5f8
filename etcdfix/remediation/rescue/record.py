"""What the audit log holds of a rescue: first that contents are asked for, then the digests of what was saved.

The digests are recorded a hundred at a time, so that the log is never held for long. An object whose digest is on
record is what an API server gave: nobody has changed the file since.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from etcdfix.remediation.audit.log import AuditLog
from etcdfix.remediation.audit.record import Entry, Operator, RecordType, Subject, Verb
from etcdfix.remediation.audit.search import saved_digests
from etcdfix.remediation.places import RecordPaths, lasting_warnings
from etcdfix.rescued import SavedObject
from etcdfix.text.words import counted

BATCH: Final = 100
_MOST_RESOURCES: Final = 20


class RescueRecord:
    """Writes the records of one rescue."""

    def __init__(
        self, places: RecordPaths, directory: Path, *, cluster_uid: str, resources: Sequence[str]
    ) -> None:
        self.log = places.log_path
        self.warnings: list[str] = []
        self._places = places
        self._directory = directory
        self._cluster_uid = cluster_uid
        shown = [*resources[:_MOST_RESOURCES], *(["…"] if len(resources) > _MOST_RESOURCES else [])]
        self._subject = Subject(
            key=b"", group="", api_version="", resource=",".join(shown), namespace="", name=""
        )
        self._operator = Operator.of_this_process()

    def announce(self, detail: str) -> frozenset[str]:
        """Return the digests on record, once it is recorded that contents are about to be asked for.

        Raises:
            UnsafePlace: The log, or its directory, is not safe.
            AuditError: The record could not be made durable.
        """
        self._append(RecordType.REVEAL, f"{detail}, to be saved in {self._directory}", ())
        return saved_digests(self.log, self._cluster_uid)

    def saved(self, objects: Sequence[SavedObject]) -> None:
        """Record the digests of objects that are saved.

        Raises:
            AuditError: They could not be put on record; see :meth:`announce`.
        """
        for start in range(0, len(objects), BATCH):
            batch = objects[start : start + BATCH]
            detail = f"{counted(len(batch), 'object')} saved in {self._directory}"
            self._append(RecordType.RESCUED, detail, tuple(saved.sha256 for saved in batch))

    def _append(self, kind: RecordType, detail: str, digests: tuple[str, ...]) -> None:
        with ExitStack() as stack:
            log = stack.enter_context(
                AuditLog.open(
                    self.log,
                    operator=self._operator,
                    create_directory=self._places.audit_log is None,
                    syslog=self._places.syslog,
                )
            )
            if kind is RecordType.REVEAL:
                self.warnings += lasting_warnings(self.log.parent, named=self._places.audit_log is not None)
            log.append(
                Entry(
                    type=kind,
                    verb=Verb.RESCUE,
                    operator=self._operator,
                    subject=self._subject,
                    cluster_uid=self._cluster_uid,
                    detail=detail,
                    saved=digests,
                )
            )
