"""``etcdfix report merge``: one report of several."""

from __future__ import annotations

from pathlib import Path

import click

from etcdfix.cli.exit_codes import MEANINGS, epilog


@click.command("merge", epilog=epilog(MEANINGS))
@click.argument("files", type=click.Path(path_type=Path), nargs=-1, metavar="[FILE ...]")
@click.option("--fleet", is_flag=True, help="The reports are of many clusters: give a row for each.")
def command(*, files: tuple[Path, ...], fleet: bool) -> int:
    """Merge saved reports into one. Reads the files alone."""
    if not fleet:
        raise click.UsageError("only the reports of a fleet can be merged: name --fleet")
    raise click.UsageError(f"{len(files)} reports: not merged yet")
