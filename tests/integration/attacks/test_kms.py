"""Attacks with KMS plugins: of another keyring, with another key behind the same id, unwell, or not asked."""

from __future__ import annotations

import json
import os
import secrets
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from etcdfix.cli import changing
from etcdfix.model.model import key_id_digest
from etcdfix.model.rules import Rule
from tests.support import encoders
from tests.support.attacks import EVERY_FLAG, Attacked, declared, every_flag_but, secret
from tests.support.kms_plugin import ANNOTATION, V1, V2, KMSPlugin, Refusal
from tests.support.kubernetes_api import KubernetesAPI, read_error
from tests.support.objects import IDENTITY

pytestmark = [pytest.mark.etcd, pytest.mark.usefixtures("no_variables")]

KEKS = {"kek-1": b"1" * 32, "kek-2": b"2" * 32}
REPLACED = {"kek-1": b"3" * 32, "kek-2": b"4" * 32}
UNPROVEN = "nothing is proven against the value"


@pytest.fixture(params=["v1", "v2"])
def plugin(request: pytest.FixtureRequest, registry: Attacked, tmp_path: Path) -> Iterator[KMSPlugin]:
    with KMSPlugin(request.param, f"@etcdfix-attack-{os.getpid()}-{tmp_path.name}", KEKS) as running:
        kms = {"apiVersion": request.param, "name": "prov", "endpoint": running.endpoint, "timeout": "5s"}
        registry.rules(("secrets", ({"kms": kms}, IDENTITY)))
        yield running


@pytest.mark.parametrize("at_name", ["prov", "newname"])
def test_a_plugin_elsewhere_opens_it(registry: Attacked, plugin: KMSPlugin, at_name: str) -> None:
    """The value names a provider that its rule lacks; its plugin stands in another rule, or under another name."""
    kms = {"apiVersion": plugin.api_version, "name": at_name, "endpoint": plugin.endpoint, "timeout": "5s"}
    if at_name == "prov":
        registry.rules(("secrets", (IDENTITY,)), ("configmaps", ({"kms": kms}, IDENTITY)))
    else:
        registry.rules(("secrets", ({"kms": kms}, IDENTITY)))
    keys = store(registry, plugin, "a", "b")
    registry.refuses(keys, *EVERY_FLAG, *lost(plugin), rule="declaration")
    # Nobody can say that it does not open it.
    plugin.refusal = Refusal("UNAVAILABLE")
    registry.refuses(keys, *EVERY_FLAG, *lost(plugin), rule="declaration")


only_v2 = pytest.mark.parametrize("plugin", ["v2"], indirect=True)


def store(registry: Attacked, plugin: KMSPlugin, *names: str, key_id: str = "kek-1") -> list[bytes]:
    keys = [registry.key(f"shop/{name}") for name in names]
    seal: Callable[..., bytes] = plugin.stored_v1 if plugin.api_version == "v1" else plugin.stored_v2
    for at, name in zip(keys, names, strict=True):
        registry.etcd.put(at, seal(secret(name), at, key_id=key_id))
    return keys


def lost(plugin: KMSPlugin, key_id: str = "kek-1") -> tuple[str, ...]:
    return declared("kms/v1/prov" if plugin.api_version == "v1" else f"kms/v2/prov/{key_id_digest(key_id)}")


NAMES = [f"db-{number}" for number in range(12)]


@pytest.mark.parametrize("names", [["alone"], NAMES])
def test_plugin_of_another_keyring(registry: Attacked, plugin: KMSPlugin, names: list[str]) -> None:
    """It is well, and refuses every data key as damaged."""
    keys = store(registry, plugin, *names)
    plugin.keks = dict(REPLACED)
    registry.refuses(keys, rule="undetermined")
    registry.refuses(keys[:2], *EVERY_FLAG, rule="undetermined")


@pytest.mark.parametrize("names", [["alone"], NAMES[:3]])
def test_plugin_that_makes_something_of_every_data_key(
    registry: Attacked, plugin: KMSPlugin, names: list[str]
) -> None:
    """Not every KMS authenticates what it unwraps: the data key that comes back is another one."""
    keys = store(registry, plugin, *names)
    plugin.damage = lambda dek: bytes(byte ^ 0x55 for byte in dek)
    registry.refuses(keys, *EVERY_FLAG, rule="undetermined")
    plugin.damage = lambda dek: dek[:7]
    registry.refuses(keys, *EVERY_FLAG, rule="undetermined")


@pytest.mark.parametrize("names", [["old"], NAMES[:3]])
def test_key_replaced_behind_its_id(registry: Attacked, plugin: KMSPlugin, names: list[str]) -> None:
    """Newer values open under the same key id, so the plugin is the right one and well; old ones it refuses."""
    old = store(registry, plugin, *names)
    plugin.keks = dict(REPLACED)
    store(registry, plugin, *(f"new-{number}" for number in range(12)))
    registry.refuses(old, *EVERY_FLAG, rule="undetermined")
    assert registry.delete(old[0], *lost(plugin), "--dry-run").code == 0


def test_key_replaced_behind_its_id_and_put_back(registry: Attacked, plugin: KMSPlugin) -> None:
    """Values before and after open: that is called likely damage, and a person has to say more."""
    store(registry, plugin, "before")
    plugin.keks = dict(REPLACED)
    between = store(registry, plugin, "between")
    plugin.keks = dict(KEKS)
    store(registry, plugin, "later")
    registry.refuses(between, *every_flag_but(Rule.UNPROVEN_DAMAGE), accept="unproven-damage")


@pytest.mark.parametrize(
    "refusal",
    [Refusal("PERMISSION_DENIED", "no"), Refusal("NOT_FOUND", "no"), Refusal("INTERNAL", "no"),
     Refusal("UNAVAILABLE", "later"), Refusal("INVALID_ARGUMENT", "ciphertext damaged")],
)  # fmt: skip
def test_plugin_that_refuses_one(registry: Attacked, plugin: KMSPlugin, refusal: Refusal) -> None:
    """It opens all others, newer ones and other key ids too, and says no to this one, with whatever word."""
    (at,) = store(registry, plugin, "web")
    store(registry, plugin, *NAMES[:3])
    stored = registry.stored(at)
    assert stored is not None
    plugin.script = lambda request: (
        refusal if (request.cipher if plugin.api_version == "v1" else request.ciphertext) in stored else None
    )
    registry.refuses([at], *EVERY_FLAG, rule="undetermined")


def test_newest_value_whose_wrapped_key_is_damaged(
    registry: Attacked, plugin: KMSPlugin, api: KubernetesAPI
) -> None:
    """Only an API server can tell it from a keyring that was replaced: the way that is printed then goes through."""
    store(registry, plugin, *NAMES[:3])
    (at,) = store(registry, plugin, "web")
    stored = registry.stored(at)
    assert stored is not None
    plugin.script = lambda request: (
        Refusal("INVALID_ARGUMENT", "ciphertext damaged")
        if (request.cipher if plugin.api_version == "v1" else request.ciphertext) in stored
        else None
    )
    registry.refuses([at], *EVERY_FLAG, says="its damage is only possible", hint="--kubeconfig FILE")
    asking = ("--kubeconfig", str(api.kubeconfig(registry.folder)))
    ran = registry.delete(at, "--accept", "unproven-damage", *asking, "--dry-run")
    assert ran.code == 0, ran.err
    assert "kms-envelope-damaged" in ran.err
    store(registry, plugin, "later")
    ran = registry.delete(at, "--accept", "unproven-damage", "--dry-run")
    assert ran.code == 0, ran.err


@pytest.mark.parametrize(
    ("wrong", "times"),
    [
        ("another data key", 1),
        ("another data key", 2),
        ("another data key", 3),
        ("a refusal", 1),
        ("a refusal", 2),
    ],
)
def test_answers_that_are_wrong_for_a_moment(
    registry: Attacked, plugin: KMSPlugin, wrong: str, times: int
) -> None:
    """The plugin is well, and while a healthy value is looked at, it answers with something else."""
    store(registry, plugin, *NAMES[:3])
    (at,) = store(registry, plugin, "web")
    store(registry, plugin, *NAMES[3:6])
    stored = registry.stored(at)
    assert stored is not None
    asked = 0

    def script(request: Any) -> Refusal | bytes | None:
        nonlocal asked
        v1 = plugin.api_version == "v1"
        if (request.cipher if v1 else request.ciphertext) not in stored:
            return None
        asked += 1
        if asked > times:
            return None
        if wrong == "a refusal":
            return Refusal("INVALID_ARGUMENT", "ciphertext damaged")
        other = {"plain": b"x" * 32} if v1 else {"plaintext": b"x" * 32}
        answer: bytes = (V1 if v1 else V2)["DecryptResponse"](**other).SerializeToString()
        return answer

    plugin.script = script
    with registry.nothing_changes():
        ran = registry.delete(at, *EVERY_FLAG, "-o", "json")
    assert ran.code == 4, ran
    assert json.loads(ran.out)["refusal"]["rule"] in {"readable", "undetermined"}


def test_plugin_that_is_down_and_nobody_to_contradict(
    registry: Attacked, plugin: KMSPlugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script declares the key lost while the plugin only takes a rest; at a terminal somebody types it."""
    (at, _) = store(registry, plugin, "web", "db")
    plugin.stop()
    for flags in ((), ("--dry-run",)):
        (ran,) = registry.refuses(
            [at],
            *EVERY_FLAG,
            *lost(plugin),
            *flags,
            says="which is what an outage looks like",
            hint="--kubeconfig",
        )
        assert json.loads(ran.out)["refusal"]["rule"] == "no-api-server"
    monkeypatch.setattr(changing, "is_terminal", lambda: True)
    with registry.nothing_changes():
        assert registry.delete(at, *EVERY_FLAG, *lost(plugin), "--dry-run").code == 0


@pytest.mark.parametrize("words", ["Unavailable", "DeadlineExceeded"])
def test_plugin_that_is_down_for_the_servers_too(
    registry: Attacked, plugin: KMSPlugin, api: KubernetesAPI, words: str
) -> None:
    """What a server says of its own plugin's outage contradicts nobody."""
    (at, _) = store(registry, plugin, "web", "db")
    plugin.stop()
    asking = ("--kubeconfig", str(api.kubeconfig(registry.folder)))
    path = "/api/v1/namespaces/shop/secrets/web"
    error = f"rpc error: code = {words} desc = connection refused"
    api.instead[path] = read_error(f'Internal error occurred: unable to transform key "/registry/x": {error}')
    with registry.nothing_changes():
        ran = registry.delete(at, *EVERY_FLAG, *lost(plugin), *asking, "-o", "json")
    assert (ran.code, json.loads(ran.out)["refusal"]["rule"]) == (4, "no-api-server"), ran
    api.instead[path] = read_error(
        f'unable to transform key "/registry/x": {error}'.replace(words, "NotFound")
    )
    assert registry.delete(at, *EVERY_FLAG, *lost(plugin), *asking, "--dry-run").code == 0


def test_plugin_that_is_not_asked(registry: Attacked, plugin: KMSPlugin) -> None:
    keys = store(registry, plugin, "web", "db")
    registry.refuses(keys, *EVERY_FLAG, "--no-kms", says="no plugin was asked", hint="leave --no-kms out")
    registry.refuses(
        keys, *EVERY_FLAG, *lost(plugin), "--no-kms", says="no plugin was asked", hint="leave --no-kms out"
    )


def test_provider_of_another_name(registry: Attacked, plugin: KMSPlugin) -> None:
    keys = store(registry, plugin, "web", "db")
    kms = {"apiVersion": plugin.api_version, "name": "another", "endpoint": plugin.endpoint, "timeout": "5s"}
    registry.rules(("secrets", ({"kms": kms}, IDENTITY)))
    registry.refuses(keys, *EVERY_FLAG, cause="key-renamed")


@pytest.mark.parametrize("words", [["scan"], ["scan", "KEY"], ["explain", "KEY"]])
def test_one_bit_of_a_providers_name_is_put_back(
    registry: Attacked, plugin: KMSPlugin, words: list[str]
) -> None:
    store(registry, plugin, "a", "b")
    at = registry.key("shop/web")
    seal: Callable[..., bytes] = plugin.stored_v1 if plugin.api_version == "v1" else plugin.stored_v2
    value = seal(secret("web"), at)
    registry.etcd.put(at, value.replace(b":prov:", b":prow:", 1))
    common = registry.common(places=False, reason=None)
    ran = registry.run(*(at.decode() if word == "KEY" else word for word in words), *common, "-o", "json")
    document = json.loads(ran.out)
    step = document["summary"]["next"] if "summary" in document else document["next"]
    command = shlex.split(step["command"])
    assert command[:3] == ["etcdfix", "fix", at.decode()]
    command.remove("--dry-run")
    places = ["--backup-dir", str(registry.backups), "--audit-log", str(registry.log)]
    assert registry.run(*command[1:], *places, "--yes").code == 0
    assert registry.stored(at) == value


def test_declared_key_that_is_alive(registry: Attacked, plugin: KMSPlugin) -> None:
    keys = store(registry, plugin, "web")
    registry.refuses(keys, *EVERY_FLAG, *lost(plugin), rule="readable")


def test_associated_data_of_a_proxy_with_a_namespace(registry: Attacked, plugin: KMSPlugin) -> None:
    """The data keys are right, every value is whole, and is bound to an etcd key that nobody can guess."""
    keys = [registry.key(f"shop/{name}") for name in NAMES]
    seal: Callable[..., bytes] = plugin.stored_v1 if plugin.api_version == "v1" else plugin.stored_v2
    for at, name in zip(keys, NAMES, strict=True):
        registry.etcd.put(at, seal(secret(name), b"tenant-7" + at))
    for flags in ((), EVERY_FLAG):
        registry.refuses(keys[:1], *flags, cause="associated-data-unknown")


@only_v2
@pytest.mark.parametrize(("source_type", "padding"), [(2, 0), (1, 1000)])
def test_envelope_that_a_newer_server_may_accept(
    registry: Attacked, plugin: KMSPlugin, source_type: int, padding: int
) -> None:
    """A third kind of data key, or a longer one, looks like a damaged envelope to a tool that knows two."""
    keys = []
    for name in NAMES:
        at = registry.key(f"shop/{name}")
        wrapped = plugin.encrypt(secrets.token_bytes(32))
        body = encoders.kms_v2_body(
            encoders.aesgcm_body(secret(name), secrets.token_bytes(32), b"n" * 12, at),
            key_id=wrapped.key_id,
            dek_source=wrapped.ciphertext + bytes(padding),
            annotations={ANNOTATION: b"1"},
            source_type=source_type,
        )
        registry.etcd.put(at, b"k8s:enc:kms:v2:prov:" + body)
        keys.append(at)
        if len(keys) == 1:
            registry.refuses(keys, *every_flag_but(Rule.NEWER_THAN_KNOWN), accept="newer-than-known")
            assert registry.delete(at, "--accept", "newer-than-known", "--dry-run").code == 0
    registry.refuses(keys[:3], *EVERY_FLAG, rule="fails-like-others", hint="use an etcdfix")


LONGER = ("prov:b", "prov:", "prov:\u00a0b", "prov: a longer name", "prov:/b%2F", "prov:\x00\x00b")


@pytest.mark.parametrize("plugin", ["v1"], indirect=True)
@pytest.mark.parametrize("asked", [True, False])
def test_provider_whose_name_goes_on(registry: Attacked, plugin: KMSPlugin, *, asked: bool) -> None:
    """A KMS v1 name may hold colons; what follows the shorter one looks like a length that runs past the end."""
    keys = []
    for name, written in zip(NAMES, LONGER, strict=False):
        at = registry.key(f"shop/{name}")
        keys.append(registry.put(f"shop/{name}", plugin.stored_v1(secret(name), at, name=written)))
    if asked:
        store(registry, plugin, "other")
    says = ["can cure this (provider-missing: "]
    registry.refuses(keys[:-1], *EVERY_FLAG, says=says)
    registry.refuses(keys[-1:], *EVERY_FLAG, rule="undetermined")
