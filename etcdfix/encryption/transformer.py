"""Transformers, upstream's word for what opens stored values: from stored bytes to plaintext, in the server's order.

Two roads, one result. The fast road walks a flat list of (complete prefix, cipher) and returns the first
plaintext. Where nothing opens, the exact road walks providers and keys as the API server nests them and
collects what each one said. The exact road alone would do; the tests hold the fast one against it.

Sources: ``k8s.io/apiserver/pkg/storage/value/transformer.go`` (order, aggregation, stale) and
``…/server/options/encryptionconfig/config.go`` (prefixes, look-up per resource).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Self

import msgspec

from etcdfix.encryption.cipher import Cipher
from etcdfix.encryption.config import (
    EncryptionConfiguration,
    KeyedProvider,
    KMSProvider,
    Provider,
    ProviderType,
)
from etcdfix.encryption.config_rules import narrowest_first, parse_group_resource, rule_name
from etcdfix.encryption.envelope import ENCRYPTED_PREFIX, transformer_name
from etcdfix.encryption.keyring import KeyMaterial
from etcdfix.encryption.kms.envelopes import KMSPlugin
from etcdfix.encryption.kms.transformer import KMSv1Transformer, KMSv2Transformer
from etcdfix.encryption.providers import cipher_of
from etcdfix.errors import TransformError, aggregate
from etcdfix.model import Attempt, FailureReason, GroupResource, KeyOfRule, Plaintext, TransformFailure

IDENTITY = "identity"
_REFUSED_ERROR = "identity transformer tried to read encrypted data"
_NO_PREFIX_ERROR = "no matching prefix found"
_NO_KEY_ERRORS = {
    ProviderType.AESCBC: "no matching key was found for the provided AES transformer",
    ProviderType.AESGCM: "no matching key was found for the provided AES transformer",
    ProviderType.SECRETBOX: "no matching key was found for the provided Secretbox transformer",
}
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
    def named(self) -> KeyOfRule:
        """What reports have of it."""
        return KeyOfRule(self.transformer, self.key_fingerprint)


class KMSReader(NamedTuple):
    """A kms provider.

    Attributes:
        transformer: ``kms/v2/prov``.
    """

    prefix: bytes
    transformer: str
    opener: KMSv1Transformer | KMSv2Transformer

    def is_same(self, other: KMSReader) -> bool:
        """Say whether both ask one plugin, so that what the one says holds for the other."""
        return self.prefix == other.prefix and self.opener.plugin is other.opener.plugin


class TransformFailed(TransformError):
    """Raised when no configured provider opens a value; ``failure`` says what each of them said."""

    def __init__(self, failure: TransformFailure) -> None:
        super().__init__(failure.message or _NOT_ASKED)
        self.failure = failure


def no_plugin(_provider: KMSProvider) -> None:
    """Return no plugin: values of KMS providers are then undetermined."""


_Quick = Callable[[bytes, bytes], Plaintext | Attempt | None]
"""Returns None where the exact road is needed to know more."""


class _Keyed:
    """An aescbc, aesgcm or secretbox element: the API server's search, one level down, over its keys."""

    def __init__(self, provider: KeyedProvider) -> None:
        self.type = provider.type
        self.prefix = f"k8s:enc:{provider.type}:v1:".encode()
        self.keys = [
            ConfiguredKey(
                transformer_name(self.type, "v1", key.name),
                self.type,
                self.prefix + key.name.encode() + b":",
                key.material,
            )
            for key in provider.keys
        ]
        self._ciphers = [cipher_of(self.type, key.material.expose()) for key in provider.keys]

    def quick(self, *, later: bool) -> Iterator[tuple[bytes, _Quick]]:
        for index, key in enumerate(self.keys):
            yield key.prefix, self._quick(index, stale=later or index != 0)

    def _quick(self, index: int, *, stale: bool) -> _Quick:
        key, cipher = self.keys[index], self._ciphers[index]
        skip, read, authenticated = len(key.prefix), cipher.read, cipher.authenticated
        transformer, fingerprint = key.transformer, key.key_fingerprint

        def quick(data: bytes, etcd_key: bytes) -> Plaintext | Attempt:
            plaintext = read(data[skip:], etcd_key)
            if isinstance(plaintext, Attempt):
                return plaintext
            return Plaintext(plaintext, transformer, stale, "", fingerprint, authenticated)

        return quick

    def read(self, data: bytes, etcd_key: bytes) -> Plaintext | list[Attempt]:
        failures: list[Attempt] = []
        for index, (key, cipher) in enumerate(zip(self.keys, self._ciphers, strict=True)):
            if not data.startswith(key.prefix):
                continue
            result = cipher.read(data[len(key.prefix) :], etcd_key)
            if not isinstance(result, Attempt):
                fingerprint = key.key_fingerprint
                return Plaintext(result, key.transformer, index != 0, "", fingerprint, cipher.authenticated)
            failures.append(
                msgspec.structs.replace(
                    result, transformer=key.transformer, key_fingerprint=key.key_fingerprint
                )
            )
        if not failures:
            name, errors = transformer_name(self.type, "v1", ""), (_NO_KEY_ERRORS[self.type],)
            failures.append(Attempt(FailureReason.NO_KEY_MATCHED, errors, transformer=name))
        return failures


class _KMS:
    """A kms element; quick for values whose DEK seed has opened others."""

    def __init__(self, provider: KMSProvider, plugin: KMSPlugin | None) -> None:
        self.prefix = f"k8s:enc:kms:{provider.api_version}:{provider.name}:".encode()
        self.transformer = transformer_name(ProviderType.KMS, provider.api_version, provider.name)
        self.keys = [ConfiguredKey(self.transformer, ProviderType.KMS, self.prefix)]
        opener = KMSv1Transformer(plugin) if provider.api_version == "v1" else KMSv2Transformer(plugin)
        self.reader = KMSReader(self.prefix, self.transformer, opener)
        self._opener = opener

    def quick(self, *, later: bool) -> Iterator[tuple[bytes, _Quick]]:
        opener, start, transformer = self._opener, len(self.prefix), self.transformer
        if not isinstance(opener, KMSv2Transformer):
            return
        read = opener.read_known

        def quick(data: bytes, etcd_key: bytes) -> Plaintext | None:
            found = read(data, start, etcd_key)
            if found is None:
                return None
            return Plaintext(found[0], transformer, later or found[1], found[2])

        yield self.prefix, quick

    def read(self, data: bytes, etcd_key: bytes) -> Plaintext | list[Attempt]:
        result = self._opener.read(data[len(self.prefix) :], etcd_key)
        named = msgspec.structs.replace(result, transformer=self.transformer)
        return named if isinstance(named, Plaintext) else [named]


class _Identity:
    """An identity element: its prefix is empty, so it is asked about every value."""

    prefix = b""
    keys = (ConfiguredKey(IDENTITY, ProviderType.IDENTITY, b""),)

    def quick(self, *, later: bool) -> Iterator[tuple[bytes, _Quick]]:  # noqa: ARG002 - as its siblings
        return iter(())  # plaintext never gets so far

    def read(self, data: bytes, etcd_key: bytes) -> Plaintext | list[Attempt]:  # noqa: ARG002 - as its siblings
        # Its refusal is dropped: a user sees it only for a resource without an entry in the configuration.
        return [] if data.startswith(ENCRYPTED_PREFIX) else Plaintext(data, IDENTITY, stale=False)


_Provider = _Keyed | _KMS | _Identity


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
        "_failed",
        "_identity_stale",
        "_providers",
        "_quick",
        "_said",
        "has_identity",
        "keys",
        "kms_readers",
        "prefixes",
        "rule",
    )

    def __init__(self, rule: str | None, providers: Sequence[_Provider]) -> None:
        self.rule = rule
        self.keys = tuple(key for provider in providers for key in provider.keys)
        self.prefixes = tuple(key.prefix for key in self.keys if key.prefix)
        self.kms_readers = tuple(provider.reader for provider in providers if isinstance(provider, _KMS))
        self._providers = tuple(providers)
        self._failed: TransformFailure | None = None
        self._said: dict[tuple[tuple[bytes, Attempt], ...], TransformFailure] = {}
        self._quick = tuple(
            quick for index, provider in enumerate(providers) for quick in provider.quick(later=index != 0)
        )
        identities = [index for index, provider in enumerate(providers) if isinstance(provider, _Identity)]
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
        said: list[tuple[bytes, Attempt]] = []
        if data.startswith(ENCRYPTED_PREFIX):
            for prefix, quick in self._quick:
                if data.startswith(prefix):
                    result = quick(data, key)
                    if isinstance(result, Plaintext):
                        return result
                    if result is not None:
                        said.append((prefix, result))
        elif self.has_identity:
            return Plaintext(data, IDENTITY, self._identity_stale)
        if not said:
            return self.search(data, key)
        # Local keys whose names the value begins with have all been asked: what comes of it are these few words.
        place = tuple(said)
        failed = self._said.get(place)
        if failed is None:
            found = self.search(data, key)
            assert isinstance(found, TransformFailure)  # every key that could open it has been asked
            if len(self._said) >= _MOST_SAID:
                self._said.clear()
            failed = self._said[place] = found
        return failed

    @contextmanager
    def learning_nothing(self) -> Iterator[None]:
        """Read bytes that etcd does not hold: what opens speaks for no plugin, and is not remembered."""
        for reader in self.kms_readers:
            reader.opener.learns = False
        try:
            yield
        finally:
            for reader in self.kms_readers:
                reader.opener.learns = True

    def start_over(self) -> None:
        """Forget which data keys of KMS opened values, and what was said of those that did not open."""
        self._said.clear()
        for reader in self.kms_readers:
            reader.opener.start_over()

    def has_dropped_data_keys(self, data: bytes) -> bool:
        """Say whether more data keys opened values than are kept, under the KMS v2 provider that a value names."""
        return any(
            isinstance(reader.opener, KMSv2Transformer) and reader.opener.dropped
            for reader in self.kms_readers
            if data.startswith(reader.prefix)
        )

    def search(self, data: bytes, key: bytes) -> Plaintext | TransformFailure:
        """Do what :meth:`read` does, step by step as the API server does it.

        Raises:
            KMSPending: A plugin has not answered yet.
        """
        failures: list[Attempt] = []
        for index, provider in enumerate(self._providers):
            if not data.startswith(provider.prefix):
                continue
            result = provider.read(data, key)
            if isinstance(result, Plaintext):
                return msgspec.structs.replace(result, stale=result.stale or index != 0)
            failures += result
        if not failures:
            if self.rule is None:
                return TransformFailure(FailureReason.IDENTITY_REFUSED, _REFUSED_ERROR)
            return TransformFailure(FailureReason.NO_PROVIDER_MATCHED, _NO_PREFIX_ERROR)
        return self._failure(tuple(failures))

    def _failure(self, attempts: tuple[Attempt, ...]) -> TransformFailure:
        """Return what comes of several failures; of a lost key it is the same for every value."""
        if self._failed is not None and self._failed.attempts == attempts:
            return self._failed
        known = all(attempt.errors for attempt in attempts)
        message = aggregate(error for attempt in attempts for error in attempt.errors) if known else ""
        self._failed = TransformFailure(_overall(attempts), message, attempts)
        return self._failed


class Transformers:
    """Which transformers serve which resource.

    Attributes:
        names: Every configured key and KMS provider name, for
            :func:`~etcdfix.encryption.envelope.parse_envelope`.
    """

    def __init__(self, rules: Mapping[GroupResource, ResourceTransformers], names: frozenset[str]) -> None:
        self.names = names
        self._rules = dict(rules)
        self._not_covered = ResourceTransformers(None, [_Identity()])
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
            providers = [_provider(provider, plugin_for) for provider in rule.providers]
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


def _provider(provider: Provider, plugin_for: PluginFor) -> _Provider:
    if isinstance(provider, KeyedProvider):
        return _Keyed(provider)
    if isinstance(provider, KMSProvider):
        return _KMS(provider, plugin_for(provider))
    return _Identity()


def _overall(attempts: Sequence[Attempt]) -> FailureReason:
    """Return the reason to go by: nothing proven before all, then what a matching key said."""
    reasons = [attempt.reason for attempt in attempts]
    if FailureReason.KMS_UNREACHABLE in reasons:
        return FailureReason.KMS_UNREACHABLE
    return next((r for r in reasons if r is not FailureReason.NO_KEY_MATCHED), reasons[0])
