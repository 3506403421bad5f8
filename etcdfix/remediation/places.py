"""Where backups and the audit log go, and what speaks against keeping them there."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from etcdfix.errors import UnsafePlace, why
from etcdfix.remediation.audit.outside import OutsideAnchor
from etcdfix.remediation.durable import default_audit_log, default_directory, require_lasting
from etcdfix.text.commands import KeptOptions

ETCD_DATA: Final = Path("/var/lib/etcd")
"""Where etcd keeps its data as a rule."""


class RecordPaths(msgspec.Struct, frozen=True):
    """Where backups and the audit log go.

    Attributes:
        backup_directories: All must take the backup; empty for the default.
        audit_log: None for the default.
        etcd_data: Where etcd keeps its data, if on this machine.
        anchor: Is told the head of the audit log; None for nowhere.
    """

    backup_directories: tuple[Path, ...] = ()
    audit_log: Path | None = None
    etcd_data: Path = ETCD_DATA
    anchor: OutsideAnchor | None = None

    @property
    def directories(self) -> tuple[Path, ...]:
        """The backup directories."""
        return self.backup_directories or (default_directory(),)

    @property
    def again(self) -> KeptOptions:
        """What a command must repeat so that it keeps things at the same places: what was given, no default."""
        return KeptOptions(
            backups=tuple(word for path in self.backup_directories for word in ("--backup-dir", str(path))),
            log=("--audit-log", str(self.audit_log)) if self.audit_log is not None else (),
            anchor=("--audit-anchor", self.anchor.named) if self.anchor is not None else (),
        )

    @property
    def log_path(self) -> Path:
        """The audit log."""
        return self.audit_log if self.audit_log is not None else default_audit_log()


def lasting_warnings(path: Path, places: RecordPaths, *, named: bool) -> tuple[str, ...]:
    """Return what speaks against an existing directory that was named, one sentence each.

    Args:
        path: The directory.
        places: One of which it is.
        named: The operator chose it.

    Raises:
        UnsafePlace: A default directory would not last, or it cannot be looked at.
    """
    try:
        return require_lasting(path, named=named, etcd_data_directory=places.etcd_data)
    except OSError as exc:
        raise UnsafePlace(
            f"directory {path}: it cannot be told whether it would last: {why(exc)}", path=path
        ) from exc


def place_warnings(places: RecordPaths, *, backup: bool = True) -> tuple[str, ...]:
    """Return what speaks against the places that were named, as far as they are there already; for the preview.

    Args:
        places: Where backups and the audit log go.
        backup: There is something to back up; without, the default directory need not last.

    Raises:
        UnsafePlace: A default place would not last, or a place cannot be looked at.
    """
    chosen_places = places.directories if backup else places.backup_directories
    named = [(path, bool(places.backup_directories)) for path in chosen_places]
    named.append((places.log_path.parent, places.audit_log is not None))
    found = [
        warning
        for path, chosen in named
        if _is_directory(path)
        for warning in lasting_warnings(path, places, named=chosen)
    ]
    return tuple(dict.fromkeys(found))


def _is_directory(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError as exc:
        raise UnsafePlace(f"directory {path}: {why(exc)}", path=path) from exc
