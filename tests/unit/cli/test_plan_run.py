"""What ``plan --run`` makes of its options."""

from __future__ import annotations

import os
from pathlib import Path

from etcdfix.cli.plan_run import _read_again


def test_a_pipe_is_not_read_again(tmp_path: Path) -> None:
    pipe, file = tmp_path / "pipe", tmp_path / "enc.yaml"
    os.mkfifo(pipe)
    file.touch()
    assert [_read_again(path) for path in (pipe, file, None)] == [None, file, None]
