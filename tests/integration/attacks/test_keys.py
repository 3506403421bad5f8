"""Attacks with encryption keys: wrong bytes, other names, other rules. The values are healthy, and none may go.

Each stands for something that happens: a file of another cluster, a key replaced in place, a name with a colon.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import NamedTuple

import pytest

from etcdfix.encryption.providers.aescbc import AESCBCCipher
from etcdfix.model.model import Attempt
from etcdfix.model.rules import Rule
from tests.support.attacks import (
    EVERY_FLAG,
    LOCAL,
    OTHER,
    TRUE,
    WRONG,
    Attacked,
    config_map,
    declared,
    every_flag_but,
    of_one_name,
    seal,
    secret,
)
from tests.support.objects import IDENTITY, provider

pytestmark = [pytest.mark.etcd, pytest.mark.usefixtures("no_variables")]

NAMES = [f"db-{number}" for number in range(12)]
CURABLE, DELETABLE = "curable-by-configuration", "deletable"


def _under_names(registry: Attacked, kind: str, names: Iterable[str]) -> list[bytes]:
    return [
        *itertools.chain.from_iterable(
            registry.secrets(kind, [f"web-{number}"], TRUE, name) for number, name in enumerate(names)
        )
    ]


def _in_one_of_two_rules(registry: Attacked, kind: str, name: str = "key1") -> list[bytes]:
    registry.rules(
        ("secrets", (provider(kind, **{name: WRONG}), IDENTITY)),
        ("configmaps", (provider(kind, **{name: OTHER}), IDENTITY)),
    )
    keys = registry.secrets(kind, NAMES, TRUE, name)
    for number in range(13):
        at = registry.key(f"shop/settings-{number}", "configmaps")
        registry.etcd.put(at, seal(kind, config_map(f"settings-{number}"), at, OTHER, name))
    # In another order than in etcd: no attempt makes the next one easier.
    return keys[1::-1]


def _alone(registry: Attacked, kind: str) -> list[bytes]:
    """Nothing else speaks for the key or against it: 0 open, 1 does not."""
    registry.keyed(kind, WRONG)
    return registry.secrets(kind, ["alone"])


def _too_small(registry: Attacked, kind: str) -> list[bytes]:
    """Of so few bytes a look says nothing: that is no proof either."""
    registry.keyed(kind, WRONG)
    keys = [registry.key(f"shop/small-{size}") for size in (0, 1, 16)]
    for at in keys:
        size = int(at.rpartition(b"-")[2])
        registry.etcd.put(at, seal(kind, b"k8s\0tiny-thing-1"[:size], at))
    return keys


def _replaced_in_place(registry: Attacked, kind: str) -> list[bytes]:
    """Old values do not open, newer ones do: fewer fail than open, and still it is the key."""
    old = registry.secrets(kind, ["old-0", "old-1", "old-2"], TRUE)
    registry.secrets(kind, NAMES, WRONG)
    registry.keyed(kind, WRONG)
    return old


def _another_provider(registry: Attacked, kind: str) -> list[bytes]:
    elsewhere = "secretbox" if kind != "secretbox" else "aesgcm"
    registry.rules(("secrets", (provider(kind, key1=WRONG), provider(elsewhere, key1=TRUE), IDENTITY)))
    return registry.secrets(kind, ["web", "db"])


def _configured(*rules: Callable[[str], tuple[str, tuple[dict[str, object], ...]]]) -> Prepare:
    def prepare(registry: Attacked, kind: str) -> list[bytes]:
        registry.rules(*(rule(kind) for rule in rules))
        return registry.secrets(kind, ["web", "db"])

    return prepare


def _names_that_go_on(registry: Attacked, kind: str, *, key: bytes = TRUE) -> list[bytes]:
    """Values were written under names with colons, and a shorter one is configured."""
    registry.keyed(kind, key, "key")
    return _under_names(
        registry, kind, ("key:b", "key:", "key::", "key: b", "key:0123456789abcdef", "key:%2F", "key:" + "n" * 300)
    )  # fmt: skip


def _names_that_do_not_print(registry: Attacked, kind: str) -> list[bytes]:
    """To a key of the same bytes and a shorter name, sixteen bytes more look like a damaged initialisation vector."""
    registry.keyed(kind, TRUE, "key")
    return _under_names(registry, kind, ("key:\u00a0a\u200b012345678", "key:" + "\x01" * 15))


def _of_one_name(registry: Attacked, kind: str, *materials: bytes) -> list[bytes]:
    """The server tries both of two keys of one name; we count for both."""
    keys = registry.secrets(kind, NAMES[:3]) + registry.secrets(kind, NAMES[3:6], OTHER)
    registry.rules(("secrets", (of_one_name(kind, *materials), IDENTITY)))
    return keys[::3]


def _between_values_of_its_namesake(registry: Attacked, kind: str) -> list[bytes]:
    """The key that wrote the value opens nothing else; what opens around it was written by its namesake."""
    registry.rules(("secrets", (of_one_name(kind, WRONG, TRUE), IDENTITY)))
    registry.secrets(kind, ["before"], WRONG)
    at = registry.key("shop/between")
    registry.etcd.put(at, seal(kind, secret("between"), b"tenant-7" + at, TRUE))
    registry.secrets(kind, ["later"], WRONG)
    return [at]


def _fits_by_chance(registry: Attacked, kind: str) -> list[bytes]:
    """Padding that fits under a wrong key."""
    at = registry.key("shop/chance")
    for salt in itertools.count():
        value = seal(kind, secret("chance"), at, salt=salt)
        if not isinstance(
            AESCBCCipher(WRONG).read(value.removeprefix(b"k8s:enc:aescbc:v1:key1:"), at), Attempt
        ):
            break
    registry.etcd.put(at, value)
    registry.keyed(kind, WRONG)
    return [at]


def _fits_by_chance_under_the_first(registry: Attacked, kind: str) -> list[bytes]:
    """Two elements name the resource, each with a key1: the server stops at the first, and the second opens it."""
    keys = _fits_by_chance(registry, kind)
    registry.rules(
        ("secrets", (provider(kind, key1=WRONG),)), ("secrets", (provider(kind, key1=TRUE), IDENTITY))
    )
    return keys


def _twice(registry: Attacked, kind: str, *, inner: str = "key1", outer: bytes = TRUE) -> list[bytes]:
    """Somebody wrote stored bytes through the server, or two layers were in use: the object is in there."""
    registry.keyed(kind)
    at = registry.key("shop/twice")
    below = seal(kind, secret("twice"), at, TRUE if inner == "key1" else OTHER, inner)
    registry.etcd.put(at, seal(kind, below, at, outer, salt="outer"))
    return [at]


def _plaintext(registry: Attacked, kind: str) -> list[bytes]:
    """Identity would read it."""
    registry.rules(("secrets", (provider(kind, key1=TRUE),)))
    return [registry.put("shop/plain", secret("plain"))]


def _bits_of_the_envelope(registry: Attacked, kind: str) -> list[bytes]:
    """The whole object may be below it."""
    registry.keyed(kind)
    keys = [registry.key(f"shop/flipped-{bit}") for bit in (0, 13, 35, 63)]
    for at in keys:
        bit, damaged = int(at.rpartition(b"-")[2]), bytearray(seal(kind, secret("flipped"), at))
        damaged[bit // 8] ^= 1 << bit % 8
        registry.etcd.put(at, bytes(damaged))
    return keys


Prepare = Callable[[Attacked, str], list[bytes]]


class Situation(NamedTuple):
    """What is stored and configured, for what it is taken, and what becomes of it where key1 is declared lost."""

    prepare: Prepare
    cause: str
    declared: str = ""
    rule: str = CURABLE
    kinds: tuple[str, ...] = LOCAL


def _lost(cause: str, *rules: Callable[[str], tuple[str, tuple[dict[str, object], ...]]]) -> Situation:
    """Nothing of that name is configured, and nothing like it."""
    return Situation(_configured(*rules), cause, DELETABLE)


def _there(cause: str, *rules: Callable[[str], tuple[str, tuple[dict[str, object], ...]]]) -> Situation:
    """The key is there, in another place."""
    return Situation(_configured(*rules), cause, "declaration")


def _other(kind: str) -> str:
    return "secretbox" if kind != "secretbox" else "aesgcm"


SITUATIONS = {
    "wrong bytes in one of two rules": Situation(_in_one_of_two_rules, "wrong-key"),
    "wrong bytes under a name with colons": Situation(
        lambda registry, kind: _in_one_of_two_rules(registry, kind, "a:key1:b"), "wrong-key"
    ),
    "one alone under the key of another cluster": Situation(_alone, "wrong-key", DELETABLE),
    "too small to be seen": Situation(_too_small, ""),
    "a key replaced in place": Situation(_replaced_in_place, "wrong-key", DELETABLE),
    "the right key under another name": _there(
        "key-renamed", lambda kind: ("secrets", (provider(kind, key1=WRONG, key0=TRUE), IDENTITY))
    ),
    "the right key in another rule": _there(
        "key-renamed", lambda kind: ("secrets", (provider(kind, key1=WRONG), IDENTITY)),
        lambda kind: ("configmaps", (provider(kind, key9=TRUE), IDENTITY)),
    ),
    "the right key under another provider": Situation(_another_provider, "key-renamed", "declaration"),
    "the right key in a second element": Situation(
        _configured(
            lambda kind: ("secrets", (provider(kind, key1=WRONG), IDENTITY)),
            lambda kind: ("secrets", (provider(kind, key1=TRUE),)),
        ), "", rule="readable",
    ),
    "its rule is gone, the key is not": _there("", lambda kind: ("events", (provider(kind, key1=TRUE), IDENTITY))),
    "its provider is gone, the key is not": _there(
        "", lambda kind: ("secrets", (provider(_other(kind), key1=TRUE), IDENTITY))
    ),
    "its name is gone, the key is not": _there("", lambda kind: ("secrets", (provider(kind, key7=TRUE), IDENTITY))),
    "no rule of it": _lost("resource-not-configured", lambda kind: ("events", (provider(kind, key1=WRONG), IDENTITY))),
    "no provider": _lost("provider-missing", lambda _: ("secrets", (IDENTITY,))),
    "no provider of its kind": _lost(
        "provider-missing", lambda kind: ("secrets", (provider(_other(kind), key1=WRONG), IDENTITY))
    ),
    "no key of its name": _lost("key-name-missing", lambda kind: ("secrets", (IDENTITY, provider(kind, key7=WRONG)))),
    "names that go on": Situation(_names_that_go_on, "key-"),
    "names that go on, of another key": Situation(
        lambda registry, kind: _names_that_go_on(registry, kind, key=WRONG), "key-"
    ),
    "names that go on by a block": Situation(_names_that_do_not_print, "key-renamed", kinds=("aescbc",)),
    "two keys of one name, both wrong": Situation(
        lambda registry, kind: _of_one_name(registry, kind, WRONG, OTHER)[:1], "wrong-key"
    ),
    "two keys of one name, the second right": Situation(
        lambda registry, kind: _of_one_name(registry, kind, WRONG, TRUE)[:1], "", rule="readable"
    ),
    "between values of its namesake": Situation(
        _between_values_of_its_namesake, "associated-data-unknown", kinds=("aesgcm",)
    ),
    "padding that fits by chance": Situation(_fits_by_chance, "wrong-key", kinds=("aescbc",)),
    "padding that fits by chance under the first of two keys": Situation(
        _fits_by_chance_under_the_first, "key-renamed", "declaration", kinds=("aescbc",)
    ),
    "encrypted twice": Situation(_twice, "double-encrypted", "declaration", "never-deletable"),
    "encrypted twice, below with a key that is gone": Situation(
        lambda registry, kind: _twice(registry, kind, inner="gone"), "double-encrypted", rule="never-deletable"
    ),
    "encrypted twice, the outer key wrong": Situation(
        lambda registry, kind: _twice(registry, kind, outer=WRONG), "wrong-key"
    ),
    "plaintext that identity would read": Situation(_plaintext, "plaintext-not-allowed"),
    "a bit of the envelope": Situation(_bits_of_the_envelope, "envelope-damaged", rule="never-deletable"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("case", "kind"),
    [
        (case, situation.kinds[number % len(situation.kinds)])
        for number, (case, situation) in enumerate(SITUATIONS.items())
    ],
)
def test_healthy_values_stay(registry: Attacked, case: str, kind: str) -> None:
    situation = SITUATIONS[case]
    keys = situation.prepare(registry, kind)
    registry.refuses(keys, *EVERY_FLAG, rule=situation.rule, cause=situation.cause)
    registry.refuses(keys[:1])
    if situation.declared == DELETABLE:  # nothing but the flag that names the key helps
        assert registry.delete(keys[0], *declared(f"{kind}/v1/key1"), "--dry-run").code == 0
    elif situation.declared:
        registry.refuses(keys[:1], *EVERY_FLAG, *declared(f"{kind}/v1/key1"), rule=situation.declared)


def test_wrong_bytes_that_were_put_in_by_mistake_and_taken_back(registry: Attacked) -> None:
    """Newer values do not open, older ones do: a declared loss is contradicted by what was written before."""
    registry.secrets("aescbc", NAMES, TRUE)
    late = registry.secrets("aescbc", ["late"], WRONG)
    registry.keyed("aescbc", TRUE)
    # As much speaks for damage: only an API server can tell.
    registry.refuses(late, *EVERY_FLAG, rule="no-api-server", hint="--kubeconfig FILE")
    registry.refuses(late, *EVERY_FLAG, *declared("aescbc/v1/key1"), rule="declaration")


@pytest.mark.parametrize("kind", ["aesgcm", "aescbc"])
def test_bytes_that_changed_for_a_while(registry: Attacked, kind: str) -> None:
    """Values before and after open, so each looks damaged; two of them look like a key that had other bytes."""
    registry.secrets(kind, ["before"], TRUE)
    between = registry.secrets(kind, ["between-0", "between-1"], WRONG)
    registry.secrets(kind, ["later"], TRUE)
    registry.keyed(kind, TRUE)
    lost, unproven = declared(f"{kind}/v1/key1"), every_flag_but(Rule.UNPROVEN_DAMAGE)
    registry.refuses(between, *EVERY_FLAG, rule="pattern", hint=f"--declare-key-lost {kind}/v1/key1")
    registry.refuses(between, *unproven, *lost, accept="unproven-damage")
    for at in between:
        assert registry.delete(at, *EVERY_FLAG, *lost, "--dry-run").code == 0
    # A single one cannot be told from one whose nonce was overwritten; that needs a person's word, and no more.
    registry.etcd.delete(between[1])
    registry.refuses(between[:1], *unproven, accept="unproven-damage")


HOSTILE = ("ключ", "key\u202e1", "key\n1", "\x1b[31mkey", "key 1", "k" * 600)


@pytest.mark.parametrize("configured", ["the-same", "another"])
def test_name_that_is_hostile(registry: Attacked, configured: str) -> None:
    keys = _under_names(registry, "aesgcm", HOSTILE)
    names = dict.fromkeys(HOSTILE, WRONG) if configured == "the-same" else {"key1": WRONG}
    registry.rules(("secrets", (provider("aesgcm", **names), IDENTITY)))
    for ran in registry.refuses(keys, *EVERY_FLAG, rule=CURABLE):
        assert not {"\x1b", "\u202e"} & set(ran.err)
    registry.rules(("secrets", (provider("aesgcm", **dict.fromkeys(HOSTILE, TRUE)), IDENTITY)))
    registry.refuses(keys[:2], *EVERY_FLAG, rule="readable")
