"""``--etcd-servers-overrides`` of kube-apiserver: which resources have an etcd of their own.

Format: ``ParseEtcdServersOverrides`` in ``apiserver/pkg/server/options/etcd.go`` and ``storage_factory.go`` beside it.
"""

from __future__ import annotations

from collections.abc import Mapping

from etcdfix.model.errors import ConfigurationError
from etcdfix.text.safetext import safe_text

Overrides = Mapping[str, tuple[str, ...]]
"""A resource (``events``, ``leases.coordination.k8s.io``), or all of an API group (``*``, ``*.apps``), to its URLs."""


def parse_overrides(text: str) -> dict[str, tuple[str, ...]]:
    """Return what the flag says.

    Raises:
        ConfigurationError: An API server would not start with it.
    """
    overrides = {}
    for item in text.split(","):
        if not item.strip():
            continue
        place, hash_mark, urls = item.strip().partition("#")
        group, slash, resource = place.partition("/")
        servers = tuple(url.strip() for url in urls.split(";"))
        if not (hash_mark and slash and resource) or "/" in resource or "#" in urls or "" in servers:
            raise ConfigurationError(
                f"--etcd-servers-overrides: {safe_text(item.strip())!r} is not GROUP/RESOURCE#URL;URL",
                hint="commas stand between resources, semicolons between servers of one; the core group is empty: "
                "/events#https://10.0.0.1:2381;https://10.0.0.2:2381",
            )
        overrides[f"{resource}.{group}" if group else resource] = servers
    return overrides


def overrides_text(overrides: Overrides) -> str:
    """Return the flag that says so."""
    items = []
    for place, servers in overrides.items():
        resource, _, group = place.partition(".")
        items.append(f"{group}/{resource}#{';'.join(servers)}")
    return ",".join(items)


def servers_of(overrides: Overrides, resource: str) -> tuple[str, ...]:
    """Return the URLs of a resource's own etcd; none where it has none. The resource itself counts before its group."""
    _, dot, group = resource.partition(".")
    return overrides.get(resource) or overrides.get(f"*{dot}{group}") or ()
