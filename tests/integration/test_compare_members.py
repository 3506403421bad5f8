"""``etcdfix compare`` on a real cluster of three: members that agree, differ in one key, or do not answer."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from etcdfix.cli.root import run
from etcdfix.testing.places import find_tools
from tests.support import objects
from tests.support.etcd_members import EtcdMembers, broken, etcd_members

pytestmark = pytest.mark.etcd

ODD = "member-2"
EDITED = "/registry/secrets/shop/edited"
KEYS = 302


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdMembers]:
    with etcd_members(tmp_path_factory.mktemp("compare")) as started:
        server = started.server("member-0")
        values = {f"/registry/secrets/shop/s-{n:03}": objects.secret(f"s-{n:03}") for n in range(KEYS - 2)}
        values[EDITED] = objects.secret("edited")
        values["/registry/namespaces/kube-system"] = objects.namespace_object("kube-system")
        server.put_all([(key.encode(), value) for key, value in values.items()])
        yield started


@pytest.fixture(scope="module")
def differing(members: EtcdMembers) -> EtcdMembers:
    members.stop(ODD)
    members.tamper(ODD, objects.secret("edited"), broken("edited"))
    members.start(ODD, state="existing")
    return members


def compare(
    members: EtcdMembers, capfd: pytest.CaptureFixture[str], *words: str, first: str = "member-0"
) -> tuple[int, dict[str, Any]]:
    endpoints = ["--endpoints", members.endpoint(first), "--no-encryption"]
    code = run(["compare", *endpoints, "-o", "json", *words])
    return code, json.loads(capfd.readouterr().out)


def test_members_that_agree(members: EtcdMembers, capfd: pytest.CaptureFixture[str]) -> None:
    code, report = compare(members, capfd)
    assert (code, report["keys"], report["differing"]) == (0, KEYS, 0)
    assert [copy["compared"] for copy in report["copies"]] == [True] * 3
    endpoints = ["--endpoints", ",".join(members.endpoints()), "--no-encryption"]
    for _ in range(5):
        members.server("member-1").put(EDITED.encode(), objects.secret("edited"))
        assert run(["scan", *endpoints]) == 0
    members.server("member-1").compact()
    assert run(["scan", *endpoints]) == 0


def test_the_edited_key_is_found_and_no_other(
    differing: EtcdMembers, capfd: pytest.CaptureFixture[str]
) -> None:
    for first in differing.names:
        code, report = compare(differing, capfd, first=first)
        assert (code, report["keys"], report["differing"]) == (1, KEYS, 1)
        (row,) = report["differences"]
        assert (row["key"], row["change"]) == (EDITED, "readable-on-some")
        assert [copy["outcome"] for copy in row["copies"]] == ["readable", "readable", "decode-failure"]
        assert len({copy["mod_revision"] for copy in row["copies"]}) == 1
        assert [copy["unreadable_here"] for copy in report["copies"]] == [0, 0, 1]


@pytest.mark.parametrize("command", ["scan", "doctor"])
def test_a_look_at_all_members_says_that_they_differ(
    differing: EtcdMembers, capfd: pytest.CaptureFixture[str], tmp_path: Path, command: str
) -> None:
    places = ["--backup-dir", str(tmp_path)] if command == "doctor" else []
    for first in differing.names:
        others = [name for name in differing.names if name != first]
        endpoints = ",".join(map(differing.endpoint, (first, *others)))
        code = run([command, "--endpoints", endpoints, "--no-encryption", *places])
        said = capfd.readouterr().out
        assert code != 0
        assert "NOTHING WRONG" not in said
        assert f"  etcdfix compare --endpoints {endpoints} --no-encryption" in said.splitlines()[:8]
        told = " ".join(said.split())
        wrong = [differing.endpoint(ODD)] if first != ODD else [differing.endpoint(name) for name in others]
        assert f"{differing.endpoint(first)} was read, and other data is at {', '.join(wrong)}" in told


def test_the_advice_begins_with_a_member_that_has_the_readable_copy(
    differing: EtcdMembers, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    _, report = compare(differing, capfd, first=ODD)
    assert ODD in report["advice"][3]["action"]
    program, *words = shlex.split(report["advice"][1]["command"])
    assert program == "etcdctl"
    words[-1] = str(tmp_path / "good.db")
    subprocess.run([find_tools().ctl, *words], check=True, capture_output=True)
    assert run(["scan", "--snapshot", str(tmp_path / "good.db"), "--no-encryption", EDITED]) == 0


def test_a_member_that_does_not_answer_is_told(
    differing: EtcdMembers, capfd: pytest.CaptureFixture[str]
) -> None:
    differing.stop(ODD)
    code, report = compare(differing, capfd)
    assert (code, report["complete"], report["differing"]) == (3, False, 0)
    assert [copy["compared"] for copy in report["copies"]] == [True, True, False]
    assert ODD in report["incomplete_reasons"][0]
    assert run(["compare", "--endpoints", differing.endpoint("member-0"), "--no-encryption"]) == 3
    assert capfd.readouterr().out.startswith("COULD NOT BE TOLD: no difference in ")
