"""``etcdfix version``: which tool this is, for a ticket."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Final

import click

from etcdfix import __version__
from etcdfix.cli.command import Command
from etcdfix.cli.output import require_output
from etcdfix.inputs.releases import FIRST_MINOR, LAST_MINOR
from etcdfix.report.formats.text import aligned
from etcdfix.report.model import API_VERSION

DEPENDENCIES: Final = (
    "cbor2", "click", "cryptography", "google-crc32c", "grpcio", "jinja2", "msgspec", "protobuf", "PyNaCl", "PyYAML",
)  # fmt: skip
"""Packages that the tool cannot do without."""


@click.command("version", cls=Command)
def command() -> int:
    """Say which version this is, what it runs on, and which releases of Kubernetes and reports it knows."""
    require_output()
    rows = [
        ("etcdfix", __version__),
        (platform.python_implementation(), f"{platform.python_version()} on {platform.platform()}"),
        ("Kubernetes", f"knows 1.{FIRST_MINOR} to 1.{LAST_MINOR}"),
        ("reports", f"writes and reads {API_VERSION}"),
        *((name, _installed(name)) for name in DEPENDENCIES),
    ]
    for line in aligned(rows):
        click.echo(line)
    return 0


def _installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
