"""What any of the configurations of a real cluster opens, their union opens: value by value, on its snapshot."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from etcdfix.encryption.config import EncryptionConfiguration, load_configuration, parse_configuration
from etcdfix.encryption.config_merge import merge, merged_file
from etcdfix.examine import Examiner, Reading
from etcdfix.model import Outcome, StoredValue
from etcdfix.sources.snapshot import SnapshotSource
from etcdfix.storagekey import StorageLayout

ALPHA = Path(__file__).parents[5] / "fixtures/snapshots/alpha"
WRITERS = sorted(path.name for path in ALPHA.glob("write-*.yaml"))


@cache
def values() -> tuple[StoredValue, ...]:
    with SnapshotSource(ALPHA / "snapshot.db.gz") as source:
        return tuple(source.current(b"/registry/"))


def readable(config: EncryptionConfiguration) -> dict[bytes, str]:
    """Return what each key that opens was opened with; without its KMS plugins."""
    with SnapshotSource(ALPHA / "snapshot.db.gz") as source:
        examiner = Examiner.of_cluster(
            source, Reading(layout=StorageLayout("/registry"), configuration=config)
        )
    found = {}
    for stored in values():
        examination = examiner.examine(stored)
        if examination.verdict.outcome is Outcome.READABLE:
            found[stored.key] = examination.transformer
    return found


@pytest.mark.parametrize(
    "names",
    [
        ["config-rotated.yaml", *WRITERS],
        ["config-lost.yaml", "config-rotated.yaml"],
        ["write-plain.yaml", *reversed(WRITERS)],
    ],
    ids=["rotated", "lost", "plain"],
)
def test_the_union_opens_what_any_opens(names: list[str]) -> None:
    files = [load_configuration(ALPHA / name) for name in names]
    union = parse_configuration(merged_file(merge(files), files, made_at="now"), path="merged.yaml")
    opened = readable(union)
    for file in files:
        alone = readable(file)
        assert alone
        assert {key: opened.get(key) for key in alone} == alone
    for key in ("secrets", "configmaps"):
        assert any(f"/{key}/".encode() in one for one in opened)
