from __future__ import annotations

import runpy
import sys
import zlib
from pathlib import Path

import pytest

from etcdfix.decoding import schema as schema_module
from etcdfix.decoding.quantity import FORMAT_WRONG, SUFFIX_WRONG, canonical, quantity_error
from etcdfix.decoding.registry import Registry, SchemeName, stored_kinds
from etcdfix.decoding.schema import Field, kind_rows, load_schema

GENERATOR = Path(__file__).parents[3] / "fixtures" / "generate" / "schema.py"


def test_every_message_unpacks_and_refers_to_messages_that_exist() -> None:
    schema = load_schema()
    names = list(schema)
    assert len(names) == 1610
    for name in names:
        for field in schema.message(name).fields:
            type_ = field.value_type or field.type
            assert type_ in schema_module.SCALAR_TYPES or type_ in schema, (name, field.name)


META = "k8s.io.apimachinery.pkg.apis.meta.v1"
CORE = "k8s.io.api.core.v1"
WIRE_FIELDS = f"""\
message number field json label type emit since until go
{CORE}.Pod 1 metadata metadata optional {META}.ObjectMeta always 1.17 1.37 ObjectMeta
{CORE}.PodList 1 items items repeated {CORE}.Pod always 1.17 1.37 Items
{CORE}.Limits 1 max max map string,int32  1.20 1.21 Max
{CORE}.Empty -      1.17 1.37
k8s.io.apimachinery.pkg.api.resource.Quantity 1 string <special> optional string  1.17 1.37 String
"""
# Messages that the generator wants to find in any tables.
EXPECTED_MESSAGES = [
    *(f"{META}.{name}" for name in ("ObjectMeta", "Status", "APIGroup", "APIGroupList", "APIResourceList")),
    *(
        f"{META}.{name}"
        for name in ("APIVersions", "CreateOptions", "DeleteOptions", "GetOptions", "ListOptions")
    ),
    *(f"{META}.{name}" for name in ("PatchOptions", "UpdateOptions", "WatchEvent")),
    *(
        f"{CORE}.{name}"
        for name in ("NodeProxyOptions", "PodAttachOptions", "PodExecOptions", "PodLogOptions")
    ),
    *(f"{CORE}.{name}" for name in ("PodPortForwardOptions", "PodProxyOptions", "ServiceProxyOptions")),
]


def write_tables(folder: Path) -> None:
    lines = WIRE_FIELDS + "".join(
        f"{name} 1 name name optional string always 1.18 1.37 Name\n" for name in EXPECTED_MESSAGES
    )
    (folder / "wire-fields.tsv").write_text(lines.replace(" ", "\t"), encoding="utf-8")
    (folder / "wire-special.tsv").write_text(
        "message\trendering\nk8s.io.apimachinery.pkg.api.resource.Quantity\tquantity\n", encoding="utf-8"
    )
    (folder / "kinds.tsv").write_text(
        "group\tversion\tkind\tmessage\tsince\tuntil\n\tv1\tPod\tk8s.io.api.core.v1.Pod\t1.17\t1.37\n"
        "meta.k8s.io\tv1\tStatus\tk8s.io.apimachinery.pkg.apis.meta.v1.Status\t1.17\t1.37\n",
        encoding="utf-8",
    )


def generate(monkeypatch: pytest.MonkeyPatch, folder: Path, output: Path) -> bytes:
    monkeypatch.setattr(sys, "argv", [str(GENERATOR), str(folder), str(output)])
    runpy.run_path(str(GENERATOR), run_name="__main__")
    return output.read_bytes()


def test_the_generator_writes_what_the_reader_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_tables(tmp_path)
    first = generate(monkeypatch, tmp_path, tmp_path / "one.z")
    second = generate(monkeypatch, tmp_path, tmp_path / "two.z")
    assert first == second
    assert "one.z" in capsys.readouterr().out
    monkeypatch.setattr("pkgutil.get_data", lambda package, name: first)
    tables = schema_module._Tables()
    assert (tables.oldest_minor, tables.newest_minor) == (17, 37)
    assert "k8s.io.api.core.v1.Empty\t" in tables.messages["k8s.io.api.core.v1.Empty"]
    assert {row.kind for row in tables.kinds if row.group == ""} >= {"Pod", "PodList", "PodLogOptions"}
    assert [row.role for row in tables.kinds if row.kind == "Status"] == ["unversioned"]
    limits = tables.messages["k8s.io.api.core.v1.Limits"].split("\t")[2]
    assert schema_module._unpack_field(limits) == Field(
        1, "max", "max", "map", "map", "string", "int32", "Max", "", 20, 21
    )


def test_the_shipped_file_is_a_zlib_stream_of_its_own_version() -> None:
    path = Path(schema_module.__file__).parent / "data" / "kubernetes-api.z"
    assert zlib.decompress(path.read_bytes()).startswith(b"kubernetes-api 1 17 37\n")


@pytest.mark.parametrize(("minor", "known"), [(None, True), (24, True), (25, False)])
def test_cluster_name_was_a_field_of_metadata(minor: int | None, known: bool) -> None:
    names = [field.json_name for field in load_schema(minor).message(f"{META}.ObjectMeta").fields]
    assert names[-2:] == (["clusterName", "managedFields"] if known else ["finalizers", "managedFields"])


@pytest.mark.parametrize(
    ("message", "minor"),
    [("k8s.io.api.core.v1.ProbeHandler", 20), ("k8s.io.api.core.v1.VolumeResourceRequirements", 24)],
)
def test_a_type_that_was_renamed_later_keeps_its_first_shape(message: str, minor: int) -> None:
    assert load_schema(minor).message(message).fields


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


def test_what_some_release_may_store() -> None:
    kinds = stored_kinds()
    assert list(kinds) == sorted(kinds)
    assert {("v1", "Secret"), ("extensions/v1beta1", "Deployment")} < set(kinds)
    assert ("v1", "SecretList") not in kinds


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
        ("0.5Gi", "512Mi"),
        ("1000", "1k"),
        ("1000m", "1"),
        ("1001", "1001"),
        ("1024Ki", "1Mi"),
        ("1025Ki", "1025Ki"),
        ("8Gi", "8Gi"),
        ("1.1Ki", "1126400m"),
        ("0.5Ki", "512"),
        ("-0.5Ki", "-512"),
        ("0.0001Ki", "102400u"),
        ("-1.5Gi", "-1536Mi"),
        ("1e1", "10"),
        ("1e4", "10e3"),
        ("1.5e3", "1500"),
        ("1000E", "1e21"),
        ("0.0", "0"),
        ("0Ki", "0"),
        ("-0", "0"),
        (".", "0"),
        ("0.00000000001", "1n"),
        ("1.00000000001", "1000000001n"),
        ("0.9999999999", "1"),
        ("1e-20", "1e-9"),
        ("-1e-20", "-1e-9"),
        ("1e-2000000000", "1e-9"),
        ("1e2000000000", "100e1999999998"),
        ("9Ei", "9223372036854775807"),
        ("-99999999999999999999.5Ki", "-9223372036854775807"),
        ("9007199254740992.00000000001Ki", "9223372036854775807"),
        ("99999999999999999999", "99999999999999999999"),
        ("100000000000000000000", "100E"),
    ],
)
def test_canonical_form(value: str, written: str) -> None:
    assert canonical(value.encode()) == written


@pytest.mark.parametrize("value", ["0", "100m", "1Ki", "+5", "005", "1.500", "1e3", "1E3", "5."])
def test_what_upstream_takes_for_canonical_stays_as_it_is(value: str) -> None:
    assert canonical(value.encode()) == value
