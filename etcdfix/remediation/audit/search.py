"""What an audit log says of one intent, or of one key: for an undo, and against a proof of our own making.

The words of the log are believed here; whether its chain holds is said by :func:`trouble_with`, and seen again when it
is opened to write.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import msgspec

from etcdfix.errors import AuditLogUnreadable, why
from etcdfix.inputs.ownfiles import HEAD_SUFFIX
from etcdfix.model import StoredValue
from etcdfix.remediation.audit.record import CLOSING_TYPES, PATCH, Intent, RecordType, Result, Verb
from etcdfix.remediation.audit.record_line import Annotations, parse_list
from etcdfix.remediation.audit.verify import LOG_IS_GONE, read_records, verify
from etcdfix.remediation.backup.file import digest

_WRITES = frozenset({Verb.FIX.value, Verb.UNDO.value})
_WRITTEN = frozenset({Result.FIXED.value, Result.UNDONE.value})
_NOTHING_WRITTEN = frozenset({Result.REFUSED.value, Result.NOT_APPLIED.value})
_EVER = 1 << 63


def is_there(path: Path) -> bool:
    """Say whether there is an audit log; the default one is made by the first change.

    Raises:
        AuditLogUnreadable: It cannot be told.
    """
    try:
        path.stat()
    except FileNotFoundError:
        return False
    except OSError as exc:
        raise AuditLogUnreadable(f"audit log {path}: {why(exc)}") from exc
    return True


def trouble_with(path: Path) -> str:
    """Say why a log cannot be relied upon, as a writer would find it; "" for one that is whole, or not there at all.

    Raises:
        AuditLogUnreadable: The log cannot be read.
    """
    if not is_there(path):
        return LOG_IS_GONE if is_there(path.with_name(path.name + HEAD_SUFFIX)) else ""
    return verify(path).trouble


def outcomes_of(path: Path, intent: Intent) -> Iterator[Annotations]:
    """Yield what the log says became of an intent, oldest first.

    Raises:
        AuditLogUnreadable: The log cannot be read.
    """
    number = str(intent.link.sequence)
    for _link, event in read_records(path):
        notes = event.annotations
        if notes.type in CLOSING_TYPES and notes.intent == number and event.audit_id == intent.audit_id:
            yield notes


def wrote(path: Path, intent: Intent, present: StoredValue) -> bool:
    """Say whether what stands at a key now is exactly what this intent put there.

    The revision of its transaction is in the outcome, and the digest of what was put ends the intent's detail.
    Revisions alone would not do: an etcd that was put back to an older state gives the same ones to other writes.

    Raises:
        AuditLogUnreadable: The log cannot be read.
    """
    if (
        intent.verb.value not in _WRITES
        or intent.is_patch
        or intent.subject.key != present.key
        or not intent.detail.endswith(digest(present.value))
    ):
        return False
    revision = str(present.mod_revision)
    return any(
        notes.outcome in _WRITTEN and notes.header_revision == revision for notes in outcomes_of(path, intent)
    )


def own_writes(path: Path, cluster_uid: str) -> dict[str, int]:
    """Return the keys that this log says we wrote: a value that is not newer may be ours.

    A log that is not there says nothing. A record that does not name its cluster counts; so does each, where
    ``cluster_uid`` is "".

    Returns:
        Base64 of each key, and the revision up to which a write of ours may reach; where nobody knows what became of
        it, that is beyond any revision.

    Raises:
        AuditLogUnreadable: The log cannot be read.
    """
    found: dict[str, int] = {}
    unsettled: dict[str, str] = {}
    for _link, event in read_records(path) if is_there(path) else ():
        notes = event.annotations
        if (
            event.verb not in _WRITES
            or notes.way == PATCH
            or (notes.cluster_uid and cluster_uid not in {"", notes.cluster_uid})
        ):
            continue
        if notes.type == RecordType.INTENT:
            unsettled[notes.sequence] = notes.key_base64
        elif notes.type in CLOSING_TYPES and notes.outcome != Result.UNKNOWN:
            key = unsettled.pop(notes.intent, notes.key_base64)
            if notes.outcome not in _NOTHING_WRITTEN:
                found[key] = max(found.get(key, 0), int(notes.header_revision or 0))
    return found | dict.fromkeys(unsettled.values(), _EVER)


def saved_digests(path: Path, cluster_uid: str) -> frozenset[str]:
    """Return the digests of objects that were saved from API servers of a cluster, as this log says.

    A log that is not there, and a record that does not name its cluster, are taken as by :func:`own_writes`.

    Raises:
        AuditLogUnreadable: The log cannot be read.
    """
    found: set[str] = set()
    for _link, event in read_records(path) if is_there(path) else ():
        notes = event.annotations
        if notes.type == RecordType.RESCUED and (
            cluster_uid in {"", notes.cluster_uid} or not notes.cluster_uid
        ):
            with contextlib.suppress(ValueError, msgspec.MsgspecError):  # then it vouches for nothing
                found.update(parse_list(notes.saved))
    return frozenset(found)
