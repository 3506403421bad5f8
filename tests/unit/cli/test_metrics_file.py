"""``--metrics-file`` on the command line: whatever becomes of a scan, the file says it, and is never half written."""

from __future__ import annotations

import errno
import json
import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from etcdfix.cli import scan as scan_module
from etcdfix.errors import EndedEarly, SourceError
from tests.support.collecting import ALPHA
from tests.support.memory_source import MemorySource
from tests.support.metrics import Samples, names, read_metrics, series, value
from tests.support.objects import aescbc, namespace_object, secret
from tests.unit.reports.formats.test_metrics import COUNTED_NAMES, FAILED_NAMES

HEALTHY = {
    "/registry/namespaces/kube-system": namespace_object("kube-system"),
    "/registry/secrets/shop/web": aescbc(secret()),
}
BROKEN = HEALTHY | {"/registry/secrets/shop/broken": b"k8s:enc:aescbc:v1:key1:short"}
SNAPSHOT = str(ALPHA / "snapshot.db.gz")
READ = ["--snapshot", SNAPSHOT, "--encryption-config", str(ALPHA / "config-lost.yaml"), "--no-kms"]
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def metrics(tmp_path: Path) -> Path:
    folder = tmp_path / "textfile"
    folder.mkdir()
    return folder / "etcdfix.prom"


@pytest.fixture
def scan(monkeypatch: pytest.MonkeyPatch, command: Run, config: str, metrics: Path) -> Run:
    """Return a function that scans records in memory, and writes metrics."""

    def run_scan(*arguments: object, source: MemorySource | None = None) -> tuple[int, str, str]:
        monkeypatch.setattr(scan_module, "open_source", lambda _inputs, say: source or MemorySource(HEALTHY))
        return command("scan", "--encryption-config", config, "--metrics-file", metrics, *arguments)

    return run_scan


def read(path: Path) -> Samples:
    assert [*path.parent.iterdir()] == [path], "nothing else is left there"
    return read_metrics(path.read_bytes())


def test_a_healthy_scan(scan: Run, metrics: Path, umask: Callable[[int], int]) -> None:
    umask(0o077)
    before = int(time.time())
    code, out, err = scan("-o", "name")
    assert (code, out, err) == (0, "", "")
    found = read(metrics)
    assert stat.S_IMODE(metrics.stat().st_mode) == 0o644, "node_exporter is another user"
    for name, expected in {"complete": 1, "reached_end": 1, "exit_code": 0, "stale_keys": 0}.items():
        assert value(found, f"etcdfix_scan_{name}") == expected
    assert value(found, "etcdfix_scan_keys", outcome="readable") == 2
    ended = value(found, "etcdfix_scan_timestamp_seconds")
    assert before <= ended <= time.time()
    assert value(found, "etcdfix_scan_last_complete_timestamp_seconds") == ended


def test_findings(scan: Run, metrics: Path) -> None:
    code, _out, _err = scan(source=MemorySource(BROKEN))
    found = read(metrics)
    assert code == value(found, "etcdfix_scan_exit_code") == 1
    assert value(found, "etcdfix_scan_complete") == 1
    assert value(found, "etcdfix_scan_keys", outcome="decrypt-failure") == 1
    assert value(found, "etcdfix_scan_severity_keys", severity="breaks-now") == 1


def test_a_baseline_changes_only_what_it_says(scan: Run, metrics: Path, tmp_path: Path) -> None:
    known = tmp_path / "known.json"
    scan("-o", "json", "--output-file", known, source=MemorySource(BROKEN))
    code, _out, _err = scan("--baseline", known, source=MemorySource(BROKEN))
    found = read(metrics)
    assert code == value(found, "etcdfix_scan_exit_code") == 0
    assert value(found, "etcdfix_scan_keys", outcome="decrypt-failure") == 1
    assert value(found, "etcdfix_scan_new_keys", outcome="decrypt-failure") == 0


@pytest.mark.parametrize(
    ("words", "scope"),
    [
        ([], "everything"),
        (["/registry/"], "everything"),
        (["/registry"], "everything"),
        (["secrets"], "part"),
        (["-n", "shop"], "part"),
        (["/registry/secrets/"], "part"),
        (["/registry/secrets/shop/web"], "part"),
        (["--revision", "3"], "past"),
        (["--revision", "3", "secrets"], "past"),
    ],
)
def test_what_was_not_asked_for_is_not_taken_for_examined(
    scan: Run, metrics: Path, words: list[str], scope: str
) -> None:
    code, _out, _err = scan(*words)
    assert code == 0
    (labels,) = [dict(labels) for name, labels in read(metrics) if name == "etcdfix_scan_info"]
    assert labels["scope"] == scope


def fails(_inputs: object, say: object) -> Any:
    raise SourceError("the connection was refused")


def last_night(metrics: Path, scan: Run) -> float:
    """Write the metrics of an earlier, complete scan, and return when it ended."""
    scan()
    earlier = 1_600_000_000
    text = metrics.read_text()
    now = int(value(read(metrics), "etcdfix_scan_timestamp_seconds"))
    metrics.write_text(text.replace(str(now), str(earlier)))
    return earlier


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (SourceError("the connection was refused"), 5),
        (EndedEarly("ended by SIGTERM", 143), 143),
        (EndedEarly("ended by --timeout 1s", 3, 5), 5),
        (KeyboardInterrupt(), 130),
        (MemoryError(), 3),
        (ZeroDivisionError(), 3),
    ],
    ids=lambda one: one if isinstance(one, int) else type(one).__name__,
)
def test_a_scan_that_examined_nothing_does_not_leave_last_nights_file_green(
    scan: Run, command: Run, metrics: Path, monkeypatch: pytest.MonkeyPatch, failure: BaseException, code: int
) -> None:
    earlier = last_night(metrics, scan)

    def fails(_inputs: object, say: object) -> Any:
        raise failure

    monkeypatch.setattr(scan_module, "open_source", fails)
    before = int(time.time())
    got, out, _err = command("scan", "--metrics-file", metrics)
    assert (got, out) == (code, "")
    found = read(metrics)
    assert names(found) == FAILED_NAMES, "no 0 stands for what nobody looked at"
    assert value(found, "etcdfix_scan_exit_code") == code
    assert value(found, "etcdfix_scan_complete") == value(found, "etcdfix_scan_reached_end") == 0
    assert value(found, "etcdfix_scan_timestamp_seconds") >= before
    assert value(found, "etcdfix_scan_last_complete_timestamp_seconds") == earlier


def test_a_configuration_that_breaks_a_rule_is_in_the_file(
    command: Run, metrics: Path, tmp_path: Path
) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("kind: Nothing\n")
    code, _out, _err = command(
        "scan", *READ[:2], "--encryption-config", wrong, "--cluster-name", "prod", "--metrics-file", metrics
    )
    found = read(metrics)
    assert code == value(found, "etcdfix_scan_exit_code", cluster="prod") == 2
    assert value(found, "etcdfix_scan_complete", cluster="prod") == 0


def test_a_scan_that_was_lost_midway_has_the_counts_of_what_it_saw(scan: Run, metrics: Path) -> None:
    earlier = last_night(metrics, scan)
    source = MemorySource(BROKEN, fails_after=2)
    code, _out, _err = scan(source=source)
    found = read(metrics)
    assert code == value(found, "etcdfix_scan_exit_code") == 3
    assert (
        names(found) == FAILED_NAMES | COUNTED_NAMES - {"etcdfix_scan_cause_keys"}
        or names(found) == FAILED_NAMES | COUNTED_NAMES
    )
    assert value(found, "etcdfix_scan_complete") == value(found, "etcdfix_scan_reached_end") == 0
    assert value(found, "etcdfix_scan_last_complete_timestamp_seconds") == earlier


def test_a_scan_that_was_ended_has_the_counts_of_what_it_saw(scan: Run, metrics: Path) -> None:
    source = MemorySource(BROKEN, fails_after=2, failure=EndedEarly("ended by SIGTERM", 143))
    code, _out, _err = scan("-o", "json", source=source)
    found = read(metrics)
    assert code == value(found, "etcdfix_scan_exit_code") == 143
    assert value(found, "etcdfix_scan_complete") == value(found, "etcdfix_scan_reached_end") == 0
    assert sum(series(found, "etcdfix_scan_keys").values()) > 0


def test_undetermined_values_are_incomplete_though_all_was_seen(
    scan: Run, command: Run, metrics: Path
) -> None:
    code, _out, _err = command("scan", *READ, "--fail-on", "none", "--metrics-file", metrics)
    found = read(metrics)
    assert code == value(found, "etcdfix_scan_exit_code") == 0
    assert value(found, "etcdfix_scan_complete") == 0
    assert value(found, "etcdfix_scan_reached_end") == 1
    assert value(found, "etcdfix_scan_snapshot_timestamp_seconds") == int(Path(SNAPSHOT).stat().st_mtime)


def test_no_key_below_the_prefix_is_no_scan_with_zeros(command: Run, metrics: Path) -> None:
    code, _out, _err = command("scan", *READ, "--etcd-prefix", "/nowhere", "--metrics-file", metrics)
    found = read(metrics)
    assert code == value(found, "etcdfix_scan_exit_code") == 5
    assert value(found, "etcdfix_scan_reached_end") == 0
    assert "etcdfix_scan_keys" not in names(found)


def test_counts_are_those_of_the_report(command: Run, metrics: Path) -> None:
    _code, out, _err = command("scan", *READ, "-o", "json", "--metrics-file", metrics)
    summary = json.loads(out)["summary"]
    found = read(metrics)
    keys = series(found, "etcdfix_scan_keys")
    assert sum(keys.values()) == summary["keys"]
    assert keys["decrypt-failure",] == summary["decrypt_failures"]
    assert series(found, "etcdfix_scan_cause_keys") == {
        (one["cause"], one["outcome"]): one["count"] for one in summary["by_cause"]
    }
    stale = series(found, "etcdfix_scan_resource_stale_keys")
    assert sum(stale.values()) == summary["stale"] == value(found, "etcdfix_scan_stale_keys")
    resources = series(found, "etcdfix_scan_resource_keys")
    assert sum(resources.values()) == sum(one["keys"] for one in summary["by_resource"])
    under = series(found, "etcdfix_scan_transformer_failing_keys")
    assert sum(under.values()) == sum(one["failures"] for one in summary["by_transformer"])


def test_no_name_of_an_object_stands_in_the_file(command: Run, metrics: Path) -> None:
    _code, out, _err = command("scan", *READ, "-o", "json", "--metrics-file", metrics)
    told = "\n".join(line for line in metrics.read_text().splitlines() if not line.startswith("#"))
    for finding in json.loads(out)["findings"]:
        assert finding["key"] not in told
        assert f'"{finding["name"]}"' not in told


def test_merged_shards_are_a_whole_scan(command: Run, metrics: Path, tmp_path: Path) -> None:
    command("scan", *READ, "--metrics-file", metrics)
    whole = read(metrics)
    shards = [tmp_path / f"{index}.json" for index in (1, 2)]
    for index, path in enumerate(shards, start=1):
        command("scan", *READ, "--shard", f"{index}/2", "-o", "json", "--output-file", path)
    code, _out, _err = command("report", "merge", *shards, "--metrics-file", metrics)
    merged = read(metrics)
    assert code == value(merged, "etcdfix_scan_exit_code") == 3
    finished = max(json.loads(path.read_text())["finished_at"] for path in shards)
    assert (
        time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(value(merged, "etcdfix_scan_timestamp_seconds")))
        == finished
    )
    assert {place: number for place, number in merged.items() if "_seconds" not in place[0]} == {
        place: number for place, number in whole.items() if "_seconds" not in place[0]
    }
    code, _out, _err = command("report", "merge", shards[0], "--metrics-file", metrics)
    assert code == 3
    assert value(read(metrics), "etcdfix_scan_reached_end") == 0


def test_no_report_makes_a_scan_newer_than_now(command: Run, metrics: Path, tmp_path: Path) -> None:
    shard = tmp_path / "1.json"
    command("scan", *READ, "--shard", "1/1", "-o", "json", "--output-file", shard)
    told = json.loads(shard.read_text())
    shard.write_text(shard.read_text().replace(told["finished_at"], "2999-01-01T00:00:00Z"))
    command("report", "merge", shard, "--metrics-file", metrics)
    found = read(metrics)
    assert value(found, "etcdfix_scan_keys", outcome="readable")
    assert value(found, "etcdfix_scan_timestamp_seconds") <= time.time()
    assert value(found, "etcdfix_scan_last_complete_timestamp_seconds") <= time.time()


def test_shards_that_cannot_be_read_are_of_the_same_cluster_as_before(
    command: Run, metrics: Path, tmp_path: Path
) -> None:
    command("scan", *READ, "--cluster-name", "prod", "--metrics-file", metrics)
    code, _out, _err = command("report", "merge", tmp_path / "missing.json", "--metrics-file", metrics)
    found = read(metrics)
    assert code == value(found, "etcdfix_scan_exit_code", cluster="prod") != 0
    assert value(found, "etcdfix_scan_reached_end", cluster="prod") == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["scan", *READ, "--shard", "1/2"],
            "--metrics-file and --shard do not go together: give it to report merge",
        ),
        (["report", "merge", "--fleet", "x.json"], "--metrics-file and --fleet do not go together"),
    ],
)
def test_what_is_no_whole_scan_has_no_metrics(
    command: Run, metrics: Path, arguments: list[str], said: str
) -> None:
    code, _out, err = command(*arguments, "--metrics-file", metrics)
    assert code == 2
    assert said in err
    assert not metrics.exists()


def test_places_that_are_none(command: Run, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    link = tmp_path / "link.prom"
    link.symlink_to(tmp_path / "elsewhere.prom")
    log = tmp_path / "audit.jsonl"
    log.write_text(
        '{"kind":"Event","apiVersion":"audit.k8s.io/v1","annotations":{"etcdfix.io/sequence":"1"}}\n'
    )
    config = tmp_path / "enc.yaml"
    config.write_bytes((ALPHA / "config-lost.yaml").read_bytes())
    foreign = tmp_path / "node.prom"
    foreign.write_text("# HELP node_x Somebody else's.\n")
    (tmp_path / "pipe").symlink_to("/dev/null")
    os.mkfifo(tmp_path / "fifo")
    for path, said in {
        "-": "--metrics-file - is no file",
        str(tmp_path): f"--metrics-file {tmp_path} is no regular file",
        "/dev/stdout": "--metrics-file /dev/stdout is a symbolic link",
        "/dev/null": "--metrics-file /dev/null is no regular file",
        ".": "--metrics-file .: Is a directory",
        str(tmp_path / "fifo"): "is no regular file",
        str(link): "is a symbolic link, which is not followed",
        str(log): "is an audit log of etcdfix, which is never written over",
        str(config): "EncryptionConfiguration, which is never written over",
        str(foreign): "the file that stands there was not written by this option",
        str(tmp_path / "nowhere" / "x.prom"): "No such file or directory",
        str(report): "--metrics-file and --output-file name the same file",
    }.items():
        before = sorted((one.name, one.lstat().st_size) for one in tmp_path.iterdir())
        code, out, err = command("scan", *READ, "--output-file", report, "--metrics-file", path)
        assert (code, out) == (2, ""), path
        assert said in err, path
        assert sorted((one.name, one.lstat().st_size) for one in tmp_path.iterdir()) == before


def test_a_file_that_is_read_is_not_written_over(command: Run, tmp_path: Path) -> None:
    missing = tmp_path / "missing.yaml"
    code, _out, err = command("scan", *READ[:2], "--encryption-config", missing, "--metrics-file", missing)
    assert code == 2
    assert f"--metrics-file {missing} is a file that this command reads" in err


def test_an_empty_file_of_that_name_is_replaced(scan: Run, metrics: Path) -> None:
    metrics.touch(mode=0o600)
    scan()
    assert value(read(metrics), "etcdfix_scan_complete") == 1
    assert stat.S_IMODE(metrics.stat().st_mode) == 0o644


def test_a_name_that_node_exporter_does_not_read_is_said(scan: Run, tmp_path: Path) -> None:
    code, _out, err = scan("--metrics-file", tmp_path / "etcdfix.txt")
    assert code == 0
    assert "node_exporter reads only files that end with .prom" in err


def test_a_full_disk_leaves_the_earlier_file_and_is_told(
    scan: Run, metrics: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scan()
    before = metrics.read_bytes()
    report = tmp_path / "report.json"

    def full(_descriptor: int) -> None:
        if report.exists():  # the report comes first: it must be there whatever becomes of the metrics
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    code, _out, err = scan("-o", "json", "--output-file", report)
    assert code == 3
    assert f"No space left on device ({metrics})" in err
    assert json.loads(report.read_text())["complete"] is True
    assert metrics.read_bytes() == before
    assert [*metrics.parent.iterdir()] == [metrics]


def test_a_report_that_cannot_be_written_is_a_scan_that_failed(
    scan: Run, metrics: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", FullOnce())
    code, _out, err = scan("-o", "json", "--output-file", tmp_path / "report.json")
    assert (code, "No space left on device" in err) == (3, True)
    assert not (tmp_path / "report.json").exists()
    found = read(metrics)
    assert names(found) == FAILED_NAMES
    assert value(found, "etcdfix_scan_exit_code") == 3
    assert value(found, "etcdfix_scan_complete") == 0


class FullOnce:
    """There is no room the first time, and there is the next."""

    def __init__(self) -> None:
        self._called = False

    def __call__(self, _descriptor: int) -> None:
        called, self._called = self._called, True
        if not called:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_failed_scan_and_a_full_disk_are_both_told(
    scan: Run, command: Run, metrics: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scan()
    before = metrics.read_bytes()

    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    monkeypatch.setattr(scan_module, "open_source", fails)
    code, _out, err = command("scan", "--metrics-file", metrics)
    assert code == 5
    assert (
        f"--metrics-file {metrics}: No space left on device; what stands there is of an earlier scan" in err
    )
    assert "the connection was refused" in err
    assert metrics.read_bytes() == before


def test_what_came_to_stand_there_meanwhile_is_not_replaced(
    scan: Run, metrics: Path, monkeypatch: pytest.MonkeyPatch, command: Run
) -> None:
    def moved(_inputs: object, say: object) -> Any:
        metrics.symlink_to("/etc/passwd")
        raise SourceError("the connection was refused")

    monkeypatch.setattr(scan_module, "open_source", moved)
    code, _out, err = command("scan", "--metrics-file", metrics)
    assert code == 5
    assert "is a symbolic link, which is not followed; what stands there is of an earlier scan" in err


def test_two_runs_at_once_leave_one_whole_file(metrics: Path, no_variables: None) -> None:
    words = [sys.executable, "-m", "etcdfix", "scan", *READ, "-o", "name", "--metrics-file", str(metrics)]
    seen: list[bytes] = []
    ended = threading.Event()

    def watch() -> None:
        while not ended.is_set():
            if metrics.exists():
                seen.append(metrics.read_bytes())

    watching = threading.Thread(target=watch)
    watching.start()
    running = [subprocess.Popen(words, stdout=subprocess.DEVNULL) for _ in range(2)]
    assert [one.wait() for one in running] == [3, 3]
    ended.set()
    watching.join()
    read(metrics)
    for contents in set(seen):
        read_metrics(contents)


def test_a_variable_names_it_too(
    scan: Run, command: Run, metrics: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ETCDFIX_METRICS_FILE", str(metrics))
    command("scan", *READ)
    assert "etcdfix_scan_keys" in names(read(metrics))
