"""The fields of an EncryptionConfiguration file, decoded as strictly as the API server does.

Nothing here checks what the fields say: see :mod:`etcdfix.encryption.config_rules`. The structs hold secrets, so
they have no useful ``repr``, and no trouble is worded with a value of the file.

Sources: ``k8s.io/apiserver/pkg/apis/apiserver/v1`` (fields and kinds); ``sigs.k8s.io/json`` (what strict means:
case-sensitive names, nothing unknown, nothing twice; null is as good as nothing).
"""

from __future__ import annotations

import re
from typing import Annotated, Any, NamedTuple

import msgspec

from etcdfix.encryption.keyring import shown
from etcdfix.golang.document import read_document
from etcdfix.golang.errors import JSONMalformed

_KINDS = (("apiserver.config.k8s.io/v1", "EncryptionConfiguration"), ("v1", "EncryptionConfig"))
_KIND_HINT = "Pass the file of the API server's flag --encryption-provider-config."
_FIELD_HINT = (
    "Compare the field names, which are case-sensitive, and their types with the Kubernetes documentation."
)
_SYNTAX_HINT = (
    "Read as JSON where it begins with {, else as YAML; mind the indentation, and use spaces, not tabs."
)
_NAMED_FIELDS = 10
# What msgspec says of a value that does not fit.
_MISFIT = re.compile(
    r"(?:Object contains unknown field `(?P<field>.*?)`|(?P<trouble>.*?))(?: - at `\$(?P<place>[^`]*)`)?",
    re.DOTALL,
)
_STEP = re.compile(r"\.([^.\[\]]+)|\[([0-9]+)\]")

Path = tuple[str | int, ...]


REFUSED = "refused"


class Problem(NamedTuple):
    """Why the API server would refuse a file, or what is odd about it.

    Attributes:
        path: Where: names of fields and indexes from the top down; empty for the file itself.
        trouble: What is wrong there; without key material.
        kind: ``refused``; another word that does not change for what API servers take, some of them not, or to no
            effect.
    """

    path: Path
    trouble: str
    hint: str
    kind: str = REFUSED


class _Fields(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"


class Key(_Fields):
    """A key; ``secret`` is base64."""

    name: str | None = None
    secret: str | None = None


class Keys(_Fields):
    """The member ``aescbc``, ``aesgcm`` or ``secretbox``."""

    keys: list[Key] | None = None


class KMS(_Fields):
    """The member ``kms``, without defaults."""

    api_version: str | None = None
    name: str | None = None
    cachesize: Annotated[int, msgspec.Meta(ge=-(1 << 31), le=(1 << 31) - 1)] | None = None
    endpoint: str | None = None
    timeout: str | None = None


class Identity(_Fields):
    """The member ``identity``, which has no fields."""


class Provider(_Fields):
    """An element of a provider list, of which one member should be there."""

    aesgcm: Keys | None = None
    aescbc: Keys | None = None
    secretbox: Keys | None = None
    identity: Identity | None = None
    kms: KMS | None = None


class Rule(_Fields):
    """An element of the top-level list."""

    resources: list[str | None] | None = None
    providers: list[Provider] | None = None


class _Configuration(_Fields):
    api_version: str | None = None
    kind: str | None = None
    resources: list[Rule] | None = None


def decode(raw: bytes) -> list[Rule] | Problem:
    """Return the rules of a configuration, or why it cannot be decoded."""
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
        return msgspec.convert(tree, _Configuration).resources or []
    except msgspec.ValidationError as error:
        return _misfit(str(error))


def _said(value: Any) -> str:
    if isinstance(value, str):
        return shown(value)
    return "missing" if value is None else "no text"


def _misfit(message: str) -> Problem:
    match = _MISFIT.fullmatch(message)
    assert match is not None  # every part of the pattern may be empty
    steps = _STEP.findall(match["place"] or "")
    path = tuple(name or int(index) for name, index in steps)
    if match["field"] is not None:
        return Problem((*path, match["field"]), "the API server knows no such field", _FIELD_HINT)
    return Problem(path, match["trouble"].replace("`", "").replace(" | null", "").lower(), _FIELD_HINT)
