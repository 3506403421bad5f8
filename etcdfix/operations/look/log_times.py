"""When an entry of a write-ahead log was written: etcd notes no times, but a node's Lease says when it was renewed."""

from __future__ import annotations

import re
from bisect import bisect_left
from typing import Any, Final, NamedTuple

from etcdfix.examine import Examiner
from etcdfix.model import StoredValue
from etcdfix.reports.printers.objects import Form, Viewer
from etcdfix.sources.wal.log import LogHistory

_LEASES: Final = b"leases/kube-node-lease/"
_TRIED: Final = 8
_TIME: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?Z")


class Between(NamedTuple):
    """Two times that the clocks of nodes told, before and after; "" for unknown."""

    after: str
    before: str


class LogClock:
    """Tells between which two times an entry was written, by the clocks of the nodes whose Leases stand around it.

    Args:
        history: The log.
        examiner: Reads the Leases.
    """

    def __init__(self, history: LogHistory, examiner: Examiner) -> None:
        self._history = history
        self._examiner = examiner.apart()
        self._viewer = Viewer(self._examiner, reveal=True)
        self._beats: list[tuple[int, int, bytes]] | None = None
        self._read: dict[tuple[int, int], str] = {}

    def between(self, entry: int) -> Between:
        """Return the times around an entry."""
        if self._beats is None:
            prefix = self._examiner.layout.prefix_bytes + _LEASES
            self._beats = sorted(
                (index, number, key)
                for key in list(self._history.keys(prefix))
                for index, number in self._history.places_of(key)
            )
        at = bisect_left(self._beats, (entry, 0, b""))
        return Between(
            self._first_that_tells(self._beats[max(at - _TRIED, 0) : at][::-1]),
            self._first_that_tells([beat for beat in self._beats[at : at + _TRIED] if beat[0] != entry]),
        )

    def _first_that_tells(self, beats: list[tuple[int, int, bytes]]) -> str:
        return next((time for time in map(self._time, beats) if time), "")

    def _time(self, beat: tuple[int, int, bytes]) -> str:
        index, number, key = beat
        known = self._read.get((index, number))
        if known is None:
            value = self._history.value_at(index, number)
            known = self._read[index, number] = self._renewed(StoredValue(key, value, 0, 0, 0, 0))
        return known

    def _renewed(self, stored: StoredValue) -> str:
        shown = self._viewer.show(self._examiner.examine(stored))
        spec: Any = shown.document.get("spec") if shown.form is Form.OBJECT else None
        time = spec.get("renewTime") if isinstance(spec, dict) else None
        return time if isinstance(time, str) and _TIME.fullmatch(time) else ""
