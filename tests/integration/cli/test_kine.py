"""k3s on SQLite beside a real etcd with the same objects: every command that looks says the same of both."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from etcdfix.cli.root import run
from etcdfix.sources.snapshot import SnapshotSource
from etcdfix.testing.servers import EtcdServer
from tests.support.collecting import ALPHA, REPOSITORY
from tests.support.fixtures import StartEtcd
from tests.support.kine import KineWriter, Release

pytestmark = [pytest.mark.etcd, pytest.mark.usefixtures("no_variables")]

OUTSIDE = b"/outside/counter"
COMPACTION = b"compact_rev_key"
# What names a source, or a command for it, or speaks of the time; and where a file is not a live etcd.
ABOUT_THE_SOURCE = frozenset(
    {
        "action", "at_stake", "number", "command", "commands", "compacted_revision", "do_not_restart", "finished_at",
        "from_old_value", "generated_at", "get", "next", "note", "plan",
        "groups", "remedies",
        "restore", "restore_note", "save", "source", "steps", "older_versions", "estimate",
    }
)  # fmt: skip
NOT_SOUGHT = "earlier-revision"


class Both(NamedTuple):
    """One history in two stores, revision by revision."""

    etcd: EtcdServer
    state: Path
    revision: int
    keys: list[bytes]


WRITER = """
import sys, time
from pathlib import Path
from tests.support.kine import KineWriter, Release

writer = KineWriter(Path(sys.argv[1]), Release.NEW)
print("ready", flush=True)
count = 0
while True:
    count += 1
    # The same row anew: a revision more would not be one of etcd's.
    value = b"%d" % (count % 10)
    writer.connection.execute("UPDATE kine SET value = ? WHERE name = '/outside/counter'", (value,))
    if count % 50 == 0:
        writer.checkpoint(("FULL", "TRUNCATE")[count // 50 % 2])
    time.sleep(0.002)
"""


@pytest.fixture(scope="module")
def both(start_etcd: StartEtcd, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    with SnapshotSource(ALPHA / "snapshot.db.gz") as source:
        values = [stored for stored in source.current(b"") if stored.key != COMPACTION]
    etcd = start_etcd()
    state = tmp_path_factory.mktemp("k3s") / "state.db"
    kine = KineWriter(state, Release.OLD)
    releases = list(Release)
    for number, stored in enumerate(values):
        kine.upgrade(releases[number * len(releases) // len(values)])
        if number % 7 == 0:  # a generation before
            assert etcd.put(stored.key, b"gone") == kine.put(stored.key, b"gone")
            etcd.delete(stored.key)
            kine.delete(stored.key)
        if number % 5 == 0:  # an earlier value, and one that reads where the present one does not
            earlier = values[number - 1].value
            assert etcd.put(stored.key, earlier) == kine.put(stored.key, earlier)
        assert etcd.put(stored.key, stored.value) == kine.put(stored.key, stored.value)
    assert etcd.put(OUTSIDE, b"0") == kine.put(OUTSIDE, b"0")
    kine.close()
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, state], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    yield Both(etcd, state, etcd.revision(), [one.key for one in values[7::160]])
    process.kill()
    process.communicate(timeout=30)


def _only_of_etcd(item: dict[str, Any]) -> bool:
    return item.get("check") == NOT_SOUGHT or item.get("action", "").startswith("Repair it: ")


def without_source(document: Any) -> Any:
    if isinstance(document, dict):
        return {name: without_source(one) for name, one in document.items() if name not in ABOUT_THE_SOURCE}
    if isinstance(document, list):
        return [without_source(one) for one in document if not (isinstance(one, dict) and _only_of_etcd(one))]
    return document


def told(folder: Path, *words: str | Path) -> tuple[int, Any]:
    target = folder / "report.json"
    target.unlink(missing_ok=True)
    code = run([*map(str, words), "-o", "json", "--output-file", str(target)])
    if not target.exists():
        return code, None
    document = json.loads(target.read_bytes())
    return code, document


def compare(folder: Path, both: Both, *words: str | Path) -> Any:
    live_code, live = told(folder, *words, "--endpoints", both.etcd.endpoint)
    code, found = told(folder, *words, "--kine", both.state)
    assert code == live_code
    assert without_source(found) == without_source(live)
    assert found is not None
    return found


@pytest.mark.parametrize("config", ["config-rotated.yaml", None])
def test_a_scan(both: Both, tmp_path: Path, config: str | None) -> None:
    options: list[str | Path] = ["--encryption-config", ALPHA / config] if config else []
    found = compare(tmp_path, both, "scan", "--no-kms", *options)
    source = found["source"]
    assert (source["type"], source["path"], source["revision"]) == ("kine", str(both.state), both.revision)
    assert found["summary"]["keys"] > 490
    commands = json.dumps([one["remedies"] for one in found["findings"]])
    assert "--kine" in commands
    for word in ("etcdfix delete", "etcdfix undo", "--from bit", "--from revision", "etcdctl"):
        assert word not in commands


@pytest.mark.parametrize(
    "command", [["scan", "--orphans"], ["encryption", "usage"], ["namespace", "default"]]
)
def test_what_looks_at_everything(both: Both, tmp_path: Path, command: list[str]) -> None:
    compare(tmp_path, both, *command, "--no-kms", "--encryption-config", ALPHA / "config-rotated.yaml")


@pytest.mark.parametrize("option", [[], ["--history"], ["--impact"]])
def test_what_looks_at_one_key(both: Both, tmp_path: Path, option: list[str]) -> None:
    for key in both.keys[: 1 if option == ["--impact"] else None]:
        config = ALPHA / "config-rotated.yaml"
        compare(tmp_path, both, "explain", key.decode(), *option, "--no-kms", "--encryption-config", config)


def test_a_plan(both: Both, tmp_path: Path) -> None:
    for option, where in (("--kine", str(both.state)), ("--endpoints", both.etcd.endpoint)):
        config = ["--encryption-config", str(ALPHA / "config-rotated.yaml"), "--no-kms"]
        code, report = told(tmp_path, "scan", option, where, *config)
        saved = tmp_path / f"scan{option}.json"
        saved.write_text(json.dumps(report))
        assert code == 3
        code, plan = told(tmp_path, "plan", "--from-report", saved, option, where, *config)
        assert plan["entries"]
        commands = [one["command"] for one in plan["entries"]]
        assert all(commands) == (option == "--endpoints")
        assert any(commands) == (option == "--endpoints")


def test_nothing_beside_the_file_is_made_or_changed(both: Both, tmp_path: Path) -> None:
    """Of a copy, whose writer was killed: what is there stays as it was, to the byte and the nanosecond."""
    folder = tmp_path / "copy"
    folder.mkdir()
    for suffix in ("", "-wal", "-shm"):
        (folder / f"state.db{suffix}").write_bytes(Path(f"{both.state}{suffix}").read_bytes())
    before = {
        path.name: (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns)
        for path in folder.iterdir()
    }
    inode = folder.stat().st_mtime_ns
    for words in (
        ["scan"],
        ["explain", "/registry/namespaces/default", "--history"],
        ["scan", "--orphans"],
        ["doctor"],
    ):
        run([*words, "--kine", str(folder / "state.db"), "--output-file", str(tmp_path / "out")])
    after = {
        path.name: (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns)
        for path in folder.iterdir()
    }
    assert after == before
    assert folder.stat().st_mtime_ns == inode


def test_the_writer_waits_for_nobody(both: Both) -> None:
    """No reader holds a checkpoint up: a FULL one is done at once while a source is open."""
    from etcdfix.sources.kine import KineSource

    with KineSource(both.state) as source:
        walk = source.current(b"")
        next(walk)
        writer = KineWriter(both.state)
        begun = time.monotonic()
        writer.connection.execute("UPDATE kine SET lease = lease WHERE name = '/outside/counter'")
        (busy, in_log, moved) = writer.connection.execute("PRAGMA wal_checkpoint(FULL)").fetchone()
        assert time.monotonic() - begun < 15
        writer.close()
    assert busy == 0 or in_log != moved  # the other writer may have it
