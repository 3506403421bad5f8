"""What looks like a reference in a custom resource.

A custom resource may mean anything by its fields. What looks like a reference is taken for one and marked as a guess:
a use too many costs a second look, one too few loses a Secret that somebody needs. Guessed names are only ever compared
with the names of objects: a field may turn out to hold something else.

Shapes, with whom they come from: references of pods; ``{kind: Secret, name: …}`` (Gateway API, Flux); ``{name, key}``
and lists of names (Prometheus operator); ``credentialName`` (Istio); ``privateKeySecretRef`` (cert-manager);
``existingSecret`` and the like (operators that grew out of Helm charts).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from etcdfix.graph.fields import Plain
from etcdfix.graph.uses import ANY, CLAIMS, CONFIG_MAPS, SECRETS, SERVICE_ACCOUNTS, Reference, Role, Use

_MOST_GUESSED_PATH: Final = 160
_LONGEST_NAME: Final = 253
_LONGEST_NAMESPACE: Final = 63
_LABEL: Final = "[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_IS_NAME: Final = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_IS_NAMESPACE: Final = re.compile(_LABEL)


class _Target(NamedTuple):
    """What a field points at."""

    directory: str
    role: Role
    anywhere: bool = False


class _Beside(NamedTuple):
    """What the object that holds a field says beside it."""

    optional: bool
    namespaces: Mapping[str, str]


# An object that says of itself what it points at.
_KINDS: Final = {
    "Secret": _Target(SECRETS, Role.UNKNOWN),
    "ConfigMap": _Target(CONFIG_MAPS, Role.UNKNOWN),
    "ServiceAccount": _Target(SERVICE_ACCOUNTS, Role.SERVICE_ACCOUNT),
    "PersistentVolumeClaim": _Target(CLAIMS, Role.CLAIM),
}
# End of a field's name, lower-cased and without the "s" of a list; the value is an object with a name.
_OBJECTS: Final = (
    ("secretkeyref", _Target(SECRETS, Role.ENV)),
    ("configmapkeyref", _Target(CONFIG_MAPS, Role.ENV)),
    ("imagepullsecret", _Target(SECRETS, Role.IMAGE_PULL)),
    ("persistentvolumeclaim", _Target(CLAIMS, Role.CLAIM)),
    ("configmap", _Target(CONFIG_MAPS, Role.VOLUME)),
    ("secret", _Target(SECRETS, Role.VOLUME)),
    ("certificateref", _Target(SECRETS, Role.UNKNOWN)),
    ("credentialref", _Target(SECRETS, Role.UNKNOWN)),
    ("credentialsref", _Target(SECRETS, Role.UNKNOWN)),
)
# Anywhere in such a field's name. Stores, classes and providers of Secrets are kinds of their own.
_SECRET_WORD: Final = re.compile("secret(?!store|class|provider)")
_CONFIG_MAP_WORD: Final = re.compile("configmap")
# The same ends where the value is a name, or a list of names.
_NAMES: Final = (
    ("imagepullsecret", _Target(SECRETS, Role.IMAGE_PULL)),
    ("secretname", _Target(SECRETS, Role.UNKNOWN)),
    ("secretref", _Target(SECRETS, Role.UNKNOWN)),
    ("configmapname", _Target(CONFIG_MAPS, Role.UNKNOWN)),
    ("configmapref", _Target(CONFIG_MAPS, Role.UNKNOWN)),
    ("existingconfigmap", _Target(CONFIG_MAPS, Role.UNKNOWN)),
    ("serviceaccountname", _Target(SERVICE_ACCOUNTS, Role.SERVICE_ACCOUNT)),
    ("claimname", _Target(CLAIMS, Role.CLAIM)),
    ("existingclaim", _Target(CLAIMS, Role.CLAIM)),
    ("credentialname", _Target(SECRETS, Role.UNKNOWN, anywhere=True)),
    # Not everything that ends in "secret": that is as often the secret itself (clientSecret).
    *(
        (f"{word}secret", _Target(SECRETS, Role.UNKNOWN))
        for word in (
            "existing",
            "credential",
            "credentials",
            "auth",
            "ca",
            "cert",
            "certificate",
            "pull",
            "tls",
        )
    ),
)
# The whole name; the value is a name.
_WHOLE_NAMES: Final = {
    "secret": _Target(SECRETS, Role.UNKNOWN),
    "configmap": _Target(CONFIG_MAPS, Role.UNKNOWN),
}
# The value is a list of names.
_LISTS: Final = (
    ("secrets", _Target(SECRETS, Role.UNKNOWN)),
    ("configmaps", _Target(CONFIG_MAPS, Role.UNKNOWN)),
)
_SELECTOR_FIELDS: Final = frozenset({"name", "namespace", "key", "optional"})
_NAMESPACES_BESIDE: Final = {
    SECRETS: "secretnamespace",
    CONFIG_MAPS: "configmapnamespace",
    SERVICE_ACCOUNTS: "serviceaccountnamespace",
    CLAIMS: "claimnamespace",
}
# Istio looks for the certificates of clients' authorities beside the server's own.
_ISTIO_AUTHORITIES: Final = "-cacert"
_LONGEST_FIELD: Final = 253
_UNGUESSED: Final = frozenset({"metadata", "status", "apiVersion", "kind"})


def heuristic_references(plain: Plain, namespace: str) -> Iterator[Reference]:
    """Yield what looks like a reference in a custom resource, every one marked as a guess.

    There are at most two for each field of the object.

    Args:
        plain: The object; its metadata and status are left out.
        namespace: Where it lives; "" for none: then its controller decides where a name without a namespace is looked
            up, and it counts in all of them.
    """
    root = {key: item for key, item in plain.items() if key not in _UNGUESSED}
    # Field, path, value, and what stands beside them.
    waiting: list[tuple[str, str, Any, _Beside]] = [("", "", root, _beside({}))]
    while waiting:
        field, path, value, outside = waiting.pop()
        if type(value) is dict:
            yield from _object_reference(field, path, value, outside, namespace)
            beside = _beside(value)
            for key, item in value.items():
                below = f"{path}.{key}"[:_MOST_GUESSED_PATH] if path else key[:_MOST_GUESSED_PATH]
                # What is longer names no reference, and would cost its length for every element of a list.
                known = key if len(key) <= _LONGEST_FIELD else ""
                if type(item) is str:
                    target = _by_name(known)
                    if target is not None:
                        yield from _name_reference(target, known, below, item, beside, namespace)
                elif item and type(item) in {dict, list}:
                    waiting.append((known, below, item, beside))
        elif type(value) is list:
            below = f"{path}[]"[:_MOST_GUESSED_PATH]
            target = _by_list(field)
            for item in value:
                if type(item) is str:
                    if target is not None:
                        yield from _name_reference(target, field, below, item, outside, namespace)
                elif item and type(item) in {dict, list}:
                    waiting.append((field, below, item, outside))


def _object_reference(
    field: str, path: str, value: Mapping[str, Any], beside: _Beside, namespace: str
) -> Iterator[Reference]:
    name = value.get("name")
    if type(name) is not str or not _is_name(name):
        return
    target = _by_object(field.lower().removesuffix("s"), value)
    if target is not None:
        where = _namespace(value.get("namespace")) or _namespace_beside(target, field, beside)
        optional = value.get("optional") is True
        yield _reference(target, where or namespace, name, path, optional=optional)


def _name_reference(
    target: _Target, field: str, path: str, text: str, beside: _Beside, namespace: str
) -> Iterator[Reference]:
    first, _, name = text.rpartition("://")[2].rpartition("/")  # Istio: kubernetes-gateway://namespace/name
    if not _is_name(name) or (first and not _namespace(first)):
        return
    stated = first or _namespace_beside(target, field, beside)
    where = stated or ("" if target.anywhere else namespace)
    optional = beside.optional
    yield _reference(target, where, name, path, optional=optional)
    if target.anywhere:
        yield _reference(target, where, f"{name}{_ISTIO_AUTHORITIES}", path, optional=optional)


def _reference(target: _Target, namespace: str, name: str, path: str, *, optional: bool) -> Reference:
    use = Use(target.role, path, optional=optional, heuristic=True, unscoped=not namespace)
    return Reference(f"{target.directory}/{namespace or ANY}/{name}", use)


# ------------------------------------------------------------------------------------- what a field points at


def _by_object(word: str, value: Mapping[str, Any]) -> _Target | None:
    """Return what an object with a name points at, by its kind, else by the field that holds it."""
    kind = value.get("kind")
    if type(kind) is str and kind:
        return _KINDS.get(kind) if _in_core(value) else None
    for end, target in _OBJECTS:
        if word.endswith(end):
            return target
    if _CONFIG_MAP_WORD.search(word):
        return _KINDS["ConfigMap"]
    if _SECRET_WORD.search(word) or ("key" in value and value.keys() <= _SELECTOR_FIELDS):
        return _KINDS["Secret"]
    return None


def _in_core(value: Mapping[str, Any]) -> bool:
    stated = [value.get("group"), value.get("apiGroup")]
    version = value.get("apiVersion")
    if type(version) is str:
        stated.append(version.rpartition("/")[0])
    return all(group in {"", "core"} for group in stated if type(group) is str)


@lru_cache(4096)
def _by_name(field: str) -> _Target | None:
    word = field.lower()
    for end, target in _NAMES:
        if word.endswith(end):
            return target
    return _WHOLE_NAMES.get(word)


def _by_list(field: str) -> _Target | None:
    word = field.lower()
    return _by_name(word.removesuffix("s")) or next((t for end, t in _LISTS if word.endswith(end)), None)


def _beside(holder: Mapping[str, Any]) -> _Beside:
    namespaces = {
        key.lower(): found
        for key, item in holder.items()
        if key.endswith("amespace") and (found := _namespace(item))
    }
    return _Beside(holder.get("optional") is True, namespaces)


def _namespace_beside(target: _Target, field: str, beside: _Beside) -> str:
    """Return the namespace that a field beside states, "" for none: the one that fits best."""
    stated = beside.namespaces
    if not stated:
        return ""
    word = field.lower()
    fitting = (
        f"{word}namespace",
        f"{word.removesuffix('name')}namespace",
        f"{word.removesuffix('ref')}namespace",
        _NAMESPACES_BESIDE[target.directory],
        "namespace",
    )
    return next((stated[key] for key in fitting if key in stated), "")


def _is_name(text: str) -> bool:
    return len(text) <= _LONGEST_NAME and _IS_NAME.fullmatch(text) is not None


def _namespace(value: Any) -> str:
    if type(value) is str and len(value) <= _LONGEST_NAMESPACE and _IS_NAMESPACE.fullmatch(value):
        return value
    return ""
