"""Where a shard begins and ends, and that shards see what the whole sees."""

from __future__ import annotations

import base64
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

from etcdfix.encryption.config import KMSProvider, parse_configuration
from etcdfix.errors import ConfigurationError
from etcdfix.operations.look.scan import ScanRequest
from etcdfix.operations.look.shards import ShardRequest, Span, pages_of, shown_shard, span_in, span_of
from etcdfix.scope import KeyRange, ScopeRequest
from etcdfix.sources.pages import values_of
from etcdfix.sources.snapshot import SnapshotSource
from etcdfix.storagekey import StorageLayout
from etcdfix.text.commands import RepeatedOptions
from tests.exam.judging import NeverWaits
from tests.exam.kinds_of_damage import DAMAGES, make_cause_case
from tests.support.bbolt_writer import database, delete, put
from tests.support.memory_source import MemorySource
from tests.support.objects import KEY_1, KEY_2, aescbc, aesgcm, config_map, configuration, provider, secret
from tests.support.shards import Opened, merge_as, scan_as, shard_files, without_times

LAYOUT = StorageLayout()
EVERYTHING = [KeyRange(b"")]


def spans(source: Any, of: int, ranges: list[KeyRange] | None = None) -> list[Span]:
    return [span_of(source, ranges or EVERYTHING, ShardRequest(n, of)) for n in range(1, of + 1)]


def keys_in(source: Any, span: Span, ranges: list[KeyRange] | None = None) -> list[bytes]:
    return [stored.key for stored in values_of(pages_of(source, ranges or EVERYTHING, span))]


@pytest.mark.parametrize("of", [1, 2, 3, 7, 16, 40])
@pytest.mark.parametrize("count", [0, 1, 5, 16, 100])
def test_shards_meet_and_hold_every_key_once(count: int, of: int) -> None:
    source = MemorySource({f"/registry/pods/a/{n:03}": b"x" for n in range(count)})
    found = spans(source, of)
    assert found[0].start == b""
    assert found[-1].end is None
    assert all(one.end == other.start for one, other in pairwise(found))
    held = [keys_in(source, span) for span in found]
    assert [key for keys in held for key in keys] == list(source.keys(b""))
    assert max(map(len, held)) - min(map(len, held)) <= 1


def test_boundaries_are_those_of_the_scope() -> None:
    source = MemorySource(
        {f"/registry/{resource}/a/{n}": b"x" for resource in ("pods", "secrets") for n in range(8)}
    )
    ranges = [KeyRange(b"/registry/secrets/a/0", exact=True), KeyRange(b"/registry/secrets/a/7")]
    found = spans(source, 2, ranges)
    assert [keys_in(source, span, ranges) for span in found] == [
        [b"/registry/secrets/a/0"],
        [b"/registry/secrets/a/7"],
    ]


def test_a_key_of_which_part_is_withheld_is_no_boundary() -> None:
    source = MemorySource({f"/bootstrap/{n:012x}": b"x" for n in range(4)} | {"/registry/pods/a/b": b"x"})
    for span in spans(source, 5):
        assert b"bootstrap" not in span.start + (span.end or b"")
    only = MemorySource({f"/bootstrap/{n:012x}": b"x" for n in range(4)})
    assert [len(keys_in(only, span)) for span in spans(only, 3)] == [0, 0, 4]


def test_a_shard_as_a_report_has_it() -> None:
    odd = Span(b"/registry/pods/\xff\x00", b"/registry/pods/b")
    shown = shown_shard(ShardRequest(2, 3), odd)
    assert shown.from_key_base64 == base64.b64encode(odd.start).decode()
    assert (shown.to_key, shown.to_key_base64) == ("/registry/pods/b", None)
    assert span_in(shown) == odd
    assert span_in(shown_shard(ShardRequest(1, 1), Span(b"", None))) == Span(b"", None)


def test_only_what_never_changes_is_divided() -> None:
    class Live(MemorySource):
        keys = None  # type: ignore[assignment]
        pages_between = None  # type: ignore[assignment]

    request = ScanRequest(layout=LAYOUT, shard=ShardRequest(1, 2), configuration=None)
    with pytest.raises(ConfigurationError, match="--shard needs a file"):
        scan_as((Live({}), None), request)


class Played(NeverWaits):
    """The plugin of a case."""

    def __init__(self, plugin: Any) -> None:
        self._plugin = plugin

    def plugin_for(self, provider: KMSProvider) -> Any:
        return self._plugin

    def reports(self) -> tuple[()]:
        return ()


def first_seed_of_each() -> list[int]:
    """Return seeds of cases, two for each thing that can be done to a value."""
    wanted = dict.fromkeys(DAMAGES, 2)
    found = []
    for seed in range(2_000):
        name = make_cause_case(seed).damage
        if wanted[name]:
            wanted[name] -= 1
            found.append(seed)
    return found


def test_a_value_is_judged_by_what_other_shards_hold_whatever_was_done_to_it(tmp_path: Path) -> None:
    """Cases of every cause, each divided so that the value is alone, or its neighbours are."""
    for seed in first_seed_of_each():
        case = make_cause_case(seed)
        config = None if case.configuration is None else parse_configuration(case.configuration, path="exam")
        request = ScanRequest(layout=LAYOUT, configuration=config, kubernetes_minor=case.minor)

        def again(seed: int = seed) -> Opened:
            made = make_cause_case(seed)
            return MemorySource(made.records), Played(made.plugin) if made.plugin is not None else None

        whole, _ = scan_as(again(), request)
        merged, _ = merge_as(shard_files(again, request, len(case.records), tmp_path))
        same = without_times(merged) == without_times(whole)
        assert same, f"{case.damage}, seed {seed}"


def random_store(seed: int) -> dict[str, bytes]:
    """Return values of several resources: plain ones, such under keys that are there or lost, and damaged ones."""
    rng = random.Random(seed)
    held: dict[str, bytes] = {"compact_rev_key": b"5", "/other/a": b"x", "/registry/zebra/a": b"{}"}
    for number in range(160):
        resource = rng.choice(["secrets", "configmaps", "configmaps", "events.k8s.io/x"])
        name = f"{rng.randrange(10**6):06}"
        key = f"/registry/{resource}/{rng.choice(['shop', 'infra'])}/{name}"
        plaintext = secret(name) if resource == "secrets" else config_map(name)
        value = rng.choice(
            [
                plaintext,
                aesgcm(plaintext, key, KEY_1),
                aesgcm(plaintext, key, KEY_2),
                aescbc(plaintext),
                aesgcm(plaintext, key, KEY_1, name="gone"),
            ]
        )
        if number % 4 == 0 and value:
            at = rng.randrange(len(value))
            value = rng.choice(
                [value[:at], value[:at] + bytes([value[at] ^ 1]) + value[at + 1 :], b"", b"{}"]
            )
        held[key] = value
    return held


CONFIG = configuration(
    provider("aesgcm", key1=KEY_1), provider("aescbc", key2=KEY_2), resources=("secrets", "configmaps")
)


def snapshot_of(held: dict[str, bytes], folder: Path, seed: int = 0) -> Path:
    keys = list(held)
    random.Random(seed).shuffle(keys)
    items = [put(revision, key.encode(), held[key]) for revision, key in enumerate(keys, start=2)]
    items.append(put(len(items) + 2, b"/registry/pods/shop/gone", b"{}"))
    items.append(delete(len(items) + 2, b"/registry/pods/shop/gone"))
    path = folder / "snapshot.db"
    path.write_bytes(database(items, trailer=True))
    return path


@pytest.mark.parametrize("seed", range(2))
def test_merged_shards_of_a_file_are_the_whole_byte_for_byte(tmp_path: Path, seed: int) -> None:
    path = snapshot_of(random_store(seed), tmp_path, seed)
    again = RepeatedOptions(source=("--snapshot", str(path)))
    request = ScanRequest(layout=LAYOUT, configuration=CONFIG, same_again=again)

    def open_again() -> Opened:
        return SnapshotSource(path), None

    whole, result = scan_as(open_again(), request)
    assert len(result.summary.by_cause) >= 5
    assert result.summary.key_loss
    for of in (2, 5, 16) if seed else (1, 3, 4):
        files = shard_files(open_again, request, of, tmp_path, "json" if of % 2 else "jsonl")
        random.Random(of).shuffle(files)
        merged, came_to = merge_as(files)
        assert without_times(merged) == without_times(whole), of
        assert (came_to.new, came_to.complete, came_to.problems) == (result.new, result.complete, [])


@pytest.mark.parametrize(
    "words",
    [("secrets",), ("/registry/secrets/shop",), ("/registry/nothing",), ("events",), ("/other",)],
)
@pytest.mark.parametrize("output", ["json", "jsonl", "yaml", "table", "wide", "status", "name"])
def test_every_form_of_a_narrow_scope(tmp_path: Path, words: tuple[str, ...], output: str) -> None:
    held = random_store(9)
    request = ScanRequest(layout=LAYOUT, configuration=CONFIG, scope=ScopeRequest(words))

    def open_again() -> Opened:
        return MemorySource(held), None

    capped = msgspec.structs.replace(request, max_causes=3)
    whole, _ = scan_as(open_again(), capped, output, max_causes=3)
    merged, _ = merge_as(shard_files(open_again, request, 4, tmp_path), output, max_causes=3)
    times = [b"generated_at", b"finished_at"]
    assert [
        line for line in without_times(merged).splitlines() if not any(time in line for time in times)
    ] == [line for line in without_times(whole).splitlines() if not any(time in line for time in times)]


@pytest.mark.parametrize(
    "request_",
    [
        ScanRequest(layout=LAYOUT, scope=ScopeRequest(namespaces=("nowhere",)), configuration=None),
        ScanRequest(layout=LAYOUT, scope=ScopeRequest(keys=(b"/registry/secrets/a/b",)), configuration=None),
        ScanRequest(layout=LAYOUT, configuration=None),
    ],
)
def test_nothing_that_was_named_and_another_prefix(tmp_path: Path, request_: ScanRequest) -> None:
    held = {f"/kubernetes.io/{resource}/a": b"x" for resource in ("pods", "secrets", "leases")}
    if request_.scope.everything:
        held["/bootstrap/abcdef012345"] = b"x"
    else:
        held["/registry/pods/a/b"] = b"x"

    def open_again() -> Opened:
        return MemorySource(held), None

    whole, result = scan_as(open_again(), request_)
    merged, came_to = merge_as(shard_files(open_again, request_, 3, tmp_path))
    assert without_times(merged) == without_times(whole)
    assert (came_to.below_prefix, came_to.nothing_named_exists) == (
        result.below_prefix,
        result.nothing_named_exists,
    )
    assert not came_to.complete
