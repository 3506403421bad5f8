"""How a command line names what is in scope: resources, key prefixes, keys, namespaces."""

from __future__ import annotations

from typing import Any

import click
from click.core import ParameterSource

from etcdfix.cli.keys import all_namespaces_option, is_base64, named_key
from etcdfix.cli.options import option_group
from etcdfix.cli.output import say
from etcdfix.scope import ScopeRequest, split_words

scope_options = option_group(
    click.argument("scope", nargs=-1, metavar="[RESOURCE|TYPE/NAME|KEY-PREFIX]..."),
    click.option(
        "-n", "--namespace", "namespaces", multiple=True, metavar="NAMESPACE", envvar="ETCDFIX_NAMESPACE",
        help="Only this namespace (may be repeated).",
    ),
    all_namespaces_option("Every namespace, as without -n; whatever ETCDFIX_NAMESPACE says."),
)  # fmt: skip
"""Nothing named is everything."""


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
