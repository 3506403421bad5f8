"""Storage keys: what is put together comes apart again, and no bytes upset the parser."""

from __future__ import annotations

import base64
import json
import shlex
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from etcdfix.decoding.customresource import CustomResourceInfo
from etcdfix.graph.index import ImpactIndex
from etcdfix.graph.kinds import Kinds
from etcdfix.model.storagekey import (
    ResourcePrefix,
    StorageLayout,
    builtin_directories,
    custom_directory,
)
from etcdfix.text.safetext import is_plain, key_word, quote_command, safe_json, safe_text

pytestmark = pytest.mark.filterwarnings("error")

# What Kubernetes allows as a path segment of a name: anything but these (path.IsValidPathSegmentName).
SEGMENTS = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="/%"), min_size=1, max_size=20
).filter(lambda text: text not in {".", ".."})
GROUPS = st.from_regex(r"[a-z]{1,6}(\.[a-z]{1,6}){1,3}", fullmatch=True)
PLURALS = st.from_regex(r"[a-z]{1,12}", fullmatch=True)
PREFIXES = st.sampled_from(["/registry", "/", "/kubernetes.io", "a/b", ""])
BUILTINS = st.sampled_from(builtin_directories())
CUSTOM = st.builds(custom_directory, GROUPS, PLURALS).filter(
    lambda d: d.path not in {b.path for b in builtin_directories()}
)


@given(PREFIXES, st.one_of(BUILTINS, CUSTOM), SEGMENTS, SEGMENTS, st.booleans())
def test_round_trip(prefix: str, directory: ResourcePrefix, namespace: str, name: str, scoped: bool) -> None:
    layout = StorageLayout(prefix)
    namespaced = directory.namespaced if directory.namespaced is not None else scoped
    rest = f"{namespace}/{name}" if namespaced else name
    key = layout.directory_prefix(directory) + rest.encode()
    found, shared = layout.locate(key)
    where = layout.split(key, (replace(found, namespaced=namespaced), shared))
    assert found == directory
    assert shared == layout.directory_prefix(directory)
    assert (where.namespace, where.name, where.well_formed) == (namespace if namespaced else "", name, True)


@given(PREFIXES, st.binary(max_size=60), st.sampled_from([None, True, False]))
def test_any_key_is_taken_apart(prefix: str, tail: bytes, namespaced: bool | None) -> None:
    layout = StorageLayout(prefix)
    for key in (tail, layout.path(tail)):
        directory, shared = layout.locate(key)
        where = layout.split(key, (replace(directory, namespaced=namespaced), shared))
        assert key.startswith(shared)
        assert shared == key or shared.endswith(b"/")
        for text in (directory.group, directory.resource, directory.path, where.namespace, where.name):
            text.encode()  # no lone surrogates: reports are UTF-8


@given(PREFIXES, st.lists(st.binary(max_size=12), min_size=1, max_size=4), st.binary(max_size=12))
def test_keys_that_share_the_prefix_share_the_directory(
    prefix: str, segments: list[bytes], other: bytes
) -> None:
    layout = StorageLayout(prefix)
    key = layout.path(b"/".join(segments))
    directory, shared = layout.locate(key)
    if shared != key and other:
        assert layout.locate(shared + other) == (directory, shared)


# Few words, so that keys have parents in common, and parents that mean more than one thing.
WORDS = st.sampled_from(
    ["pods", "services", "specs", "nodes", "ranges", "serviceips", "example.com", "things", "wides", "masterleases",
     "apiregistration.k8s.io", "apiservices", "registry", "bootstrap", "0123456789abcdef", "a", "b", "", "\udce2"]
)  # fmt: skip


@example("/", [["pods", "bootstrap", "0123456789abcdef"]])
@given(PREFIXES, st.lists(st.lists(WORDS, max_size=5), max_size=12))
def test_a_place_in_the_index_is_what_its_key_alone_says(prefix: str, words: list[list[str]]) -> None:
    layout = StorageLayout(prefix)
    defined = {
        ("example.com", plural): CustomResourceInfo(
            "example.com", plural, "Thing", scope, ("v1",), ("v1",), "v1", "None"
        )
        for plural, scope in (("things", "Namespaced"), ("wides", "Cluster"))
    }
    kinds = Kinds(defined)
    index = ImpactIndex(layout, kinds)
    for parts in words:
        tail = "/".join(parts).encode("utf-8", "surrogateescape")
        for key in (tail, layout.path(tail)):
            directory, shared = layout.locate(key)
            directory = kinds.custom(directory)
            where = layout.split(key, (directory, shared))
            found = index.ref_of(key)
            assert (found.group, found.resource, found.kind) == (
                directory.group,
                directory.resource,
                directory.kind,
            )
            assert (found.namespace, found.name) == (where.namespace, where.name)


ANY_TEXT = st.text(st.characters())
# Categories that a terminal may act upon, or that hide what is there.
ACTIVE = {"Cc", "Cf", "Cs", "Zl", "Zp"}


@given(ANY_TEXT)
def test_safe_text_holds_nothing_active(text: str) -> None:
    safe = safe_text(text)
    assert not {unicodedata.category(c) for c in safe} & ACTIVE
    assert safe_text(safe) == safe
    if not {unicodedata.category(c) for c in text} & (ACTIVE | {"Zs", "Co", "Cn"}):
        assert safe == text


@given(st.binary())
def test_keys_survive_the_command_line(key: bytes) -> None:
    word = key_word(key)
    line = quote_command(["etcdfix", "scan", word])
    assert line.isprintable()
    assert shlex.split(line) == ["etcdfix", "scan", word]
    named = base64.b64decode(word[7:]) if word.startswith("base64:") else word.encode()
    assert named == key
    if not word.startswith("base64:"):
        assert is_plain(key)


@given(st.lists(ANY_TEXT, min_size=1))
def test_every_command_is_one_line_with_the_same_number_of_words(words: list[str]) -> None:
    line = quote_command(words)
    assert line.isprintable()
    assert shlex.split(line) == [safe_text(word) for word in words]


@given(st.recursive(st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_safe_json_is_the_same_document(value: object) -> None:
    encoded = json.dumps(value, ensure_ascii=False).encode()
    safe = safe_json(encoded)
    assert json.loads(safe) == value
    assert not {unicodedata.category(c) for c in safe.decode()} & ACTIVE
