"""Whatever is tried, a repair writes the bytes that an API server wrote, or nothing at all."""

from __future__ import annotations

import json
import os
import random
import shlex
from collections.abc import Callable, Iterator
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
from tests.support.attacks import (
    EVERY_FLAG,
    LOCAL,
    OTHER,
    TRUE,
    UID,
    WRONG,
    Attacked,
    config_map,
    seal,
    secret,
)
from tests.support.change_runs import PLAINTEXT, Ran, holds
from tests.support.kms_plugin import KMSPlugin
from tests.support.objects import IDENTITY, json_object, provider

pytestmark = [pytest.mark.etcd, pytest.mark.usefixtures("no_variables")]

KEKS = {"kek-1": b"1" * 32, "kek-2": b"2" * 32}
PLUGINS = {"kms/v1": "v1", "kms/v2/0": "v2", "kms/v2/1": "v2"}
TAGGED = ("aesgcm", "secretbox", *PLUGINS)

Sealer = Callable[[str], tuple[bytes, bytes]]


@pytest.fixture
def plugin(tmp_path: Path) -> Iterator[Callable[[str], KMSPlugin]]:
    made: list[KMSPlugin] = []

    def make(kind: str) -> KMSPlugin:
        if not made:
            made.append(KMSPlugin(PLUGINS[kind], f"@etcdfix-repair-{os.getpid()}-{tmp_path.name}", KEKS))
        return made[-1]

    yield make
    for one in made:
        one.stop()


def sealer_of(registry: Attacked, plugin: Callable[[str], KMSPlugin], kind: str) -> Sealer:
    if kind in {*LOCAL}:
        registry.keyed(kind)
        return lambda name: (key := registry.key(f"shop/{name}"), seal(kind, secret(name), key))
    running = plugin(kind)
    kms = {"apiVersion": running.api_version, "name": "prov", "endpoint": running.endpoint, "timeout": "5s"}
    registry.rules(("secrets", ({"kms": kms}, IDENTITY)))

    # An API server makes one seed for all that it writes.
    source = random.Random(kind).randbytes(32)
    wrapped = running.encrypt(source, "")

    def remote(name: str) -> tuple[bytes, bytes]:
        key = registry.key(f"shop/{name}")
        if kind == "kms/v1":
            return key, running.stored_v1(secret(name), key)
        sealed = running.stored_v2(
            secret(name), key, source_type=int(kind[-1]), source=source, wrapped=wrapped
        )
        return key, sealed

    return remote


def web(registry: Attacked) -> tuple[bytes, bytes]:
    registry.keyed("aesgcm")
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


def refused(ran: Ran, rule: str, *words: str, hint: str = "") -> None:
    document = json.loads(ran.out)
    refusal = document["refusal"]
    assert (ran.code, document["result"], document["command"]) == (4, "refused", "fix"), ran
    assert refusal["rule"] == rule, refusal
    for word in words:
        assert word in refusal["message"], refusal
    assert hint in refusal["next_step"], refusal
    assert "never-to-be-shown" not in ran.out + ran.err


def refuses(
    registry: Attacked, key: bytes, rule: str, *words: str, hint: str = "", flags: tuple[str, ...] = ()
) -> None:
    with registry.nothing_changes():
        refused(registry.put_back(key, "bit", "-o", "json", *flags), rule, *words, hint=hint)


EVERY_RISK = (
    "--accept", "unproven-repair", "--accept", "cluster-breaking", "--accept", "newer-than-known",
)  # fmt: skip


@pytest.mark.parametrize("kind", TAGGED)
def test_a_bit_is_put_back_and_that_can_be_undone(
    registry: Attacked, plugin: Callable[[str], KMSPlugin], kind: str
) -> None:
    sealed = sealer_of(registry, plugin, kind)
    key, value = sealed("only")
    other, healthy = sealed("other")
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
def test_a_wrapped_key_comes_from_a_neighbour(
    registry: Attacked, plugin: Callable[[str], KMSPlugin], kind: str
) -> None:
    sealed = sealer_of(registry, plugin, kind)
    (key, value), (other, healthy) = sealed("only"), sealed("other")
    damaged = value[:-60] + bytes(30) + value[-30:]
    registry.etcd.put(key, damaged)
    with registry.nothing_changes():
        assert registry.put_back(key, "bit").code == 4  # nobody else has it
    registry.etcd.put(other, healthy)
    ran = registry.put_back(key, "bit")
    assert ran.code == 0, ran.err
    assert "the wrapped data key of another value" in ran.err
    assert registry.stored(key) == value


@pytest.mark.parametrize("kind", TAGGED)
def test_what_must_not_be_repaired(registry: Attacked, plugin: Callable[[str], KMSPlugin], kind: str) -> None:
    sealed = sealer_of(registry, plugin, kind)
    (key, value), (other, healthy) = sealed("only"), sealed("other")
    registry.etcd.put(other, healthy)
    cases = {
        "healthy": (value, {"readable"}),
        "two bits": (
            flipped(value, (body_of(value) + 90) * 8, (body_of(value) + 100) * 8),
            {"not-repairable"},
        ),
        "cut": (value[: len(value) // 2], {"not-repairable", "undetermined"}),
        "empty": (b"", {"not-repairable"}),
        "of another key": (flipped(healthy, (body_of(healthy) + 90) * 8), {"not-repairable"}),
    }
    for what, (stored, rules) in cases.items():
        registry.etcd.put(key, stored)
        for flags in ((), EVERY_RISK):
            with registry.nothing_changes():
                ran = registry.put_back(key, "bit", "-o", "json", *flags)
            assert ran.code == 4, (what, ran)
            assert json.loads(ran.out)["refusal"]["rule"] in rules, (what, ran.out)


@pytest.mark.parametrize("kind", LOCAL)
def test_a_wrong_key_repairs_nothing(registry: Attacked, kind: str) -> None:
    keys = registry.secrets(kind, [f"s-{n}" for n in range(4)])
    registry.keyed(kind, WRONG)
    damaged = registry.stored(keys[0])
    assert damaged is not None
    registry.etcd.put(keys[0], flipped(damaged, (len(damaged) - 60) * 8))
    for key in keys[:2]:
        refuses(registry, key, "not-repairable", "wrong-key", flags=EVERY_RISK, hint="etcdfix explain")


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
    refuses(
        registry, keys[0], "curable-by-configuration", "which does not open either",
        hint="its name back", flags=EVERY_RISK,
    )  # fmt: skip
    # Where the other one reads, this one alone has that name; its key may have had it all the same.
    registry.etcd.put(keys[1], seal("aesgcm", secret("b"), keys[1], TRUE, "key3"))
    refuses(
        registry, keys[0], "unproven-repair", "nothing proves that its name is damaged",
        hint="--accept unproven-repair",
    )  # fmt: skip
    refused = ["the configuration alone can cure this"]
    for hint in ("etcdfix fix ", "the key is there"):
        registry.refuses([keys[0]], says=refused, hint=hint)
        registry.refuses([keys[0]], *EVERY_FLAG, says=refused, hint=hint)
    for word in (
        ["scan"],
        ["scan", keys[0].decode()],
        ["explain", keys[0].decode()],
        ["copies", keys[0].decode()],
    ):
        command = first_command(registry, *word)
        assert command[:3] == ["etcdfix", "fix", keys[0].decode()], word
        assert pasted(registry, command).code == 0, word
    assert "ANOTHER KEY MAY HAVE THAT NAME" in registry.put_back(keys[0], "bit", *EVERY_RISK, "--dry-run").err
    command.remove("--dry-run")
    assert pasted(registry, command, "--yes").code == 0
    assert registry.stored(keys[0]) == seal("aesgcm", secret("a"), keys[0], TRUE, "key3")


@pytest.mark.parametrize("kind", LOCAL)
def test_a_value_that_names_a_key_of_its_rule_is_not_written_under_another(
    registry: Attacked, kind: str
) -> None:
    """``key1`` became ``key3``, and ``key1`` has other bytes now: the tag fits under ``key3``, and proves no damage."""
    (key,) = registry.secrets(kind, ["a"], key_name="key1")
    registry.rules(("secrets", (provider(kind, key1=WRONG, key3=TRUE), IDENTITY)))
    refuses(registry, key, "not-repairable", "key-renamed", flags=EVERY_RISK)
    registry.refuses([key])


def test_a_moved_value_is_not_bound_anew(registry: Attacked) -> None:
    key, home = registry.key("shop/copy"), registry.key("shop/web")
    registry.etcd.put(key, seal("aesgcm", secret("web"), home))
    refuses(registry, key, "not-repairable", "value-moved", flags=EVERY_RISK)


def test_associated_data_that_nobody_knows(registry: Attacked) -> None:
    key = registry.key("shop/web")
    registry.etcd.put(key, seal("aesgcm", secret("web"), "/hidden/registry/secrets/shop/web"))
    refuses(registry, key, "not-repairable", flags=EVERY_RISK)


def test_what_would_read_and_contradict_itself(registry: Attacked) -> None:
    """The server would serve it, so it is not ours to write: its name is another one's."""
    registry.keyed("secretbox")
    key = registry.key("shop/web")
    value = seal("secretbox", secret("another"), key)
    registry.etcd.put(key, flipped(value, (len(value) - 60) * 8))
    refuses(registry, key, "not-repairable", "holds what is inconsistent", flags=EVERY_RISK)


def test_an_object_of_an_earlier_life_of_the_name(registry: Attacked) -> None:
    """An earlier revision of the same generation has another uid: no API server changes one."""
    key = registry.key("shop/web")
    meta = object_meta(b"web", b"shop", b"00000000-0000-0000-0000-000000000000")
    earlier = unknown(b"v1", b"Secret", block(1, meta))
    registry.etcd.put(key, seal("aesgcm", earlier, key))
    value = seal("aesgcm", secret("web"), key)
    registry.etcd.put(key, flipped(value, (len(value) - 60) * 8))
    refuses(registry, key, "other-object", "its uid is", flags=EVERY_RISK)
    registry.etcd.put(key, seal("aesgcm", secret("web"), key))
    registry.etcd.put(key, flipped(value, (len(value) - 60) * 8))
    assert registry.put_back(key, "bit", "--dry-run").code == 0


def test_two_fits_are_none(registry: Attacked) -> None:
    """One key under two names, each a bit or two from the name that stands there."""
    registry.rules(("secrets", (provider("aesgcm", key0=TRUE, key1=TRUE), IDENTITY)))
    key = registry.key("shop/web")
    registry.etcd.put(key, seal("aesgcm", secret("web"), key, TRUE, "key3"))
    refuses(registry, key, "several-repairs", "nothing says which", flags=EVERY_RISK)


def test_aescbc_needs_a_word_and_what_is_written_is_said_to_be_unproven(registry: Attacked) -> None:
    registry.keyed("aescbc")
    key = registry.key("shop/web")
    value = seal("aescbc", secret("web"), key)
    at = body_of(value) + 16 + 32 + 3  # within ObjectMeta
    for bit in range(at * 8, at * 8 + 8):
        registry.etcd.put(key, flipped(value, bit))
        refuses(registry, key, "unproven-repair", "no tag", hint="--accept unproven-repair")
    ran = registry.put_back(key, "bit", "--accept", "unproven-repair")
    assert ran.code == 0, ran.err
    assert "ITS CONTENTS MAY BE WRONG" in ran.err
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
    (line,) = (line for line in ran.err.splitlines() if line.startswith("May repair "))
    assert line.endswith(": an object of this etcd key comes out, and nothing proves its contents")
    (command,) = (line for line in ran.err.splitlines() if line.startswith("     etcdfix fix "))
    assert "--accept unproven-repair" in command
    assert "nothing proves it" in ran.err


def test_an_unproven_repair_of_what_the_cluster_depends_on_needs_two_words(registry: Attacked) -> None:
    registry.keyed("aescbc")
    key = registry.key("kube-system/token")
    meta = object_meta(b"token", b"kube-system", UID)
    value = seal("aescbc", unknown(b"v1", b"Secret", block(1, meta)), key)
    registry.etcd.put(key, flipped(value, (body_of(value) + 16 + 35) * 8))
    refuses(registry, key, "cluster-breaking", flags=EVERY_RISK[:2], hint="--accept cluster-breaking")
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
        assert "no bit was searched for" in ran.err
    registry.refused(
        registry.put_back(key, "bit", configured=False),
        "no encryption configuration was given",
        hint="--no-encryption",
    )
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
        ran = registry.put_back(key, "bit", "--no-encryption", *EVERY_RISK, "-o", "json", configured=False)
        assert json.loads(ran.out)["refusal"]["rule"] in {"not-repairable", "inconsistent"}, ran.out
        assert ran.code == 4


def test_magic_that_none_of_its_kind_has_may_be_a_newer_encoding(plain: Attacked) -> None:
    registry = plain
    keys = [registry.key(f"shop/{name}", "configmaps") for name in ("a", "b")]
    for key, name in zip(keys, ("a", "b"), strict=True):
        registry.etcd.put(key, b"k9s\x00" + config_map(name)[4:])
    for key in keys:
        with registry.nothing_changes():
            ran = registry.put_back(
                key, "bit", "--no-encryption", *EVERY_RISK, "-o", "json", configured=False
            )
        refused(ran, "fails-like-others", "not the object", hint="use an etcdfix that knows")
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
    ran = registry.delete(key, "-o", "json")
    refusal = json.loads(ran.out)["refusal"]
    assert (ran.code, refusal["rule"]) == (4, "only-copy")
    assert "may be had back whole" in refusal["message"]
    assert "nothing proves it" in refusal["message"]
    command = refusal["next_step"].partition("put it right: ")[2].partition(";")[0]
    assert "--accept unproven-repair" in command
    words = command.replace("REASON", "x").split()
    places = [
        "--backup-dir",
        str(registry.backups),
        "--audit-log",
        str(registry.log),
        "--accept",
        "no-api-server",
    ]
    assert registry.run(*words[1:], *places).code == 0


@pytest.mark.parametrize("kind", ["kms/v2/1"])
def test_an_envelope_that_not_every_data_key_was_tried_on(
    registry: Attacked, plugin: Callable[[str], KMSPlugin], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("etcdfix.encryption.kms.transformer.MOST_WITNESSES", 1)
    sealed = sealer_of(registry, plugin, kind)
    key, value = sealed("only")
    registry.etcd.put(key, value[:-60])
    plug = plugin(kind)
    for name in ("other", "third"):
        at = registry.key(f"shop/{name}")
        source = random.Random(name).randbytes(32)
        wrapped = plug.encrypt(source, "")
        registry.etcd.put(at, plug.stored_v2(secret(name), at, source_type=1, source=source, wrapped=wrapped))
    refuses(registry, key, "not-repairable", "not searched: not all data keys", flags=EVERY_RISK)
    registry.refuses([key], says="more data keys of its KMS provider", hint="--accept only-copy")
    assert registry.delete(key, "--accept", "only-copy", "--dry-run").code == 0


def test_no_encryption_over_an_encrypted_value(registry: Attacked) -> None:
    key, value = web(registry)
    for stored in (flipped(value, 3), flipped(value, 4, 9), flipped(value, 600)):
        registry.etcd.put(key, stored)
        with registry.nothing_changes():
            ran = registry.put_back(key, "bit", "--no-encryption", "-o", "json", configured=False)
        refused(ran, "configuration-wrong", "there is encryption at rest")


def test_text_mode_of_many_values_is_undone_one_by_one(registry: Attacked) -> None:
    damaged: dict[bytes, bytes] = {}
    for number in range(40):
        key = registry.key(f"shop/s-{number}")
        value = seal("aesgcm", secret(f"s-{number}", size=600), key)
        if b"\n" in value:
            damaged[key] = value
            registry.etcd.put(key, value.replace(b"\n", b"\r\n"))
    assert len(damaged) > 12
    for key, value in [*damaged.items()][:3]:
        ran = registry.put_back(key, "bit")
        assert ran.code == 0, ran.err
        assert registry.stored(key) == value


@pytest.mark.parametrize("kind", ["kms/v2/1", "kms/v1"])
def test_a_plugin_that_is_gone(registry: Attacked, plugin: Callable[[str], KMSPlugin], kind: str) -> None:
    sealed = sealer_of(registry, plugin, kind)
    key, value = sealed("only")
    registry.etcd.put(key, flipped(value, (len(value) - 60) * 8))
    refuses(registry, key, "undetermined", hint="the plugin may answer later", flags=("--no-kms",))


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
    assert "READ BACK, AND IT IS NOT AS IT WAS WRITTEN" in ran.out


def test_custom_resources_and_json(registry: Attacked) -> None:
    """An owner that is not known leaves nothing that the object could be held against."""
    registry.rules(("widgets.example.com", (provider("aesgcm", key1=OTHER), IDENTITY)))
    key = registry.key("example.com/widgets/shop/w-0", "x").replace(b"/x/", b"/")
    value = seal("aesgcm", json_object("example.com/v1", "Widget", "w-0"), key, OTHER)
    registry.etcd.put(key, flipped(value, 900))
    with registry.nothing_changes():
        ran = registry.put_back(key, "bit", "-o", "json", *EVERY_RISK)
    assert json.loads(ran.out)["refusal"]["rule"] in {"undetermined", "not-repairable"}
    assert PLAINTEXT not in ran.err.encode()
