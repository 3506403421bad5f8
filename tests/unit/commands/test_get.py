"""Showing objects from a source in memory: what is chosen, what is masked, what is never shown."""

from __future__ import annotations

import base64
import gzip
import io
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from etcdfix.cli import get as get_module
from etcdfix.cli.root import run
from etcdfix.commands.get import GetRequest, GetResult, NamedObjects, Notes, record_reveal, run_get
from etcdfix.encryption.config_model import EncryptionConfiguration
from etcdfix.model.errors import SourceError
from etcdfix.model.model import StoredValue
from etcdfix.model.storagekey import StorageLayout
from etcdfix.remediation.audit.verify import ChainState, read_records, verify
from etcdfix.remediation.errors import UnsafePlace
from etcdfix.report.objects import Documents, Form, ObjectList, Shown, message_of
from etcdfix.report.render import write
from etcdfix.testing.protobytes import block, object_meta, unknown
from tests.support.fixtures import CapturedBytes, Patch
from tests.support.memory_source import MemorySource
from tests.support.objects import (
    KEY_1,
    KEY_2,
    aescbc,
    allocation,
    config_map,
    configuration,
    configuration_yaml,
    crd,
    json_object,
    namespace_object,
    provider,
    secret,
    widget,
)
from tests.support.thorough import some

CRD_KEY = "/registry/apiextensions.k8s.io/customresourcedefinitions/widgets.example.com"
CONFIG = configuration(provider("aescbc", key1=KEY_1), {"identity": {}})
HOLDS = {
    "compact_rev_key": b"589",
    "/other/configmaps/x/y": config_map("y", "x"),
    "/other/thing": b"\x00\x01",
    "/registry/configmaps/default/settings": config_map(namespace="default"),
    "/registry/configmaps/shop/settings": config_map(),
    "/registry/configmaps/shop/third": config_map("third"),
    CRD_KEY: crd(short_names=("wd", "cj")),
    "/registry/example.com/widgets/shop/w-0": widget(),
    "/registry/masterleases/10.0.0.1": unknown(b"v1", b"Endpoints", block(1, object_meta(b""))),
    "/registry/namespaces/kube-system": namespace_object("kube-system"),
    "/registry/ranges/servicenodeports": allocation(),
    "/registry/secrets/shop/broken": aescbc(secret("broken"))[:-1],
    "/registry/secrets/shop/web": aescbc(secret()),
}


def get(
    holds: dict[str, bytes] | MemorySource,
    *names: str,
    resource: str = "",
    key: str | bytes | None = None,
    output: str = "json",
    config: EncryptionConfiguration | None = CONFIG,
    **more: Any,
) -> tuple[str, GetResult, list[Shown]]:
    source = holds if isinstance(holds, MemorySource) else MemorySource(holds)
    raw = key.encode() if isinstance(key, str) else key
    stream = io.BytesIO()
    seen: list[Shown] = []
    request = GetRequest(
        layout=StorageLayout(),
        key=raw,
        objects=(NamedObjects(resource, names),) if resource else (),
        configuration=config,
        **more,
    )

    def listed(rows: ObjectList) -> None:
        write(rows, output, stream, request.run)

    where: Documents | ObjectList = Documents(stream, many=request.many, json=output == "json")
    if output == "text":
        where = ObjectList(request.types, past=False, write=listed)
    add = where.add
    where.add = lambda shown: not seen.append(shown) and add(shown)  # type: ignore[method-assign, func-returns-value]
    notes = Notes(request, say=lambda _: None, say_next=lambda *_: None)
    result = run_get(source, request, where, notes)
    return stream.getvalue().decode(), result, seen


@pytest.mark.parametrize(
    ("holds", "names", "empty"),
    [(HOLDS, (), True), (HOLDS, ("nix", "nought"), False), ({"/other/thing": b"x"}, (), False)],
)
def test_an_empty_list(holds: dict[str, bytes], names: tuple[str, ...], empty: bool) -> None:
    text, result, _ = get(holds, *names, resource="pods")
    assert (result.seen, result.empty, result.missing) == (0, empty, [("pods", name) for name in names])
    assert (json.loads(text)["items"] == []) if empty else (text == "")


def test_a_list_of_many_counts_all_and_shows_every_wrong_one() -> None:
    holds = {f"/registry/configmaps/default/c{n:03}": config_map(f"c{n:03}", "default") for n in range(150)}
    holds["/registry/configmaps/default/c149"] = b"k8s\0broken"
    text, result, _ = get(holds, resource="configmaps", output="text")
    assert (result.seen, result.findings, "c149" in text) == (150, 1, True)
    assert len(text.splitlines()) <= 24


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        ("/registry/masterleases/10.0.0.1", "Endpoints"),
        ("/registry/ranges/servicenodeports", "RangeAllocation"),
        ("/other/configmaps/x/y", "ConfigMap"),
    ],
)
def test_what_is_no_object_of_the_api_is_shown_as_what_it_is(key: str, kind: str) -> None:
    text, result, _ = get(HOLDS, key=key)
    document = json.loads(text)
    assert document["kind"] == kind
    assert not document.get("metadata", {}).get("resourceVersion")
    assert (result.findings, result.undetermined) == (0, 0)


@pytest.mark.parametrize(
    ("value", "words"), [(b"\x00\x01", "no object"), (b"k8s:enc:aescbc:v1:k:x", "outside the storage prefix")]
)
def test_a_stranger_that_does_not_parse_is_not_shown_and_not_called_broken(value: bytes, words: str) -> None:
    text, result, (shown,) = get({"/other/thing": value}, key="/other/thing")
    assert text == ""
    assert words in shown.problem
    assert (result.findings, result.undetermined) == (0, 1)


def test_a_salvage_is_no_object_of_kubernetes() -> None:
    value = config_map()[:-9]
    text, result, _ = get(
        {"/registry/configmaps/shop/settings": value}, key="/registry/configmaps/shop/settings"
    )
    document = json.loads(text)
    assert (document["apiVersion"], document["kind"]) == ("etcdfix/v1", "Salvage")
    assert (document["outcome"], document["cause"]) == ("decode-failure", "value-truncated")
    assert (document["partial"]["kind"], "metadata" in document) == ("ConfigMap", False)
    assert (result.findings, document["missing_parts"]) == (1, True)
    text, _, _ = get({"/registry/configmaps/shop/x": b"\x07\x07"}, key="/registry/configmaps/shop/x")
    assert json.loads(text)["partial"] is None


def managed(raw: bytes, *, name: bytes = b"settings") -> bytes:
    """A ConfigMap with managedFields of which fieldsV1 is ``raw``."""
    entry = block(1, b"kubectl") + block(2, b"Update") + block(6, b"FieldsV1") + block(7, block(1, raw))
    return unknown(b"v1", b"ConfigMap", block(1, object_meta(name, b"shop", b"u-2") + block(17, entry)))


@pytest.mark.parametrize("raw", [b'{"f:data":{"$}}', b'{"f:\xff":{}}'])
def test_raw_json_that_is_none_hides_the_object_until_it_is_left_out(raw: bytes) -> None:
    holds = {"/registry/configmaps/shop/settings": managed(raw)}
    text, result, _ = get(holds, key="/registry/configmaps/shop/settings")
    document = json.loads(text)
    assert (document["kind"], document["outcome"]) == ("Salvage", "inconsistent")
    assert document["damage"]["field_path"] == "metadata.managedFields[0].fieldsV1"
    assert (result.findings, document["missing_parts"]) == (1, True)
    text, result, _ = get(holds, key="/registry/configmaps/shop/settings", omit_managed_fields=True)
    document = json.loads(text)
    assert (document["kind"], result.findings) == ("ConfigMap", 1)
    assert "managedFields" not in document["metadata"]


class Gone(MemorySource):
    def current(self, prefix: bytes) -> Iterator[StoredValue]:
        for at, record in enumerate(super().current(prefix)):
            if at and prefix.startswith(b"/registry/configmaps"):
                raise SourceError("gone")
            yield record


def test_a_source_that_is_lost_midway_leaves_no_whole_list() -> None:
    text, result, _ = get(Gone(HOLDS), resource="configmaps", all_namespaces=True)
    assert result.problems == ["the source was lost midway: gone"]
    with pytest.raises(ValueError):
        json.loads(text)


def test_shown_values_print_nothing_of_themselves() -> None:
    _, _, (shown,) = get(HOLDS, key="/registry/secrets/shop/web", reveal=True)
    assert repr(shown) == "Shown(form='object')"


PLAIN = b"never-to-be-shown-0123456789"
LEAKS = [
    PLAIN.decode(), base64.b64encode(PLAIN).decode().rstrip("="), PLAIN.hex(), PLAIN.decode()[6:24],
    base64.b64encode(PLAIN).decode()[8:28],
]  # fmt: skip
NAME, KEY = "web", "/registry/secrets/shop/web"


def _entry(key: bytes, value: bytes) -> bytes:
    return block(1, key) + block(2, value)


def compressed(document: bytes) -> dict[bytes, bytes]:
    """Annotations in which tools keep the object that they applied."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("original", document)
    return {
        b"objectset.rio.cattle.io/applied": base64.b64encode(gzip.compress(document, mtime=0)),
        b"banzaicloud.com/last-applied": base64.b64encode(archive.getvalue()),
        b"example.org/state": base64.b64encode(gzip.compress(document, mtime=0)),
    }


def recognisable(kind: bytes = b"Secret") -> bytes:
    """A Secret as protobuf with one text everywhere where Secrets hold contents."""
    applied = json.dumps({"kind": "Secret", "data": {"password": base64.b64encode(PLAIN).decode()}}).encode()
    annotation = _entry(b"kubectl.kubernetes.io/last-applied-configuration", applied)
    meta = object_meta(NAME.encode(), b"shop", b"7f1f419d-c5fb-462d-a256-4984285eb38d") + block(
        12, annotation
    )
    meta += b"".join(block(12, _entry(name, value)) for name, value in compressed(applied).items())
    string_data = block(4, _entry(b"token", PLAIN))
    body = block(1, meta) + block(2, _entry(b"password", PLAIN)) + block(3, b"Opaque") + string_data
    return unknown(b"v1", kind, body)


def recognisable_json(**change: Any) -> bytes:
    """The same as JSON."""
    encoded = base64.b64encode(PLAIN).decode()
    document = json.loads(json_object("v1", "Secret", NAME, "shop", data={"password": encoded}))
    document["stringData"] = {"token": PLAIN.decode()}
    applied = json.dumps({"data": {"password": encoded}})
    document["metadata"]["annotations"] = {
        "kubectl.kubernetes.io/last-applied-configuration": applied,
        **{name.decode(): text.decode() for name, text in compressed(applied.encode()).items()},
    }
    return json.dumps(document | change).encode()


PROTOBUF, JSON = recognisable(), recognisable_json()
# What a list of Secrets, a document in a string and a manifest in a custom resource look like.
ENCODED = base64.b64encode(PLAIN).decode()
MANIFEST = {
    "apiVersion": "v1", "data": {"password": ENCODED}, "kind": "Secret", "stringData": {"a": PLAIN.decode()},
}  # fmt: skip
WIDGET_KEY = "/registry/example.com/widgets/shop/w-0"


def custom(**spec: Any) -> bytes:
    """A widget with a specification of its own."""
    return json.dumps(json.loads(widget()) | {"spec": spec}).encode()


CUSTOM = {
    "manifest": custom(manifest=MANIFEST),
    "list": custom(list={"items": [{"data": MANIFEST["data"]}], "kind": "SecretList"}),
    "string": custom(text=json.dumps(MANIFEST)),
    "string in a string": custom(text=json.dumps({"inner": json.dumps(MANIFEST)})),
    "cut before the kind": custom(manifest=MANIFEST).partition(b', "kind": "Secret"')[0],
    "list cut before its kind": custom(
        list={"items": [{"data": MANIFEST["data"]}, {}], "kind": "X"}
    ).partition(b', "kind": "X"')[0],
    "no kind": json.dumps({"apiVersion": "example.com/v1", **MANIFEST, "kind": ""}).encode(),
    "damaged kind": json.dumps({"apiVersion": "v1", **MANIFEST, "kind": "Sekret"}).encode(),
}
BROKEN = {
    "readable": PROTOBUF,
    "json": JSON,
    "yaml": yaml.safe_dump(json.loads(JSON)).encode(),
    "base64": base64.b64encode(PROTOBUF),
    "cut": PROTOBUF[:-30],
    "cut in the middle": PROTOBUF[: PROTOBUF.rindex(PLAIN) + 10],
    "cut json": JSON[:-20],
    "tail": PROTOBUF + b"xx",
    "magic": b"k8t" + PROTOBUF[3:],
    "no magic": b"\xff\xff\xff\xff" + PROTOBUF[4:],
    "other kind": recognisable(b"ConfigMap"),
    "unknown kind": recognisable(b"Sekret"),
    "no kind": recognisable(b""),
    "json of another kind": recognisable_json(kind="ConfigMap"),
    "json without kind": recognisable_json(kind=""),
    "json with more": recognisable_json(note={"text": PLAIN.decode()}),
    "json where contents are a list": recognisable_json(data=[PLAIN.decode()]),
    "json where contents are text": recognisable_json(data=PLAIN.decode()),
    "json of a removed version": recognisable_json(apiVersion="v7"),
    "another name": PROTOBUF.replace(b"\x0a\x03web", b"\x0a\x03wob"),
    "entry as type": PROTOBUF.replace(b"\x12" + bytes([len(_entry(b"password", PLAIN))]) + b"\x0a\x08pass",
                                      b"\x1a" + bytes([len(_entry(b"password", PLAIN))]) + b"\x0a\x08pass"),
    "encrypted": aescbc(PROTOBUF),
    "encrypted and cut": aescbc(PROTOBUF)[:-1],
    "encrypted garbage": aescbc(PROTOBUF[:40] + b"\xff" + PROTOBUF[41:]),
    "another key": aescbc(PROTOBUF, KEY_2),
    "encrypted twice": aescbc(aescbc(PROTOBUF)),
}  # fmt: skip
PLACES = {
    "secrets": KEY, "configmaps": "/registry/configmaps/shop/web",
    "another prefix": "/kubernetes.io/secrets/shop/web", "nobody's": "/registry/example.org/things/shop/web",
}  # fmt: skip
OUTPUTS = [["-o", "text"], ["-o", "yaml"], ["-o", "json", "--omit-managed-fields"]]


@pytest.fixture
def config_file(tmp_path: Any) -> str:
    path = tmp_path / "config.yaml"
    path.write_bytes(configuration_yaml(provider("aescbc", key1=KEY_1), {"identity": {}}))
    return str(path)


def leaks(text: bytes) -> list[str]:
    shown = text.decode("utf-8", "replace")
    return [leak for leak in LEAKS if leak in shown or leak.upper() in shown]


# What says that it is a ConfigMap, and is not stored where Secrets are, is one for all that anyone can know.
HIDDEN = [
    (key, damage, value)
    for damage, value in BROKEN.items()
    for key in PLACES.values()
    if key == KEY or damage not in {"other kind", "json of another kind"}
] + [(WIDGET_KEY, damage, value) for damage, value in CUSTOM.items()]


@pytest.mark.parametrize("output", OUTPUTS, ids=" ".join)
@pytest.mark.parametrize("damage", dict.fromkeys(damage for _, damage, _ in HIDDEN))
def test_nothing_is_revealed(
    damage: str, output: list[str], monkeypatch: Patch, capfdbinary: CapturedBytes, config_file: str
) -> None:
    for key, value in ((key, value) for key, name, value in HIDDEN if name == damage):
        source = MemorySource({CRD_KEY: crd(short_names=("wd", "cj")), key: value})
        monkeypatch.setattr(get_module, "open_source", lambda _inputs, say, source=source: source)
        for what in ([key], *([["secrets", "-n", "shop"]] if key == KEY else [])):
            run(["get", *what, *output, "--encryption-config", config_file])
            captured = capfdbinary.readouterr()
            assert leaks(captured.out + captured.err) == []
            for line in (captured.out + captured.err).decode("utf-8").splitlines():
                assert line.isprintable()


def test_nothing_that_was_masked_replaces_an_object() -> None:
    only_annotated = unknown(
        b"v1", b"Secret", block(1, object_meta(b"web", b"shop") + block(12, _entry(b"a/applied", b"x")))
    )
    string_data = json_object("v1", "Secret", NAME, "shop", stringData={"a": "b"})
    forms = set()
    for key, name, value in [*HIDDEN, (KEY, "no data", only_annotated), (KEY, "stringData", string_data)]:
        text, result, (shown,) = get({CRD_KEY: crd(short_names=("wd", "cj")), key: value}, key=key)
        if not result.masked:
            continue
        document = json.loads(text)
        forms.add(shown.form)
        if shown.form is Form.OBJECT:
            assert shown.irreplaceable, name
            assert document["metadata"]["resourceVersion"] == "masked", (key, name)
        else:
            assert document["apiVersion"] == "etcdfix/v1"
    assert forms == {Form.OBJECT, Form.SALVAGE}


def test_an_object_that_is_another_than_its_key_says_replaces_nothing() -> None:
    key = "/registry/configmaps/shop/settings"
    text, result, (shown,) = get({key: config_map("other")}, key=key)
    document = json.loads(text)
    assert document["metadata"]["resourceVersion"] == "identity-mismatch"
    assert (shown.irreplaceable, result.findings) == (True, 1)
    # Also where something worse is wrong with it, which is left out.
    both = {key: managed(b'{"f:data":{"$}}', name=b"other")}
    text, _, (shown,) = get(both, key=key, omit_managed_fields=True, reveal=True)
    assert json.loads(text)["metadata"]["resourceVersion"] == "identity-mismatch"
    assert shown.found.verdict.cause == "raw-json-invalid"


def test_a_type_that_only_the_key_tells_is_marked_and_masked() -> None:
    key = "/registry/configmaps/shop/web"
    body = block(1, object_meta(b"web", b"shop")) + block(2, _entry(b"a", PLAIN))
    document = json.loads(get({key: unknown(b"v1", b"Sekret", body)}, key=key)[0])
    assert document["type_from_key"]
    assert document["partial"]["data"] == "<1 entries masked>"
    assert document["partial"]["metadata"]["name"] == "web"
    revealed = json.loads(get({key: unknown(b"v1", b"Sekret", body)}, key=key, reveal=True)[0])
    assert revealed["partial"]["data"] == {"a": PLAIN.decode()}
    document = json.loads(get({key: unknown(b"v1", b"ConfigMap", body)[:-9]}, key=key)[0])
    assert not document["type_from_key"]


def test_the_search_for_leaks_finds_what_is_revealed() -> None:
    shown = [(KEY, "yaml", PROTOBUF), (KEY, "json", PROTOBUF)]
    for key, output, value in shown + [(WIDGET_KEY, "json", value) for value in CUSTOM.values()]:
        holds = {CRD_KEY: crd(short_names=("wd", "cj")), key: value}
        text, result, _ = get(holds, key=key, output=output, reveal=True)
        assert (leaks(text.encode()) != [], result.masked) == (True, 0)


# A flipped bit, and the tags that make something else of a field of their message.
CHANGES = [*(1 << bit for bit in range(8)), 0x12 ^ 0x0A, 0x12 ^ 0x22, 0x22 ^ 0x0A]


@pytest.mark.parametrize("value", [PROTOBUF, JSON], ids=["protobuf", "json"])
@pytest.mark.parametrize("change", some(CHANGES, of=4))
def test_no_changed_byte_reveals_anything(value: bytes, change: int) -> None:
    known = set()
    for place in some(range(len(value)), of=9, turn=CHANGES.index(change)):
        damaged = value[:place] + bytes([value[place] ^ change]) + value[place + 1 :]
        text, _, (shown,) = get({KEY: damaged}, key=KEY, config=None)
        known.add(shown.found.verdict.outcome)
        text += message_of(shown.found, secret=True)
        assert leaks(text.encode()) == [], place
    assert len(known) > 1


def reveal(log: Path, wanted: dict[str, Any]) -> object:
    request = GetRequest(layout=StorageLayout("/registry"), **wanted, reveal=True)
    return record_reveal(log, request, form="yaml", file=Path("old.db"), etcd_user="root")


@pytest.mark.parametrize(
    ("wanted", "namespace", "name"),
    [
        ({"key": b"/registry/secrets/shop/web"}, "shop", "web"),
        ({"objects": (NamedObjects("secret", ("a", "b")),), "namespace": "shop"}, "shop", "a,b"),
        ({"objects": (NamedObjects("Secret"),)}, "default", ""),
        ({"objects": (NamedObjects("secrets"),), "all_namespaces": True}, "", ""),
    ],
)
def test_a_reveal_is_a_record_of_its_own(
    tmp_path: Path, wanted: dict[str, Any], namespace: str, name: str
) -> None:
    tmp_path.chmod(0o700)
    log = tmp_path / "audit.jsonl"
    link = reveal(log, wanted)
    (event,) = read_records(log)
    assert event.link == link
    assert (event.verb, event.type) == ("reveal", "reveal")
    assert event.detail == "contents revealed, as yaml, from file old.db"
    subject = event.subject
    assert (subject.resource, subject.namespace, subject.name) == ("secrets", namespace, name)
    assert verify(log).state is ChainState.WHOLE


def test_no_record_no_reveal(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(UnsafePlace):
        reveal(tmp_path / "audit.jsonl", {"objects": (NamedObjects("secrets"),)})
