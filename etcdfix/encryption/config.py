"""EncryptionConfiguration files: read, checked, refused, marked, and written.

The same files are accepted and refused as by the API server; why one is refused is said in our words, with the line
where the file has it, and never with a key. What only a server of one version or one flag refuses is accepted and
noted in the configuration's warnings: a forensic tool reads data that older servers wrote.

A file that etcdfix writes can be given to API servers as it is. Nothing is changed by it before they write with it:
until then a comment marks it. Who takes the comment away has a file as everybody writes one, and what is sealed under
any file needs the same proof.

Source: kube-apiserver 1.36, ``k8s.io/apiserver/pkg/server/options/encryptionconfig/config.go``.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from etcdfix.encryption import config_file
from etcdfix.encryption.config_file import (
    REFUSED,
    STRICT,
    STRICT_SINCE,
    Decoded,
    Problem,
    decode,
    find_unfilled,
)
from etcdfix.encryption.config_model import (
    EncryptionConfiguration,
    IdentityProvider,
    KMSProvider,
    Provider,
    ResourceRule,
)
from etcdfix.encryption.config_rules import problems_of
from etcdfix.encryption.keyring import is_key_text, shown
from etcdfix.golang.goquote import go_quote, withheld
from etcdfix.golang.goyaml import line_of
from etcdfix.inputs.inputfile import read_input
from etcdfix.model.errors import ConfigurationError
from etcdfix.model.model import digest_of
from etcdfix.text.safetext import safe_text

MAX_FILE_BYTES = 4 << 20
"""An EncryptionConfiguration is a few kilobytes."""

_MAX_SAID = 10
NOT_DEPLOYED: Final = "not-deployed.etcdfix.io"
"""How a mark ends; it begins with the command that made the file."""

MADE_BY_RECOVER: Final = "recover"
"""The command that takes one out of the datastore of k3s or RKE2."""

_MARK: Final = re.compile(rb"([a-z]{1,32})\." + re.escape(NOT_DEPLOYED.encode()), re.IGNORECASE)


def load_configuration(path: Path, minor: int | None = None) -> EncryptionConfiguration:
    """Read, check and take apart the file of ``--encryption-provider-config``.

    Args:
        path: The file.
        minor: Release of the API servers, 30 for 1.30; None where nobody knows it.

    Raises:
        ConfigurationError: The file cannot be read, or the API server would refuse it.
    """
    return parse_configuration(read_configuration(path), path=str(path), minor=minor)


def read_configuration(path: Path) -> bytes:
    """Return the bytes of a configuration file.

    Raises:
        ConfigurationError: It cannot be read.
    """
    try:
        return read_input(path, most_bytes=MAX_FILE_BYTES)
    except OSError as error:
        hint = "Name a readable file: the one in the API server's flag --encryption-provider-config."
        problem = Problem((), f"it cannot be read: {(error.strerror or 'unknown error').lower()}", hint)
        name = withheld(str(path)) if is_key_text(str(path)) else go_quote(str(path))
        raise _refused(name, b"", [problem]) from error


def parse_configuration(raw: bytes, *, path: str, minor: int | None = None) -> EncryptionConfiguration:
    """Check and take apart the bytes of a configuration file; see :func:`load_configuration`.

    Raises:
        ConfigurationError: The API server would refuse the file.
    """
    rules, found = decode_rules(raw, path=path)
    strict = minor is not None and minor >= STRICT_SINCE
    problems = [one for one in found if one.kind == REFUSED or one.kind in STRICT]
    if any(strict or one.kind == REFUSED for one in problems):
        raise _refused(go_quote(path), raw, problems)
    made_by = find_mark(raw)
    until = "etcdfix makes no change with this file until API servers use it"
    made = [f"was made by etcdfix encryption {made_by}: {until}"] if made_by else []
    return EncryptionConfiguration(
        path=path,
        sha256=digest_of(raw),
        rules=tuple(rules),
        warnings=tuple(dict.fromkeys([*made, *(one.trouble for one in found)])),
        made_by=made_by,
    )


def decode_rules(raw: bytes, *, path: str) -> Decoded:
    """Return the rules of a configuration file as they stand there, and every problem with them.

    Raises:
        ConfigurationError: It cannot be decoded.
    """
    hint = "An API server without encryption has no such file; leave the option away."
    decoded = decode(raw) if raw else Problem((), "it is empty", hint)
    if isinstance(decoded, Problem):
        raise _refused(go_quote(path), raw, [find_unfilled(raw) or decoded])
    problems = [*decoded.problems, *problems_of(decoded.rules)]
    others = [one for one in problems if one.kind != REFUSED]
    unfilled = find_unfilled(raw) if len(others) < len(problems) else None
    return Decoded(decoded.rules, [unfilled, *others] if unfilled else problems)


def _refused(name: str, raw: bytes, problems: Sequence[Problem]) -> ConfigurationError:
    said = "; ".join(_said(problem, raw) for problem in problems[:_MAX_SAID])
    if len(problems) > _MAX_SAID:
        said += f"; and {len(problems) - _MAX_SAID} more"
    return ConfigurationError(f"encryption configuration {name}: {said}", hint=problems[0].hint)


def _said(problem: Problem, raw: bytes) -> str:
    if not problem.path:
        return problem.trouble
    line = line_of(raw, problem.path)
    return f"{f'line {line}, ' if line else ''}{place_of(problem.path)}: {problem.trouble}"


def place_of(path: config_file.Path) -> str:
    """Return where something stands in a file, as the API server writes it: ``resources[0].providers[1]``."""
    steps = (f"[{step}]" if isinstance(step, int) else f".{shown(step, quote='')}" for step in path)
    return "".join(steps).removeprefix(".")


def find_mark(raw: bytes) -> str:
    """Return the command that made a file that is marked, wherever the mark stands; "" for a file that is not."""
    found = _MARK.search(raw)
    return found[1].decode().lower() if found is not None else ""


def configuration_file(rules: Iterable[ResourceRule], *, made_by: str, comment: Sequence[str]) -> bytes:
    """Return a marked file, encryption keys included."""
    lines = [
        *(f"# {_comment(line)}" for line in comment),
        "# It holds encryption keys: keep it as secret as the files that they come from.",
        f"# {made_by}.{NOT_DEPLOYED}: API servers can be given this file as it is. Look first at what",
        "# comes first for each resource: that writes. etcdfix changes nothing by it before they write with it.",
        "apiVersion: apiserver.config.k8s.io/v1",
        "kind: EncryptionConfiguration",
        "resources:",
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
    """Return a configuration as a marked file, encryption keys included.

    It says nothing of where it was found, so that the same configuration always makes the same file.
    """
    comment = [
        f"Made by etcdfix encryption {MADE_BY_RECOVER}, of a file that a server of k3s or RKE2 kept in the datastore:",
        f"  {sha256}",
        "Which one the servers run with today, the annotation encryption-config-hash of their Nodes tells.",
    ]
    return configuration_file(configuration.rules, made_by=MADE_BY_RECOVER, comment=comment)
