"""The published shape of what ``etcdfix version`` says (``etcdfix/v1``), field by field."""

from __future__ import annotations

import msgspec

from etcdfix.reports.model import API_VERSION, Tool


class Python(msgspec.Struct, frozen=True):
    """What the tool runs on."""

    implementation: str
    version: str
    platform: str


class KnownReleases(msgspec.Struct, frozen=True):
    """Releases of Kubernetes whose kinds and fields are known, from the first to the last."""

    first: str
    last: str


class VersionReport(msgspec.Struct, frozen=True, kw_only=True):
    """Which tool this is, and what it rests on.

    Attributes:
        dependencies: Version of each package that it needs, by name; "" where none is installed.
        kubernetes: Which releases it knows.
        reports: ``apiVersion`` of the reports and plans that it writes and reads.
    """

    api_version: str = msgspec.field(name="apiVersion", default=API_VERSION)
    kind: str = "VersionReport"
    tool: Tool
    python: Python
    dependencies: dict[str, str]
    kubernetes: KnownReleases
    reports: str
