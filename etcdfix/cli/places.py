"""Where the options say that backups and the audit log go."""

from __future__ import annotations

from typing import Any

from etcdfix.cli.anchor import named_anchor
from etcdfix.remediation.places import RecordPaths


def record_paths(options: dict[str, Any]) -> RecordPaths:
    """Return where backups and the audit log go; a directory that is named twice is one."""
    return RecordPaths(
        tuple(dict.fromkeys(path.absolute() for path in options.get("backup_dirs") or ())),
        options["audit_log"].absolute() if options.get("audit_log") is not None else None,
        anchor=named_anchor(options),
    )
