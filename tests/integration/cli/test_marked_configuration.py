"""A file that ``encryption merge`` made is refused by every command that changes something, whatever became of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from etcdfix.cli.root import run
from etcdfix.commands.opening import Inputs, load_encryption, open_cluster
from etcdfix.model.errors import RefusedByRule
from etcdfix.model.rules import Rule
from tests.support.change_runs import Ran, Registry
from tests.support.objects import IDENTITY, KEY_2, aescbc, configuration_yaml, provider, secret

pytestmark = pytest.mark.etcd

WORDS = ("was made by etcdfix encryption merge", "it is for reading")


def merged(registry: Registry) -> Path:
    older, found = registry.folder / "older.yaml", registry.folder / "merged.yaml"
    older.write_bytes(configuration_yaml(provider("aescbc", key2=KEY_2), IDENTITY))
    words = ["--output-file", str(found), "--audit-log", str(registry.log)]
    assert run(["encryption", "merge", str(registry.config), str(older), *words]) == 0
    return found


def as_it_is(text: bytes) -> bytes:
    return text


def as_json(text: bytes) -> bytes:
    return json.dumps(yaml.safe_load(text)).encode()


def without_comments(text: bytes) -> bytes:
    return b"\n".join(line for line in text.split(b"\n") if not line.lstrip().startswith(b"#"))


@pytest.mark.parametrize("change", [as_it_is, as_json, without_comments])
def test_every_command_that_changes_something_refuses_it(
    registry: Registry, change: Callable[[bytes], bytes]
) -> None:
    key = registry.key("shop/broken")
    backup = registry.deleted().path
    old = registry.put("shop/old", aescbc(secret("old"), KEY_2, "key2"))
    found = merged(registry)
    candidate = registry.folder / "candidate.yaml"
    candidate.write_bytes(found.read_bytes())
    registry.config.write_bytes(change(found.read_bytes()))
    attempts: list[Callable[[], Ran]] = [
        lambda: registry.delete(key),
        lambda: registry.delete(key, "--dry-run"),
        lambda: registry.put_back(key, "bit"),
        lambda: registry.undo(backup),
        lambda: registry.put_back(key, f"revision:{'1'}"),
        lambda: registry.put_back(old, f"candidate:{candidate}"),
        lambda: registry.put_back(old, f"candidate:{candidate}", "--accept", "undeployed-write-key"),
    ]
    with registry.untouched():
        for attempt in attempts:
            registry.refused(attempt(), *WORDS, hint="the file that the API servers run with today")
    told = registry.delete(key, "-o", "json")
    assert json.loads(told.out)["refusal"]["rule"] == Rule.MARKED_CONFIGURATION.value


def test_a_manifest_that_names_it_is_no_way_round(registry: Registry) -> None:
    found = merged(registry)
    manifest = registry.folder / "kube-apiserver.yaml"
    command = [
        "kube-apiserver", f"--etcd-servers={registry.endpoints}", f"--encryption-provider-config={found}",
    ]  # fmt: skip
    pod = {"kind": "Pod", "spec": {"containers": [{"name": "kube-apiserver", "command": command}]}}
    manifest.write_text(json.dumps({"apiVersion": "v1", "metadata": {"name": "kube-apiserver"}, **pod}))
    with registry.untouched():
        ran = registry.delete(registry.key("shop/broken"), "--manifest", str(manifest), configured=False)
        registry.refused(ran, *WORDS, hint="the file that the API servers run with today")


def test_it_may_be_the_candidate(registry: Registry) -> None:
    old = registry.put("shop/old", aescbc(secret("old"), KEY_2, "key2"))
    registry.put("shop/good-9", aescbc(secret("good-9")))
    ran = registry.put_back(old, f"candidate:{merged(registry)}")
    assert ran.code == 0, ran.err


def test_it_serves_for_looking(registry: Registry) -> None:
    old = registry.put("shop/old", aescbc(secret("old"), KEY_2, "key2"))
    registry.config.write_bytes(merged(registry).read_bytes())
    ran = registry.run("scan", old.decode(), *registry.common(places=False, reason=None))
    assert ran.code == 0
    assert "was made by etcdfix encryption merge, for reading" in ran.err


def test_the_refusal_comes_before_etcd_is_asked(tmp_path: Path) -> None:
    made = configuration_yaml(IDENTITY, resources=("secrets", "recover.not-for-writing.etcdfix.io"))
    (tmp_path / "c.yaml").write_bytes(made)
    inputs = Inputs(
        snapshot=None, connection={"endpoints": "127.0.0.1:1"}, etcd_prefix="/registry", revision=0,
        encryption_config=tmp_path / "c.yaml", kubernetes_minor=None,
    )  # fmt: skip
    with (
        pytest.raises(RefusedByRule, match="encryption recover"),
        open_cluster(inputs, load_encryption, say=print),
    ):
        pass
