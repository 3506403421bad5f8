"""What is wrong with an EncryptionConfiguration, and what people come to regret about one.

An ``error`` is what API servers refuse, by the rules of :mod:`etcdfix.encryption.config_rules`. A ``warning`` is a file
that they take and that does not protect, or does not read, what it seems to. The rest is ``advice``.

Source of the advice: kubernetes.io, "Encrypting Confidential Data at Rest" (which provider has which weakness, identity
first and last, keys that are published there as examples).
"""

from __future__ import annotations

import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import pairwise
from typing import Final, NamedTuple

import msgspec

from etcdfix.encryption.config import place_of
from etcdfix.encryption.config_file import Key, Path, Rule
from etcdfix.encryption.config_mark import find_mark, is_mark
from etcdfix.encryption.config_rules import (
    broken_rules,
    given_members,
    key_bytes,
    narrowest_first,
    odd_parts,
    parse_group_resource,
    rule_name,
)
from etcdfix.encryption.envelope import transformer_name
from etcdfix.encryption.key_text import may_hold_key, shown
from etcdfix.encryption.keyring import fingerprint
from etcdfix.golang.goquote import withheld
from etcdfix.golang.goyaml import line_of
from etcdfix.model import GroupResource


class LintLevel(StrEnum):
    """How bad it is, the worst first."""

    ERROR = "error"
    WARNING = "warning"
    ADVICE = "advice"


class LintCheck(StrEnum):
    """What was found, one word each that does not change."""

    REFUSED = "refused"
    EXAMPLE_KEY = "example-key"
    WEAK_KEY = "weak-key"
    IDENTITY_FIRST = "identity-first"
    NOT_COVERED = "not-covered"
    SAME_NAME_OTHER_BYTES = "same-name-other-bytes"
    REPEATED_KEY = "repeated-key"
    KMS_V1 = "kms-v1"
    KMS_NAME_TWICE = "kms-name-twice"
    FILE_MODE = "file-mode"
    MADE_FOR_READING = "made-for-reading"
    IDENTITY_MISSING = "identity-missing"
    NARROWER_RULE = "narrower-rule"
    SHORT_KEY = "short-key"
    AESCBC = "aescbc"
    AESGCM = "aesgcm"
    SECRETBOX = "secretbox"
    EMPTY_ENTRY = "empty-entry"


_SECRETS, _CONFIG_MAPS = GroupResource("", "secrets"), GroupResource("", "configmaps")
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
_NEXT: Final[Mapping[LintCheck, str]] = {
    LintCheck.EXAMPLE_KEY: _NEW_KEY,
    LintCheck.WEAK_KEY: _NEW_KEY,
    LintCheck.IDENTITY_FIRST: "Put the provider that must write first, unless you are decrypting values on purpose.",
    LintCheck.NOT_COVERED: "Name it in a rule, if it holds anything secret.",
    LintCheck.SAME_NAME_OTHER_BYTES: "Give every key a name that was never used.",
    LintCheck.REPEATED_KEY: "Make a new key for a rotation, or remove one of the two.",
    LintCheck.KMS_V1: "Move to KMS v2: add it in front, have every value written again, then remove this provider.",
    LintCheck.KMS_NAME_TWICE: "Keep the provider that your values need. Scan with each one alone to see which.",
    LintCheck.FILE_MODE: "Run chmod 600 as the user that runs the API server.",
    LintCheck.MADE_FOR_READING: "Check which provider comes first for each resource before you deploy it, then remove "
    "the mark.",
    LintCheck.IDENTITY_MISSING: "Scan with this file first, to see that no value is stored unencrypted any more.",
    LintCheck.NARROWER_RULE: "Add these providers to this rule, if values were ever written with them.",
    LintCheck.SHORT_KEY: "Use 32 bytes at the next rotation.",
    LintCheck.AESCBC: "Use KMS v2, or secretbox where you have no KMS.",
    LintCheck.AESGCM: "Plan regular rotations, or use KMS v2, which has a new data key for every value.",
    LintCheck.SECRETBOX: "Use KMS v2 where that matters.",
    LintCheck.EMPTY_ENTRY: "Remove it.",
}
_ADVICE: Final = tuple(_NEXT)[tuple(_NEXT).index(LintCheck.IDENTITY_MISSING) :]


class LintFinding(msgspec.Struct, frozen=True):
    """One finding.

    Attributes:
        line: Where in the file, from 1; 0 where it is about the file as a whole.
        place: The same as a path: ``resources[0].providers[1]``; "" for the whole file.
    """

    check: LintCheck
    level: LintLevel
    line: int
    place: str
    message: str
    next_step: str


class _Found(NamedTuple):
    check: LintCheck
    path: Path
    message: str
    advice: bool = False


class _GivenKey(msgspec.Struct, frozen=True):
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
    levels = list(LintLevel)
    found = [
        LintFinding(
            LintCheck.REFUSED,
            LintLevel.ERROR,
            line_of(raw, problem.path),
            place_of(problem.path),
            f"API servers refuse this: {problem.trouble}",
            problem.hint,
        )
        for problem in broken_rules(rules)
    ]
    for check, path, message, advice in _advice(raw, rules, mode):
        level = LintLevel.ADVICE if advice or check in _ADVICE else LintLevel.WARNING
        line = line_of(raw, path) if path else 0
        found.append(LintFinding(check, level, line, place_of(path), message, _NEXT[check]))
    return sorted(found, key=lambda one: (levels.index(one.level), one.line))


def _advice(raw: bytes, rules: Sequence[Rule], mode: int | None) -> Iterator[_Found]:
    entries = [entry or "" for rule in rules for entry in rule.resources or ()]
    made_by = find_mark(raw, entries)
    if made_by:
        yield _Found(
            LintCheck.MADE_FOR_READING, (), f"etcdfix encryption {made_by} made this file for reading"
        )
    if mode is not None and mode & (stat.S_IRWXG | stat.S_IRWXO):
        told = f"other users can open the file (mode {stat.S_IMODE(mode):04o}), which holds the keys"
        yield _Found(LintCheck.FILE_MODE, (), told)
    yield from _coverage(rules)
    yield from _entries(rules)
    keys = [*_given_keys(rules)]
    for key in keys:
        yield from _one_key(key)
    yield from _several_keys(keys)
    for index, rule in enumerate(rules):
        if any(is_mark(entry or "") for entry in rule.resources or ()):
            continue
        yield from _providers(("resources", index), rule)
    yield from (_Found(LintCheck(odd.kind), odd.path, f"the file {odd.trouble}") for odd in odd_parts(rules))


def _coverage(rules: Sequence[Rule]) -> Iterator[_Found]:
    named = {parse_group_resource(entry or "") for rule in rules for entry in rule.resources or ()}

    def covered(resource: GroupResource) -> bool:
        return any(name in named for name in narrowest_first(resource))

    path = ("resources",)
    if not covered(_SECRETS):
        yield _Found(LintCheck.NOT_COVERED, path, "secrets are in no rule, so they are stored unencrypted")
    if not covered(_CONFIG_MAPS):
        told = "configmaps are in no rule, so they are stored unencrypted"
        yield _Found(LintCheck.NOT_COVERED, path, told, advice=True)
    if GroupResource("*", "*") not in named and not any(
        "." in name.group and not name.group.endswith(".k8s.io") for name in named
    ):
        told = "no custom resource is in a rule, but some operators keep credentials in theirs"
        yield _Found(LintCheck.NOT_COVERED, path, told, advice=True)


def _entries(rules: Sequence[Rule]) -> Iterator[_Found]:
    wildcards: dict[GroupResource, set[tuple[str, str]]] = {}
    for rule in rules:
        for entry in rule.resources or ():
            name = parse_group_resource(entry or "")
            if name.resource == "*":
                wildcards[name] = _reads(rule)
    for index, rule in enumerate(rules):
        for position, entry in enumerate(rule.resources or ()):
            path = ("resources", index, "resources", position)
            if not entry or is_mark(entry):
                continue
            name = parse_group_resource(entry)
            _, *broader = narrowest_first(name)
            wider = next((at for at in broader if at in wildcards and at != name), None)
            missing = wildcards[wider] - _reads(rule) if wider is not None else set()
            if wider is not None and missing:
                entry_name, wider_name = shown(entry, quote=""), shown(rule_name(wider), quote="")
                keys = ", ".join(sorted(_transformer(kind, key) for kind, key in missing))
                told = (
                    f"{entry_name} has a rule of its own, so the rule of {wider_name} does not count for it: values "
                    f"written under {keys} are not read"
                )
                yield _Found(LintCheck.NARROWER_RULE, path, told)


def _reads(rule: Rule) -> set[tuple[str, str]]:
    found = set()
    for provider in rule.providers or ():
        for member in given_members(provider)[:1]:
            value = getattr(provider, member)
            if member == "kms":
                found.add((member, value.name or ""))
            elif member == "identity":
                found.add((member, ""))
            else:
                found |= {(member, key.name or "") for key in value.keys or ()}
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
    path = (*key.path, "secret")
    weakness = _weakness(key.material)
    if fingerprint(key.material) in _EXAMPLES:
        told = (
            f"the key of {key.transformer} is an example from documentation: anybody can open what it wrote"
        )
        yield _Found(LintCheck.EXAMPLE_KEY, path, told)
    elif weakness:
        yield _Found(
            LintCheck.WEAK_KEY, path, f"the key of {key.transformer} {weakness}, so it can be guessed"
        )
    elif len(key.material) < 32:
        told = f"the key of {key.transformer} has {8 * len(key.material)} bits; Kubernetes recommends 256"
        yield _Found(LintCheck.SHORT_KEY, path, told)


def _weakness(material: bytes) -> str:
    """Say what is not random about a key, "" where nothing is; a random one looks so once in some million."""
    steps = {(after - before) % 256 for before, after in pairwise(material)}
    half = len(material) // 2
    if set(material) == {0}:
        return "is all zero"
    if len(steps) == 1:
        return "is a run of evenly spaced bytes"
    if len(material) > 1 and material[:half] * 2 == material:
        return "is one half twice"
    if all(0x20 <= byte < 0x7F for byte in material):
        return "is text"
    if 2 * len(set(material)) <= len(material):
        return "has few different bytes"
    return ""


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
            yield _Found(LintCheck.REPEATED_KEY, (*key.path, "secret"), told)
        elif first is not key and first.rule == key.rule:
            yield _Found(
                LintCheck.REPEATED_KEY, key.path, f"{key.transformer} stands here twice", advice=True
            )
        named = by_name.setdefault((key.kind, key.name), key)
        if fingerprint(named.material) != mark:
            elsewhere = named.rule != key.rule
            noise = " aescbc opens some values with the wrong one, to noise." if key.kind == "aescbc" else ""
            what = "In another rule that is another key." if elsewhere else f"Both are tried.{noise}"
            told = f"{key.transformer} stands here with other bytes than before. {what}"
            yield _Found(LintCheck.SAME_NAME_OTHER_BYTES, (*key.path, "name"), told, advice=elsewhere)


def _providers(path: Path, rule: Rule) -> Iterator[_Found]:
    providers = [
        (index, members[0])
        for index, provider in enumerate(rule.providers or ())
        if len(members := given_members(provider)) == 1
    ]
    if not providers:
        return
    names = ", ".join(shown(entry or "", quote="") for entry in (rule.resources or ())[:5])
    first, writer = providers[0]
    place = (*path, "providers", first)
    if writer == "identity":
        told = f"identity comes first for {names}, so new values are stored unencrypted"
        yield _Found(LintCheck.IDENTITY_FIRST, place, told)
    elif all(member != "identity" for _, member in providers):
        told = f"identity is not listed for {names}, so values that are stored unencrypted cannot be read"
        yield _Found(LintCheck.IDENTITY_MISSING, (*path, "providers"), told)
    if writer == "aescbc":
        told = f"aescbc writes {names}. It has no authentication, and Kubernetes advises against it"
        yield _Found(LintCheck.AESCBC, place, told)
    elif writer == "aesgcm":
        keys = (rule.providers or ())[first].aesgcm
        several = keys is not None and len(keys.keys or ()) > 1
        told = f"aesgcm writes {names}. Its nonces are random, so a key must be rotated every 200,000 writes"
        yield _Found(LintCheck.AESGCM, place, told if several else f"{told}; no older key shows a rotation")
    elif writer == "secretbox":
        told = f"secretbox writes {names}. It does not bind a value to its key: who can write etcd can swap values"
        yield _Found(LintCheck.SECRETBOX, place, told)
