"""The EncryptionConfiguration: which providers serve which resource, with which keys.

Read exactly as the API server reads it, with its error messages, except that no message holds a secret.
What only a server of one version or one flag refuses is accepted and noted in
:attr:`EncryptionConfiguration.remarks`: a forensic tool reads data that older servers wrote.

Source: kube-apiserver 1.36, ``k8s.io/apiserver/pkg/server/options/encryptionconfig/config.go``.
"""

from __future__ import annotations

import errno
import hashlib
from enum import StrEnum
from pathlib import Path
from typing import ClassVar

import msgspec

from etcdfix.encryption.config_decode import RawProvider, RawRule, decode_document
from etcdfix.encryption.config_document import MAX_FILE_BYTES, is_json, read_json
from etcdfix.encryption.config_validation import masked_rule, validate
from etcdfix.encryption.config_values import NANOSECONDS, parse_base64, parse_endpoint
from etcdfix.encryption.config_yaml import read_yaml
from etcdfix.encryption.keyring import KeyMaterial
from etcdfix.encryption.wording import aggregate
from etcdfix.errors import ConfigurationError
from etcdfix.golang.goquote import go_quote
from etcdfix.inputs.inputfile import open_regular

_KMS_V1_REMARK = (
    "uses KMS v1, which API servers from 1.29 on refuse without --feature-gates=KMSv1=true; "
    "it is read here all the same"
)


class ProviderType(StrEnum):
    """The members of a provider element, as the file spells them."""

    AESCBC = "aescbc"
    AESGCM = "aesgcm"
    SECRETBOX = "secretbox"
    KMS = "kms"
    IDENTITY = "identity"


class NamedKey(msgspec.Struct, frozen=True):
    """One key of a provider. The name may hold any character, ``:`` included, and need not be unique."""

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
        socket_path: Path of the plugin's socket; ``@name`` is a Linux abstract socket.
        cache_size: DEKs that a v1 server keeps, negative for none; None for v2.
        timeout_seconds: For one call to the plugin.
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
        path: File it came from, as given.
        sha256: ``sha256:<hex>`` of the raw file: the content hash that the API server reports.
        rules: In file order.
        remarks: What some API server would refuse or ignore, one sentence each.
    """

    path: str
    sha256: str
    rules: tuple[ResourceRule, ...]
    remarks: tuple[str, ...] = ()

    @property
    def kms_providers(self) -> tuple[KMSProvider, ...]:
        """Every KMS provider, in file order; one that serves several rules comes once."""
        found = (provider for rule in self.rules for provider in rule.providers)
        return tuple(dict.fromkeys(provider for provider in found if isinstance(provider, KMSProvider)))


def load_configuration(path: Path) -> EncryptionConfiguration:
    """Read, check and take apart the file of ``--encryption-provider-config``.

    Raises:
        ConfigurationError: The file cannot be read, or the API server would refuse it.
    """
    name = str(path)
    try:
        with open_regular(path) as file:
            raw = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        operation = "read" if error.errno == errno.EISDIR else "open"
        reason = (error.strerror or "unknown error").lower()
        raise _unreadable(
            f"error reading encryption provider configuration file {go_quote(name)}: {operation} {name}: {reason}",
            "Name a readable file: the one in the API server's flag --encryption-provider-config.",
        ) from error
    return parse_configuration(raw, path=name)


def parse_configuration(raw: bytes, *, path: str) -> EncryptionConfiguration:
    """Check and take apart the bytes of a configuration file.

    Args:
        raw: The whole file.
        path: What to call it in messages and reports.

    Raises:
        ConfigurationError: The API server would refuse the file; its wording, prefixes included, with
            ``<N bytes withheld>`` where it would print keys.
    """
    if not raw:
        raise _unreadable(
            f"encryption provider configuration file {go_quote(path)} is empty",
            "An API server without encryption has no such file; leave the option away.",
        )
    if len(raw) > MAX_FILE_BYTES:
        raise _unreadable(
            f"encryption provider configuration file {go_quote(path)} is larger than {MAX_FILE_BYTES} bytes",
            "An EncryptionConfiguration is a few kilobytes of YAML; is this the right file?",
        )
    try:
        document = read_json(raw) if is_json(raw) else read_yaml(raw)
        rules = decode_document(document, file_size=len(raw))
    except ConfigurationError as error:
        raise ConfigurationError(
            "error while parsing file: error decoding encryption provider configuration file "
            f"{go_quote(path)}: {error.message}",
            hint=error.hint,
        ) from error
    problems = list(validate(rules))
    if problems:
        message = aggregate(problem.message for problem in problems)
        raise ConfigurationError(f"error while parsing file: {message}", hint=problems[0].hint)
    masked = masked_rule(rules)
    if masked:
        raise ConfigurationError(
            f"error while building transformers: {masked}",
            hint="Move the entry for the single resource above the wildcard: the first match must be the narrowest.",
        )
    return EncryptionConfiguration(
        path=path,
        sha256=f"sha256:{hashlib.sha256(raw).hexdigest()}",
        rules=tuple(_rule(rule) for rule in rules),
        remarks=tuple(_remarks(rules)),
    )


def _unreadable(message: str, hint: str) -> ConfigurationError:
    return ConfigurationError(f"error while parsing file: error while loading file: {message}", hint=hint)


def _rule(rule: RawRule) -> ResourceRule:
    return ResourceRule(tuple(rule.resources), tuple(_provider(provider) for provider in rule.providers))


def _provider(raw: RawProvider) -> Provider:
    kms = raw.kms
    if kms is not None:
        return KMSProvider(
            api_version=kms.api_version,
            name=kms.name,
            endpoint=kms.endpoint,
            socket_path=parse_endpoint(kms.endpoint).socket_path,
            cache_size=kms.cache_size,
            timeout_seconds=kms.timeout / NANOSECONDS,
        )
    for member, keys in raw.keys.items():
        named = tuple(NamedKey(key.name, KeyMaterial(parse_base64(key.secret) or b"")) for key in keys)
        return KeyedProvider(ProviderType(member), named)
    return IdentityProvider()


def _remarks(rules: list[RawRule]) -> list[str]:
    remarks = []
    kms = [p.kms for rule in rules for p in rule.providers if p.kms is not None]
    if any(stanza.api_version == "v1" for stanza in kms):
        remarks.append(_KMS_V1_REMARK)
    names = [stanza.name for stanza in kms]
    if len(set(names)) < len(names):
        remarks.append(
            "uses one KMS provider name twice, which an API server with "
            "--encryption-provider-config-automatic-reload refuses"
        )
    if any("" in rule.resources for rule in rules):
        remarks.append("has an empty resource entry, which matches nothing")
    return remarks
