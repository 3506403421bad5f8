"""Sets of etcd keys as a range can be hard to guess from: dense and scattered, long and short, of any bytes."""

from __future__ import annotations

import random


def random_keys(chance: random.Random, prefix: bytes, most: int) -> list[bytes]:
    """Return keys below a prefix in byte order, each once; sometimes none, and at most so many."""
    keys: set[bytes] = set()
    wanted = chance.choice([0, 1, 2, most // 4, most])
    while len(keys) < wanted:
        below = prefix + _stem(chance)
        count = chance.randrange(1, wanted - len(keys) + 1)
        match chance.randrange(4):
            case 0:  # numbered, as a StatefulSet's
                keys |= {below + b"%d" % number for number in range(count)}
            case 1:  # named at random, as a Deployment's
                keys |= {below + b"%x" % chance.randrange(16**8) for _ in range(count)}
            case 2:  # each the beginning of the next one
                keys |= {below + b"a" * number for number in range(min(count, 40))}
            case _:
                keys |= {below + chance.randbytes(chance.randrange(12)) for _ in range(count)}
    return sorted(keys - {b""})


def _stem(chance: random.Random) -> bytes:
    words = (b"pods/", b"secrets/", b"kube-system/", b"\xff", b"\xff\xff", b"\0", b"k" * 30, b"a", b"")
    return b"".join(chance.choices(words, k=chance.randrange(4)))
