"""Options that say where else to look for copies: one grammar for every command that looks for them."""

from __future__ import annotations

from typing import Any

import click

from etcdfix.cli.options import FILE, option_group
from etcdfix.cli.places import in_option
from etcdfix.cli.safety import api_access, server_options
from etcdfix.copies.search import Places

where_else_options = option_group(
    in_option(),
    click.option(
        "--kubeconfig", type=FILE, metavar="FILE",
        help="Ask API servers, too, what they still hold in memory: names and revisions alone, no contents.",
    ),
    server_options,
    click.option(
        "--rescued", type=FILE, multiple=True, metavar="DIR",
        help="Look into what etcdfix rescue saved there, too (may be repeated).",
    ),
)  # fmt: skip

our_record_options = option_group(
    click.option(
        "--backup-dir", "backup_dirs", type=FILE, multiple=True, metavar="DIR", envvar="ETCDFIX_BACKUP_DIR",
        help="Look into this directory of backups (may be repeated).  [default: that of delete, where there is one]",
    ),
    click.option(
        "--audit-log", type=FILE, metavar="FILE", envvar="ETCDFIX_AUDIT_LOG",
        help="The audit log that knows these backups, and what was rescued.  [default: as for delete]",
    ),
)  # fmt: skip
"""Which backups to look into."""


def where_to_look(options: dict[str, Any]) -> Places:
    """Return where else to look, by the options of :data:`where_else_options`, which are taken out.

    Raises:
        ConfigurationError: They make no sense.
    """
    named, rescued = options.pop("places"), options.pop("rescued")
    return Places(named=named, rescued=rescued, api=api_access(options))
