"""``etcdfix encryption usage``: which encryption key is needed by how many objects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec

from etcdfix.cli.command import Command
from etcdfix.cli.exit_codes import reader_codes
from etcdfix.cli.look import open_look
from etcdfix.cli.options import backup_dirs_option, look_options, what_to_read
from etcdfix.cli.output import say
from etcdfix.cli.places import in_option
from etcdfix.commands.encryption.usage import UsageRequest, encryption_usage
from etcdfix.commands.opening import Inputs, open_source
from etcdfix.copies.finder import Named
from etcdfix.copies.model import Place

_CODES = reader_codes(
    "everything was seen and decided", incomplete="something is undetermined, or could not be read"
)


@click.command("usage", cls=Command, epilog=_CODES)
@backup_dirs_option("Count the backups of etcdfix in this directory too (may be repeated).")
@in_option((Place.SNAPSHOT,))
@look_options()
def command(*, backup_dirs: tuple[Path, ...], places: tuple[Named, ...], **options: Any) -> int:
    """Show which encryption key is needed by how many objects, and which key you can remove. Reads only.

    The answer holds for this etcd at the revision that was read. No key can be removed that API servers write with, or
    that values, earlier values, backups or snapshots need, or while anything is undetermined or was not read. Name
    every snapshot that you may restore, and one of each other etcd of the cluster (--in).
    """
    inputs, configuration = what_to_read(options, each_from_its_own=True)
    snapshots = tuple(named.path for named in places)
    request = UsageRequest(
        **inputs.reading_fields(configuration),
        overrides={} if inputs.each_from_its_own else inputs.overrides or {},
        main_not_read=inputs.file is None and bool(inputs.main_endpoints),
        backup_directories=backup_dirs,
        snapshots=snapshots,
    )
    with open_look(options, inputs, configuration, besides=snapshots) as look:
        found = encryption_usage(
            look.source,
            request,
            open_snapshot=lambda path: open_source(_of_snapshot(inputs, path), say=say),
            **look.means,
        )
        return look.tell_of_everything(found, request.run)


def _of_snapshot(inputs: Inputs, path: Path) -> Inputs:
    return msgspec.structs.replace(inputs, snapshot=path, kine=None, revision=0, salvage=False)
