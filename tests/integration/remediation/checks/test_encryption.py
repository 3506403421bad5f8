"""A cluster without encryption at rest: said by ``--no-encryption``, contradicted by what etcd holds."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from etcdfix.remediation.cluster import looks_enveloped
from etcdfix.testing.servers import EtcdServer
from tests.support.change_runs import ACKNOWLEDGED, Ran, Registry, follow_up
from tests.support.fixtures import Captured, Patch, StartEtcd
from tests.support.objects import aescbc, config_map, namespace_object, secret

pytestmark = pytest.mark.etcd

DAMAGED = b"k8s\x00" + config_map("damaged")[4:-3]


@pytest.fixture(scope="module")
def own_etcd(start_etcd: StartEtcd) -> EtcdServer:
    return start_etcd()


@pytest.fixture
def registry(own_etcd: EtcdServer, prefix: bytes, tmp_path: Path, capfd: Captured) -> Iterator[Registry]:
    found = Registry(own_etcd, prefix, tmp_path, capfd)
    yield found
    own_etcd.etcdctl("del", "--prefix", "")


@pytest.fixture
def plain(registry: Registry) -> Registry:
    for name in ("good-0", "good-1", "broken"):
        registry.etcd.delete(registry.key(f"shop/{name}"))
    registry.put("shop/good", config_map("good"), "configmaps")
    registry.put("shop/damaged", DAMAGED, "configmaps")
    return registry


def delete(registry: Registry, *arguments: str, name: str = "shop/damaged") -> Ran:
    key = registry.key(name, "configmaps").decode()
    given = [ACKNOWLEDGED, "--yes", "--no-encryption", *arguments]
    return registry.run("delete", key, *given, *registry.common(configured=False))


def test_a_deletion_says_and_records_it(plain: Registry) -> None:
    ran = delete(plain)
    assert ran.code == 0, ran.err
    assert "Encryption  none at rest, as you say (--no-encryption)" in ran.err
    grounds = plain.records()[-1].grounds
    assert grounds is not None
    assert (grounds.no_encryption, grounds.configuration_sha256) == (True, None)
    (backup,) = plain.kept()
    assert backup.content.grounds is not None
    assert backup.content.grounds.no_encryption
    undo = follow_up(ran.out, "Undo")
    words = shlex.split(undo.removeprefix("etcdfix "))
    back = plain.run(*words, "--yes", "--backup-dir", str(plain.backups))
    assert back.code == 0, back.err
    assert plain.stored(plain.key("shop/damaged", "configmaps")) == DAMAGED


def test_without_either_nothing_is_deleted(plain: Registry) -> None:
    with plain.untouched():
        ran = plain.run(
            "delete", plain.key("shop/damaged", "configmaps").decode(), ACKNOWLEDGED, "--yes",
            *plain.common(configured=False),
        )  # fmt: skip
    plain.refused(ran, "no encryption configuration was given", hint="--no-encryption")


def test_one_encrypted_value_anywhere_refuses(plain: Registry) -> None:
    plain.put("other/one", aescbc(secret("one")))
    with plain.untouched():
        ran = delete(plain)
    plain.refused(
        ran, "--no-encryption, and the value of", "secrets/other/one", hint="--encryption-config FILE"
    )


def test_an_encrypted_value_under_another_prefix_refuses(plain: Registry) -> None:
    """Two clusters in one etcd, or a prefix that was changed: there is encryption at rest in this etcd."""
    assert delete(plain).code == 0
    backup = plain.kept()[0]
    plain.put("shop/damaged", DAMAGED, "configmaps")
    other = b"/other-cluster/secrets/shop/one"
    plain.etcd.put(other, aescbc(secret("one")))
    try:
        with plain.untouched():
            ran = delete(plain)
        plain.refused(
            ran, "--no-encryption, and the value of", other.decode(), hint="--encryption-config FILE"
        )
        plain.etcd.delete(plain.key("shop/damaged", "configmaps"))
        with plain.untouched():
            ran = plain.undo(backup.path, "--no-encryption", configured=False)
        plain.refused(ran, "--no-encryption, and the value of", other.decode(), hint="an undo needs neither")
    finally:
        plain.etcd.delete(other)


@pytest.mark.parametrize("value", [b"k8s:enc:aescbc:v1:key1:short", b"k8c:enc:aescbc:v1:key1:" + bytes(40)])
def test_the_value_in_question_is_encrypted_itself(plain: Registry, value: bytes) -> None:
    plain.put("shop/damaged", value, "configmaps")
    with plain.untouched():
        ran = delete(plain)
    plain.refused(ran, "--no-encryption, and the value of", "shop/damaged", hint="--encryption-config FILE")


def test_both_contradict_each_other(plain: Registry) -> None:
    with plain.untouched():
        ran = delete(plain, "--encryption-config", str(plain.config))
    assert ran.code == 2
    assert "one of them is wrong" in ran.err
    ran = plain.run("scan", "--no-encryption", *plain.common(places=False, reason=None))
    assert ran.code == 2


def test_a_manifest_that_names_one_contradicts_it(plain: Registry) -> None:
    manifest = plain.folder / "manifest.yaml"
    manifest.write_text(
        "spec: {containers: [{image: kube-apiserver, command: "
        f"[kube-apiserver, --etcd-servers=http://{plain.etcd.endpoint}, "
        f"--encryption-provider-config={plain.config}]}}]}}\n"
    )
    ran = delete(plain, "--manifest", str(manifest))
    assert ran.code == 2
    assert str(plain.config) in ran.err


def test_no_variable_says_it_to_a_change(plain: Registry, monkeypatch: Patch) -> None:
    monkeypatch.setenv("ETCDFIX_NO_ENCRYPTION", "1")
    key = plain.key("shop/damaged", "configmaps").decode()
    ran = plain.run("delete", key, ACKNOWLEDGED, "--yes", *plain.common(configured=False))
    assert ran.code == 4
    assert "not heeded: ETCDFIX_NO_ENCRYPTION" in ran.err


def test_what_a_scan_prints_works_as_pasted(plain: Registry) -> None:
    """The scan had neither, and nothing is encrypted."""
    where = ["--endpoints", plain.endpoints, "--etcd-prefix", plain.prefix]
    report = plain.folder / "report.json"
    ran = plain.run("scan", *where, "-o", "json", "--output-file", str(report))
    assert ran.code == 1, ran.err
    (finding,) = json.loads(report.read_text())["findings"]
    commands = [remedy["command"] for remedy in finding["remedies"]]
    printed = next(command for command in commands if command.startswith("etcdfix delete"))
    places = ["--backup-dir", str(plain.backups), "--audit-log", str(plain.log)]
    with plain.untouched():
        ran = plain.run(*shlex.split(printed)[1:], *places)
    assert ran.code == 0, ran.err
    for command in commands:
        if command.startswith("etcdfix scan"):
            assert "no-encryption" not in command


def test_a_plan_of_such_a_cluster(plain: Registry) -> None:
    where = ["--endpoints", plain.endpoints, "--etcd-prefix", plain.prefix]
    report, plan = plain.folder / "report.json", plain.folder / "plan.json"
    assert plain.run("scan", *where, "-o", "json", "--output-file", str(report)).code == 1
    ran = plain.run("plan", "--from-report", str(report), *where, "-o", "json")
    assert ran.code == 2
    assert "--no-encryption" in ran.err
    into = ["-o", "json", "--output-file", str(plan)]
    ran = plain.run("plan", "--from-report", str(report), "--no-encryption", *where, *into)
    assert ran.code in {0, 1}, ran.err
    document = json.loads(plan.read_text())
    assert document["encryption_config"] is None
    ran = plain.run("plan", "--from-report", str(report), "--no-encryption", *where)
    assert "nothing is encrypted at rest" in ran.out
    (entry,) = document["entries"]
    places = ["--backup-dir", str(plain.backups), "--audit-log", str(plain.log)]
    ran = plain.run(*shlex.split(entry["command"])[1:], *places)
    assert ran.code == 0, ran.err
    ran = plain.run(
        "plan", "--from-report", str(report), *where, "--encryption-config", str(plain.config), "-o", "json"
    )
    assert ran.code == 2


@pytest.mark.parametrize("value", [b"", b"k8s", b"k8s\x00\x0a\x0c", b'{"kind":', namespace_object("a")])
def test_what_is_not_encrypted(value: bytes) -> None:
    assert not looks_enveloped(value)


@pytest.mark.parametrize("bits", range(1, 6))
def test_an_envelope_is_known_by_all_but_three_bits(bits: int) -> None:
    begins = bytes([ord("k") ^ (1 << bits) - 1]) + b"8s:enc:"
    assert looks_enveloped(begins + b"aescbc:v1:key1:") is (bits <= 3)
