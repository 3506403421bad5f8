"""What ``plan --run`` makes of its options."""

from __future__ import annotations

import os
from pathlib import Path

import click
import pytest

from etcdfix.cli.plan_run import _counts, _read_again


def test_a_pipe_is_not_read_again(tmp_path: Path) -> None:
    pipe, file = tmp_path / "pipe", tmp_path / "enc.yaml"
    os.mkfifo(pipe)
    file.touch()
    assert [_read_again(path) for path in (pipe, file, None)] == [None, file, None]


def test_counts_of_groups() -> None:
    """A group may have = in its name; its number is what stands behind the last one."""
    assert _counts(("delete/secrets/a/b=2", "x=y=30")) == {"delete/secrets/a/b": 2, "x=y": 30}


@pytest.mark.parametrize("word", ["", "=2", "a=", "a=-1", "a=x", "a=1234567890", "a=2 ", "a"])
def test_a_count_that_is_none(word: str) -> None:
    with pytest.raises(click.UsageError, match="is not GROUP=N"):
        _counts((word,))


def test_a_group_that_is_counted_twice() -> None:
    """Neither number is the one that was meant."""
    with pytest.raises(click.UsageError, match="names 'a' twice"):
        _counts(("a=1", "a=1"))
