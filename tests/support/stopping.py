"""What is stopped at the end of its ``with`` block, or of the test."""

from __future__ import annotations

from abc import abstractmethod
from contextlib import ExitStack

from etcdfix.model.closing import Closing

OPEN = ExitStack()
"""What a test of sources opens here is closed at its end."""


class Stopping(Closing):
    """A server of the tests: one that can be stopped, and perhaps started again."""

    @abstractmethod
    def stop(self) -> None:
        """Listen no more."""

    def close(self) -> None:
        self.stop()
