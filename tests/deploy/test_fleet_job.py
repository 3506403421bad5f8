"""A run of the fleet as the manifests have it: snapshots, eight pods at a time, one of which dies, the merge, a retry.

Forty snapshots; two hundred with ``ETCDFIX_TEST_THOROUGH=1``.
"""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import time
import uuid
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.support.bbolt_writer import database, put
from tests.support.kubelet import DEPLOY, PlayedPod, the_only
from tests.support.objects import (
    KEY_1,
    KEY_2,
    aesgcm,
    config_map,
    configuration_yaml,
    namespace_object,
    provider,
    secret,
)
from tests.support.thorough import THOROUGH

CLUSTERS = 200 if THOROUGH else 40
PARALLEL = 8
DIES = 11
LOST_KEY_EVERY = 10
_ATTEMPTS = 5


class Run:
    """The volumes of one run, and its Jobs.

    Args:
        folder: Empty.
        clusters: How many there are.
    """

    def __init__(self, folder: Path, clusters: int) -> None:
        self._volumes = {
            name: folder / name for name in ("list", "snapshots", "configurations", "reports", "tmp")
        }
        for volume in self._volumes.values():
            volume.mkdir()
        self.reports = self._volumes["reports"] / "fleet-1"
        self.names = [f"cluster-{number:03}" for number in range(clusters)]
        lines = [f"{name}\t/snapshots/{name}.db\t/configurations/{name}.yaml\t-\n" for name in self.names]
        scanning = self.pod("fleet-scan.yaml", 0)  # the same paths for all
        (self._volumes["list"] / "clusters.tsv").write_text(scanning.here("".join(lines)))
        for number, name in enumerate(self.names):
            self.snapshot(name, lost=number % LOST_KEY_EVERY == 0)
            (self._volumes["configurations"] / f"{name}.yaml").write_bytes(
                configuration_yaml(provider("aesgcm", key1=KEY_1))
            )

    def snapshot(self, name: str, *, lost: bool = False, config_maps: int = 20) -> None:
        """Write the snapshot of a cluster; its Secrets are under another key where its own is lost."""
        uid = str(uuid.uuid5(uuid.NAMESPACE_DNS, name))
        path = "/registry/secrets/shop/web"
        sealed = aesgcm(secret(), path, KEY_2 if lost else KEY_1)
        objects = [("/registry/namespaces/kube-system", namespace_object("kube-system", uid)), (path, sealed)]
        objects += [
            (f"/registry/configmaps/shop/c-{at:06}", config_map(f"c-{at:06}")) for at in range(config_maps)
        ]
        stored = (put(n, key.encode(), value) for n, (key, value) in enumerate(objects, 2))
        (self._volumes["snapshots"] / f"{name}.db").write_bytes(database(stored))

    def pod(self, manifest: str, index: int | None = None) -> PlayedPod:
        return PlayedPod(the_only(DEPLOY / manifest, "Job"), self._volumes, index=index)

    def scan(self, indexes: Iterable[int]) -> dict[int, int]:
        """Run the Job's pods, so many at a time; return their exit codes."""
        indexes = list(indexes)
        with ThreadPoolExecutor(PARALLEL) as nodes:
            ended = nodes.map(lambda index: self.pod("fleet-scan.yaml", index).run()[0], indexes)
            return dict(zip(indexes, ended, strict=True))

    def end_midway(self, index: int, number: signal.Signals, *, after_seconds: float = 0) -> int:
        """End the pod of an index once it has begun its report; return its exit code, 0 if that was too late."""
        process = self.pod("fleet-scan.yaml", index).start()
        while process.poll() is None and not writes_a_report(process, self.reports):
            time.sleep(0.005)
        time.sleep(after_seconds)
        process.send_signal(number)
        process.communicate()
        return process.returncode

    def kill(self, index: int) -> None:
        """Let the pod of an index die midway; no report is left."""
        self.snapshot(self.names[index], config_maps=20_000)  # or it would be whole before
        for _ in range(_ATTEMPTS):
            if self.end_midway(index, signal.SIGKILL) == -signal.SIGKILL:
                return
            self.report(index).unlink()
        raise AssertionError("it was always quicker than we")

    def stop(self, index: int) -> None:
        """Tell the pod of an index to stop midway; its report has some of the keys."""
        self.snapshot(self.names[index], config_maps=60_000)
        for attempt in range(_ATTEMPTS):
            self.report(index).unlink(missing_ok=True)
            ended = self.end_midway(index, signal.SIGTERM, after_seconds=0.1 * 2**attempt)
            if ended == 128 + signal.SIGTERM and self.report(index).exists():
                return
        raise AssertionError("it was always too early or too late")

    def report(self, index: int) -> Path:
        return self.reports / f"{self.names[index]}.json"

    def retry(self, index: int) -> int:
        pod = self.pod("fleet-retry.yaml")
        words = pod.container["args"]
        words[words.index("--index=0")] = f"--index={index}"
        return pod.run()[0]

    def table(self) -> str:
        """Return what the log of the merging Job shows."""
        pod = PlayedPod(the_only(DEPLOY / "fleet-merge.yaml", "Job"), self._volumes, container="table")
        return pod.run()[1]

    def merge(self) -> tuple[int, str, dict[str, Any]]:
        """Run the Job that merges; return its exit code, its log and its report."""
        code, log = self.pod("fleet-merge.yaml").run()
        report: dict[str, Any] = json.loads((self._volumes["reports"] / "fleet-1.json").read_text())
        return code, log, report


def writes_a_report(process: subprocess.Popen[bytes], reports: Path) -> bool:
    """Whether it has the file open that becomes the report: one without a name, or not yet with its own."""
    with contextlib.suppress(OSError):  # it ended
        for descriptor in Path(f"/proc/{process.pid}/fd").iterdir():
            with contextlib.suppress(OSError):  # closed meanwhile
                if descriptor.readlink().parent == reports.resolve():
                    return True
    return False


def test_what_a_dead_pod_leaves_is_named_and_its_index_run_again_completes_it(tmp_path: Path) -> None:
    fleet = Run(tmp_path, CLUSTERS)
    others = [index for index in range(CLUSTERS) if index != DIES]
    with ThreadPoolExecutor(1) as node:
        dying = node.submit(fleet.kill, DIES)
        ended = fleet.scan(others)
        dying.result()
    assert ended == dict.fromkeys(others, 0)  # findings are no failed pods
    name = fleet.names[DIES]
    assert not fleet.report(DIES).exists()

    code, log, merged = fleet.merge()
    assert code == 3
    assert name in log
    assert merged["complete"] is False
    (lacking,) = merged["left_out"]
    assert (lacking["cluster"], lacking["index"], lacking["reason"]) == (name, DIES, "missing")
    assert {row["name"] for row in merged["clusters"]} == set(fleet.names) - {name}
    assert re.search(rf"^\S+/{name}\.json +{name} +{DIES} +missing", fleet.table(), re.MULTILINE)
    lost = set(fleet.names[::LOST_KEY_EVERY])
    assert {row["name"] for row in merged["clusters"] if row["counts"]["decrypt_failures"]} == lost

    assert fleet.retry(DIES) == 0
    code, log, merged = fleet.merge()
    assert (code, merged["complete"], merged["left_out"]) == (0, True, [])
    assert {row["name"] for row in merged["clusters"]} == set(fleet.names)
    assert name not in log
    # What the dead one left, where anything, is no report, and nothing else is left.
    assert {path.suffix for path in fleet.reports.iterdir()} - {".partial"} == {".json"}
    assert list((tmp_path / "tmp").iterdir()) == []


def test_a_pod_that_is_told_to_stop_leaves_no_report_that_looks_whole(tmp_path: Path) -> None:
    fleet = Run(tmp_path, 2)
    assert fleet.scan([1]) == {1: 0}
    fleet.stop(0)
    assert json.loads(fleet.report(0).read_text())["complete"] is False
    code, log, merged = fleet.merge()
    assert (code, merged["complete"]) == (3, False)
    assert fleet.names[0] in log
    assert [row["name"] for row in merged["clusters"] if not row["complete"]] == [fleet.names[0]]
    assert fleet.retry(0) == 0
    assert fleet.merge()[0] == 0


def test_one_snapshot_that_cannot_be_read_ends_no_other(tmp_path: Path) -> None:
    fleet = Run(tmp_path, 3)
    (tmp_path / "snapshots" / f"{fleet.names[1]}.db").write_bytes(b"no snapshot")
    assert fleet.scan(range(4)) == {0: 0, 1: 5, 2: 0, 3: 2}  # there is no line for the last
    code, _, merged = fleet.merge()
    assert code == 3
    assert [one["cluster"] for one in merged["left_out"]] == [fleet.names[1]]
    fleet.snapshot(fleet.names[1])
    assert fleet.retry(1) == 0
    assert fleet.merge()[0] == 0


@pytest.mark.parametrize("content", [b"", b"{", b'{"findings": []}'])
def test_what_stands_under_the_name_of_a_report_and_is_none_is_named(tmp_path: Path, content: bytes) -> None:
    fleet = Run(tmp_path, 2)
    fleet.scan([1])
    fleet.report(0).write_bytes(content)
    code, _, merged = fleet.merge()
    assert code == 3
    assert [one["cluster"] for one in merged["left_out"]] == [fleet.names[0]]


def test_an_old_report_is_none_of_this_run(tmp_path: Path) -> None:
    """A pod that never ran, and a directory that was used before."""
    fleet = Run(tmp_path, 2)
    fleet.scan(range(2))
    path = fleet.report(0)
    report = json.loads(path.read_text())
    report["generated_at"] = report["finished_at"] = "2020-01-01T00:00:00Z"
    path.write_text(json.dumps(report))
    code, _, merged = fleet.merge()
    assert code == 3
    assert [(one["cluster"], one["reason"]) for one in merged["left_out"]] == [(fleet.names[0], "too-old")]
