"""KMS plugins that are played in-process: one answer for everything, and no socket."""

from __future__ import annotations

from collections import Counter

from etcdfix.encryption.kms.envelopes import Failure, WrappedKey


class OneAnswer:
    """Gives one answer; an exception is raised, when its health is asked for too. ``well`` is what it says then."""

    def __init__(
        self,
        answer: bytes | Failure | Exception,
        *,
        healthy: bool = True,
        write_key_id: str = "",
        well: bool | Exception = True,
    ) -> None:
        self.answer = answer
        self.healthy = healthy
        self.write_key_id = write_key_id
        self.well = well
        self.opened: Counter[str] = Counter()
        self.asked = 0
        self.controls: list[tuple[WrappedKey, bytes]] = []
        self.given: dict[WrappedKey, bytes] = {}

    def check(self) -> bool:
        if isinstance(self.well, Exception):
            raise self.well
        return self.well

    def add_control(self, wrapped: WrappedKey, key: bytes) -> None:
        self.controls.append((wrapped, key))

    def unwrap(self, wrapped: WrappedKey) -> bytes | Failure:
        self.asked += 1
        key = self.key_of(wrapped)
        if isinstance(key, bytes):
            self.given[wrapped] = key
        return key

    def recall(self, wrapped: WrappedKey) -> bytes | None:
        return self.given.get(wrapped)

    def key_of(self, wrapped: WrappedKey) -> bytes | Failure:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer
