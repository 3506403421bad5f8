"""The fold against a naive model: a dict per revision, and the whole history in a list."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from etcdfix.errors import RevisionCompacted
from etcdfix.model import StoredValue
from etcdfix.sources import mvcc
from etcdfix.sources.snapshot import SnapshotSource
from etcdfix.sources.sortedruns import SortedRecords
from tests.support.bbolt_writer import database, delete, put, revision_key

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
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fold") / "db"


@pytest.fixture(params=["in memory", "spilled"])
def sorting(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "spilled":
        monkeypatch.setattr(mvcc, "SortedRecords", functools.partial(SortedRecords, max_records=5))
        monkeypatch.setattr(mvcc, "_BATCH", 3)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=transactions, data=st.data())
def test_fold_equals_the_model(
    path: Path, sorting: None, changes: list[dict[bytes, bytes | None]], data: st.DataObject
) -> None:
    model = Model(changes)
    current = len(model.at) - 1
    compacted = data.draw(st.integers(0, current), label="compacted")
    if compacted:
        model.compact(compacted)
    meta = [(b"finishedCompactRev", revision_key(compacted))] if compacted else []
    path.write_bytes(
        database(
            model.items, meta=meta, page_size=512, fan_out=3, inline=data.draw(st.booleans(), label="inline")
        )
    )
    revision = data.draw(st.integers(0, current + 1), label="revision")

    if revision and not compacted <= revision <= current:
        with pytest.raises(RevisionCompacted):
            SnapshotSource(path, revision=revision)
        return
    with SnapshotSource(path, revision=revision) as source:
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
