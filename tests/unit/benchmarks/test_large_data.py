"""Data is what its name says: each provider, none, few or all of it unreadable; and a half is never used again."""

from __future__ import annotations

from pathlib import Path

import pytest

from etcdfix.encryption.config import load_configuration
from etcdfix.encryption.kms.plugins import KMSPlugins
from etcdfix.examine import Examiner, Reading
from etcdfix.model import Outcome
from etcdfix.sources.snapshot import SnapshotSource
from etcdfix.storagekey import StorageLayout
from tests.benchmarks import large_data
from tests.benchmarks.large_data import (
    KEK_FILE,
    KMS_NAME,
    Damage,
    Data,
    Provider,
    key_of_one,
    made_once,
    objects,
    write,
)
from tests.support.kms_plugin import KMSPlugin, load_keks

KEYS = 200


def outcomes(folder: Path, data: Data) -> dict[Outcome, int]:
    made = write(folder, data)
    socket = folder / "kms.sock"
    found: dict[Outcome, int] = {}
    with (
        KMSPlugin("v2", socket, load_keks(KEK_FILE)),
        KMSPlugins({KMS_NAME: f"unix://{socket}"}) as plugins,
        SnapshotSource(made.database) as source,
    ):
        reading = Reading(layout=StorageLayout(), configuration=load_configuration(made.config))
        examiner = Examiner.of_cluster(source, reading, plugins)
        for stored in source.current(b""):
            outcome = examiner.examine(stored).verdict.outcome
            found[outcome] = found.get(outcome, 0) + 1
    return found


@pytest.mark.parametrize("provider", Provider)
@pytest.mark.parametrize(("damage", "unreadable"), [(Damage.NONE, 0), (Damage.SOME, 2), (Damage.LOST, KEYS)])
def test_as_much_is_unreadable_as_the_name_says(
    tmp_path: Path, provider: Provider, damage: Damage, unreadable: int
) -> None:
    found = outcomes(tmp_path, Data(KEYS, damage, provider))
    assert sum(found.values()) == KEYS
    assert found.get(Outcome.READABLE, 0) == KEYS - unreadable


def test_heavy_data_is_larger_and_has_the_same_number_of_keys() -> None:
    plain, heavy = (sum(len(value) for _, value in objects(KEYS, heavy=heavy)) for heavy in (False, True))
    assert heavy > 1.15 * plain


@pytest.mark.parametrize("keys", [1, 2, 200])
def test_the_key_of_one_is_there(keys: int) -> None:
    assert key_of_one(keys) in dict(objects(keys, Damage.LOST))


def test_data_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = made_once(tmp_path, Data(10))
    assert made.database.exists()
    monkeypatch.setattr(large_data, "write", None)
    assert made_once(tmp_path, Data(10)) == made
    assert [path.name for path in tmp_path.iterdir()] == ["10-mixed-none"]


def test_a_half_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def dies(*_change: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(large_data, "put", dies)
        with pytest.raises(KeyboardInterrupt):
            made_once(tmp_path, Data(10))
    assert not (tmp_path / "10-mixed-none").exists()
    made_once(tmp_path, Data(10))
    assert [path.name for path in tmp_path.iterdir()] == ["10-mixed-none"]


def test_no_two_data_share_a_folder() -> None:
    names = [
        Data(keys, damage, provider, heavy).name
        for keys in (1, 10)
        for damage in Damage
        for provider in Provider
        for heavy in (False, True)
    ]
    assert len(set(names)) == len(names)
