"""``etcdfix encryption`` on a real etcd: a rotation from its beginning to its end, and a file that ``merge`` made."""

from __future__ import annotations

import base64
import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from etcdfix.cli.root import run
from etcdfix.model.rules import Rule
from etcdfix.testing.servers import EtcdServer
from tests.support.change_runs import BROKEN, Ran, Registry
from tests.support.fixtures import Captured, StartEtcd
from tests.support.objects import (
    IDENTITY,
    KEY_1,
    KEY_2,
    aescbc,
    aesgcm,
    configuration_yaml,
    namespace_object,
    provider,
    secret,
)

pytestmark = [pytest.mark.etcd, pytest.mark.usefixtures("no_variables")]


class Rotation:
    def __init__(self, server: EtcdServer, folder: Path, capfd: Captured) -> None:
        self.server = server
        self._folder = folder
        self._capfd = capfd
        server.put(b"/registry/namespaces/kube-system", namespace_object("kube-system"))

    def write(self, number: int, key: bytes, called: str) -> None:
        place = f"/registry/secrets/shop/web-{number}"
        self.server.put(place.encode(), aesgcm(secret(f"web-{number}"), place, key=key, name=called))

    def config(self, name: str, *providers: dict[str, Any]) -> str:
        path = self._folder / name
        path.write_bytes(configuration_yaml(*providers))
        return str(path)

    def run(self, name: str, *words: str) -> tuple[int, dict[str, Any]]:
        self._capfd.readouterr()
        arguments = ["encryption", name, "--endpoints", self.server.endpoint, *words, "-o", "json"]
        code = run(arguments)
        captured = self._capfd.readouterr()
        return code, json.loads(captured.out) if captured.out else {"error": captured.err}


@pytest.fixture
def rotation(start_etcd: StartEtcd, tmp_path: Path, capfd: Captured) -> Rotation:
    return Rotation(start_etcd(), tmp_path, capfd)


def old_key(report: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = next(key for key in report["keys"] if key["transformer"] == "aesgcm/v1/old")
    return found


def test_a_rotation_from_its_beginning_to_its_end(rotation: Rotation) -> None:
    for number in range(3):
        rotation.write(number, KEY_2, "old")
    before = rotation.config("before.yaml", provider("aesgcm", old=KEY_2), IDENTITY)
    both = rotation.config("both.yaml", provider("aesgcm", new=KEY_1, old=KEY_2), IDENTITY)
    after = rotation.config("after.yaml", provider("aesgcm", new=KEY_1), IDENTITY)

    code, report = rotation.run("what-if", "--encryption-config", before, "--new", after)
    assert (code, report["counts"]["becomes-unreadable"]) == (1, 3)
    code, report = rotation.run("what-if", "--encryption-config", before, "--new", both)
    assert (code, report["counts"]["becomes-unreadable"], report["counts"]["becomes-stale"]) == (0, 0, 3)

    code, report = rotation.run("usage", "--encryption-config", both)
    assert (code, old_key(report)["objects"], old_key(report)["safe_to_remove"]) == (0, 3, False)

    for number in range(3):
        rotation.write(number, KEY_1, "new")
    code, report = rotation.run("usage", "--encryption-config", both)
    old = old_key(report)
    assert (code, old["objects"], old["kept_revisions"], old["safe_to_remove"]) == (0, 0, 3, False)

    rotation.server.compact()
    code, report = rotation.run("usage", "--encryption-config", both)
    old = old_key(report)
    assert (code, old["kept_revisions"], old["safe_to_remove"], old["reasons"]) == (0, 0, True, [])
    code, report = rotation.run("what-if", "--encryption-config", both, "--new", after)
    assert (code, report["changes"]) == (0, [])


def test_the_commands_of_try_run_as_they_are_pasted(registry: Registry, tmp_path: Path) -> None:
    registry.put("shop/web", aescbc(secret("web"), KEY_2, name="old"))
    registry.put("shop/new", aescbc(secret("new"), KEY_1))
    found = tmp_path / "found.yaml"
    found.write_bytes(configuration_yaml(provider("aescbc", old=KEY_2)))
    ran = registry.run(
        "encryption", "try", "secrets", *registry.common(places=False, reason=None), "--in", f"candidate:{found}",
        "-o", "json",
    )  # fmt: skip
    report = json.loads(ran.out)
    assert report["opened"] == 1
    (group,) = [group for group in report["groups"] if group["next"] is not None]
    program, *words = shlex.split(group["next"]["command"])
    assert program == "etcdfix"
    words += ["--backup-dir", str(registry.backups), "--audit-log", str(registry.log), "--yes"]
    again = registry.run(*words, "--accept", "no-api-server", "--accept", "unknown-release")
    assert again.code == 0, again.err


def test_no_key_material_in_any_output(rotation: Rotation, capfd: Captured) -> None:
    rotation.write(1, KEY_2, "old")
    both = rotation.config("both.yaml", provider("aesgcm", new=KEY_1), IDENTITY)
    old = rotation.config("old.yaml", provider("aesgcm", old=KEY_2))
    source = ["--endpoints", rotation.server.endpoint, "--encryption-config", both]
    for form in ("wide", "json", "html"):
        for words in (["try", "--in", f"candidate:{old}"], ["usage"], ["what-if", "--new", both]):
            capfd.readouterr()
            run(["encryption", *words, *source, "-o", form])
            captured = capfd.readouterr()
            told = captured.out + captured.err
            assert told
            for material in (KEY_1, KEY_2):
                assert base64.b64encode(material).decode() not in told
                assert material.decode() not in told
            assert "never-to-be-shown" not in told


UNDEPLOYED = "nothing shows that the API servers hold"
BY_MERGE = "etcdfix encryption merge made the configuration"


def merged(registry: Registry, *, deployed: bool = True) -> Path:
    """Join today's file with an older one; not deployed, the older one's key writes, which none has."""
    older, found = registry.folder / "older.yaml", registry.folder / "merged.yaml"
    older.write_bytes(configuration_yaml(provider("aescbc", key2=KEY_2), IDENTITY))
    files = [registry.config, older] if deployed else [older, registry.config]
    words = ["--output-file", str(found), "--audit-log", str(registry.log)]
    assert run(["encryption", "merge", *map(str, files), *words]) == 0
    return found


def indented(text: bytes) -> bytes:
    return b"\n".join(b"  " + line for line in text.split(b"\n"))


def newest(registry: Registry) -> None:
    registry.put("shop/good-9", aescbc(secret("good-9")))


def test_before_api_servers_write_with_it_nothing_is_changed_by_it(registry: Registry) -> None:
    key, other = (
        registry.put("shop/broken", aescbc(secret("broken"))),
        registry.put("settings", b"\xff", "configmaps"),
    )
    whole = registry.mod_revision(key)
    registry.put("shop/broken", BROKEN)
    newest(registry)
    registry.config.write_bytes(indented(merged(registry, deployed=False).read_bytes()))
    renamed = registry.config.rename(registry.folder / "mine.yaml")
    registry.config.symlink_to(renamed)
    attempts: list[Callable[[], Ran]] = [
        lambda: registry.delete(key),
        lambda: registry.delete(key, "--dry-run"),
        lambda: registry.put_back(key, f"revision:{whole}"),
    ]
    with registry.untouched():
        for attempt in attempts:
            ran = attempt()
            assert (ran.code, BY_MERGE in ran.err, UNDEPLOYED in ran.err) == (4, True, True), ran.err
    refusal = json.loads(registry.delete(key, "-o", "json").out)["refusal"]
    assert Rule.UNDEPLOYED_WRITE_KEY.value in refusal["rules"]
    # What API servers write of one resource says nothing of another one.
    with registry.untouched():
        assert UNDEPLOYED in registry.delete(other, "--accept", "newer-than-known").err
    assert registry.delete(key, "--accept", "undeployed-write-key").code == 0


def test_once_api_servers_write_with_it_changes_are_made_by_it(registry: Registry) -> None:
    newest(registry)
    registry.config.write_bytes(merged(registry).read_bytes())
    ran = registry.delete(registry.key("shop/broken"))
    assert ran.code == 0, ran.err
    assert registry.undo(registry.kept()[-1].path).code == 0
