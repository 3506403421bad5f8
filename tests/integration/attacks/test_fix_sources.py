"""A healthy value is to be overwritten, or a wrong object made, by a file, a log or another key; nothing may change."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from etcdfix.cli.options import REPLACING_RULES
from etcdfix.commands.fix import run_fix
from etcdfix.copies.finder import parse_named
from etcdfix.copies.rescued import FORMAT, INDEX_NAME, file_name, read_index
from etcdfix.encryption.config import NOT_DEPLOYED
from etcdfix.model.errors import RefusedByRule
from etcdfix.model.model import digest_of
from etcdfix.remediation.choice import FixRequest
from etcdfix.remediation.cluster import Acceptances
from etcdfix.remediation.saved_objects import RescueRecord
from etcdfix.testing.protobytes import block, object_meta, unknown
from tests.support.attacks import (
    OTHER,
    TRUE,
    UID,
    WRONG,
    Attacked,
    config_map,
    every_flag_but,
    seal,
    secret,
    without,
)
from tests.support.audit_logs import own_directory
from tests.support.change_runs import Ran
from tests.support.kubernetes_api import KubernetesAPI, status_answer
from tests.support.object_files import json_secret, saved
from tests.support.objects import IDENTITY, KUBE_SYSTEM_UID, namespace_object, provider
from tests.support.remediation_ground import Yes

pytestmark = pytest.mark.etcd

EVERYTHING = (*every_flag_but(of=REPLACING_RULES), "--accept", "unlisted-source", "--accept", "unknown-uid")
ANOTHER_UID = "99999999-2222-3333-4444-555555555555"
OBJECT_PATH = "/api/v1/namespaces/shop/secrets/target"


def target(registry: Attacked, value: bytes | None = None) -> bytes:
    registry.keyed("aesgcm")
    at = registry.key("shop/target")
    if value is not None:
        registry.etcd.put(at, value)
    newest = registry.key("shop/newest")
    registry.etcd.put(newest, seal("aesgcm", secret("newest"), newest))
    return at


def damaged(registry: Attacked) -> bytes:
    at = registry.key("shop/target")
    value = bytearray(seal("aesgcm", secret("target"), at))
    value[60] ^= 1
    return bytes(value[:70])


def text_of(value: Any, **changes: Any) -> dict[str, Any]:
    return {**value, "metadata": {**value["metadata"], **changes}}


def object_for(registry: Attacked, **changes: Any) -> dict[str, Any]:
    at = registry.key("shop/target")
    now = registry.mod_revision(at) if registry.stored(at) is not None else 7
    return json_secret("target", **{"uid": UID.decode(), "resource_version": now, **changes})


def over(registry: Attacked, value: Any, *arguments: str, at: bytes | None = None, **how: Any) -> Ran:
    at = at or registry.key("shop/target")
    return registry.put_back(at, f"object:{saved(registry.folder, value)}", *arguments, **how)


def refuses(
    registry: Attacked, source: Any, *arguments: str, rule: str, says: str = "", hint: str = "",
    at: bytes | None = None, **how: Any,
) -> Ran:  # fmt: skip
    """Assert that an object, or a copy by its name, is refused by this rule whatever is accepted; nothing changes."""
    with registry.nothing_changes():
        if isinstance(source, str):
            ran = registry.put_back(
                at or registry.key("shop/target"), source, *arguments, "-o", "json", **how
            )
        else:
            ran = over(registry, source, *arguments, "-o", "json", at=at, **how)
    assert ran.code == 4, ran
    refusal = json.loads(ran.out)["refusal"]
    assert refusal["rule"] == rule, refusal
    assert says in refusal["message"], refusal
    assert hint in refusal["next_step"], refusal
    assert not [
        hidden for hidden in ("never-to-be-shown", "bmV2ZXItdG8tYmUtc2hvd24", "\x1b") if hidden in ran.err
    ]
    return ran


def test_it_works_where_nothing_speaks_against_it(registry: Attacked) -> None:
    """Or else no refusal below would prove anything."""
    at = target(registry, damaged(registry))
    ran = over(registry, object_for(registry), *EVERYTHING)
    assert ran.code == 0, ran.err
    stored = registry.stored(at)
    assert stored is not None
    assert stored.startswith(b"k8s:enc:aesgcm:v1:key1:")


def test_a_server_that_reads_it(registry: Attacked, api: KubernetesAPI) -> None:
    api.reads = True
    asked = ("--kubeconfig", str(api.kubeconfig(registry.folder)))
    for value in (damaged(registry), None):
        target(registry, value)
        refuses(
            registry,
            object_for(registry),
            *asked,
            *EVERYTHING,
            rule="configuration-wrong",
            hint="--encryption-provider-config",
        )
        registry.etcd.delete(registry.key("shop/target"))


def test_a_server_that_does_not_answer(registry: Attacked, api: KubernetesAPI) -> None:
    target(registry, damaged(registry))
    api.instead[OBJECT_PATH] = status_answer(403)
    accepted = without(EVERYTHING, "no-api-server")
    refuses(
        registry,
        object_for(registry),
        "--kubeconfig",
        str(api.kubeconfig(registry.folder)),
        *accepted,
        rule="no-api-server",
        hint="--accept no-api-server",
    )


def test_an_object_of_another_generation(registry: Attacked) -> None:
    """By the uid of a revision that etcd keeps of the present value; and of the last one of a key that is gone."""
    at = registry.key("shop/target")
    target(registry, seal("aesgcm", secret("target"), at))
    registry.etcd.put(at, damaged(registry))
    newest = registry.key("shop/newest")
    registry.etcd.put(newest, seal("aesgcm", secret("newest"), newest, salt=1))
    for _ in range(2):
        refuses(
            registry,
            object_for(registry, uid=ANOTHER_UID),
            *EVERYTHING,
            rule="other-object",
            says=UID.decode(),
        )
        registry.etcd.delete(at)


def _over_damage(registry: Attacked, *providers: dict[str, Any]) -> None:
    target(registry, damaged(registry))
    if providers:
        registry.rules(("secrets", providers))


def _over_nothing(registry: Attacked, *providers: dict[str, Any]) -> None:
    target(registry)
    registry.rules(("secrets", providers))


def _healthy(registry: Attacked, key: bytes = TRUE) -> None:
    target(registry, seal("aesgcm", secret("target"), registry.key("shop/target")))
    registry.keyed("aesgcm", key)


def _made_by_etcdfix(registry: Attacked) -> None:
    _over_damage(registry)
    registry.config.write_bytes(f"# merge.{NOT_DEPLOYED}\n".encode() + registry.config.read_bytes())
    registry.etcd.delete(registry.key("shop/newest"))


OURS = provider("aesgcm", key1=TRUE)
TOMORROW = (provider("aesgcm", next=OTHER, key1=TRUE), IDENTITY)
KMS = {"kms": {"apiVersion": "v2", "name": "prov", "endpoint": "unix:///run/nobody.sock"}}
DECLARED = ("--declare-key-lost", "aesgcm/v1/key1")
ALL = tuple(EVERYTHING)
REFUSED: dict[str, tuple[Callable[[Attacked], None], str, tuple[str, ...]]] = {
    "nobody to ask": (_over_damage, "no-api-server", tuple(without(ALL, "no-api-server"))),
    "a uid that nothing tells": (_over_damage, "unknown-uid", tuple(without(ALL, "unknown-uid"))),
    "a healthy value": (_healthy, "readable", ALL),
    # Whatever the file says, and whatever is declared: no value of the resource opens under what is given.
    "a healthy value, its key wrong": (lambda registry: _healthy(registry, WRONG), "curable-by-configuration", ALL),
    "a healthy value, its key wrong and declared lost": (
        lambda registry: _healthy(registry, WRONG), "write-key", (*ALL, *DECLARED)
    ),
    # The configuration of tomorrow: what it writes, no API server reads yet.
    "a write key that is not deployed": (lambda registry: _over_damage(registry, *TOMORROW), "write-key", ALL),
    "a write key that is not deployed, over nothing": (
        lambda registry: _over_nothing(registry, *TOMORROW), "write-key", ALL
    ),
    "a configuration that etcdfix made": (_made_by_etcdfix, "write-key", ALL),
    "without encryption over what was encrypted": (
        lambda registry: _over_damage(registry, IDENTITY, OURS), "write-key", ALL
    ),
    "without encryption, the key declared lost": (
        lambda registry: _over_damage(registry, IDENTITY), "write-key", (*ALL, *DECLARED)
    ),
    "a KMS plugin would write it": (
        lambda registry: _over_damage(registry, KMS, OURS, IDENTITY), "write-key", ("--no-kms", *ALL)
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_where_it_is_refused(registry: Attacked, case: str) -> None:
    prepare, rule, flags = REFUSED[case]
    prepare(registry)
    refuses(registry, object_for(registry), *flags, rule=rule)


def test_nobody_says_how_values_are_written(registry: Attacked) -> None:
    target(registry)
    file = f"object:{saved(registry.folder, object_for(registry))}"
    refuses(registry, file, *ALL, configured=False, rule="no-configuration", hint="--no-encryption")


@pytest.mark.parametrize("resource", ["secrets", "configmaps"])
def test_no_encryption_where_nothing_is_beside_what_is_encrypted(registry: Attacked, resource: str) -> None:
    key = registry.key("shop/target", resource)
    value = json_secret("target")
    if resource == "configmaps":
        value = {**value, "kind": "ConfigMap", "data": {}}
        del value["type"]
    registry.secrets("aesgcm", ["other"])
    file = f"object:{saved(registry.folder, value)}"
    for more in ((), ("--dry-run",)):
        flags = ("--no-encryption", *EVERYTHING, *more)
        refuses(registry, file, *flags, configured=False, at=key, rule="configuration-wrong")


def _masked(value: dict[str, Any]) -> dict[str, Any]:
    return {**text_of(value, resourceVersion="masked"), "data": {"password": "<17 bytes masked>"}}


def _with(value: dict[str, Any], number: bytes) -> bytes:
    return json.dumps(value).encode()[:-1] + b',"x":' + number + b"}"


_REPEATED = "kubectl.kubernetes.io/last-applied-configuration"
NOT_THE_OBJECT: dict[str, Callable[[dict[str, Any]], Any]] = {
    "masked": _masked,
    "masked, and the resourceVersion put right": lambda value: {
        **value,
        "data": {"password": "<17 bytes masked>"},
    },
    "a masked entry": lambda value: {**value, "data": {"<masked>": ""}},
    "masked where it is repeated": (
        lambda value: text_of(value, annotations={_REPEATED: '{"data":"\\u003c2 entries masked\\u003e"}'})
    ),
    "shown, and not of its key": lambda value: text_of(value, resourceVersion="identity-mismatch"),
    "a list": lambda value: {"kind": "SecretList", "apiVersion": "v1", "metadata": {}, "items": [value]},
    "an array": lambda value: [value],
    "two documents": lambda value: (json.dumps(value) + "\n{}").encode(),
    "YAML": lambda _: b"kind: Secret\napiVersion: v1\n",
    "nothing": lambda _: b"",
    "not UTF-8": lambda value: json.dumps(value).encode().replace(b"Opaque", b"Opa\xffue"),
    "cut": lambda value: json.dumps(value).encode()[:-5],
    "no kind": lambda value: {**value, "kind": ""},
    "no metadata": lambda value: {**value, "metadata": None},
    "another kind": lambda value: {**value, "kind": "ConfigMap"},
    "another group": lambda value: {**value, "apiVersion": "apps/v1"},
    "another version": lambda value: {**value, "apiVersion": "v2"},
    "another name": lambda value: text_of(value, name="a\x1b[31m"),
    "another namespace": lambda value: text_of(value, namespace="kube-system"),
    "no namespace": lambda value: text_of(value, namespace=""),
    "no uid": lambda value: text_of(value, uid=""),
    "a uid that is none": lambda value: text_of(value, uid=5),
    "a field that nobody knows": lambda value: {**value, "spec": {"a": 1}},
    "a field in other letters": lambda value: {**value, "Data": {"a": "YQ=="}},
    "contents that are no base64": lambda value: {**value, "data": {"password": "***"}},
    "contents of another type": lambda value: {**value, "data": {"password": 5}},
    "a number beyond any float": lambda value: _with(value, b"1e400"),
    "a number of many digits": lambda value: _with(value, b"9" * 9000),
    "contents that are never served": lambda value: {**value, "stringData": {"password": "x"}},
    "a deep one": lambda value: json.dumps(value).encode()[:-1] + b',"x":' + b"[" * 3000 + b"]" * 3000 + b"}",
}


@pytest.mark.parametrize("case", NOT_THE_OBJECT)
def test_a_file_that_is_not_the_object(registry: Attacked, case: str) -> None:
    target(registry, damaged(registry))
    value = NOT_THE_OBJECT[case](object_for(registry))
    refuses(registry, value, *EVERYTHING, rule="object-file")


def test_what_get_shows_is_never_taken(registry: Attacked) -> None:
    """As etcdfix itself prints it, in each of its forms."""
    at = registry.key("shop/target")
    target(registry, seal("aesgcm", secret("target"), at))
    look = ("--endpoints", registry.endpoints, "--etcd-prefix", registry.prefix, "--encryption-config")
    shown = {
        form: registry.run("get", at.decode(), *look, str(registry.config), "-o", form).out
        for form in ("json", "yaml")
    }
    registry.etcd.put(at, damaged(registry))
    newest = registry.key("shop/newest")
    registry.etcd.put(newest, seal("aesgcm", secret("newest"), newest, salt=1))
    for form in ("json", "yaml"):
        assert "masked" in shown[form]
        refuses(registry, shown[form].encode(), *EVERYTHING, rule="object-file")


def test_a_saved_file_that_was_edited(registry: Attacked) -> None:
    """The index beside it has the digest of what was saved."""
    target(registry, damaged(registry))
    file = saved(registry.folder, object_for(registry), "0" * 16 + "-7-" + "0" * 16 + ".json")
    raw = json.dumps(_line(registry.key("shop/target"), 7, b"{}")).encode()
    name = json.loads(raw)["file"]
    shutil.copy(file, registry.folder / name)
    (registry.folder / INDEX_NAME).write_bytes(raw + b"\n")
    at = registry.key("shop/target")
    refuses(registry, f"object:{registry.folder / name}", *EVERYTHING, at=at, rule="object-file")


def _line(key: bytes, revision: int, raw: bytes, cluster_uid: str = KUBE_SYSTEM_UID) -> dict[str, Any]:
    return {
        "format": FORMAT, "key_base64": base64.b64encode(key).decode(), "group": "", "version": "v1",
        "resource": "secrets", "kind": "Secret", "namespace": "shop", "name": "target", "uid": UID.decode(),
        "resource_version": str(revision), "sha256": digest_of(raw), "size": len(raw),
        "file": file_name(key, str(revision), digest_of(raw)), "server": "https://a",
        "saved_at": "2026-01-01T00:00:00Z", "cluster_uid": cluster_uid,
    }  # fmt: skip


def test_a_saved_file_that_is_chosen_once_it_is_accepted(registry: Attacked) -> None:
    """What would refuse it then is told with it: no command is printed that would not go through."""
    at = registry.key("shop/target")
    target(registry, seal("aesgcm", secret("target"), at))
    registry.etcd.put(at, damaged(registry))
    registry.rules(("secrets", (provider("aesgcm", next=OTHER, key1=TRUE), IDENTITY)))
    raw = json.dumps(object_for(registry)).encode()
    line = _line(at, registry.mod_revision(at), raw)
    rescued = own_directory(registry.folder / "rescued")
    (rescued / line["file"]).write_bytes(raw)
    (rescued / INDEX_NAME).write_bytes(json.dumps(line).encode() + b"\n")
    record = RescueRecord(registry.places, rescued, cluster_uid=KUBE_SYSTEM_UID, resources=["secrets"])
    record.saved(read_index(rescued).by_key()[at])
    accepted = without(EVERYTHING, "unlisted-source")
    ran = refuses(registry, "", "--rescued", str(rescued), *accepted, at=at, rule="unlisted-source")
    assert json.loads(ran.out)["refusal"]["command"] == ""


@pytest.mark.parametrize("cluster_uid", [KUBE_SYSTEM_UID, ANOTHER_UID])
def test_a_saved_file_of_another_cluster(registry: Attacked, cluster_uid: str) -> None:
    at = target(registry, damaged(registry))
    raw = json.dumps(object_for(registry)).encode()
    line = _line(at, registry.mod_revision(at), raw, cluster_uid)
    (registry.folder / line["file"]).write_bytes(raw)
    (registry.folder / INDEX_NAME).write_bytes(json.dumps(line).encode() + b"\n")
    source = f"object:{registry.folder / line['file']}"
    if cluster_uid == KUBE_SYSTEM_UID:
        assert registry.put_back(at, source, *EVERYTHING).code == 0
        return
    refuses(registry, source, *EVERYTHING, at=at, rule="other-cluster", says=ANOTHER_UID)


@pytest.mark.parametrize(
    "name",
    [
        "secrets/shop",
        "secrets/shop/target/more",
        "ranges/serviceips",
        "masterleases/1.2.3.4",
        "widgets.example.com/shop/target",
    ],
)
def test_a_key_that_holds_no_such_object(registry: Attacked, name: str) -> None:
    target(registry)
    at = f"{registry.prefix}/{name}".encode()
    with registry.nothing_changes():
        ran = over(registry, object_for(registry), *EVERYTHING, at=at)
    assert ran.code == 4, ran
    assert "never-to-be-shown" not in ran.err


def test_what_the_cluster_depends_on(registry: Attacked) -> None:
    """A file may have been edited: a role that allows everything is made behind the API's back."""
    registry.put("others", namespace_object("others", "u-5"), "namespaces")
    key = registry.key("shop", "namespaces")
    value = {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "shop", "uid": "u-4"}}
    accepted = ("--accept", "unlisted-source", "--accept", "unknown-uid", "--accept", "no-api-server")
    refuses(registry, value, *accepted, at=key, rule="cluster-breaking", hint="--accept cluster-breaking")
    ran = over(registry, value, *accepted, "--accept", "cluster-breaking", at=key)
    assert ran.code == 0, ran.err


def test_our_own_writes_prove_no_write_key(registry: Attacked) -> None:
    """The first file that was put back must not speak for the second."""
    at = target(registry, damaged(registry))
    newest = registry.key("shop/newest")
    assert over(registry, object_for(registry), *EVERYTHING).code == 0
    registry.etcd.delete(newest)
    second = registry.key("shop/second")
    registry.etcd.put(second, damaged(registry))
    value = json_secret("second", uid=UID.decode())
    refuses(registry, value, *EVERYTHING, at=second, rule="write-key")
    assert registry.stored(at) is not None


@pytest.mark.parametrize("at_step", ["check: the other key", "transaction: before send"])
@pytest.mark.parametrize("change", ["written", "deleted"])
def test_another_key_that_changes_before_the_transaction(
    registry: Attacked, change: str, at_step: str
) -> None:
    """The bytes may be on their way home by another hand."""
    at, other = target(registry), registry.key("shop/other")
    value = seal("aesgcm", secret("target"), at)
    registry.etcd.put(other, value)

    def interfere(step: str) -> None:
        if step == at_step:
            registry.etcd.put(
                other, seal("aesgcm", secret("target"), at, salt=1)
            ) if change == "written" else registry.etcd.delete(other)

    with (
        registry.cluster() as cluster,
        pytest.raises(RefusedByRule, match=r"no transaction was sent|was changed while"),
    ):
        run_fix(
            msgspec.structs.replace(cluster, configured=True),
            FixRequest(
                key=at,
                named=parse_named(f"key:{other.decode()}"),
                other=other,
                reason="r",
                record_paths=registry.places,
                accepted=Acceptances(words=("unknown-uid",)),
            ),
            Yes(),
            preview=lambda *_: None,
            step=interfere,
        )
    assert registry.stored(at) is None


@pytest.mark.parametrize("kind", ["aesgcm", "secretbox"])
def test_the_bytes_of_another_object(registry: Attacked, kind: str) -> None:
    """Under secretbox the tag is whole wherever the value lies: its name says that it is another object."""
    at = target(registry)
    registry.keyed(kind)
    other = registry.key("shop/other")
    registry.etcd.put(other, seal(kind, secret("other"), other))
    refuses(registry, f"key:{other.decode()}", *EVERYTHING, at=at, rule="not-readable")


def test_another_generation_comes_home(registry: Attacked) -> None:
    """A value of the object before the last lies elsewhere."""
    at = target(registry)
    other = registry.key("shop/other")
    older = unknown(b"v1", b"Secret", block(1, object_meta(b"target", b"shop", ANOTHER_UID.encode())))
    registry.etcd.put(other, seal("aesgcm", older, at))
    registry.etcd.put(at, seal("aesgcm", secret("target"), at))
    registry.etcd.delete(at)
    refuses(registry, f"key:{other.decode()}", *EVERYTHING, at=at, rule="other-object")


def test_config_map_is_no_secret(registry: Attacked) -> None:
    """The kind decides, not the resource that somebody named."""
    at = target(registry)
    registry.etcd.put(registry.key("shop/other"), seal("aesgcm", config_map("target"), at))
    refuses(registry, f"key:{registry.key('shop/other').decode()}", *EVERYTHING, at=at, rule="not-readable")
