from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from etcdfix.model import GroupResource, Look, Peek, PeekState

LookInto = Callable[[bytes], Look]


class Structures:
    def __init__(self, pairs: Iterable[tuple[str, str]]) -> None: ...


class PeekRequest(msgspec.Struct, frozen=True):
    data: bytes
    key: bytes
    other_keys: tuple[bytes, ...]
    thorough: bool


def peek(
    transformers: object,
    resource: GroupResource,
    request: PeekRequest,
    structures: Structures,
    look: LookInto,
) -> Peek:
    return Peek(PeekState.NOT_POSSIBLE)
