"""Options of commands that report on files, and not on a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from etcdfix.cli.options import Decorator, option_group


def report_options(formats: Sequence[str]) -> Decorator:
    """Return a decorator that adds ``-o`` and ``--output-file``."""
    return option_group(
        click.option(
            "-o", "--output", "output", type=click.Choice(formats), default="table", show_default=True,
            envvar="ETCDFIX_OUTPUT", help="Form of the report.",
        ),
        click.option(
            "--output-file", type=click.Path(path_type=Path), metavar="FILE", envvar="ETCDFIX_OUTPUT_FILE",
            help="Write to this file instead of standard output.",
        ),
    )  # fmt: skip
