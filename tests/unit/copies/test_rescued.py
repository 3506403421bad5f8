"""The index of saved objects, as it is read."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import msgspec
import pytest

from etcdfix.copies import rescued
from etcdfix.copies.rescued import (
    FORMAT,
    INDEX_NAME,
    SavedObject,
    file_name,
    read_index,
    read_saved,
)
from etcdfix.model.errors import ConfigurationError
from etcdfix.model.model import digest_of

KEY = b"/registry/secrets/shop/db"
METADATA = {"name": "db", "namespace": "shop", "uid": "u-1", "resourceVersion": "17"}


def body_of(kind: str = "Secret", **changes: str) -> bytes:
    return json.dumps({"kind": kind, "apiVersion": "v1", "metadata": METADATA | changes}).encode()


BODY = body_of()


def saved_object(key: bytes = KEY, body: bytes = BODY, **fields: Any) -> SavedObject:
    given: dict[str, Any] = {
        "format": FORMAT,
        "key_base64": key,
        "group": "",
        "version": "v1",
        "resource": "secrets",
        "kind": "Secret",
        "namespace": "shop",
        "name": "db",
        "uid": "u-1",
        "resource_version": "17",
        "sha256": digest_of(body),
        "size": len(body),
        "server": "https://10.0.0.1:6443",
        "saved_at": "2026-11-23T10:00:00Z",
        **fields,
    }
    given.setdefault("file", file_name(given["key_base64"], given["resource_version"], given["sha256"]))
    return SavedObject(**given)


def write_index(directory: Path, *objects: SavedObject, tail: bytes = b"") -> None:
    lines = b"".join(msgspec.json.encode(saved) + b"\n" for saved in objects)
    (directory / INDEX_NAME).write_bytes(lines + tail)


def test_an_index_is_read_as_it_was_written(tmp_path: Path) -> None:
    older, newer = saved_object(), saved_object(resource_version="103", mod_revision=103)
    other = saved_object(key=b"/registry/secrets/shop/\xff", name="\\xff")
    write_index(tmp_path, older, newer, other)
    index = read_index(tmp_path)
    assert index.objects == (older, newer, other)
    assert not index.torn
    assert index.by_key() == {KEY: [newer, older], other.key: [other]}


def test_what_a_crash_left_of_the_last_line_stands_for_nothing(tmp_path: Path) -> None:
    whole = saved_object()
    write_index(tmp_path, whole, tail=msgspec.json.encode(whole)[:-3])
    index = read_index(tmp_path)
    assert index.objects == (whole,)
    assert index.torn


@pytest.mark.parametrize(
    "fields",
    [
        {"file": "../../etc/shadow"},
        {"file": "0" * 16 + "-17-" + "0" * 16 + ".json"},
        {"resource_version": "-1"},
        {"resource_version": "١٧"},
    ],
)
def test_a_line_that_leads_elsewhere_is_refused(tmp_path: Path, fields: dict[str, Any]) -> None:
    write_index(tmp_path, saved_object(), saved_object(**fields))
    with pytest.raises(ConfigurationError, match="line 2 is not one of an index"):
        read_index(tmp_path)


def test_an_index_of_another_version_is_refused_by_its_name(tmp_path: Path) -> None:
    write_index(tmp_path, saved_object(), saved_object(format="etcdfix.copies.rescued/v9"))
    said = "line 2: its format is etcdfix.copies.rescued/v9, and this etcdfix reads only etcdfix.copies.rescued/v1"
    with pytest.raises(ConfigurationError, match=said):
        read_index(tmp_path)


@pytest.mark.parametrize("line", [b"{}\n", b"\n", b"[" * 100_000 + b"\n", b"\xff\n"])
def test_what_is_no_index_is_refused(tmp_path: Path, line: bytes) -> None:
    (tmp_path / INDEX_NAME).write_bytes(line)
    with pytest.raises(ConfigurationError, match="line 1"):
        read_index(tmp_path)


def test_a_line_without_an_end_is_not_read_to_its_end(tmp_path: Path) -> None:
    """It may be as long as the file, which may be a gigabyte."""
    with (tmp_path / INDEX_NAME).open("wb") as index:
        index.truncate(200 << 20)
    tracemalloc.start()
    try:
        with pytest.raises(ConfigurationError, match="line 1 is not one of an index"):
            read_index(tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def test_a_line_that_is_too_long_is_none_whatever_it_holds(tmp_path: Path) -> None:
    line = msgspec.json.encode(saved_object())
    for tail in (b" " * (1 << 20) + b"\n", b" " * ((1 << 20) - len(line)) + line + b"\n"):
        (tmp_path / INDEX_NAME).write_bytes(line + tail)
        with pytest.raises(ConfigurationError, match="line 1 is not one of an index"):
            read_index(tmp_path)


def test_of_many_lines_one_is_read_at_once(tmp_path: Path) -> None:
    """What they say is in memory, and not their bytes: spaces stand for what nobody asks for."""
    saved = [saved_object(key=b"%s%d" % (KEY, number)) for number in range(40)]
    lines = (msgspec.json.encode(one) + b" " * (512 << 10) + b"\n" for one in saved)
    (tmp_path / INDEX_NAME).write_bytes(b"".join(lines))
    tracemalloc.start()
    try:
        assert read_index(tmp_path).objects == tuple(saved)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_an_index_that_is_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_index(tmp_path, saved_object(), saved_object())
    size = (tmp_path / INDEX_NAME).stat().st_size
    monkeypatch.setattr(rescued, "MAX_INDEX_BYTES", size)
    assert len(read_index(tmp_path).objects) == 2
    monkeypatch.setattr(rescued, "MAX_INDEX_BYTES", size - 1)
    with pytest.raises(ConfigurationError, match=f"it is larger than {size - 1} bytes"):
        read_index(tmp_path)


def test_a_missing_index_and_a_link_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as missing:
        read_index(tmp_path)
    assert "--rescued" in missing.value.hint
    (tmp_path / "elsewhere").write_bytes(b"")
    (tmp_path / INDEX_NAME).symlink_to("elsewhere")
    with pytest.raises(ConfigurationError):
        read_index(tmp_path)


def test_a_file_that_was_changed_afterwards_is_no_copy(tmp_path: Path) -> None:
    saved = saved_object()
    path = tmp_path / saved.file
    with pytest.raises(ConfigurationError, match="saved object"):
        read_saved(tmp_path, saved)
    path.write_bytes(BODY)
    assert read_saved(tmp_path, saved) == BODY
    path.write_bytes(BODY.replace(b"db", b"xx"))
    with pytest.raises(ConfigurationError, match="its digest is"):
        read_saved(tmp_path, saved)
    path.unlink()
    (tmp_path / "other").write_bytes(BODY)
    path.symlink_to("other")
    with pytest.raises(ConfigurationError):
        read_saved(tmp_path, saved)


@pytest.mark.parametrize(
    "body",
    [
        body_of(name="other"), body_of(namespace="other"), body_of(uid="u-2"), body_of(resourceVersion="18"),
        body_of(kind="ConfigMap"), b"{}", b"[" * 100_000, b"\xff",
    ],
)  # fmt: skip
def test_a_line_that_calls_a_file_something_else_is_no_index_to_rely_upon(
    tmp_path: Path, body: bytes
) -> None:
    """An old file under a new resourceVersion, or that of another object: its digest may well be on record."""
    saved = saved_object(body=body)
    (tmp_path / saved.file).write_bytes(body)
    with pytest.raises(ConfigurationError, match="not the object, or not the state"):
        read_saved(tmp_path, saved)


def test_a_line_of_another_etcd_key_is_no_index_to_rely_upon(tmp_path: Path) -> None:
    saved = saved_object(key=b"/registry/secrets/shop/another")
    (tmp_path / saved.file).write_bytes(BODY)
    with pytest.raises(ConfigurationError):
        read_saved(tmp_path, saved)
    body = body_of("Node", namespace="")
    node = saved_object(key=b"/registry/minions/db", body=body, kind="Node", namespace="")
    (tmp_path / node.file).write_bytes(body)
    assert read_saved(tmp_path, node) == body
