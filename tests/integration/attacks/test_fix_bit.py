"""Whatever is tried, a repair writes the bytes that an API server wrote, or nothing at all."""

from __future__ import annotations

import json
import random
import shlex
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from etcdfix.commands import fix as fix_module
from etcdfix.model.model import StoredValue
from etcdfix.remediation.change import carry_out
from etcdfix.remediation.commit import ChangeOutcome
from etcdfix.remediation.datastore import EtcdNow, KeyReading
from etcdfix.testing.protobytes import block, object_meta, unknown
from etcdfix.testing.servers import EtcdServer
from tests.integration.attacks.conftest import KMS_VERSIONS, Sealer
from tests.support.attacks import (
    EVERY_FLAG,
    OTHER,
    TRUE,
    UID,
    WRONG,
    Attacked,
    config_map,
    seal,
    secret,
)
from tests.support.change_runs import Ran, holds
from tests.support.objects import IDENTITY, json_object, provider

pytestmark = [pytest.mark.etcd, pytest.mark.usefixtures("no_variables")]

TAGGED = ("aesgcm", "secretbox", *KMS_VERSIONS)


def web(registry: Attacked) -> tuple[bytes, bytes]:
    key = registry.key("shop/web")
    return key, seal("aesgcm", secret("web"), key)


def flipped(value: bytes, *bits: int) -> bytes:
    data = bytearray(value)
    for bit in bits:
        data[bit // 8] ^= 1 << bit % 8
    return bytes(data)


def body_of(value: bytes) -> int:
    at = 0
    for _ in range(5):
        at = value.index(b":", at) + 1
    return at


def refused(ran: Ran, *rules: str) -> dict[str, Any]:
    document = json.loads(ran.out)
    refusal: dict[str, Any] = document["refusal"]
    assert (ran.code, document["result"], document["command"]) == (4, "refused", "fix"), ran
    assert refusal["rule"] in rules, refusal
    assert "never-to-be-shown" not in ran.out + ran.err
    return refusal


def refuses(
    registry: Attacked, key: bytes, *rules: str, cause: str = "", flags: Sequence[str] = (), **how: Any
) -> None:
    """A repair is refused by one of these rules; the cause stands in the message, an acceptance in the next step."""
    with registry.nothing_changes():
        refusal = refused(registry.put_back(key, "bit", "-o", "json", *flags, **how), *rules)
    assert cause in refusal["message"] + refusal["next_step"], refusal


EVERY_RISK = (
    "--accept", "unproven-repair", "--accept", "cluster-breaking", "--accept", "newer-than-known",
)  # fmt: skip


@pytest.mark.parametrize("kind", TAGGED)
def test_a_bit_is_put_back_and_that_can_be_undone(registry: Attacked, sealer: Sealer, kind: str) -> None:
    key, value = sealer("only")
    other, healthy = sealer("other")
    registry.etcd.put(other, healthy)
    begin = body_of(value) + (70 if kind.startswith("kms") else 45)
    places = [4, begin * 8 + 4, (begin + 60) * 8 + 7]
    if kind.startswith("kms/v2"):
        places += [body_of(value) * 8 + 3, (len(value) - 30) * 8 + 1]
    for bit in places:
        damaged = flipped(value, bit)
        registry.etcd.put(key, damaged)
        with registry.nothing_changes():
            dry = registry.put_back(key, "bit", "--dry-run", yes=False)
        assert dry.code == 0, dry.err
        assert "Nothing was changed" in dry.out
        ran = registry.put_back(key, "bit", "-o", "json")
        assert ran.code == 0, (bit, ran.err)
        document = json.loads(ran.out)
        assert document["result"] == "fixed"
        assert any(text.startswith("read back: it opens") for text in document["warnings"])
        assert registry.stored(key) == value
        content = registry.kept()[-1].content
        assert (content.stored.value, content.purpose) == (damaged, "fix")
        undo = next(item["command"] for item in document["follow_ups"] if item["what"] == "Undo")
        assert str(registry.kept()[-1].path) in undo
        restored = registry.undo(registry.kept()[-1].path, "--expect-mod-revision", str(document["revision"]))
        assert restored.code == 0, restored.err
        assert registry.stored(key) == damaged
    assert not holds(registry.log.read_bytes())
    assert {event.verb for event in registry.records()} == {"fix", "undo"}


@pytest.mark.parametrize("kind", ["kms/v2/0", "kms/v2/1"])
def test_a_wrapped_key_comes_from_a_neighbour(registry: Attacked, sealer: Sealer, kind: str) -> None:
    (key, value), (other, healthy) = sealer("only"), sealer("other")
    damaged = value[:-60] + bytes(30) + value[-30:]
    registry.etcd.put(key, damaged)
    with registry.nothing_changes():
        assert registry.put_back(key, "bit").code == 4  # nobody else has it
    registry.etcd.put(other, healthy)
    ran = registry.put_back(key, "bit")
    assert ran.code == 0, ran.err
    assert "the wrapped data key of another value" in ran.err
    assert registry.stored(key) == value


@pytest.mark.parametrize("kind", ["secretbox", "kms/v1", "kms/v2/1"])
def test_what_must_not_be_repaired(registry: Attacked, sealer: Sealer, kind: str) -> None:
    (key, value), (other, healthy) = sealer("only"), sealer("other")
    registry.etcd.put(other, healthy)
    body = body_of(value)
    for stored, *rules in (
        (value, "readable"),
        (flipped(value, (body + 90) * 8, (body + 100) * 8), "not-repairable"),
        (value[: len(value) // 2], "not-repairable", "undetermined"),
        (b"", "not-repairable"),
        (flipped(healthy, (body_of(healthy) + 90) * 8), "not-repairable"),
    ):
        registry.etcd.put(key, stored)
        refuses(registry, key, *rules, flags=EVERY_RISK)


def first_command(registry: Attacked, *words: str) -> list[str]:
    ran = registry.run(*words, *registry.common(places=False, reason=None), "-o", "json")
    document = json.loads(ran.out)
    step = document["summary"]["next"] if "summary" in document else document["next"]
    return shlex.split(step["command"])


def pasted(registry: Attacked, command: list[str], *more: str) -> Ran:
    return registry.run(
        *command[1:], "--backup-dir", str(registry.backups), "--audit-log", str(registry.log), *more
    )


def test_a_renamed_key_is_no_damaged_prefix(registry: Attacked) -> None:
    """``key2`` and ``key3`` are one bit apart: where all values have the other name, it is the configuration."""
    keys = registry.secrets("aesgcm", ["a", "b"], key_name="key2")
    registry.keyed("aesgcm", name="key3")
    refuses(registry, keys[0], "curable-by-configuration", flags=EVERY_RISK)
    # Where the other one reads, this one alone has that name; its key may have had it all the same.
    registry.etcd.put(keys[1], seal("aesgcm", secret("b"), keys[1], TRUE, "key3"))
    refuses(registry, keys[0], "unproven-repair", cause="--accept unproven-repair")
    for flags in ((), EVERY_FLAG):
        registry.refuses([keys[0]], *flags, rule="curable-by-configuration", hint="etcdfix fix ")
    for word in (["scan"], ["explain", keys[0].decode()], ["copies", keys[0].decode()]):
        command = first_command(registry, *word)
        assert command[:3] == ["etcdfix", "fix", keys[0].decode()], word
        assert pasted(registry, command).code == 0, word
    command.remove("--dry-run")
    assert pasted(registry, command, "--yes").code == 0
    assert registry.stored(keys[0]) == seal("aesgcm", secret("a"), keys[0], TRUE, "key3")


def _wrong_key(registry: Attacked) -> tuple[bytes, bytes]:
    keys = registry.secrets("aescbc", [f"s-{n}" for n in range(4)])
    registry.keyed("aescbc", WRONG)
    damaged = registry.stored(keys[0]) or b""
    return keys[0], flipped(damaged, (len(damaged) - 60) * 8)


def _under_a_key_of_its_rule(registry: Attacked) -> tuple[bytes, bytes]:
    """``key1`` became ``key3``, and ``key1`` has other bytes now: the tag fits under ``key3``, and proves no damage."""
    registry.rules(("secrets", (provider("secretbox", key1=WRONG, key3=TRUE), IDENTITY)))
    key = registry.key("shop/a")
    return key, seal("secretbox", secret("a"), key)


def _of_another_name(registry: Attacked) -> tuple[bytes, bytes]:
    """The server would serve it, so it is not ours to write: its name is another one's."""
    registry.keyed("secretbox")
    key = registry.key("shop/web")
    value = seal("secretbox", secret("another"), key)
    return key, flipped(value, (len(value) - 60) * 8)


def _of_one_key_twice(registry: Attacked) -> tuple[bytes, bytes]:
    """One key under two names, each a bit or two from the name that stands there."""
    registry.rules(("secrets", (provider("aesgcm", key0=TRUE, key1=TRUE), IDENTITY)))
    key = registry.key("shop/web")
    return key, seal("aesgcm", secret("web"), key, TRUE, "key3")


def _bound_to(bound: str) -> Callable[[Attacked], tuple[bytes, bytes]]:
    def prepare(registry: Attacked) -> tuple[bytes, bytes]:
        return registry.key("shop/copy"), seal("aesgcm", secret("web"), bound or registry.key("shop/web"))

    return prepare


def _of_an_unknown_owner(registry: Attacked) -> tuple[bytes, bytes]:
    """An owner that is not known leaves nothing that the object could be held against."""
    registry.rules(("widgets.example.com", (provider("aesgcm", key1=OTHER), IDENTITY)))
    key = registry.key("example.com/widgets/shop/w-0", "x").replace(b"/x/", b"/")
    return key, flipped(seal("aesgcm", json_object("example.com/v1", "Widget", "w-0"), key, OTHER), 900)


NEVER: dict[str, tuple[Callable[[Attacked], tuple[bytes, bytes]], str, str]] = {
    "a wrong key": (_wrong_key, "not-repairable", "wrong-key"),
    "under a key of its rule": (_under_a_key_of_its_rule, "not-repairable", "key-renamed"),
    "moved": (_bound_to(""), "not-repairable", "value-moved"),
    "bound to what nobody knows": (_bound_to("/hidden/registry/secrets/shop/web"), "not-repairable", ""),
    "of another name": (_of_another_name, "not-repairable", ""),
    "two fits": (_of_one_key_twice, "several-repairs", ""),
    "of an unknown owner": (_of_an_unknown_owner, "undetermined", ""),
}


@pytest.mark.parametrize("case", NEVER)
def test_what_no_risk_makes_repairable(registry: Attacked, case: str) -> None:
    prepare, rule, cause = NEVER[case]
    key, value = prepare(registry)
    registry.etcd.put(key, value)
    refuses(registry, key, rule, cause=cause, flags=EVERY_RISK)


def test_an_object_of_an_earlier_life_of_the_name(registry: Attacked) -> None:
    """An earlier revision of the same generation has another uid: no API server changes one."""
    key = registry.key("shop/web")
    meta = object_meta(b"web", b"shop", b"00000000-0000-0000-0000-000000000000")
    earlier = unknown(b"v1", b"Secret", block(1, meta))
    registry.etcd.put(key, seal("aesgcm", earlier, key))
    value = seal("aesgcm", secret("web"), key)
    registry.etcd.put(key, flipped(value, (len(value) - 60) * 8))
    refuses(registry, key, "other-object", flags=EVERY_RISK)
    registry.etcd.put(key, seal("aesgcm", secret("web"), key))
    registry.etcd.put(key, flipped(value, (len(value) - 60) * 8))
    assert registry.put_back(key, "bit", "--dry-run").code == 0


def test_aescbc_needs_a_word_and_what_is_written_is_said_to_be_unproven(registry: Attacked) -> None:
    registry.keyed("aescbc")
    key = registry.key("shop/web")
    value = seal("aescbc", secret("web"), key)
    at = body_of(value) + 16 + 32 + 3  # within ObjectMeta
    for bit in (at * 8, at * 8 + 5):
        registry.etcd.put(key, flipped(value, bit))
        refuses(registry, key, "unproven-repair", cause="--accept unproven-repair")
    ran = registry.put_back(key, "bit", "--accept", "unproven-repair")
    assert ran.code == 0, ran.err
    assert registry.stored(key) == value
    assert registry.records()[0].accepted == ("--accept unproven-repair",)


def test_a_deletion_names_a_repair_that_nothing_proves_and_is_not_refused_for_it(registry: Attacked) -> None:
    registry.keyed("aescbc")
    key = registry.key("shop/web")
    value = seal("aescbc", secret("web"), key)
    registry.etcd.put(key, flipped(value, (body_of(value) + 16 + 32 + 3) * 8))
    registry.secrets("aescbc", ["a", "b"])
    with registry.nothing_changes():
        ran = registry.delete(key, "--dry-run")
    assert ran.code == 0, ran.err
    (command,) = (line for line in ran.err.splitlines() if line.startswith("     etcdfix fix "))
    assert "--accept unproven-repair" in command


def test_an_unproven_repair_of_what_the_cluster_depends_on_needs_two_words(registry: Attacked) -> None:
    registry.keyed("aescbc")
    key = registry.key("kube-system/token")
    meta = object_meta(b"token", b"kube-system", UID)
    value = seal("aescbc", unknown(b"v1", b"Secret", block(1, meta)), key)
    registry.etcd.put(key, flipped(value, (body_of(value) + 16 + 35) * 8))
    refuses(registry, key, "cluster-breaking", flags=EVERY_RISK[:2], cause="--accept cluster-breaking")
    assert registry.put_back(key, "bit", *EVERY_RISK, "--dry-run").code == 0


PLAIN = {
    "magic": lambda value: b"k9s\x00" + value[4:],
    "CR LF": lambda value: value.replace(b"\n", b"\r\n"),
    "trailing": lambda value: value + b"\x00" * 7,
}
NEWER = ("--accept", "newer-than-known")


@pytest.fixture(scope="module")
def own_etcd(start_etcd: Callable[..., EtcdServer]) -> EtcdServer:
    return start_etcd()


@pytest.fixture
def plain(
    own_etcd: EtcdServer, prefix: bytes, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> Iterator[Attacked]:
    yield Attacked(own_etcd, prefix, tmp_path, capfd)
    own_etcd.etcdctl("del", "--prefix", "")


@pytest.mark.parametrize("what", PLAIN)
def test_an_unencrypted_value(plain: Attacked, what: str) -> None:
    registry = plain
    key = registry.key("shop/settings", "configmaps")
    value = config_map("settings")
    registry.etcd.put(key, PLAIN[what](value))
    accepted = () if what == "CR LF" else NEWER
    for flags in (["--no-encryption"], ["--encryption-config", str(registry.config)]):
        ran = registry.put_back(key, "bit", *flags, *accepted, "--dry-run", configured=False)
        assert ran.code == 0, ran.err
    refuses(registry, key, "no-configuration", configured=False)
    # A deletion says the same, and names the repair.
    ran = registry.delete(key, "--no-encryption", "-o", "json", configured=False)
    refusal = json.loads(ran.out)["refusal"]
    assert (ran.code, refusal["rule"]) == (4, "only-copy")
    assert "etcdfix fix" in refusal["next_step"]
    assert "--accept only-copy" in refusal["next_step"]
    ran = registry.put_back(key, "bit", "--no-encryption", *accepted, configured=False)
    assert ran.code == 0, ran.err
    assert registry.stored(key) == value


def test_a_bit_of_an_unencrypted_value_is_not_searched(plain: Attacked) -> None:
    registry = plain
    key = registry.key("shop/settings", "configmaps")
    value = config_map("settings")
    at = value.index(b"shop")
    for bit in ((at - 1) * 8 + 1, 4 * 8 + 1):
        registry.etcd.put(key, flipped(value, bit))
        flags = ("--no-encryption", *EVERY_RISK)
        refuses(registry, key, "not-repairable", "inconsistent", flags=flags, configured=False)


def test_magic_that_none_of_its_kind_has_may_be_a_newer_encoding(plain: Attacked) -> None:
    registry = plain
    keys = [registry.key(f"shop/{name}", "configmaps") for name in ("a", "b")]
    for key, name in zip(keys, ("a", "b"), strict=True):
        registry.etcd.put(key, b"k9s\x00" + config_map(name)[4:])
    flags = ("--no-encryption", *EVERY_RISK)
    for key in keys:
        refuses(registry, key, "fails-like-others", flags=flags, configured=False)
    # Where others begin in other ways, this one is damaged.
    registry.etcd.put(keys[1], b"k8t\x00" + config_map("b")[4:])
    registry.etcd.put(registry.key("shop/c", "configmaps"), config_map("c"))
    assert (
        registry.put_back(keys[0], "bit", "--no-encryption", *NEWER, "--dry-run", configured=False).code == 0
    )


def test_a_deletion_names_the_repair_with_what_it_has_to_accept(registry: Attacked) -> None:
    """CR LF under AES-CBC: an object comes out, and no tag proves it."""
    registry.keyed("aescbc")
    for number in range(60):
        key = registry.key(f"shop/s-{number}")
        value = seal("aescbc", secret(f"s-{number}", size=300), key)
        if value.count(b"\n") == 1:
            break
    registry.etcd.put(key, value.replace(b"\n", b"\r\n"))
    (ran,) = registry.refuses([key], accept="only-copy")
    step = json.loads(ran.out)["refusal"]["next_step"]
    command = step.partition("put it right: ")[2].partition(";")[0]
    assert "--accept unproven-repair" in command
    assert registry.paste(command.replace("REASON", "x") + " --accept no-api-server").code == 0


@pytest.mark.parametrize("kind", ["kms/v2/1"])
def test_an_envelope_that_not_every_data_key_was_tried_on(
    registry: Attacked, sealer: Sealer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("etcdfix.encryption.kms.transformer.MOST_WITNESSES", 1)
    key, value = sealer("only")
    registry.etcd.put(key, value[:-60])
    assert sealer.plugin is not None
    for name in ("other", "third"):
        at, source = registry.key(f"shop/{name}"), random.Random(name).randbytes(32)
        how: dict[str, Any] = {
            "source_type": 1,
            "source": source,
            "wrapped": sealer.plugin.encrypt(source, ""),
        }
        registry.etcd.put(at, sealer.plugin.stored_v2(secret(name), at, **how))
    refuses(registry, key, "not-repairable", flags=EVERY_RISK)
    registry.refuses([key], accept="only-copy")
    assert registry.delete(key, "--accept", "only-copy", "--dry-run").code == 0


def test_no_encryption_over_an_encrypted_value(registry: Attacked) -> None:
    key, value = web(registry)
    for stored in (flipped(value, 3), flipped(value, 4, 9), flipped(value, 600)):
        registry.etcd.put(key, stored)
        refuses(registry, key, "configuration-wrong", flags=("--no-encryption",), configured=False)


def test_text_mode_of_many_values_is_undone_one_by_one(registry: Attacked) -> None:
    damaged: dict[bytes, bytes] = {}
    for number in range(40):
        key = registry.key(f"shop/s-{number}")
        value = seal("aesgcm", secret(f"s-{number}", size=600), key)
        if b"\n" in value:
            damaged[key] = value
            registry.etcd.put(key, value.replace(b"\n", b"\r\n"))
    assert len(damaged) > 12
    for key, value in [*damaged.items()][:2]:
        assert registry.put_back(key, "bit").code == 0
        assert registry.stored(key) == value


@pytest.mark.parametrize("kind", ["kms/v2/1"])
def test_a_plugin_that_is_gone(registry: Attacked, sealer: Sealer) -> None:
    key, value = sealer("only")
    registry.etcd.put(key, flipped(value, (len(value) - 60) * 8))
    refuses(registry, key, "undetermined", flags=("--no-kms",))


def test_hostile_names(registry: Attacked) -> None:
    name = "web\u202e\x1b[2J$(id)"
    key = registry.key(f"shop/{name}")
    meta = object_meta(name.encode(), b"shop", UID)
    value = seal("aesgcm", unknown(b"v1", b"Secret", block(1, meta)), key)
    registry.etcd.put(key, flipped(value, (len(value) - 40) * 8))
    ran = registry.put_back(key, "bit")
    assert ran.code == 0, ran.err
    assert "\x1b" not in ran.out + ran.err
    assert "\u202e" not in ran.out + ran.err
    assert registry.stored(key) == value


def test_expectations_snapshots_and_names(registry: Attacked, tmp_path: Path) -> None:
    key, value = web(registry)
    registry.etcd.put(key, flipped(value, 700))
    refuses(registry, key, "expectation-differs", flags=("--expect-mod-revision", "1"))
    refuses(registry, key, "expectation-differs", flags=("--expect-value-sha256", "sha256:" + "0" * 64))
    refuses(registry, registry.key("shop/gone"), "gone")
    refuses(registry, registry.key("shop"), "not-one-key")
    ran = registry.put_back(key, "bit", reason=" ")
    assert ran.code == 2
    refuses(registry, registry.key("kube-system", "namespaces"), "readable")


def test_what_moves_meanwhile_is_left_alone(registry: Attacked, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the search and the transaction an API server writes the value anew."""
    key, value = web(registry)
    registry.etcd.put(key, flipped(value, 900))
    newer = seal("aesgcm", secret("web", size=99), key)

    def late(*arguments: Any, **named: Any) -> ChangeOutcome:
        registry.etcd.put(key, newer)
        return carry_out(*arguments, **named)

    monkeypatch.setattr(fix_module, "carry_out", late)
    ran = registry.put_back(key, "bit")
    assert ran.code == 4, ran
    assert registry.stored(key) == newer


def test_what_does_not_read_back_is_told(registry: Attacked, monkeypatch: pytest.MonkeyPatch) -> None:
    key, value = web(registry)
    registry.etcd.put(key, flipped(value, 900))
    real = EtcdNow.read_key

    def other(now: EtcdNow, at: bytes) -> KeyReading:
        reading = real(now, at)
        there = reading.stored
        assert there is not None
        if there.value != value:
            return reading  # before the repair
        changed = StoredValue(
            there.key, value[:-1], there.mod_revision, there.create_revision, there.version, there.lease
        )
        return msgspec.structs.replace(reading, stored=changed)

    monkeypatch.setattr(EtcdNow, "read_key", other)
    ran = registry.put_back(key, "bit")
    assert ran.code == 3
