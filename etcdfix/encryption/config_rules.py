"""Every rule that the API server has for an EncryptionConfiguration.

Sources: ``k8s.io/apiserver/pkg/apis/apiserver/validation/validation_encryption.go`` (the fields) and
``…/pkg/server/options/encryptionconfig/config.go`` (rules masked by earlier ones).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from etcdfix.encryption.config_file import Path, Problem
from etcdfix.encryption.config_model import (
    EVERYTHING,
    KeyedProvider,
    KMSProvider,
    ResourceRule,
    parse_group_resource,
    rule_name,
    socket_path,
)
from etcdfix.encryption.keyring import shown
from etcdfix.model.model import GroupResource
from etcdfix.model.providers import facts_about

_NOT_IN_THE_API = {"apiserveripinfo", "serviceipallocations", "servicenodeportallocations"}
_OLD_KEY = "Take the key from a backup of this file: a new key cannot read what the old one wrote."
_RESOURCES = (
    "Name resources by lower-case plural and group: secrets, deployments.apps, *. (core), *.apps, *.*"
)
_PROVIDERS = "Give every rule its providers: - aescbc: {…}, then - identity: {}"
_KMS = "A kms provider needs apiVersion (v1 or v2), a name of its own and an endpoint such as unix:///run/kms.sock"
_MOVE = "Move to KMS v2: add it in front, have every value written again, then remove this provider."
_TWICE = "Keep the provider that your values need. Scan with each one alone to see which."
_MASKED = "Move the entry for the single resource above the wildcard: the first match must be the narrowest."


def problems_of(rules: Sequence[ResourceRule]) -> Iterator[Problem]:
    """Yield every broken rule, and what some API server refuses or ignores; that has a kind of its own."""
    if not rules:
        yield Problem(("resources",), "the list is missing or empty", _RESOURCES)
    earlier: set[GroupResource] = set()
    kms_names: set[str] = set()
    for index, rule in enumerate(rules):
        path = ("resources", index)
        yield from _entries((*path, "resources"), rule.resources, earlier)
        earlier.update(map(parse_group_resource, rule.resources))
        if not rule.providers:
            yield Problem((*path, "providers"), "the list is missing or empty", _PROVIDERS)
        for position, provider in enumerate(rule.providers):
            place = (*path, "providers", position, provider.type.value)
            if isinstance(provider, KeyedProvider):
                yield from _keys((*place, "keys"), provider)
            elif isinstance(provider, KMSProvider):
                yield from _kms(place, provider, kms_names)
                kms_names.add(provider.name)


def _entries(path: Path, entries: Sequence[str], earlier: set[GroupResource]) -> Iterator[Problem]:
    if not entries:
        yield Problem(path, "the list is missing or empty", _RESOURCES)
    parsed = [parse_group_resource(entry) for entry in entries]
    in_group = Counter(entry.group for entry in parsed)
    if len(set(parsed)) < len(parsed):
        yield Problem(path, "a resource stands here twice", _RESOURCES)
    elif any(
        (entry == EVERYTHING and len(parsed) > 1) or (entry.resource == "*" and in_group[entry.group] > 1)
        for entry in parsed
    ):
        yield Problem(path, "a wildcard stands beside a resource that it covers", _RESOURCES)
    for position, (entry, wanted) in enumerate(zip(entries, parsed, strict=True)):
        if not entry:
            told = "has an empty resource entry, which matches nothing"
            yield Problem((*path, position), told, "Remove it.", "empty-entry")
        trouble = _entry_trouble(entry, wanted)
        if trouble:
            yield Problem((*path, position), f"{shown(entry)} {trouble}", _RESOURCES)
        for wildcard in [w for w in (GroupResource(wanted.group, "*"), EVERYTHING) if w in earlier][:1]:
            trouble = f"{shown(entry)} is masked by {shown(rule_name(wildcard))} of an earlier rule"
            yield Problem((*path, position), trouble, _MASKED)


def _entry_trouble(entry: str, parsed: GroupResource) -> str:
    if entry.lower() != entry:
        return "has capital letters"
    if entry == "*":
        return "is no wildcard: *. is the core group, *.* is everything"
    if entry in _NOT_IN_THE_API:
        return "is in no API and cannot be encrypted"
    if parsed.group == "events.k8s.io":
        return "is stored as events, without a group: write events"
    if parsed.group == "extensions":
        return "is of a group that was removed"
    if parsed.group == "*" and parsed.resource != "*":
        return "names one resource of all groups, which cannot be encrypted together"
    return ""


def _keys(path: Path, provider: KeyedProvider) -> Iterator[Problem]:
    sizes = facts_about(provider.type, "v1").key_sizes
    if not provider.keys:
        yield Problem(path, "the list is missing or empty", _OLD_KEY)
    for index, key in enumerate(provider.keys):
        if not key.name:
            yield Problem((*path, index, "name"), "a key needs a name", "Name the key.")
        size = key.material.size
        if size not in sizes:
            wanted = " or ".join(map(str, sizes))
            trouble = f"the key has {size} bytes, where {wanted} are expected"
            trouble = trouble if size else "a key needs a secret in base64"
            yield Problem((*path, index, "secret"), trouble, _OLD_KEY)


def _kms(path: Path, kms: KMSProvider, names: set[str]) -> Iterator[Problem]:
    version, name = kms.api_version, kms.name
    if version not in {"v1", "v2"}:
        yield Problem((*path, "apiVersion"), f"{shown(version)} is neither v1 nor v2", _KMS)
    if not name:
        yield Problem((*path, "name"), "a provider needs a name", _KMS)
    if version == "v1":
        told = "uses KMS v1, which is deprecated: API servers from 1.29 on refuse it without --feature-gates=KMSv1=true"
        yield Problem(path, told, _MOVE, "kms-v1")
        if name in names:
            told = "uses one KMS provider name twice, which an API server with "
            flag = "--encryption-provider-config-automatic-reload refuses"
            yield Problem((*path, "name"), told + flag, _TWICE, "kms-name-twice")
        if kms.cache_size == 0:
            yield Problem((*path, "cachesize"), "it must be more than 0, or negative for no cache", _KMS)
    else:
        if ":" in name:
            yield Problem((*path, "name"), f"{shown(name)} has a colon, which only v1 takes", _KMS)
        if name in names:
            yield Problem((*path, "name"), f"{shown(name)} is the name of an earlier provider too", _KMS)
        if kms.cache_size is not None:
            yield Problem((*path, "cachesize"), "only v1 has it", "Remove cachesize.")
    if not kms.timeout_seconds:
        trouble = "it must be a duration of more than 0s, such as 3s or 500ms"
        yield Problem((*path, "timeout"), trouble, _KMS)
    if socket_path(kms.endpoint) is None:
        yield Problem((*path, "endpoint"), "a URL such as unix:///run/kms.sock is expected", _KMS)
