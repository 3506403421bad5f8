"""What may be the reason that nothing is stored under an etcd key."""

from __future__ import annotations

from etcdfix.sources.base import Source, has_keys
from etcdfix.storagekey import StorageLayout, display


def why_missing(source: Source, layout: StorageLayout, key: bytes | None) -> str:
    """Return what to try where nothing is stored, under a key that was named; "" where nothing suggests itself.

    Raises:
        SourceError: The source cannot be read.
    """
    below = next(iter(source.current(key.rstrip(b"/") + b"/")), None) if key is not None else None
    if below is not None:
        return f"it is a prefix of keys like {display(below.key)}; name one of them"
    if not has_keys(source, layout):
        return (
            f"no key at all starts with {layout.prefix}: check --etcd-prefix, and that this is the right etcd"
        )
    return ""
