"""Any items can be written and read back; any bytes end in a named error, a reported damage, or values."""

from __future__ import annotations

import contextlib
import functools
import gzip
import io
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from etcdfix.errors import PageCorrupt, SourceError
from etcdfix.model import StoredValue
from etcdfix.sources.bbolt.page import parse_meta, parse_page_header, read_metas
from etcdfix.sources.bbolt.tree import Tree
from etcdfix.sources.keyvalue import parse_as_written, parse_key_value
from etcdfix.sources.problems import MAX_PROBLEMS
from etcdfix.sources.snapshot import SnapshotSource
from tests.support.bbolt_writer import BoltWriter, database

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

    assert tree.bucket_names() == sorted(contents)
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


@given(st.binary(max_size=200), st.integers(0, 100))
def test_parsers_return_or_raise_their_documented_error(data: bytes, offset: int) -> None:
    for parse in (parse_page_header, parse_meta):
        message = told(functools.partial(parse, data, offset=offset, page_id=1), PageCorrupt)
        assert message is None or str(offset) in message
    read_metas(data)
    message = told(lambda: parse_key_value(data), ValueError)
    assert message is None or "byte" in message
    careful = parse_key_value(data) if message is None else None
    quick = parse_as_written(data, 0, len(data))
    assert quick is None or quick == careful


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
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
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


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(noise=st.binary(max_size=6000), keep=st.integers(0, 8192))
def test_noise_behind_a_good_start(path: Path, noise: bytes, keep: int) -> None:
    path.write_bytes(database([(b"k", b"v")])[:keep] + noise)
    with contextlib.suppress(SourceError), SnapshotSource(path) as source:
        assert list(source.current(b"")) == []  # "k" is no revision
