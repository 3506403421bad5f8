"""Pages of a live etcd, whose ranges end where the next page is guessed to end: no key is left out, none comes twice.

Each seed makes keys, sizes of values and pages, what is written and deleted between two pages, and at times a
compaction. What was read is held against what was stored at the revision that the source says it read at.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

import pytest

from etcdfix.sources.connection import EtcdConnection
from etcdfix.sources.etcd import paging
from etcdfix.sources.live import LiveSource
from etcdfix.storagekey import display
from tests.support.etcd_proxy import RANGE
from tests.support.scripted_etcd import Call, ScriptedEtcd, Store
from tests.support.thorough import THOROUGH

SEEDS = 2_000 if THOROUGH else 60


def random_keys(chance: random.Random, prefix: bytes, most: int) -> list[bytes]:
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


class Case:
    """What one seed makes of the etcd that stands.

    Attributes:
        prefix: What is read below.
        seen: What kinds of requests there were.
    """

    def __init__(self, seed: int, server: ScriptedEtcd) -> None:
        self._chance = random.Random(seed)
        self._server = server
        self.prefix = self._chance.choice([b"/registry/", b"", b"/\xff", b"\xff\xff"])
        self._sizes = [1, 1, self._chance.choice([1, 40, 400])]
        keys = random_keys(self._chance, self.prefix, 300)
        around = [b"/", b"/registry.", b"/registry0", b"\xff", b"/\xfe\xff"]
        server.store = Store({key: self._value() for key in (*keys, *around)})
        server.calls.clear()
        server.script = self._between_pages
        self._keys = keys or [self.prefix + b"a"]
        self._often = self._chance.choice([0.0, 0.3, 1.0])
        self._compact_at = self._chance.choice([0, 0, 2, 3, 7])

    def page_sizes(self, patch: pytest.MonkeyPatch) -> None:
        smallest = self._chance.randrange(1, 12)
        patch.setattr(paging, "SMALLEST_LIMIT", smallest)
        patch.setattr(paging, "LARGEST_LIMIT", smallest + self._chance.randrange(20))
        patch.setattr(paging, "FIRST_LIMIT", self._chance.randrange(1, 20))
        patch.setattr(paging, "TARGET_BYTES", self._chance.choice([200, 2_000]))
        patch.setattr(paging, "PAGES_AHEAD", self._chance.choice([1, 2, 8]))

    def expected(self, segments: list[tuple[str, int]]) -> Iterator[tuple[bytes, bytes, int]]:
        places = {display(key): key for known in self._keys for key in (known, paging.after(known))}
        starts = [places[text] if text else b"" for text, _ in segments]
        for (_, revision), start, stop in zip(segments, starts, [*starts[1:], None], strict=True):
            for key, record in self._server.store.at(revision).items():
                if key.startswith(self.prefix) and start <= key and (stop is None or key < stop):
                    yield key, record.value, record.mod_revision

    def requests(self) -> Counter[str]:
        asked = self._server.ranges()
        end = paging.bounds_of(self.prefix)[1]
        guessed = [request.range_end != end for request in asked]
        short = sum(before and not now for before, now in pairwise(guessed))
        return Counter(pages=len(asked), guesses=sum(guessed), short=short)

    def _value(self) -> bytes:
        return self._chance.randbytes(self._chance.choice(self._sizes))

    def _between_pages(self, call: Call) -> None:
        if call.path != RANGE or call.request.revision == 0:
            return
        store = self._server.store
        while self._chance.random() < self._often * 0.7:
            known = self._chance.choice(self._keys)
            if self._chance.random() < 0.4:
                store.delete(known)
                continue
            key = known if self._chance.random() < 0.5 else known + self._chance.randbytes(2)
            self._keys.append(key)
            store.put(key, self._value())
        if len(self._server.ranges()) == self._compact_at:
            store.put(self._keys[0], b"newer")
            store.compact()


def test_whatever_the_guesses_every_key_is_read_once() -> None:
    requests: Counter[str] = Counter()
    moved = 0
    with ScriptedEtcd() as server:
        connection = EtcdConnection(endpoints=(server.endpoint,))
        for seed in range(SEEDS):
            case = Case(seed, server)
            with pytest.MonkeyPatch.context() as patch:
                case.page_sizes(patch)
                with LiveSource(connection) as source:
                    found = [(one.key, one.value, one.mod_revision) for one in source.current(case.prefix)]
                    described = source.describe()
                    assert source.problems == [], seed
            segments = [(one.from_key, one.revision) for one in described.segments]
            assert found == list(case.expected(segments)), seed
            requests += case.requests()
            moved += len(segments) > 1
    assert requests["guesses"] > requests["pages"] / 3
    assert requests["short"] > SEEDS / 2
    assert moved > SEEDS / 10
