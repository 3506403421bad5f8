"""What of a Secret is masked, and that nothing else is."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from etcdfix.report.masking import (
    MASKED,
    Identity,
    is_masked,
    make_irreplaceable,
    marker,
    mask_secrets,
    says_secret,
)

UID = "7f1f419d-c5fb-462d-a256-4984285eb38d"


def secret(**change: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "web", "namespace": "shop", "uid": UID, "labels": {"app": "web"}},
        "data": {"password": base64.b64encode(b"hidden!").decode()},
        "type": "Opaque",
    } | change


def test_values_are_masked_and_the_rest_is_not() -> None:
    value = secret(immutable=True)
    assert mask_secrets(value, secret=True) == 1
    assert value == secret(immutable=True, data={"password": "<7 bytes masked>"})


@pytest.mark.parametrize("text", ["<7 bytes masked>", marker("x"), marker({}), marker(None)])
def test_no_marker_is_base64(text: str) -> None:
    with pytest.raises(ValueError):
        base64.b64decode(text, validate=True)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("aGlkZGVu", "<6 bytes masked>"), ("aGlkZGVuIQ==", "<7 bytes masked>"), ("", "<0 bytes masked>"),
        ("hidden!", "<7 bytes masked>"), ("é", "<2 bytes masked>"), ({"a": 1}, "<1 entries masked>"),
        ([1, 2], "<2 entries masked>"), (7, "<masked>"), ("<7 bytes masked>", "<7 bytes masked>"),
        ("<masked>", "<masked>"),
    ],
)  # fmt: skip
def test_markers_tell_the_size(value: Any, expected: str) -> None:
    assert marker(value) == expected


@pytest.mark.parametrize(
    ("change", "expected", "masked"),
    [
        ({"stringData": {"a": "b"}}, {"stringData": {"a": "<1 bytes masked>"}}, 2),
        ({"data": None}, {"data": None}, 0),
        ({"data": ["x"]}, {"data": "<1 entries masked>"}, 1),
        ({"data": "x"}, {"data": "<1 bytes masked>"}, 1),
        ({"data": {"a b": "eA=="}}, {"data": {"<key of 3 bytes masked>": "<1 bytes masked>"}}, 1),
        ({"data": {"hidden": ""}}, {"data": {"<key of 6 bytes masked>": "<0 bytes masked>"}}, 1),
        ({"type": "\n\x08key\x12\x03abc"}, {"type": "<10 bytes masked>"}, 2),
        ({"type": ""}, {"type": ""}, 1),
        ({"type": 7}, {"type": "<masked>"}, 2),
        ({"immutable": "x"}, {"immutable": "<1 bytes masked>"}, 2),
        ({"more": {"x": "y"}}, {"more": "<1 entries masked>"}, 2),
        ({"metadata": "x"}, {"metadata": "<1 bytes masked>"}, 2),
        ({"metadata": {"generateName": "other-", "name": "web"}},
         {"metadata": {"generateName": "<6 bytes masked>", "name": "web"}}, 2),
        ({"metadata": {"generateName": "we", "name": "web"}}, {"metadata": {"generateName": "we", "name": "web"}}, 1),
        ({"metadata": {"annotations": {"a": "x", "b": "y"}}}, {"metadata": {"annotations": "<2 entries masked>"}}, 2),
        ({"metadata": {"labels": {"a": "x\x00"}}}, {"metadata": {"labels": "<1 entries masked>"}}, 2),
        ({"metadata": {"labels": {"{": "x"}}}, {"metadata": {"labels": "<1 entries masked>"}}, 2),
        ({"metadata": {"finalizers": ["a/b", '{"x']}}, {"metadata": {"finalizers": "<2 entries masked>"}}, 2),
        ({"metadata": {"finalizers": ["a/b"], "ownerReferences": [{"uid": "u", "controller": True}]}},
         {"metadata": {"finalizers": ["a/b"], "ownerReferences": [{"uid": "u", "controller": True}]}}, 1),
        ({"metadata": {"managedFields": [{}], "name": "w\n"}},
         {"metadata": {"managedFields": "<1 entries masked>", "name": "<2 bytes masked>"}}, 3),
    ],
)  # fmt: skip
def test_what_is_masked(change: dict[str, Any], expected: dict[str, Any], masked: int) -> None:
    value = secret(**change)
    assert mask_secrets(value, secret=False) == masked
    assert {name: value[name] for name in change} == expected


def test_what_is_stored_where_secrets_are_is_masked_but_for_metadata() -> None:
    value = secret(kind="ConfigMap", type="Opaque")
    assert mask_secrets(value, secret=True) == 2
    assert value["metadata"] == secret()["metadata"]
    assert (value["data"], value["type"], value["kind"]) == (
        "<1 entries masked>", "<6 bytes masked>", "ConfigMap",
    )  # fmt: skip
    value = {"kind": "\n", "metadata": None}
    assert mask_secrets(value, secret=True) == 2


def test_other_objects_are_left_alone_with_their_references_to_secrets() -> None:
    value = {"kind": "Event", "involvedObject": {"kind": "Secret", "name": "web"}, "data": {"a": "b"}}
    copy = {"kind": "Event", "involvedObject": {"kind": "Secret", "name": "web"}, "data": {"a": "b"}}
    assert mask_secrets(value, secret=False) == 0
    assert value == copy


def test_a_secret_inside_that_was_masked_replaces_nothing() -> None:
    value = {"kind": "List", "items": [secret(), secret(data=None)]}
    assert mask_secrets(value, secret=False) == 1
    masked, other = value["items"]
    assert isinstance(masked, dict)
    assert isinstance(other, dict)
    assert masked["metadata"]["resourceVersion"] == MASKED
    assert "resourceVersion" not in other["metadata"]


INSIDE = {"kind": "Secret", "data": {"a": "aGlkZGVu"}}


@pytest.mark.parametrize(
    ("text", "is_masked"),
    [
        (json.dumps(INSIDE), True),
        (" " + json.dumps([INSIDE]), True),
        (json.dumps(json.dumps(INSIDE)), False),  # a text, not a document
        (json.dumps({"text": json.dumps(INSIDE)}), True),
        (json.dumps({"kind": "SecretList", "items": [{"stringData": {"a": "b"}}]}), True),
        (json.dumps(INSIDE)[:-1], True),
        (json.dumps({"kind": "Secret", "name": "web"}), False),
        (json.dumps({"kind": "SecretStore", "data": {"a": "b"}}), False),
        (json.dumps({"kind": "ConfigMap", "data": {"a": "b"}}), False),
        ("kind: Secret", False),
    ],
)
def test_documents_in_strings(text: str, is_masked: bool) -> None:
    for place in ({"spec": {"text": text}}, {"items": [[text]]}):
        assert (marker(text) in json.dumps(place)) is False
        assert mask_secrets(place, secret=False) == is_masked
        assert (marker(text) in json.dumps(place)) is is_masked


def test_what_was_cut_may_have_lost_the_kind_that_it_had() -> None:
    data = {"a": "aGlkZGVu"}
    value: dict[str, Any] = {
        "kind": "Widget",
        "data": {"a": "b"},
        "spec": {
            "data": {"x": "y"},
            "list": {
                "items": [{"data": dict(data)}, {"kind": "Pod", "data": {}}, {"stringData": dict(data)}]
            },
        },
    }
    assert mask_secrets(value, secret=False, cut=True) == 3
    assert value["data"] == {"a": "b"}
    spec = value["spec"]
    assert spec["data"] == {"x": "<1 bytes masked>"}
    first, pod, last = spec["list"]["items"]
    assert (first["data"], last["stringData"]) == ({"a": "<6 bytes masked>"}, {"a": "<6 bytes masked>"})
    assert pod == {"kind": "Pod", "data": {}}
    assert mask_secrets({}, secret=False, cut=True) == 0


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\x06Secret", True), (b"\x0aSecretList", True), (b'{"kind":"Secret"}', True),
        (b"kind: Secret\n", True), (b'"{\\"kind\\":\\"Secret\\"}"', True), (b'{"kind":"Secret', True),
        (b"\x44kind\x46Secret", True), (b"\x64kind\x6aSecretList", True),
        (base64.b64encode(b'{"kind":"Secret"}'), True), (b'"f:imagePullSecrets":{}', False),
        (b"\x0eimagePullSecret", False), (b'{"kind":"SecretProviderClass"}', False),
        (b"k8s\x00\n\x06Sekret", False), (base64.b64encode(b"nothing here"), False),
    ],
)  # fmt: skip
def test_what_says_that_it_is_a_secret(data: bytes, said: bool) -> None:
    assert says_secret(data) is said


def test_objects_that_replace_nothing() -> None:
    for metadata, expected in (
        ({"name": "a", "resourceVersion": "7"}, {"name": "a", "resourceVersion": "w"}),
        (None, {"resourceVersion": "w"}),
        ("<1 bytes masked>", "<1 bytes masked>"),
    ):
        item: dict[str, Any] = {"metadata": metadata}
        make_irreplaceable(item, "w")
        assert item == {"metadata": expected}


def test_of_a_damaged_secret_only_what_the_key_confirms_is_shown() -> None:
    value = secret(
        metadata={
            "name": "web", "namespace": "other", "uid": UID, "generation": 1,
            "creationTimestamp": "2026-11-21T01:34:40Z", "deletionTimestamp": "hidden", "labels": {"a": "b"},
            "{": "x",
        },
        **{"\x00": 1},
    )  # fmt: skip
    assert mask_secrets(value, secret=True, damaged=Identity("shop", "web")) == 7
    assert value == {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": "web", "uid": UID, "generation": 1, "creationTimestamp": "2026-11-21T01:34:40Z",
            "namespace": "<5 bytes masked>", "deletionTimestamp": "<6 bytes masked>",
            "labels": "<1 entries masked>", "<key of 1 bytes masked>": "<1 bytes masked>",
        },
        "data": "<1 entries masked>",
        "type": "<6 bytes masked>",
        "<key of 1 bytes masked>": "<masked>",
    }  # fmt: skip


def test_a_damaged_secret_without_metadata() -> None:
    value: dict[str, Any] = {"kind": "hidden text", "metadata": "x"}
    assert mask_secrets(value, secret=True, damaged=Identity("shop", "web")) == 2
    assert value == {"kind": "<11 bytes masked>", "metadata": "<1 bytes masked>"}


@pytest.mark.parametrize(
    ("value", "masked"),
    [
        ({"metadata": {"resourceVersion": "masked"}}, True),
        ({"metadata": {"resourceVersion": "identity-mismatch"}}, True),
        ({"data": {"a": "<5 bytes masked>"}}, True),
        ({"data": {"<masked>": 1}}, True),
        ({"list": [1, {"x": ["<12 entries masked>"]}]}, True),
        ({"annotation": '{"data":{"a":"\\u003c5 bytes masked\\u003e"}}'}, True),
        ({"annotation": "text <masked> text"}, True),
        ({}, False),
        ({"metadata": None}, False),
        ({"metadata": {"resourceVersion": ["masked"]}}, False),
        ({"metadata": {"resourceVersion": "7", "name": "masked"}}, False),
        ({"data": {"a": "bWFza2Vk", "masked": ""}, "b": "5 bytes masked", "c": "<5 bytes>"}, False),
    ],
)
def test_what_was_masked_is_known_again(value: dict[str, Any], masked: bool) -> None:
    assert is_masked(value) is masked
