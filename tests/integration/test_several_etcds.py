"""An API server that keeps a resource in an etcd of its own: every command looks where the server does."""

from __future__ import annotations

import base64
import json
import shlex
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from etcdfix.cli.root import run
from etcdfix.report.finding import finding_from
from etcdfix.testing.servers import EtcdServer
from tests.support.examinations import examination
from tests.support.objects import config_map, namespace_object, secret
from tests.support.saved_scans import write_report

pytestmark = pytest.mark.etcd

OWN = b"/registry/secrets/shop/web"
BROKEN = b"/registry/secrets/shop/broken"
LEFT = b"/registry/secrets/shop/left"


class Ground(NamedTuple):
    main: EtcdServer
    own: EtcdServer

    @property
    def words(self) -> list[str]:
        overrides = f"/secrets#http://{self.own.endpoint.removeprefix('http://')}"
        return ["--endpoints", self.main.endpoint, "--etcd-servers-overrides", overrides, "--no-encryption"]


@pytest.fixture(scope="module")
def ground(start_etcd: Callable[..., EtcdServer]) -> Ground:
    main, own = start_etcd(), start_etcd()
    main.put_all(
        [
            (b"/registry/namespaces/kube-system", namespace_object("kube-system")),
            (b"/registry/configmaps/shop/settings", config_map()),
            (LEFT, secret("left")),  # from before the resource had its own
        ]
    )
    own.put_all(
        [(OWN, secret()), (BROKEN, secret("broken")[:-3]), (b"/registry/configmaps/shop/not-here", b"{}")]
    )
    return Ground(main, own)


def document(folder: Path, *words: str) -> tuple[int, dict[str, Any]]:
    target = folder / "report.json"
    code = run([*words, "-o", "json", "--output-file", str(target)])
    return code, json.loads(target.read_bytes())


def test_a_scan_reads_each_resource_where_it_is(
    ground: Ground, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code, report = document(tmp_path, "scan", *ground.words)
    assert code == 1
    assert report["complete"]
    assert {one["resource"]: one["keys"] for one in report["summary"]["by_resource"]} == {
        "configmaps": 1, "namespaces": 1, "secrets": 2,
    }  # fmt: skip
    assert [finding["key"] for finding in report["findings"]] == [BROKEN.decode()]
    assert report["source"]["kube_system_uid"]
    assert not report["source"]["single_revision"]
    assert len(report["source"]["endpoints"]) == 2
    assert "left out: 1 key of the main etcd" in capfd.readouterr().err


def test_the_advice_leads_to_the_etcd_of_the_key(
    ground: Ground, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    _, report = document(tmp_path, "scan", *ground.words)
    (finding,) = report["findings"]
    commands = [remedy["command"] for remedy in finding["remedies"]]
    deletion = next(command for command in commands if command.startswith("etcdfix delete "))
    places = ["--backup-dir", str(tmp_path / "backups"), "--audit-log", str(tmp_path / "log")]
    (tmp_path / "backups").mkdir(mode=0o700)
    assert run([*shlex.split(deletion)[1:], *places]) == 0
    told = capfd.readouterr()
    assert f"DRY RUN: {BROKEN.decode()} would be deleted" in told.out
    assert f"at http://{ground.own.endpoint}" in told.err
    assert "this command reads no other one" in told.err


def test_a_report_tells_several_etcds_from_a_compaction(ground: Ground, tmp_path: Path) -> None:
    _, report = document(tmp_path, "scan", *ground.words)
    revisions = [segment["revision"] for segment in report["source"]["segments"]]
    # After a compaction, one etcd is read at a later one.
    assert any(later <= earlier for earlier, later in pairwise(revisions))


@pytest.mark.parametrize("word", [BROKEN.decode(), "base64:" + base64.b64encode(BROKEN).decode()])
def test_copies_and_compare_of_a_key_ask_its_own_etcd(ground: Ground, tmp_path: Path, word: str) -> None:
    code, report = document(tmp_path, "copies", word, *ground.words)
    assert code == 1
    assert [one["key"] for one in report["objects"]] == [BROKEN.decode()]
    code, report = document(tmp_path, "compare", word, *ground.words)
    assert code == 0
    assert ground.own.endpoint in json.dumps(report)
    assert ground.main.endpoint not in json.dumps(report)


def test_what_asks_one_etcd_refuses_resources_of_two(
    ground: Ground, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    told = (
        "configmaps and secrets lie in different etcds (--etcd-servers-overrides), and this command asks one"
    )
    assert run(["copies", "cm,secrets", *ground.words]) == 2
    assert told in capfd.readouterr().err
    report = write_report(
        tmp_path / "report.json",
        [finding_from(examination(b"/registry/configmaps/shop/a")), finding_from(examination(OWN))],
    )
    assert run(["copies", "--from-report", str(report), *ground.words]) == 2
    assert told in capfd.readouterr().err
