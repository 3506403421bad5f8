"""Upstream's own sample objects and a real cluster's: what is stored becomes exactly the JSON that was served."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from etcdfix.decoding.customresource import CustomResourceInfo
from etcdfix.decoding.kubejson.codec import JSONDecoder
from etcdfix.decoding.kubeobject import ObjectReader
from etcdfix.decoding.protobuf.envelope import parse_envelope
from etcdfix.decoding.protobuf.strict import StrictDecoder
from etcdfix.decoding.registry import Registry
from etcdfix.decoding.render.fromjson import node_from_json
from etcdfix.decoding.render.typed import Renderer
from etcdfix.decoding.schema import load_schema
from etcdfix.decoding.storagecodecs import Decoder
from etcdfix.encryption.config import load_configuration
from etcdfix.encryption.transformer import Transformers, TransformFailed
from etcdfix.golang.gojsontext import encode_json, parse_exactly
from etcdfix.model.errors import DecodeError
from etcdfix.model.storagekey import StorageCodec, StorageLayout
from etcdfix.sources.snapshot import SnapshotSource
from tests.support.collecting import ALPHA
from tests.support.golden import api_samples, needs_golden, sample_kind
from tests.support.thorough import THOROUGH

golden = [pytest.mark.golden, needs_golden]

# Samples of kinds whose messages are in none of the tables, for nobody stores them.
WITHOUT_MESSAGE = {
    "admission.k8s.io.v1.AdmissionReview",
    "admission.k8s.io.v1beta1.AdmissionReview",
    "apidiscovery.k8s.io.v2.APIGroupDiscovery",
    "apidiscovery.k8s.io.v2beta1.APIGroupDiscovery",
    "imagepolicy.k8s.io.v1alpha1.ImageReview",
}
# These say neither kind nor apiVersion; WatchEvent's envelope is the only one without.
WITHOUT_KIND = {"core.v1.WatchEvent"}


def json_samples(release: str) -> dict[str, bytes]:
    return api_samples(release, ".json")


def message_of(name: str) -> str:
    group, version, kind = sample_kind(name)
    registered = Registry().lookup(group, version, kind)
    assert registered is not None, name
    return registered.message


def convert(name: str, sample: bytes, minor: int | None) -> dict[str, Any]:
    schema = load_schema(minor)
    envelope = parse_envelope(sample)
    value: dict[str, Any] = {}
    if name not in WITHOUT_KIND:
        value = {"kind": envelope.kind.decode(), "apiVersion": envelope.api_version.decode()}
    message = message_of(name)
    Renderer(schema).render(message, StrictDecoder(schema).decode(message, envelope.raw).node, value)
    return value


def convertible(release: str) -> dict[str, tuple[bytes, bytes]]:
    served = json_samples(release)
    return {
        name: (stored, served[name])
        for name, stored in api_samples(release).items()
        if name in served and name not in WITHOUT_MESSAGE
    }


@pytest.mark.parametrize(("release", "count"), [("v1.34.0", 178), ("v1.36.0", 185)])
class TestSamples:
    pytestmark = golden

    def test_all_convert_to_the_byte(self, release: str, count: int) -> None:
        """With all tables, and with those of its release; ``.after_roundtrip`` were written by the next release."""
        minor = int(release.split(".")[1])
        samples = convertible(release)
        for name, (stored, served) in samples.items():
            for tables in (None,) if name.endswith(".after_roundtrip") else (None, minor):
                assert encode_json(convert(name, stored, tables), indent="  ") == served.rstrip(b"\n"), name
        assert len(samples) == count == len(json_samples(release)) - len(WITHOUT_MESSAGE)

    def test_the_same_json_stored_is_served_unchanged(self, release: str, count: int) -> None:
        schema = load_schema()
        renderer = Renderer(schema)
        samples = convertible(release)
        for name, (_, served) in samples.items():
            stored = parse_exactly(served)
            value = {part: stored[part] for part in ("kind", "apiVersion") if part in stored}
            node, misfits = node_from_json(schema, message_of(name), stored)
            renderer.render(message_of(name), node, value)
            assert not misfits, name
            assert encode_json(value, indent="  ") == served.rstrip(b"\n"), name
        assert len(samples) == count

    def test_stored_kinds_as_their_keys_promise(self, release: str, count: int) -> None:
        minor = int(release.split(".")[1])
        reader, registry = ObjectReader(Decoder(minor)), Registry(minor)
        found = 0
        for name, (stored, served) in convertible(release).items():
            group, version, kind = sample_kind(name)
            registered = registry.lookup(group, version, kind)
            if registered is None or not registered.stored or name.endswith(".after_roundtrip"):
                continue
            assert reader.builtin(stored, group, kind).to_json(indent="  ") == served.rstrip(b"\n"), name
            found += 1
        assert found > count - 50


@pytest.mark.parametrize(("release", "count"), [("v1.34.0", 143), ("v1.36.0", 147)])
@pytest.mark.golden
@needs_golden
def test_every_sample_is_readable_as_json_and_as_yaml(release: str, count: int) -> None:
    registry, stack = Registry(), Decoder()
    decoder = JSONDecoder(load_schema(), registry)
    judged = 0
    for name, data in json_samples(release).items():
        group, version, kind = sample_kind(name)
        registered = registry.lookup(group, version, kind)
        if registered is None or not registered.stored or name.endswith(".after_roundtrip"):
            continue
        if b'"apiVersion"' not in data or b'"metadata"' not in data:
            continue
        judged += 1
        decoded = decoder._prove_healthy(data, group, kind)
        assert decoded is not None
        assert decoder.decode_strictly(data, group, kind) == decoded
        assert (decoded.name, decoded.uid) == (b"nameValue", b"uidValue")
        assert (decoded.warnings, decoded.inconsistencies) == ((), ())
        if not THOROUGH and judged % 8:
            continue  # YAML is read slowly
        as_yaml = stack.builtin(yaml.safe_dump(json.loads(data)).encode(), group, kind)
        assert (as_yaml.encoding, as_yaml.name) == ("yaml", b"nameValue")
    assert judged == count


@pytest.mark.golden
@needs_golden
def test_every_cut_of_a_pod_leaves_a_part_of_it() -> None:
    stored = api_samples("v1.36.0")["core.v1.Pod"]
    reader = ObjectReader(Decoder())
    sizes = []
    for length in range(60, len(stored), 97):
        cut = stored[:length]
        with pytest.raises(DecodeError) as refused:
            reader.builtin(cut, "", "Pod")
        left = reader.salvage(cut, refused.value, "", "Pod")
        assert left is not None
        assert (left.partial, left.damage is not None) == (True, True)
        assert left.value["metadata"]["name"] == "nameValue"
        sizes.append(len(left.to_json()))
    assert sizes == sorted(sizes)
    assert len(sizes) > 100


# -- the real cluster


@pytest.fixture(scope="module")
def alpha() -> dict[bytes, bytes]:
    with SnapshotSource(ALPHA / "snapshot.db.gz") as source:
        return {stored.key: stored.value for stored in source.current(b"/registry/")}


def plaintexts(values: dict[bytes, bytes]) -> set[tuple[bytes, bytes]]:
    found = set()
    layout = StorageLayout()
    for path in sorted(ALPHA.glob("*.yaml")):
        transformers = Transformers.from_configuration(load_configuration(path), lambda _: None)
        for key, value in values.items():
            directory, _ = layout.locate(key)
            try:
                plain = transformers.for_resource(directory.group_resource).from_storage(value, key)
            except TransformFailed:
                continue
            found.add((key, plain.data))
    return found


def test_every_readable_object_of_a_real_cluster_converts(alpha: dict[bytes, bytes]) -> None:
    layout, decoder = StorageLayout(), Decoder(36)
    reader = ObjectReader(decoder)
    definitions: dict[tuple[str, str], CustomResourceInfo] = {}
    for key, value in alpha.items():
        if key.startswith(b"/registry/apiextensions.k8s.io/"):
            definition = decoder.crd(value)
            definitions[definition.group, definition.plural] = definition
    encodings: dict[str, int] = {}
    refused = empty = 0
    for key, data in plaintexts(alpha):
        directory, _ = layout.locate(key)
        if directory.codec is StorageCodec.NOT_AN_OBJECT:
            continue
        try:
            if directory.codec in {StorageCodec.CUSTOM_RESOURCE, StorageCodec.UNKNOWN}:
                found = reader.custom_resource(data, definitions[directory.group, directory.resource])
            elif directory.codec is StorageCodec.JSON_BUILTIN:
                found = reader.json_builtin(data, directory.group, directory.kind)
            else:
                found = reader.builtin(data, directory.group, directory.kind)
        except DecodeError as error:
            refused += 1
            left = reader.salvage(data, error, directory.group, directory.kind)
            assert left is None or left.damage is not None
            continue
        if found.empty:
            empty += 1
            continue
        assert found.value["kind"]
        assert found.value["apiVersion"]
        assert isinstance(found.value["metadata"], dict)
        if found.encoding == "json":  # written by the API server, so nothing may change
            assert found.to_json() == data.rstrip(b"\n")
        encodings[found.encoding] = encodings.get(found.encoding, 0) + 1
    assert encodings == {"protobuf": 402, "json": 45}
    assert (refused, empty) == (15, 1)
