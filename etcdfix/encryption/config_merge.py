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

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final, NamedTuple

import msgspec

from etcdfix.encryption.config import configuration_file, parse_configuration
from etcdfix.encryption.config_model import (
    EVERYTHING,
    EncryptionConfiguration,
    IdentityProvider,
    KeyedProvider,
    KMSProvider,
    Provider,
    ResourceRule,
    narrowest_first,
    parse_group_resource,
    rule_name,
)
from etcdfix.encryption.envelope import transformer_name
from etcdfix.model.errors import ConfigurationError
from etcdfix.model.model import GroupResource
from etcdfix.model.providers import facts_about

MADE_BY: Final = "merge"
_NOISE: Final = (
    ". aescbc has no authentication: the first key opens about 1 in 256 values of the second to noise, and an API "
    "server then calls these damaged. Nothing is lost: the other file alone reads them"
)


class Decision(NamedTuple):
    """One thing that had to be decided.

    Attributes:
        kind: ``same-name-other-bytes``, ``renamed-key``, ``kms-shared``, ``identity-kept``, ``identity-writes``.
        transformer: Key or provider, "" for none.
    """

    kind: str
    resources: list[str]
    transformer: str
    message: str


class Merged(msgspec.Struct, frozen=True):
    """The union of some configurations; ``rules`` hold encryption keys."""

    rules: tuple[ResourceRule, ...]
    decisions: tuple[Decision, ...]


_Id = tuple[str, ...]
"""Kind, name and fingerprint of a key; kind, name, version and endpoint of a KMS provider; or identity alone."""
_Readers = dict[_Id, Provider]
"""Providers of one key each, in the order in which they are tried."""
_UNENCRYPTED: Final = ("identity",)


def _readers_of(providers: Iterable[Provider]) -> _Readers:
    readers: _Readers = {}
    for provider in providers:
        kind = provider.type.value
        if isinstance(provider, KeyedProvider):
            for key in provider.keys:
                own = KeyedProvider(provider.type, (key,))
                readers.setdefault((kind, key.name, key.material.fingerprint), own)
        elif isinstance(provider, KMSProvider):
            readers.setdefault((kind, provider.name, provider.api_version, provider.endpoint), provider)
        else:
            readers.setdefault((kind,), provider)
    return readers


class _Lists:
    """What one configuration reads each entry with; lists of the same entry are one, in file order."""

    def __init__(self, rules: Iterable[ResourceRule]) -> None:
        providers: dict[GroupResource, list[Provider]] = {}
        for rule in rules:
            for entry in filter(None, rule.resources):
                providers.setdefault(parse_group_resource(entry), []).extend(rule.providers)
        self.entries = {name: _readers_of(found) for name, found in providers.items()}

    def serving(self, name: GroupResource) -> _Readers:
        """Return what serves a resource, or those of a wildcard that have no entry of their own."""
        found = (self.entries[at] for at in narrowest_first(name) if at in self.entries)
        return next(found, {_UNENCRYPTED: IdentityProvider()})


def merge(configurations: Sequence[EncryptionConfiguration], names: Sequence[str] = ()) -> Merged:
    """Join configurations.

    Raises:
        ConfigurationError: No single file that an API server takes reads all of it.
    """
    lists = [_Lists(configuration.rules) for configuration in configurations]
    decisions = _Decisions(names or [configuration.path for configuration in configurations])
    entries = sorted({name for one in lists for name in one.entries}, key=_breadth)
    joined = {name: _joined([one.serving(name) for one in lists], name, decisions) for name in entries}
    _share_kms(joined, decisions)
    _drop_what_a_wildcard_serves(joined)
    # Only entries of the same breadth never cover each other.
    alike: dict[object, list[GroupResource]] = {}
    for name, readers in joined.items():
        alike.setdefault((_breadth(name)[0], tuple(readers)), []).append(name)
    rules = (
        ResourceRule(tuple(map(rule_name, found)), tuple(_providers(joined[found[0]].values())))
        for found in alike.values()
    )
    result = Merged(tuple(rules), decisions.all())
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


def _providers(readers: Iterable[Provider]) -> Iterator[Provider]:
    """Yield the providers of a list, keys of one kind that follow each other as one."""
    for kind, group in groupby(readers, key=lambda provider: provider.type):
        providers = [*group]
        keys = [key for one in providers if isinstance(one, KeyedProvider) for key in one.keys]
        yield from [KeyedProvider(kind, tuple(keys))] if keys else providers


def _joined(found: Sequence[_Readers], name: GroupResource, decisions: _Decisions) -> _Readers:
    """Return the list of one entry: the first file's as it is, then what others have besides, identity last."""
    joined: _Readers = {}
    files: dict[_Id, str] = {}
    for file, readers in zip(decisions.files, found, strict=True):
        for mine, provider in readers.items():
            if mine not in joined:
                if isinstance(provider, KeyedProvider):
                    _compare(mine, file, files, name, decisions)
                joined[mine], files[mine] = provider, file
    if next(iter(joined)) == _UNENCRYPTED:
        told = "identity stays first, so new values are stored unencrypted, as today"
        decisions.add("identity-writes", name, "identity", f"{decisions.files[0]}: {told}")
    elif _UNENCRYPTED in joined:
        joined[_UNENCRYPTED] = joined.pop(_UNENCRYPTED)
        if _UNENCRYPTED not in found[0]:
            told = "identity was put last, so that the unencrypted values of this file are read"
            decisions.add("identity-kept", name, "identity", f"{files[_UNENCRYPTED]}: {told}")
    return joined


def _compare(
    mine: _Id, file: str, others: dict[_Id, str], name: GroupResource, decisions: _Decisions
) -> None:
    """Say what is odd about a key beside those that are in the list already."""
    kind, key, fingerprint = mine
    transformer = transformer_name(kind, "v1", key)
    for other, where in others.items():
        if other[:2] == mine[:2]:
            told = f"{other[2]} in {where} and {fingerprint} in {file}"
            noise = "" if facts_about(kind, "v1").authenticated else _NOISE
            message = (
                f"{transformer} has other bytes: {told}; both were kept, and are tried in this order{noise}"
            )
            decisions.add("same-name-other-bytes", name, transformer, message)
        elif (other[0], *other[2:]) == (kind, fingerprint):
            told = f"{transformer} has the same bytes ({fingerprint}) as {transformer_name(kind, 'v1', other[1])}"
            message = f"{told}; both names were kept, because a value names its key"
            decisions.add("renamed-key", name, transformer, message)


def _share_kms(joined: dict[GroupResource, _Readers], decisions: _Decisions) -> None:
    """Give entries that share a KMS v2 provider one list, since its name stands once in a file; identity comes last."""
    lists: dict[_Id, set[tuple[_Id, ...]]] = {}
    for readers in joined.values():
        for each in filter(_stands_once, readers):
            lists.setdefault(each, set()).add(tuple(readers))
    shared = {each for each, found in lists.items() if len(found) > 1}
    names = [name for name, readers in joined.items() if shared & readers.keys()]
    if not names:
        return
    if len({next(iter(joined[name])) for name in names}) > 1:
        raise _cannot_be_one(
            f"{', '.join(map(rule_name, names))} need the same KMS v2 provider, which may stand in a file once, and "
            "not the same one writes for them"
        )
    every = {each: provider for name in names for each, provider in joined[name].items()}
    if next(iter(every)) != _UNENCRYPTED and _UNENCRYPTED in every:
        every[_UNENCRYPTED] = every.pop(_UNENCRYPTED)
    told = "a KMS v2 provider may stand in a file only once, so the entries that need it share one list"
    for name in names:
        joined[name] = every
        decisions.add(
            "kms-shared", name, "", f"{told}: more keys are tried for them, and the same one writes"
        )


def _stands_once(reader: _Id) -> bool:
    return len(reader) == 4 and reader[2] != "v1"


def _drop_what_a_wildcard_serves(joined: dict[GroupResource, _Readers]) -> None:
    """Remove entries whose list is that of the wildcard that would serve the resource instead."""
    for name in list(joined):
        _, *broader = narrowest_first(name)
        served_by = next((at for at in broader if at in joined and at != name), None)
        if served_by is not None and [*joined[served_by]] == [*joined[name]]:
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
        return tuple(Decision(kind, where, *told) for (kind, *told), where in self._found.items())


def _cannot_be_one(why: str) -> ConfigurationError:
    hint = "give the files one by one instead: etcdfix encryption try takes several --in candidate:FILE"
    return ConfigurationError(f"these files cannot be one: {why}", hint=hint)


def _check(merged: Merged, lists: Sequence[_Lists]) -> None:
    try:
        read_back = _Lists(parse_configuration(merged_file(merged, (), made_at=""), path="merged").rules)
    except ConfigurationError as error:
        reason = error.message.removeprefix('encryption configuration "merged": ')
        raise _cannot_be_one(reason) from error
    for name in {*read_back.entries, *(name for one in lists for name in one.entries)}:
        served, wanted = [*read_back.serving(name)], [[*one.serving(name)] for one in lists]
        if not {*served}.issuperset(each for one in wanted for each in one) or served[0] != wanted[0][0]:
            raise _cannot_be_one(f"for {rule_name(name)} the result would not read and write as they do")
