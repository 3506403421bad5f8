"""What is wrong with an EncryptionConfiguration, and what people come to regret about one.

An ``error`` is what API servers refuse, by the rules of :mod:`etcdfix.encryption.config_rules`. A ``warning`` is a file
that they take and that does not protect, or does not read, what it seems to. The rest is ``advice``.

Source of the advice: kubernetes.io, "Encrypting Confidential Data at Rest" (which provider has which weakness, identity
first and last, keys that are published there as examples).
"""

from __future__ import annotations

import stat
from collections.abc import Iterator, Sequence
from enum import StrEnum
from itertools import pairwise
from typing import Final, NamedTuple

from etcdfix.encryption.config import find_mark
from etcdfix.encryption.config_file import REFUSED, Decoded, Path
from etcdfix.encryption.config_model import (
    EVERYTHING,
    IdentityProvider,
    KeyedProvider,
    KMSProvider,
    NamedKey,
    ResourceRule,
    narrowest_first,
    parse_group_resource,
    rule_name,
)
from etcdfix.encryption.envelope import transformer_name
from etcdfix.encryption.keyring import fingerprint, may_hold_key, shown
from etcdfix.golang.goquote import withheld
from etcdfix.model.model import GroupResource
from etcdfix.model.providers import ProviderType, facts_about


class LintLevel(StrEnum):
    """How bad it is, the worst first."""

    ERROR = "error"
    WARNING = "warning"
    ADVICE = "advice"


_EXAMPLES: Final = frozenset(
    map(
        fingerprint,
        (
            b"secret is secure",
            b"this is password",
            b"abcdefghijklmnopqrstuvwxyz123456",
            bytes(range(16)),
            bytes(range(32)),
        ),
    )
)
"""Keys that stand in documentation and tutorials."""

_NEW_KEY: Final = "Rotate to a new random key of 32 bytes. Keep this key until no value needs it."
_NEXT: Final = {
    "example-key": _NEW_KEY,
    "weak-key": _NEW_KEY,
    "identity-first": "Put the provider that must write first, unless you are decrypting values on purpose.",
    "not-covered": "Name it in a rule, if it holds anything secret.",
    "same-name-other-bytes": "Give every key a name that was never used.",
    "repeated-key": "Keep both while values need both names: encryption usage shows which. A rotation needs a new key.",
    "file-mode": "Run chmod 600 as the user that runs the API server.",
    "made-by-etcdfix": "Check the write keys, then deploy the file unchanged.",
    "identity-missing": "Scan with this file first, to see that no value is stored unencrypted any more.",
    "narrower-rule": "Add these providers to this rule, if values were ever written with them.",
    "short-key": "Use 32 bytes at the next rotation.",
    "aescbc": "Use KMS v2, or secretbox where you have no KMS.",
    "aesgcm": "Plan regular rotations, or use KMS v2, which has a new data key for every value.",
    "secretbox": "Use KMS v2 where that matters.",
}
_ADVICE: Final = tuple(_NEXT)[tuple(_NEXT).index("identity-missing") :]


class LintFinding(NamedTuple):
    """One finding: ``check`` is a word that does not change, and ``path`` is empty for the file as a whole."""

    check: str
    path: Path
    message: str
    next_step: str
    level: LintLevel


def _found(check: str, path: Path, message: str, *, advice: bool = False) -> LintFinding:
    level = LintLevel.ADVICE if advice or check in _ADVICE else LintLevel.WARNING
    return LintFinding(check, path, message, _NEXT[check], level)


class _GivenKey(NamedTuple):
    path: Path
    rule: int
    kind: ProviderType
    key: NamedKey

    @property
    def transformer(self) -> str:
        return _transformer(self.kind, self.key.name, "v1")


def _transformer(kind: str, name: str, version: str = "") -> str:
    """Return what reports call a key; without its name where somebody may have typed a key into it."""
    return transformer_name(kind, version, withheld(name) if may_hold_key(name) else name)


def lint(raw: bytes, decoded: Decoded, *, mode: int | None = None) -> Iterator[LintFinding]:
    """Say what is wrong with a configuration."""
    for problem in decoded.problems:
        level, told = LintLevel.WARNING, f"the file {problem.trouble}"
        if problem.kind == REFUSED:
            level, told = LintLevel.ERROR, f"API servers refuse this: {problem.trouble}"
        elif problem.kind == "empty-entry":
            level = LintLevel.ADVICE
        yield LintFinding(problem.kind, problem.path, told, problem.hint, level)
    yield from _advice(raw, decoded.rules, mode)


def _advice(raw: bytes, rules: Sequence[ResourceRule], mode: int | None) -> Iterator[LintFinding]:
    made_by = find_mark(raw)
    if made_by:
        yield _found("made-by-etcdfix", (), f"etcdfix encryption {made_by} made this file", advice=True)
    if mode is not None and mode & (stat.S_IRWXG | stat.S_IRWXO):
        told = f"other users can open the file (mode {stat.S_IMODE(mode):04o}), which holds the keys"
        yield _found("file-mode", (), told)
    yield from _coverage({parse_group_resource(entry) for rule in rules for entry in rule.resources})
    yield from _entries(rules)
    keys = [
        _GivenKey(
            ("resources", index, "providers", position, provider.type.value, "keys", at),
            index, provider.type, key,
        )
        for index, rule in enumerate(rules)
        for position, provider in enumerate(rule.providers)
        if isinstance(provider, KeyedProvider)
        for at, key in enumerate(provider.keys)
        if key.name and key.material.size
    ]  # fmt: skip
    for given in keys:
        yield from _one_key(given)
    yield from _several_keys(keys)
    for index, rule in enumerate(rules):
        if rule.providers:
            yield from _providers(("resources", index, "providers"), rule)


def _coverage(named: set[GroupResource]) -> Iterator[LintFinding]:
    for resource in ("secrets", "configmaps"):
        if named.isdisjoint(narrowest_first(GroupResource("", resource))):
            told = f"{resource} are in no rule, so they are stored unencrypted"
            yield _found("not-covered", ("resources",), told, advice=resource != "secrets")
    custom = any("." in name.group and not name.group.endswith(".k8s.io") for name in named)
    if EVERYTHING not in named and not custom:
        told = "no custom resource is in a rule, but some operators keep credentials in theirs"
        yield _found("not-covered", ("resources",), told, advice=True)


def _entries(rules: Sequence[ResourceRule]) -> Iterator[LintFinding]:
    """Yield entries that take a resource from a wildcard whose keys are then not tried."""
    places = [
        (("resources", index, "resources", position), parse_group_resource(entry), _reads(rule))
        for index, rule in enumerate(rules)
        for position, entry in enumerate(rule.resources)
        if entry
    ]
    wildcards = {name: reads for _, name, reads in places if name.resource == "*"}
    for path, name, reads in places:
        _, *broader = narrowest_first(name)
        wider = next((at for at in broader if at in wildcards and at != name), None)
        missing = wildcards[wider] - reads if wider is not None else set()
        if wider is not None and missing:
            keys = ", ".join(sorted(_transformer(kind, key) for kind, key in missing))
            entry, wildcard = shown(rule_name(name), quote=""), shown(rule_name(wider), quote="")
            told = f"{entry} has a rule of its own, so the rule of {wildcard} does not count for it"
            yield _found("narrower-rule", path, f"{told}: values written under {keys} are not read")


def _reads(rule: ResourceRule) -> set[tuple[str, str]]:
    found = set()
    for provider in rule.providers:
        names = [provider.name] if isinstance(provider, KMSProvider) else [""]
        if isinstance(provider, KeyedProvider):
            names = [key.name for key in provider.keys]
        found |= {(provider.type.value, name) for name in names}
    return found


def _one_key(given: _GivenKey) -> Iterator[LintFinding]:
    path, of = (*given.path, "secret"), f"the key of {given.transformer}"
    material = given.key.material
    weakness = _weakness(material.expose())
    if material.fingerprint in _EXAMPLES:
        told = f"{of} is an example from documentation: anybody can open what it wrote"
        yield _found("example-key", path, told)
    elif weakness:
        yield _found("weak-key", path, f"{of} {weakness}, so it can be guessed")
    elif material.size < 32:
        yield _found("short-key", path, f"{of} has {8 * material.size} bits; Kubernetes recommends 256")


def _weakness(material: bytes) -> str:
    """Say what is not random about a key, "" where nothing is; a random one looks so once in some million."""
    steps = {(after - before) % 256 for before, after in pairwise(material)}
    if len(steps) == 1:
        return "is a run of evenly spaced bytes"
    if all(0x20 <= byte < 0x7F for byte in material):
        return "is text"
    return "has few different bytes" if 2 * len(set(material)) <= len(material) else ""


def _several_keys(keys: Sequence[_GivenKey]) -> Iterator[LintFinding]:
    by_bytes: dict[str, _GivenKey] = {}
    by_name: dict[tuple[str, str], _GivenKey] = {}
    for given in keys:
        mark = given.key.material.fingerprint
        first = by_bytes.setdefault(mark, given)
        if first.transformer != given.transformer:
            told = f"{given.transformer} has the same bytes as {first.transformer}, so a rotation changes nothing"
            yield _found("repeated-key", (*given.path, "secret"), told)
        elif first is not given and first.rule == given.rule:
            yield _found("repeated-key", given.path, f"{given.transformer} stands here twice", advice=True)
        named = by_name.setdefault((given.kind, given.key.name), given)
        if named.key.material.fingerprint != mark:
            elsewhere, noise = named.rule != given.rule, ""
            if not facts_about(given.kind, "v1").authenticated:
                noise = f" {given.kind} opens some values with the wrong one, to noise."
            what = "In another rule that is another key." if elsewhere else f"Both are tried.{noise}"
            told = f"{given.transformer} stands here with other bytes than before. {what}"
            yield _found("same-name-other-bytes", (*given.path, "name"), told, advice=elsewhere)


_WEAKNESSES: Final = {
    "aescbc": "It has no authentication, and Kubernetes advises against it",
    "aesgcm": "Its nonces are random, so a key must be rotated every 200,000 writes",
    "secretbox": "It does not bind a value to its key: anyone who can write to etcd can swap values",
}


def _providers(path: Path, rule: ResourceRule) -> Iterator[LintFinding]:
    names = ", ".join(shown(entry, quote="") for entry in rule.resources[:5])
    writer = rule.providers[0]
    place = (*path, 0)
    if isinstance(writer, IdentityProvider):
        told = f"identity comes first for {names}, so new values are stored unencrypted"
        yield _found("identity-first", place, told)
    elif not any(isinstance(provider, IdentityProvider) for provider in rule.providers):
        told = f"identity is not listed for {names}, so values that are stored unencrypted cannot be read"
        yield _found("identity-missing", path, told)
    if isinstance(writer, KeyedProvider) and writer.type in _WEAKNESSES:
        first_key = writer.type is ProviderType.AESGCM and len(writer.keys) < 2
        alone = "; no older key shows a rotation" if first_key else ""
        told = f"{writer.type} writes {names}. {_WEAKNESSES[writer.type]}{alone}"
        yield _found(writer.type.value, place, told)
