"""Rows that are sorted in a temporary file."""

from __future__ import annotations

import io

import msgspec
import pytest

from etcdfix.report import rows
from etcdfix.report.rows import SortedRows, turn_of
from etcdfix.sources import sortedruns


class Row(msgspec.Struct):
    text: str


def test_what_goes_to_the_disk_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[bytes] = []

    class Disk(io.BytesIO):
        def write(self, data: bytes, /) -> int:  # type: ignore[override]
            written.append(data)
            return super().write(data)

    monkeypatch.setattr(rows, "_MEMORY_BYTES", 1_000)
    monkeypatch.setattr(sortedruns, "temporary_file", Disk)
    waiting = SortedRows(Row)
    for number in reversed(range(200)):
        waiting.add(turn_of(b"%03d" % number), Row(f"decrypted-{number}"))
    finished = waiting.finish()
    assert sum(map(len, written)) > 2 * 200 * len("decrypted-100")
    assert not any(b"decrypted-" in data for data in written)
    assert [row.text for row in finished] == [f"decrypted-{number}" for number in range(200)]
