"""The ``json`` and ``yaml`` of reports that have no document yet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, BinaryIO, Final

import msgspec

from etcdfix.report.render.machine import Encoder, yaml_of
from etcdfix.text.commands import RunOptions

_encode: Final = Encoder(RunOptions()).encode


def write_document(report: msgspec.Struct, stream: BinaryIO, _max_rows: int = 0) -> None:
    """Write the whole report as JSON, indented; lists are never cut."""
    stream.write(document_text(report, "json").encode())


def write_yaml(report: msgspec.Struct, stream: BinaryIO, _max_rows: int = 0) -> None:
    """Write the whole report as YAML; lists are never cut."""
    stream.write(document_text(report, "yaml").encode())


def document_text(report: msgspec.Struct, form: str) -> str:
    """Return a report as ``json`` or ``yaml``, with a line feed at its end."""
    encoded = _encode(report)
    if form == "yaml":
        return yaml_of(msgspec.json.decode(encoded))
    return (msgspec.json.format(encoded, indent=2) + b"\n").decode()


def write_rows_json(report: msgspec.Struct, stream: BinaryIO, _max_rows: int = 0) -> None:
    """Write a report whose lists may be longer than memory: one document, one item of a list per line."""
    before = b"{\n"
    for field in msgspec.structs.fields(type(report)):
        value: Any = getattr(report, field.name)
        stream.write(before + b'  "%s": ' % field.encode_name.encode())
        if isinstance(value, Sequence) and not isinstance(value, str):
            _write_list(stream, map(_encode, value))
        else:
            stream.write(_encode(value))
        before = b",\n"
    stream.write(b"\n}\n")


def write_rows_yaml(report: msgspec.Struct, stream: BinaryIO, _max_rows: int = 0) -> None:
    """Write the same document as :func:`write_rows_json`, as YAML."""
    for field in msgspec.structs.fields(type(report)):
        value: Any = getattr(report, field.name)
        if not isinstance(value, Sequence) or isinstance(value, str) or not value:
            plain = value if value or not isinstance(value, Sequence) or isinstance(value, str) else []
            stream.write(yaml_of({field.encode_name: msgspec.json.decode(_encode(plain))}).encode())
            continue
        stream.write(f"{field.encode_name}:\n".encode())
        stream.writelines(yaml_of([msgspec.json.decode(_encode(item))]).encode() for item in value)


def _write_list(stream: BinaryIO, items: Iterable[bytes]) -> None:
    """Write a list, one item per line."""
    before = b"[\n    "
    for item in items:
        stream.write(before + item)
        before = b",\n    "
    stream.write(b"\n  ]" if before.startswith(b",") else b"[]")
