from __future__ import annotations

import runpy
import sys
import zlib
from pathlib import Path

import pytest

from etcdfix.decoding import schema as schema_module
from etcdfix.decoding.schema import Field, load_schema

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


@pytest.mark.parametrize(
    ("message", "minor"),
    [("k8s.io.api.core.v1.ProbeHandler", 20), ("k8s.io.api.core.v1.VolumeResourceRequirements", 24)],
)
def test_a_type_that_was_renamed_later_keeps_its_first_shape(message: str, minor: int) -> None:
    assert load_schema(minor).message(message).fields
