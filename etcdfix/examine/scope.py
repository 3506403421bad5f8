"""What is in the scope that a person named: etcd keys, and the values of a source."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from etcdfix.examine.all import WitnessPages
from etcdfix.examine.one import Examiner, Reading
from etcdfix.examine.readers import Plugins
from etcdfix.model.errors import ConfigurationError, ObjectNotFound, SourceError
from etcdfix.model.model import StoredValue
from etcdfix.model.scope import (
    InRanges,
    KeyRange,
    KeysBelow,
    ObjectWord,
    ResolvedScope,
    ScopeRequest,
    find_objects,
    not_found,
    resolve_scope,
)
from etcdfix.model.storagekey import ResourcePrefix, StorageCodec, StorageLayout, display
from etcdfix.sources.base import Source, has_keys
from etcdfix.sources.errors import SourceDenied
from etcdfix.sources.pages import Page, ValuesPage, paged, values_of
from etcdfix.text.safetext import key_word, quote_command

_MOST_CHOICES: Final = 5
_MOST_SEARCHED_FOR: Final = 20


def resolved(scope: ScopeRequest, examiner: Examiner, source: Source) -> ResolvedScope:
    """Return what a scope comes to in the cluster that an examiner knows.

    Raises:
        ConfigurationError: The scope names something that does not exist.
        ObjectNotFound: An object is in no namespace.
        SourceError: The source cannot be read.
    """
    return resolved_among(scope, examiner, examiner.readers.custom_directories(), [source])


def resolved_among(
    scope: ScopeRequest, examiner: Examiner, custom: Iterable[ResourcePrefix], sources: Sequence[Source]
) -> ResolvedScope:
    """Return what a scope comes to where several sources have objects: see :func:`resolved`."""
    with contextlib.ExitStack() as stack:
        for source in sources:
            stack.enter_context(source.aside())
        try:
            return resolve_scope(scope, examiner.layout, custom, keys_in(*sources))
        except ObjectNotFound as exc:
            raise unless_unseen(exc, *sources) from exc


def key_of(source: Source, reading: Reading, word: ObjectWord, plugins: Plugins | None) -> bytes:
    """Return the etcd key of the one object that ``TYPE/NAME`` names; with a namespace it may be gone.

    Raises:
        ConfigurationError: It names several objects, or its resource does not exist.
        ObjectNotFound: No namespace was given, and none has the object.
        SourceError: The source cannot be read.
    """
    with source.aside():
        examiner = Examiner.of_cluster(source, reading, plugins)
        known = [*examiner.layout.directories(), *examiner.readers.custom_directories()]
        keys = find_objects(word, reading.layout, known, keys_in(source))
        if word.namespace and len(keys) > 1:  # a stray definition claims the resource as well
            keys = [key for key in keys if source.get(key) is not None] or keys[:1]
    if not keys:
        raise unless_unseen(not_found(word), source)
    if len(keys) > 1:
        shown = [quote_command([key_word(key)]) for key in keys[:_MOST_CHOICES]]
        more = "" if len(keys) <= _MOST_CHOICES else f" or {len(keys) - _MOST_CHOICES} more"
        raise ConfigurationError(
            f"{word} names {len(keys)} objects", hint=f"-n NAMESPACE, or name one: {', '.join(shown)}{more}"
        )
    return keys[0]


def keys_in(*sources: Source) -> KeysBelow:
    """Return what lists the keys of some sources."""
    return lambda prefix: dict.fromkeys(stored.key for source in sources for stored in source.current(prefix))


def unless_unseen(error: ObjectNotFound, *sources: Source) -> ObjectNotFound:
    """Return the error, which says so where not everything could be read: what was not seen may be there."""
    problems = [problem for source in sources for problem in source.problems]
    if not problems:
        return error
    return ObjectNotFound(
        f"{error.message}, and not everything could be read: {problems[0]}",
        hint="-n NAMESPACE names it without a search",
    )


def values_in(source: Source, ranges: Sequence[KeyRange], denied: list[bytes]) -> Iterator[StoredValue]:
    """Yield what :func:`pages_in` does, value by value."""
    return values_of(pages_in(source, ranges, denied))


def pages_in(source: Source, ranges: Sequence[KeyRange], denied: list[bytes]) -> Iterator[Page]:
    """Yield what is in scope; a single key that may not be read is noted, and does not hide what is below it."""
    for wanted in ranges:
        if wanted.exact:
            try:
                stored = source.get(wanted.prefix)
            except SourceDenied:
                denied.append(wanted.prefix)
                continue
            if stored is not None:
                yield ValuesPage([stored])
        else:
            yield from source.pages(wanted.prefix)


def searched_for(ranges: Sequence[KeyRange]) -> frozenset[bytes]:
    """Return the single keys in scope that are searched for damage in any case, as ``explain`` does with one."""
    exact = [wanted.prefix for wanted in ranges if wanted.exact]
    return frozenset(exact) if len(exact) <= _MOST_SEARCHED_FOR else frozenset()


def beside(source: Source, layout: StorageLayout, ranges: Sequence[KeyRange]) -> WitnessPages | None:
    """Return what is not in scope, of the resources that are in part: what it opens decides about what is in scope.

    What cannot be read of it is left out.
    """
    shared: dict[bytes, None] = {}
    for wanted in ranges:
        directory, start = layout.locate(wanted.prefix)
        if directory.codec is not StorageCodec.NOT_AN_OBJECT and start != wanted.prefix:
            shared[start] = None
    if not shared:
        return None

    scope = InRanges(ranges)

    def values() -> Iterator[StoredValue]:
        for start in shared:
            with source.aside(), contextlib.suppress(SourceError):
                for stored in source.current(start):
                    if stored.key not in scope:
                        yield stored

    return WitnessPages(paged(values()), lambda key: key not in scope)


def why_missing(source: Source, layout: StorageLayout, key: bytes | None) -> str:
    """Return what to try where nothing is stored, under a key that was named; "" where nothing suggests itself.

    Raises:
        SourceError: The source cannot be read.
    """
    below = next(iter(source.current(key.rstrip(b"/") + b"/")), None) if key is not None else None
    if below is not None:
        return f"it is a prefix of keys like {display(below.key)}; name one of them"
    if not has_keys(source, layout):
        return (
            f"no key at all starts with {layout.prefix}: check --etcd-prefix, and that this is the right etcd"
        )
    return ""
