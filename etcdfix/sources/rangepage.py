"""A page of a live etcd: the answer to one Range request."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from typing import Any

from etcdfix.model.model import StoredValue
from etcdfix.wire.etcd import RANGE, message


class RangePage:
    """The key-value messages of one answer; implements :class:`~etcdfix.sources.pages.Page`.

    It holds the bytes of the answer or its messages, and not both for longer than it must.
    """

    def __init__(self, answer: bytes | memoryview, messages: Sequence[Any] | None = None) -> None:
        self._answer = answer
        self._messages = messages
        self._left = iter(range(0))
        self._count = len(self._parsed()) if messages is None else len(messages)

    def __len__(self) -> int:
        return self._count

    @property
    def at(self) -> int:
        return self._count - operator.length_hint(self._left) - 1

    def values(self) -> Iterator[StoredValue]:
        messages = self._parsed()
        self._left = iter(range(self._count))
        for place in self._left:
            yield stored_of(messages[place])

    def value(self, place: int) -> StoredValue:
        return stored_of(self._parsed()[place])

    def raw(self) -> bytes:
        self._messages = None  # nearly always nobody asks for a value any more
        return bytes(self._answer)

    def _parsed(self) -> Sequence[Any]:
        if self._messages is None:
            self._messages = message(RANGE.response).FromString(self._answer).kvs
        return self._messages


def stored_of(value: Any) -> StoredValue:
    """Return what a key-value message says."""
    return StoredValue(
        value.key, value.value, value.mod_revision, value.create_revision, value.version, value.lease
    )
