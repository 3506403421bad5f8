"""Which options listen to environment variables, on a command that reads and on one that changes something."""

from __future__ import annotations

from typing import Final

HEEDED_BY_CHANGES: Final = frozenset(
    {
        "ETCDFIX_ENDPOINTS", "ETCDFIX_CACERT", "ETCDFIX_CERT", "ETCDFIX_KEY", "ETCDFIX_USER", "ETCDFIX_PASSWORD",
        "ETCDFIX_DIAL_TIMEOUT", "ETCDFIX_COMMAND_TIMEOUT", "ETCDFIX_TIMEOUT",
        "ETCDFIX_ENCRYPTION_CONFIG", "ETCDFIX_MANIFEST",
    }
)  # fmt: skip
"""All variables of ours that a command which changes something listens to: where etcd is, and how it is encrypted."""

OF_ETCDCTL: Final = ("ETCDCTL_ENDPOINTS", "ETCDCTL_CACERT", "ETCDCTL_CERT", "ETCDCTL_KEY")
"""Variables of etcdctl that say which etcd is meant."""


def variable_of(option: str) -> str:
    """Return the variable of a long option, ``ETCDFIX_ETCD_PREFIX`` for ``--etcd-prefix``."""
    return "ETCDFIX_" + option.removeprefix("--").replace("-", "_").upper()
