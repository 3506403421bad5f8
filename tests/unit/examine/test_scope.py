"""From TYPE/NAME to the one etcd key that is looked at: never to another object's."""

from __future__ import annotations

import pytest

from etcdfix.examine.one import Reading
from etcdfix.examine.scope import key_of
from etcdfix.model.errors import ConfigurationError, EtcdfixError, ObjectNotFound
from etcdfix.model.scope import ObjectWord
from etcdfix.model.storagekey import StorageLayout
from tests.support.memory_source import MemorySource
from tests.support.objects import config_map, crd

DEFINITIONS = "/registry/apiextensions.k8s.io/customresourcedefinitions"
BUILT_IN = "/registry/ingress/shop/web"
STRAY = "/registry/networking.k8s.io/ingresses/shop/web"
STRAY_DEFINITION = {f"{DEFINITIONS}/ingresses.networking.k8s.io": crd("ingresses", "networking.k8s.io")}
MAPS = {f"/registry/configmaps/ns-{number}/web": config_map("web", f"ns-{number}") for number in range(8)}


def found(
    holds: dict[str, bytes], resource: str, name: str, namespace: str = "", problems: tuple[str, ...] = ()
) -> str:
    source = MemorySource(holds, problems=problems)
    return key_of(
        source, Reading(layout=StorageLayout()), ObjectWord(resource, name, namespace), None
    ).decode()


def test_without_a_namespace_the_only_one_is_taken() -> None:
    one = {"/registry/configmaps/shop/web": config_map("web"), "/registry/configmaps/shop/web2": config_map()}
    assert found(one, "cm", "web") == "/registry/configmaps/shop/web"
    assert found({}, "no", "one") == "/registry/minions/one"


def test_with_a_namespace_an_object_may_be_gone() -> None:
    assert found({}, "cm", "web", "shop") == "/registry/configmaps/shop/web"
    assert found(MAPS, "cm", "web", "gone") == "/registry/configmaps/gone/web"


def test_of_several_none_is_taken() -> None:
    with pytest.raises(ConfigurationError, match="cm/web names 8 objects") as caught:
        found(MAPS, "cm", "web")
    assert caught.value.hint.startswith("-n NAMESPACE, or name one: /registry/configmaps/ns-0/web, ")
    assert caught.value.hint.endswith("/registry/configmaps/ns-4/web or 3 more")


@pytest.mark.parametrize(
    ("holds", "expected"), [([BUILT_IN], BUILT_IN), ([STRAY], STRAY), ([], BUILT_IN), ([BUILT_IN, STRAY], "")]
)
@pytest.mark.parametrize("namespace", ["shop", ""])
def test_a_definition_that_claims_a_built_in_resource(
    holds: list[str], expected: str, namespace: str
) -> None:
    values = STRAY_DEFINITION | dict.fromkeys(holds, b"{}")
    if expected and (holds or namespace):
        assert found(values, "ing", "web", namespace) == expected
        assert found(values, "ingresses", "web", namespace) == expected
    else:
        with pytest.raises(EtcdfixError, match="names 2 objects" if holds else "no object of this name"):
            found(values, "ing", "web", namespace)


def test_what_was_not_seen_may_be_there() -> None:
    with pytest.raises(ObjectNotFound, match=r"no object of this name was found in any namespace$"):
        found(MAPS, "cm", "nix")
    with pytest.raises(ObjectNotFound, match="not everything could be read: page 7 is damaged") as caught:
        found(MAPS, "cm", "nix", problems=("page 7 is damaged",))
    assert caught.value.hint == "-n NAMESPACE names it without a search"
