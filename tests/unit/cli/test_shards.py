"""``scan --shard`` and ``report merge`` as commands: what they refuse, and the exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from etcdfix.cli.root import run as run_command
from tests.support.bbolt_writer import database, put
from tests.support.encoders import kms_v2_body
from tests.support.objects import KMS_V2, config_map, configuration_yaml


class Result(NamedTuple):
    """How a command ended, and all that it said, on one line; then what it said on standard error, as it was."""

    exit_code: int
    output: str
    err: str


Run = Callable[..., Result]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*arguments: str | Path) -> Result:
        code = run_command([str(argument) for argument in arguments])
        said = capsys.readouterr()
        return Result(code, " ".join(f"{said.out} {said.err}".split()), said.err)

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


@pytest.fixture
def under_kms(tmp_path: Path) -> tuple[str, ...]:
    """Options to scan a snapshot with two values under a KMS key whose plugin is not there."""
    path, config = tmp_path / "kms.db", tmp_path / "kms.yaml"
    sealed = b"k8s:enc:kms:v2:prov:" + kms_v2_body(bytes(60), key_id="key-1", dek_source=b"1")
    stored = [put(n, f"/registry/secrets/shop/{n}".encode(), sealed) for n in (2, 3)]
    path.write_bytes(database(stored, trailer=True))
    config.write_bytes(configuration_yaml(KMS_V2))
    return ("--snapshot", str(path), "--encryption-config", str(config))


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


@pytest.mark.parametrize(
    ("more", "code", "said"),
    [
        (("--etcd-prefix", "/wrong"), 5, "NOTHING WAS EXAMINED: no key starts with /wrong/\n"),
        (("--etcd-prefix", "/wrong"), 5, "  next: Kubernetes keys seem to be under /registry;"),
        (("--etcd-prefix", "/wrong", "--revision", "4"), 5, "no key starts with /wrong/ at revision 4\n"),
        (("-n", "nowhere"), 5, "NOTHING WAS EXAMINED: no key matches the given name"),
        (("pods",), 0, "no key is in this scope"),
        (("--fail-on", "none"), 0, "not counted for the exit code (--fail-on): 1 decode-failure"),
    ],
)
def test_a_merge_says_what_the_scan_says(
    run: Run, snapshot: Path, more: tuple[str, ...], code: int, said: str
) -> None:
    of_merge = more if "--fail-on" in more else ()
    merged = run("report", "merge", *shards(run, snapshot, 3, *more), "-o", "name", *of_merge)
    assert (merged.exit_code, merged.err) == (
        code,
        run("scan", "--snapshot", snapshot, "-o", "name", *more).err,
    )
    assert said in merged.err


def test_a_merge_names_the_plugin_that_was_not_there(
    run: Run, snapshot: Path, under_kms: tuple[str, ...]
) -> None:
    merged = run("report", "merge", *shards(run, snapshot, 2, *under_kms), "-o", "name")
    assert (merged.exit_code, merged.err) == (3, run("scan", *under_kms, "-o", "name").err)
    assert merged.err.startswith("etcdfix: KMS plugin of kms/v2/prov at unix:///run/kms.sock: ")


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
