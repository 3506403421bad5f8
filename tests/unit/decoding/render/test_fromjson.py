"""Stored JSON of built-ins, rendered as the API server would after a trip through its Go struct."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from etcdfix.decoding.render.fromjson import node_from_json
from etcdfix.decoding.render.typed import Renderer
from etcdfix.decoding.schema import load_schema
from etcdfix.golang.gojsontext import NumberLiteral, parse_exactly

CORE = "k8s.io.api.core.v1."
CRD = "k8s.io.apiextensions_apiserver.pkg.apis.apiextensions.v1."
META = "k8s.io.apimachinery.pkg.apis.meta.v1."

schema = load_schema(36)
renderer = Renderer(schema)


def served(message: str, stored: dict[str, Any]) -> tuple[Any, int]:
    node, misfits = node_from_json(schema, message, stored)
    return renderer.render(message, node), misfits


@pytest.mark.parametrize(
    ("message", "stored", "shown"),
    [
        (
            CORE + "Secret",
            {"data": {"a": "AP8=", "b": None, "c": [1, 255]}},
            {"data": {"a": "AP8=", "b": "", "c": "Af8="}},
        ),
        (
            CORE + "Volume",
            {"name": "v", "secret": {"secretName": "s"}},
            {"name": "v", "secret": {"secretName": "s"}},
        ),
        (
            CORE + "ResourceRequirements",
            {"limits": {"cpu": 1.5, "b": " 1.5Gi ", "c": 2, "d": NumberLiteral("0.50"), "e": None}},
            {"limits": {"b": "1536Mi", "c": "2", "cpu": "1500m", "d": "500m", "e": "0"}},
        ),
        (CORE + "HTTPGetAction", {"port": 80}, {"port": 80}),
        (CORE + "HTTPGetAction", {"port": "web"}, {"port": "web"}),
        (
            META + "ObjectMeta",
            {"creationTimestamp": "2020-01-01T01:00:00.5+01:00"},
            {"creationTimestamp": "2020-01-01T00:00:00Z"},
        ),
        (META + "ObjectMeta", {"finalizers": ["a", None]}, {"finalizers": ["a", ""]}),
        (META + "ManagedFieldsEntry", {"fieldsV1": {"f:a": {}}}, {"fieldsV1": {"f:a": {}}}),
        (
            "k8s.io.api.coordination.v1.LeaseSpec",
            {"renewTime": "2020-01-01T00:00:00.000001Z", "leaseDurationSeconds": 1},
            {"leaseDurationSeconds": 1, "renewTime": "2020-01-01T00:00:00.000001Z"},
        ),
        (
            CRD + "JSONSchemaProps",
            {"maximum": 1, "items": [{}], "additionalProperties": False, "nullable": True},
            {"maximum": 1.0, "items": [{}], "additionalProperties": False, "nullable": True},
        ),
        (
            "k8s.io.api.certificates.v1.CertificateSigningRequestSpec",
            {"request": "", "signerName": "s", "extra": {"a": ["x"]}},
            {"request": "", "signerName": "s", "extra": {"a": ["x"]}},
        ),
    ],
)
def test_values(message: str, stored: dict[str, Any], shown: dict[str, Any]) -> None:
    value, misfits = served(message, stored)
    value = {name: value[name] for name in shown}
    assert (value, misfits) == (shown, 0)


@pytest.mark.parametrize(
    ("message", "stored"),
    [
        (CORE + "Secret", {"type": 1}),
        (CORE + "Secret", {"immutable": "yes"}),
        (CORE + "Secret", {"data": ["a"]}),
        (CORE + "Secret", {"data": {"a": "?"}}),
        (CORE + "Secret", {"data": {"a": [256]}}),
        (CORE + "Secret", {"metadata": "a"}),
        (CORE + "PodSpec", {"priority": 1 << 31}),
        (CORE + "PodSpec", {"priority": 1.5}),
        (CORE + "PodSpec", {"priority": True}),
        (CORE + "PodSpec", {"containers": {}}),
        (CORE + "PodSpec", {"containers": ["a"]}),
        (CORE + "ResourceRequirements", {"limits": {"cpu": "much"}}),
        (CORE + "ResourceRequirements", {"limits": {"cpu": True}}),
        (CORE + "HTTPGetAction", {"port": 1 << 31}),
        (CORE + "HTTPGetAction", {"port": []}),
        (META + "ObjectMeta", {"creationTimestamp": "yesterday"}),
        (META + "ObjectMeta", {"creationTimestamp": 1}),
        (META + "APIResource", {"verbs": "get"}),
    ],
)
def test_what_does_not_fit_is_left_out(message: str, stored: dict[str, Any]) -> None:
    value, misfits = served(message, stored)
    empty = served(message, {})[0]
    assert misfits == 1
    for name, shown in value.items():
        assert shown in ([], {}) or shown == empty.get(name)


def test_depth_costs_no_stack() -> None:
    stored = parse_exactly(b'{"not":' * 3000 + b"{}" + b"}" * 3000)
    assert sys.getrecursionlimit() < 3000
    value, misfits = served(CRD + "JSONSchemaProps", stored)
    depth = 0
    while value:
        value = value["not"]
        depth += 1
    assert (depth, misfits) == (3000, 0)
