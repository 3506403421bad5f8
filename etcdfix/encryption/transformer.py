"""Transformers, upstream's word for what opens stored values: from stored bytes to plaintext, in the server's order.

Two roads, one result. The fast road walks a flat list of (complete prefix, opener) and returns the first
plaintext. Where nothing opens, the exact road walks providers and keys as the API server nests them and
collects what each one said. The exact road alone would do; the tests hold the fast one against it.

Sources: ``k8s.io/apiserver/pkg/storage/value/transformer.go`` (order, aggregation, stale) and
``…/server/options/encryptionconfig/config.go`` (prefixes, look-up per resource).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, Self

import msgspec

from etcdfix.encryption.config import (
    EncryptionConfiguration,
    KeyedProvider,
    KMSProvider,
    NamedKey,
    Provider,
    ProviderType,
)
from etcdfix.encryption.config_rules import EVERYTHING, parse_group_resource, rule_name
from etcdfix.encryption.envelope import ENCRYPTED_PREFIX, transformer_name
from etcdfix.encryption.keyring import KeyMaterial
from etcdfix.encryption.kms.envelopes import KMSPlugin
from etcdfix.encryption.kms.transformer import KMSv1Transformer, KMSv2Transformer
from etcdfix.encryption.providers import cipher_of
from etcdfix.errors import TransformError, aggregate
from etcdfix.model import Attempt, FailureReason, GroupResource, TransformFailure

IDENTITY = "identity"
_REFUSED_ERROR = "identity transformer tried to read encrypted data"
_NO_PREFIX_ERROR = "no matching prefix found"
_NO_KEY_ERRORS = {
    ProviderType.AESCBC: "no matching key was found for the provided AES transformer",
    ProviderType.AESGCM: "no matching key was found for the provided AES transformer",
    ProviderType.SECRETBOX: "no matching key was found for the provided Secretbox transformer",
}
_NOT_ASKED = "the KMS plugin that this value needs was not asked"

PluginFor = Callable[[KMSProvider], KMSPlugin | None]


class Plaintext(msgspec.Struct, frozen=True, gc=False):
    """A value opened.

    Attributes:
        data: Plaintext.
        transformer: What opened it.
        stale: Not what the API server would write today: not provider 0, not key 0, or an old KMS form.
        kms_key_id: KMS key id in the value, "" where there is none.
        key_fingerprint: Of the local key that opened it, "" under KMS and identity.
        authenticated: A tag, or nothing to decrypt, vouches for it; AES-CBC has padding alone, which proves no key.
    """

    data: bytes
    transformer: str
    stale: bool
    kms_key_id: str = ""
    key_fingerprint: str = ""
    authenticated: bool = True


class ConfiguredKey(msgspec.Struct, frozen=True):
    """A key, KMS provider or identity that serves a resource; only keys have a fingerprint."""

    transformer: str
    key_fingerprint: str = ""


class LocalKey(NamedTuple):
    """A key of an aescbc, aesgcm or secretbox provider.

    Attributes:
        provider: Its type.
        prefix: What a value under it begins with, its name and the colon after it included.
        transformer: ``aescbc/v1/key1``.
        material: The key.
    """

    provider: ProviderType
    prefix: bytes
    transformer: str
    material: KeyMaterial


class KMSReader(NamedTuple):
    """A kms provider.

    Attributes:
        prefix: What a value under it begins with.
        transformer: ``kms/v2/prov``.
        opener: What opens a body under it.
    """

    prefix: bytes
    transformer: str
    opener: KMSv1Transformer | KMSv2Transformer

    def is_same(self, other: KMSReader) -> bool:
        """Say whether both ask one plugin, so that what the one says holds for the other."""
        return self.prefix == other.prefix and self.opener.plugin is other.opener.plugin


class WriteKey(NamedTuple):
    """What the API server would write a value with.

    Attributes:
        transformer: ``aescbc/v1/key1``, ``kms/v2/prov``, ``identity``.
        provider: Its type.
        prefix: What the stored value begins with; empty for identity.
        material: The key; None for KMS and identity.
    """

    transformer: str
    provider: ProviderType
    prefix: bytes
    material: KeyMaterial | None = None


class TransformFailed(TransformError):
    """Raised when no configured provider opens a value; ``failure`` says what each of them said."""

    def __init__(self, failure: TransformFailure) -> None:
        super().__init__(failure.message or _NOT_ASKED)
        self.failure = failure


def no_plugin(_provider: KMSProvider) -> None:
    """Return no plugin: values of KMS providers are then undetermined."""


_Quick = Callable[[bytes, bytes], Plaintext | None]


def _quick(key: _Key, skip: int, *, stale: bool) -> _Quick:
    """Return the fast road through one key: from (value, etcd key) to the plaintext, or None."""
    read = key.cipher.read
    transformer, fingerprint, authenticated = key.transformer, key.fingerprint, key.authenticated

    def quick(data: bytes, etcd_key: bytes) -> Plaintext | None:
        plaintext = read(data[skip:], etcd_key)
        if isinstance(plaintext, Attempt):
            return None
        return Plaintext(plaintext, transformer, stale, "", fingerprint, authenticated)

    return quick


class _Key:
    __slots__ = ("authenticated", "cipher", "fingerprint", "prefix", "transformer")

    def __init__(self, provider: ProviderType, key: NamedKey) -> None:
        self.authenticated = provider is not ProviderType.AESCBC
        self.cipher = cipher_of(provider, key.material.expose())
        self.fingerprint = key.material.fingerprint
        self.prefix = key.name.encode() + b":"
        self.transformer = transformer_name(provider, "v1", key.name)


class _Keyed:
    """An aescbc, aesgcm or secretbox element: the API server's search, one level down, over its keys."""

    def __init__(self, provider: KeyedProvider) -> None:
        self.type = provider.type
        self.prefix = f"k8s:enc:{provider.type}:v1:".encode()
        self.keys = [_Key(provider.type, key) for key in provider.keys]
        first = self.keys[0]
        self.write_key = WriteKey(
            first.transformer, self.type, self.prefix + first.prefix, provider.keys[0].material
        )
        self.local_keys = [
            LocalKey(self.type, self.prefix + key.prefix, key.transformer, named.material)
            for key, named in zip(self.keys, provider.keys, strict=True)
        ]

    def listing(self) -> list[ConfiguredKey]:
        return [ConfiguredKey(key.transformer, key.fingerprint) for key in self.keys]

    def candidates(self, *, later: bool) -> Iterator[tuple[bytes, _Quick]]:
        for index, key in enumerate(self.keys):
            prefix = self.prefix + key.prefix
            yield prefix, _quick(key, len(prefix), stale=later or index != 0)

    def read(self, body: bytes, etcd_key: bytes) -> Plaintext | list[Attempt]:
        failures: list[Attempt] = []
        for index, key in enumerate(self.keys):
            if not body.startswith(key.prefix):
                continue
            result = key.cipher.read(body[len(key.prefix) :], etcd_key)
            if not isinstance(result, Attempt):
                return Plaintext(result, key.transformer, index != 0, "", key.fingerprint, key.authenticated)
            failures.append(
                msgspec.structs.replace(result, transformer=key.transformer, key_fingerprint=key.fingerprint)
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
        self.write_key = WriteKey(self.transformer, ProviderType.KMS, self.prefix)
        opener = KMSv1Transformer(plugin) if provider.api_version == "v1" else KMSv2Transformer(plugin)
        self.reader = KMSReader(self.prefix, self.transformer, opener)
        self._read = opener.read
        self._read_known = opener.read_known if isinstance(opener, KMSv2Transformer) else None

    def listing(self) -> list[ConfiguredKey]:
        return [ConfiguredKey(self.transformer)]

    def candidates(self, *, later: bool) -> Iterator[tuple[bytes, _Quick]]:
        yield self.prefix, self._quick(later=later)

    def _quick(self, *, later: bool) -> _Quick:
        start, transformer, read = len(self.prefix), self.transformer, self._read_known
        if read is None:
            return lambda _data, _etcd_key: None

        def quick(data: bytes, etcd_key: bytes) -> Plaintext | None:
            found = read(data, start, etcd_key)
            if found is None:
                return None
            return Plaintext(found[0], transformer, later or found[1], found[2])

        return quick

    def read(self, body: bytes, etcd_key: bytes) -> Plaintext | list[Attempt]:
        result = self._read(body, etcd_key)
        if isinstance(result, Attempt):
            return [msgspec.structs.replace(result, transformer=self.transformer)]
        return Plaintext(
            result.data, self.transformer, result.stale, result.kms_key_id, "", result.authenticated
        )


class _Identity:
    """An identity element: its prefix is empty, so it is asked about every value."""

    prefix = b""
    write_key = WriteKey(IDENTITY, ProviderType.IDENTITY, b"")

    def listing(self) -> list[ConfiguredKey]:
        return [ConfiguredKey(IDENTITY)]

    def candidates(self, *, later: bool) -> Iterator[tuple[bytes, _Quick]]:  # noqa: ARG002 - as its siblings
        return iter(())  # plaintext never gets as far as the candidates

    def read(self, body: bytes, etcd_key: bytes) -> Plaintext | list[Attempt]:  # noqa: ARG002 - as its siblings
        # Its refusal is dropped: a user sees it only for a resource without an entry in the configuration.
        return [] if body.startswith(ENCRYPTED_PREFIX) else Plaintext(body, IDENTITY, stale=False)


_Provider = _Keyed | _KMS | _Identity


class ResourceTransformers:
    """The providers that serve one resource.

    Attributes:
        rule: The entries of the configuration that share these providers, in file order (``secrets,configmaps``,
            ``*.apps``, ``*.``, ``*.*``); None for a resource that the configuration does not cover.
        has_identity: Plaintext is allowed.
        keys: Everything that is tried, in order; the first one writes.
        write_key: That first one, with what it takes to write.
        local_keys: The keys among them, for who looks at values without opening them.
        kms_readers: The KMS providers among them.
    """

    __slots__ = (
        "_candidates",
        "_identity_stale",
        "_providers",
        "has_identity",
        "keys",
        "kms_readers",
        "local_keys",
        "rule",
        "write_key",
    )

    def __init__(self, rule: str | None, providers: Sequence[_Provider]) -> None:
        self.rule = rule
        self.keys = tuple(key for provider in providers for key in provider.listing())
        self.write_key = providers[0].write_key
        self.local_keys = tuple(
            key for provider in providers if isinstance(provider, _Keyed) for key in provider.local_keys
        )
        self.kms_readers = tuple(provider.reader for provider in providers if isinstance(provider, _KMS))
        self._providers = tuple(providers)
        self._candidates = tuple(
            candidate
            for index, provider in enumerate(providers)
            for candidate in provider.candidates(later=index != 0)
        )
        identities = [index for index, provider in enumerate(providers) if isinstance(provider, _Identity)]
        self.has_identity = bool(identities)
        self._identity_stale = bool(identities) and identities[0] != 0

    def from_storage(self, data: bytes, key: bytes) -> Plaintext:
        """Turn a stored value into plaintext.

        Args:
            data: The value as etcd has it.
            key: The complete etcd key; it is the associated data of aesgcm and KMS values.

        Raises:
            TransformFailed: No configured provider opens the value.
            KMSPending: A plugin has not answered yet.
        """
        if data.startswith(ENCRYPTED_PREFIX):
            for prefix, quick in self._candidates:
                if data.startswith(prefix):
                    plaintext = quick(data, key)
                    if plaintext is not None:
                        return plaintext
        elif self.has_identity:
            return Plaintext(data, IDENTITY, self._identity_stale)
        return self.search(data, key)

    def search(self, data: bytes, key: bytes) -> Plaintext:
        """Do what :meth:`from_storage` does, step by step as the API server does it.

        Raises:
            TransformFailed: No configured provider opens the value.
            KMSPending: A plugin has not answered yet.
        """
        failures: list[Attempt] = []
        for index, provider in enumerate(self._providers):
            if not data.startswith(provider.prefix):
                continue
            result = provider.read(data[len(provider.prefix) :], key)
            if isinstance(result, Plaintext):
                return msgspec.structs.replace(result, stale=result.stale or index != 0)
            failures += result
        if not failures:
            if self.rule is None:
                raise TransformFailed(TransformFailure(FailureReason.IDENTITY_REFUSED, _REFUSED_ERROR))
            raise TransformFailed(TransformFailure(FailureReason.NO_PROVIDER_MATCHED, _NO_PREFIX_ERROR))
        known = all(attempt.errors for attempt in failures)
        message = aggregate(error for attempt in failures for error in attempt.errors) if known else ""
        raise TransformFailed(TransformFailure(_overall(failures), message, tuple(failures)))


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

    @classmethod
    def from_configuration(
        cls, configuration: EncryptionConfiguration, plugin_for: PluginFor = no_plugin
    ) -> Self:
        """Build the transformers of a configuration.

        The same resource in two rules has the providers of both, in file order, as upstream.

        Args:
            configuration: What the API server would read.
            plugin_for: Returns the plugin of a KMS provider, or None where there is none to ask.
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
            found = self._found[resource] = self._look_up(resource)
        return found

    @property
    def rules(self) -> tuple[ResourceTransformers, ...]:
        """Every rule of the configuration, in file order."""
        return tuple(self._rules.values())

    def _look_up(self, resource: GroupResource) -> ResourceTransformers:
        for name in (resource, GroupResource(resource.group, "*"), EVERYTHING):
            found = self._rules.get(name)
            if found is not None:
                return found
        return self._not_covered


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
