"""``scan --shard`` and ``report merge`` as commands: what they refuse, and the exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from etcdfix.cli.root import run as run_command
from tests.support.bbolt_writer import database, put
from tests.support.objects import config_map


class Result(NamedTuple):
    """How a command ended, and all that it said, on one line."""

    exit_code: int
    output: str


Run = Callable[..., Result]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*arguments: str | Path) -> Result:
        code = run_command([str(argument) for argument in arguments])
        said = capsys.readouterr()
        return Result(code, " ".join(f"{said.out} {said.err}".split()))

    return run


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    path = tmp_path / "etcd.db"
    values = {f"/registry/configmaps/shop/{n}".encode(): config_map(str(n)) for n in range(6)}
    values[b"/registry/configmaps/shop/3"] = b"k8s\0broken"
    path.write_bytes(
        database([put(n, key, value) for n, (key, value) in enumerate(values.items(), 2)], trailer=True)
    )
    return path


def shards(run: Run, snapshot: Path, of: int, *more: str) -> list[Path]:
    files = [snapshot.with_name(f"shard-{n}.json") for n in range(1, of + 1)]
    for n, file in enumerate(files, 1):
        run(
            "scan", "--snapshot", snapshot, "--shard", f"{n}/{of}", "-o", "json", "--output-file", file, *more
        )
    return files


@pytest.mark.parametrize(
    "word", ["0/4", "5/4", "a/b", "1", "1/0", "1/4/2", "-1/4", " 1/4", "1/10000", "01/4", ""]
)
def test_what_is_no_shard(run: Run, snapshot: Path, word: str) -> None:
    result = run("scan", "--snapshot", snapshot, "--shard", word)
    assert result.exit_code == 2
    assert "is no shard: give I/N" in result.output


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--endpoints", "127.0.0.1:1"), "--shard needs --snapshot FILE"),
        (("--kine", "state.db"), "--shard needs --snapshot FILE"),
        (("--snapshot", "etcd.db", "--salvage"), "--shard and --salvage do not go together"),
        (("--snapshot", "etcd.db", "--redact-names"), "--shard and --redact-names do not go together"),
    ],
)
def test_what_cannot_be_divided(run: Run, more: tuple[str, ...], said: str) -> None:
    result = run("scan", "--shard", "1/2", *more)
    assert result.exit_code == 2
    assert said in result.output


def test_the_exit_code_is_that_of_the_whole(run: Run, snapshot: Path) -> None:
    files = shards(run, snapshot, 3)
    assert [run("report", "merge", *order).exit_code for order in (files, files[::-1])] == [1, 1]
    assert run("report", "merge", *files, "--fail-on", "none").exit_code == 0
    result = run("report", "merge", *files[:2])
    assert result.exit_code == 3
    assert "incomplete: shard 3 of 3 is not among the files" in result.output


def test_a_shard_alone_where_nothing_was_examined_is_incomplete(run: Run, snapshot: Path) -> None:
    files = shards(run, snapshot, 30)
    assert run("report", "merge", files[0]).exit_code == 3


def test_a_report_is_never_written_over_one_that_is_read(run: Run, snapshot: Path) -> None:
    files = shards(run, snapshot, 2)
    result = run("report", "merge", *files, "--output-file", files[1])
    assert result.exit_code == 2
    assert json.loads(files[1].read_bytes())["scope"]["shard"]["index"] == 2


@pytest.mark.parametrize("more", [("--max-age", "1h"), ("--clusters", "list"), ("--reports", "dir")])
def test_what_is_for_a_fleet_alone(run: Run, more: tuple[str, ...]) -> None:
    result = run("report", "merge", "a.json", *more)
    assert result.exit_code == 2
    assert "need --fleet" in result.output


def test_without_files_and_without_shards(run: Run, snapshot: Path) -> None:
    assert run("report", "merge").exit_code == 2
    result = run("report", "merge", snapshot)
    assert result.exit_code == 2
    assert "no report of a shard is among the files" in result.output
    assert "-o status" in run("report", "merge", "--fleet", snapshot, "-o", "status").output


def test_no_other_command_goes_on_from_a_shard(run: Run, snapshot: Path) -> None:
    (file, _) = shards(run, snapshot, 2)
    for command in (
        ("scan", "--snapshot", snapshot, "--baseline", file),
        ("plan", "--snapshot", snapshot, "--from-report", file),
        ("copies", "--snapshot", snapshot, "--from-report", file),
    ):
        result = run(*command)
        assert result.exit_code == 2
        assert "it is shard 1 of 2: merge them all first (etcdfix report merge)" in result.output
