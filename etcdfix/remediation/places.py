"""Directories for backups and the audit log, and what speaks against keeping them there."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec

from etcdfix.inputs import machine
from etcdfix.model.errors import why
from etcdfix.remediation.audit.log import AuditLog
from etcdfix.remediation.audit.record import Operator
from etcdfix.remediation.audit.syslog import Syslog
from etcdfix.remediation.durable import (
    SafeDirectory,
    Step,
    default_audit_log,
    default_directory,
    filesystem_kind,
    no_step,
    open_directory,
    same_disk,
)
from etcdfix.remediation.errors import UnsafePlace
from etcdfix.text.commands import RunOptions


class RecordPaths(msgspec.Struct, frozen=True):
    """Where backups and the audit log go."""

    backup_directories: tuple[Path, ...] = ()
    audit_log: Path | None = None
    syslog: Syslog | None = None

    @property
    def directories(self) -> tuple[Path, ...]:
        """The backup directories."""
        return self.backup_directories or (default_directory(),)

    @property
    def log_path(self) -> Path:
        """The audit log."""
        return self.audit_log if self.audit_log is not None else default_audit_log()

    def open_log(self, operator: Operator, step: Step = no_step) -> AuditLog:
        """Open the audit log of changes, locked until it is closed; raises AuditError."""
        return AuditLog.open(
            self.log_path,
            step=step,
            create_directory=self.audit_log is None,
            operator=operator,
            syslog=self.syslog,
        )

    def open_directories(self, stack: ExitStack, step: Step = no_step) -> list[SafeDirectory]:
        """Open the backup directories; a default one is made; raises UnsafePlace."""
        named, opened = bool(self.backup_directories), []
        for path in self.directories:
            opened.append(stack.enter_context(open_directory(path, create=not named, step=step)))
            lasting_warnings(opened[-1].path, named=named)
        return opened

    def repeated_in(self, run: RunOptions) -> RunOptions:
        """Return the options with which a command keeps things at the same places: what was given, no default."""
        return msgspec.structs.replace(
            run,
            backups=tuple(word for path in self.backup_directories for word in ("--backup-dir", str(path))),
            log=("--audit-log", str(self.audit_log)) if self.audit_log is not None else (),
            syslog=("--audit-syslog", self.syslog.address) if self.syslog is not None else (),
        )


def lasting_warnings(path: Path, *, named: bool) -> tuple[str, ...]:
    """Return a warning where an existing directory is empty after a restart of this machine; raises UnsafePlace."""
    try:
        place = filesystem_kind(path)
    except OSError as exc:
        problem = f"directory {path}: it cannot be told whether it would last: {why(exc)}"
        raise UnsafePlace(problem, path=path) from exc
    if not place.volatile:
        return ()
    warning = f"{path} is on {place.kind}: a restart of this machine empties it"
    if not named:
        hint = "name a directory on a disk: --backup-dir DIR --audit-log FILE"
        raise UnsafePlace(f"the default directory {warning}", path=path, hint=hint)
    return (warning,)


def place_warnings(places: RecordPaths, *, backup: bool = True) -> tuple[str, ...]:
    """Return what speaks against the places, one sentence each; for the preview.

    Without a backup to make, the default directory need not last. Raises NotDurable where nothing can be kept.
    """
    log = places.log_path
    chosen = places.directories if backup else places.backup_directories
    named = [(path, bool(places.backup_directories)) for path in chosen]
    found: list[str] = []
    for path, is_named in (*named, (log.parent, places.audit_log is not None)):
        existing = _existing(path)
        if existing == path or not is_named:
            found += lasting_warnings(existing, named=is_named)
        if existing == path or is_named:  # a default directory is made
            with open_directory(path) as directory:
                files = [".", *([log.name] if path == log.parent and directory.has(log.name) else [])]
                for name in files:
                    if not os.access(name, os.W_OK, dir_fd=directory.descriptor):
                        raise UnsafePlace(f"{path / name} cannot be written to", path=path / name)
    return tuple(dict.fromkeys((*found, *same_disk_warning(places, backup=backup))))


def same_disk_warning(places: RecordPaths, *, backup: bool = True) -> tuple[str, ...]:
    """Return at most one warning: that what is kept is on the same disk as etcd's data on this machine."""
    kept = {"the backup": places.directories if backup else (), "the audit log": (places.log_path.parent,)}
    return disk_warning(kept)


def disk_warning(kept: Mapping[str, Sequence[Path]]) -> tuple[str, ...]:
    """Return at most one warning: that a failure of etcd's disk loses what is kept, too."""
    lost = {what: paths for what, paths in kept.items() if paths and all(map(_beside_etcd, paths))}
    if not lost:
        return ()
    directories = dict.fromkeys(str(path) for paths in lost.values() for path in paths)
    where = f"{' and '.join(directories)} {'are' if len(directories) > 1 else 'is'}"
    on = f"on the same disk as etcd ({machine.etcd_data()})"
    return (f"{where} {on}. If that disk fails, you lose {' and '.join(lost)} too",)


def disk_of_etcd(places: RecordPaths) -> str:
    """Return the disk that holds a backup directory and etcd's data on this machine; "" for none."""
    shared = [path for path in places.directories if _beside_etcd(path)]
    return filesystem_kind(_existing(shared[0])).source if shared else ""


def _beside_etcd(path: Path) -> bool:
    try:
        return same_disk(_existing(path), machine.etcd_data())
    except (OSError, UnsafePlace):  # etcd keeps its data elsewhere, or nobody knows where
        return False


def _existing(path: Path) -> Path:
    try:
        return next(each for each in (path, *path.parents) if each.is_dir())
    except OSError as exc:
        raise UnsafePlace(f"directory {path}: {why(exc)}", path=path) from exc
