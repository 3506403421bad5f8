"""``etcdfix get`` on a live etcd, and on all of the damaged cluster under each configuration that wrote it."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest

from etcdfix.cli.root import run
from etcdfix.encryption.config import load_configuration
from etcdfix.encryption.kms.plugins import KMSPlugins
from etcdfix.encryption.transformer import Transformers
from etcdfix.examine.one import Examiner
from etcdfix.golang import goyaml
from etcdfix.golang.gojsontext import encode_json
from etcdfix.golang.yamltext import json_text, yaml_text
from etcdfix.model.model import Outcome
from etcdfix.model.storagekey import StorageLayout
from etcdfix.report.objects import Form, Viewer
from etcdfix.sources.snapshot import SnapshotSource
from tests.support.collecting import ALPHA
from tests.support.decoders import shared_decoder
from tests.support.kms_plugin import KMSPlugin, load_keks
from tests.support.thorough import some

SNAPSHOT = ALPHA / "snapshot.db.gz"
CONFIGURATIONS = [
    "config-lost.yaml", "config-rotated.yaml", "write-cbc-key1.yaml", "write-cbc-key2.yaml", "write-gcm.yaml",
    "write-kmsv1.yaml", "write-kmsv2.yaml", "write-plain.yaml", "write-secretbox.yaml",
]  # fmt: skip


@pytest.fixture(scope="module")
def kms_endpoints(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    folder = tmp_path_factory.mktemp("kms")
    with (
        KMSPlugin("v2", folder / "1.sock", load_keks(ALPHA / "kms1.keys")) as new,
        KMSPlugin("v1", folder / "2.sock", load_keks(ALPHA / "kms2.keys")) as old,
    ):
        yield {"kmsnew": new.endpoint, "kmsold": old.endpoint}


def sorted_json(value: Any) -> Any:
    return json.loads(encode_json(value))


@pytest.mark.parametrize("name", some(CONFIGURATIONS, of=3))
def test_every_readable_object_converts(name: str, kms_endpoints: dict[str, str]) -> None:
    configuration = load_configuration(ALPHA / name)
    providers = {provider.name for provider in configuration.kms_providers}
    endpoints = {key: value for key, value in kms_endpoints.items() if key in providers}
    shown_by_form = dict.fromkeys(Form, 0)
    secrets = 0
    with SnapshotSource(SNAPSHOT) as source, KMSPlugins(endpoints, max_rate=0) as plugins:
        transformers = Transformers.from_configuration(configuration, plugins.plugin_for)
        examiner = Examiner(StorageLayout(), transformers, shared_decoder(36), assumed_release="1.36")
        examiner.learn_custom_resources(source)
        viewer = Viewer(examiner, reveal=True, omit_managed_fields=True)
        for stored in source.current(b""):
            found = examiner.examine(stored)
            shown = viewer.show(found)
            shown_by_form[shown.form] += 1
            if found.verdict.outcome not in {Outcome.READABLE, Outcome.INCONSISTENT}:
                continue
            assert shown.form is Form.OBJECT
            document = sorted_json(shown.document)
            assert json.loads(json_text(shown.document)) == document
            assert json.loads(goyaml.to_json(yaml_text(shown.document).encode())) == document
            if document["kind"] == "Secret":
                secrets += 1
                for text in (document.get("data") or {}).values():
                    assert base64.b64encode(base64.b64decode(text, validate=True)).decode() == text
    assert shown_by_form[Form.OBJECT] > 350
    assert secrets > 1


def test_kms_values_are_shown_when_their_plugins_answer(
    kms_endpoints: dict[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    """All but one, which needs a key that the plugin does not have."""
    read = ["--snapshot", str(SNAPSHOT), "--encryption-config", str(ALPHA / "write-kmsv2.yaml"), "--reveal"]
    read += ["--kms-endpoint", f"kmsnew={kms_endpoints['kmsnew']}"]
    assert run(["get", "secrets", "-A", "-o", "json", *read]) == 3
    items = {item["metadata"]["name"]: item for item in json.loads(capfd.readouterr().out)["items"]}
    assert "mail-kmsv2-1" not in items
    assert run(["get", "secrets", "oauth-kmsv2-3", "-n", "infra", "-o", "json", *read]) == 0
    assert json.loads(capfd.readouterr().out) == items["oauth-kmsv2-3"]
