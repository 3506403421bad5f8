"""Upstream's own sample objects: whatever a real API server wrote must be readable."""

from __future__ import annotations

import pytest

from etcdfix.decoding.protobuf.codec import ProtobufDecoder
from etcdfix.decoding.registry import Registry
from etcdfix.decoding.schema import load_schema
from etcdfix.model.model import GroupVersionKind
from tests.support.golden import api_samples, needs_golden, sample_kind

pytestmark = [pytest.mark.golden, needs_golden]

# With the tables of release 1.36, these samples have fields that 1.36 does not know (or not yet, or no more).
UNKNOWN_IN_1_36 = {
    "v1.34.0": {
        "resource.k8s.io.v1alpha3.DeviceTaintRule",
        "storage.k8s.io.v1.CSINode.after_roundtrip",
        "storage.k8s.io.v1beta1.CSINode.after_roundtrip",
    },
    "v1.36.0": {
        "storage.k8s.io.v1.CSINode.after_roundtrip",
        "storage.k8s.io.v1beta1.CSINode.after_roundtrip",
    },
}

WITHOUT_METADATA = {"DeploymentRollback", "SerializedReference"}


def decode_all(release: str, minor: int | None) -> tuple[set[str], set[str]]:
    registry = Registry(minor)
    decoder = ProtobufDecoder(load_schema(minor), registry)
    decoded, with_unknown_fields = set(), set()
    for name, value in api_samples(release).items():
        group, version, kind = sample_kind(name)
        registered = registry.lookup(group, version, kind)
        if registered is None or not registered.stored:
            continue
        found = decoder.decode(value, group, kind)
        assert decoder._decode_strictly(value, group, kind) == found, name
        assert found.gvk == GroupVersionKind(group, version, kind), name
        assert not found.inconsistencies, name
        assert not found.empty, name
        assert found.name == (None if kind in WITHOUT_METADATA else b"nameValue"), name
        decoded.add(name)
        if found.warnings:
            assert [note.check for note in found.warnings] == ["unknown-fields"]
            with_unknown_fields.add(name)
    return decoded, with_unknown_fields


@pytest.mark.parametrize(("release", "minor", "count"), [("v1.34.0", 34, 149), ("v1.36.0", 36, 156)])
def test_samples_of_its_own_release(release: str, minor: int, count: int) -> None:
    decoded, with_unknown_fields = decode_all(release, minor)
    assert len(decoded) == count
    # written by the next release's code, which adds fields
    assert all(name.endswith(".after_roundtrip") for name in with_unknown_fields)


@pytest.mark.parametrize(("release", "count"), [("v1.34.0", 149), ("v1.36.0", 156)])
def test_samples_with_all_known_releases_and_with_those_of_1_36(release: str, count: int) -> None:
    decoded, with_unknown_fields = decode_all(release, None)
    assert (len(decoded), with_unknown_fields) == (count, set())
    assert decode_all(release, 36)[1] == UNKNOWN_IN_1_36[release]


def test_samples_take_the_quick_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the API server wrote is proven healthy without the strict walker."""

    def fail(*_: object) -> None:
        raise AssertionError("took the strict path")

    monkeypatch.setattr(ProtobufDecoder, "_decode_strictly", fail)
    decoder = ProtobufDecoder(load_schema(36), Registry(36))
    for name in ("core.v1.Pod", "core.v1.Secret", "apps.v1.Deployment", "core.v1.Node", "batch.v1.CronJob"):
        group, _, kind = sample_kind(name)
        assert decoder.decode(api_samples("v1.36.0")[name], group, kind).name == b"nameValue"
