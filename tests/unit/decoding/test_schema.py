from __future__ import annotations

import zlib
from pathlib import Path

import pytest

from etcdfix.decoding import schema as schema_module
from etcdfix.decoding.quantity import FORMAT_WRONG, SUFFIX_WRONG, canonical, quantity_error
from etcdfix.decoding.registry import Registry, SchemeName
from etcdfix.decoding.schema import kind_rows, load_schema


def test_every_message_unpacks_and_refers_to_messages_that_exist() -> None:
    schema = load_schema()
    names = list(schema)
    assert len(names) == 1610
    for name in names:
        for field in schema.message(name).fields:
            type_ = field.value_type or field.type
            assert type_ in schema_module.SCALAR_TYPES or type_ in schema, (name, field.name)


META = "k8s.io.apimachinery.pkg.apis.meta.v1"
# Messages that the generator wants to find in any tables.


def test_the_shipped_file_is_a_zlib_stream_of_its_own_version() -> None:
    path = Path(schema_module.__file__).parent / "data" / "kubernetes-api.z"
    assert zlib.decompress(path.read_bytes()).startswith(b"kubernetes-api 1 17 37\n")


@pytest.mark.parametrize(("minor", "known"), [(None, True), (24, True), (25, False)])
def test_cluster_name_was_a_field_of_metadata(minor: int | None, known: bool) -> None:
    names = [field.json_name for field in load_schema(minor).message(f"{META}.ObjectMeta").fields]
    assert names[-2:] == (["clusterName", "managedFields"] if known else ["finalizers", "managedFields"])


# A running 1.36 kube-apiserver's scheme, without the kinds that live in schemes of their own.
REGISTERED_1_36 = {
    "": "v1",
    "admission.k8s.io": "v1 v1beta1",
    "admissionregistration.k8s.io": "v1 v1beta1 v1alpha1",
    "apps": "v1 v1beta2 v1beta1",
    "authentication.k8s.io": "v1 v1beta1 v1alpha1",
    "authorization.k8s.io": "v1 v1beta1",
    "autoscaling": "v2 v1",
    "batch": "v1 v1beta1",
    "certificates.k8s.io": "v1 v1beta1 v1alpha1",
    "coordination.k8s.io": "v1 v1beta1 v1alpha2",
    "discovery.k8s.io": "v1 v1beta1",
    "events.k8s.io": "v1 v1beta1",
    "extensions": "v1beta1",
    "flowcontrol.apiserver.k8s.io": "v1 v1beta3 v1beta2 v1beta1",
    "imagepolicy.k8s.io": "v1alpha1",
    "internal.apiserver.k8s.io": "v1alpha1",
    "networking.k8s.io": "v1 v1beta1",
    "node.k8s.io": "v1 v1beta1 v1alpha1",
    "policy": "v1 v1beta1",
    "rbac.authorization.k8s.io": "v1 v1beta1 v1alpha1",
    "resource.k8s.io": "v1 v1beta2 v1beta1 v1alpha3",
    "scheduling.k8s.io": "v1 v1beta1 v1alpha2",
    "storage.k8s.io": "v1 v1beta1 v1alpha1",
    "storagemigration.k8s.io": "v1beta1",
}


def registered_versions(registry: Registry) -> set[tuple[str, str]]:
    known = {(row.group, row.version) for row in kind_rows() if row.version}
    known |= {(group, version) for group, versions in REGISTERED_1_36.items() for version in versions.split()}
    return {pair for pair in known if registry.lookup(*pair, "GetOptions") is not None}


def test_group_versions_of_1_36() -> None:
    expected = {
        (group, version) for group, versions in REGISTERED_1_36.items() for version in versions.split()
    }
    assert registered_versions(Registry(36)) == expected


def test_group_versions_of_the_other_schemes() -> None:
    for scheme, group in (
        (SchemeName.APIEXTENSIONS, "apiextensions.k8s.io"),
        (SchemeName.AGGREGATOR, "apiregistration.k8s.io"),
    ):
        registry = Registry(36, scheme)
        assert registered_versions(registry) == {("", "v1"), (group, "v1"), (group, "v1beta1")}
        assert registry.lookup("", "v1", "Secret") is None
        status = registry.lookup("", "v1", "Status")
        assert status is not None
        assert registry.lookup("", "v1", "GetOptions") is not None


def test_what_other_releases_register() -> None:
    kind = ("autoscaling", "v2beta2", "HorizontalPodAutoscaler")
    assert Registry(35).lookup(*kind) is not None
    assert Registry(36).lookup(*kind) is None
    assert Registry().lookup(*kind) is not None
    for registry in (Registry(35), Registry(36), Registry()):
        assert registry.readable_until(*kind) == "1.35"
    assert Registry(36).reason_unregistered(*kind) == "version-removed"
    assert Registry(20).reason_unregistered(*kind) == "not-registered"
    # options kinds go with their group version
    assert Registry(35).lookup("autoscaling", "v2beta2", "ListOptions") is not None
    assert Registry(36).lookup("autoscaling", "v2beta2", "ListOptions") is None


def test_a_kind_newer_than_the_release_is_not_registered_rather_than_removed() -> None:
    kind = ("storagemigration.k8s.io", "v1", "StorageVersionMigration")
    assert Registry(36).lookup(*kind) is None
    assert Registry(36).reason_unregistered(*kind) == "not-registered"
    assert Registry(36).readable_until(*kind) == ""


def test_internal_versions() -> None:
    registry = Registry(36)
    assert registry.internal_of("", "ConfigMap", "", "Secret") == "core.ConfigMap"
    assert registry.internal_of("extensions", "Deployment", "", "Secret") == "apps.Deployment"
    assert not registry.internal_of("", "Deployment", "", "Secret")
    assert not registry.internal_of("scheduling.k8s.io", "CompositePodGroup", "", "Secret")
    assert Registry().internal_of("scheduling.k8s.io", "CompositePodGroup", "", "Secret")
    assert registry.first_group("networking.k8s.io", "Ingress") == "extensions"
    assert registry.first_group("", "Secret") == ""


@pytest.mark.parametrize(
    "value",
    [
        "0", "1", "+1", "-1m", "100m", "128Mi", "1.5", "1.5Gi", ".5", "5.", ".", "+", "-", "+.", "1k", "1n", "1u",
        "1M", "1G", "1T", "1P", "1E", "1Ki", "1Ti", "1Pi", "1Ei", "1e3", "1E3", "1e+3", "1e-3", "1E-99", "1e99",
        "12345678901234567890123", "00012", "0.000", ".Ti", "k", "Ki", "e5", ".e-9", "1e4294967295",
    ],
)  # fmt: skip
def test_parses(value: str) -> None:
    assert not quantity_error(value.encode())


@pytest.mark.parametrize(
    "value",
    [b"", b"abc", b"1 Gi", b" 1", b"1\n", b"1Zi", b"0x1", b"1.2.3", b"--1x", b"1e3e", b"1\xff", b"1e+-3"],
)
def test_wrong_format(value: bytes) -> None:
    assert quantity_error(value) == FORMAT_WRONG


@pytest.mark.parametrize(
    "value",
    ["1K", "1e", "1ee3", "1ki", "1mi", "1e-", "1+5", "1-", "--1", "1e9223372036854775808", "1e" + "9" * 40],
)
def test_wrong_suffix(value: str) -> None:
    assert quantity_error(value.encode()) == SUFFIX_WRONG


@pytest.mark.parametrize("value", [b"1" * 500_000 + b"x", b"E" * 500_000, b"1e" + b"0" * 500_000 + b"1"])
def test_long_strings_cost_little(value: bytes) -> None:
    quantity_error(value)


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("1.5", "1500m"),
        ("1.5Gi", "1536Mi"),
        ("1000", "1k"),
        ("1001", "1001"),
        ("1024Ki", "1Mi"),
        ("1025Ki", "1025Ki"),
        ("0.5Ki", "512"),
        ("0.0001Ki", "102400u"),
        ("-1.5Gi", "-1536Mi"),
        ("1e4", "10e3"),
        ("1.5e3", "1500"),
        ("1000E", "1e21"),
        (".", "0"),
        ("0.00000000001", "1n"),
        ("-1e-20", "-1e-9"),
        ("1e-2000000000", "1e-9"),
        ("9Ei", "9223372036854775807"),
        ("9007199254740992.00000000001Ki", "9223372036854775807"),
        ("99999999999999999999", "99999999999999999999"),
    ],
)
def test_canonical_form(value: str, written: str) -> None:
    assert canonical(value.encode()) == written
