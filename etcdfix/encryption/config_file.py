"""Decodes an EncryptionConfiguration file as the API server does.

API servers from 1.31 on are strict: nothing unknown, nothing twice. Older ones leave out what is unknown, and of a
field that a YAML file gives twice the last counts; so it does here, and a problem tells it. Nothing here checks what
the fields say: see :mod:`etcdfix.encryption.config_rules`. No trouble is worded with a value of the file, which may be
a key.

Sources: ``k8s.io/apiserver/pkg/apis/apiserver/v1`` (fields and kinds); ``sigs.k8s.io/json`` (names are case-sensitive;
null is as good as nothing); ``CHANGELOG-1.31.md`` of Kubernetes (since when it is strict).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
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
from etcdfix.golang.goyaml import Field, line_of
from etcdfix.model.providers import ProviderType

REFUSED: Final = "refused"
STRICT: Final = frozenset({"unknown-field", "repeated-field"})
"""Kinds of what strict API servers refuse."""

STRICT_SINCE: Final = 31
"""The minor of the first release whose API servers are."""

_KINDS: Final = (("apiserver.config.k8s.io/v1", "EncryptionConfiguration"), ("v1", "EncryptionConfig"))
_KIND_HINT: Final = "Pass the file of the API server's flag --encryption-provider-config."
_VERSION_HINT: Final = f"Write kind: {_KINDS[0][1]} and apiVersion: {_KINDS[0][0]}."
_FIELD_HINT: Final = (
    "Compare the field names, which are case-sensitive, and their types with the Kubernetes documentation."
)
_KEYS: Final = {"keys": {"name": None, "secret": None}}
_FIELDS: Final = {
    "apiVersion": None,
    "kind": None,
    "resources": {
        "resources": None,
        "providers": {
            **{kind.value: _KEYS for kind in ProviderType},
            "kms": dict.fromkeys(("apiVersion", "name", "cachesize", "endpoint", "timeout")),
            "identity": dict[str, None](),
        },
    },
}
"""The fields that API servers know, and those of what stands there or in the elements of a list."""

_STRICT: Final = f"API servers from 1.{STRICT_SINCE} on"
_STRICT_HINT: Final = "Remove the fields, or correct their names, which are case-sensitive."
_SYNTAX_HINT: Final = (
    "Read as JSON where it begins with {, else as YAML; mind the indentation, and use spaces, not tabs."
)
_VARIABLE: Final = re.compile(rb"\$\{[^}]*\}|\$\([^)]*\)|\$[A-Za-z_]\w*|\{\{.*?\}\}|\{%.*?%\}|<[^<>]+>|@\w+@")
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


class Decoded(NamedTuple):
    """The rules of a file, not checked, and what strict API servers refuse in it."""

    rules: tuple[ResourceRule, ...]
    problems: Sequence[Problem]


def decode(raw: bytes) -> Decoded | Problem:
    """Return what a configuration holds; or why it cannot be decoded."""
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
        hint = _VERSION_HINT if kind in [known for _, known in _KINDS] else _KIND_HINT
        return Problem((), f"{trouble}and apiVersion {_KINDS[0][0]} are expected", hint)
    paths = islice(_unknown_fields(tree, _FIELDS, ()), _NAMED_FIELDS)
    unknown = [Field(str(path[-1]), line_of(raw, path)) for path in paths]
    problems = [
        Problem(
            (), f"has {kind} fields, which {_STRICT} refuse: {_named(fields)}", _STRICT_HINT, f"{kind}-field"
        )
        for kind, fields in (("repeated", repeated), ("unknown", unknown))
        if fields
    ]
    if repeated and raw.lstrip().startswith(b"{"):  # older API servers merge the lists of both
        return problems[0]._replace(kind=REFUSED)
    try:
        rules = tuple(_rule(rule, path) for rule, path in _Object(tree, ()).items("resources"))
    except _Misfit as misfit:
        problem: Problem = misfit.args[0]
        return problem
    return Decoded(rules, problems)


def _named(fields: Sequence[Field]) -> str:
    return ", ".join(
        f"{shown(field.name)} in line {field.line}" if field.line else shown(field.name)
        for field in fields[:_NAMED_FIELDS]
    )


def _unknown_fields(value: Any, known: Mapping[str, Any] | None, path: Path) -> Iterator[Path]:
    if isinstance(value, list):
        for index, item in enumerate(value):
            if isinstance(item, dict):  # no list holds lists, however deep a file has them
                yield from _unknown_fields(item, known, (*path, index))
    elif isinstance(value, dict) and known is not None:
        for name, member in value.items():
            if name in known:
                yield from _unknown_fields(member, known[name], (*path, name))
            else:
                yield (*path, name)


def find_unfilled(raw: bytes) -> Problem | None:
    """Say which variables of a template stand in a file instead of values; None for none."""
    found = [
        Field(match[0].decode(errors="replace"), number)
        for number, line in enumerate(raw.split(b"\n"), start=1)
        for match in _VARIABLE.finditer(line.partition(b"#")[0])
    ]
    hint = "Fill them in, or name the file that the API servers run with: this one is a template."
    return Problem((), f"variables are not filled in: {_named(found)}", hint) if found else None


def _said(value: Any) -> str:
    if isinstance(value, str):
        return shown(value)
    return "missing" if value is None else "no text"


class _Object:
    """The members of an object, each of an expected type; null is as good as nothing."""

    def __init__(self, value: Any, path: Path) -> None:
        self.path = path
        self._members = _expect(value, dict, path)

    def has(self, name: str) -> bool:
        return self._members.get(name) is not None

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
    rule = _Object(value, path)
    entries = ("" if item is None else _expect(item, str, place) for item, place in rule.items("resources"))
    return ResourceRule(
        tuple(entries), tuple(_provider(item, place) for item, place in rule.items("providers"))
    )


def _provider(value: Any, path: Path) -> Provider:
    element = _Object(value, path)
    given = [kind for kind in ProviderType if element.has(kind)]
    if len(given) != 1:
        trouble = f"one of {', '.join(ProviderType)} is expected, found: {' and '.join(given) or 'none'}"
        hint = "Give every provider a list element of its own: - aescbc: {…}, then - identity: {}"
        raise _Misfit(Problem(path, trouble, hint))
    (kind,) = given
    member = _Object(element.get(kind, dict), (*path, kind.value))
    if kind is ProviderType.IDENTITY:
        return IdentityProvider()
    if kind is ProviderType.KMS:
        return _kms(member)
    keys = (_Object(item, at) for item, at in member.items("keys"))
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
