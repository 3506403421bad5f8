"""An EncryptionConfiguration as a file: what etcdfix writes of one, encryption keys included.

Whoever writes such a file marks it (:mod:`etcdfix.encryption.config`). Every string is quoted and in ASCII, so
that no reader of YAML takes it for anything else.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Sequence

from etcdfix.encryption.config import (
    MADE_BY_RECOVER,
    EncryptionConfiguration,
    IdentityProvider,
    KMSProvider,
    Provider,
    ResourceRule,
    mark_of,
)
from etcdfix.text.safetext import safe_text


def configuration_file(rules: Iterable[ResourceRule], *, made_by: str, comment: Sequence[str]) -> bytes:
    """Return a marked file, encryption keys included."""
    mark = mark_of(made_by)
    lines = [
        *(f"# {_comment(line)}" for line in comment),
        "# It holds encryption keys: keep it as secret as the files that they come from.",
        f"# {mark}: etcdfix writes nothing by it. Before API servers get it, look at what comes",
        "# first for each resource; then remove these lines and the first element of resources, which mark it.",
        "apiVersion: apiserver.config.k8s.io/v1",
        "kind: EncryptionConfiguration",
        "resources:",
        "- resources:",
        f"  - {_text(mark)}",
        "  providers:",
        "  - identity: {}",
    ]
    for rule in rules:
        lines += ["- resources:", *(f"  - {_text(name)}" for name in rule.resources), "  providers:"]
        lines += (line for provider in rule.providers for line in _provider_lines(provider))
    return ("\n".join(lines) + "\n").encode()


def _provider_lines(provider: Provider) -> Iterator[str]:
    if isinstance(provider, IdentityProvider):
        yield "  - identity: {}"
    elif isinstance(provider, KMSProvider):
        yield "  - kms:"
        yield f"      apiVersion: {provider.api_version}"
        yield f"      name: {_text(provider.name)}"
        yield f"      endpoint: {_text(provider.endpoint)}"
        if provider.cache_size is not None:
            yield f"      cachesize: {provider.cache_size}"
        yield f"      timeout: {round(provider.timeout_seconds * 1e9)}ns"
    else:
        yield f"  - {provider.type}:"
        yield "      keys:"
        for key in provider.keys:
            yield f"      - name: {_text(key.name)}"
            yield f"        secret: {base64.b64encode(key.material.expose()).decode()}"


def _text(value: str) -> str:
    """Return a string of YAML that no reader takes for anything else, in ASCII."""
    return '"' + "".join(map(_escaped, value)) + '"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    if " " <= character <= "~":
        return character
    return f"\\u{ord(character):04x}" if ord(character) < 1 << 16 else f"\\U{ord(character):08x}"


def _comment(text: str) -> str:
    return safe_text(text).encode("ascii", "backslashreplace").decode()


def recovered_file(configuration: EncryptionConfiguration, sha256: str) -> bytes:
    """Return a configuration as a file that is for reading, encryption keys included.

    It says nothing of where it was found, so that the same configuration always makes the same file.
    """
    comment = [
        f"Made by etcdfix encryption {MADE_BY_RECOVER}, of a file that a server of k3s or RKE2 kept in the datastore:",
        f"  {sha256}",
        "Which one the servers run with today, the annotation encryption-config-hash of their Nodes tells.",
    ]
    return configuration_file(configuration.rules, made_by=MADE_BY_RECOVER, comment=comment)
