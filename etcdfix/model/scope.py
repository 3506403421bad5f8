"""What a person asked to look at, turned into the key ranges to read."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec

from etcdfix.model.errors import ConfigurationError, ObjectNotFound
from etcdfix.model.resource_words import builtin_word, require_resource
from etcdfix.model.storagekey import ResourcePrefix, StorageLayout, builtin_directories, display, word_bytes
from etcdfix.text.safetext import key_word


class KeyRange(msgspec.Struct, frozen=True):
    """Keys to read: everything that starts with ``prefix``, or the single key where ``exact``."""

    prefix: bytes
    exact: bool = False

    def covers(self, other: KeyRange) -> bool:
        """Say whether everything in ``other`` is read by this range already."""
        return other == self or (not self.exact and other.prefix.startswith(self.prefix))


class InRanges:
    """Says of an etcd key whether it is in one of some ranges, which come in order and do not overlap."""

    def __init__(self, ranges: Sequence[KeyRange]) -> None:
        self._ranges, self._starts = ranges, [one.prefix for one in ranges]

    def __contains__(self, key: object) -> bool:
        """Say whether it is."""
        assert isinstance(key, bytes)
        at = bisect_right(self._starts, key) - 1
        if at < 0:
            return False
        one = self._ranges[at]
        return key == one.prefix if one.exact else key.startswith(one.prefix)


class ObjectWord(msgspec.Struct, frozen=True):
    """One object as people name it: ``deploy/web``, and of which namespace.

    Attributes:
        resource: Any word for its resource.
        name: Of the object.
        namespace: That was given; "" for none.
    """

    resource: str
    name: str
    namespace: str = ""

    def __str__(self) -> str:
        return display(word_bytes(f"{self.resource}/{self.name}"))


class ScopeRequest(msgspec.Struct, frozen=True):
    """The words of a command line: resources, objects or key prefixes (these start with a slash), and namespaces."""

    arguments: tuple[str, ...] = ()
    keys: tuple[bytes, ...] = ()
    namespaces: tuple[str, ...] = ()

    @property
    def everything(self) -> bool:
        """True when nothing was named: the whole etcd is read, other programs' keys included."""
        return not self.arguments and not self.keys and not self.namespaces

    @property
    def prefixes(self) -> list[str]:
        """Arguments that are key prefixes."""
        return [a for a in self.arguments if a.startswith("/")]

    @property
    def resources(self) -> list[str]:
        """Arguments that are resources."""
        return [a for a in self.arguments if "/" not in a]

    @property
    def objects(self) -> list[ObjectWord]:
        """Arguments that are objects, ``TYPE/NAME``."""
        return [parse_object(a) for a in self.arguments if "/" in a and not a.startswith("/")]

    @property
    def types(self) -> tuple[str, ...]:
        """Every resource that is named, also by an object, as far as can be told without definitions."""
        words = [argument.partition("/")[0] for argument in self.arguments if not argument.startswith("/")]
        return tuple(dict.fromkeys(map(builtin_word, words)))

    def resources_in(self, layout: StorageLayout, keys: Iterable[bytes] = ()) -> list[str]:
        """Return every resource that is named, also by an etcd key or the beginning of one."""
        below = (word_bytes(prefix).rstrip(b"/") + b"/" for prefix in self.prefixes)
        located = (layout.locate(key)[0] for key in (*self.keys, *below, *keys))
        of_keys = (str(directory.group_resource) for directory in located if directory.resource)
        return list(dict.fromkeys((*self.types, *of_keys)))

    @property
    def words(self) -> list[str]:
        """The scope as the words of a command."""
        return [
            *self.arguments,
            *map(key_word, self.keys),
            *(word for name in self.namespaces for word in ("-n", name)),
        ]


class ResolvedScope(NamedTuple):
    """What a scope comes to in one cluster.

    Attributes:
        request: The same scope with every resource by its full name and every object by its etcd key.
        ranges: To read, in key order, none inside another.
    """

    request: ScopeRequest
    ranges: list[KeyRange]


KeysBelow = Callable[[bytes], Iterable[bytes]]
"""Returns every key that starts with a prefix."""


def split_words(word: str) -> list[str]:
    """Return the words of a comma list: ``po,svc`` is two resources, and ``po,svc/web`` two objects.

    Raises:
        ConfigurationError: One of them is empty.
    """
    types, slash, name = word.partition("/")
    if not all(types.split(",")):
        raise ConfigurationError(
            f"{display(word_bytes(word))!r} names no resource", hint="write a list as po,svc, without spaces"
        )
    return [f"{type_}{slash}{name}" for type_ in types.split(",")]


def parse_object(word: str, namespace: str = "") -> ObjectWord:
    """Return the object that ``TYPE/NAME`` names.

    Raises:
        ConfigurationError: It names none, or the namespace can be none.
    """
    resource, _, name = word.partition("/")
    if not resource or "," in resource or not name or "/" in name:
        raise ConfigurationError(
            f"{display(word_bytes(word))!r} names no object",
            hint="write TYPE/NAME, as deploy/web, or an etcd key, which starts with /",
        )
    if namespace:
        check_namespace(namespace)
    return ObjectWord(resource, name, namespace)


def resolve_scope(
    request: ScopeRequest, layout: StorageLayout, custom: Iterable[ResourcePrefix], keys_below: KeysBelow
) -> ResolvedScope:
    """Return what a scope comes to.

    Args:
        request: What was asked for.
        layout: Storage prefix.
        custom: Directories of custom resources; ``namespaced`` is None where the CRD itself cannot be read.
        keys_below: Asked where an object is named without its namespace.

    Raises:
        ConfigurationError: An unknown resource, or words that do not go together.
        ObjectNotFound: An object is in no namespace.
    """
    if request.everything:
        return ResolvedScope(request, [KeyRange(b"")])
    if request.namespaces and (request.prefixes or request.keys):
        raise ConfigurationError(
            "-n/--namespace goes with resources, not with key prefixes",
            hint="put the namespace into the prefix, for example /registry/secrets/shop",
        )
    if request.objects and request.resources:
        raise ConfigurationError(
            f"{request.objects[0]} is one object, and {request.resources[0]} all of a resource",
            hint="name either objects, each as TYPE/NAME, or resources",
        )
    for namespace in request.namespaces:
        check_namespace(namespace)
    known = [*layout.directories(), *custom]
    if request.objects:
        request = _by_keys(request, layout, known, keys_below)
    ranges = [KeyRange(key, exact=True) for key in request.keys]
    for text in request.prefixes:
        ranges += _segments(text)
    # More than one directory where a stray CRD claims the name of a built-in type.
    named = [require_resource(word, known) for word in request.resources]
    directories = [directory for found in named for directory in found]
    if request.namespaces and not named:
        directories = [d for d in known if d.namespaced is not False]
    for directory in directories:
        ranges += [KeyRange(base) for base in _bases(directory, layout, request.namespaces)]
    full = [str(found[0].group_resource) for found in named]
    request = msgspec.structs.replace(request, arguments=(*dict.fromkeys(full), *request.prefixes))
    return ResolvedScope(request, _without_overlap(ranges))


def check_namespace(namespace: str) -> None:
    """Refuse what can be no namespace.

    Raises:
        ConfigurationError: It is empty, or would lead elsewhere among the keys.
    """
    if not namespace or "/" in namespace:
        raise ConfigurationError(f"{namespace!r} is not a namespace name", hint="write it as -n NAME")


def find_objects(
    word: ObjectWord, layout: StorageLayout, known: Sequence[ResourcePrefix], keys_below: KeysBelow
) -> list[bytes]:
    """Return the etcd keys that one object may have: one for each directory of its resource.

    Without a namespace these are the keys of all objects of the name that there are, in any namespace.

    Raises:
        ConfigurationError: An unknown resource; or one that is not namespaced, and a namespace.
    """
    name = word_bytes(word.name)
    found: list[bytes] = []
    for directory in require_resource(word.resource, known, prefixes_count=False):
        namespaces = (word.namespace,) if word.namespace else ()
        for base in _bases(directory, layout, namespaces):
            if namespaces or directory.namespaced is False:
                found.append(base + name)
            else:
                found += [key for key in keys_below(base) if _is_named(key[len(base) :], name, directory)]
    return found


def builtin_key(word: ObjectWord, layout: StorageLayout) -> bytes:
    """Return the etcd key of an object of a built-in resource, where nothing is read to find it.

    Raises:
        ConfigurationError: The resource is no built-in one, or its namespace is missing.
    """
    (directory,) = require_resource(word.resource, builtin_directories(), prefixes_count=False)
    if directory.namespaced and not word.namespace:
        raise ConfigurationError(f"{word}: the namespace is missing", hint="-n NAMESPACE")
    (base,) = _bases(directory, layout, [word.namespace] if word.namespace else [])
    return base + word_bytes(word.name)


def _is_named(rest: bytes, name: bytes, directory: ResourcePrefix) -> bool:
    namespace, slash, last = rest.partition(b"/")
    if not slash:
        return directory.namespaced is None and rest == name
    return bool(namespace) and last == name


def _by_keys(
    request: ScopeRequest, layout: StorageLayout, known: Sequence[ResourcePrefix], keys_below: KeysBelow
) -> ScopeRequest:
    keys = list(request.keys)
    for word in request.objects:
        found: list[bytes] = []
        for namespace in request.namespaces or ("",):
            there = msgspec.structs.replace(word, namespace=namespace)
            found += find_objects(there, layout, known, keys_below)
        if not found:
            raise not_found(word)
        keys += found
    return ScopeRequest(tuple(request.prefixes), tuple(dict.fromkeys(keys)))


def not_found(word: ObjectWord) -> ObjectNotFound:
    """Return the error for an object that is in no namespace."""
    return ObjectNotFound(
        f"{word}: no object of this name was found in any namespace",
        hint="-n NAMESPACE names one that is gone, for what is still known of it",
    )


def _bases(directory: ResourcePrefix, layout: StorageLayout, namespaces: Sequence[str]) -> list[bytes]:
    base = layout.directory_prefix(directory)
    if not namespaces:
        return [base]
    if directory.namespaced is False:
        raise ConfigurationError(
            f"{directory.group_resource} are not namespaced, so -n/--namespace selects none of them",
            hint="leave it out",
        )
    return [base + word_bytes(namespace) + b"/" for namespace in namespaces]


def _segments(text: str) -> list[KeyRange]:
    """A prefix matches whole path segments: /registry/secrets/shop is not /registry/secrets/shop2."""
    prefix = word_bytes(text)
    if prefix.endswith(b"/"):
        return [KeyRange(prefix)]
    return [KeyRange(prefix, exact=True), KeyRange(prefix + b"/")]


def _without_overlap(ranges: list[KeyRange]) -> list[KeyRange]:
    result: list[KeyRange] = []
    for candidate in sorted(ranges, key=lambda r: (r.prefix, r.exact)):
        if not any(other.covers(candidate) for other in result):
            result.append(candidate)
    return result
