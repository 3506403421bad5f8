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

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from etcdfix.encryption.config import (
    EncryptionConfiguration,
    IdentityProvider,
    KeyedProvider,
    KMSProvider,
    NamedKey,
    Provider,
    ProviderType,
    ResourceRule,
    parse_configuration,
)
from etcdfix.encryption.config_rules import EVERYTHING, narrowest_first, parse_group_resource, rule_name
from etcdfix.encryption.config_text import configuration_file
from etcdfix.encryption.envelope import transformer_name
from etcdfix.encryption.key_text import shown
from etcdfix.errors import ConfigurationError
from etcdfix.model import GroupResource

MADE_BY: Final = "merge"
_IDENTITY: Final = IdentityProvider()
_NOISE: Final = (
    ". aescbc has no authentication: the first key opens about 1 in 256 values of the second to noise, and an API "
    "server then calls these damaged. Nothing is lost: the other file alone reads them"
)
_SEVERAL: Final = (
    "give the files one by one instead: etcdfix encryption try takes several --in candidate:FILE"
)


class Decided(StrEnum):
    """What kind of decision was made, one word each that does not change."""

    SAME_NAME_OTHER_BYTES = "same-name-other-bytes"
    RENAMED_KEY = "renamed-key"
    KMS_SHARED = "kms-shared"
    IDENTITY_KEPT = "identity-kept"
    IDENTITY_WRITES = "identity-writes"


class Decision(msgspec.Struct, frozen=True):
    """One thing that had to be decided.

    Attributes:
        transformer: Key or provider, "" for none.
    """

    kind: Decided
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
    files = names or [configuration.path for configuration in configurations]
    decisions = _Decisions(files)
    providers = _one_provider_each(lists, files)
    joined = {
        name: _joined([one.serving(name) for one in lists], providers, name, decisions) for name in entries
    }
    result = Merged(tuple(_rules(joined, decisions)), decisions.all())
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


# ------------------------------------------------------------------------------------------------- joining lists


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
    identity = False
    for origin, providers in enumerate(found):
        for provider in [_IDENTITY] if providers is None else providers:
            if isinstance(provider, IdentityProvider):
                identity = True
                if not parts and origin == 0:
                    parts.append(provider)
                    why = "does not name it" if providers is None else "has identity first"
                    decisions.add(
                        Decided.IDENTITY_WRITES, name, "identity",
                        f"{decisions.files[0]} {why}: identity stays first, so new values are stored unencrypted, as "
                        "today",
                    )  # fmt: skip
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
    if identity and _IDENTITY not in parts:
        origin = next(at for at, providers in enumerate(found) if providers is None or _IDENTITY in providers)
        parts.append(_IDENTITY)
        if found[0] is None or _IDENTITY not in found[0]:
            why = (
                "does not name it, so values are stored unencrypted"
                if found[origin] is None
                else "lists identity"
            )
            decisions.add(
                Decided.IDENTITY_KEPT, name, "identity",
                f"{decisions.files[origin]} {why}: identity was put last, so that unencrypted values are read",
            )  # fmt: skip
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
            noise = _NOISE if kind is ProviderType.AESCBC else ""
            decisions.add(Decided.SAME_NAME_OTHER_BYTES, name, transformer, message + noise)
        elif (other[0], other[2]) == (mine[0], mine[2]):
            decisions.add(
                Decided.RENAMED_KEY, name, transformer,
                f"{transformer} has the same bytes ({fingerprint}) as {transformer_name(kind, 'v1', other[1])}; "
                "both names were kept, because a value names its key",
            )  # fmt: skip
    seen[mine] = origin
    return True


# --------------------------------------------------------------------------------- from lists to elements of a file


def _rules(joined: dict[GroupResource, list[Provider]], decisions: _Decisions) -> list[ResourceRule]:
    before = [rule for names in _sharing_kms(joined) for rule in _share(joined, names, decisions)]
    _drop_what_a_wildcard_serves(joined)
    # Only entries of the same breadth never cover each other.
    alike: dict[tuple[object, ...], list[GroupResource]] = {}
    for name, providers in joined.items():
        alike.setdefault((_breadth(name)[0], *_identities(providers)), []).append(name)
    rules = [ResourceRule(tuple(map(rule_name, names)), tuple(joined[names[0]])) for names in alike.values()]
    return [*before, *rules]


def _sharing_kms(joined: dict[GroupResource, list[Provider]]) -> list[list[GroupResource]]:
    """Return the groups of entries that share a KMS v2 provider and do not have one list: such a name stands once."""
    groups: list[tuple[set[str], list[GroupResource]]] = []
    for name, parts in joined.items():
        kms = (part for part in parts if isinstance(part, KMSProvider))
        providers, names = {one.name for one in kms if one.api_version != "v1"}, [name]
        for linked in [group for group in groups if group[0] & providers]:
            groups.remove(linked)
            providers, names = providers | linked[0], [*linked[1], *names]
        groups.append((providers, names))
    return [names for _, names in groups if len({_identities(joined[name]) for name in names}) > 1]


def _share(
    joined: dict[GroupResource, list[Provider]], names: Sequence[GroupResource], decisions: _Decisions
) -> list[ResourceRule]:
    """Give entries that share a KMS v2 provider one list, which has all that any of them has, identity last.

    Where another provider writes for one of them, that one goes into an element of its own before: lists of the same
    entry are joined. A wildcard cannot stand twice, so for it there is no such way.
    """
    writers = [joined[name][0] for name in names]
    several = len({*map(_writer_of, writers)}) > 1
    # One that may stand twice goes before, so it is not the one that has to be first here.
    first = next((part for part in writers if several and isinstance(part, KMSProvider)), writers[0])
    every = {_identity_of(part): part for part in [first, *(part for name in names for part in joined[name])]}
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
    decisions.add(
        Decided.KMS_SHARED, names, "",
        "a KMS v2 provider may stand in a file only once, so the entries that need it share one list: more keys "
        "are tried for them than before, and the same one writes",
    )  # fmt: skip
    return before


def _drop_what_a_wildcard_serves(joined: dict[GroupResource, list[Provider]]) -> None:
    """Remove entries whose list is that of the wildcard that would serve the resource instead."""
    for name in list(joined):
        _, *broader = narrowest_first(name)
        served_by = next((at for at in broader if at in joined and at != name), None)
        if served_by is not None and _identities(joined[served_by]) == _identities(joined[name]):
            del joined[name]


def _identity_of(provider: Provider) -> tuple[object, ...]:
    if isinstance(provider, KeyedProvider):
        return (provider.type, *((key.name, key.material.fingerprint) for key in provider.keys))
    if isinstance(provider, KMSProvider):
        return (provider.type, provider.api_version, provider.name)
    return (provider.type,)


def _identities(parts: Iterable[Provider]) -> tuple[tuple[object, ...], ...]:
    return tuple(map(_identity_of, parts))


# ------------------------------------------------------------------------------------------------ what is decided


class _Decisions:
    def __init__(self, files: Sequence[str]) -> None:
        self.files = files
        self._found: dict[tuple[Decided, str, str], list[str]] = {}

    def add(
        self,
        kind: Decided,
        where: GroupResource | Sequence[GroupResource],
        transformer: str,
        message: str,
    ) -> None:
        names = [where] if isinstance(where, GroupResource) else list(where)
        resources = self._found.setdefault((kind, transformer, message), [])
        resources += [found for name in names if (found := rule_name(name)) not in resources]

    def all(self) -> tuple[Decision, ...]:
        return tuple(
            Decision(kind, tuple(resources), transformer, message)
            for (kind, transformer, message), resources in self._found.items()
        )


# ------------------------------------------------------------------------------------------- checked, then written


def _check(merged: Merged, lists: Sequence[_Lists]) -> None:
    try:
        read_back = _Lists(parse_configuration(merged_file(merged, (), made_at=""), path="merged"))
    except ConfigurationError as error:
        reason = error.message.removeprefix('encryption configuration "merged": ')
        raise ConfigurationError(f"these files cannot be one: {reason}", hint=_SEVERAL) from error
    names = {*read_back.entries, *(name for one in lists for name in one.entries)}
    for name in names:
        served = read_back.serving(name) or [_IDENTITY]
        wanted = [one.serving(name) or [_IDENTITY] for one in lists]
        reads = {reader for provider in served for reader in _readers(provider)}
        lacking = {reader for one in wanted for provider in one for reader in _readers(provider)} - reads
        if lacking or _writer_of(served[0]) != _writer_of(wanted[0][0]):
            raise ConfigurationError(
                f"these files cannot be one: for {rule_name(name)} the result would not read and write as they do",
                hint=_SEVERAL,
            )


def _readers(provider: Provider) -> list[tuple[str, ...]]:
    if isinstance(provider, KeyedProvider):
        return [(provider.type.value, key.name, key.material.fingerprint) for key in provider.keys]
    if isinstance(provider, KMSProvider):
        return [(provider.type.value, provider.api_version, provider.name, provider.endpoint)]
    return [(provider.type.value,)]


def _writer_of(provider: Provider) -> tuple[str, ...]:
    return _readers(provider)[0]
