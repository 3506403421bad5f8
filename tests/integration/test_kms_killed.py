"""A plugin that is killed in the middle of a large scan: nothing is lost, nothing is called corrupt, no key leaks."""

from __future__ import annotations

import base64
import io
import json
import re
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from etcdfix.encryption.config import parse_configuration
from etcdfix.encryption.kms.plugins import KMSPlugins
from etcdfix.operations.look.scan import ScanRequest, run_scan
from etcdfix.reports.formats.machine import JSONLinesReporter
from etcdfix.storagekey import StorageLayout
from tests.support.collecting import ALPHA
from tests.support.kms_plugin import KMSPlugin, PluginProcess, load_keks
from tests.support.memory_source import MemorySource
from tests.support.objects import config_map, namespace_object, secret
from tests.support.thorough import THOROUGH

VALUES = 50_000 if THOROUGH else 10_000
BEFORE_THE_END = VALUES // 5
T = TypeVar("T")
CONFIG = """
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers:
  - kms: {{apiVersion: v1, name: prov, endpoint: "{endpoint}"}}
  - identity: {{}}
"""


@pytest.mark.thorough
def test_killed_amid_thousands_of_data_keys(tmp_path: Path) -> None:
    keys = ALPHA / "kms2.keys"
    writer = KMSPlugin("v1", tmp_path / "unused.sock", load_keks(keys), start=False)
    holds: dict[str, bytes] = {
        "/registry/namespaces/kube-system": namespace_object("kube-system"),
        "/registry/serviceaccounts/x/y": config_map(),  # damaged, and behind the secrets: found all the same
    }
    deks = [secrets.token_bytes(32) for _ in range(VALUES)]
    for number, dek in enumerate(deks):
        key = f"/registry/secrets/shop/s-{number:05}"
        holds[key] = writer.stored_v1(secret(f"s-{number:05}"), key.encode(), dek=dek)

    with PluginProcess("v1", tmp_path / "kms.sock", keys) as plugin:
        configuration = parse_configuration(
            CONFIG.format(endpoint=f"unix://{plugin.socket_path}").encode(), path="test"
        )

        def killing(items: Iterator[T], label: str, _estimate: int | None) -> Iterator[T]:
            for passed, item in enumerate(items):
                if label == "waiting" and passed == BEFORE_THE_END:
                    plugin.kill()
                yield item

        out = io.BytesIO()
        with KMSPlugins(max_rate=0, patience_seconds=1) as plugins:
            result = run_scan(
                MemorySource(holds),
                ScanRequest(layout=StorageLayout(), configuration=configuration),
                JSONLinesReporter(out),
                plugins=plugins,
                progress=killing,
            )

    summary = result.summary
    by_resource = {r.resource: r for r in summary.by_resource}
    assert by_resource["secrets"].keys == VALUES
    assert by_resource["secrets"].readable >= BEFORE_THE_END
    assert by_resource["secrets"].undetermined > 0
    assert by_resource["secrets"].readable + by_resource["secrets"].undetermined == VALUES
    assert {c.cause for c in summary.by_cause if c.outcome == "undetermined"} == {"kms-unreachable"}
    assert by_resource["serviceaccounts"].decode_failures == 1
    assert not result.complete
    assert summary.kms is not None
    (report,) = summary.kms.plugins
    assert report.state == "gave-up"
    written = out.getvalue()
    assert f"KMS plugin of kms/v1/prov at unix://{plugin.socket_path}: ".encode() in written
    findings = [json.loads(line) for line in written.splitlines() if b'"Finding"' in line]
    assert len(findings) == by_resource["secrets"].undetermined + 1
    assert all(f["transient"] for f in findings if f["cause"] == "kms-unreachable")
    # JSON holds no bytes as such, so a key could only be there in hex or base64.
    assert not {dek.hex().encode() for dek in deks} & set(re.findall(rb"\b[0-9a-f]{64}\b", written))
    encoded = {base64.b64encode(dek) for dek in deks}
    assert not encoded & set(re.findall(rb"[A-Za-z0-9+/]{43}=", written))
