"""Decodes an EncryptionConfiguration file as strictly as the API server does.

Nothing here checks what the fields say: see :mod:`etcdfix.encryption.config_rules`. No trouble is worded with a value
of the file, which may be a key.

Sources: ``k8s.io/apiserver/pkg/apis/apiserver/v1`` (fields and kinds); ``sigs.k8s.io/json`` (what strict means:
case-sensitive names, nothing unknown, nothing twice; null is as good as nothing).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple, TypeVar

from etcdfix.encryption.config_model import (
    IdentityProvider,
    KeyedProvider,
    KMSProvider,
    NamedKey,
    Provider,
    ResourceRule,
    socket_path,
)
from etcdfix.encryption.keyring import KeyMaterial, shown
from etcdfix.golang import gobase64
from etcdfix.golang.document import read_document
from etcdfix.golang.errors import JSONMalformed, UnknownEncoding
from etcdfix.golang.gotime import parse_duration
from etcdfix.model.providers import ProviderType

REFUSED: Final = "refused"

_KINDS: Final = (("apiserver.config.k8s.io/v1", "EncryptionConfiguration"), ("v1", "EncryptionConfig"))
_KIND_HINT: Final = "Pass the file of the API server's flag --encryption-provider-config."
_FIELD_HINT: Final = (
    "Compare the field names, which are case-sensitive, and their types with the Kubernetes documentation."
)
_SYNTAX_HINT: Final = (
    "Read as JSON where it begins with {, else as YAML; mind the indentation, and use spaces, not tabs."
)
_NAMED_FIELDS: Final = 10
_DEFAULT_CACHE_SIZE: Final = 1000
_TYPE_NAMES: Final = {
    dict: "object", list: "array", str: "str", int: "int", float: "float", bool: "bool", type(None): "null",
}  # fmt: skip

Path = tuple[str | int, ...]
T = TypeVar("T")


class Problem(NamedTuple):
    """Why the API server would refuse a file, or what is odd about it.

    Attributes:
        path: Names of fields and indexes from the top down; empty for the file itself.
        trouble: What is wrong there; without key material.
        kind: ``refused``; another word that does not change for what API servers take, some of them not, or to no
            effect.
    """

    path: Path
    trouble: str
    hint: str
    kind: str = REFUSED


class _Misfit(Exception):
    """Raised with a :class:`Problem` for what is not of the expected type."""


def decode(raw: bytes) -> tuple[ResourceRule, ...] | Problem:
    """Return the rules of a configuration, not checked; or why it cannot be decoded."""
    try:
        tree, repeated = read_document(raw)
    except JSONMalformed as error:
        return Problem((), error.message, _SYNTAX_HINT)
    members = tree if isinstance(tree, dict) else {}
    kind, version = members.get("kind"), members.get("apiVersion")
    if (version, kind) not in _KINDS:
        trouble = (
            f"kind is {_said(kind)} and apiVersion {_said(version)}, where kind EncryptionConfiguration "
        )
        return Problem((), f"{trouble}and apiVersion {_KINDS[0][0]} are expected", _KIND_HINT)
    if repeated:
        named = ", ".join(f"{shown(field.name)} in line {field.line}" for field in repeated[:_NAMED_FIELDS])
        return Problem((), f"a field is given once more: {named}", _FIELD_HINT)
    try:
        file = _Object(tree, (), "apiVersion", "kind", "resources")
        return tuple(_rule(rule, path) for rule, path in file.items("resources"))
    except _Misfit as misfit:
        problem: Problem = misfit.args[0]
        return problem


def _said(value: Any) -> str:
    if isinstance(value, str):
        return shown(value)
    return "missing" if value is None else "no text"


class _Object:
    """The members of an object, each of an expected type; null is as good as nothing."""

    def __init__(self, value: Any, path: Path, *names: str) -> None:
        self.path = path
        self._members = _expect(value, dict, path)
        for name in self._members:
            if name not in names:
                raise _Misfit(Problem((*path, name), "the API server knows no such field", _FIELD_HINT))

    @property
    def given(self) -> list[str]:
        """Names of the members that are there, in the order of the names that are known."""
        return [name for name, value in self._members.items() if value is not None]

    def get(self, name: str, expected: type[T]) -> T | None:
        value = self._members.get(name)
        return None if value is None else _expect(value, expected, (*self.path, name))

    def text(self, name: str, default: str = "") -> str:
        found = self.get(name, str)
        return default if found is None else found

    def items(self, name: str) -> Iterator[tuple[Any, Path]]:
        for index, item in enumerate(self.get(name, list) or ()):
            yield item, (*self.path, name, index)


def _expect(value: Any, expected: type[T], path: Path) -> T:
    if isinstance(value, float) and value.is_integer() and expected is int:
        value = int(value)
    if type(value) is expected:
        return value
    trouble = f"expected {_TYPE_NAMES[expected]}, got {_TYPE_NAMES[type(value)]}"
    raise _Misfit(Problem(path, trouble, _FIELD_HINT))


def _rule(value: Any, path: Path) -> ResourceRule:
    rule = _Object(value, path, "resources", "providers")
    entries = ("" if item is None else _expect(item, str, place) for item, place in rule.items("resources"))
    return ResourceRule(
        tuple(entries), tuple(_provider(item, place) for item, place in rule.items("providers"))
    )


def _provider(value: Any, path: Path) -> Provider:
    element = _Object(value, path, *ProviderType)
    if len(element.given) != 1:
        trouble = (
            f"one of {', '.join(ProviderType)} is expected, found: {' and '.join(element.given) or 'none'}"
        )
        hint = "Give every provider a list element of its own: - aescbc: {…}, then - identity: {}"
        raise _Misfit(Problem(path, trouble, hint))
    kind = ProviderType(element.given[0])
    member, place = element.get(kind, dict), (*path, kind.value)
    if kind is ProviderType.IDENTITY:
        _Object(member, place)
        return IdentityProvider()
    if kind is ProviderType.KMS:
        return _kms(_Object(member, place, "apiVersion", "name", "cachesize", "endpoint", "timeout"))
    keys = (_Object(item, at, "name", "secret") for item, at in _Object(member, place, "keys").items("keys"))
    return KeyedProvider(
        kind, tuple(NamedKey(key.text("name"), _material(key.text("secret"))) for key in keys)
    )


def _kms(kms: _Object) -> KMSProvider:
    api_version, endpoint = kms.text("apiVersion") or "v1", kms.text("endpoint")
    cache_size = kms.get("cachesize", int)
    if cache_size is not None and not -(1 << 31) <= cache_size < 1 << 31:
        raise _Misfit(Problem((*kms.path, "cachesize"), "expected int of 32 bits", _FIELD_HINT))
    if cache_size is None and api_version == "v1":
        cache_size = _DEFAULT_CACHE_SIZE
    return KMSProvider(
        api_version=api_version,
        name=kms.text("name"),
        endpoint=endpoint,
        socket_path=socket_path(endpoint) or "",
        cache_size=cache_size,
        timeout_seconds=max(0, parse_duration(kms.text("timeout", "3s")) or 0) / 1e9,
    )


def _material(secret: str) -> KeyMaterial:
    try:
        return KeyMaterial(gobase64.decode(secret.encode(errors="replace")))
    except UnknownEncoding:
        return KeyMaterial(b"")
