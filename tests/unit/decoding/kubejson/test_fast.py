"""The fast Structs: narrow, complete, and closed over recursive schemas."""

from __future__ import annotations

import msgspec
import pytest

from etcdfix.decoding.kubejson.fast import Structs
from etcdfix.decoding.kubejson.gotypes import GoTypes
from etcdfix.decoding.schema import load_schema

STRUCTS = Structs(GoTypes(load_schema(36)))
POD = STRUCTS.decoder("k8s.io.api.core.v1.Pod", "v1", "Pod")
SECRET = STRUCTS.decoder("k8s.io.api.core.v1.Secret", "v1", "Secret")
CRD = STRUCTS.decoder(
    "k8s.io.apiextensions_apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition",
    "apiextensions.k8s.io/v1",
    "CustomResourceDefinition",
)


def pod(text: bytes) -> bytes:
    return b'{"kind":"Pod","apiVersion":"v1",' + text + b"}"


def crd(text: bytes) -> bytes:
    head = b'{"kind":"CustomResourceDefinition","apiVersion":"apiextensions.k8s.io/v1","spec":{"versions":['
    return head + b'{"schema":{"openAPIV3Schema":{' + text + b"}}}]}}"


@pytest.mark.parametrize(
    ("decoder", "data"),
    [
        (POD, pod(b'"metadata":{"name":"a","uid":"u","creationTimestamp":"2024-02-28T23:59:59Z"}')),
        (POD, pod(b'"metadata":null,"spec":{"priority":2147483647}')),
        (POD, pod(b'"spec":{"containers":[null,{"resources":{"limits":{"cpu":"100m","x":5}}}]}')),
        (POD, pod(b'"metadata":{"managedFields":[{"fieldsV1":{"f:a":{}}}]},"spec":{"volumes":[{"emptyDir":{}}]}')),
        (SECRET, b'{"apiVersion":"v1","kind":"Secret","data":{"a":"YQ==","b":null}}'),
        (CRD, crd(b'"properties":{"a":{"items":{"type":"x"}},"b":{"items":[{"not":{}}]}}')),
        (CRD, crd(b'"additionalProperties":false,"not":{"additionalProperties":{}}')),
        (CRD, crd(b'"default":{"a":[1]},"$ref":"x","dependencies":{"a":["b"],"c":{}},"maximum":5')),
    ],
)  # fmt: skip
def test_healthy_objects_decode(decoder: msgspec.json.Decoder[object], data: bytes) -> None:
    decoder.decode(data)


@pytest.mark.parametrize(
    ("decoder", "data"),
    [
        (POD, pod(b'"unknown":1')),
        (POD, b'{"kind":"Pod","apiVersion":"v2"}'),
        (POD, b'{"kind":"Node","apiVersion":"v1"}'),
        (POD, b'{"kind":"Pod"}'),
        (POD, pod(b'"Kind":"Node"')),
        (POD, pod(b'"spec":{"priority":2147483648}')),
        (POD, pod(b'"spec":{"priority":1.0}')),
        (POD, pod(b'"spec":{"containers":[{"resources":{"limits":{"cpu":"1 "}}}]}')),
        (POD, pod(b'"spec":{"containers":[{"resources":{"limits":{"cpu":"1\\n"}}}]}')),
        (POD, pod(b'"spec":{"containers":[{"resources":{"limits":{"cpu":1.5}}}]}')),
        (POD, pod(b'"metadata":{"creationTimestamp":"2023-02-29T00:00:00Z"}')),
        (POD, pod(b'"metadata":{"creationTimestamp":"2024-01-01T00:00:00Z\\n"}')),
        (POD, pod(b'"metadata":{"name":5}')),
        (SECRET, b'{"apiVersion":"v1","kind":"Secret","data":{"a":"YQ"}}'),
        (CRD, crd(b'"default":1e999')),
        (CRD, crd(b'"additionalProperties":5')),
        (CRD, crd(b'"properties":{"a":{"items":{"type":5}}}')),
    ],
)
def test_whatever_is_not_plainly_healthy_is_left_to_the_exact_way(
    decoder: msgspec.json.Decoder[object], data: bytes
) -> None:
    with pytest.raises(msgspec.ValidationError):
        decoder.decode(data)


def test_every_message_of_every_release_can_be_made() -> None:
    schema = load_schema()
    structs = Structs(GoTypes(schema))
    for message in schema:
        if not schema.message(message).special:
            assert structs.decoder(message, "v1", "Any")
