"""``--etcd-servers-overrides`` as kube-apiserver takes it, and nothing that it would not start with."""

from __future__ import annotations

import pytest

from etcdfix.inputs.overrides import overrides_text, parse_overrides, servers_of
from etcdfix.model.errors import ConfigurationError

TEXT = "/events#https://10.0.0.1:2381;https://10.0.0.2:2381,coordination.k8s.io/leases#https://127.0.0.1:4004,apps/*#http://a:1"


def test_resources_and_their_servers() -> None:
    overrides = parse_overrides(TEXT)
    assert overrides == {
        "events": ("https://10.0.0.1:2381", "https://10.0.0.2:2381"),
        "leases.coordination.k8s.io": ("https://127.0.0.1:4004",),
        "*.apps": ("http://a:1",),
    }
    assert overrides_text(overrides) == TEXT
    assert parse_overrides("") == {}


@pytest.mark.parametrize(
    ("resource", "servers"),
    [
        ("events", ("http://exact:1",)),
        ("pods", ("http://core:1",)),
        ("deployments.apps", ("http://apps:1",)),
        ("leases.coordination.k8s.io", ()),
    ],
)
def test_the_resource_itself_counts_before_its_group(resource: str, servers: tuple[str, ...]) -> None:
    overrides = parse_overrides("/*#http://core:1,/events#http://exact:1,apps/*#http://apps:1")
    assert servers_of(overrides, resource) == servers


@pytest.mark.parametrize(
    "text",
    [
        "/events#https://a:1,https://b:1",  # a comma inside the servers
        "/events",
        "events#http://a:1",
        "/events#http://a:1;",
        "a/b/c#http://a:1",
        "/events#http://a:1#http://b:1",
        "/ev\x1bents",
    ],
)
def test_what_an_api_server_would_not_start_with(text: str) -> None:
    with pytest.raises(ConfigurationError, match="is not GROUP/RESOURCE#URL;URL") as raised:
        parse_overrides(text)
    assert raised.value.message.isprintable()
