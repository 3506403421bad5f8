"""Every damage that can be planted, in every value that it fits, in a real etcd: its cause is found."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from etcdfix.testing import (
    Damage,
    DoesNotFit,
    EtcdServer,
    NotAllReadable,
    assert_all_readable,
    config_map,
    json_object,
    plant,
    pod,
    secret,
    store,
)
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


def test_in_order_to_begin_with(ground: Ground) -> None:
    for prefix, place in ground.places.items():
        summary = assert_all_readable(place.config, endpoints=ground.etcd, etcd_prefix=prefix)
        assert summary.keys > 1


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


def test_nothing_is_planted_where_nothing_is(etcd: EtcdServer, etcd_prefix: str) -> None:
    with pytest.raises(DoesNotFit, match="there is nothing to damage"):
        plant(etcd, f"{etcd_prefix}/secrets/shop/web", Damage.EMPTY, etcd_prefix=etcd_prefix)


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
