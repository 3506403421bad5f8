"""The EncryptionConfiguration: which providers serve which resource, with which keys.

The same files are accepted and refused as by the API server; why one is refused is said in our words, with the line
where the file has it, and never with a key. What only a server of one version or one flag refuses is accepted and
noted in :attr:`EncryptionConfiguration.warnings`: a forensic tool reads data that older servers wrote.

Source: kube-apiserver 1.36, ``k8s.io/apiserver/pkg/server/options/encryptionconfig/config.go``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import ClassVar, Final

import msgspec

from etcdfix.encryption import config_file
from etcdfix.encryption.config_file import REFUSED, Problem, decode
from etcdfix.encryption.config_rules import (
    DEFAULT_API_VERSION,
    DEFAULT_TIMEOUT,
    given_members,
    key_bytes,
    problems_of,
    socket_path,
)
from etcdfix.encryption.keyring import KeyMaterial, is_key_text, shown
from etcdfix.golang.goquote import go_quote, withheld
from etcdfix.golang.gotime import parse_duration
from etcdfix.golang.goyaml import line_of
from etcdfix.inputs.inputfile import Check, any_status, read_input
from etcdfix.model.errors import ConfigurationError
from etcdfix.model.model import digest_of
from etcdfix.model.providers import ProviderType

MAX_FILE_BYTES = 4 << 20
"""An EncryptionConfiguration is a few kilobytes."""

_DEFAULT_CACHE_SIZE = 1000
_MAX_SAID = 10
# A file that etcdfix made is for reading, and nothing may be written by it. Its mark ``<made by>.not-for-writing.…``
# stands twice: in a comment, for people; and as a resource in a rule of its own, which API servers take like that of a
# custom resource. So it is still there in a file that a tool has turned into JSON, or written anew without comments.
NOT_FOR_WRITING: Final = "not-for-writing.etcdfix.io"
"""The API group of the mark."""

MADE_BY_RECOVER: Final = "recover"
"""The command that takes one out of the datastore of k3s or RKE2."""

UNKNOWN_MAKER: Final = "etcdfix"
"""Of a file in which only the group is left."""

_MARK: Final = re.compile(rb"(?:([a-z]{1,32})\.)?" + re.escape(NOT_FOR_WRITING.encode()), re.IGNORECASE)


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
        sha256: ``sha256:<hex>`` of the raw file: the content hash that the API server reports.
        rules: In file order; without the mark of a file that etcdfix made.
        warnings: What some API server would refuse or ignore, one sentence each.
        made_by: The command of etcdfix that made the file (``merge``); "" for any other file. Such a file is for
            reading: nothing is ever written by it.
    """

    path: str
    sha256: str
    rules: tuple[ResourceRule, ...]
    warnings: tuple[str, ...] = ()
    made_by: str = ""

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
    return parse_configuration(read_configuration(path), path=str(path))


def read_configuration(path: Path, check: Check = any_status) -> bytes:
    """Return the bytes of a configuration file.

    Raises:
        ConfigurationError: It cannot be read.
    """
    try:
        return read_input(path, most_bytes=MAX_FILE_BYTES, check=check)
    except OSError as error:
        hint = "Name a readable file: the one in the API server's flag --encryption-provider-config."
        problem = Problem((), f"it cannot be read: {(error.strerror or 'unknown error').lower()}", hint)
        name = withheld(str(path)) if is_key_text(str(path)) else go_quote(str(path))
        raise _refused(name, b"", [problem]) from error


def parse_configuration(raw: bytes, *, path: str) -> EncryptionConfiguration:
    """Check and take apart the bytes of a configuration file.

    Raises:
        ConfigurationError: The API server would refuse the file.
    """
    rules = decode_rules(raw, path=path)
    found = [*problems_of(rules)]
    problems = [one for one in found if one.kind == REFUSED]
    if problems:
        raise refusal(path, raw, problems)
    made_by = find_mark(raw, (entry or "" for rule in rules for entry in rule.resources or ()))
    made = (
        [f"was made by etcdfix encryption {made_by}, for reading: nothing is changed by it"]
        if made_by
        else []
    )
    return EncryptionConfiguration(
        path=path,
        sha256=digest_of(raw),
        rules=tuple(
            ResourceRule(tuple(entries), tuple(map(_provider, rule.providers or ())))
            for rule in rules
            if (entries := [entry or "" for entry in rule.resources or () if not is_mark(entry or "")])
        ),
        warnings=tuple(dict.fromkeys([*made, *(one.trouble for one in found)])),
        made_by=made_by,
    )


def decode_rules(raw: bytes, *, path: str) -> list[config_file.Rule]:
    """Return the rules of a configuration file as they stand there; none of them was checked.

    Raises:
        ConfigurationError: It cannot be decoded.
    """
    if not raw:
        hint = "An API server without encryption has no such file; leave the option away."
        raise refusal(path, raw, [Problem((), "it is empty", hint)])
    rules = decode(raw)
    if isinstance(rules, Problem):
        raise refusal(path, raw, [rules])
    return rules


def refusal(path: str, raw: bytes, problems: Sequence[Problem]) -> ConfigurationError:
    """Return the error that says why the API server would refuse a file: the first few problems, with their lines."""
    return _refused(go_quote(path), raw, problems)


def _refused(name: str, raw: bytes, problems: Sequence[Problem]) -> ConfigurationError:
    said = "; ".join(_said(problem, raw) for problem in problems[:_MAX_SAID])
    if len(problems) > _MAX_SAID:
        said += f"; and {len(problems) - _MAX_SAID} more"
    return ConfigurationError(f"encryption configuration {name}: {said}", hint=problems[0].hint)


def _said(problem: Problem, raw: bytes) -> str:
    if not problem.path:
        return problem.trouble
    line = line_of(raw, problem.path)
    return f"{f'line {line}, ' if line else ''}{place_of(problem.path)}: {problem.trouble}"


def place_of(path: config_file.Path) -> str:
    """Return where something stands in a file, as the API server writes it: ``resources[0].providers[1]``."""
    steps = (f"[{step}]" if isinstance(step, int) else f".{shown(step, quote='')}" for step in path)
    return "".join(steps).removeprefix(".")


def _provider(raw: config_file.Provider) -> Provider:
    (member,) = given_members(raw)
    if raw.identity is not None:
        return IdentityProvider()
    if raw.kms is None:
        keys: Iterable[config_file.Key] = getattr(raw, member).keys
        named = (NamedKey(key.name or "", KeyMaterial(key_bytes(key.secret or "") or b"")) for key in keys)
        return KeyedProvider(ProviderType(member), tuple(named))
    api_version, endpoint = raw.kms.api_version or DEFAULT_API_VERSION, raw.kms.endpoint or ""
    cache_size = raw.kms.cachesize
    if cache_size is None and api_version == "v1":
        cache_size = _DEFAULT_CACHE_SIZE
    timeout = DEFAULT_TIMEOUT if raw.kms.timeout is None else raw.kms.timeout
    return KMSProvider(
        api_version=api_version,
        name=raw.kms.name or "",
        endpoint=endpoint,
        socket_path=socket_path(endpoint) or "",
        cache_size=cache_size,
        timeout_seconds=(parse_duration(timeout) or 0) / 1e9,
    )


def mark_of(made_by: str) -> str:
    """Return the resource that marks a file, for the command that made it: ``merge``."""
    return f"{made_by}.{NOT_FOR_WRITING}"


def is_mark(entry: str) -> bool:
    """Say whether an entry of a resource list is a mark, and no resource."""
    return entry == NOT_FOR_WRITING or entry.endswith(f".{NOT_FOR_WRITING}")


def find_mark(raw: bytes, entries: Iterable[str]) -> str:
    """Return what made a file that is marked; "" for a file that is not.

    The name counts wherever it stands, comments and later documents included. The entries may be written with escapes.
    """
    for text in (raw, *(entry.encode(errors="replace") for entry in entries)):
        found = _MARK.search(text)
        if found is not None:
            return found[1].decode().lower() if found[1] is not None else UNKNOWN_MAKER
    return ""
