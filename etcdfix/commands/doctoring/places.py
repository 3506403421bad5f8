"""Would the backup directories and the audit log do? Found out as a change would: by writing, and taking it away."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from etcdfix.commands.doctoring.check import fail, ok, told_by, warn
from etcdfix.commands.doctoring.members import mib
from etcdfix.errors import AuditLogUnreadable, NotDurable, UnsafePlace, why
from etcdfix.inputs.ownfiles import HEAD_SUFFIX
from etcdfix.remediation.audit.search import is_there
from etcdfix.remediation.audit.verify import LOG_IS_GONE, NO_HEAD_FILE, ChainState, verify, without_head
from etcdfix.remediation.durable import open_directory, probe, refuse_foreign_file
from etcdfix.remediation.places import RecordPaths, lasting_warnings, require_lasting, same_disk_warning
from etcdfix.report.doctor import Check, State
from etcdfix.text.commands import NO_COMMAND, Command
from etcdfix.text.words import counted

LEAST_FREE_BYTES: Final = 100 << 20
"""Less room than this for backups is warned of."""

_WAIT_SECONDS: Final = 1.0
_OTHER_LOG: Final = "choose a file of your own: --audit-log FILE"
_ELSEWHERE: Final = "name another disk: --backup-dir DIR --audit-log FILE"


def check_backup_directories(places: RecordPaths) -> Iterator[Check]:
    """Yield whether backups can be kept in each directory, by writing a file there and removing it."""
    named = bool(places.backup_directories)
    for path in places.directories:
        yield from _check_directory("backup-dir", path, named=named, option="--backup-dir")
    for warning in same_disk_warning(places):
        yield warn("backup-dir", warning, _ELSEWHERE)


def check_audit_log(places: RecordPaths) -> Iterator[Check]:
    """Yield whether a record can be kept, and whether the log is what was written."""
    path, named = places.log_path, places.audit_log is not None
    checks = [*_check_directory("audit-log", path.parent, named=named, option="--audit-log")]
    yield from checks
    if any(check.state is State.FAIL for check in checks):
        return
    try:
        yield from _check_log(path)
    except AuditLogUnreadable as exc:
        yield told_by("audit-log", State.UNKNOWN, exc, otherwise=_OTHER_LOG)


def _check_directory(name: str, path: Path, *, named: bool, option: str) -> Iterator[Check]:
    try:
        if not named and not os.path.lexists(path):
            yield _check_default(name, path, option)
            return
        with open_directory(path) as directory:
            warnings = lasting_warnings(directory.path, named=named)
            probe(directory)
            room = os.fstatvfs(directory.descriptor)
    except (UnsafePlace, NotDurable) as exc:
        missing = named and not os.path.lexists(path)
        make = Command(("mkdir", "-m", "0700", str(path))) if missing else NO_COMMAND
        yield fail(name, exc.message, exc.hint or f"choose another directory: {option}", make)
        return
    except OSError as exc:
        yield fail(name, f"directory {path}: {why(exc)}", f"choose another directory: {option}")
        return
    for warning in warnings:
        yield warn(name, warning, _ELSEWHERE)
    free = room.f_bavail * room.f_frsize
    if free < LEAST_FREE_BYTES:
        what = f"{path}: {mib(free)} are free on its file system"
        yield warn("space", what, f"make room there, or {_ELSEWHERE}")
    yield ok(name, f"{path}: a file can be written and kept there, {mib(free)} free")


def _check_default(name: str, path: Path, option: str) -> Check:
    """Say whether the first change could make a default directory; a look makes none."""
    above = next(parent for parent in path.parents if parent.exists())
    require_lasting(above, named=False)
    if not os.access(above, os.W_OK | os.X_OK):
        what = f"{path} does not exist, and may not be made in {above}"
        return fail(name, what, f"name a directory of your own: {option}")
    return ok(name, f"{path} does not exist yet: the first change makes it")


def _check_log(path: Path) -> Iterator[Check]:
    look = Command(("etcdfix", "audit", "verify", str(path)))
    if not is_there(path):
        if is_there(path.with_name(path.name + HEAD_SUFFIX)):
            advice = "find the log, or begin a new one with --audit-log"
            yield fail("audit-log", f"{path}: {LOG_IS_GONE}", advice)
        else:
            yield ok("audit-log", f"{path} does not exist yet: the first change makes it")
        return
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as exc:
        yield fail("audit-log", f"audit log {path}: {why(exc)}", _OTHER_LOG)
        return
    try:
        refuse_foreign_file(descriptor, path, what="audit log")
    except UnsafePlace as exc:
        yield told_by("audit-log", State.FAIL, exc, otherwise=_OTHER_LOG)
        return
    finally:
        os.close(descriptor)
    found = verify(path, wait_seconds=_WAIT_SECONDS)
    if found.state is ChainState.TAMPERED:
        what = f"{path} is not what was written: {found.findings[0].message}"
        advice = "keep it as it is, find out who changed it, and begin a new one with --audit-log"
        yield fail("audit-log", what, advice, look)
    elif found.head_missing and found.records:
        yield fail("audit-log", f"{path}: {NO_HEAD_FILE}", without_head(path, found.head))
        return  # its warnings say the same
    elif found.open_intents:
        yield warn(
            "audit-log",
            f"{path}: {counted(len(found.open_intents), 'change')} without a known outcome",
            "find out what became of it: docs/runbooks/open-intents.md",
            Command(("etcdfix", "audit", "reconcile", str(path), "--dry-run")),
        )
    elif found.torn_size:
        yield warn("audit-log", f"{path}: its last line is torn", "the next change sets it aside", look)
    else:
        yield ok("audit-log", f"{path}: whole, {counted(found.records, 'record')}")
    for warning in found.warnings:
        yield warn("audit-log", warning, "see what it says", look)
