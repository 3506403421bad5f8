"""What is in the scope that a person named: the values of a source, and the scope as a report says it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from etcdfix.errors import SourceDenied
from etcdfix.examine import Reading
from etcdfix.model import StoredValue
from etcdfix.reports.model import Scope, Shard
from etcdfix.reports.origin import shown_word
from etcdfix.scope import KeyRange, ScopeRequest
from etcdfix.sources.base import Source
from etcdfix.sources.pages import Page, ValuesPage, values_of
from etcdfix.storagekey import display


def values_in(source: Source, ranges: Sequence[KeyRange], denied: list[bytes]) -> Iterator[StoredValue]:
    """Yield what :func:`pages_in` does, value by value."""
    return values_of(pages_in(source, ranges, denied))


def pages_in(source: Source, ranges: Sequence[KeyRange], denied: list[bytes]) -> Iterator[Page]:
    """Yield what is in scope; a single key that may not be read is noted, and does not hide what is below it."""
    for wanted in ranges:
        if wanted.exact:
            try:
                stored = source.get(wanted.prefix)
            except SourceDenied:
                denied.append(wanted.prefix)
                continue
            if stored is not None:
                yield ValuesPage([stored])
        else:
            yield from source.pages(wanted.prefix)


def shown_scope(
    scope: ScopeRequest, reading: Reading, *, limited_to: str, shard: Shard | None = None
) -> Scope:
    """Return a scope as reports have it.

    Args:
        scope: What was asked for.
        reading: How values are read.
        limited_to: All that may be read, where that is not everything; else "".
        shard: Which part of it was looked at; None for all of it.
    """
    minor = reading.kubernetes_minor
    return Scope(
        etcd_prefix=reading.layout.prefix.rstrip("/") or "/",
        prefixes=[*map(shown_word, scope.prefixes), *map(display, scope.keys)]
        or ([limited_to] if scope.everything and limited_to else []),
        resources=scope.resources,
        namespaces=[*map(shown_word, scope.namespaces)],
        kubernetes_version=f"1.{minor}" if minor is not None else None,
        shard=shard,
    )
