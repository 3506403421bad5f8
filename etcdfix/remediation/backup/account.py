"""What an audit log says of backups: which belong to which change, what became of that, and which were pruned."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from etcdfix.errors import AuditLogUnreadable
from etcdfix.remediation.audit.record import CLOSING_TYPES, Intent, Link, RecordType, Result, Verb
from etcdfix.remediation.audit.record_line import Event, parse_list, parse_number
from etcdfix.remediation.audit.record_line import intent_of as intent_of_record
from etcdfix.remediation.audit.verify import read_records
from etcdfix.remediation.backup.file import Backup
from etcdfix.remediation.backup.write import ANOMALY

_WRITTEN: Final = frozenset({Result.FIXED, Result.UNDONE})


class Listed(msgspec.Struct, kw_only=True):
    """One backup as the log has it: one content, in one or several files.

    Attributes:
        content_sha256: What the log calls it by.
        at: When the record was written, RFC 3339.
        second: It was made of what a transaction gave back although another value was expected.
        result: What became of the change; None while nobody knows.
        pruned: Files that were removed since, and the record that says so.
    """

    intent: Intent
    content_sha256: str
    paths: tuple[str, ...]
    at: str
    second: bool = False
    result: Result | None = None
    pruned: dict[str, Link] = msgspec.field(default_factory=dict)

    @property
    def outcome(self) -> str:
        """What became of the change, in a word; ``open`` while nobody knows."""
        return self.result.value if self.result is not None else "open"

    def is_of(self, backup: Backup) -> bool:
        """Say whether a file holds this backup: same record and cluster, and unless it is second, key and value."""
        content, intent = backup.content, self.intent
        if backup.intent.link != intent.link or intent.cluster_uid != (content.cluster.kube_system_uid or ""):
            return False
        if self.second:  # which may be of any key: the digest of all that it says is in the record
            return content.purpose == ANOMALY
        return (
            intent.subject.key == content.key_base64
            and intent.subject.mod_revision == content.mod_revision
            and intent.value_sha256 == content.value_sha256
        )


def intent_of(backup: Backup, audit_log: Path) -> Intent | None:
    """Return the intent of an audit log that this backup belongs to, by the word of the log; None for any other file.

    Raises:
        AuditLogUnreadable: The log cannot be read.
    """
    listed = Account.of(audit_log, read_records(audit_log)).listing(backup)
    return None if listed is None else listed.intent


class Account:
    """All that a log says of backups, in the order of its records.

    Attributes:
        listed: By ``content_sha256``.
        open_prunes: Intents to remove a backup of which nobody knows what became.
    """

    def __init__(self) -> None:
        self.listed: dict[str, Listed] = {}
        self.open_prunes: dict[int, Intent] = {}
        self._intents: dict[int, Intent] = {}
        self._by_intent: dict[int, list[Listed]] = {}
        self._written: dict[bytes, list[Intent]] = {}

    @classmethod
    def of(cls, path: Path, records: Iterable[tuple[Link, Event]]) -> Account:
        """Read the records of a log.

        Raises:
            AuditLogUnreadable: A record makes no sense.
        """
        account = cls()
        for link, event in records:
            try:
                account._take(link, event)
            except ValueError as exc:
                raise AuditLogUnreadable(f"audit log {path}: record {link.sequence}: {exc}") from exc
        return account

    def _take(self, link: Link, event: Event) -> None:
        notes = event.annotations
        if notes.type == RecordType.INTENT:
            intent = self._intents[link.sequence] = intent_of_record(link, event)
            if intent.verb is Verb.PRUNE:
                self.open_prunes[link.sequence] = intent
            elif intent.backups:
                self._add(intent, intent.backup_sha256, intent.backups, event.stage_timestamp)
        elif notes.type in CLOSING_TYPES:
            closed = self._intents.get(parse_number(notes.intent) or 0)
            if closed is not None:
                self._close(closed, link, event)

    def _add(self, intent: Intent, content_sha256: str, paths: tuple[str, ...], at: str) -> None:
        of_intent = self._by_intent.setdefault(intent.link.sequence, [])
        listed = Listed(
            intent=intent, content_sha256=content_sha256, paths=paths, at=at, second=bool(of_intent)
        )
        of_intent.append(listed)
        self.listed[content_sha256] = listed

    def _close(self, intent: Intent, link: Link, event: Event) -> None:
        notes, number = event.annotations, intent.link.sequence
        result, paths = Result(notes.outcome), parse_list(notes.backups)
        if intent.verb is Verb.PRUNE:
            if result is not Result.UNKNOWN:
                self.open_prunes.pop(number, None)
            if result is Result.PRUNED and intent.backup_sha256 in self.listed:
                self.listed[intent.backup_sha256].pruned.update(dict.fromkeys(paths, link))
            return
        of_intent = self._by_intent.get(number, [])
        if result is Result.ANOMALY and of_intent:
            for digest in notes.backup_sha256.split():
                ending = f"-{digest.removeprefix('sha256:')[:16]}.json"
                if digest != intent.backup_sha256:
                    its = tuple(path for path in paths if path.endswith(ending))
                    self._add(intent, digest, its, event.stage_timestamp)
        for listed in of_intent:
            listed.result = None if result is Result.UNKNOWN else result
        if result in _WRITTEN and not intent.is_patch:
            self._written.setdefault(intent.subject.key, []).append(intent)

    def listing(self, backup: Backup) -> Listed | None:
        """Return what the log says of a backup file; None where it does not know it."""
        listed = self.listed.get(backup.content_sha256)
        return listed if listed is not None and listed.is_of(backup) else None

    def written_since(self, listed: Listed) -> bool:
        """Say whether the log tells that this very value was put at the key again, in the same cluster."""
        intent = listed.intent
        return any(
            write.link.sequence > intent.link.sequence
            and write.cluster.is_same(intent.cluster) is True
            and not write.cluster.has_other_id(intent.cluster)
            and write.value_sha256 == intent.value_sha256
            for write in self._written.get(intent.subject.key, ())
        )

    def files_to_prune(self) -> set[str]:
        """Return the files that open intents are about to remove."""
        return {path for intent in self.open_prunes.values() for path in intent.backups}

    def in_order(self) -> Iterator[Listed]:
        """Yield every backup in the order in which they were made."""
        for sequence in sorted(self._by_intent):
            yield from self._by_intent[sequence]
