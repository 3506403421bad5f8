"""A program that has no interpreter to start is its own worker; the real one is tried in tests/offline."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from etcdfix.workers import frozen
from etcdfix.workers.pool import WorkerPool
from etcdfix.workers.process import can_start
from tests.support.pieces import TARGET, nothing_left, process_ids, run_all

REPOSITORY = Path(__file__).parents[3]


def test_a_frozen_program_starts_itself_as_a_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "program"
    program.write_text(
        f"#!{sys.executable}\n"
        "import sys\n"
        f"sys.path.insert(0, {str(REPOSITORY)!r})\n"
        "from etcdfix.workers.frozen import work_if_asked\n"
        "work_if_asked()\n"
        "sys.exit('not asked')\n"
    )
    program.chmod(0o700)
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    monkeypatch.setattr(sys, "executable", str(program))
    assert not can_start()  # a program of somebody else
    monkeypatch.setattr(frozen._ThisProgram, "heeds_the_argument", False)
    frozen.work_if_asked()
    assert can_start()
    pieces = [b"piece %d" % number for number in range(20)]
    with nothing_left(), WorkerPool(2, TARGET, b"") as pool:
        assert run_all(pool, pieces) == [(piece, piece[::-1]) for piece in pieces]
        assert len(process_ids(pool)) == 2
        assert pool.lost == []


def test_an_interpreter_is_no_frozen_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frozen._ThisProgram, "heeds_the_argument", True)
    assert not frozen.is_frozen()
    assert not frozen.can_be_its_own_worker()
    assert can_start()
