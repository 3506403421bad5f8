"""Resources as people type them at kubectl: plural, singular, kind or short name; with a group, or version and group.

Where kubectl would choose between two resources, nothing is chosen here but what everybody expects: a built-in keeps
its plural, and one of the core group its kind, whatever a CustomResourceDefinition calls itself.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from typing import Final

from etcdfix.model.errors import ConfigurationError
from etcdfix.model.storagekey import ResourcePrefix, StorageCodec, builtin_directories, display, word_bytes

_VERSION: Final = re.compile(r"v[0-9]+(?:(?:alpha|beta)[0-9]+)?")
_ALSO_EVENTS: Final = "events.k8s.io"  # the API serves them in two groups, and stores them once
_BUILT_IN: Final = frozenset({StorageCodec.BUILTIN, StorageCodec.JSON_BUILTIN})


def find_resources(word: str, known: Iterable[ResourcePrefix]) -> list[ResourcePrefix]:
    """Return the directories that a word names; of several resources where it is ambiguous, none where nobody has it.

    Args:
        word: ``pods``, ``po``, ``Pod``, ``deploy.apps``, ``deployments.v1.apps``. Capitals make no difference. A
            version decides nothing: objects of all versions have the same keys.
        known: All directories there are.
    """
    directories = list(known)
    named = {directory.group_resource for directory in _named(word.lower(), directories)}
    # A stray definition that claims a built-in resource need not have all of its words.
    return [directory for directory in directories if directory.group_resource in named]


def require_resource(
    word: str, known: Sequence[ResourcePrefix], *, prefixes_count: bool = True
) -> list[ResourcePrefix]:
    """Return the directories of the one resource that a word names.

    There are several where a stray definition claims the name of a built-in type.

    Raises:
        ConfigurationError: It names none, or several.
    """
    found = find_resources(word, known)
    if not found:
        raise ConfigurationError(
            f"unknown resource {display(word_bytes(word))!r}",
            hint=_suggestion(word.lower(), known, prefixes_count=prefixes_count),
        )
    choices = sorted({str(directory.group_resource) for directory in found})
    if len(choices) > 1:
        raise ConfigurationError(f"resource {word!r} is ambiguous", hint=f"name one of: {', '.join(choices)}")
    return found


def builtin_word(word: str) -> str:
    """Return the resource that a word names as reports have it, where no definition was read yet.

    What names no built-in resource stays as it is. With the definitions at hand, what names one may be ambiguous.
    """
    found = find_resources(word, builtin_directories())
    return str(found[0].group_resource) if found else word


def is_cluster_scoped(word: str) -> bool:
    """Say whether a word names a built-in resource whose objects are in no namespace."""
    found = find_resources(word, builtin_directories())
    return bool(found) and not any(directory.namespaced for directory in found)


def _named(word: str, known: list[ResourcePrefix]) -> list[ResourcePrefix]:
    name, dot, group = word.partition(".")
    if not dot:
        return _in_any_group(name, known)
    found = _in_group(name, group, known)
    version, _, rest = group.partition(".")
    return found if found or not _VERSION.fullmatch(version) else _in_group(name, rest, known)


def _in_group(name: str, group: str, known: list[ResourcePrefix]) -> list[ResourcePrefix]:
    inside = [
        directory
        for directory in known
        if directory.group == group
        or (group == _ALSO_EVENTS and not directory.group and directory.resource == "events")
    ]
    by_plural = [directory for directory in inside if directory.resource == name]
    return by_plural or [directory for directory in inside if name in _words(directory)]


def _in_any_group(name: str, known: list[ResourcePrefix]) -> list[ResourcePrefix]:
    by_plural = [directory for directory in known if directory.resource == name]
    core = [directory for directory in by_plural if not directory.group]
    if core or any(directory.codec in _BUILT_IN for directory in by_plural):
        return core or by_plural
    others = [directory for directory in known if name in _words(directory) and directory.resource != name]
    if by_plural or any(name in directory.short_names for directory in others):
        return [*by_plural, *others]
    return [directory for directory in others if not directory.group] or others


def _words(directory: ResourcePrefix) -> set[str]:
    """Return what a resource goes by beside its group; of a definition that cannot be read only its plural is known."""
    kind = directory.kind.lower()
    return {directory.resource, directory.singular or kind, kind, *directory.short_names} - {""}


def _suggestion(word: str, known: Sequence[ResourcePrefix], *, prefixes_count: bool) -> str:
    if word == "all":
        return "a few resources go by that word at kubectl; name them: po,svc,deploy,rs,sts,ds,jobs,cj"
    words: dict[str, str] = {}
    for directory in known:  # built-ins come first and keep their words
        for name in (directory.resource, directory.kind.lower(), str(directory.group_resource)):
            words.setdefault(name, str(directory.group_resource))
    words.pop("", None)
    close = difflib.get_close_matches(word, words, n=3)
    if close:
        return "did you mean " + " or ".join(dict.fromkeys(words[name] for name in close)) + "?"
    keys = "any key prefix works too" if prefixes_count else "a whole key works too"
    return (
        "resources go by the words of kubectl: secrets, deploy, deployments.apps; a custom resource counts when its "
        f"CustomResourceDefinition is in this etcd; {keys}: /registry/…"
    )
