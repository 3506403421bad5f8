"""Any items can be written and read back; any bytes end in a named error, a reported damage, or values."""

from __future__ import annotations

import functools
import gzip
import io
import random
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from etcdfix.model.errors import SourceError
from etcdfix.model.model import StoredValue
from etcdfix.model.storagekey import display
from etcdfix.sources import mvcc
from etcdfix.sources.base import MAX_PROBLEMS
from etcdfix.sources.bbolt.page import read_metas
from etcdfix.sources.bbolt.tree import Tree
from etcdfix.sources.connection import EtcdConnection
from etcdfix.sources.errors import RevisionCompacted
from etcdfix.sources.etcd import paging
from etcdfix.sources.live import LiveSource
from etcdfix.sources.snapshot import SnapshotSource
from etcdfix.sources.sortedruns import SortedRecords
from tests.support.bbolt_writer import BoltWriter, database, delete, put, revision_key
from tests.support.etcd_proxy import RANGE
from tests.support.scripted_etcd import Call, ScriptedEtcd, Store
from tests.support.thorough import THOROUGH

SMALL = Path(__file__).parents[2] / "fixtures/snapshots/small"

items = st.dictionaries(st.binary(min_size=1, max_size=40), st.binary(max_size=700), max_size=60)


@settings(max_examples=60)
@given(
    contents=st.dictionaries(st.binary(min_size=1, max_size=12), items, min_size=1, max_size=5),
    page_size=st.sampled_from([512, 1024, 4096]),
    fan_out=st.integers(2, 20),
    freelist=st.booleans(),
)
def test_what_was_written_is_read(
    contents: dict[bytes, dict[bytes, bytes]], page_size: int, fan_out: int, freelist: bool
) -> None:
    file = io.BytesIO()
    writer = BoltWriter(file, page_size=page_size, freelist=freelist)
    for name, bucket in contents.items():
        writer.bucket(name, sorted(bucket.items()), fan_out=fan_out, inline=len(bucket) < 3)
    writer.finish()
    image = file.getvalue()
    damages: list[Exception] = []
    meta = read_metas(image)[0][0]
    tree = Tree(image, size=len(image), meta=meta, on_damage=damages.append)

    for name, bucket in contents.items():
        opened = tree.bucket(name)
        assert opened is not None
        read = [
            (image[entry.key_start : entry.value_start], image[entry.value_start : entry.value_end])
            for leaf in tree.leaves(opened)
            for entry in tree.entries(leaf)
        ]
        assert read == sorted(bucket.items())
        for key, value in list(bucket.items())[:5]:
            place = tree.find(opened, key)
            assert place is not None
            entry = place[1]
            assert image[entry.value_start : entry.value_end] == value
    assert damages == []


def told(call: Callable[[], object], error: type[Exception]) -> str | None:
    try:
        call()
    except error as caught:
        return str(caught)
    return None


@functools.cache
def real(name: str) -> bytes:
    return gzip.decompress((SMALL / f"{name}.db.gz").read_bytes())


def damage_strategy(size: int) -> st.SearchStrategy[tuple[str, int, int]]:
    page_head = st.builds(
        lambda page, at: page * 4096 + at, st.integers(0, size // 4096 - 1), st.integers(0, 60)
    )
    place = st.one_of(st.integers(0, size - 1), page_head)
    return st.one_of(
        st.tuples(st.just("flip"), place, st.integers(0, 7)),
        st.tuples(st.just("set"), place, st.sampled_from([0, 1, 0x7F, 0x80, 0xFF])),
        st.tuples(st.just("cut"), st.integers(0, size), st.just(0)),
        st.tuples(st.just("copy"), st.integers(0, size // 4096 - 1), st.integers(0, size // 4096 - 1)),
        st.tuples(st.just("body"), st.integers(0, size // 4096 - 1), st.integers(0, size // 4096 - 1)),
    )


def damaged(image: bytes, damages: list[tuple[str, int, int]]) -> bytes:
    out = bytearray(image)
    for kind, place, argument in damages:
        if kind == "cut":
            del out[place:]
        elif kind in ("flip", "set") and place < len(out):
            out[place] = out[place] ^ (1 << argument) if kind == "flip" else argument
        elif kind in ("copy", "body"):
            keep = 8 if kind == "body" else 0  # the page id stays, as after a write that went elsewhere
            page = out[argument * 4096 + keep : (argument + 1) * 4096]
            out[place * 4096 + keep : place * 4096 + keep + len(page)] = page
    return bytes(out)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("damage") / "db"


@pytest.mark.parametrize("trailer", [True, False])
@pytest.mark.parametrize("name", ["history", "branches", "empty", "large-values"])
@settings(max_examples=2_000 if THOROUGH else 25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damage_ends_in_a_named_error_or_a_reported_problem(
    path: Path, name: str, trailer: bool, data: st.DataObject
) -> None:
    whole = real(name) if trailer else real(name)[:-32]
    image = damaged(whole, data.draw(st.lists(damage_strategy(len(whole)), min_size=1, max_size=4)))
    path.write_bytes(image)
    values: list[StoredValue] = []
    problems: list[str] = []

    def read() -> None:
        with SnapshotSource(path) as source:
            values.extend(source.current(b""))
            for stored in values[:3]:
                assert list(source.history(stored.key))
                source.get(stored.key)
            source.describe()
            source.estimate()
            problems.extend(source.problems)

    message = told(read, SourceError)
    if message is not None:
        assert message
        assert "\n" not in message
        return
    assert [stored.key for stored in values] == sorted({stored.key for stored in values})
    assert len(problems) <= MAX_PROBLEMS + 3
    assert all(problem and "\n" not in problem for problem in problems)
    # The digest sees everything; without it, and without a cut, values can change unseen.
    assert problems or image == whole or not len(image) % 512


KEYS = [b"a", b"a\0", b"a\0\0", b"a\0\xff", b"a/b", b"b", b"b\xff", b"\xff", b"\0", b"k" * 130, b"k" * 131]

# A transaction: which keys it puts (with a value) and which it deletes. No key twice in one, as etcd demands.
transactions = st.lists(
    st.dictionaries(
        st.sampled_from(KEYS), st.one_of(st.none(), st.binary(max_size=20)), min_size=1, max_size=5
    ),
    max_size=40,
)


class Model:
    """etcd as one would write it in a minute."""

    def __init__(self, changes: list[dict[bytes, bytes | None]]) -> None:
        self.items: list[tuple[bytes, bytes]] = []
        self.at: list[dict[bytes, StoredValue]] = [{}, {}]
        self.history: dict[bytes, list[tuple[int, int, StoredValue | None]]] = {}
        for change in changes:
            now = dict(self.at[-1])
            main, sub = len(self.at), 0
            for key, value in change.items():
                old = now.get(key)
                if value is not None:
                    create, version = (old.create_revision, old.version + 1) if old else (main, 1)
                    lease = len(value)
                    now[key] = StoredValue(key, value, main, create, version, lease)
                    self.items.append(
                        put(main, key, value, sub=sub, create=create, version=version, lease=lease)
                    )
                elif old is not None:
                    del now[key]
                    self.items.append(delete(main, key, sub=sub))
                else:
                    continue
                self.history.setdefault(key, []).append((main, sub, now.get(key)))
                sub += 1
            if sub:
                self.at.append(now)

    def compact(self, revision: int) -> None:
        kept = set()
        for changes in self.history.values():
            old = [change for change in changes if change[0] <= revision]
            if old and old[-1][2] is not None:
                kept.add(old[-1][:2])
            kept |= {change[:2] for change in changes if change[0] > revision}
        self.items = [
            item
            for item in self.items
            if (int.from_bytes(item[0][:8], "big"), int.from_bytes(item[0][9:17], "big")) in kept
        ]
        for key, changes in self.history.items():
            self.history[key] = [change for change in changes if change[:2] in kept]


@pytest.fixture(scope="module")
def fold_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fold") / "db"


@pytest.fixture(params=["in memory", "spilled"])
def sorting(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "spilled":
        monkeypatch.setattr(mvcc, "SortedRecords", functools.partial(SortedRecords, max_records=5))
        monkeypatch.setattr(mvcc, "_BATCH", 3)


@settings(max_examples=2_000 if THOROUGH else 30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=transactions, data=st.data())
def test_fold_equals_the_model(
    fold_path: Path, sorting: None, changes: list[dict[bytes, bytes | None]], data: st.DataObject
) -> None:
    model = Model(changes)
    current = len(model.at) - 1
    compacted = data.draw(st.integers(0, current), label="compacted")
    if compacted:
        model.compact(compacted)
    meta = [(b"finishedCompactRev", revision_key(compacted))] if compacted else []
    fold_path.write_bytes(
        database(
            model.items, meta=meta, page_size=512, fan_out=3, inline=data.draw(st.booleans(), label="inline")
        )
    )
    revision = data.draw(st.integers(0, current + 1), label="revision")

    if revision and not compacted <= revision <= current:
        with pytest.raises(RevisionCompacted):
            SnapshotSource(fold_path, revision=revision)
        return
    with SnapshotSource(fold_path, revision=revision) as source:
        expected = model.at[revision or current]
        assert list(source.current(b"")) == [expected[key] for key in sorted(expected)]
        prefix = data.draw(st.sampled_from(KEYS), label="prefix")
        assert list(source.current(prefix)) == [
            expected[key] for key in sorted(expected) if key.startswith(prefix)
        ]
        for key in KEYS:
            assert source.get(key) == expected.get(key)
            kept = [(*each.revision, each.stored) for each in source.history(key)]
            assert kept == model.history.get(key, [])
        assert source.describe().revision == (revision or current)
        assert source.problems == []


SEEDS = 2_000 if THOROUGH else 25


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
