"""What is stopped at the end of its ``with`` block."""

from __future__ import annotations

from abc import abstractmethod

from etcdfix.closing import Closing


class Stopping(Closing):
    """A server of the tests: one that can be stopped, and perhaps started again."""

    @abstractmethod
    def stop(self) -> None:
        """Listen no more."""

    def close(self) -> None:
        self.stop()
