"""What KMS costs a scan: the same Secrets under aesgcm and under one DEK seed, in turn; and many data keys at once."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.benchmarks.large_data import ALPHA, CONFIG, gcm, renamed, templates
from tests.benchmarks.measure import etcdfix, machine, run, spread
from tests.support.bbolt_writer import BoltWriter, put
from tests.support.kms_plugin import KMSPlugin, PluginProcess, load_keks

pytestmark = pytest.mark.benchmark

KEYS = int(os.environ.get("ETCDFIX_BENCH_KEYS", "100000"))
RUNS = 5
LEAST_SPEED = 0.7
"""Of that under aesgcm; what a DEK seed costs beyond it is one HMAC, one key schedule and one envelope."""
KEK_FILES = {"v1": ALPHA.parent / "kms2.keys", "v2": ALPHA.parent / "kms1.keys"}
KMS_CONFIG = """apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers:
  - kms: {{apiVersion: {api}, name: prov, endpoint: "unix://{socket}", timeout: 5s}}
  - identity: {{}}
"""
Write = Callable[[bytes, bytes], bytes]


def database(folder: Path, count: int, config: str, write: Write) -> list[str]:
    folder.mkdir()
    (folder / "config.yaml").write_text(config)
    secrets, _ = templates()

    def records() -> Iterator[tuple[bytes, bytes]]:
        for number in range(count):
            key, plaintext = renamed(secrets[number % len(secrets)], number)
            yield put(number + 2, key, write(key, plaintext))

    with (folder / "large.db").open("w+b") as file:
        writer = BoltWriter(file)
        writer.bucket(b"key", records())
        writer.bucket(b"meta", [(b"storageVersion", b"3.6.0")], inline=True)
        writer.finish(trailer=True)
    return etcdfix(
        "--snapshot",
        str(folder / "large.db"),
        "--encryption-config",
        str(folder / "config.yaml"),
        "-o",
        "jsonl",
    )


def one_seed(plugin: KMSPlugin) -> Write:
    seed = bytes(range(32))
    wrapped = plugin.encrypt(seed)
    return lambda key, plaintext: plugin.stored_v2(plaintext, key, source=seed, wrapped=wrapped)


def test_one_seed_against_aesgcm(tmp_path: Path) -> None:
    socket = tmp_path / "kms.sock"
    plugin = KMSPlugin("v2", socket, load_keks(KEK_FILES["v2"]), start=False)
    kms = KMS_CONFIG.format(api="v2", socket=socket)
    ours, theirs = [], []
    with PluginProcess("v2", socket, KEK_FILES["v2"]):
        small = (
            database(tmp_path / "a", KEYS // 100, CONFIG, gcm),
            database(tmp_path / "b", KEYS // 100, kms, one_seed(plugin)),
        )
        large = (
            database(tmp_path / "c", KEYS, CONFIG, gcm),
            database(tmp_path / "d", KEYS, kms, one_seed(plugin)),
        )
        walls, rates = [], []
        for _ in range(RUNS):
            base, full = [run(command) for command in small], [run(command) for command in large]
            walls.append(full[0].wall / full[1].wall)
            ours.append(full[1].wall)
            theirs.append(full[0].wall)
            rates.append((full[0].cpu - base[0].cpu) / (full[1].cpu - base[1].cpu))
    print(
        f"\n{machine()}\n{KEYS} Secrets; speed under one DEK seed as a part of that under aesgcm, pair by pair:"
    )
    print(f"  by wall clock {spread(walls)}; by processor time, start-up left out, {spread(rates)}")
    print(f"  seconds: one DEK seed {spread(ours)}, aesgcm {spread(theirs)}")
    assert statistics.median(walls) >= LEAST_SPEED


def test_a_data_key_for_each_value(tmp_path: Path) -> None:
    socket = tmp_path / "kms.sock"
    plugin = KMSPlugin("v1", socket, load_keks(KEK_FILES["v1"]), start=False)
    command = database(
        tmp_path / "a", KEYS // 10, KMS_CONFIG.format(api="v1", socket=socket),
        lambda key, plaintext: plugin.stored_v1(plaintext, key),
    )  # fmt: skip
    with PluginProcess("v1", socket, KEK_FILES["v1"]):
        runs = [run([*command, "--kms-max-rate", "0"]) for _ in range(RUNS)]
    seconds = [one.wall for one in runs]
    print(f"\n{KEYS // 10} Secrets under KMS v1, a data key each, no rate limit: {spread(seconds)} s")
    print(f"  anonymous memory {spread([one.anonymous_mb for one in runs])} MB")
