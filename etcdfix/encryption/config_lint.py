"""What is wrong with an EncryptionConfiguration, and what people come to regret about one.

An ``error`` is what API servers refuse, by the rules of :mod:`etcdfix.encryption.config_rules`. A ``warning`` is a file
that they take and that does not protect, or does not read, what it seems to. The rest is ``advice``.

Source of the advice: kubernetes.io, "Encrypting Confidential Data at Rest" (which provider has which weakness, identity
first and last, keys that are published there as examples).
"""

from __future__ import annotations

import stat
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from itertools import pairwise
from typing import Final, NamedTuple

import msgspec

from etcdfix.encryption.config import find_mark, is_mark, place_of
from etcdfix.encryption.config_file import REFUSED, Key, Path, Rule
from etcdfix.encryption.config_rules import (
    EVERYTHING,
    given_members,
    key_bytes,
    narrowest_first,
    parse_group_resource,
    problems_of,
    rule_name,
)
from etcdfix.encryption.envelope import transformer_name
from etcdfix.encryption.keyring import fingerprint, may_hold_key, shown
from etcdfix.golang.goquote import withheld
from etcdfix.golang.goyaml import line_of
from etcdfix.model.model import GroupResource
from etcdfix.model.providers import facts_about


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
    "repeated-key": "Make a new key for a rotation, or remove one of the two.",
    "file-mode": "Run chmod 600 as the user that runs the API server.",
    "made-for-reading": "Check which provider comes first for each resource, then remove the mark.",
    "identity-missing": "Scan with this file first, to see that no value is stored unencrypted any more.",
    "narrower-rule": "Add these providers to this rule, if values were ever written with them.",
    "short-key": "Use 32 bytes at the next rotation.",
    "aescbc": "Use KMS v2, or secretbox where you have no KMS.",
    "aesgcm": "Plan regular rotations, or use KMS v2, which has a new data key for every value.",
    "secretbox": "Use KMS v2 where that matters.",
}
_ADVICE: Final = tuple(_NEXT)[tuple(_NEXT).index("identity-missing") :]


class LintFinding(msgspec.Struct, frozen=True):
    """One finding.

    Attributes:
        check: What was found, one word that does not change.
        line: Where in the file, from 1; 0 where it is about the file as a whole.
        place: The same as a path: ``resources[0].providers[1]``; "" for the whole file.
    """

    check: str
    level: LintLevel
    line: int
    place: str
    message: str
    next_step: str


class _Found(NamedTuple):
    check: str
    path: Path
    message: str
    advice: bool = False


class _GivenKey(NamedTuple):
    path: Path
    rule: int
    kind: str
    name: str
    material: bytes

    @property
    def transformer(self) -> str:
        return _transformer(self.kind, self.name, "v1")


def _transformer(kind: str, name: str, version: str = "") -> str:
    """Return what reports call a key; without its name where somebody may have typed a key into it."""
    return transformer_name(kind, version, withheld(name) if may_hold_key(name) else name)


def lint(raw: bytes, rules: Sequence[Rule], *, mode: int | None = None) -> list[LintFinding]:
    """Say what is wrong with a configuration, the worst first."""
    found = []
    for problem in problems_of(rules):
        line, place = line_of(raw, problem.path), place_of(problem.path)
        told, level = f"the file {problem.trouble}", LintLevel.WARNING
        if problem.kind == REFUSED:
            told, level = f"API servers refuse this: {problem.trouble}", LintLevel.ERROR
        elif problem.kind == "empty-entry":
            level = LintLevel.ADVICE
        found.append(LintFinding(problem.kind, level, line, place, told, problem.hint))
    for check, path, message, advice in _advice(raw, rules, mode):
        level = LintLevel.ADVICE if advice or check in _ADVICE else LintLevel.WARNING
        line = line_of(raw, path) if path else 0
        found.append(LintFinding(check, level, line, place_of(path), message, _NEXT[check]))
    levels = list(LintLevel)
    return sorted(found, key=lambda one: (levels.index(one.level), one.line))


def _advice(raw: bytes, rules: Sequence[Rule], mode: int | None) -> Iterator[_Found]:
    entries = [entry or "" for rule in rules for entry in rule.resources or ()]
    made_by = find_mark(raw, entries)
    if made_by:
        yield _Found("made-for-reading", (), f"etcdfix encryption {made_by} made this file for reading")
    if mode is not None and mode & (stat.S_IRWXG | stat.S_IRWXO):
        told = f"other users can open the file (mode {stat.S_IMODE(mode):04o}), which holds the keys"
        yield _Found("file-mode", (), told)
    yield from _coverage({parse_group_resource(entry) for entry in entries})
    yield from _entries(rules)
    keys = [*_given_keys(rules)]
    for key in keys:
        yield from _one_key(key)
    yield from _several_keys(keys)
    for index, rule in enumerate(rules):
        if not any(is_mark(entry or "") for entry in rule.resources or ()):
            yield from _providers(("resources", index), rule)


def _coverage(named: set[GroupResource]) -> Iterator[_Found]:
    for resource in ("secrets", "configmaps"):
        if named.isdisjoint(narrowest_first(GroupResource("", resource))):
            told = f"{resource} are in no rule, so they are stored unencrypted"
            yield _Found("not-covered", ("resources",), told, advice=resource != "secrets")
    custom = any("." in name.group and not name.group.endswith(".k8s.io") for name in named)
    if EVERYTHING not in named and not custom:
        told = "no custom resource is in a rule, but some operators keep credentials in theirs"
        yield _Found("not-covered", ("resources",), told, advice=True)


def _entries(rules: Sequence[Rule]) -> Iterator[_Found]:
    """Yield entries that take a resource from a wildcard whose keys are then not tried."""
    places = [
        (("resources", index, "resources", position), parse_group_resource(entry), rule)
        for index, rule in enumerate(rules)
        for position, entry in enumerate(rule.resources or ())
        if entry and not is_mark(entry)
    ]
    wildcards = {name: _reads(rule) for _, name, rule in places if name.resource == "*"}
    for path, name, rule in places:
        _, *broader = narrowest_first(name)
        wider = next((at for at in broader if at in wildcards and at != name), None)
        missing = wildcards[wider] - _reads(rule) if wider is not None else set()
        if wider is not None and missing:
            keys = ", ".join(sorted(_transformer(kind, key) for kind, key in missing))
            entry, wildcard = shown(rule_name(name), quote=""), shown(rule_name(wider), quote="")
            told = f"{entry} has a rule of its own, so the rule of {wildcard} does not count for it"
            yield _Found("narrower-rule", path, f"{told}: values written under {keys} are not read")


def _reads(rule: Rule) -> set[tuple[str, str]]:
    found = set()
    for provider in rule.providers or ():
        for member in given_members(provider)[:1]:
            value = getattr(provider, member)
            keys = getattr(value, "keys", None)
            names = [key.name for key in keys] if keys is not None else [getattr(value, "name", "")]
            found |= {(member, name or "") for name in names}
    return found


def _given_keys(rules: Sequence[Rule]) -> Iterator[_GivenKey]:
    for index, rule in enumerate(rules):
        for position, provider in enumerate(rule.providers or ()):
            for member in given_members(provider):
                keys: Iterable[Key] = getattr(getattr(provider, member), "keys", None) or ()
                for at, key in enumerate(keys):
                    material = key_bytes(key.secret or "")
                    if material and key.name:
                        path = ("resources", index, "providers", position, member, "keys", at)
                        yield _GivenKey(path, index, member, key.name, material)


def _one_key(key: _GivenKey) -> Iterator[_Found]:
    path, of = (*key.path, "secret"), f"the key of {key.transformer}"
    weakness = _weakness(key.material)
    if fingerprint(key.material) in _EXAMPLES:
        told = f"{of} is an example from documentation: anybody can open what it wrote"
        yield _Found("example-key", path, told)
    elif weakness:
        yield _Found("weak-key", path, f"{of} {weakness}, so it can be guessed")
    elif len(key.material) < 32:
        yield _Found("short-key", path, f"{of} has {8 * len(key.material)} bits; Kubernetes recommends 256")


def _weakness(material: bytes) -> str:
    """Say what is not random about a key, "" where nothing is; a random one looks so once in some million."""
    steps = {(after - before) % 256 for before, after in pairwise(material)}
    half = len(material) // 2
    if len(steps) == 1:
        return "is a run of evenly spaced bytes"
    if len(material) > 1 and material[:half] * 2 == material:
        return "is one half twice"
    if all(0x20 <= byte < 0x7F for byte in material):
        return "is text"
    return "has few different bytes" if 2 * len(set(material)) <= len(material) else ""


def _several_keys(keys: Sequence[_GivenKey]) -> Iterator[_Found]:
    by_bytes: dict[str, _GivenKey] = {}
    by_name: dict[tuple[str, str], _GivenKey] = {}
    for key in keys:
        mark = fingerprint(key.material)
        first = by_bytes.setdefault(mark, key)
        if first.transformer != key.transformer:
            told = (
                f"{key.transformer} has the same bytes as {first.transformer}, so a rotation changes nothing"
            )
            yield _Found("repeated-key", (*key.path, "secret"), told)
        elif first is not key and first.rule == key.rule:
            yield _Found("repeated-key", key.path, f"{key.transformer} stands here twice", advice=True)
        named = by_name.setdefault((key.kind, key.name), key)
        if fingerprint(named.material) != mark:
            elsewhere = named.rule != key.rule
            noise = (
                f" {key.kind} opens some values with the wrong one, to noise."
                if not facts_about(key.kind, "v1").authenticated
                else ""
            )
            what = "In another rule that is another key." if elsewhere else f"Both are tried.{noise}"
            told = f"{key.transformer} stands here with other bytes than before. {what}"
            yield _Found("same-name-other-bytes", (*key.path, "name"), told, advice=elsewhere)


def _providers(path: Path, rule: Rule) -> Iterator[_Found]:
    members = [given_members(provider) for provider in rule.providers or ()]
    providers = [(index, found[0]) for index, found in enumerate(members) if len(found) == 1]
    if not providers:
        return
    names = ", ".join(shown(entry or "", quote="") for entry in (rule.resources or ())[:5])
    first, writer = providers[0]
    place = (*path, "providers", first)
    if writer == "identity":
        told = f"identity comes first for {names}, so new values are stored unencrypted"
        yield _Found("identity-first", place, told)
    elif all(member != "identity" for _, member in providers):
        told = f"identity is not listed for {names}, so values that are stored unencrypted cannot be read"
        yield _Found("identity-missing", (*path, "providers"), told)
    weaknesses = {
        "aescbc": "It has no authentication, and Kubernetes advises against it",
        "aesgcm": "Its nonces are random, so a key must be rotated every 200,000 writes",
        "secretbox": "It does not bind a value to its key: who can write etcd can swap values",
    }
    if writer in weaknesses:
        keys = getattr((rule.providers or ())[first], writer).keys or ()
        alone = "; no older key shows a rotation" if writer == "aesgcm" and len(keys) < 2 else ""
        yield _Found(writer, place, f"{writer} writes {names}. {weaknesses[writer]}{alone}")
