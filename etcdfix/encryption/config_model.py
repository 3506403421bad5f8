"""The structure of an EncryptionConfiguration: resources, providers and keys as a file has them, defaults filled in.

A structure may hold what API servers refuse, so that every problem of a file can be told
(:mod:`etcdfix.encryption.config_rules`). Places in a file are paths: ``("resources", 0, "providers", 1)``.

Sources: ``k8s.io/apiserver/pkg/apis/apiserver/v1`` (defaults) and ``…/pkg/server/options/encryptionconfig/config.go``
(which entry serves a resource).
"""

from __future__ import annotations

import re
from typing import ClassVar
from urllib.parse import unquote_to_bytes

import msgspec

from etcdfix.encryption.keyring import KeyMaterial
from etcdfix.model.model import GroupResource
from etcdfix.model.providers import ProviderType

EVERYTHING = GroupResource("*", "*")

# Less than Go takes (ParseEndpoint of k8s.io/kms/pkg/util): no user, port or query. Only the path counts.
_ENDPOINT = re.compile(
    r"(?i:unix):(?://[A-Za-z0-9.-]*|(?!//))(?P<path>/(?:[^?#%\x00-\x1f\x7f]|%[0-9A-Fa-f]{2})*)?"
)


class NamedKey(msgspec.Struct, frozen=True):
    """One key of a provider.

    Attributes:
        name: May hold any character, ``:`` included, and need not be unique.
        material: Empty where the file gives no base64.
    """

    name: str
    material: KeyMaterial


class KeyedProvider(msgspec.Struct, frozen=True):
    """An ``aescbc``, ``aesgcm`` or ``secretbox`` element; its keys in file order, the first one writes."""

    type: ProviderType
    keys: tuple[NamedKey, ...]


class KMSProvider(msgspec.Struct, frozen=True):
    """A ``kms`` element.

    Attributes:
        api_version: ``v1`` or ``v2``.
        name: Part of the prefix of every value; never sent to the plugin.
        endpoint: URL as written.
        socket_path: Path of the plugin's socket; ``@name`` is a Linux abstract socket; "" where the URL has none.
        cache_size: DEKs that a v1 server keeps, negative for none; None for v2.
        timeout_seconds: For one call to the plugin; 0 where the file gives no positive duration.
    """

    type: ClassVar[ProviderType] = ProviderType.KMS

    api_version: str
    name: str
    endpoint: str
    socket_path: str
    cache_size: int | None
    timeout_seconds: float


class IdentityProvider(msgspec.Struct, frozen=True):
    """An ``identity: {}`` element: plaintext in, plaintext out."""

    type: ClassVar[ProviderType] = ProviderType.IDENTITY


Provider = KeyedProvider | KMSProvider | IdentityProvider


class ResourceRule(msgspec.Struct, frozen=True):
    """One element of the file's ``resources`` list: entries as written, providers in the order tried."""

    resources: tuple[str, ...]
    providers: tuple[Provider, ...]


class EncryptionConfiguration(msgspec.Struct, frozen=True):
    """A configuration that the API server would accept.

    Attributes:
        sha256: ``sha256:<hex>`` of the raw file: the content hash that the API server reports.
        rules: In file order.
        warnings: What some API server would refuse or ignore, one sentence each.
        made_by: The command of etcdfix that made the file (``merge``); "" for any other file. Nothing is
            changed by such a file before API servers write with it.
    """

    path: str
    sha256: str
    rules: tuple[ResourceRule, ...]
    warnings: tuple[str, ...] = ()
    made_by: str = ""

    @property
    def kms_providers(self) -> tuple[KMSProvider, ...]:
        """Every KMS provider, in file order; one that serves several rules comes once."""
        found = (provider for rule in self.rules for provider in rule.providers)
        return tuple(dict.fromkeys(provider for provider in found if isinstance(provider, KMSProvider)))


def parse_group_resource(text: str) -> GroupResource:
    """Return group and resource of an entry: split at the first dot, no dot is the core group.

    Format:
        ``schema.ParseGroupResource``; ``*.`` is every resource of the core group, ``*.*`` every resource.
    """
    resource, _, group = text.partition(".")
    return GroupResource(group, resource)


def rule_name(group_resource: GroupResource) -> str:
    """Return an entry as a configuration file has it; the core wildcard is ``*.``."""
    return "*." if group_resource == ("", "*") else str(group_resource)


def narrowest_first(name: GroupResource) -> tuple[GroupResource, GroupResource, GroupResource]:
    """Return which entries can serve a resource; the first that is there does: its own, its group's, ``*.*``."""
    return name, GroupResource(name.group, "*"), EVERYTHING


def socket_path(endpoint: str) -> str | None:
    """Return the path of the socket, ``@name`` for a Linux abstract one; "" for a URL without, None for no such URL."""
    match = _ENDPOINT.fullmatch(endpoint)
    if match is None:
        return None
    path = unquote_to_bytes(match["path"] or "").decode("utf-8", "surrogateescape")
    return path[1:] if path.startswith("/@") else path
