"""Attacks with encryption keys: wrong bytes, other names, other rules. The values are healthy, and none may go.

Each test stands for something that happens: a file of another cluster, a key replaced in place, a name with a colon.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

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
from tests.support.thorough import some

pytestmark = [pytest.mark.etcd, pytest.mark.usefixtures("no_variables")]


NAMES = [f"db-{number}" for number in range(12)]


@pytest.mark.parametrize("kind", LOCAL)
@pytest.mark.parametrize("name", ["key1", "a:key1:b"])
def test_wrong_bytes_in_one_of_two_rules(registry: Attacked, kind: str, name: str) -> None:
    registry.rules(
        ("secrets", (provider(kind, **{name: WRONG}), IDENTITY)),
        ("configmaps", (provider(kind, **{name: OTHER}), IDENTITY)),
    )
    keys = registry.secrets(kind, NAMES, TRUE, name)
    for number in range(13):
        at = registry.key(f"shop/settings-{number}", "configmaps")
        registry.etcd.put(at, seal(kind, config_map(f"settings-{number}"), at, OTHER, name))
    # One by one, and in another order: no attempt makes the next one easier.
    order = [*some(keys, of=4), keys[-1], keys[0]] if name == "key1" else keys[:2]
    registry.refuses(order, says=["the configuration alone can cure this"], hint="fix the configuration")
    registry.refuses(
        keys[:2], *EVERY_FLAG, says=["the configuration alone can cure this"], hint="fix the configuration"
    )
    # A declaration of the same name in the other rule's spelling speaks of no key here.
    registry.refuses(
        keys[:1], *declared(f"{kind}/v1/other"), says=["does not name the key"], hint="written under"
    )


@pytest.mark.parametrize("kind", LOCAL)
def test_one_alone_under_the_key_of_another_cluster(registry: Attacked, kind: str) -> None:
    """Nothing else speaks for the key or against it: 0 open, 1 does not."""
    registry.keyed(kind, WRONG)
    registry.refuses(
        registry.secrets(kind, ["alone"]), *EVERY_FLAG,
        says=["the configuration alone can cure this (wrong-key: "],
        hint=f"only if that key is gone for ever: --declare-key-lost {kind}/v1/key1",
    )  # fmt: skip


@pytest.mark.parametrize("kind", LOCAL)
@pytest.mark.parametrize("size", [0, 1, 16])
def test_one_that_is_too_small_to_be_seen(registry: Attacked, kind: str, size: int) -> None:
    """Of so few bytes a look says nothing: that is no proof either."""
    registry.keyed(kind, WRONG)
    at = registry.key("shop/small")
    registry.etcd.put(at, seal(kind, b"k8s\0tiny-thing-1"[:size], at))
    registry.refuses([at], *EVERY_FLAG, says=["can cure this ("], hint="fix the configuration")


@pytest.mark.parametrize("kind", LOCAL)
def test_key_replaced_in_place(registry: Attacked, kind: str) -> None:
    """Old values do not open, newer ones do: fewer fail than open, and still it is the key."""
    old = registry.secrets(kind, ["old-0", "old-1", "old-2"], TRUE)
    registry.secrets(kind, NAMES, WRONG)
    registry.keyed(kind, WRONG)
    registry.refuses(old, *EVERY_FLAG, says=["can cure this (wrong-key: "], hint="fix the configuration")
    # Every one that opens is newer, so that nothing speaks against a loss, but only the flag that names the key helps.
    assert registry.delete(old[0], *declared(f"{kind}/v1/key1"), "--dry-run").code == 0


@pytest.mark.parametrize("kind", LOCAL)
def test_wrong_bytes_that_were_put_in_by_mistake_and_taken_back(registry: Attacked, kind: str) -> None:
    """Newer values do not open, older ones do: a declared loss is contradicted by what was written before."""
    registry.secrets(kind, NAMES, TRUE)
    late = registry.secrets(kind, ["late"], WRONG)
    registry.keyed(kind, TRUE)
    # As much speaks for damage: only an API server can tell.
    registry.refuses(late, *EVERY_FLAG, says=["its damage is only possible"], hint="--kubeconfig FILE")
    registry.refuses(
        late, *EVERY_FLAG, *declared(f"{kind}/v1/key1"),
        says=["a value that was written before", "opens under the same key"],
        hint="the key that wrote it was not lost then",
    )  # fmt: skip


@pytest.mark.parametrize("kind", LOCAL)
def test_bytes_that_changed_for_a_while(registry: Attacked, kind: str) -> None:
    """Values before and after open, so each looks damaged; two of them look like a key that had other bytes."""
    registry.secrets(kind, ["before"], TRUE)
    between = registry.secrets(kind, ["between-0", "between-1"], WRONG)
    registry.secrets(kind, ["later"], TRUE)
    registry.keyed(kind, TRUE)
    lost = f"{kind}/v1/key1"
    registry.refuses(
        between, *EVERY_FLAG,
        says=["2 values do not open, and nothing proves", "the key may have had other bytes for a time"],
        hint=f"find the bytes that it had then; only if they are gone for ever: --declare-key-lost {lost}",
    )  # fmt: skip
    registry.refuses(
        between, *every_flag_but(Rule.UNPROVEN_DAMAGE), *declared(lost),
        says=["the damage is likely and not proven"], hint="if that is understood: --accept unproven-damage",
    )  # fmt: skip
    for at in between:
        ran = registry.delete(at, *EVERY_FLAG, *declared(lost), "--dry-run")
        assert ran.code == 0, ran.err
    # A single one cannot be told from one whose nonce was overwritten; that needs a person's word, and no more.
    registry.etcd.delete(between[1])
    registry.refuses(
        between[:1], *every_flag_but(Rule.UNPROVEN_DAMAGE),
        says=["the damage is likely and not proven"], hint="if that is understood: --accept unproven-damage",
    )  # fmt: skip


@pytest.mark.parametrize("kind", LOCAL)
@pytest.mark.parametrize("there", ["another-name", "another-rule", "another-provider", "second-of-one-name"])
def test_right_key_elsewhere(registry: Attacked, kind: str, there: str) -> None:
    keys = registry.secrets(kind, ["web", "db"])
    elsewhere = "secretbox" if kind != "secretbox" else "aesgcm"
    secrets_rule: tuple[dict[str, object], ...] = (provider(kind, key1=WRONG), IDENTITY)
    rules = [("secrets", secrets_rule)]
    match there:
        case "another-name":
            rules = [("secrets", (provider(kind, key1=WRONG, key0=TRUE), IDENTITY))]
        case "another-rule":
            rules.append(("configmaps", (provider(kind, key9=TRUE), IDENTITY)))
        case "another-provider":
            rules = [("secrets", (provider(kind, key1=WRONG), provider(elsewhere, key1=TRUE), IDENTITY))]
        case _:
            # Two elements name the resource: the server tries all of their providers.
            rules.append(("secrets", (provider(kind, key1=TRUE),)))
    registry.rules(*rules)
    if there == "second-of-one-name":
        registry.refuses(keys, *EVERY_FLAG, says=["the object is readable"], hint="through the API")
        return
    for flags in ((), EVERY_FLAG):
        registry.refuses(keys, *flags, says=["can cure this (key-renamed: "], hint="fix the configuration")
    registry.refuses(
        keys,
        *EVERY_FLAG,
        *declared(f"{kind}/v1/key1"),
        says=["does not name a key"],
        hint="fix the configuration",
    )


@pytest.mark.parametrize("kind", LOCAL)
def test_rule_is_gone_and_the_key_is_not(registry: Attacked, kind: str) -> None:
    """The resource lost its rule, its provider, or its key's name; the key still stands in another rule."""
    (at,) = registry.secrets(kind, ["web"])
    other = "secretbox" if kind != "secretbox" else "aesgcm"
    for rule in (
        ("events", (provider(kind, key1=TRUE), IDENTITY)),
        ("secrets", (provider(other, key1=TRUE), IDENTITY)),
        ("secrets", (provider(kind, key7=TRUE), IDENTITY)),
    ):
        registry.rules(rule)
        registry.refuses([at], *EVERY_FLAG, says=["can cure this ("], hint="fix the configuration")
        registry.refuses(
            [at], *declared(f"{kind}/v1/key1"), says=["does not name a key"], hint="fix the configuration"
        )


@pytest.mark.parametrize("kind", LOCAL)
def test_nothing_of_that_name_and_nothing_like_it(registry: Attacked, kind: str) -> None:
    (at,) = registry.secrets(kind, ["web"])
    other = "secretbox" if kind != "secretbox" else "aesgcm"
    for rule, cause in (
        (("events", (provider(kind, key1=WRONG), IDENTITY)), "resource-not-configured"),
        (("secrets", (IDENTITY,)), "provider-missing"),
        (("secrets", (provider(other, key1=WRONG), IDENTITY)), "provider-missing"),
        (("secrets", (IDENTITY, provider(kind, key7=WRONG))), "key-name-missing"),
    ):
        registry.rules(rule)
        registry.refuses(
            [at], *EVERY_FLAG, says=[f"can cure this ({cause}: "], hint=f"--declare-key-lost {kind}/v1/key1"
        )
        ran = registry.delete(at, *declared(f"{kind}/v1/key1"), "--dry-run")
        assert ran.code == 0, ran.err


GOING_ON = (
    "key:b", "key:", "key::", "key: b", "key:0123456789abcde", "key:0123456789abcdef0123456789abcde", "key:%2F",
    "key:/etc", "key:b:c:d:e:f:g:h:i:j:k", "key:" + "n" * 300,
)  # fmt: skip


@pytest.mark.parametrize("kind", LOCAL)
@pytest.mark.parametrize("same", [True, False])
def test_name_that_goes_on(registry: Attacked, kind: str, *, same: bool) -> None:
    """Values were written under names with colons, and a shorter one is configured."""
    registry.keyed(kind, TRUE if same else WRONG, "key")
    keys = [*_under_names(registry, kind, GOING_ON)]
    registry.refuses(keys, *EVERY_FLAG, says=["can cure this (key-"], hint="fix the configuration")


def test_name_that_goes_on_by_a_block_and_does_not_print(registry: Attacked) -> None:
    """To a key of the same bytes and a shorter name, sixteen bytes more look like a damaged initialisation vector."""
    registry.keyed("aescbc", TRUE, "key")
    keys = [*_under_names(registry, "aescbc", ("key:\u00a0a\u200b012345678", "key:" + "\x01" * 15))]
    registry.refuses(keys, *EVERY_FLAG, says=["can cure this (key-renamed: "], hint="fix the configuration")


HOSTILE = ("ключ", "key\u202e1", "key\n1", "\x1b[31mkey", "key 1", "k" * 600)


@pytest.mark.parametrize("kind", LOCAL)
@pytest.mark.parametrize("configured", ["the-same", "another"])
def test_name_that_is_hostile(registry: Attacked, kind: str, configured: str) -> None:
    keys = [*_under_names(registry, kind, HOSTILE)]
    names = dict.fromkeys(HOSTILE, WRONG) if configured == "the-same" else {"key1": WRONG}
    registry.rules(("secrets", (provider(kind, **names), IDENTITY)))
    for ran in registry.refuses(keys, *EVERY_FLAG, says=["can cure this ("], hint="fix the configuration"):
        assert "\x1b" not in ran.err
        assert "\u202e" not in ran.err
    registry.rules(("secrets", (provider(kind, **dict.fromkeys(HOSTILE, TRUE)), IDENTITY)))
    registry.refuses(keys, *EVERY_FLAG, says=["the object is readable"], hint="through the API")


def _under_names(registry: Attacked, kind: str, names: Iterable[str]) -> Iterator[bytes]:
    for number, name in enumerate(names):
        yield from registry.secrets(kind, [f"web-{number}"], TRUE, name)


@pytest.mark.parametrize("kind", LOCAL)
def test_two_keys_of_one_name_in_a_rule(registry: Attacked, kind: str) -> None:
    """The server tries both; we count for both."""
    keys = registry.secrets(kind, NAMES[:3])
    registry.secrets(kind, NAMES[3:6], OTHER)
    for first, second, says in (
        (WRONG, TRUE, "the object is readable"),
        (WRONG, OTHER, "the configuration alone can cure this (wrong-key: "),
    ):
        registry.rules(("secrets", (of_one_name(kind, first, second), IDENTITY)))
        for key in keys:
            with registry.nothing_changes():
                ran = registry.delete(key, *EVERY_FLAG)
            assert ran.code == 4
            assert says in ran.err


def test_neighbours_under_another_key_of_the_same_name(registry: Attacked) -> None:
    """The key that wrote the value opens nothing else; what opens around it was written by its namesake."""
    registry.rules(("secrets", (of_one_name("aesgcm", WRONG, TRUE), IDENTITY)))
    registry.secrets("aesgcm", ["before"], WRONG)
    at = registry.key("shop/between")
    registry.etcd.put(at, seal("aesgcm", secret("between"), b"tenant-7" + at, TRUE))
    registry.secrets("aesgcm", ["later"], WRONG)
    registry.refuses(
        [at], *EVERY_FLAG, says=["can cure this (associated-data-unknown: "], hint="fix the configuration"
    )


def _fits_by_chance(at: bytes, wanted: int = 3) -> Iterator[bytes]:
    found = 0
    for salt in itertools.count():
        value = seal("aescbc", secret("chance"), at, salt=salt)
        body = value.removeprefix(b"k8s:enc:aescbc:v1:key1:")
        if not isinstance(AESCBCCipher(WRONG).read(body, at), Attempt):
            yield value
            found += 1
            if found == wanted:
                return


def test_padding_that_fits_by_chance(registry: Attacked) -> None:
    registry.keyed("aescbc", WRONG)
    at = registry.key("shop/chance")
    for value in _fits_by_chance(at):
        registry.etcd.put(at, value)
        registry.refuses([at], *EVERY_FLAG, says=["can cure this (wrong-key: "], hint="--declare-key-lost")


def test_padding_that_fits_by_chance_under_the_first_of_two_keys(registry: Attacked) -> None:
    """Two elements name the resource, each with a key1: the server stops at the first, and the second opens it."""
    registry.rules(
        ("secrets", (provider("aescbc", key1=WRONG),)), ("secrets", (provider("aescbc", key1=TRUE), IDENTITY))
    )
    at = registry.key("shop/chance")
    for value in _fits_by_chance(at):
        registry.etcd.put(at, value)
        for flags in ((), EVERY_FLAG):
            registry.refuses(
                [at], *flags, says=["can cure this (key-renamed: "], hint="fix the configuration"
            )
        registry.refuses(
            [at], *declared("aescbc/v1/key1"), says=["does not name a key"], hint="fix the configuration"
        )


@pytest.mark.parametrize("kind", LOCAL)
def test_encrypted_twice(registry: Attacked, kind: str) -> None:
    """Somebody wrote stored bytes through the server, or two layers were in use: the object is in there."""
    registry.keyed(kind)
    at = registry.key("shop/twice")
    for inner in (seal(kind, secret("twice"), at), seal(kind, secret("twice"), at, OTHER, "gone")):
        registry.etcd.put(at, seal(kind, inner, at, salt="outer"))
        registry.refuses(
            [at], *EVERY_FLAG, says=["double-encrypted is never a reason to delete"], hint="see every way out"
        )
        registry.refuses(
            [at], *declared(f"{kind}/v1/key1"), says=["does not name a key"], hint="that key is there"
        )


@pytest.mark.parametrize("kind", LOCAL)
def test_encrypted_twice_with_the_outer_key_wrong(registry: Attacked, kind: str) -> None:
    registry.keyed(kind, WRONG)
    at = registry.key("shop/twice")
    registry.etcd.put(at, seal(kind, seal(kind, secret("twice"), at, WRONG), at, TRUE))
    registry.refuses([at], *EVERY_FLAG, says=["can cure this (wrong-key: "], hint="fix the configuration")


def test_plaintext_that_identity_would_read(registry: Attacked) -> None:
    registry.rules(("secrets", (provider("aesgcm", key1=TRUE),)))
    at = registry.put("shop/plain", secret("plain"))
    registry.refuses(
        [at], *EVERY_FLAG, says=["can cure this (plaintext-not-allowed: "], hint="fix the configuration"
    )
    registry.refuses([at], *declared("identity"), says=["does not name a key"], hint="written under identity")


def test_envelope_with_one_bit_flipped(registry: Attacked) -> None:
    """The whole object may be below it."""
    registry.keyed("aesgcm")
    at = registry.key("shop/flipped")
    value = seal("aesgcm", secret("flipped"), at)
    for bit in (0, 13, 35, 63):
        damaged = bytearray(value)
        damaged[bit // 8] ^= 1 << bit % 8
        registry.etcd.put(at, bytes(damaged))
        registry.refuses(
            [at], *EVERY_FLAG, says=["envelope-damaged is never a reason to delete"], hint="see every way out"
        )
