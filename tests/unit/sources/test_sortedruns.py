from __future__ import annotations

import errno
import random
import tempfile
from pathlib import Path

import pytest

from etcdfix.errors import SourceError
from etcdfix.sources import sortedruns
from etcdfix.sources.sortedruns import SortedRecords


def filled(records: list[bytes], *, batch: int = 7, **limits: int) -> SortedRecords:
    held = SortedRecords(**limits)
    for start in range(0, len(records), batch):
        held.extend(records[start : start + batch])
    held.finish()
    return held


def read(held: SortedRecords, lower: bytes = b"", upper: bytes | None = None) -> list[bytes]:
    return [record for block in held.blocks(lower, upper) for record in block]


@pytest.fixture
def records() -> list[bytes]:
    numbers = random.Random(4)
    return [b"%06d" % numbers.randrange(5000) for _ in range(20_000)]


@pytest.mark.parametrize("limits", [{}, {"max_records": 3000}])
@pytest.mark.parametrize(
    ("lower", "upper"),
    [(b"", b"000100"), (b"002000", b"002001"), (b"004900", None), (b"9", None), (b"002000", b"002000")],
)
def test_ranges(records: list[bytes], limits: dict[str, int], lower: bytes, upper: bytes | None) -> None:
    held = filled(records, batch=500, **limits)

    expected = [record for record in sorted(records) if record >= lower and (upper is None or record < upper)]
    assert read(held, lower, upper) == expected
    held.close()


@pytest.mark.parametrize("limits", [{}, {"max_records": 1000}])
def test_sample_comes_from_all_over(
    records: list[bytes], limits: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sortedruns, "_BLOCK_BYTES", 200)
    held = filled(records, batch=100, **limits)
    sample = [record for block in held.sample() for record in block]

    assert sample == sorted(sample)
    assert set(sample) < set(records)
    assert (sample[0], sample[-1] > b"004800") == (min(records), True)
    held.close()


def test_full_disk_is_a_source_error_with_a_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(**_: object) -> object:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    held = SortedRecords(max_records=2)

    with pytest.raises(SourceError, match="No space left on device") as caught:
        held.extend([b"a", b"b"])
    assert "TMPDIR" in caught.value.hint


def test_disk_that_fills_up_while_merging(monkeypatch: pytest.MonkeyPatch) -> None:
    held = SortedRecords(max_records=2)
    held.extend([b"a", b"b"])

    def full(**_: object) -> object:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    with pytest.raises(SourceError, match="No space left on device"):
        held.finish()
    held.close()


def test_temporary_files_have_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    held = filled([b"b", b"a", b"c"], batch=1, max_records=1)

    assert list(tmp_path.iterdir()) == []
    held.close()
