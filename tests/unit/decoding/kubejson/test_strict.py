"""``json.Unmarshal`` into Kubernetes' structs, error for error.

The expected messages come from running ``sigs.k8s.io/json`` on the structs of ``k8s.io/api``."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from etcdfix.decoding.kubejson.gotypes import GoTypes
from etcdfix.decoding.kubejson.strict import Unmarshalled, unmarshal, unmarshal_internal
from etcdfix.decoding.schema import load_schema
from etcdfix.golang.errors import JSONMalformed
from etcdfix.golang.gojson import tokenize
from etcdfix.model.model import Inconsistency

TYPES = GoTypes(load_schema(36))
CORE = "k8s.io.api.core.v1."
CRD = "k8s.io.apiextensions_apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition"
OBJECT_META = "k8s.io.apimachinery.pkg.apis.meta.v1.ObjectMeta"
INTO = "json: cannot unmarshal {} into Go struct field {} of type {}"
TIME = 'parsing time "<9 bytes withheld>" as "2006-01-02T15:04:05Z07:00": cannot parse "<9 bytes withheld>" as "2006"'
QUANTITY = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"


def result(data: bytes, message: str = CORE + "Pod") -> Unmarshalled:
    return unmarshal(TYPES, data, tokenize(data), message)


def said_by(call: Callable[[], object]) -> str:
    try:
        call()
    except JSONMalformed as fault:
        return fault.message
    return ""


def complaint(data: bytes, message: str = CORE + "Pod", types: GoTypes = TYPES) -> str:
    return said_by(lambda: unmarshal(types, data, tokenize(data), message))


def pod_spec(text: bytes) -> bytes:
    return b'{"spec":{' + text + b"}}"


def container(text: bytes) -> bytes:
    return pod_spec(b'"containers":[{}, {' + text + b"}]")


@pytest.mark.parametrize(
    ("data", "value", "field", "type_"),
    [
        (b'{"metadata":5}', "number", "Pod.metadata", "v1.ObjectMeta"),
        (b'{"metadata":{"uid":true}}', "bool", "ObjectMeta.metadata.uid", "types.UID"),
        (b'{"metadata":{"labels":{"a":1}}}', "number", "ObjectMeta.metadata.labels", "string"),
        (b'{"metadata":{"finalizers":["a",{}]}}', "object", "ObjectMeta.metadata.finalizers", "string"),
        (
            b'{"metadata":{"ownerReferences":[{"uid":5}]}}',
            "number", "OwnerReference.metadata.ownerReferences.uid", "types.UID",
        ),
        (pod_spec(b'"priority":5000000000'), "number <10 bytes withheld>", "PodSpec.spec.priority", "int32"),
        (
            pod_spec(b'"tolerations":[{"tolerationSeconds":-9223372036854775809}]'),
            "number <20 bytes withheld>", "Toleration.spec.tolerations.tolerationSeconds", "int64",
        ),
        (pod_spec(b'"containers":{}'), "object", "PodSpec.spec.containers", "[]v1.Container"),
        # embedded structs: the outer one is named
        (
            pod_spec(b'"volumes":[{"configMap":{"name":5}}]'),
            "number", "ConfigMapVolumeSource.spec.volumes.configMap.name", "string",
        ),
        (
            container(b'"livenessProbe":{"exec":5}'),
            "number", "Probe.spec.containers.livenessProbe.exec", "v1.ExecAction",
        ),
        (
            container(b'"livenessProbe":{"httpGet":{"port":5000000000}}'),
            "number <10 bytes withheld>", "HTTPGetAction.spec.containers.livenessProbe.httpGet.port", "int32",
        ),
    ],
)  # fmt: skip
def test_wrong_types(data: bytes, value: str, field: str, type_: str) -> None:
    assert complaint(data) == INTO.format(value, field, type_)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (container(b'"resources":{"limits":{"cpu":"abc"}}'), QUANTITY),
        (container(b'"resources":{"limits":{"cpu":[]}}'), QUANTITY),
        (container(b'"resources":{"limits":{"cpu":true}}'), QUANTITY),
        # read without resolving escapes
        (container(b'"resources":{"limits":{"cpu":"1\\u0030"}}'), QUANTITY),
        (container(b'"resources":{"limits":{"cpu":"1Gx"}}'), QUANTITY),
        (container(b'"resources":{"limits":{"cpu":"1K"}}'), "unable to parse quantity's suffix"),
        (b'{"metadata":{"creationTimestamp":"yesterday"}}', TIME),
    ],
)
def test_types_with_their_own_parser(data: bytes, message: str) -> None:
    assert complaint(data) == message


def test_a_parser_of_its_own_ends_everything_and_wins() -> None:
    data = b'{"metadata":{"name":1,"creationTimestamp":"x"},"spec":{"priority":true}}'
    assert complaint(data).startswith('parsing time "<1 bytes withheld>"')


@pytest.mark.parametrize(
    "data",
    [
        b"{}",
        b"null",
        b'{"metadata":null,"spec":null}',
        b'{"metadata":{"name":null,"labels":{"a":null},"finalizers":[null],"creationTimestamp":null}}',
        b'{"spec":{"containers":[null,{"resources":{"limits":{"cpu":null,"a":1,"b":1.5,"c":1e3,"d":" 1Gi "}}}]}}',
        container(b'"livenessProbe":{"httpGet":{"port":null}},"ports":[{"containerPort":-0}]'),
        container(b'"livenessProbe":{"httpGet":{"port":"http"}},"readinessProbe":{"httpGet":{"port":8080}}'),
        b'{"metadata":{"managedFields":[{"fieldsV1":[1,"any",null]}]},"Metadata":5,"NAME":{}}',
        pod_spec(b'"hostNetwork":true,"hostPID":false'),
        b'{"spec":{"volumes":[{"secret":{}}],"unknown":{"name":5}}}',
    ],
)
def test_null_is_absent_and_unknown_fields_are_skipped(data: bytes) -> None:
    assert complaint(data) == ""


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"data":{"a":"YQ=="}}', ""),
        (b'{"data":{"a":[1,2,255,null]}}', ""),
        (b'{"data":{"a":"!"}}', "illegal base64 data at input byte 0"),
        (b'{"data":{"a":"YWI"},"type":5}', "illegal base64 data at input byte 0"),
        (b'{"data":{"a":5}}', INTO.format("number", "Secret.data", "[]uint8")),
        (b'{"data":{"a":[256]}}', INTO.format("number <3 bytes withheld>", "Secret.data", "uint8")),
        (b'{"data":{"a":["x"]}}', INTO.format("string", "Secret.data", "uint8")),
    ],
)
def test_bytes(data: bytes, message: str) -> None:
    assert complaint(data, CORE + "Secret") == message


def schema(text: bytes) -> bytes:
    return b'{"spec":{"versions":[{"schema":{"openAPIV3Schema":{' + text + b"}}}]}}"


SCHEMA = "JSONSchemaProps.spec.versions.schema.openAPIV3Schema"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b'"items":{"type":"x"},"additionalProperties":false', ""),
        (b'"items":[{"type":"x"}],"additionalProperties":{},"dependencies":{"a":["b"],"c":{},"d":5,"e":null}', ""),
        (b'"default":{"a":1},"enum":[1,"a",null],"maximum":1.5', ""),
        (b'"enum":5', INTO.format("number", SCHEMA + ".enum", "[]v1.JSON")),
        (b'"maximum":1e999', INTO.format("number <5 bytes withheld>", SCHEMA + ".maximum", "float64")),
        (b'"maxLength":1e30', INTO.format("number <4 bytes withheld>", SCHEMA + ".maxLength", "int64")),
        (b'"additionalProperties":5', "boolean or JSON schema expected"),
        # an error inside a union gets the path of the union
        (b'"items":[{"type":5}]', INTO.format("number", SCHEMA + ".items", "string")),
        (b'"type":1,"items":{"type":{}}', INTO.format("object", SCHEMA + ".items", "string")),
        (b'"dependencies":{"a":[5]}', INTO.format("number", SCHEMA + ".dependencies", "string")),
        (
            b'"properties":{"a":{"properties":{"b":{"type":5}}}}',
            INTO.format("number", SCHEMA + ".properties.properties.type", "string"),
        ),
    ],
)  # fmt: skip
def test_schemas_of_custom_resources(text: bytes, message: str) -> None:
    assert complaint(schema(text), CRD) == message


def test_schemas_may_nest_deeper_than_the_interpreter() -> None:
    depth = 3_000
    deep = schema(b'"properties":{"a":{' * depth + b'"type":5' + b"}}" * depth)
    assert complaint(deep, CRD).endswith(".properties.type of type string")
    through_unions = schema(b'"items":{' * depth + b'"type":5' + b"}" * depth)
    assert complaint(through_unions, CRD) == INTO.format("number", SCHEMA + ".items", "string")


def test_identity_is_that_of_the_root_and_the_last_one_given() -> None:
    data = (
        b'{"metadata":{"name":"a","namespace":"n","uid":"u","name":"b\\u00e9\xff"},"metadata":{"namespace":null},'
        b'"spec":{"template":{"metadata":{"name":"inner"}}}}'
    )
    found = result(data, "k8s.io.api.apps.v1.Deployment")
    assert found.identity == {"name": b"b\xc3\xa9\xff", "namespace": b"n", "uid": b"u"}


def test_unknown_fields_are_counted_and_named() -> None:
    data = b'{"specc":{},"spec":{"x y":1,"containers":[{"immage":1}]}}'
    found = result(data)
    assert found.unknown_count == 3
    assert found.unknown == ["specc", "spec.(a name that no field has)", "spec.containers[0].immage"]
    many = result(b"{" + b",".join(b'"u%d":1' % number for number in range(50)) + b"}")
    assert (many.unknown_count, len(many.unknown)) == (50, 10)


def test_text_that_is_not_utf_8_is_found_wherever_it_is_kept() -> None:
    data = (
        b'{"metadata":{"name":"a\xff","labels":{"k\xfe":"v","l":"\xfd"},'
        b'"managedFields":[{"fieldsV1":{"f:\xfc":{}}},{"fieldsV1":{}}]},"unknown":"\xfb",'
        b'"spec":{"containers":[{"command":["ok","\xfa"],"livenessProbe":{"httpGet":{"port":"\xf9"}}}]}}'
    )
    assert result(data).inconsistencies == [
        Inconsistency("invalid-utf8", "metadata.name", "byte 1 of 2 is not UTF-8"),
        Inconsistency("invalid-utf8", "metadata.labels[0]", "key: byte 1 of 2 is not UTF-8"),
        Inconsistency("invalid-utf8", "metadata.labels[1]", "byte 0 of 1 is not UTF-8"),
        Inconsistency(
            "raw-json-invalid",
            "metadata.managedFields[0].fieldsV1",
            "byte 4 of 10 is not UTF-8",
            breaks_responses=True,
        ),
        Inconsistency("invalid-utf8", "spec.containers[0].command[1]", "byte 0 of 1 is not UTF-8"),
        Inconsistency(
            "invalid-utf8", "spec.containers[0].livenessProbe.httpGet.port", "byte 0 of 1 is not UTF-8"
        ),
    ]
    many = b'{"metadata":{"finalizers":[' + b",".join([b'"\xff"'] * 100) + b"]}}"
    assert len(result(many).inconsistencies) == 20


def test_a_duration_is_a_string_of_its_own_grammar() -> None:
    message = "k8s.io.test.Kind"
    types = GoTypes(load_schema(36))
    types._fields[message] = {"wait": TYPES.struct("k8s.io.apimachinery.pkg.apis.meta.v1.Duration")}
    types._structs[message] = TYPES.struct(CORE + "Pod")

    def said(value: bytes) -> str:
        data = b'{"wait":' + value + b"}"
        return complaint(data, message, types)

    assert said(b'"1h2.5m"') == ""
    assert said(b'"1x"') == 'time: invalid duration "<2 bytes withheld>"'
    assert said(b"null") == 'time: invalid duration "<0 bytes withheld>"'
    assert said(b"5") == INTO.format("number", "Pod.wait", "string")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"metadata":5,"data":{"a":1},"Spec":3}', ""),
        (b'{"kind":"Secret","name":"x","labels":{"a":"b"}}', ""),
        (b'{"name":5}', INTO.format("number", "Secret.name", "string")),
        (b'{"labels":{"a":1}}', INTO.format("number", "Secret.labels", "string")),
        (b"null", ""),
        (b"[]", "json: cannot unmarshal array into Go value of type core.Secret"),
    ],
)
def test_internal_structs_show_only_what_is_embedded(data: bytes, message: str) -> None:
    assert (
        said_by(lambda: unmarshal_internal(TYPES, data, tokenize(data), "core.Secret", OBJECT_META))
        == message
    )
