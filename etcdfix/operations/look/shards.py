"""A part of the keys in scope, the same in every process that divides the same file: what one shard of a scan looks at.

The boundaries follow from the file, the revision, the scope and the number of shards alone: equal numbers of keys, in
their order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from etcdfix.examine_all import Beyond
from etcdfix.reports.contradictions import key_in
from etcdfix.reports.model import Shard
from etcdfix.scope import KeyRange
from etcdfix.sources.base import Divisible
from etcdfix.sources.pages import Page, ValuesPage
from etcdfix.storagekey import display
from etcdfix.text.safetext import key_base64, shown_key


class ShardRequest(msgspec.Struct, frozen=True):
    """Which shard was asked for: number ``index``, counted from 1, of ``of``."""

    index: int
    of: int


class Span(NamedTuple):
    """Etcd keys from ``start`` on and below ``end``; None for all that follow."""

    start: bytes
    end: bytes | None

    def holds(self, key: bytes) -> bool:
        """Say whether a key is among them."""
        return self.start <= key and (self.end is None or key < self.end)


def span_of(source: Divisible, ranges: Sequence[KeyRange], wanted: ShardRequest) -> Span:
    """Return which keys belong to a shard.

    Args:
        source: What is divided.
        ranges: What is in scope, in key order.
        wanted: Which shard.

    Raises:
        SourceError: Its keys cannot be read.
    """
    total = sum(1 for _ in _keys(source, ranges))
    starts = [total * number // wanted.of for number in range(wanted.of)]
    bounds: list[bytes] = []
    for number, key in enumerate(_keys(source, ranges)):
        if len(bounds) == wanted.of:
            break
        # A key of which part is withheld stands in no report: the next one begins the shard.
        if number >= starts[len(bounds)] and shown_key(key) == key:
            due = [start for start in starts[len(bounds) :] if start <= number]
            bounds += [key] * len(due)
    bounds = [b"", *bounds[1:]]
    last = bounds[-1]
    bounds += [last] * (wanted.of - len(bounds))
    return Span(bounds[wanted.index - 1], bounds[wanted.index] if wanted.index < wanted.of else None)


def _keys(source: Divisible, ranges: Sequence[KeyRange]) -> Iterator[bytes]:
    for wanted in ranges:
        if wanted.exact:
            yield wanted.prefix
        else:
            yield from source.keys(wanted.prefix)


def pages_of(source: Divisible, ranges: Sequence[KeyRange], *spans: Span) -> Iterator[Page]:
    """Yield what is in scope and in one of some spans, in key order."""
    for wanted in ranges:
        for span in spans:
            if not wanted.exact:
                yield from source.pages_between(wanted.prefix, *span)
            elif span.holds(wanted.prefix):
                stored = source.get(wanted.prefix)
                if stored is not None:
                    yield ValuesPage([stored])


def beyond(source: Divisible, ranges: Sequence[KeyRange], span: Span) -> Beyond:
    """Return what is in scope and in another shard: it may decide about values of this one."""
    others = [Span(b"", span.start)] if span.start else []
    others += [Span(span.end, None)] if span.end is not None else []
    return Beyond(pages_of(source, ranges, *others), lambda key: not span.holds(key))


def shown_shard(wanted: ShardRequest, span: Span) -> Shard:
    """Return a shard as a report has it."""
    return Shard(
        wanted.index,
        wanted.of,
        display(span.start),
        display(span.end) if span.end is not None else None,
        key_base64(span.start),
        key_base64(span.end) if span.end is not None else None,
    )


def span_in(shard: Shard) -> Span:
    """Return the keys of a shard as a report has it.

    Raises:
        msgspec.ValidationError: A key of it is no base64.
    """
    return Span(
        key_in(shard.from_key, shard.from_key_base64),
        key_in(shard.to_key, shard.to_key_base64) if shard.to_key is not None else None,
    )
