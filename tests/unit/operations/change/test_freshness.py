"""What is said of what may be overwritten: an equal resourceVersion is a hint, and never more than that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from etcdfix.operations.change.freshness import Known, freshness
from etcdfix.operations.change.object_file import ObjectFile, read_object_file
from tests.support.object_files import json_secret, managed, saved

EARLY, LATE = "2026-01-01T00:00:00Z", "2026-02-02T00:00:00Z"


def file(folder: Path, resource_version: int | str = 7, **metadata: Any) -> ObjectFile:
    return read_object_file(saved(folder, json_secret(resource_version=resource_version, **metadata)))


def known(mod_revision: int = 7, **changes: Any) -> Known:
    return Known(mod_revision, 0, {}, True, True)._replace(**changes)


def test_nothing_newer_is_said_only_where_everything_fits(tmp_path: Path) -> None:
    plain = file(tmp_path, managedFields=managed(LATE), generation=3)
    said = (
        "nothing newer is overwritten, as far as can be told: its resourceVersion is the key's mod_revision 7"
    )
    assert freshness(plain, known()) == said
    for metadata in (
        {"generation": 3, "managedFields": managed(LATE)},
        {"generation": 3, "managedFields": managed(EARLY)},
        {"generation": 2, "managedFields": managed(LATE)},
        {},
    ):
        assert freshness(plain, known(readable_at=5, metadata=metadata)) == said


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"same_uid": False}, ["nothing shows that it has the uid"]),
        ({"cluster_known": False}, ["it is not known which cluster this is"]),
        (
            {"same_uid": False, "cluster_known": False},
            ["the uid of the object that was there; it is not known"],
        ),
        (
            {"readable_at": 5, "metadata": {"generation": 4, "managedFields": managed(EARLY)}},
            [
                "mod_revision 5 still reads, and that one is LATER than the file",
                "there: generation 4, managed 2026-01",
            ],
        ),
        (
            {
                "readable_at": 5,
                "metadata": {"generation": 3, "managedFields": managed("2026-03-03T00:00:00Z")},
            },
            [
                "that one is LATER than the file (file: generation 3, managed 2026-02-02T00:00:00Z; there: generation 3"
            ],
        ),
    ],
)
def test_whatever_contradicts_an_equal_revision_is_said(
    tmp_path: Path, changes: dict[str, Any], words: list[str]
) -> None:
    said = freshness(file(tmp_path, managedFields=managed(LATE), generation=3), known(**changes))
    assert said.startswith("its resourceVersion is the key's mod_revision 7, yet ")
    assert "nothing newer" not in said
    for word in words:
        assert word in said


def test_which_is_later(tmp_path: Path) -> None:
    kept: dict[str, Any] = {"readable_at": 5, "metadata": {"managedFields": managed(EARLY)}}
    later = file(tmp_path, 6, managedFields=managed(LATE))
    said = freshness(later, known(**kept))
    assert said.startswith(
        "the key was WRITTEN AFTER the object was saved (its resourceVersion 6, the key's mod_revision 7)"
    )
    assert (
        "and the file is later (file: no generation, managed 2026-02-02T00:00:00Z; there: no generation"
        in said
    )
    for kind in (file(tmp_path, 6), file(tmp_path, 7)):  # as kubectl saves it: without managedFields
        said = freshness(kind, known(**kept))
        assert (
            "mod_revision 5 still reads, and nothing tells which is later (file: no generation, no times"
            in said
        )
        assert "nothing newer" not in said
    assert freshness(file(tmp_path, 8), known()).startswith(
        "the object was saved LATER than the key was written"
    )


@pytest.mark.parametrize("resource_version", ["", "0", "x", "7.0", "-7", "\u0667", "7" * 100])
def test_what_is_no_revision_is_no_hint(tmp_path: Path, resource_version: str) -> None:
    said = freshness(file(tmp_path, resource_version), known())
    assert said.startswith("nothing tells whether the object was written after it was saved: it has no")


def test_a_key_of_which_nothing_is_kept(tmp_path: Path) -> None:
    assert "etcd keeps nothing of the key" in freshness(file(tmp_path), known(0))


@pytest.mark.parametrize("fields", [None, "text", [None, 5, {"time": 5}, {}]])
def test_times_that_are_none(tmp_path: Path, fields: Any) -> None:
    assert file(tmp_path, managedFields=fields).written == ""
    assert file(tmp_path, generation="4").generation == 0
