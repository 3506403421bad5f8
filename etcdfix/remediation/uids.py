"""Is a value one of the object that stands at a key now, or stood there last? Its uid alone can say it.

Of earlier revisions etcd itself is the list. But a key can have had several objects, one after the other, and a value
of another one would come back over what was made since.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from etcdfix.copies.model import Life
from etcdfix.copies.revisions import life_of
from etcdfix.examine.readable_revision import newest_kept, reads
from etcdfix.examine.verdicts.examination import Examination
from etcdfix.remediation.backup.file import BackupContent, name_of, read_backup
from etcdfix.remediation.backup.folder import intent_of
from etcdfix.remediation.errors import AuditLogUnreadable, BackupUnreadable
from etcdfix.remediation.places import RecordPaths
from etcdfix.remediation.same_etcd import Recorded, compare_with_etcd
from etcdfix.sources.base import Source

if TYPE_CHECKING:
    from etcdfix.remediation.present import Present


class SaidUid(NamedTuple):
    """A uid of the object that stands at a key now, or stood there last, by an earlier value of it."""

    uid: str
    origin: str
    examination: Examination


def life_at(present: Present, kept: Source) -> Life:
    """Return what is known of the object at a key, or of the last one there: by etcd's own history, then by backups.

    Raises SourceError.
    """
    life = life_of(kept, present.cluster.examiner, present.key, present.reading.stored)
    if life.uid_from:
        return life
    said = in_backups(present, create_revision=life.create_revision)
    return msgspec.structs.replace(life, uid=said[0].uid, uid_from=said[0].origin) if said else life


def said_uids(present: Present) -> Iterator[SaidUid]:
    """Yield all that says the uid of a key's present object: what etcd keeps, then backups, the newest first.

    Raises SourceError.
    """
    stored, cluster = present.stored, present.cluster
    with cluster.kept(present.reading.revision) as source:
        newest = newest_kept(source, cluster.examiner.independent_copy(), stored, reads)
    uid = uid_of(newest.examination) if newest is not None and newest.same_object else ""
    if newest is not None and uid:
        origin = f"mod_revision {newest.examination.stored.mod_revision} in {cluster.kept_in}"
        yield SaidUid(uid, origin, newest.examination)
    yield from in_backups(present, create_revision=stored.create_revision)


def in_backups(present: Present, *, create_revision: int) -> list[SaidUid]:
    """Return what backups that the audit log lists, of this cluster, say of the uid; 0 for any create revision."""
    said = []
    cluster, examiner = present.cluster, present.cluster.examiner.independent_copy()
    for path, content in _backups_of(present.key, present.request.record_paths):
        another = create_revision and content.create_revision != create_revision
        if another or not content.cluster.named.is_same(present.identity):
            continue
        # In an etcd that only shares its past, the same create revision may be that of another object.
        held = compare_with_etcd(cluster.now, Recorded.of_backup(content), present.identity, present.reading)
        if held.other_id or held.contradiction:
            continue
        found = examiner.examine(content.stored)
        uid = uid_of(found) if reads(found) else ""
        if uid:
            said.append(SaidUid(uid, f"backup {path}", found))
    return sorted(said, key=lambda each: each.examination.stored.mod_revision, reverse=True)


def _backups_of(key: bytes, places: RecordPaths) -> Iterator[tuple[Path, BackupContent]]:
    """Yield the backups of a key that the audit log lists: anybody may have put a file there."""
    for directory in places.directories:
        for path in sorted(directory.glob(f"{name_of(key)}*.json")):
            with suppress(BackupUnreadable, AuditLogUnreadable):
                backup = read_backup(path)
                if backup.content.key_base64 == key and intent_of(backup, places.log_path) is not None:
                    yield path, backup.content


def uid_of(found: Examination) -> str:
    """Return the uid that a value says, "" for none."""
    uid = found.decoded.uid if found.decoded is not None else None
    return (uid or b"").decode("utf-8", "replace")
