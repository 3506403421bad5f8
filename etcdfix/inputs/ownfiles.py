"""Files that no report may replace: our backups, audit logs and plans, EncryptionConfigurations, SQLite databases.

An EncryptionConfiguration is one whoever made it: it may hold the last copy of an encryption key. Files are recognised
by how they begin and end, and by their names, so that one which is damaged in its middle is still known for what it is.
The last writes of a SQLite database are in the log beside it.
"""

from __future__ import annotations

import contextlib
import os
import re
from enum import StrEnum
from typing import Final

RECORD_KIND: Final = "Event"
RECORD_API_VERSION: Final = "audit.k8s.io/v1"

ANNOTATION_PREFIX: Final = "etcdfix.io/"
"""What every annotation of ours in a record starts with."""

MAX_RECORD_SIZE: Final = 1 << 20
"""Longest line that is written, and that is read as a record, in bytes."""

HEAD_SUFFIX: Final = ".head"
"""The head file is the log's name and this."""

LOCK_SUFFIX: Final = ".lock"
"""The file that says who writes to a log is the log's name and this."""

HEAD: Final = re.compile(r"(\d{1,15}):(?:sha256:)?([0-9a-fA-F]{64})", re.ASCII)
"""``SEQ:SHA256``: what a head file holds."""

BACKUP_FAMILY: Final = b'{"format":"etcdfix.backup/'
"""How a backup of any version begins."""

BACKUP_TAIL: Final = re.compile(rb',\n"document_sha256":"(sha256:[0-9a-f]{64})"\}\n\Z')
"""How one ends."""

RESCUE_INDEX_NAME: Final = "index.jsonl"
"""What the index of objects saved from API servers is called."""

RESCUE_FAMILY: Final = b'{"format":"etcdfix.copies.rescued/'
"""How a line of it begins."""

RESCUED_NAME: Final = re.compile(r"[0-9a-f]{16}-\d{1,20}-[0-9a-f]{16}\.json", re.ASCII)
"""What a saved object is called."""

PLAN_KIND: Final = "DeletionPlan"

SQLITE_MAGIC: Final = b"SQLite format 3\0"
# Of a write-ahead log, in either byte order of its sums, and of a rollback journal.
_SQLITE_LOGS: Final = (b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83", b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7")
BESIDE_SQLITE: Final = ("-wal", "-shm", "-journal")
"""What SQLite appends to the name of a database for the files beside it."""

# The longest line of an audit log, and a little of its neighbours.
_REACH: Final = MAX_RECORD_SIZE + 4096
_FIRST_RECORD: Final = f'{{"kind":"{RECORD_KIND}","apiVersion":"{RECORD_API_VERSION}"'.encode()
_RECORD: Final = re.compile(rb'^\{[^\n]*"%ssequence":"' % re.escape(ANNOTATION_PREFIX.encode()), re.MULTILINE)
_PLAN: Final = re.compile(
    rb'\s*\{(?=.*"apiVersion":\s*"etcdfix/)(?=.*"kind":\s*"%s")' % PLAN_KIND.encode(), re.DOTALL
)
_PLAN_REACH: Final = 4096
# EncryptionConfig was its name before it was a stable one.
_CONFIGURATION: Final = re.compile(
    rb"""(?:^[ \t]*|[{,]\s*)(["']?)kind\1\s*:\s*(["']?)EncryptionConfig(?:uration)?\2\s*(?:[,}\#]|$)""",
    re.MULTILINE,
)


class OwnFile(StrEnum):
    """What a file is, as it is called in a message."""

    BACKUP = "a backup of etcdfix"
    AUDIT_LOG = "an audit log of etcdfix"
    HEAD = "the head file of an audit log of etcdfix"
    PLAN = "a plan of etcdfix"
    CONFIGURATION = "an EncryptionConfiguration"
    RESCUE_INDEX = "the index of what etcdfix saved from API servers"
    RESCUED = "an object that etcdfix saved from an API server"
    DATABASE = "a SQLite database, or belongs to one"


def own_file(directory: int, name: str) -> OwnFile | None:
    """Return what a regular file is, if it is one that no report may replace.

    Raises:
        OSError: It cannot be read.
    """
    first, last = _ends(directory, name)
    if first.startswith(BACKUP_FAMILY) or BACKUP_TAIL.search(last) is not None:
        return OwnFile.BACKUP
    is_log = first.startswith(_FIRST_RECORD) or any(
        _RECORD.search(part) is not None for part in (first, last)
    )
    if is_log or _is_there(directory, name + HEAD_SUFFIX):
        return OwnFile.AUDIT_LOG
    if name.endswith(HEAD_SUFFIX) or HEAD.fullmatch(first.decode("ascii", "replace").strip()) is not None:
        return OwnFile.HEAD
    if _PLAN.match(first[:_PLAN_REACH]) is not None:
        return OwnFile.PLAN
    if any(_CONFIGURATION.search(part) is not None for part in (first, last)):
        return OwnFile.CONFIGURATION
    if first.startswith(RESCUE_FAMILY):
        return OwnFile.RESCUE_INDEX
    if RESCUED_NAME.fullmatch(name) is not None:
        return OwnFile.RESCUED
    if first.startswith((SQLITE_MAGIC, *_SQLITE_LOGS)) or name.endswith(BESIDE_SQLITE):
        return OwnFile.DATABASE
    return None


def _is_there(directory: int, name: str) -> bool:
    with contextlib.suppress(OSError):
        os.stat(name, dir_fd=directory, follow_symlinks=False)
        return True
    return False


def _ends(directory: int, name: str) -> tuple[bytes, bytes]:
    """Return the first and the last bytes of a file; of a short one, all of it twice."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(name, flags, dir_fd=directory)
    try:
        size = os.fstat(descriptor).st_size
        return os.pread(descriptor, _REACH, 0), os.pread(descriptor, _REACH, max(0, size - _REACH))
    finally:
        os.close(descriptor)
