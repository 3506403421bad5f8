"""Does a kept revision of an etcd key open? Then the etcd key is the associated data, and its value is damaged.

It is asked only of whole objects under the right key whose tag does not fit, where nothing else shows why. What is
opened on the way speaks for no other value.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import nullcontext
from typing import TYPE_CHECKING, Final

from etcdfix.encryption.kms.envelopes import KMSPending
from etcdfix.model.errors import SourceError
from etcdfix.model.model import StoredValue
from etcdfix.sources.base import Source

if TYPE_CHECKING:
    from etcdfix.examine.one import Examiner

_MOST_STEPS: Final = 1_000
_MOST_HISTORIES: Final = 1_000
_MOST_HISTORIES_LIVE: Final = 50
"""A history takes a tenth of a second on a live etcd."""
_STEPS_OF_ONE: Final = 3


class KeptOpenings:
    """Looks for kept revisions that open, within bounds for each run.

    Attributes:
        source: That one.
        targets: Etcd keys of values of which everything is looked at.
    """

    def __init__(self, source: Source, examiner: Examiner) -> None:
        self.targets: Collection[bytes] = ()
        self.source = source
        self._examiner = examiner
        self._last: tuple[StoredValue, bool] | None = None
        self.start_over()

    def start_over(self) -> None:
        """Begin a new run, with bounds of its own."""
        self._last = None
        self._steps = _MOST_STEPS
        live = self.source.describe().endpoints is not None
        self._histories = _MOST_HISTORIES_LIVE if live else _MOST_HISTORIES

    def opens(self, stored: StoredValue) -> bool:
        """Say whether an earlier revision of a value's etcd key opens, of this generation or an earlier one."""
        if self._last is not None and self._last[0] is stored:
            return self._last[1]
        plugins = self._examiner.plugins
        try:
            with self.source.aside(), plugins.without_recording() if plugins is not None else nullcontext():
                found = self._look(stored)
        except (SourceError, KMSPending):
            found = False
        self._last = stored, found
        return found

    def _look(self, newest: StoredValue) -> bool:
        whole = newest.key in self.targets
        stored = newest
        for _ in range(_STEPS_OF_ONE):
            if stored.version == 1 or not (whole or self._steps > 0):
                break
            self._steps -= 1
            before = self.source.before(stored.key, stored.mod_revision)
            if before is None:
                return False  # nothing older is kept
            if self._examiner.opens_bound(before):
                return True
            stored = before
        if not whole and self._histories <= 0:
            return False
        self._histories -= 1
        return any(
            kept.stored is not None
            and kept.stored.mod_revision < newest.mod_revision
            and self._examiner.opens_bound(kept.stored)
            for kept in self.source.history(newest.key)
        )
