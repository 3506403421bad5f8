"""What several EncryptionConfigurations do otherwise.

They are the files of control-plane nodes, or one before and after a change. They are compared by what they do, not by
their text: for each resource that any of them names, which encryption key writes and which ones read. Encryption keys
are compared by name and fingerprint, KMS providers by version and name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple

import msgspec

from etcdfix.encryption.config import EncryptionConfiguration, ProviderType
from etcdfix.encryption.config_rules import parse_group_resource, rule_name
from etcdfix.encryption.envelope import transformer_name
from etcdfix.encryption.transformer import IDENTITY, Transformers
from etcdfix.model import KeyOfRule


class DifferenceKind(StrEnum):
    """What differs, one word each that does not change; the worst first."""

    WRITTEN_NOT_READ = "written-not-read"
    OTHER_BYTES = "same-name-other-bytes"
    RENAMED = "renamed-key"
    MISSING = "key-missing"
    WRITE_KEY = "write-key-differs"
    KMS_ENDPOINT = "kms-endpoint-differs"
    ORDER = "order-differs"


_Keys = tuple[KeyOfRule, ...]


class _Rule(NamedTuple):
    """Entries for which the files do the same, and what each file tries for them, in order."""

    resources: tuple[str, ...]
    lists: tuple[_Keys, ...]


class Difference(msgspec.Struct, frozen=True):
    """One thing that differs.

    Attributes:
        key: Which encryption key or provider, None where it is about several.
        has: The files that have it, or write so: their places in the order given.
        others: What those have in its place: each with its files.
    """

    kind: DifferenceKind
    resources: tuple[str, ...]
    key: KeyOfRule | None
    has: tuple[int, ...]
    lacks: tuple[int, ...]
    others: tuple[tuple[KeyOfRule, tuple[int, ...]], ...] = ()


def compare_configurations(configurations: Sequence[EncryptionConfiguration]) -> list[Difference]:
    """Return what configurations do otherwise, the worst first."""
    found = [one for rule in _rules(configurations) if len(set(rule.lists)) > 1 for one in _differences(rule)]
    found += _endpoints(configurations)
    kinds = list(DifferenceKind)
    return sorted(found, key=lambda difference: kinds.index(difference.kind))


def _rules(configurations: Sequence[EncryptionConfiguration]) -> list[_Rule]:
    entries = (entry for one in configurations for rule in one.rules for entry in rule.resources)
    names = dict.fromkeys(parse_group_resource(entry) for entry in entries if entry)
    transformers = [Transformers.from_configuration(configuration) for configuration in configurations]
    alike: dict[tuple[_Keys, ...], list[str]] = {}
    for name in names:
        lists = tuple(tuple(key.named for key in one.for_resource(name).keys) for one in transformers)
        alike.setdefault(lists, []).append(rule_name(name))
    return [_Rule(tuple(found), lists) for lists, found in alike.items()]


def _differences(rule: _Rule) -> Iterator[Difference]:
    writers: dict[KeyOfRule, list[int]] = {}
    for at, keys in enumerate(rule.lists):
        writers.setdefault(keys[0], []).append(at)
    unread = False
    for key, has in writers.items():
        lacks = [at for at, keys in enumerate(rule.lists) if key not in keys]
        if lacks:
            unread = True
            yield _difference(DifferenceKind.WRITTEN_NOT_READ, rule, key, has, lacks)
    if len(writers) > 1 and not unread:
        (key, has), *rest = writers.items()
        others = tuple((other, tuple(files)) for other, files in rest)
        lacks = [at for _, files in others for at in files]
        yield Difference(DifferenceKind.WRITE_KEY, rule.resources, key, tuple(has), tuple(lacks), others)
    told: list[Difference] = []
    for key in dict.fromkeys(key for keys in rule.lists for key in keys):
        has = [at for at, keys in enumerate(rule.lists) if key in keys]
        lacks = [at for at in range(len(rule.lists)) if at not in has]
        if lacks and key not in writers:
            difference = _difference(None, rule, key, has, lacks)
            if not any(_is_the_other_side(difference, other) for other in told):
                told.append(difference)
    yield from told
    for files in _same_but_for_order(rule):
        yield Difference(DifferenceKind.ORDER, rule.resources, None, tuple(files), ())


def _difference(
    kind: DifferenceKind | None, rule: _Rule, key: KeyOfRule, has: Sequence[int], lacks: Sequence[int]
) -> Difference:
    """Return that some files lack a key, and what they have in its place: its name, or its bytes."""
    found: dict[KeyOfRule, list[int]] = {}
    for at in lacks:
        for other in rule.lists[at]:
            if _is_in_place_of(other, key):
                found.setdefault(other, []).append(at)
    others = tuple((other, tuple(files)) for other, files in found.items())
    if kind is None:
        kind = DifferenceKind.MISSING
        if any(other.transformer == key.transformer for other, _ in others):
            kind = DifferenceKind.OTHER_BYTES
        elif others:
            kind = DifferenceKind.RENAMED
    return Difference(kind, rule.resources, key, tuple(has), tuple(lacks), others)


def _is_the_other_side(one: Difference, other: Difference) -> bool:
    """Say whether two say the same, once of the files that have a key and once of those that have the other one."""
    return (one.has, one.lacks) == (other.lacks, other.has) and (other.key, other.has) in one.others


def _is_in_place_of(other: KeyOfRule, key: KeyOfRule) -> bool:
    if not key.key_fingerprint or other == key:
        return False
    same_provider = other.transformer.partition("/")[0] == key.transformer.partition("/")[0]
    return other.transformer == key.transformer or (
        same_provider and other.key_fingerprint == key.key_fingerprint
    )


def _same_but_for_order(rule: _Rule) -> Iterator[list[int]]:
    """Yield groups of files that have the same keys and the same first one, in another order."""
    groups: dict[tuple[KeyOfRule, frozenset[KeyOfRule]], list[int]] = {}
    for at, keys in enumerate(rule.lists):
        groups.setdefault((keys[0], frozenset(keys)), []).append(at)
    for files in groups.values():
        # Where identity stands behind the first place is of no account: it opens what nothing else does.
        orders = {tuple(key for key in rule.lists[at] if key.transformer != IDENTITY) for at in files}
        if len(orders) > 1:
            yield files


def _endpoints(configurations: Sequence[EncryptionConfiguration]) -> Iterator[Difference]:
    used: dict[KeyOfRule, dict[str, list[int]]] = {}
    for at, configuration in enumerate(configurations):
        for provider in configuration.kms_providers:
            name = KeyOfRule(transformer_name(ProviderType.KMS, provider.api_version, provider.name), "")
            used.setdefault(name, {}).setdefault(provider.endpoint, []).append(at)
    for name, endpoints in used.items():
        if len(endpoints) > 1:
            first, *others = endpoints.values()
            lacks = tuple(dict.fromkeys(at for files in others for at in files))
            yield Difference(DifferenceKind.KMS_ENDPOINT, (), name, tuple(first), lacks)
