"""``etcdfix version``: which tool this is, for a ticket or a script."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

import click

from etcdfix.cli.command import Command
from etcdfix.cli.output_options import report_options
from etcdfix.cli.report_place import report_place
from etcdfix.inputs.releases import FIRST_MINOR, LAST_MINOR
from etcdfix.reports.formats.version import VERSION_FORMATS
from etcdfix.reports.model import API_VERSION
from etcdfix.reports.origin import TOOL
from etcdfix.reports.version_model import KnownReleases, Python, VersionReport

DEPENDENCIES: Final = (
    "cbor2", "click", "cryptography", "google-crc32c", "grpcio", "jinja2", "msgspec", "protobuf", "PyNaCl", "PyYAML",
)  # fmt: skip
"""Packages that the tool cannot do without."""


@click.command("version", cls=Command)
@report_options(VERSION_FORMATS)
def command(*, output: str, output_file: Path | None) -> int:
    """Say which version this is, what it runs on, and which releases of Kubernetes and reports it knows."""
    report = VersionReport(
        tool=TOOL,
        python=Python(platform.python_implementation(), platform.python_version(), platform.platform()),
        dependencies={name: _installed(name) for name in DEPENDENCIES},
        kubernetes=KnownReleases(f"1.{FIRST_MINOR}", f"1.{LAST_MINOR}"),
        reports=API_VERSION,
    )
    with report_place(output_file, (), output) as place:
        VERSION_FORMATS[output](report, place.stream)
    return 0


def _installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""
