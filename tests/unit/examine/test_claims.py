"""Keys whose names were damaged drop out of sight: a remark says so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from etcdfix.cli.root import run
from etcdfix.examine.claims import ClaimSearch
from etcdfix.model.storagekey import ResourcePrefix, StorageCodec, StorageLayout
from etcdfix.testing import objects as stored_objects
from tests.support.bbolt_writer import database, put
from tests.support.objects import config_map, namespace_object, secret

LAYOUT = StorageLayout("/registry")


def _claimed(found: ResourcePrefix) -> bool:
    return found.codec in {StorageCodec.BUILTIN, StorageCodec.JSON_BUILTIN} or found.group == "e.com"


def search() -> ClaimSearch:
    return ClaimSearch(LAYOUT, _claimed)


@pytest.mark.parametrize(
    ("key", "home"),
    [
        (b"/registry/secret3/shop/db", b"/registry/secrets/shop/db"),
        (b"/registry/secrets.shop/db", b"/registry/secrets/shop/db"),
        (b"/registry/services/spmcs/shop/db", b"/registry/services/specs/shop/db"),
        (b"/registrx/secrets/shop/db", b"/registry/secrets/shop/db"),
        (b"/registry/d.com/things/shop/db", b"/registry/e.com/things/shop/db"),
        (b"\xaf" + b"registry/pods/a/b", b"/registry/pods/a/b"),
    ],
)
def test_one_bit_away_from_a_name_that_is_claimed(key: bytes, home: bytes) -> None:
    (remark,) = search().look(key)
    assert (remark.check, remark.result) == ("key-name", "one bit off")
    assert f"one bit away from it is {home.decode()}," in remark.detail


@pytest.mark.parametrize(
    "key",
    [
        b"/registry/secretz/shop/db",  # two bits
        b"/registrx/secretz/shop/db",
        b"/registrx/unknown/shop/db",
        b"/registry2/secrets/shop/db",
        b"/registry",
        b"/registry/",
        b"/registry/x",
        b"/",
        b"",
        b"compact_rev_key",
        b"/calico/v1/ipam",
        b"/registry/" + b"x" * 200 + b"/a/b",
    ],
)
def test_nothing_to_remark(key: bytes) -> None:
    found = search()
    assert found.look(key) == ()
    assert found.look(key) == ()


def test_many_directories_are_forgotten_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("etcdfix.examine.claims._MOST_KNOWN", 2)
    found = search()
    for number in range(5):
        assert found.look(b"/registry/q%d/a/b" % number) == ()
    assert len(found._known) <= 2


def _snapshot(tmp_path: Path, *, compacted: int = 0) -> Path:
    secret_at = b"/registry/secrets/shop/web"
    records = [
        put(2, b"/registry/namespaces/kube-system", namespace_object("kube-system")),
        put(3, secret_at, secret(), create=3, version=1),
        put(4, b"/registry/secrets/shop/wgb", secret(), create=3, version=2),  # one bit of the name
        put(5, b"/registry/sgcrets/shop/web", secret(), create=3, version=3),
        put(6, b"/regi3try/secrets/shop/web", secret(), create=3, version=4),
        put(7, b"/registry/configmaps/shop/settings", config_map(), create=7, version=1),
    ]
    meta = []
    if compacted:
        meta = [(b"finishedCompactRev", compacted.to_bytes(8, "big") + b"_" + bytes(8))]
    path = tmp_path / "snapshot.db"
    path.write_bytes(database(records, meta=meta))
    return path


def _findings(path: Path, report: Path, *options: str) -> dict[str, set[str]]:
    run(["scan", "--snapshot", str(path), "-o", "json", "--output-file", str(report), *options])
    found = json.loads(report.read_text())["findings"]
    return {finding["key"]: {each["check"] for each in finding["evidence"]} for finding in found}


def test_a_scan_remarks_on_names_that_changed(tmp_path: Path) -> None:
    found = _findings(_snapshot(tmp_path), tmp_path / "report.json")
    assert {"predecessor"} <= found["/registry/secrets/shop/wgb"]
    assert {"key-name", "predecessor"} <= found["/registry/sgcrets/shop/web"]
    assert {"key-name", "predecessor"} <= found["/regi3try/secrets/shop/web"]
    assert "/registry/secrets/shop/web" not in found
    assert "/registry/configmaps/shop/settings" not in found


def test_an_address_of_an_api_server_without_its_lease_is_one_warning(tmp_path: Path) -> None:
    file, report = tmp_path / "copied.db", tmp_path / "report.json"
    lost, kept = (f"/registry/masterleases/10.0.0.{n}" for n in (1, 2))
    records = [put(2, lost.encode(), b"k8s\0"), put(3, kept.encode(), b"k8s\0", lease=77)]
    # No address: what a stranger puts there is in no command.
    records += [
        put(5, b"/registry/masterleases/$(reboot)", b"k8s\0"),
        put(6, b"/registry/masterleases/", b""),
    ]
    file.write_bytes(database([*records, put(4, b"/registry/secrets/shop/web", secret())]))
    assert _findings(file, report, "--no-encryption") == {lost: {"lease"}}
    found = json.loads(report.read_text())
    assert found["summary"]["warnings"] == 1
    assert f"etcdctl del {lost}" in found["findings"][0]["message"]


@pytest.mark.parametrize(("filling", "checks"), [(1_399_000, set()), (1_400_000, {"size"})])
def test_an_object_that_hardly_fits_into_a_request_is_one_warning(
    tmp_path: Path, filling: int, checks: set[str]
) -> None:
    """A chaos experiment wrote its history into itself, until no controller could take its finalizer off."""
    key, file = "/registry/configmaps/shop/full", tmp_path / "full.db"
    value = stored_objects.config_map("full", "shop", {"log": "x" * filling})
    records = [put(2, key.encode(), value), put(3, b"/registry/secrets/shop/web", secret())]
    file.write_bytes(database(records))
    assert _findings(file, tmp_path / "report.json", "--no-encryption").get(key, set()) == checks


def test_a_tree_of_its_own_is_another_cluster(tmp_path: Path) -> None:
    """Its prefix is one bit away from ours; a flipped bit hits one key."""
    records = [
        put(2, b"/registry/namespaces/kube-system", namespace_object("kube-system")),
        put(3, b"/registrx/secrets/shop/web", secret()),
        put(4, b"/registrx/secrets/shop/other", secret("other")),
        put(5, b"/regi3try/secrets/shop/web", secret()),
    ]
    path = tmp_path / "two.db"
    path.write_bytes(database(records))
    assert list(_findings(path, tmp_path / "report.json")) == ["/regi3try/secrets/shop/web"]
