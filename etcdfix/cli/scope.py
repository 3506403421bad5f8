"""How a command line names what is in scope: resources, key prefixes, keys, namespaces."""

from __future__ import annotations

import click

from etcdfix.cli.completing import resources
from etcdfix.cli.keys import decoded_key, is_base64
from etcdfix.cli.options import option_group
from etcdfix.scope import ScopeRequest

scope_options = option_group(
    click.argument("scope", nargs=-1, metavar="[RESOURCE|KEY-PREFIX]...", shell_complete=resources),
    click.option(
        "-n", "--namespace", "namespaces", multiple=True, metavar="NAMESPACE", envvar="ETCDFIX_NAMESPACE",
        help="Only this namespace (may be repeated).",
    ),
    click.option(
        "--key-base64", "keys", multiple=True, metavar="BASE64",
        help="One etcd key, for keys that cannot be typed (may be repeated).",
    ),
)  # fmt: skip
"""Nothing named is everything."""


def wanted_scope(scope: tuple[str, ...], namespaces: tuple[str, ...], keys: tuple[str, ...]) -> ScopeRequest:
    """Return what :data:`scope_options` collected as one request; a word may be a key, as ``base64:…``.

    Raises:
        ConfigurationError: What should be base64 is not.
    """
    words = tuple(word for word in scope if not is_base64(word))
    whole = [word for word in scope if is_base64(word)]
    return ScopeRequest(words, tuple(decoded_key(text) for text in (*keys, *whole)), namespaces)
