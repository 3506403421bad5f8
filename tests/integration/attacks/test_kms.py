"""Attacks with KMS plugins: of another keyring, with another key behind the same id, unwell, or not asked."""

from __future__ import annotations

import json
import os
import secrets
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

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
NAMES = [f"db-{number}" for number in range(12)]
DAMAGED = Refusal("INVALID_ARGUMENT", "ciphertext damaged")


@pytest.fixture(params=["v2"])
def plugin(request: pytest.FixtureRequest, registry: Attacked, tmp_path: Path) -> Iterator[KMSPlugin]:
    with KMSPlugin(request.param, f"@etcdfix-attack-{os.getpid()}-{tmp_path.name}", KEKS) as running:
        registry.rules(("secrets", (kms(running), IDENTITY)))
        yield running


both = pytest.mark.parametrize("plugin", ["v1", "v2"], indirect=True)


def kms(plugin: KMSPlugin, name: str = "prov") -> dict[str, Any]:
    rest = {"apiVersion": plugin.api_version, "endpoint": plugin.endpoint, "timeout": "5s"}
    return {"kms": {"name": name, **rest}}


def store(registry: Attacked, plugin: KMSPlugin, *names: str, bound: bytes = b"", **how: Any) -> list[bytes]:
    keys = [registry.key(f"shop/{name}") for name in names]
    seal: Callable[..., bytes] = plugin.stored_v1 if plugin.api_version == "v1" else plugin.stored_v2
    for at, name in zip(keys, names, strict=True):
        registry.etcd.put(at, seal(secret(name), bound + at, key_id="kek-1", **how))
    return keys


def lost(plugin: KMSPlugin) -> tuple[str, ...]:
    return declared("kms/v1/prov" if plugin.api_version == "v1" else f"kms/v2/prov/{key_id_digest('kek-1')}")


def answered(plugin: KMSPlugin, stored: bytes | None, answer: Callable[[], Refusal | bytes | None]) -> None:
    """Let the plugin answer this where it is asked for the data key of a stored value."""
    assert stored is not None
    field = "cipher" if plugin.api_version == "v1" else "ciphertext"
    plugin.script = lambda request: answer() if getattr(request, field) in stored else None


def _another_keyring(registry: Attacked, plugin: KMSPlugin, *names: str) -> list[bytes]:
    """It is well, and refuses every data key as damaged."""
    keys = store(registry, plugin, *(names or NAMES))
    plugin.keks = dict(REPLACED)
    return keys[:2]


def _any_data_key(change: Callable[[bytes], bytes]) -> Prepare:
    """Not every KMS authenticates what it unwraps: the data key that comes back is another one."""

    def prepare(registry: Attacked, plugin: KMSPlugin) -> list[bytes]:
        keys = store(registry, plugin, *NAMES[:2])
        plugin.damage = change
        return keys

    return prepare


def _replaced_behind_its_id(registry: Attacked, plugin: KMSPlugin) -> list[bytes]:
    """Newer values open under the same key id, so the plugin is the right one and well; old ones it refuses."""
    old = store(registry, plugin, *NAMES[:2])
    plugin.keks = dict(REPLACED)
    store(registry, plugin, *(f"new-{number}" for number in range(12)))
    return old


def _refused_one(refusal: Refusal) -> Prepare:
    """It opens all others, newer ones and other key ids too, and says no to this one, with whatever word."""

    def prepare(registry: Attacked, plugin: KMSPlugin) -> list[bytes]:
        keys = store(registry, plugin, "web")
        store(registry, plugin, *NAMES[:3])
        answered(plugin, registry.stored(keys[0]), lambda: refusal)
        return keys

    return prepare


def _in_another_rule(registry: Attacked, plugin: KMSPlugin) -> list[bytes]:
    registry.rules(("secrets", (IDENTITY,)), ("configmaps", (kms(plugin), IDENTITY)))
    return store(registry, plugin, "a", "b")


def _under_another_name(registry: Attacked, plugin: KMSPlugin) -> list[bytes]:
    registry.rules(("secrets", (kms(plugin, "another"), IDENTITY)))
    return store(registry, plugin, "a", "b")


LONGER = ("prov:b", "prov:", "prov:\u00a0b", "prov: a longer name", "prov:/b%2F")


def _names_that_go_on(registry: Attacked, plugin: KMSPlugin) -> list[bytes]:
    """A KMS v1 name may hold colons; what follows the shorter one looks like a length that runs past the end."""
    keys = [store(registry, plugin, f"web-{n}", name=name)[0] for n, name in enumerate(LONGER)]
    store(registry, plugin, "other")
    return keys


Prepare = Callable[[Attacked, KMSPlugin], list[bytes]]


class Situation(NamedTuple):
    """What is stored; for what it is taken; what becomes of it where the key is declared lost: a rule, or deletable."""

    prepare: Prepare
    cause: str = ""
    declared: str = ""
    versions: tuple[str, ...] = ("v2",)
    rule: str = "undetermined"


CURABLE = "curable-by-configuration"
SITUATIONS = {
    "a plugin of another keyring": Situation(_another_keyring, versions=("v1", "v2")),
    "a plugin of another keyring, one alone": Situation(
        lambda registry, plugin: _another_keyring(registry, plugin, "alone")
    ),
    "another data key": Situation(_any_data_key(lambda dek: bytes(byte ^ 0x55 for byte in dek)), versions=("v1", "v2")),
    "half a data key": Situation(_any_data_key(lambda dek: dek[:7])),
    "a key replaced behind its id": Situation(_replaced_behind_its_id, "", "deletable", ("v1", "v2")),
    "one is not found": Situation(_refused_one(Refusal("NOT_FOUND", "no"))),
    "one is not answered": Situation(_refused_one(Refusal("UNAVAILABLE", "later"))),
    "one is called damaged": Situation(_refused_one(DAMAGED)),
    "a plugin in another rule": Situation(_in_another_rule, "", "declaration", ("v1", "v2"), CURABLE),
    "a plugin under another name": Situation(_under_another_name, "key-renamed", "declaration", ("v1", "v2"), CURABLE),
    "a declared key that is alive": Situation(
        lambda registry, plugin: store(registry, plugin, "web"), "", "readable", rule="readable"
    ),
    # The data keys are right, every value is whole, and is bound to an etcd key that nobody can guess.
    "a proxy with a namespace": Situation(
        lambda registry, plugin: store(registry, plugin, *NAMES[:4], bound=b"tenant-7")[:1], "associated-data-unknown",
        rule=CURABLE,
    ),
    "names that go on": Situation(_names_that_go_on, "provider-missing", versions=("v1",), rule=CURABLE),
    "a name that goes on with zeroes": Situation(
        lambda registry, plugin: store(registry, plugin, "web", name="prov:\x00\x00b"), versions=("v1",)
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("case", "plugin"),
    [(case, version) for case, situation in SITUATIONS.items() for version in situation.versions],
    indirect=["plugin"],
)
def test_healthy_values_stay(registry: Attacked, plugin: KMSPlugin, case: str) -> None:
    situation = SITUATIONS[case]
    keys = situation.prepare(registry, plugin)
    registry.refuses(keys, *EVERY_FLAG, rule=situation.rule, cause=situation.cause)
    registry.refuses(keys[:1])
    if situation.declared == "deletable":
        assert registry.delete(keys[0], *lost(plugin), "--dry-run").code == 0
    elif situation.declared:
        registry.refuses(keys, *EVERY_FLAG, *lost(plugin), rule=situation.declared)
    if case.startswith("a plugin") and situation.declared:  # nobody can say that it does not open it
        plugin.refusal = Refusal("UNAVAILABLE")
        registry.refuses(keys, *EVERY_FLAG, *lost(plugin), rule="declaration")


def test_key_replaced_behind_its_id_and_put_back(registry: Attacked, plugin: KMSPlugin) -> None:
    """Values before and after open: that is called likely damage, and a person has to say more."""
    store(registry, plugin, "before")
    plugin.keks = dict(REPLACED)
    between = store(registry, plugin, "between")
    plugin.keks = dict(KEKS)
    store(registry, plugin, "later")
    registry.refuses(between, *every_flag_but(Rule.UNPROVEN_DAMAGE), accept="unproven-damage")


@both
def test_newest_value_whose_wrapped_key_is_damaged(
    registry: Attacked, plugin: KMSPlugin, api: KubernetesAPI
) -> None:
    """Only an API server can tell it from a keyring that was replaced: the way that is printed then goes through."""
    store(registry, plugin, *NAMES[:3])
    (at,) = store(registry, plugin, "web")
    answered(plugin, registry.stored(at), lambda: DAMAGED)
    registry.refuses([at], *EVERY_FLAG, rule="no-api-server", hint="--kubeconfig FILE")
    asking = ("--kubeconfig", str(api.kubeconfig(registry.folder)))
    ran = registry.delete(at, "--accept", "unproven-damage", *asking, "--dry-run")
    assert (ran.code, "kms-envelope-damaged" in ran.err) == (0, True), ran.err
    store(registry, plugin, "later")
    assert registry.delete(at, "--accept", "unproven-damage", "--dry-run").code == 0


@both
@pytest.mark.parametrize(("refuses", "times"), [(False, 1), (False, 2), (False, 3), (True, 1), (True, 2)])
def test_answers_that_are_wrong_for_a_moment(
    registry: Attacked, plugin: KMSPlugin, refuses: bool, times: int
) -> None:
    """The plugin is well, and while a healthy value is looked at, it answers with something else."""
    store(registry, plugin, *NAMES[:3])
    (at,) = store(registry, plugin, "web")
    store(registry, plugin, *NAMES[3:6])
    v1 = plugin.api_version == "v1"
    other: bytes = (V1 if v1 else V2)["DecryptResponse"](
        **{"plain" if v1 else "plaintext": b"x" * 32}
    ).SerializeToString()
    answers = iter([DAMAGED if refuses else other] * times)
    answered(plugin, registry.stored(at), lambda: next(answers, None))
    (ran,) = registry.refuses([at], *EVERY_FLAG)
    assert json.loads(ran.out)["refusal"]["rule"] in {"readable", "undetermined"}


def test_plugin_that_is_down_and_nobody_to_contradict(
    registry: Attacked, plugin: KMSPlugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script declares the key lost while the plugin only takes a rest; at a terminal somebody types it."""
    (at, _) = store(registry, plugin, "web", "db")
    plugin.stop()
    for flags in ((), ("--dry-run",)):
        registry.refuses([at], *EVERY_FLAG, *lost(plugin), *flags, rule="no-api-server", hint="--kubeconfig")
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
    error = f'unable to transform key "/registry/x": rpc error: code = {words} desc = connection refused'
    api.instead[path] = read_error(f"Internal error occurred: {error}")
    registry.refuses([at], *EVERY_FLAG, *lost(plugin), *asking, rule="no-api-server")
    api.instead[path] = read_error(error.replace(words, "NotFound"))
    assert registry.delete(at, *EVERY_FLAG, *lost(plugin), *asking, "--dry-run").code == 0


def test_plugin_that_is_not_asked(registry: Attacked, plugin: KMSPlugin) -> None:
    keys = store(registry, plugin, "web", "db")
    registry.refuses(keys, *EVERY_FLAG, "--no-kms", rule="undetermined", hint="--no-kms")
    registry.refuses(keys, *EVERY_FLAG, *lost(plugin), "--no-kms", hint="--no-kms")


@pytest.mark.parametrize("words", [["scan"], ["scan", "KEY"], ["explain", "KEY"]])
def test_one_bit_of_a_providers_name_is_put_back(
    registry: Attacked, plugin: KMSPlugin, words: list[str]
) -> None:
    store(registry, plugin, "a", "b")
    at = registry.key("shop/web")
    value = plugin.stored_v2(secret("web"), at)
    registry.etcd.put(at, value.replace(b":prov:", b":prow:", 1))
    common = registry.common(places=False, reason=None)
    ran = registry.run(*(at.decode() if word == "KEY" else word for word in words), *common, "-o", "json")
    document = json.loads(ran.out)
    step = document["summary"]["next"] if "summary" in document else document["next"]
    command = shlex.split(step["command"])
    assert command[:3] == ["etcdfix", "fix", at.decode()]
    assert registry.paste(step["command"].replace("--dry-run", "")).code == 0
    assert registry.stored(at) == value


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
    registry.refuses(keys[:3], *EVERY_FLAG, rule="fails-like-others")
