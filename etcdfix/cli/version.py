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
from etcdfix.report.model import API_VERSION

DEPENDENCIES: Final = (
    "cbor2", "click", "cryptography", "google-crc32c", "grpcio", "jinja2", "msgspec", "protobuf", "PyNaCl", "PyYAML",
    "tabulate",
)  # fmt: skip
"""Packages that the tool cannot do without."""


@click.command("version", cls=Command)
def command() -> int:
    """Print the version, what it runs on, and which releases of Kubernetes and reports it knows."""
    require_output()
    rows = [
        ("etcdfix", __version__),
        (platform.python_implementation(), f"{platform.python_version()} on {platform.platform()}"),
        ("Kubernetes", f"knows 1.{FIRST_MINOR} to 1.{LAST_MINOR}"),
        ("reports", f"writes and reads {API_VERSION}"),
        *((name, _installed(name)) for name in DEPENDENCIES),
    ]
    widest = max(len(name) for name, _ in rows)
    for name, what in rows:
        click.echo(f"{name:<{widest}}  {what}")
    return 0


def _installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
