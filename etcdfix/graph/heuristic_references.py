"""What looks like a reference in a custom resource.

A custom resource may mean anything by its fields. What looks like a reference is taken for one and marked as a guess:
a use too many costs a second look, one too few loses a Secret that somebody needs. Guessed names are only ever compared
with the names of objects: a field may turn out to hold something else.

Shapes: references of pods; ``{kind: Secret, name: …}`` (Gateway API, Flux); ``{name, key}`` and lists of names
(Prometheus operator); ``credentialName`` (Istio); ``privateKeySecretRef`` (cert-manager); ``existingSecret`` and the
like (operators that grew out of Helm charts).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

from etcdfix.graph.fields import Plain
from etcdfix.graph.uses import ANY, CLAIMS, CONFIG_MAPS, SECRETS, SERVICE_ACCOUNTS, Reference, Use

_LONGEST_PATH: Final = 160
_LONGEST_NAME: Final = 253
_LONGEST_NAMESPACE: Final = 63
_LABEL: Final = "[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_IS_NAME: Final = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_IS_NAMESPACE: Final = re.compile(_LABEL)

# An object that says of itself what it points at.
_KINDS: Final = {
    "Secret": SECRETS,
    "ConfigMap": CONFIG_MAPS,
    "ServiceAccount": SERVICE_ACCOUNTS,
    "PersistentVolumeClaim": CLAIMS,
}
# Lower-cased fields that hold an object with a name. Stores, classes and providers of Secrets are kinds of their own.
_OBJECTS: Final = (
    (CLAIMS, re.compile("persistentvolumeclaims?$")),
    (CONFIG_MAPS, re.compile("configmap")),
    (SECRETS, re.compile("secret(?!store|class|provider)|(?:certificate|credentials?)refs?$")),
)
# Fields that hold a name, ``[]`` for each of a list. Not everything that ends in "secret" names one: that is as often
# the secret itself (clientSecret).
_OF_SECRETS: Final = "existing|auth|ca|cert|certificate|credentials?|pull|tls"
_NAMES: Final = tuple(
    (directory, re.compile(rf"(?:{pattern})(?:s?\[\])?$|{directory}\[\]$"))
    for directory, pattern in (
        (SECRETS, f"secret(?:name|ref)|credentialname|^secret|(?:{_OF_SECRETS})secret"),
        (CONFIG_MAPS, "configmap(?:name|ref)|existingconfigmap|^configmap"),
        (SERVICE_ACCOUNTS, "serviceaccountname"),
        (CLAIMS, "claimname|existingclaim"),
    )
)
_SELECTOR_FIELDS: Final = frozenset({"name", "namespace", "key", "optional"})
# Istio looks for it in the namespace of the gateway's pods, and for the clients' authorities beside it.
_ISTIO: Final = "credentialname"
_ISTIO_AUTHORITIES: Final = "-cacert"
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
    # Field, path, value, and the object that holds it.
    waiting: list[tuple[str, str, Any, Mapping[str, Any]]] = [("", "", root, {})]
    while waiting:
        field, path, value, holder = waiting.pop()
        if type(value) is dict:
            name = value.get("name")
            if type(name) is str and (directory := _of_object(field, value)):
                stated = _namespace(value.get("namespace")) or _beside(field, holder)
                yield from _references(directory, stated or namespace, name, path)
            for key, item in value.items():
                # What is longer names no reference, and would cost its length for every element of a list.
                known = key.lower() if len(key) <= _LONGEST_NAME else ""
                below = f"{path}.{key[:_LONGEST_PATH]}" if path else key
                if item:
                    waiting.append((known, below[:_LONGEST_PATH], item, value))
        elif type(value) is list:
            each = field if field.endswith("[]") else f"{field}[]"
            waiting.extend((each, f"{path}[]"[:_LONGEST_PATH], item, holder) for item in value if item)
        elif type(value) is str and (directory := _matching(_NAMES, field)):
            # Istio: kubernetes-gateway://namespace/name
            first, _, name = value.rpartition("://")[2].rpartition("/")
            if first and not _namespace(first):
                continue
            where = first or _beside(field, holder) or ("" if field.endswith(_ISTIO) else namespace)
            yield from _references(directory, where, name, path)
            if field.endswith(_ISTIO):
                yield from _references(directory, where, f"{name}{_ISTIO_AUTHORITIES}", path)


def _references(directory: str, namespace: str, name: str, path: str) -> Iterator[Reference]:
    if len(name) <= _LONGEST_NAME and _IS_NAME.fullmatch(name):
        use = Use(path, heuristic=True, unscoped=not namespace)
        yield Reference(f"{directory}/{namespace or ANY}/{name}", use)


def _of_object(field: str, value: Mapping[str, Any]) -> str:
    """Return the directory of what an object with a name points at, by its kind, else by its field; "" for none."""
    kind, version = value.get("kind"), value.get("apiVersion")
    if type(kind) is str and kind:
        stated = [value.get("group"), value.get("apiGroup")]
        stated += [version.rpartition("/")[0]] if type(version) is str else []
        return _KINDS.get(kind, "") if all(group in ("", "core", None) for group in stated) else ""
    if found := _matching(_OBJECTS, field.removesuffix("[]")):
        return found
    return SECRETS if "key" in value and value.keys() <= _SELECTOR_FIELDS else ""


@lru_cache(4096)
def _matching(patterns: tuple[tuple[str, re.Pattern[str]], ...], field: str) -> str:
    return next((directory for directory, pattern in patterns if pattern.search(field)), "")


def _beside(field: str, holder: Mapping[str, Any]) -> str:
    """Return the namespace that a field beside states: ``secretNamespace`` for ``secretName``; "" for none."""
    stated = {key.lower(): item for key, item in holder.items() if key.endswith("amespace")}
    word = field.removesuffix("[]").removesuffix("s").removesuffix("name").removesuffix("ref")
    return _namespace(stated.get(f"{word}namespace")) or _namespace(stated.get("namespace"))


def _namespace(value: Any) -> str:
    if type(value) is str and len(value) <= _LONGEST_NAMESPACE and _IS_NAMESPACE.fullmatch(value):
        return value
    return ""
