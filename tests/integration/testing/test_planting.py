"""Damage that is planted in a real etcd is found, and the assertion that all can be read says so."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from etcdfix.report.model import Summary
from etcdfix.testing.certificates import CertificateAuthority
from etcdfix.testing.damage import Damage
from etcdfix.testing.objects import config_map, json_object, pod, secret
from etcdfix.testing.planting import plant, store
from etcdfix.testing.readable import NotAllReadable, assert_all_readable
from etcdfix.testing.sealing import DoesNotFit
from etcdfix.testing.servers import EtcdServer
from tests.support.collecting import ALPHA
from tests.support.encoders import kms_v2_body
from tests.support.objects import IDENTITY, KMS_V2, configuration_of_rules, crd, provider
from tests.support.thorough import some

pytestmark = pytest.mark.etcd

KEY = bytes(range(32))
KINDS = ("aesgcm", "aescbc", "secretbox")
WITHHELD = b"never-to-be-shown"


class Place(NamedTuple):
    path: str
    plaintext: bytes
    config: Path


def _places(folder: Path) -> Iterator[Place]:
    web = secret("web", "shop", {"password": WITHHELD, "text": b"one\ntwo\n" + b"x" * 80})
    for kind in KINDS:
        strict, mixed = folder / f"{kind}.json", folder / f"{kind}-mixed.json"
        strict.write_bytes(configuration_of_rules((("secrets",), (provider(kind, key1=KEY),))))
        mixed.write_bytes(configuration_of_rules((("secrets",), (provider(kind, key1=KEY), IDENTITY))))
        yield Place("secrets/shop/web", web, strict)
        yield Place("secrets/shop/web", web, mixed)
    plain = folder / "plain.json"
    plain.write_bytes(configuration_of_rules((("secrets",), (provider("aesgcm", key1=KEY),))))
    settings = config_map("settings", "shop", {"text": "one\ntwo\n" + "x" * 80})
    yield Place("configmaps/shop/settings", settings, plain)
    yield Place("pods/shop/web", pod("web", "shop"), plain)
    widget = json_object("example.com/v1", "Widget", "w-0", "shop", spec={"size": 1, "colour": "x" * 100})
    yield Place("example.com/widgets/shop/w-0", widget, plain)


class Ground:
    def __init__(self, etcd: EtcdServer, etcd_prefix: str, folder: Path) -> None:
        self.etcd = etcd
        self.places = {}
        arranged = [
            (place, among) for place in _places(folder) for among in (False, place.path.startswith("secrets"))
        ]
        for number, (place, among) in enumerate(dict.fromkeys(arranged)):
            prefix = f"{etcd_prefix}/{number}"
            self.places[prefix] = place
            definition = f"{prefix}/apiextensions.k8s.io/customresourcedefinitions/widgets.example.com"
            etcd.put(definition.encode(), crd())
            put = partial(store, etcd, config=place.config, etcd_prefix=prefix)
            if among:
                put(f"{prefix}/secrets/shop/before", secret("before", "shop", {"text": b"x" * 80}))
            put(f"{prefix}/{place.path}", place.plaintext)
            if among:
                put(f"{prefix}/secrets/shop/later", secret("later", "shop", {"text": b"x" * 80}))


@pytest.fixture
def ground(etcd: EtcdServer, etcd_prefix: str, tmp_path: Path) -> Ground:
    return Ground(etcd, etcd_prefix, tmp_path)


@pytest.mark.parametrize("damage", some(list(Damage), of=5))
def test_what_is_planted_is_found(damage: Damage, ground: Ground) -> None:
    way, etcd = damage.value, ground.etcd
    seen = set()
    for prefix, place in ground.places.items():
        key = f"{prefix}/{place.path}"
        stored = etcd.get(key.encode())
        refused = None
        try:
            planted = plant(etcd, key, damage, config=place.config, etcd_prefix=prefix)
        except DoesNotFit as exc:
            refused = exc
        if refused is not None:
            assert str(refused).startswith(f"{key}, {damage}: ")
            assert etcd.get(key.encode()) == stored
            continue
        assert planted.before == (None if damage is Damage.MOVED else stored)
        with pytest.raises(NotAllReadable) as caught:
            assert_all_readable(place.config, endpoints=etcd, etcd_prefix=prefix)
        (finding,) = caught.value.findings
        assert finding.key.encode() == planted.key
        assert finding.cause in planted.causes, place
        assert WITHHELD.decode() not in str(caught.value) + repr(planted)
        seen.add(finding.cause)
    assert way.cause in seen


def test_a_value_of_kms(etcd: EtcdServer, etcd_prefix: str, tmp_path: Path) -> None:
    config = tmp_path / "kms.json"
    config.write_bytes(configuration_of_rules((("secrets",), (KMS_V2, IDENTITY))))
    key = f"{etcd_prefix}/secrets/shop/web"
    with pytest.raises(DoesNotFit, match="kms/v2/prov cannot write it"):
        store(etcd, key, secret("web", "shop"), config=config, etcd_prefix=etcd_prefix)
    etcd.put(key.encode(), b"k8s:enc:kms:v2:prov:" + kms_v2_body(b"x" * 100))
    with pytest.raises(DoesNotFit, match="KMS is not asked"):
        plant(etcd, key, Damage.EMPTY, config=config, etcd_prefix=etcd_prefix)


@pytest.mark.parametrize("where", ["127.0.0.1:2379", b"127.0.0.1:2379", ["https://etcd-0:2379"]])
def test_no_address_is_written_to(where: object) -> None:
    with pytest.raises(TypeError, match="no address"):
        plant(where, "/registry/configmaps/shop/a", Damage.EMPTY)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="no address"):
        store(where, "/registry/configmaps/shop/a", b"")  # type: ignore[arg-type]


def test_no_variable_leads_elsewhere(
    etcd: EtcdServer, etcd_prefix: str, fresh_etcd: EtcdServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ETCDCTL_ENDPOINTS", "ETCDFIX_ENDPOINTS", "ETCD_LISTEN_CLIENT_URLS"):
        monkeypatch.setenv(name, fresh_etcd.endpoint)
    monkeypatch.setenv("http_proxy", f"http://{fresh_etcd.endpoint}")
    key = f"{etcd_prefix}/configmaps/shop/a"
    store(etcd, key, config_map("a", "shop"), etcd_prefix=etcd_prefix)
    plant(etcd, key, Damage.EMPTY, etcd_prefix=etcd_prefix)
    etcd.delete(key.encode())
    assert fresh_etcd.revision() == 1


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
    etcd.put(f"{etcd_prefix}/configmaps/shop/a\x1b[31mb".encode(), b"")
    with pytest.raises(NotAllReadable, match=r"\\x1b") as caught:
        assert_all_readable(None, endpoints=etcd, etcd_prefix=etcd_prefix)
    assert "\x1b" not in str(caught.value)


def test_a_server_with_certificates(
    start_etcd: Callable[..., EtcdServer], authority: CertificateAuthority
) -> None:
    server = start_etcd(authority=authority, client_certificates=True)
    store(server, "/registry/configmaps/shop/a", config_map("a", "shop", {"a": "b"}))
    assert server.tls is not None
    assert objects(assert_all_readable(None, endpoints=server.endpoint, **server.tls._asdict())) == 1
    server.require_login(b"/registry/")
    assert objects(assert_all_readable(None, endpoints=server)) == 1


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


def test_variables_are_not_looked_at(
    etcd: EtcdServer, etcd_prefix: str, config: Path, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("ENDPOINTS", "127.0.0.1:1"), ("CACERT", "/no/such/file"), ("USER", "root:x")):
        monkeypatch.setenv(f"ETCDCTL_{name}", value)
        monkeypatch.setenv(f"ETCDFIX_{name}", value)
    assert objects(assert_all_readable(config, endpoints=etcd, etcd_prefix=etcd_prefix)) == 1
