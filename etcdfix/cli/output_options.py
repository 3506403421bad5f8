"""The options that say in which form a report is written, and where to."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import click

from etcdfix.cli.options import FILE, Decorator, option_group
from etcdfix.cli.variables import variable_of
from etcdfix.report.render import FORMS


def form_option(
    forms: Collection[str], *, help_text: str = "Form of the report.", otherwise: str = ""
) -> Decorator:
    """Return a decorator that adds ``-o``. Its variable counts on every command that changes nothing."""
    default = None if otherwise else next(iter(forms))
    return click.option(
        "-o", "--output", "output", type=click.Choice(list(forms)), default=default, show_default=otherwise or True,
        envvar=variable_of("--output"), help=help_text,
    )  # fmt: skip


def output_file_option(help_text: str = "Write to this file instead of standard output.") -> Decorator:
    """Return a decorator that adds ``--output-file``."""
    return click.option(
        "--output-file", type=FILE, metavar="FILE", envvar=variable_of("--output-file"), help=help_text
    )


def report_options(forms: Collection[str] = tuple(FORMS)) -> Decorator:
    """Return a decorator that adds ``-o`` and ``--output-file``."""
    return option_group(form_option(forms), output_file_option())


TEXT: Final = "text"
change_output_option = form_option(
    [TEXT, "json", "yaml"],
    help_text="Form of the result, a refusal too. The preview goes to standard error in any form.",
)
"""Of every command that changes something."""
