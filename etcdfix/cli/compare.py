"""``etcdfix compare``: the same keys on every member, or at two points in time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from etcdfix.cli.command import Command
from etcdfix.cli.keys import wanted_scope
from etcdfix.cli.look import open_look
from etcdfix.cli.options import FILE, etcd_data_options, reading_options, report_options, scope_options
from etcdfix.cli.output import say
from etcdfix.cli.progress import progress_of
from etcdfix.commands.compare import compare_members, compare_sources
from etcdfix.commands.opening import nothing_examined
from etcdfix.model.errors import ConfigurationError
from etcdfix.report.origin import shown_word
from etcdfix.sources.base import has_keys
from etcdfix.sources.live import LiveSource
from etcdfix.sources.snapshot import SnapshotSource


@click.command("compare", cls=Command)
@scope_options
@click.option(
    "--with-snapshot", type=FILE, metavar="FILE",
    help="Compare with this earlier snapshot instead of member with member: what was added, removed and changed, and "
    "what can no longer be read.",
)  # fmt: skip
@etcd_data_options
@reading_options
@report_options()
def command(*, with_snapshot: Path | None, **options: Any) -> int:
    """Say which keys are not the same on every member of a live etcd, or at two points in time. Reads only.

    Every key in scope is read from each member by itself, and the copies of a key that differ are examined.

    With --with-snapshot FILE, an earlier snapshot is compared with the live etcd or with another snapshot:
    etcdfix compare --with-snapshot monday.db --snapshot tuesday.db

    Name resources, key prefixes or keys as for scan, or nothing for everything.
    """
    wanted = wanted_scope(options)
    if options["snapshot"] is not None and with_snapshot is None:
        raise ConfigurationError(
            "a snapshot is the copy of one member: there is nothing to compare it with",
            hint="name an earlier one with --with-snapshot FILE, or the live etcd with --endpoints",
        )
    with open_look(options, wanted, besides=(with_snapshot,)) as look:
        reading = look.inputs.reading(look.configuration)
        means: dict[str, Any] = {"plugins": look.plugins, "progress": progress_of(look.source)}
        if with_snapshot is None:
            assert isinstance(look.source, LiveSource)  # what open_source gives without a snapshot
            report, ended = compare_members(
                look.source, reading, wanted, revision=look.inputs.revision, say=say, **means
            )
        else:
            path = shown_word(str(with_snapshot))
            with SnapshotSource(with_snapshot, salvage=look.inputs.salvage) as earlier:
                report, ended = compare_sources(
                    earlier, look.source, reading, wanted, earlier_path=path, **means
                )
        if not report.keys and report.complete and not has_keys(look.source, reading.layout):
            raise nothing_examined(reading.layout.prefix, ())
        return look.tell(report, ended, reading.run)
