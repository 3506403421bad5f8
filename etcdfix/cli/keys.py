"""How a command line names one object: by its etcd key, as it is, as base64, as lists print it; or as TYPE/NAME."""

from __future__ import annotations

import base64
from typing import Any, Final

import click
from click.core import ParameterSource

from etcdfix.cli.options import Decorator, option_group
from etcdfix.errors import ConfigurationError
from etcdfix.scope import ObjectWord, check_namespace, parse_object
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
