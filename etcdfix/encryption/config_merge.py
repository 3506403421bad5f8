"""Several EncryptionConfigurations joined to one that reads all that any of them reads.

The first file is today's: of each resource its first provider and key stay the ones that write. What the others have
and it has not comes after that. Lists are joined resource by resource, because the narrowest entry alone serves a
resource: a list for ``secrets`` hides ``*.*``, so what another file has under ``*.*`` is added to the list for
``secrets``.

The result is checked before it is given away: it is a configuration that API servers take, and for no resource does it
lack anything that one of the files has, or write otherwise than the first.

Sources: kube-apiserver 1.36, ``encryptionconfig/config.go``: which list serves a resource, that lists of one and the
same entry are joined while a wildcard stands once, that every key of a name is tried, that a KMS v2 name stands once
in a file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from etcdfix.encryption.config import (
    EncryptionConfiguration,
    IdentityProvider,
    KeyedProvider,
    KMSProvider,
    NamedKey,
    Provider,
    ResourceRule,
    parse_configuration,
)
from etcdfix.encryption.config_rules import EVERYTHING, narrowest_first, parse_group_resource, rule_name
from etcdfix.encryption.config_text import configuration_file
from etcdfix.encryption.envelope import transformer_name
from etcdfix.encryption.keyring import shown
from etcdfix.model.errors import ConfigurationError
from etcdfix.model.model import GroupResource
from etcdfix.model.providers import ProviderType, facts_about

MADE_BY: Final = "merge"
_IDENTITY: Final = IdentityProvider()
_NOISE: Final = (
    ". aescbc has no authentication: the first key opens about 1 in 256 values of the second to noise, and an API "
    "server then calls these damaged. Nothing is lost: the other file alone reads them"
)
_SEVERAL: Final = (
    "give the files one by one instead: etcdfix encryption try takes several --in candidate:FILE"
)


class Decision(msgspec.Struct, frozen=True):
    """One thing that had to be decided.

    Attributes:
        kind: ``same-name-other-bytes``, ``renamed-key``, ``kms-shared``, ``identity-kept``, ``identity-writes``.
        transformer: Key or provider, "" for none.
    """

    kind: str
    resources: tuple[str, ...]
    transformer: str
    message: str


class Merged(msgspec.Struct, frozen=True):
    """The union of some configurations; ``rules`` hold encryption keys."""

    rules: tuple[ResourceRule, ...]
    decisions: tuple[Decision, ...]


class _Lists:
    """The provider lists of one configuration, by entry; lists of the same entry are one, in file order."""

    def __init__(self, configuration: EncryptionConfiguration) -> None:
        self.entries: dict[GroupResource, list[Provider]] = {}
        for rule in configuration.rules:
            for entry in filter(None, rule.resources):
                self.entries.setdefault(parse_group_resource(entry), []).extend(rule.providers)

    def serving(self, name: GroupResource) -> list[Provider] | None:
        """Return what serves a resource, or those of a wildcard that have no entry of their own; None for nothing."""
        return next((self.entries[at] for at in narrowest_first(name) if at in self.entries), None)


def merge(configurations: Sequence[EncryptionConfiguration], names: Sequence[str] = ()) -> Merged:
    """Join configurations.

    Raises:
        ConfigurationError: No single file that an API server takes reads all of it.
    """
    lists = [_Lists(configuration) for configuration in configurations]
    entries = sorted({name for one in lists for name in one.entries}, key=_breadth)
    decisions = _Decisions(names or [configuration.path for configuration in configurations])
    kms = _one_provider_each(lists, decisions.files)
    joined = {name: _joined([one.serving(name) for one in lists], kms, name, decisions) for name in entries}
    before = _share_kms(joined, decisions)
    _drop_what_a_wildcard_serves(joined)
    # Only entries of the same breadth never cover each other.
    alike: dict[object, list[GroupResource]] = {}
    for name, providers in joined.items():
        alike.setdefault((_breadth(name)[0], _readers(*providers)), []).append(name)
    rules = [ResourceRule(tuple(map(rule_name, found)), tuple(joined[found[0]])) for found in alike.values()]
    result = Merged((*before, *rules), decisions.all())
    _check(result, lists)
    return result


def merged_file(merged: Merged, configurations: Sequence[EncryptionConfiguration], *, made_at: str) -> bytes:
    """Return the file, encryption keys included."""
    comment = [
        f"Made by etcdfix encryption {MADE_BY} at {made_at}.",
        "It reads what any of these files reads:",
        *(f"  {number}. {one.path} {one.sha256}" for number, one in enumerate(configurations, start=1)),
    ]
    return configuration_file(merged.rules, made_by=MADE_BY, comment=comment)


def _breadth(name: GroupResource) -> tuple[int, str, str]:
    """Single resources first, then groups, then everything: the order in which nothing is masked."""
    return (2 if name == EVERYTHING else 1 if name.resource == "*" else 0, name.group, name.resource)


def _one_provider_each(lists: Sequence[_Lists], files: Sequence[str]) -> dict[tuple[str, str], KMSProvider]:
    """Return the one provider that stands for each KMS version and name: the first one."""
    chosen: dict[tuple[str, str], tuple[KMSProvider, str]] = {}
    for one, file in zip(lists, files, strict=True):
        for provider in (provider for providers in one.entries.values() for provider in providers):
            if not isinstance(provider, KMSProvider):
                continue
            first, where = chosen.setdefault((provider.api_version, provider.name), (provider, file))
            if first.endpoint != provider.endpoint:
                transformer = transformer_name(ProviderType.KMS, provider.api_version, provider.name)
                raise ConfigurationError(
                    f"these files cannot be one: KMS provider {transformer} has two endpoints, "
                    f"{shown(first.endpoint)} in {where} and {shown(provider.endpoint)} in {file}",
                    hint=_SEVERAL,
                )
    return {name: provider for name, (provider, _) in chosen.items()}


def _joined(
    found: Sequence[list[Provider] | None],
    kms: dict[tuple[str, str], KMSProvider],
    name: GroupResource,
    decisions: _Decisions,
) -> list[Provider]:
    """Return the list of one entry: the first file's as it is, then what others have besides, identity last."""
    parts: list[Provider] = []
    seen: dict[tuple[str, str, str], int] = {}
    identity = None  # the first file that has it
    for origin, providers in enumerate(found):
        for provider in [_IDENTITY] if providers is None else providers:
            if isinstance(provider, IdentityProvider):
                if not parts and origin == 0:
                    parts.append(provider)
                    told = "identity stays first, so new values are stored unencrypted, as today"
                    decisions.add("identity-writes", name, "identity", f"{decisions.files[0]}: {told}")
                identity = origin if identity is None else identity
            elif isinstance(provider, KMSProvider):
                first = kms[provider.api_version, provider.name]
                if first not in parts:
                    parts.append(first)
            else:
                keys = [
                    key for key in provider.keys if _is_new(seen, provider.type, key, origin, name, decisions)
                ]
                if keys:
                    parts.append(KeyedProvider(provider.type, tuple(keys)))
    if identity is not None and _IDENTITY not in parts:
        parts.append(_IDENTITY)
        if identity:
            told = "identity was put last, so that the unencrypted values of this file are read"
            decisions.add("identity-kept", name, "identity", f"{decisions.files[identity]}: {told}")
    return parts


def _is_new(
    seen: dict[tuple[str, str, str], int],
    kind: ProviderType,
    key: NamedKey,
    origin: int,
    name: GroupResource,
    decisions: _Decisions,
) -> bool:
    """Take note of a key; say whether the list lacks it, and say what is odd about it."""
    fingerprint = key.material.fingerprint
    mine = (kind.value, key.name, fingerprint)
    if mine in seen:
        return False
    transformer = transformer_name(kind, "v1", key.name)
    for other, first in seen.items():
        if other[:2] == mine[:2]:
            told = f"{other[2]} in {decisions.files[first]} and {fingerprint} in {decisions.files[origin]}"
            message = f"{transformer} has other bytes: {told}; both were kept, and are tried in this order"
            noise = _NOISE if not facts_about(kind, "v1").authenticated else ""
            decisions.add("same-name-other-bytes", name, transformer, message + noise)
        elif (other[0], other[2]) == (mine[0], mine[2]):
            same = f"the same bytes ({fingerprint}) as {transformer_name(kind, 'v1', other[1])}"
            told = f"{transformer} has {same}; both names were kept, because a value names its key"
            decisions.add("renamed-key", name, transformer, told)
    seen[mine] = origin
    return True


def _share_kms(joined: dict[GroupResource, list[Provider]], decisions: _Decisions) -> list[ResourceRule]:
    """Give entries that share a KMS v2 provider one list, since its name stands once in a file; identity comes last.

    Where another provider writes for one of them, that one goes into an element of its own before: lists of the same
    entry are joined. A wildcard cannot stand twice, so for it there is no such way.
    """
    lists: dict[str, set[object]] = {}
    for parts in joined.values():
        for part in parts:
            if isinstance(part, KMSProvider) and part.api_version != "v1":
                lists.setdefault(part.name, set()).add(_readers(*parts))
    shared = {name for name, found in lists.items() if len(found) > 1}
    names = [
        name
        for name, parts in joined.items()
        if any(isinstance(part, KMSProvider) and part.name in shared for part in parts)
    ]
    if not names:
        return []
    writers = [joined[name][0] for name in names]
    several = len({*map(_writer_of, writers)}) > 1
    # One that may stand twice goes before, so it is not the one that has to be first here.
    first = next((part for part in writers if several and isinstance(part, KMSProvider)), writers[0])
    every = {_readers(part): part for part in [first, *(part for name in names for part in joined[name])]}
    others = sorted([*every.values()][1:], key=lambda part: isinstance(part, IdentityProvider))
    before = []
    for name, writer in zip(names, writers, strict=True):
        joined[name] = [first, *others]
        if _writer_of(writer) == _writer_of(first):
            continue
        if name.resource == "*":
            raise ConfigurationError(
                f"these files cannot be one: {rule_name(name)} and other entries need the same KMS v2 provider, "
                "which may stand in a file once, and not the same one writes for them",
                hint=_SEVERAL,
            )
        before.append(ResourceRule((rule_name(name),), (writer,)))
    told = "a KMS v2 provider may stand in a file only once, so the entries that need it share one list"
    for name in names:
        decisions.add(
            "kms-shared", name, "", f"{told}: more keys are tried for them, and the same one writes"
        )
    return before


def _drop_what_a_wildcard_serves(joined: dict[GroupResource, list[Provider]]) -> None:
    """Remove entries whose list is that of the wildcard that would serve the resource instead."""
    for name in list(joined):
        _, *broader = narrowest_first(name)
        served_by = next((at for at in broader if at in joined and at != name), None)
        if served_by is not None and _readers(*joined[served_by]) == _readers(*joined[name]):
            del joined[name]


class _Decisions:
    def __init__(self, files: Sequence[str]) -> None:
        self.files = files
        self._found: dict[tuple[str, str, str], list[str]] = {}

    def add(self, kind: str, where: GroupResource, transformer: str, message: str) -> None:
        resources = self._found.setdefault((kind, transformer, message), [])
        if rule_name(where) not in resources:
            resources.append(rule_name(where))

    def all(self) -> tuple[Decision, ...]:
        return tuple(
            Decision(kind, tuple(resources), transformer, message)
            for (kind, transformer, message), resources in self._found.items()
        )


def _check(merged: Merged, lists: Sequence[_Lists]) -> None:
    try:
        read_back = _Lists(parse_configuration(merged_file(merged, (), made_at=""), path="merged"))
    except ConfigurationError as error:
        reason = error.message.removeprefix('encryption configuration "merged": ')
        raise ConfigurationError(f"these files cannot be one: {reason}", hint=_SEVERAL) from error
    for name in {*read_back.entries, *(name for one in lists for name in one.entries)}:
        served = read_back.serving(name) or [_IDENTITY]
        wanted = [one.serving(name) or [_IDENTITY] for one in lists]
        lacking = {reader for one in wanted for reader in _readers(*one)}.difference(_readers(*served))
        if lacking or _writer_of(served[0]) != _writer_of(wanted[0][0]):
            raise ConfigurationError(
                f"these files cannot be one: for {rule_name(name)} the result would not read and write as they do",
                hint=_SEVERAL,
            )


def _readers(*providers: Provider) -> tuple[tuple[str, ...], ...]:
    """Return all that some providers read with, in order."""
    found: list[tuple[str, ...]] = []
    for provider in providers:
        if isinstance(provider, KeyedProvider):
            found += ((provider.type.value, key.name, key.material.fingerprint) for key in provider.keys)
        elif isinstance(provider, KMSProvider):
            found.append((provider.type.value, provider.api_version, provider.name, provider.endpoint))
        else:
            found.append((provider.type.value,))
    return tuple(found)


def _writer_of(provider: Provider) -> tuple[str, ...]:
    return _readers(provider)[0]
