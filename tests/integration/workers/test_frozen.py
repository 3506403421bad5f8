"""A program that has no interpreter to start is its own worker; the real one is tried in tests/offline."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from etcdfix.workers import frozen
from etcdfix.workers.pool import WorkerPool
from tests.support.pieces import TARGET, nothing_left, process_ids, run_all

REPOSITORY = Path(__file__).parents[3]


def test_a_frozen_program_starts_itself_as_a_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "program"
    program.write_text(
        f"#!{sys.executable}\n"
        "import sys\n"
        f"sys.path.insert(0, {str(REPOSITORY)!r})\n"
        "from etcdfix.workers.frozen import WORKER_ARGUMENT, main\n"
        "assert sys.argv[1:] == [WORKER_ARGUMENT]\n"
        "main()\n"
    )
    program.chmod(0o700)
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    monkeypatch.setattr(sys, "executable", str(program))
    pieces = [b"piece %d" % number for number in range(20)]
    with nothing_left(), WorkerPool(2, TARGET, b"") as pool:
        assert run_all(pool, pieces) == [(piece, piece[::-1]) for piece in pieces]
        assert len(process_ids(pool)) == 2
        assert pool.lost == []


def test_an_interpreter_is_no_frozen_program() -> None:
    assert not frozen.is_frozen()
