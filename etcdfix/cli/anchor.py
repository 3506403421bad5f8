"""``--audit-anchor``: where the head of the audit log is told, outside; it has no variable, as no safety option has."""

from __future__ import annotations

from typing import Any, Final

import click

from etcdfix.remediation.audit.outside import OutsideAnchor, parse_outside

anchor_option: Final = click.option(
    "--audit-anchor", "anchor", metavar="TARGET",
    help="Tell the head of the audit log to an anchor outside, with each record: journald, syslog, "
    "syslog:SOCKET-PATH, syslog:udp://HOST:PORT or syslog:tcp://HOST:PORT. Refuse where it cannot be reached.",
)  # fmt: skip


def named_anchor(options: dict[str, Any]) -> OutsideAnchor | None:
    """Return where the head of the audit log is told, None for nowhere.

    Raises:
        ConfigurationError: It is no anchor.
    """
    return parse_outside(options["anchor"]) if options.get("anchor") is not None else None
