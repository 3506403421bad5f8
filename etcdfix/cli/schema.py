"""``etcdfix schema``: what a program that reads our reports can rely on."""

from __future__ import annotations

import sys

import click
import msgspec

from etcdfix.errors import ConfigurationError
from etcdfix.reports.schema import SCHEMAS


@click.command("schema")
@click.argument("name", type=click.Choice(list(SCHEMAS)), default="report")
def command(name: str) -> int:
    """Print the JSON Schema of a report (default) or of a single finding.

    The schema is generated from the very types that write the report. Readers ignore fields that they do not
    know, and treat an outcome that they do not know as undetermined.
    """
    if sys.stdout is None:
        raise ConfigurationError("standard output is closed")
    click.echo(msgspec.json.format(msgspec.json.encode(SCHEMAS[name]()), indent=2))
    return 0
