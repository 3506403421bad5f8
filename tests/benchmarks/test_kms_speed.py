"""What many data keys of KMS v1 cost a scan. Prints figures.

What one DEK seed of KMS v2 costs is measured by ``python -m tests.benchmarks.performance --only providers``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.benchmarks.large_data import ALPHA, renamed, templates
from tests.benchmarks.measure import etcdfix, machine, run, spread
from tests.support.bbolt_writer import BoltWriter, put
from tests.support.kms_plugin import KMSPlugin, PluginProcess, load_keks

pytestmark = pytest.mark.benchmark

KEYS = int(os.environ.get("ETCDFIX_BENCH_KEYS", "100000")) // 10
RUNS = 5
KEK_FILE = ALPHA.parent / "kms2.keys"
KMS_CONFIG = """apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers:
  - kms: {{apiVersion: v1, name: prov, endpoint: "unix://{socket}", timeout: 5s}}
  - identity: {{}}
"""


def test_a_data_key_for_each_value(tmp_path: Path) -> None:
    socket, database, config = (tmp_path / name for name in ("kms.sock", "large.db", "config.yaml"))
    plugin = KMSPlugin("v1", socket, load_keks(KEK_FILE), start=False)
    config.write_text(KMS_CONFIG.format(socket=socket))
    secrets, _ = templates()

    def records() -> Iterator[tuple[bytes, bytes]]:
        for number in range(KEYS):
            key, plaintext = renamed(secrets[number % len(secrets)], number)
            yield put(number + 2, key, plugin.stored_v1(plaintext, key))

    with database.open("w+b") as file:
        writer = BoltWriter(file)
        writer.bucket(b"key", records())
        writer.bucket(b"meta", [(b"storageVersion", b"3.6.0")], inline=True)
        writer.finish(trailer=True)
    where = ["--snapshot", str(database), "--encryption-config", str(config), "-o", "jsonl"]
    with PluginProcess("v1", socket, KEK_FILE):
        runs = [run(etcdfix(*where, "--kms-max-rate", "0")) for _ in range(RUNS)]
    seconds = [one.wall for one in runs]
    print(f"\n{machine()}\n{KEYS} Secrets under KMS v1, a data key each, no rate limit: {spread(seconds)} s")
    print(f"  anonymous memory {spread([one.anonymous_mb for one in runs])} MB")
