"""``etcdfix orphans``: keys that belong to nobody."""

from __future__ import annotations

from typing import Any

import click

from etcdfix.cli.command import Command
from etcdfix.cli.exit_codes import reader_codes
from etcdfix.cli.look import open_look
from etcdfix.cli.options import look_options, what_to_read
from etcdfix.commands.orphans import orphans_report


@click.command(
    "orphans",
    cls=Command,
    epilog=reader_codes("every key belongs to somebody", "some keys belong to nobody"),
)
@look_options()
def command(**options: Any) -> int:
    """List keys that belong to nobody, with counts and sizes. Reads only.

    Keys whose owners are all gone, whose CustomResourceDefinition or Namespace no longer exists, which no resource of
    any known release claims, or which lie outside the storage prefix. Nothing here is a reason to delete anything.
    """
    with open_look(options, *what_to_read(options, each_from_its_own=True)) as look:
        found, report = look.index(lambda _found: False, orphans_report)
        return look.tell(report, found.ended, found.request.run)
