"""Where saved objects are kept: whatever fails, what was kept before stays, and the next run goes on."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from etcdfix.apiserver.memory import Identity
from etcdfix.apiserver.objects import APIObject
from etcdfix.copies import rescued
from etcdfix.copies.rescued import INDEX_NAME, SavedObject, read_index, read_saved
from etcdfix.remediation.errors import NotDurable, UnsafePlace
from etcdfix.remediation.saved_objects import RescueStore
from tests.support.durable_steps import FailAt
from tests.unit.copies.test_rescued import body_of

KEY = b"/registry/secrets/shop/db"
THING = APIObject("", "v1", "secrets", "shop", "db")
BODY = body_of()
NEWER = body_of(resourceVersion="18")
ORIGIN = {"server": "https://10.0.0.1:6443", "cluster_uid": "c"}


def identity(resource_version: str = "17") -> Identity:
    return Identity(
        version="v1", kind="Secret", namespace="shop", name="db", uid="u-1", resource_version=resource_version,
        deleting=True,
    )  # fmt: skip


def save(store: RescueStore, body: bytes = BODY, resource_version: str = "17") -> SavedObject:
    return store.save(KEY, THING, identity(resource_version), body, **ORIGIN, mod_revision=17)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "saved"
    path.mkdir(mode=0o700)
    return path


def test_what_is_saved_is_named_by_the_index_and_is_ours_alone(folder: Path) -> None:
    with RescueStore.open(folder) as store:
        saved = save(store)
    assert read_index(folder).objects == (saved,)
    assert read_saved(folder, saved) == BODY
    assert (saved.uid, saved.deleting, saved.mod_revision) == ("u-1", True, 17)
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}


def test_the_same_bytes_are_saved_once_and_newer_ones_beside_them(folder: Path) -> None:
    with RescueStore.open(folder) as store:
        first = save(store)
        assert save(store) == first
        second = save(store, NEWER, "18")
    with RescueStore.open(folder) as store:
        assert save(store) == first
        assert store.has(KEY, 17) == first
        assert store.has(KEY, 18) == second
        assert store.has(KEY, 19) is None
        assert store.has(b"/registry/secrets/shop/other", 17) is None
    assert read_index(folder).objects == (first, second)


def test_a_file_that_is_gone_or_changed_is_not_had_and_not_written_over(folder: Path) -> None:
    with RescueStore.open(folder) as store:
        saved = save(store)
        path = folder / saved.file
        path.unlink()
        assert store.has(KEY, 17) is None
        assert save(store) == saved
        assert store.has(KEY, 17) == saved
        path.write_bytes(b"changed")
        assert store.has(KEY, 17) is None
        with pytest.raises(NotDurable, match="other bytes stand there"):
            save(store)
        assert path.read_bytes() == b"changed"
        path.unlink()
        path.mkdir()
        with pytest.raises(NotDurable):
            save(store)
    assert len(read_index(folder).objects) == 1


def test_what_a_crash_left_without_a_line_gets_one(folder: Path) -> None:
    failing = FailAt("index of saved objects: before append")
    with RescueStore.open(folder, step=failing) as store:
        with pytest.raises(NotDurable, match="No space left"):
            save(store)
        failing.at = ""
        assert len(list(folder.iterdir())) == 2
        saved = save(store)
    assert read_index(folder).objects == (saved,)


@pytest.mark.parametrize("step", ["after append", "before fsync", "after fsync"])
def test_a_line_that_could_not_be_made_durable_is_taken_back(folder: Path, step: str) -> None:
    with RescueStore.open(folder) as store:
        first = save(store)
    failing = FailAt(f"index of saved objects: {step}")
    with RescueStore.open(folder, step=failing) as store:
        with pytest.raises(NotDurable):
            save(store, NEWER, "18")
        failing.at = ""
        assert read_index(folder).objects == (first,)
        save(store, NEWER, "18")
    assert len(read_index(folder).objects) == 2


def test_an_index_that_is_too_large_is_refused_and_stays_whole(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What lay behind the most that was read of it was taken for a torn line, and cut off."""
    with RescueStore.open(folder) as store:
        save(store)
        save(store, NEWER, "18")
    raw = (folder / INDEX_NAME).read_bytes()
    monkeypatch.setattr(rescued, "MAX_INDEX_BYTES", len(raw) - 10)
    with pytest.raises(NotDurable, match="it is larger than"):
        RescueStore.open(folder)
    assert (folder / INDEX_NAME).read_bytes() == raw


def test_a_line_that_stays_torn_is_mended_by_the_next_run(folder: Path) -> None:
    with RescueStore.open(folder) as store:
        first = save(store)
    index = folder / INDEX_NAME
    index.write_bytes(index.read_bytes() + b'{"format":"etcdfix.resc')
    with pytest.raises(NotDurable, match="truncate|No space"):  # noqa: RUF043 - either word will do
        RescueStore.open(folder, step=FailAt("index of saved objects: before truncate"))
    with RescueStore.open(folder) as store:
        assert store.has(KEY, 17) == first
    assert not read_index(folder).torn


def test_only_one_saves_at_a_time(folder: Path) -> None:
    with RescueStore.open(folder), pytest.raises(NotDurable, match="somebody else is saving"):
        RescueStore.open(folder)
    store = RescueStore.open(folder)
    store.close()
    store.close()


def test_places_that_are_not_ours_alone(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(folder)
    with pytest.raises(UnsafePlace):
        RescueStore.open(tmp_path / "link")
    RescueStore.open(tmp_path / "made").close()
    assert stat.S_IMODE((tmp_path / "made").stat().st_mode) == 0o700
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(b"")
    index = folder / INDEX_NAME
    index.hardlink_to(elsewhere)
    with pytest.raises(UnsafePlace, match="2 names"):
        RescueStore.open(folder)
    index.unlink()
    index.mkdir()
    with pytest.raises(NotDurable):
        RescueStore.open(folder)
