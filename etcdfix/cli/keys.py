"""How a command line names what is meant: an etcd key, as it is or as base64, TYPE/NAME, or a scope of many."""

from __future__ import annotations

import base64
from typing import Any, Final

import click
from click.core import ParameterSource

from etcdfix.cli.options import Decorator, option_group
from etcdfix.cli.output import say
from etcdfix.errors import ConfigurationError
from etcdfix.scope import ObjectWord, ScopeRequest, check_namespace, parse_object, split_words
from etcdfix.storagekey import word_bytes

_BASE64: Final = "base64:"
_COMPACTION_KEY: Final = "compact_rev_key"


def all_namespaces_option(help_text: str) -> Decorator:
    """Return ``-A``, as kubectl has it."""
    return click.option("-A", "--all-namespaces", is_flag=True, help=help_text)


object_options = option_group(
    click.option(
        "-n", "--namespace", metavar="NAMESPACE", envvar="ETCDFIX_NAMESPACE",
        help="Namespace of TYPE/NAME.  [default: the only one that has an object of this name]",
    ),
    all_namespaces_option("Look for TYPE/NAME in every namespace, whatever ETCDFIX_NAMESPACE says."),
)  # fmt: skip
"""Of commands that look at one object."""

scope_options = option_group(
    click.argument("scope", nargs=-1, metavar="[RESOURCE|TYPE/NAME|KEY-PREFIX]..."),
    click.option(
        "-n", "--namespace", "namespaces", multiple=True, metavar="NAMESPACE", envvar="ETCDFIX_NAMESPACE",
        help="Only this namespace (may be repeated).",
    ),
    all_namespaces_option("Every namespace, as without -n; whatever ETCDFIX_NAMESPACE says."),
)  # fmt: skip
"""Nothing named is everything."""


def is_base64(word: str) -> bool:
    """Say whether a word is a key as ``scan -o name`` prints those that cannot be typed: ``base64:…``."""
    return word.startswith(_BASE64)


def named_key(word: str) -> bytes:
    """Return the key that a word names, as it is or as ``base64:…``.

    Raises:
        ConfigurationError: It says that it is base64, and is not, or is of nothing.
    """
    if not is_base64(word):
        return word_bytes(word)
    try:
        key = base64.b64decode(word.removeprefix(_BASE64), validate=True)
    except ValueError as exc:  # binascii.Error, or characters outside ASCII
        raise ConfigurationError(f"{_BASE64}…: not base64 ({exc})") from exc
    if not key:
        raise ConfigurationError(f"{_BASE64}…: names no key")
    return key


def wanted_object(word: str, options: dict[str, Any]) -> bytes | ObjectWord:
    """Return what a command of one object was given: its etcd key, or TYPE/NAME.

    Args:
        word: KEY, or TYPE/NAME.
        options: What click collected for :data:`object_options`, which are taken out.

    Raises:
        ConfigurationError: The word names nothing, or a namespace was given beside a key.
    """
    namespace: str | None = options.pop("namespace")
    everywhere: bool = options.pop("all_namespaces")
    if is_key(word):
        refuse_namespace_beside_key(everywhere=everywhere)
        return named_key(word)
    if namespace is not None and not everywhere:
        check_namespace(namespace)
    return parse_object(word, "" if everywhere else namespace or "")


def refuse_namespace_beside_key(*, everywhere: bool) -> None:
    """Refuse ``-n`` and ``-A`` where a key was named; a variable says it of other commands too.

    Raises:
        ConfigurationError: One of them was typed.
    """
    context = click.get_current_context()
    if everywhere or context.get_parameter_source("namespace") is ParameterSource.COMMANDLINE:
        raise ConfigurationError(
            "-n and -A go with a RESOURCE: a KEY names its namespace itself", hint="leave them out"
        )


def is_key(word: str) -> bool:
    """Say whether a word names an etcd key, and not a resource or a cause."""
    return word.startswith("/") or is_base64(word) or word == _COMPACTION_KEY


def wanted_scope(options: dict[str, Any]) -> ScopeRequest:
    """Return what :data:`scope_options` collected as one request; a word may be a key, as ``base64:…``.

    Raises:
        ConfigurationError: What should be base64 is not, or a word names nothing.
    """
    scope, namespaces = options["scope"], () if options["all_namespaces"] else options["namespaces"]
    source = click.get_current_context().get_parameter_source("namespaces")
    if namespaces and source is ParameterSource.ENVIRONMENT:
        say(
            f"only what is in namespace {', '.join(namespaces)} is looked at (ETCDFIX_NAMESPACE); -A looks at all"
        )
    whole = [word for word in scope if is_base64(word)]
    words = [
        part
        for word in scope
        if not is_base64(word)
        for part in ([word] if word.startswith("/") else split_words(word))
    ]
    return ScopeRequest(tuple(words), tuple(map(named_key, whole)), namespaces)
