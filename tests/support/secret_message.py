"""The message of a Secret, without what a stored value has around it."""

from __future__ import annotations

from etcdfix.testing.protobytes import block, object_meta


def secret(name: bytes = b"s1", *more: bytes, metadata: tuple[bytes, ...] = ()) -> bytes:
    """The message of a v1 Secret in namespace ``default``; ``metadata`` are further ObjectMeta fields."""
    return block(1, object_meta(name, b"default", b"u-1", *metadata)) + b"".join(more)
