"""The words of kubectl on a live etcd, on its snapshot, and in the file of kine: they name the same objects."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

from etcdfix.cli.root import run
from etcdfix.testing.protobytes import block, object_meta, unknown
from tests.support.change_runs import Ran
from tests.support.fixtures import Captured, StartEtcd
from tests.support.kine import KineWriter
from tests.support.objects import config_map, crd, namespace_object, secret, widget

pytestmark = pytest.mark.etcd

CRD = "/registry/apiextensions.k8s.io/customresourcedefinitions"


def built_in(version: str, kind: str, name: str, namespace: str) -> bytes:
    meta = object_meta(name.encode(), namespace.encode(), f"uid-of-{namespace}-{name}".encode())
    return unknown(version.encode(), kind.encode(), block(1, meta))


HOLDS = {
    f"{CRD}/gadgets.example.com": crd("gadgets", kind="Gadget", short_names=("gd", "cj")),
    f"{CRD}/widgets.example.com": crd(short_names=("wd",)),
    "/registry/configmaps/default/both": config_map("both", "default"),
    "/registry/configmaps/shop/both": config_map("both"),
    "/registry/configmaps/shop/x": config_map("x"),
    "/registry/deployments/default/web": built_in("apps/v1", "Deployment", "web", "default"),
    "/registry/deployments/shop/web": built_in("apps/v1", "Deployment", "web", "shop"),
    "/registry/example.com/widgets/shop/w-0": widget(),
    "/registry/namespaces/kube-system": namespace_object("kube-system"),
    "/registry/pods/other/web": built_in("v1", "Pod", "web", "other")[:-3],
    "/registry/pods/shop/broken": built_in("v1", "Pod", "broken", "shop")[:-3],
    "/registry/pods/shop/web": built_in("v1", "Pod", "web", "shop"),
    "/registry/secrets/shop/web": secret(),
    "/registry/services/specs/shop/web": built_in("v1", "Service", "web", "shop"),
}


Words = Callable[..., Ran]


@pytest.fixture(scope="module")
def places(start_etcd: StartEtcd, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, list[str]]]:
    folder = tmp_path_factory.mktemp("words")
    etcd = start_etcd()
    kine = KineWriter(folder / "state.db")
    for key, value in HOLDS.items():
        assert etcd.put(key.encode(), value) == kine.put(key.encode(), value)
    etcd.etcdctl("snapshot", "save", folder / "snapshot.db")
    yield {
        "live": ["--endpoints", etcd.endpoint],
        "snapshot": ["--snapshot", str(folder / "snapshot.db")],
        "kine": ["--kine", str(folder / "state.db")],
    }
    kine.close()


@pytest.fixture(params=["live", "snapshot", "kine"])
def words(
    request: pytest.FixtureRequest, places: dict[str, list[str]], capfd: Captured, no_variables: None
) -> Words:
    def run_on(*arguments: str) -> Ran:
        code = run([*arguments, *places[request.param], "--no-encryption"])
        return Ran(code, *capfd.readouterr())

    return run_on


@pytest.mark.parametrize("word", ["Pod", "po,wd"])
def test_scan_of_a_resource_in_a_namespace(words: Words, word: str) -> None:
    ran = words("scan", word, "-n", "shop", "-o", "json")
    report = json.loads(ran.out)
    assert ran.code == 1
    assert [finding["key"] for finding in report["findings"]] == ["/registry/pods/shop/broken"]
    assert report["scope"]["resources"][0] == "pods"
    assert report["scope"]["namespaces"] == ["shop"]
    assert report["summary"]["keys"] == (3 if "," in word else 2)


def test_one_object_by_its_name(words: Words) -> None:
    for arguments in (["cm/x"], ["ConfigMap/x", "-A"]):
        ran = words("explain", *arguments, "-o", "json")
        assert ran.code == 0
        assert "/registry/configmaps/shop/x" in ran.out


def test_what_names_no_one_object_is_refused(words: Words) -> None:
    several = words("explain", "cm/both")
    assert (several.code, several.out) == (2, "")
    assert "/registry/configmaps/default/both, /registry/configmaps/shop/both" in several.err
    assert words("explain", "cm/both", "-n", "shop").code == 0
    assert words("explain", "cm/nix").code == 5
    shared = words("explain", "cj/x", "-n", "shop")
    assert (shared.code, shared.out) == (2, "")
    assert "cronjobs.batch, gadgets.example.com" in shared.err


def test_the_definitions_are_asked_on_every_command_that_takes_a_scope(words: Words) -> None:
    for command in (["scan"], ["get"], ["copies"]):
        assert words(*command, "cj").code == 2, command
        assert words(*command, "wd", "-n", "shop").code == 0, command
