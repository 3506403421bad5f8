"""Values that are really damaged can be deleted without declaring anything, and the backup brings them back.

The damaged value is the only one under its encryption key: nothing around it vouches for the key, only the look at
what the key makes of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from etcdfix.model.rules import Rule
from tests.integration.attacks.conftest import KMS_VERSIONS, Sealer
from tests.support.attacks import EVERY_FLAG, LOCAL, TRUE, Attacked, every_flag_but, seal, secret

pytestmark = [pytest.mark.etcd, pytest.mark.usefixtures("no_variables")]

PROVIDERS = (*LOCAL, *KMS_VERSIONS)
# Behind the start, within ObjectMeta: there a changed byte is a changed length or tag.
STRUCTURE = 23
ZEROES = "a sector of zeroes"


def body_end(kind: str, value: bytes, plaintext: bytes) -> tuple[int, int]:
    size = len(plaintext)
    match kind:
        case "aescbc":
            end = len(value)
            return end - (size // 16 + 1) * 16, end
        case "secretbox":
            return len(value) - size, len(value)
        case "aesgcm" | "kms/v1":
            return len(value) - 16 - size, len(value) - 16
        case _:
            begin = value.index(b":prov:") + len(":prov:") + 3  # tag and a length of two bytes
            begin += 12 + (32 if kind.endswith("1") else 0)
            return begin, begin + size


def damaged(kind: str, value: bytes, name: str) -> Iterator[tuple[str, bytes]]:
    begin, end = body_end(kind, value, secret(name))

    def changed(at: int, *masks: int) -> bytes:
        out = bytearray(value)
        for offset, mask in enumerate(masks):
            out[at + offset] ^= mask
        return bytes(out)

    yield "bytes of the structure", changed(begin + STRUCTURE, *(0xA5, 0x5A) * 12)
    yield ZEROES, value[: begin + STRUCTURE] + bytes(40) + value[begin + STRUCTURE + 40 :]
    if kind != "aescbc":  # which has no tag: the server reads it
        yield "one bit of the data", changed(end - 60, 0x10)
    if not kind.startswith("kms/v2"):  # whose envelope says how long its data is
        yield "16 bytes fewer", value[:-16]
    for cut in (1, 40):
        yield f"{cut} bytes fewer", value[:-cut]


@pytest.mark.parametrize("kind", PROVIDERS)
def test_damage_is_deletable_and_can_be_undone(registry: Attacked, sealer: Sealer, kind: str) -> None:
    at, value = sealer("only")
    for what, after in damaged(kind, value, "only"):
        registry.etcd.put(at, after)
        accepted: tuple[str, ...] = ()
        if what == "one bit of the data":  # which has the whole object back, so that nobody has to delete it
            accepted = ("--accept", "only-copy")
            flags = every_flag_but(Rule.ONLY_COPY)
            registry.refuses([at], *flags, rule="only-copy", hint="etcdfix fix")
        ran = registry.delete(at, *accepted)
        if what == ZEROES and "no damage is found" in ran.err:
            # What the key makes of zeroes is noise, which looks like fields of an object in one of 600 cases.
            after = dict(damaged(kind, sealer("only")[1], "only"))[what]
            registry.etcd.put(at, after)
            ran = registry.delete(at)
        assert ran.code == 0, (what, ran.err)
        assert registry.stored(at) is None
        content = registry.kept()[-1].content
        assert content.stored.value == after
        assert content.verdict.outcome in {"decrypt-failure", "decode-failure"}
        ran = registry.undo(registry.kept()[-1].path)
        assert ran.code == 0, (what, ran.err)
        assert registry.stored(at) == after


@pytest.mark.parametrize("kind", ["aescbc", "kms/v2/1"])
def test_what_was_not_damaged_is_readable(registry: Attacked, sealer: Sealer, kind: str) -> None:
    at, value = sealer("only")
    registry.etcd.put(at, value)
    registry.refuses([at], *EVERY_FLAG, rule="readable")
    if kind == "aescbc":
        # Without a tag the server reads a changed value, as long as an object comes out.
        begin, end = body_end(kind, value, secret("only"))
        assert end - begin > 160
        out = bytearray(value)
        out[end - 80] ^= 0x01
        registry.etcd.put(at, bytes(out))
        registry.refuses([at], *EVERY_FLAG, rule="readable")


@pytest.mark.parametrize("kind", [*LOCAL, "kms/v2/1"])
def test_likely_damage_needs_a_word(registry: Attacked, sealer: Sealer, kind: str) -> None:
    """A nonce that is changed looks like another key; only the values around it say which of the two it is."""
    before, at, later = sealer("before"), sealer("only"), sealer("later")
    begin, _ = body_end(kind, at[1], secret("only"))
    out = bytearray(at[1])
    if kind == "aescbc":
        for offset in range(64):
            out[begin + offset] ^= 0x3C + offset
    elif kind == "secretbox":
        for offset in range(8):
            out[begin - 40 + offset] ^= 0x3C + offset
    else:
        for offset in range(6):
            out[begin - 12 + offset] ^= 0x3C + offset
    for key, value in (before, (at[0], bytes(out)), later):
        registry.etcd.put(key, value)
    flags = every_flag_but(Rule.UNPROVEN_DAMAGE)
    registry.refuses([at[0]], *flags, accept="unproven-damage")
    # Under AES-CBC no tag says that the key is right, so that noise may be an encoding which is newer.
    words = ["unproven-damage", *(["newer-than-known"] if kind == "aescbc" else [])]
    ran = registry.delete(at[0], *(word for each in words for word in ("--accept", each)))
    assert ran.code == 0, ran.err
    assert registry.records()[0].accepted == tuple(f"--accept {each}" for each in words)


@pytest.mark.parametrize("kind", ["secretbox", "kms/v1"])
def test_the_same_without_neighbours_is_no_proof(registry: Attacked, sealer: Sealer, kind: str) -> None:
    at, value = sealer("only")
    begin, _ = body_end(kind, value, secret("only"))
    out = bytearray(value)
    for offset in range(64):
        out[begin - 12 + offset] ^= 0x3C + offset
    registry.etcd.put(at, bytes(out))
    (ran,) = registry.refuses([at], *EVERY_FLAG)
    assert json.loads(ran.out)["refusal"]["rule"] in {"curable-by-configuration", "undetermined"}


@pytest.mark.parametrize("kind", ["aescbc"])
def test_mass_damage_needs_a_word(registry: Attacked, sealer: Sealer, kind: str) -> None:
    """Each of ten is proven damaged, so it is not the key: but something is at work here."""
    keys = []
    for number in range(10):
        at, value = sealer(f"cut-{number}")
        registry.etcd.put(at, value[:-40])
        keys.append(at)
    flags = every_flag_but(Rule.MASS_DAMAGE)
    registry.refuses(keys[:2], *flags, accept="mass-damage")
    assert registry.delete(keys[0], "--accept", "mass-damage", "--dry-run").code == 0
    # Nine of them, and one that is not proven: it may be the key after all.
    registry.etcd.put(keys[9], seal(kind, secret("cut-9"), keys[9], TRUE[::-1]))
    registry.refuses(keys[:1], *EVERY_FLAG, rule="pattern")


def test_two_flipped_bits_are_found_where_nothing_opens(registry: Attacked) -> None:
    """A look at each shows that the key is right, so each is searched, and each is proven damaged, and repairable."""
    keys = registry.secrets("aesgcm", ["flipped-0", "flipped-1"])
    for at in keys:
        stored = registry.stored(at) or b""
        registry.etcd.put(at, stored[:-40] + bytes([stored[-40] ^ 1]) + stored[-39:])
    registry.refuses(keys, accept="only-copy")
    for at in keys:
        ran = registry.delete(at, "--accept", "only-copy")
        assert (ran.code, registry.stored(at)) == (0, None), ran.err


def test_two_that_are_proven_are_no_pattern(registry: Attacked) -> None:
    keys = registry.secrets("aesgcm", ["cut-0", "cut-1"])
    for at in keys:
        registry.etcd.put(at, (registry.stored(at) or b"")[:-40])
    assert registry.delete(keys[0], "--dry-run").code == 0
    # One of them is not proven, and nothing opens: then nobody is deletable without more.
    registry.etcd.put(keys[1], seal("aesgcm", secret("cut-1"), keys[1], TRUE[::-1]))
    registry.refuses(keys[:1], *EVERY_FLAG, rule="pattern")
