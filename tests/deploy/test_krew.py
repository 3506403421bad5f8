"""The manifest of ``kubectl etcdfix`` for krew."""

from __future__ import annotations

import json

import jsonschema
import pytest
import yaml

import etcdfix
from tests.support.kubelet import REPOSITORY

SCHEMA = json.loads((REPOSITORY / "fixtures/schemas/krew-plugin.json").read_text())
MANIFEST = yaml.safe_load((REPOSITORY / "docs/release/krew.yaml").read_text())


def test_the_manifest_is_one_that_krew_takes() -> None:
    jsonschema.validate(MANIFEST, SCHEMA)
    assert MANIFEST["spec"]["version"] == f"v{etcdfix.__version__}"
    for platform in MANIFEST["spec"]["platforms"]:
        assert platform["bin"] in [operation["from"] for operation in platform["files"]]
        assert f"/v{etcdfix.__version__}/" in platform["uri"]


def test_the_schema_refuses_a_digest_that_is_none() -> None:
    platform = {**MANIFEST["spec"]["platforms"][0], "sha256": "not yet"}
    broken = {**MANIFEST, "spec": {**MANIFEST["spec"], "platforms": [platform]}}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(broken, SCHEMA)
