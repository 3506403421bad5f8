"""KMS plugins that are played in-process: one answer for everything, and no socket."""

from __future__ import annotations

from collections import Counter

from etcdfix.encryption.kms.envelopes import WrappedKey


class OneAnswer:
    """Gives one answer; an exception is raised. ``unwell`` is raised when its health is asked for."""

    def __init__(
        self,
        answer: bytes | Exception,
        *,
        healthy: bool = True,
        write_key_id: str = "",
        unwell: Exception | None = None,
    ) -> None:
        self.answer = answer
        self.healthy = healthy
        self.write_key_id = write_key_id
        self.unwell = unwell
        self.opened: Counter[str] = Counter()
        self.asked = 0
        self.controls: list[tuple[WrappedKey, bytes]] = []
        self.given: dict[WrappedKey, bytes] = {}

    def check(self) -> None:
        if self.unwell is not None:
            raise self.unwell

    def add_control(self, wrapped: WrappedKey, key: bytes) -> None:
        self.controls.append((wrapped, key))

    def unwrap(self, wrapped: WrappedKey) -> bytes:
        self.asked += 1
        self.given[wrapped] = key = self.key_of(wrapped)
        return key

    def recall(self, wrapped: WrappedKey) -> bytes | None:
        return self.given.get(wrapped)

    def key_of(self, wrapped: WrappedKey) -> bytes:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer
