"""What the main process and its workers say to each other of values, as bytes; they are always of the same version."""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

from etcdfix.decoding.customresource import CustomResourceInfo
from etcdfix.encryption.config_model import (
    IdentityProvider,
    KeyedProvider,
    KMSProvider,
    NamedKey,
    Provider,
    ResourceRule,
)
from etcdfix.encryption.keyring import KeyMaterial
from etcdfix.encryption.kms.transformer import KnownSeed
from etcdfix.examine.verdicts.examination import Examination, PlainCount
from etcdfix.examine.verdicts.opened_spans import PlacedSpan
from etcdfix.model.providers import ProviderType

E = TypeVar("E")


class Setup(msgspec.Struct, frozen=True, array_like=True):
    """What a worker needs of the whole. Holds keys: it goes through a pipe and nowhere else."""

    prefix: str
    kubernetes_minor: int | None
    assumed_release: str
    rules: tuple[SentRule, ...] | None
    asks_plugins: bool
    names: tuple[str, ...]
    custom_resources: tuple[CustomResourceInfo, ...]
    unreadable_crds: tuple[tuple[str, str], ...]
    aggregated_groups: tuple[str, ...]
    extracted: tuple[str, bytes] | None = None

    def __repr__(self) -> str:
        return "Setup()"


class SentProvider(msgspec.Struct, frozen=True, array_like=True):
    """A provider with its keys, or a KMS plugin."""

    type: str
    keys: tuple[tuple[str, bytes], ...] = ()
    kms: KMSProvider | None = None

    def __repr__(self) -> str:
        return f"SentProvider({self.type!r})"


class SentRule(msgspec.Struct, frozen=True, array_like=True):
    """A rule of an encryption configuration."""

    resources: tuple[str, ...]
    providers: tuple[SentProvider, ...]


class Knowledge(msgspec.Struct, frozen=True, array_like=True):
    """What a KMS v2 plugin has given so far, and the key id that it writes with."""

    write_key_id: str
    seeds: tuple[KnownSeed, ...]


class Question(msgspec.Struct, frozen=True, array_like=True):
    """A page, as :func:`~etcdfix.sources.pages.passed_on` takes it, and what is known when it is given."""

    knowledge: tuple[Knowledge, ...]
    kind: bytes
    page: memoryview  # of the question's bytes, where one is read: a page is large

    def __repr__(self) -> str:
        return f"Question({len(self.page)} bytes)"


class Answer(msgspec.Struct, Generic[E], frozen=True, array_like=True):
    """What a page came to; a worker has each examination encoded already.

    Attributes:
        plain: What is plain, counted.
        opened: What opened, from which mod revision to which.
        others: Places of all other values, and what they are, without the stored bytes; None for those that were not
            examined.
        extracted: What was extracted from those that were examined, packed; b"" where nobody wants it.
    """

    plain: tuple[PlainCount, ...]
    opened: tuple[PlacedSpan, ...]
    others: tuple[tuple[int, E | None], ...]
    extracted: bytes = b""

    def __repr__(self) -> str:
        return f"Answer({len(self.others)} values)"


encode = msgspec.msgpack.Encoder().encode
decode_setup = msgspec.msgpack.Decoder(Setup).decode
decode_question = msgspec.msgpack.Decoder(Question).decode
decode_answer = msgspec.msgpack.Decoder(Answer[Examination]).decode


def sent_rule(rule: ResourceRule) -> SentRule:
    """Return a rule of a configuration as it is sent."""
    return SentRule(rule.resources, tuple(map(_sent_provider, rule.providers)))


def rule_of(sent: SentRule) -> ResourceRule:
    """Return the rule that was sent."""
    return ResourceRule(sent.resources, tuple(map(_provider_of, sent.providers)))


def _sent_provider(provider: Provider) -> SentProvider:
    if isinstance(provider, KeyedProvider):
        return SentProvider(provider.type, tuple((key.name, key.material.expose()) for key in provider.keys))
    if isinstance(provider, KMSProvider):
        return SentProvider(provider.type, kms=provider)
    return SentProvider(provider.type)


def _provider_of(provider: SentProvider) -> Provider:
    if provider.kms is not None:
        return provider.kms
    if provider.type == ProviderType.IDENTITY:
        return IdentityProvider()
    keys = tuple(NamedKey(name, KeyMaterial(secret)) for name, secret in provider.keys)
    return KeyedProvider(ProviderType(provider.type), keys)
