"""The fields with which reports begin: who wrote it, when, from what."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from etcdfix import __version__
from etcdfix.model.model import digest_of
from etcdfix.model.scope import ScopeRequest
from etcdfix.model.storagekey import StorageLayout, display
from etcdfix.report.model import ReportConfiguration, ReportSource, Scope, Tool

if TYPE_CHECKING:
    from etcdfix.encryption.config_model import EncryptionConfiguration
    from etcdfix.sources.base import SourceDescription

TOOL: Final = Tool("etcdfix", __version__)


def timestamp(at: datetime | None = None) -> str:
    """Return a time as reports have it, in UTC; by default now."""
    return (at if at is not None else datetime.now(UTC)).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def shown_word(word: str) -> str:
    """Return a word of the command line as text that JSON can hold: the shell may pass any bytes."""
    return display(word.encode("utf-8", "surrogateescape"))


def shown_configuration(configuration: EncryptionConfiguration | None) -> ReportConfiguration | None:
    """Return which configuration was used; None where none was given."""
    if configuration is None:
        return None
    return ReportConfiguration(shown_word(configuration.path), configuration.sha256)


def shown_file(path: Path, raw: bytes) -> ReportConfiguration:
    """Return a file with these bytes as reports have it."""
    return ReportConfiguration(shown_word(str(path)), digest_of(raw))


def shown_source(description: SourceDescription, kube_system_uid: str | None) -> ReportSource:
    """Return where the data came from."""
    of = same_fields(description, ReportSource)
    at = description.file_modified_at
    return ReportSource(
        **of
        | {
            "path": shown_word(description.path) if description.path is not None else None,
            "file_modified_at": timestamp(datetime.fromtimestamp(at, UTC)) if at is not None else "",
        },
        single_revision=description.single_revision,
        kube_system_uid=kube_system_uid,
    )


def report_origin(
    description: SourceDescription,
    configuration: EncryptionConfiguration | None,
    kube_system_uid: str | None,
) -> dict[str, Any]:
    """Return the fields with which a :class:`~etcdfix.report.model.SourcedReport` begins."""
    return {
        "tool": TOOL,
        "generated_at": timestamp(),
        "source": shown_source(description, kube_system_uid),
        "encryption_config": shown_configuration(configuration),
    }


def shown_scope(scope: ScopeRequest, layout: StorageLayout, minor: int | None, *, limited_to: str) -> Scope:
    """Return a scope as reports have it.

    Args:
        scope: What was asked for.
        layout: Below which prefix.
        minor: Minor number of the release that was named; None where no release was named.
        limited_to: All that may be read, where that is not everything; else "".
    """
    return Scope(
        etcd_prefix=layout.prefix.rstrip("/") or "/",
        prefixes=[*map(shown_word, scope.prefixes), *map(display, scope.keys)]
        or ([limited_to] if scope.everything and limited_to else []),
        resources=scope.resources,
        namespaces=[*map(shown_word, scope.namespaces)],
        kubernetes_version=f"1.{minor}" if minor is not None else None,
    )


def same_fields(found: msgspec.Struct, published: type[msgspec.Struct]) -> dict[str, Any]:
    """Return what a struct has under the names of a published one's fields."""
    return {
        name: getattr(found, name) for name in found.__struct_fields__ if name in published.__struct_fields__
    }
