"""Finds out which cluster an etcd belongs to, also where namespace kube-system cannot be read.

In this order: the Namespace; a revision of the same generation that etcd still keeps; a backup of the same generation;
else the create revision with etcd's cluster id. Every one is held against the create revision, which a Namespace keeps
as long as it lives: what was made anew in between has another uid.

An etcd that holds only part of a cluster (events, say) has no such Namespace. Then the main etcd is asked, where it is
named. Nothing here writes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from etcdfix.examine.one import Examiner
from etcdfix.model.errors import SourceError
from etcdfix.model.model import ClusterIdentity, KeptRevision, KnownBy, Outcome, StoredValue
from etcdfix.remediation.backup.file import read_backup
from etcdfix.remediation.datastore import KUBE_SYSTEM
from etcdfix.remediation.durable import open_directory
from etcdfix.remediation.errors import BackupUnreadable, NotDurable
from etcdfix.sources.base import Source

_MOST_BACKUPS: Final = 64
"""Read in each directory, newest first."""

_LARGEST_BACKUP: Final = 8 << 20
"""Bytes. A larger one is passed over: it may well name the cluster, but so do the others."""


def identify(source: Source, examiner: Examiner, backup_directories: Sequence[Path] = ()) -> ClusterIdentity:
    """Say which cluster a source belongs to, as far as the source itself and our own backups tell.

    Raises SourceError.
    """
    stored = source.get(examiner.layout.path(KUBE_SYSTEM))
    if stored is None:
        return ClusterIdentity()
    found = ClusterIdentity(
        known_by=KnownBy.CREATE_REVISION,
        created=stored.create_revision,
        changed=stored.mod_revision,
        cluster_id=source.describe().cluster_id or "",
    )
    uid = _uid(examiner, stored)
    if uid:
        return msgspec.structs.replace(found, uid=uid, known_by=KnownBy.VALUE)
    kept: list[KeptRevision] = []
    with suppress(SourceError):  # a user who may not watch, or a compaction meanwhile: then nothing is kept
        kept.extend(source.history(stored.key))
    for earlier in (item.stored for item in reversed(kept)):
        same = earlier is not None and earlier.create_revision == stored.create_revision
        uid = _uid(examiner, earlier) if earlier is not None and same else ""
        if earlier is not None and uid:
            origin = f"its revision {earlier.mod_revision}, which etcd still keeps"
            return msgspec.structs.replace(found, uid=uid, known_by=KnownBy.KEPT_REVISION, source=origin)
    # A file holds no cluster id, and a create revision alone repeats from cluster to cluster.
    if not found.cluster_id:
        return msgspec.structs.replace(found, known_by=KnownBy.UNKNOWN)
    told = dict(_from_backups(backup_directories, examiner, stored.key, found))
    if len(told) == 1:  # backups that contradict each other tell nothing
        ((uid, path),) = told.items()
        return msgspec.structs.replace(found, uid=uid, known_by=KnownBy.BACKUP, source=f"backup {path}")
    return found


def _uid(examiner: Examiner, stored: StoredValue) -> str:
    examination = examiner.examine(stored)
    if examination.verdict.outcome is not Outcome.READABLE or examination.decoded is None:
        return ""
    return (examination.decoded.uid or b"").decode("utf-8", "replace")


def _from_backups(
    directories: Sequence[Path], examiner: Examiner, key: bytes, found: ClusterIdentity
) -> Iterator[tuple[str, Path]]:
    for path in (path for directory in directories for path in _newest(directory)):
        try:
            backup = read_backup(path)
        except BackupUnreadable:
            continue
        content, named = backup.content, backup.content.cluster.named
        uid = named.uid if (named.created, named.cluster_id) == (found.created, found.cluster_id) else ""
        ours = content.cluster.cluster_id == found.cluster_id and content.create_revision == found.created
        if not uid and ours and content.key_base64 == key:
            uid = content.cluster.kube_system_uid or _uid(examiner, content.stored)
        if uid:
            yield uid, backup.path


def _newest(directory: Path) -> list[Path]:
    aged = []
    with suppress(NotDurable, OSError), open_directory(directory) as opened:
        for name in opened.names():
            with suppress(OSError):
                status = os.stat(name, dir_fd=opened.descriptor, follow_symlinks=False)
                if name.endswith(".json") and status.st_size <= _LARGEST_BACKUP:
                    aged.append((status.st_mtime_ns, opened.path / name))
    return [path for _, path in sorted(aged, reverse=True)[:_MOST_BACKUPS]]
