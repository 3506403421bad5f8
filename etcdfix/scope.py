"""What a person asked to look at, turned into the key ranges to read."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

import msgspec

from etcdfix.errors import ConfigurationError
from etcdfix.storagekey import ResourcePrefix, StorageLayout, builtin_directories, display, find_resources
from etcdfix.text.safetext import key_arguments


class KeyRange(msgspec.Struct, frozen=True):
    """Keys to read: everything that starts with ``prefix``, or the single key where ``exact``."""

    prefix: bytes
    exact: bool = False

    def covers(self, other: KeyRange) -> bool:
        """Say whether everything in ``other`` is read by this range already."""
        return other == self or (not self.exact and other.prefix.startswith(self.prefix))


class ScopeRequest(msgspec.Struct, frozen=True):
    """The words of a command line: resources or key prefixes (these start with a slash), and namespaces.

    ``prefixes_count`` is False for commands that take no prefixes of keys, only whole keys: errors then advise those.
    """

    arguments: tuple[str, ...] = ()
    keys: tuple[bytes, ...] = ()
    namespaces: tuple[str, ...] = ()
    prefixes_count: bool = True

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
        return [a for a in self.arguments if not a.startswith("/")]

    @property
    def words(self) -> list[str]:
        """The scope as the words of a command."""
        keys = [word for key in self.keys for word in key_arguments(key)]
        return [*self.arguments, *keys, *(word for name in self.namespaces for word in ("-n", name))]


def resolve_scope(
    request: ScopeRequest, layout: StorageLayout, custom: Iterable[ResourcePrefix]
) -> list[KeyRange]:
    """Return the ranges to read, in key order, none inside another.

    Args:
        request: What was asked for.
        layout: Storage prefix.
        custom: Directories of custom resources; ``namespaced`` is None where the CRD itself cannot be read.

    Raises:
        ConfigurationError: An unknown resource, or words that do not go together.
    """
    if request.everything:
        return [KeyRange(b"")]
    if request.namespaces and (request.prefixes or request.keys):
        raise ConfigurationError(
            "-n/--namespace goes with resources, not with key prefixes",
            hint="put the namespace into the prefix, for example /registry/secrets/shop",
        )
    for namespace in request.namespaces:
        if not namespace or "/" in namespace:
            raise ConfigurationError(f"{namespace!r} is no name of a namespace", hint="etcdfix scan -n NAME")
    known = [*builtin_directories(), *custom]
    ranges = [KeyRange(key, exact=True) for key in request.keys]
    for text in request.prefixes:
        ranges += _segments(text)
    directories = _named(request, known)
    if request.namespaces and not request.resources:
        directories = [d for d in known if d.namespaced is not False]
    for directory in directories:
        base = layout.directory_prefix(directory)
        if not request.namespaces:
            ranges.append(KeyRange(base))
        elif directory.namespaced is not False:
            ranges += [
                KeyRange(base + namespace.encode("utf-8", "surrogateescape") + b"/")
                for namespace in request.namespaces
            ]
        else:
            raise ConfigurationError(
                f"{directory.group_resource} are not namespaced, so -n/--namespace selects none of them",
                hint=f"etcdfix scan {directory.group_resource}",
            )
    return _without_overlap(ranges)


def _segments(text: str) -> list[KeyRange]:
    """A prefix matches whole path segments: /registry/secrets/shop is not /registry/secrets/shop2."""
    prefix = text.encode("utf-8", "surrogateescape")
    if prefix.endswith(b"/"):
        return [KeyRange(prefix)]
    return [KeyRange(prefix, exact=True), KeyRange(prefix + b"/")]


def _named(request: ScopeRequest, known: Sequence[ResourcePrefix]) -> list[ResourcePrefix]:
    result = []
    for name in request.resources:
        found = find_resources(name, known)
        if not found:
            raise ConfigurationError(
                f"unknown resource {display(name.encode('utf-8', 'surrogateescape'))!r}",
                hint=_suggestion(name, known, prefixes_count=request.prefixes_count),
            )
        choices = sorted({str(d.group_resource) for d in found})
        if len(choices) > 1:
            raise ConfigurationError(
                f"resource {name!r} is ambiguous", hint=f"name one of: {', '.join(choices)}"
            )
        result += found  # more than one where a stray CRD claims the name of a built-in type
    return result


def _suggestion(name: str, known: Sequence[ResourcePrefix], *, prefixes_count: bool) -> str:
    words: dict[str, str] = {}
    for directory in known:  # built-ins come first and keep their words
        for word in (directory.resource, directory.kind.lower(), str(directory.group_resource)):
            words.setdefault(word, str(directory.group_resource))
    words.pop("", None)
    exact = name.lower()
    close = [exact] if exact in words else difflib.get_close_matches(exact, words, n=3)
    if close:
        return "did you mean " + " or ".join(dict.fromkeys(words[word] for word in close)) + "?"
    keys = "any key prefix works too" if prefixes_count else "a whole key works too"
    return (
        "resources are lower-case plurals like secrets or deployments.apps; a custom resource counts when its "
        f"CustomResourceDefinition is in this etcd; {keys}: /registry/…"
    )


def _without_overlap(ranges: list[KeyRange]) -> list[KeyRange]:
    result: list[KeyRange] = []
    for candidate in sorted(ranges, key=lambda r: (r.prefix, r.exact)):
        if not any(other.covers(candidate) for other in result):
            result.append(candidate)
    return result
