"""Where things are kept on this machine unless an option names another place; all such places lie below one root.

Modules ask here each time, so that the tests can give them an empty machine.
"""

from __future__ import annotations

from pathlib import Path

ROOT = Path("/")


def etcd_data() -> Path:
    """Return where etcd keeps its data as a rule."""
    return ROOT / "var/lib/etcd"


def state_of_root() -> Path:
    """Return where root's backups and audit log go."""
    return ROOT / "var/lib/etcdfix"
