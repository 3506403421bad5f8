"""The best way to put an object back is one: scan, explain, plan and fix say the same, in the same words."""

from __future__ import annotations

import gzip
import json
import shlex
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from etcdfix.cli.root import run
from etcdfix.testing.servers import EtcdServers
from tests.support.collecting import ALPHA
from tests.support.fixtures import Captured

pytestmark = [pytest.mark.etcd, pytest.mark.thorough]


def told(capfd: Captured, *arguments: str) -> dict[str, Any]:
    code = run([*arguments, "-o", "json"])
    said = capfd.readouterr()
    assert code in {0, 1, 3}, (arguments, said.err)
    return dict(json.loads(said.out))


def copies_among(ways: list[dict[str, Any]]) -> list[dict[str, Any]]:
    kept = [way for way in ways if way["verb"] in {"fix", "save"}]
    return [way for way in kept if " --from memory " not in way["command"]]


def test_every_finding_of_damaged_cluster(etcd_servers: EtcdServers, tmp_path: Path, capfd: Captured) -> None:
    snapshot = tmp_path / "alpha.db"
    snapshot.write_bytes(gzip.decompress((ALPHA / "snapshot.db.gz").read_bytes()))
    server = etcd_servers.start(snapshot=snapshot)
    config = str(ALPHA / "config-lost.yaml")
    where = ["--endpoints", server.endpoint, "--encryption-config", config, "--no-kms"]
    scanned = told(capfd, "scan", *where)
    report = tmp_path / "scan.json"
    report.write_text(json.dumps(scanned))
    planned = told(capfd, "plan", "--from-report", str(report), *where)
    entries = {entry["key"]: entry for entry in planned["entries"]}
    places = ["--backup-dir", str(tmp_path / "backups"), "--audit-log", str(tmp_path / "audit.jsonl")]
    tmp_path.chmod(0o700)
    (tmp_path / "backups").mkdir(mode=0o700)
    listed = {one["key"]: one for one in told(capfd, "copies", *where)["objects"]}
    seen: Counter[str] = Counter()
    for finding in scanned["findings"]:
        key, ways = finding["key"], copies_among(finding["remedies"])
        if not ways:
            continue
        best = ways[0]
        explained = told(capfd, "explain", key, *where)
        assert copies_among(explained["remedies"])[:1] == [best], key
        assert listed[key]["next"] == explained["next"], key
        seen[best["verb"]] += 1
        if key not in entries:
            continue
        entry = entries[key]
        words = shlex.split(best["command"])
        if best["verb"] == "save":
            assert entry["from"] == ""
            continue
        source = words[words.index("--from") + 1]
        if not entry["from"]:  # only a person can say so
            assert "--accept unproven-repair" in best["command"], key
            continue
        assert entry["from"] == source, key
        assert entry["command"].startswith(best["command"])
        seen[source.partition(":")[0]] += 1
        if "--accept" not in entry["command"] and "--declare-key-lost" not in entry["command"]:
            assert run(["fix", key, *where, *places, "--reason", "test", "--dry-run"]) == 0, key
            which = best["note"].partition(".")[0] if source == "bit" else source.replace(":", " ")
            assert which.lower() in " ".join(capfd.readouterr().err.lower().split()), key
            seen["fixed"] += 1
    assert min(seen["bit"], seen["revision"], seen["fixed"]) >= 5, seen
