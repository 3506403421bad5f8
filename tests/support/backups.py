"""Backup directories as changes leave them, with their log, for tests of listing, verifying and pruning."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from etcdfix.model.model import StoredValue
from etcdfix.model.rules import Rule
from etcdfix.remediation.audit.grounds import Grounds
from etcdfix.remediation.audit.log import AuditLog
from etcdfix.remediation.audit.record import Result, Verb
from etcdfix.remediation.backup.file import keep_second_backup, record_intent
from etcdfix.remediation.backup.prune import PruneRequest, prune_backups, survey_backups
from etcdfix.remediation.cluster import Acceptances
from etcdfix.remediation.durable import Step, no_step, open_directory
from etcdfix.remediation.places import RecordPaths
from etcdfix.report.log import BackupPruning
from tests.support.audit_logs import KEY, OPERATOR, STORED, content, entry, own_directory, subject

OLD = datetime(2026, 1, 5, 12, tzinfo=UTC)
"""When changes were made, one a day from then on."""

AFTER = datetime(2026, 3, 1, tzinfo=UTC)
"""By then all of them are old."""

PLAINTEXT = b"k8s\x00\n\x0c\n\x02v1\x12\x06Secret secret-of-the-test"


class Ground:
    """Two backup directories and a log, and what a change leaves in them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "audit.jsonl"
        self.directories = tuple(own_directory(folder / name) for name in ("one", "two"))
        self.days = 0

    @property
    def places(self) -> RecordPaths:
        return RecordPaths(self.directories, self.log)

    def change(
        self,
        result: Result | None = Result.DELETED,
        *,
        key: bytes = KEY,
        verb: Verb = Verb.DELETE,
        value: bytes = STORED.value,
        made: datetime | None = None,
        grounds: Grounds | None = None,
        step: Step = no_step,
    ) -> str:
        """Do what a change does to backups and log, one day after the last one; return its backup's name."""
        at = OLD + timedelta(days=self.days)
        self.days += 1
        stored = StoredValue(key=key, value=value, mod_revision=41, create_revision=12, version=3, lease=0)
        about = subject(key) if key == KEY else msgspec.structs.replace(subject(key), resource="", name="x")
        with ExitStack() as stack:
            log = stack.enter_context(AuditLog.open(self.log, clock=lambda: at, step=step))
            opened = [stack.enter_context(open_directory(path)) for path in self.directories]
            held = content(stored, purpose=verb.purpose, at=made or at)
            intent = record_intent(log, entry(verb=verb, subject=about, grounds=grounds), held, opened)
            if result is Result.ANOMALY:
                second = content(stored, purpose="anomaly", at=at + timedelta(seconds=1))
                plan = keep_second_backup(second, opened, intent=intent, audit_log=log.path)
                paths = tuple(map(str, plan.paths))
                log.append(
                    intent.closed_by(
                        result, operator=OPERATOR, backups=paths, backup_sha256=plan.content_sha256
                    )
                )
            elif result is not None:
                log.append(intent.closed_by(result, operator=OPERATOR))
        return Path(intent.backups[0]).name

    def request(self, **changes: object) -> PruneRequest:
        made = PruneRequest(
            before=AFTER, reason="aged", places=self.places, accepted=Acceptances(words=(Rule.ONLY_COPY,))
        )
        return msgspec.structs.replace(made, **changes)

    def survey(self, **changes: object) -> BackupPruning:
        return survey_backups(self.request(**changes))

    def prune(self, *, step: Step = no_step, **changes: object) -> BackupPruning:
        request = self.request(**changes)
        return prune_backups(request, survey_backups(request), operator=OPERATOR, step=step)

    def files(self) -> set[str]:
        """Return the files in the backup directories, as ``one/NAME``."""
        return {f"{path.name}/{file.name}" for path in self.directories for file in path.iterdir()}


def prune_all(folder: Path, step: Step = no_step) -> None:
    """Prune every backup in ``one`` and ``two`` below a folder, by the log beside them."""
    places = RecordPaths((folder / "one", folder / "two"), folder / "audit.jsonl")
    request = PruneRequest(
        before=datetime.now(UTC) + timedelta(days=1),
        reason="aged",
        places=places,
        accepted=Acceptances(words=(Rule.ONLY_COPY,)),
    )
    prune_backups(request, survey_backups(request), operator=OPERATOR, step=step)
