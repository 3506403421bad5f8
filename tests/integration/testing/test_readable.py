"""The assertion that everything can be read: when it fails, and what it says then."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from etcdfix.report.model import Summary
from etcdfix.testing import (
    CertificateAuthority,
    Damage,
    EtcdServer,
    NotAllReadable,
    assert_all_readable,
    config_map,
    plant,
    secret,
    store,
)
from tests.support.objects import IDENTITY, KMS_V2, configuration_of_rules, provider

pytestmark = pytest.mark.etcd

ALPHA = Path("fixtures/snapshots/alpha")
HOSTILE = "a\x1b[31mb"


def objects(summary: Summary) -> int:
    return summary.keys - summary.not_objects  # other tests have other prefixes


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config.json"
    path.write_bytes(configuration_of_rules((("secrets",), (provider("aesgcm", key1=bytes(32)), IDENTITY))))
    return path


@pytest.fixture
def key(etcd: EtcdServer, etcd_prefix: str, config: Path) -> str:
    at = f"{etcd_prefix}/secrets/shop/web"
    store(etcd, at, secret("web", "shop", {"a": b"hush-hush" * 9}), config=config, etcd_prefix=etcd_prefix)
    return at


def test_counts_come_back(etcd: EtcdServer, etcd_prefix: str, config: Path, key: str) -> None:
    for where in (etcd, etcd.endpoint, [etcd.endpoint, etcd.endpoint]):
        assert objects(assert_all_readable(config, endpoints=where, etcd_prefix=etcd_prefix)) == 1


def test_a_finding_in_words(etcd: EtcdServer, etcd_prefix: str, config: Path, key: str) -> None:
    plant(etcd, key, Damage.CIPHERTEXT_BIT, config=config, etcd_prefix=etcd_prefix)
    with pytest.raises(NotAllReadable) as caught:
        assert_all_readable(config, endpoints=etcd, etcd_prefix=etcd_prefix)
    said = str(caught.value)
    assert said.startswith("1 of 1 object")
    assert all(word in said for word in ("ciphertext-damaged", key, etcd.endpoint))
    assert "hush" not in str(caught.value)
    assert (len(caught.value.findings), caught.value.incomplete) == (1, ())


def test_names_of_strangers_are_safe(etcd: EtcdServer, etcd_prefix: str) -> None:
    etcd.put(f"{etcd_prefix}/configmaps/shop/{HOSTILE}".encode(), b"")
    with pytest.raises(NotAllReadable, match=r"\\x1b") as caught:
        assert_all_readable(None, endpoints=etcd, etcd_prefix=etcd_prefix)
    assert "\x1b" not in str(caught.value)


def test_what_is_known_is_no_reason(
    etcd: EtcdServer, etcd_prefix: str, config: Path, key: str, tmp_path: Path
) -> None:
    planted = plant(etcd, key, Damage.EMPTY, config=config, etcd_prefix=etcd_prefix)
    baseline = tmp_path / "known.json"
    words = [sys.executable, "-m", "etcdfix", "scan", "--endpoints", etcd.endpoint]
    words += ["--etcd-prefix", etcd_prefix, "--encryption-config", str(config)]
    assert subprocess.run([*words, "-o", "json", "--output-file", baseline], check=False).returncode == 1
    assert_all_readable(config, endpoints=etcd, etcd_prefix=etcd_prefix, baseline=baseline)
    etcd.put(planted.key, bytes(40))
    with pytest.raises(NotAllReadable, match="zeroed-value"):
        assert_all_readable(config, endpoints=etcd, etcd_prefix=etcd_prefix, baseline=baseline)


def test_what_cannot_be_decided_fails(etcd: EtcdServer, etcd_prefix: str, config: Path, key: str) -> None:
    with pytest.raises(NotAllReadable, match="no-configuration"):
        assert_all_readable(None, endpoints=etcd, etcd_prefix=etcd_prefix)
    etcd.put(key.encode(), b"k8s:enc:kms:v2:prov:" + b"x" * 100)
    config.write_bytes(configuration_of_rules((("secrets",), (KMS_V2, IDENTITY))))
    with pytest.raises(NotAllReadable, match="kms"):
        assert_all_readable(config, endpoints=etcd, etcd_prefix=etcd_prefix, ask_kms=False)


def test_nothing_to_see_fails(etcd: EtcdServer, etcd_prefix: str, config: Path, key: str) -> None:
    with pytest.raises(NotAllReadable, match=f"no key starts with {etcd_prefix}-not/") as caught:
        assert_all_readable(config, endpoints=etcd, etcd_prefix=f"{etcd_prefix}-not")
    assert caught.value.findings == ()
    with pytest.raises(NotAllReadable, match="incomplete: no object is in this scope"):
        assert_all_readable(config, endpoints=etcd, etcd_prefix=etcd_prefix, resources=["daemonsets.apps"])
    with pytest.raises(NotAllReadable, match="no key matches the given name"):
        assert_all_readable(
            config, endpoints=etcd, etcd_prefix=etcd_prefix, resources=[f"{etcd_prefix}/secrets/other"]
        )
    with pytest.raises(NotAllReadable, match="no object is in this scope"):
        assert_all_readable(config, endpoints=etcd, etcd_prefix=etcd_prefix, resources=["pods"])


def test_a_snapshot() -> None:
    with pytest.raises(NotAllReadable, match=r"62 of 499 objects are broken") as caught:
        assert_all_readable(ALPHA / "config-lost.yaml", snapshot=ALPHA / "snapshot.db.gz", ask_kms=False)
    assert caught.value.findings


def test_a_server_with_certificates(
    start_etcd: Callable[..., EtcdServer], authority: CertificateAuthority, tmp_path: Path
) -> None:
    server = start_etcd(authority=authority, client_certificates=True)
    store(server, "/registry/configmaps/shop/a", config_map("a", "shop", {"a": "b"}))
    assert objects(assert_all_readable(None, endpoints=server)) == 1
    assert server.tls is not None
    files = server.tls._asdict()
    assert objects(assert_all_readable(None, endpoints=server.endpoint, **files)) == 1
    server.require_login(b"/registry/")
    assert objects(assert_all_readable(None, endpoints=server)) == 1


def test_variables_are_not_looked_at(
    etcd: EtcdServer, etcd_prefix: str, config: Path, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("ENDPOINTS", "127.0.0.1:1"), ("CACERT", "/no/such/file"), ("USER", "root:x")):
        monkeypatch.setenv(f"ETCDCTL_{name}", value)
        monkeypatch.setenv(f"ETCDFIX_{name}", value)
    assert objects(assert_all_readable(config, endpoints=etcd, etcd_prefix=etcd_prefix)) == 1
