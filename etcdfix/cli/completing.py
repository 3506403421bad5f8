"""What can stand where a person presses TAB. Files and names only: no etcd is asked, no plugin, no API server.

Nothing is ever said here: where something cannot be read, there is nothing to choose from.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from functools import wraps
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from etcdfix.errors import EtcdfixError
from etcdfix.text.safetext import safe_text

Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def _completer(words: Callable[[click.Context], Iterable[tuple[str, str]]]) -> Completer:
    """Return what click asks, of a function that returns every word with what it means."""

    @wraps(words)
    def complete(
        context: click.Context, _parameter: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        with contextlib.suppress(EtcdfixError, OSError):
            found = ((safe_text(word), meaning) for word, meaning in words(context))
            return [
                CompletionItem(word, help=meaning or None)
                for word, meaning in found
                if word.startswith(incomplete)
            ]
        return []

    return complete


@_completer
def types(_context: click.Context) -> Iterable[tuple[str, str]]:
    """Complete the beginnings of ``TYPE/NAME``."""
    return [(f"{word}/", kind) for word, kind in _resources()]


def _resources() -> list[tuple[str, str]]:
    from etcdfix.storagekey import builtin_directories  # noqa: PLC0415 - reads a table

    found = {
        str(each.group_resource): each.kind for each in builtin_directories() if each.resource and each.kind
    }
    return sorted(found.items())


def resources(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the last resource of a comma list: those of known releases, with their group."""
    earlier, comma, last = incomplete.rpartition(",")
    return [
        CompletionItem(f"{earlier}{comma}{word}", help=kind)
        for word, kind in _resources()
        if word.startswith(last)
    ]


def causes_or_types(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete what is explained: a cause, or an object."""
    return [*causes(context, parameter, incomplete), *types(context, parameter, incomplete)]


@_completer
def causes(_context: click.Context) -> Iterable[tuple[str, str]]:
    """Complete causes of the catalogue."""
    from etcdfix.verdicts.causes import CATALOGUE  # noqa: PLC0415 - only here

    return [(info.cause.value, info.title) for info in CATALOGUE.values()]


@_completer
def transformers(context: click.Context) -> Iterable[tuple[str, str]]:
    """Complete transformers of the encryption configuration that is named, by option or variable."""
    from etcdfix.encryption.config import KeyedProvider, KMSProvider, load_configuration  # noqa: PLC0415 - ciphers
    from etcdfix.encryption.envelope import transformer_name  # noqa: PLC0415 - same
    from etcdfix.encryption.key_text import may_hold_key  # noqa: PLC0415 - same

    path = context.params.get("encryption_config")
    if not path:
        return []
    found = []
    for provider in (each for rule in load_configuration(Path(path)).rules for each in rule.providers):
        if isinstance(provider, KMSProvider):
            found.append(transformer_name(provider.type, provider.api_version, provider.name))
        elif isinstance(provider, KeyedProvider):
            names = (key.name for key in provider.keys if not may_hold_key(key.name))
            found += [transformer_name(provider.type, "v1", name) for name in names]
    return [(each, "") for each in dict.fromkeys(found)]


@_completer
def backups(context: click.Context) -> Iterable[tuple[str, str]]:
    """Complete files of the backup directories, the newest first."""
    from etcdfix.remediation.durable import default_directory  # noqa: PLC0415 - only here

    directories = [Path(each) for each in context.params.get("backup_dirs") or ()] or [default_directory()]
    files = [path for directory in directories for path in directory.glob("*.json")]
    return [(str(path), "") for path in sorted(files, key=lambda path: path.stat().st_mtime, reverse=True)]


def files(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete names of files, which the shell knows."""
    return [CompletionItem(incomplete, type="file")]
