"""Whether a snapshot is of the history of what is stored: what damage excuses is no agreement."""

from __future__ import annotations

from typing import cast

import pytest

from etcdfix.copies.model import Sameness
from etcdfix.copies.same_history import history_of
from etcdfix.examine import Examiner, Reading
from etcdfix.examine_all import no_progress
from etcdfix.model import StoredValue
from etcdfix.sources.snapshot import SnapshotSource
from etcdfix.storagekey import StorageLayout
from tests.support.objects import config_map
from tests.support.wal_writer import StoreNow


class Salvaged(StoreNow):
    """A snapshot of which pages are missing."""

    @property
    def problems(self) -> list[str]:
        return ["a page cannot be read"]


def stored(name: str, mod: int, create: int) -> StoredValue:
    return StoredValue(f"/registry/configmaps/shop/{name}".encode(), config_map(name), mod, create, 1, 0)


@pytest.mark.parametrize(
    ("here", "there", "expected"),
    [
        pytest.param((5, 5), (5, 5), Sameness.SAME, id="the same writes"),
        pytest.param((25, 5), (5, 5), Sameness.UNKNOWN, id="an older write than what stood there"),
        pytest.param((35, 20), (5, 5), Sameness.UNKNOWN, id="an older generation"),
        pytest.param((5, 5), (6, 5), Sameness.OTHER, id="a newer write than what stood there"),
    ],
)
def test_what_damage_excuses_is_no_agreement(
    here: tuple[int, int], there: tuple[int, int], expected: Sameness
) -> None:
    names = ("a", "b", "c", "d")
    now = StoreNow([stored(name, *here) for name in names], 40)
    older = Salvaged([stored(name, *there) for name in names], 30)
    examiner = Examiner.of(Reading(layout=StorageLayout()))
    fit, _ = history_of(now, cast("SnapshotSource", older), examiner, uid=None, progress=no_progress)
    assert fit is expected
