"""The Job of many clusters as its manifest has it: a Pod for each snapshot, and the merge of their reports."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest

from etcdfix.cli.root import run
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

VOLUMES = ("snapshots", "configurations", "reports", "tmp")
SECRET = "/registry/secrets/shop/web"


@pytest.fixture
def volumes(tmp_path: Path) -> dict[str, Path]:
    found = {name: tmp_path / name for name in VOLUMES}
    for volume in found.values():
        volume.mkdir()
    for index, key in enumerate((KEY_1, KEY_2)):
        uid = str(uuid.UUID(int=index))
        objects = {
            "/registry/namespaces/kube-system": namespace_object("kube-system", uid),
            "/registry/configmaps/shop/a": config_map("a"),
            SECRET: aesgcm(secret(), SECRET, key),
        }
        stored = (put(n, name.encode(), value) for n, (name, value) in enumerate(objects.items(), 2))
        (found["snapshots"] / f"{index}.db").write_bytes(database(stored))
    (found["snapshots"] / "2.db").write_bytes(b"no snapshot")
    for index in range(3):
        configuration = configuration_yaml(provider("aesgcm", key1=KEY_1))
        (found["configurations"] / f"{index}.yaml").write_bytes(configuration)
    return found


def test_each_index_scans_its_cluster_and_the_reports_are_merged(
    volumes: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    job = the_only(DEPLOY / "clusters.yaml", "Job")
    ended = [PlayedPod(job, volumes, index=index).run() for index in range(3)]
    assert [code for code, _ in ended] == [0, 0, 5], ended
    files = [str(volumes["reports"] / f"run-1-{index}.json") for index in range(3)]
    assert run(["report", "merge", *files, "-o", "json"]) == 3
    merged = json.loads(capsys.readouterr().out)
    rows = [(row["cluster"], row["complete"], row["exit_code"]) for row in merged["reports"]]
    assert rows == [(str(uuid.UUID(int=0)), True, 0), (str(uuid.UUID(int=1)), True, 1)]
    assert [one["report"] for one in merged["left_out"]] == files[2:]
