"""Transformers, upstream's word for what opens stored values: from stored bytes to plaintext, in the server's order.

The API server nests providers and keys; here they stand in one flat list, in the same order, and the first plaintext
wins. Where nothing opens, what each one said is put together as the API server does it.

Sources: ``k8s.io/apiserver/pkg/storage/value/transformer.go`` (order, aggregation, stale) and
``…/server/options/encryptionconfig/config.go`` (prefixes, look-up per resource).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Self

import msgspec

from etcdfix.encryption.cipher import Cipher
from etcdfix.encryption.config_model import (
    EncryptionConfiguration,
    IdentityProvider,
    KeyedProvider,
    KMSProvider,
    Provider,
    narrowest_first,
    parse_group_resource,
    rule_name,
)
from etcdfix.encryption.envelope import transformer_name
from etcdfix.encryption.keyring import KeyMaterial
from etcdfix.encryption.kms.envelopes import KMSPlugin
from etcdfix.encryption.kms.transformer import KMSReader, KMSv1Reader, KMSv2Reader
from etcdfix.encryption.providers import cipher_of
from etcdfix.model.errors import EtcdfixError, aggregate
from etcdfix.model.model import Attempt, FailureReason, GroupResource, KeyOfRule, Plaintext, TransformFailure
from etcdfix.model.providers import (
    ENCRYPTED_PREFIX,
    IDENTITY,
    ProviderFacts,
    ProviderType,
    facts_about,
    facts_of,
)

_REFUSED_ERROR = "identity transformer tried to read encrypted data"
_NO_PREFIX_ERROR = "no matching prefix found"
_NOT_ASKED = "the KMS plugin that this value needs was not asked"

# Of each key a cipher says one of few things; many keys of one name can say them in many ways.
_MOST_SAID = 1_000

PluginFor = Callable[[KMSProvider], KMSPlugin | None]


class ConfiguredKey(NamedTuple):
    """A key, KMS provider or identity that serves a resource, and what it takes to write with it.

    Attributes:
        transformer: ``aescbc/v1/key1``, ``kms/v2/prov``, ``identity``.
        prefix: What a value under it begins with, its name and the colon after it included; empty for identity.
        material: The key; None for KMS and identity.
    """

    transformer: str
    provider: ProviderType
    prefix: bytes
    material: KeyMaterial | None = None

    @property
    def key_fingerprint(self) -> str:
        """Of the key, "" for KMS and identity."""
        return self.material.fingerprint if self.material is not None else ""

    @property
    def facts(self) -> ProviderFacts:
        """Return what its provider guarantees."""
        return facts_of(self.transformer)

    @property
    def named(self) -> KeyOfRule:
        """What reports have of it."""
        return KeyOfRule(self.transformer, self.key_fingerprint)


class TransformFailed(EtcdfixError):
    """Raised when no configured provider opens a value.

    ``message`` is the API server's own wording; ``failure`` says what each provider said.
    """

    code = "transform-failed"
    exit_code = 1

    def __init__(self, failure: TransformFailure) -> None:
        super().__init__(failure.message or _NOT_ASKED)
        self.failure = failure


def no_plugin(_provider: KMSProvider) -> None:
    """Return no plugin: values of KMS providers are then undetermined."""


_Read = Callable[[bytes, bytes], Plaintext | Attempt]


class _Provider(NamedTuple):
    """One element of a provider list: local ciphers, one for each key; or what opens KMS values; or neither."""

    type: ProviderType
    prefix: bytes
    keys: tuple[ConfiguredKey, ...]
    ciphers: tuple[Cipher, ...] = ()
    kms: KMSReader | None = None

    @classmethod
    def of(cls, provider: Provider, plugin_for: PluginFor) -> _Provider:
        if isinstance(provider, KeyedProvider):
            prefix = f"k8s:enc:{provider.type}:v1:".encode()
            keys = tuple(
                ConfiguredKey(
                    transformer_name(provider.type, "v1", key.name),
                    provider.type,
                    prefix + key.name.encode() + b":",
                    key.material,
                )
                for key in provider.keys
            )
            ciphers = tuple(cipher_of(provider.type, key.material.expose()) for key in provider.keys)
            return cls(provider.type, prefix, keys, ciphers)
        if isinstance(provider, KMSProvider):
            prefix = f"k8s:enc:kms:{provider.api_version}:{provider.name}:".encode()
            name = transformer_name(ProviderType.KMS, provider.api_version, provider.name)
            kind = KMSv1Reader if provider.api_version == "v1" else KMSv2Reader
            key = ConfiguredKey(name, ProviderType.KMS, prefix)
            return cls(ProviderType.KMS, prefix, (key,), kms=kind(plugin_for(provider), name, prefix))
        # Its prefix is empty, so it is asked about every value.
        return cls(ProviderType.IDENTITY, b"", (ConfiguredKey(IDENTITY, ProviderType.IDENTITY, b""),))

    def readers(self, *, later: bool) -> Iterator[tuple[ConfiguredKey, _Read]]:
        """Yield what opens values that are encrypted; ``later``: another provider writes."""
        for number, (key, cipher) in enumerate(zip(self.keys, self.ciphers, strict=False)):
            yield key, _local_reader(key, cipher, stale=later or number != 0)
        if self.kms is not None:
            yield self.keys[0], _kms_reader(self.kms, later=later)


def _local_reader(key: ConfiguredKey, cipher: Cipher, *, stale: bool) -> _Read:
    skip, opens, authenticated = len(key.prefix), cipher.read, cipher.authenticated
    transformer, fingerprint = key.transformer, key.key_fingerprint

    def read(data: bytes, etcd_key: bytes) -> Plaintext | Attempt:
        plaintext = opens(data[skip:], etcd_key)
        if isinstance(plaintext, Attempt):
            return plaintext
        return Plaintext(plaintext, transformer, stale, "", fingerprint, authenticated)

    return read


def _kms_reader(reader: KMSReader, *, later: bool) -> _Read:
    """Return what reads KMS values; it is quick for those whose DEK seed has opened others."""
    start, transformer = len(reader.prefix), reader.transformer
    read_known = reader.read_known if isinstance(reader, KMSv2Reader) else None

    def read(data: bytes, etcd_key: bytes) -> Plaintext | Attempt:
        known = read_known(data, start, etcd_key) if read_known is not None else None
        if known is not None:
            return Plaintext(known[0], transformer, later or known[1], known[2])
        found = reader.read(data[start:], etcd_key)
        if isinstance(found, Attempt):
            return found
        return msgspec.structs.replace(found, transformer=transformer, stale=later or found.stale)

    return read


class ResourceTransformers:
    """The providers that serve one resource.

    Attributes:
        rule: The entries of the configuration that share these providers, in file order (``secrets,configmaps``,
            ``*.apps``, ``*.``, ``*.*``); None for a resource that the configuration does not cover.
        has_identity: Plaintext is allowed.
        keys: Everything that is tried, in order; the first one writes.
        prefixes: Those that the keys write before a value.
        kms_readers: The KMS providers among them.
    """

    __slots__ = (
        "_failures", "_identity_stale", "_places", "_providers", "_readers",
        "has_identity", "keys", "kms_readers", "prefixes", "rule",
    )  # fmt: skip

    def __init__(self, rule: str | None, providers: Sequence[_Provider]) -> None:
        self.rule = rule
        self.keys = tuple(key for provider in providers for key in provider.keys)
        self.prefixes = tuple(key.prefix for key in self.keys if key.prefix)
        self.kms_readers = tuple(provider.kms for provider in providers if provider.kms is not None)
        self._providers = tuple(providers)
        self._failures: dict[object, TransformFailure] = {}
        found = [
            (at, key, read)
            for at, provider in enumerate(providers)
            for key, read in provider.readers(later=at != 0)
        ]
        self._places = tuple((at, key) for at, key, _ in found)
        self._readers = tuple((number, key.prefix, read) for number, (_, key, read) in enumerate(found))
        identities = [at for at, one in enumerate(providers) if one.type is ProviderType.IDENTITY]
        self.has_identity = bool(identities)
        self._identity_stale = bool(identities) and identities[0] != 0

    def from_storage(self, data: bytes, key: bytes) -> Plaintext:
        """Turn a stored value into plaintext.

        Raises:
            TransformFailed: No configured provider opens the value.
            KMSPending: A plugin has not answered yet.
        """
        result = self.read(data, key)
        if isinstance(result, Plaintext):
            return result
        raise TransformFailed(result)

    def read(self, data: bytes, key: bytes) -> Plaintext | TransformFailure:
        """Do what :meth:`from_storage` does, and return why no provider opens the value: there may be a million such.

        Raises:
            KMSPending: A plugin has not answered yet.
        """
        said: list[tuple[int, Attempt]] = []
        if data.startswith(ENCRYPTED_PREFIX):
            for number, prefix, read in self._readers:
                if data.startswith(prefix):
                    result = read(data, key)
                    if isinstance(result, Plaintext):
                        return result
                    said.append((number, result))
        elif self.has_identity:
            return Plaintext(data, IDENTITY, self._identity_stale)
        # The keys that said something tell which providers a value begins with.
        told: object = tuple(said) or self._begun(data)
        failed = self._failures.get(told)
        if failed is None:
            if len(self._failures) >= _MOST_SAID:
                self._failures.clear()
            failed = self._failures[told] = self._failure(self._begun(data), said)
        return failed

    def _begun(self, data: bytes) -> tuple[int, ...]:
        return tuple(at for at, provider in enumerate(self._providers) if data.startswith(provider.prefix))

    @contextmanager
    def learning_nothing(self) -> Iterator[None]:
        """Read bytes that etcd does not hold: what opens speaks for no plugin, and is not remembered."""
        for reader in self.kms_readers:
            reader.learns = False
        try:
            yield
        finally:
            for reader in self.kms_readers:
                reader.learns = True

    def start_over(self) -> None:
        """Forget which data keys of KMS opened values, and what was said of those that did not open."""
        self._failures.clear()
        for reader in self.kms_readers:
            reader.start_over()

    def has_dropped_data_keys(self, data: bytes) -> bool:
        """Say whether more data keys opened values than are kept, under the KMS v2 provider that a value names."""
        return any(
            isinstance(reader, KMSv2Reader) and reader.dropped
            for reader in self.kms_readers
            if data.startswith(reader.prefix)
        )

    def _failure(self, begun: Sequence[int], said: Sequence[tuple[int, Attempt]]) -> TransformFailure:
        """Return what comes of what keys said, and of the providers that a value begins with."""
        attempts: list[Attempt] = []
        for at in begun:
            own = [(self._places[number][1], one) for number, one in said if self._places[number][0] == at]
            for key, one in own:
                named = {"transformer": key.transformer, "key_fingerprint": key.key_fingerprint}
                attempts.append(msgspec.structs.replace(one, **named))
            kind = self._providers[at].type
            error = facts_about(kind, "v1").no_key_error
            if not own and error:
                name = transformer_name(kind, "v1", "")
                attempts.append(Attempt(FailureReason.NO_KEY_MATCHED, (error,), transformer=name))
        # The refusal of identity is dropped: a user sees it only for a resource without an entry in the configuration.
        if not attempts and self.rule is None:
            return TransformFailure(FailureReason.IDENTITY_REFUSED, _REFUSED_ERROR)
        if not attempts:
            return TransformFailure(FailureReason.NO_PROVIDER_MATCHED, _NO_PREFIX_ERROR)
        known = all(attempt.errors for attempt in attempts)
        message = aggregate(error for attempt in attempts for error in attempt.errors) if known else ""
        return TransformFailure(_overall(attempts), message, tuple(attempts))


class Transformers:
    """Which transformers serve which resource.

    Attributes:
        names: Every configured key and KMS provider name, for
            :func:`~etcdfix.encryption.envelope.parse_envelope`.
    """

    def __init__(self, rules: Mapping[GroupResource, ResourceTransformers], names: frozenset[str]) -> None:
        self.names = names
        self._rules = dict(rules)
        self._not_covered = ResourceTransformers(None, [_Provider.of(IdentityProvider(), no_plugin)])
        self._found: dict[GroupResource, ResourceTransformers] = {}
        self._ciphers: dict[tuple[ProviderType, str], Cipher] = {}

    @classmethod
    def from_configuration(
        cls, configuration: EncryptionConfiguration, plugin_for: PluginFor = no_plugin
    ) -> Self:
        """Build the transformers of a configuration.

        The same resource in two rules has the providers of both, in file order, as upstream.
        """
        gathered: dict[GroupResource, list[_Provider]] = {}
        names = set()
        for rule in configuration.rules:
            providers = [_Provider.of(provider, plugin_for) for provider in rule.providers]
            for provider in rule.providers:
                if isinstance(provider, KMSProvider):
                    names.add(provider.name)
                elif isinstance(provider, KeyedProvider):
                    names.update(key.name for key in provider.keys)
            for entry in filter(None, rule.resources):  # the empty entry is valid, and no resource
                gathered.setdefault(parse_group_resource(entry), []).extend(providers)
        return cls(_rules(gathered), frozenset(names))

    def for_resource(self, resource: GroupResource) -> ResourceTransformers:
        """Return the transformers of a resource: its own entry, else its group's, else ``*.*``.

        Without any, what remains is a bare identity with an error message of its own (``rule`` is None).
        """
        found = self._found.get(resource)
        if found is None:
            rules = (self._rules[name] for name in narrowest_first(resource) if name in self._rules)
            found = self._found[resource] = next(rules, self._not_covered)
        return found

    def cipher(self, provider: ProviderType, material: KeyMaterial) -> Cipher:
        """Return the cipher of a local provider with one key of the configuration, the same one for every value."""
        place = provider, material.fingerprint
        found = self._ciphers.get(place)
        if found is None:
            found = self._ciphers[place] = cipher_of(provider, material.expose())
        return found

    @property
    def rules(self) -> tuple[ResourceTransformers, ...]:
        """Every rule of the configuration, in file order."""
        return tuple(self._rules.values())


def _rules(
    gathered: Mapping[GroupResource, Sequence[_Provider]],
) -> dict[GroupResource, ResourceTransformers]:
    """Return one set of transformers for each effective provider list: resources that share it are one rule."""
    alike: dict[tuple[int, ...], list[GroupResource]] = {}
    for name, providers in gathered.items():
        alike.setdefault(tuple(map(id, providers)), []).append(name)
    rules = {}
    for names in alike.values():
        shared = ResourceTransformers(",".join(map(rule_name, names)), gathered[names[0]])
        rules.update(dict.fromkeys(names, shared))
    return rules


def _overall(attempts: Sequence[Attempt]) -> FailureReason:
    """Return the reason to go by: nothing proven before all, then what a matching key said."""
    reasons = [attempt.reason for attempt in attempts]
    if FailureReason.KMS_UNREACHABLE in reasons:
        return FailureReason.KMS_UNREACHABLE
    return next((r for r in reasons if r is not FailureReason.NO_KEY_MATCHED), reasons[0])
