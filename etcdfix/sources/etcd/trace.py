"""What is asked of etcd, told as it happens: the one seam, where requests go out and answers come back.

Whoever listens learns the method, the range and the revision, how many keys came and how long it took. Nothing else of
a request is looked at, and of an answer only its counts: so no value, user, password or token can be told.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import msgspec

from etcdfix.text.safetext import BOOTSTRAP, WITHHELD


class Exchange(msgspec.Struct, frozen=True, kw_only=True):
    """One request, once its answer is there.

    Attributes:
        method: As gRPC names it, without its package: ``KV/Range``.
        key: First key of the range; empty where the method has none.
        range_end: First key behind it; empty for a single key.
        revision: At which revision, 0 for now.
        limit: Most keys wanted, 0 for all.
        milliseconds: Until the answer was there.
        keys: How many came; None where the method brings none.
        more: Whether there are more in the range.
        status: gRPC's word for what went wrong; "" where nothing did.
    """

    endpoint: str
    method: str
    key: bytes = b""
    range_end: bytes = b""
    revision: int = 0
    limit: int = 0
    milliseconds: float
    keys: int | None = None
    more: bool = False
    status: str = ""


Listener = Callable[[Exchange], object]

_OF_A_TOKEN: Final = re.compile(rb"(?<![^/])bootstrap/.+", re.DOTALL)
_listeners: list[Listener] = []
_put_off: list[list[Exchange]] = []


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Tell this listener of every exchange that ends meanwhile."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


@contextmanager
def told_afterwards() -> Iterator[None]:
    """Tell of what happens inside once it is over: who listens may keep us waiting, and a change must be recorded."""
    waiting: list[Exchange] = []
    _put_off.append(waiting)
    try:
        yield
    finally:
        _put_off.remove(waiting)
        for exchange in waiting:
            _tell(exchange)


class Question:
    """A request that went out, until its answer is told of."""

    def __init__(self, endpoint: str, path: str, request: Any) -> None:
        """Note what goes out, and when."""
        self._asked_at = time.monotonic()
        self._told = False
        ranged = _ranged(request)
        self._asked = partial(
            Exchange,
            endpoint=endpoint,
            method=path.rpartition(".")[2],
            key=_withheld(bytes(getattr(ranged, "key", b""))),
            range_end=_withheld(bytes(getattr(ranged, "range_end", b""))),
            revision=int(getattr(ranged, "revision", 0) or getattr(ranged, "start_revision", 0)),
            limit=int(getattr(ranged, "limit", 0)),
        )

    def answered(self, answer: Any, ended_at: float) -> None:
        """Tell that the answer is there."""
        records = getattr(answer, "kvs", None)
        keys = (
            None if records is None else len(records) or int(answer.count)
        )  # where only the count was wanted
        self._end(ended_at, keys=keys, more=bool(getattr(answer, "more", False)))

    def ended(self, keys: int) -> None:
        """Tell that a stream is over, and how many records came."""
        self._end(time.monotonic(), keys=keys)

    def failed(self, status: str, ended_at: float) -> None:
        """Tell that there is none, in gRPC's word."""
        self._end(ended_at, status=status)

    def _end(self, ended_at: float, **found: Any) -> None:
        if not self._told:
            self._told = True
            took = round((ended_at - self._asked_at) * 1000, 1)
            _tell(self._asked(milliseconds=took, **found))


def question(endpoint: str, path: str, request: Any) -> Question | None:
    """Return what tells of this request and its answer; None where nobody listens."""
    return Question(endpoint, path, request) if _listeners else None


def told_stream(
    endpoint: str,
    path: str,
    requests: Iterator[Any],
    begin: Callable[[Iterator[Any]], Generator[Any, None, None]],
) -> Generator[Any, None, None]:
    """Return the answers of a stream, which is told of at its end, if any answer came."""
    if not _listeners:
        return begin(requests)
    drawn: list[Any] = []

    def noted() -> Iterator[Any]:
        for request in requests:
            drawn.append(request)
            yield request

    return _told_answers(endpoint, path, drawn, begin(noted()))


def _told_answers(
    endpoint: str, path: str, drawn: list[Any], answers: Generator[Any, None, None]
) -> Generator[Any, None, None]:
    asked: Question | None = None
    events = 0
    try:
        for found in answers:
            asked = asked or Question(endpoint, path, drawn[0])
            events += len(found.events)
            yield found
    finally:
        answers.close()
        if asked is not None:
            asked.ended(events)


def _tell(exchange: Exchange) -> None:
    if _put_off:
        _put_off[-1].append(exchange)
        return
    for listener in _listeners:
        with contextlib.suppress(
            Exception
        ):  # an answer to a change must reach us, whatever becomes of the telling
            listener(exchange)


def _withheld(bound: bytes) -> bytes:
    """Return one end of a range without what follows ``bootstrap/``, a digest of a token (``shown_key`` has why).

    An end of a range is often no key, but the next one, or that of a prefix; so all of it is withheld, wherever it is.
    """
    return _OF_A_TOKEN.sub(BOOTSTRAP + b"/" + WITHHELD.encode(), bound)


def _ranged(request: Any) -> Any:
    """Return the part of a request that names keys: of a transaction its one change, of a watch its beginning."""
    kind = request.DESCRIPTOR.name
    if kind == "TxnRequest":
        change = request.success[0]
        return getattr(change, next(field.name for field, _ in change.ListFields()))
    if kind == "WatchRequest":
        return request.create_request
    return request if kind == "RangeRequest" else None
