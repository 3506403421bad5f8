"""The words of a command line: an etcd key as it is or as base64, TYPE/NAME, or a scope of many."""

from __future__ import annotations

import base64
from typing import Any, Final

import click
from click.core import ParameterSource

from etcdfix.cli.output import say
from etcdfix.model.errors import ConfigurationError
from etcdfix.model.rules import Rule, refuse
from etcdfix.model.scope import (
    ObjectWord,
    ScopeRequest,
    builtin_key,
    check_namespace,
    parse_object,
    split_words,
)
from etcdfix.model.storagekey import DEFAULT_PREFIX, StorageLayout, display, word_bytes
from etcdfix.text.safetext import key_word, quote_command, safe_text

_BASE64: Final = "base64:"
_COMPACTION_KEY: Final = "compact_rev_key"


def is_base64(word: str) -> bool:
    """Say whether a word is a key as ``scan -o name`` prints those that cannot be typed: ``base64:…``."""
    return word.startswith(_BASE64)


def is_key(word: str) -> bool:
    """Say whether a word names an etcd key, and not a resource or a cause."""
    return word.startswith("/") or is_base64(word) or word == _COMPACTION_KEY


def named_key(word: str) -> bytes:
    """Return the key that a word names, as it is or as ``base64:…``."""
    if not is_base64(word):
        return word_bytes(word)
    try:
        key = base64.b64decode(word.removeprefix(_BASE64), validate=True)
    except ValueError as exc:  # binascii.Error, or characters outside ASCII
        raise ConfigurationError(f"{_BASE64}…: not base64 ({exc})") from exc
    if not key:
        raise ConfigurationError(f"{_BASE64}…: names no key")
    return key


def wanted_namespace(options: dict[str, Any], *, key: bool = False) -> str | None:
    """Return the one namespace that was named for objects, or None."""
    everywhere: bool = options["all_namespaces"]
    namespaces: tuple[str, ...] = options["namespaces"]
    source = click.get_current_context().get_parameter_source(
        "namespaces"
    )  # a variable says it of other commands too
    if key and (everywhere or source is ParameterSource.COMMANDLINE):
        raise ConfigurationError(
            "-n and -A go with a RESOURCE or TYPE/NAME: a KEY names its namespace itself",
            hint="leave them out",
        )
    if key or everywhere or not namespaces:
        return None
    if len(namespaces) > 1:
        raise ConfigurationError(
            f"-n was given {len(namespaces)} times, and this command takes one namespace"
        )
    check_namespace(namespaces[0])
    return namespaces[0]


def wanted_object(word: str, options: dict[str, Any]) -> bytes | ObjectWord:
    """Return what a command of one object was given, KEY or TYPE/NAME."""
    namespace = wanted_namespace(options, key=is_key(word))
    return named_key(word) if is_key(word) else parse_object(word, namespace or "")


def wanted_scope(options: dict[str, Any]) -> ScopeRequest:
    """Return what a command was given that looks at many; a word may be a key, as ``base64:…``."""
    scope, namespaces = options["scope"], () if options["all_namespaces"] else options["namespaces"]
    source = click.get_current_context().get_parameter_source("namespaces")
    if namespaces and source is ParameterSource.ENVIRONMENT:
        say(
            f"only what is in namespace {', '.join(namespaces)} is looked at (ETCDFIX_NAMESPACE); -A looks at all"
        )
    keys = tuple(named_key(word) for word in scope if is_base64(word))
    words: list[str] = []
    for word in scope:
        if not is_base64(word):
            words += [word] if word.startswith("/") else split_words(word)
    return ScopeRequest(tuple(words), keys, namespaces)


def one_key(key: str, options: dict[str, Any]) -> bytes:
    """Return the key that a change was given, as it is or as ``base64:…``.

    Args:
        key: The word of the command line; TYPE/NAME is refused with the key to type, for a change takes nothing else.
        options: What click collected, the storage prefix among it.

    Raises:
        RefusedByRule: It is no complete key.
    """
    whole = "name exactly one key, in full"
    if key in {"", _BASE64}:
        raise refuse(Rule.NOT_ONE_KEY, "the key is empty", hint=whole)
    named = named_key(key)
    if is_base64(key):
        return named
    if not named.startswith(b"/"):
        what, hint = "is not a key: keys start with /", _key_to_type(key, options) or whole
    elif any(character in key for character in "*?[") or key.endswith("/"):
        what, hint = "is a prefix or a pattern, not a key", f"{whole}; base64:… for a key that looks like one"
    else:
        return named
    raise refuse(Rule.NOT_ONE_KEY, f"{safe_text(display(named))} {what}", hint=hint)


def _key_to_type(word: str, options: dict[str, Any]) -> str:
    try:
        named = parse_object(word, "")
    except ConfigurationError:
        return ""
    try:
        key = builtin_key(named, StorageLayout(options["etcd_prefix"] or DEFAULT_PREFIX))
    except ConfigurationError:
        explain = quote_command(["etcdfix", "explain", str(named), "-n", "NAMESPACE"])
        return f"a change takes the etcd key alone; {explain} says it"
    return f"a change takes the etcd key alone: {quote_command([key_word(key)])}"
