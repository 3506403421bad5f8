"""``-o json`` and ``-o yaml``: one document in which nothing acts upon a terminal."""

from __future__ import annotations

from typing import Any, BinaryIO

import msgspec

from etcdfix.text.safetext import safe_json


def write_document(report: msgspec.Struct, stream: BinaryIO, _max_rows: int = 0) -> None:
    """Write the whole report as JSON, indented; lists are never cut."""
    stream.write(document_text(report, "json").encode())


def document_text(report: msgspec.Struct, form: str) -> str:
    """Return a report as ``json`` or ``yaml``, with a line feed at its end."""
    encoded = safe_json(msgspec.json.encode(report))
    if form == "yaml":
        return yaml_of(msgspec.json.decode(encoded))
    return (msgspec.json.format(encoded, indent=2) + b"\n").decode()


def yaml_of(value: Any) -> str:
    """Return plain values as YAML."""
    import yaml  # noqa: PLC0415 - only this format pays for it

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    return str(yaml.dump(value, Dumper=dumper, sort_keys=False, width=2**31 - 1, default_flow_style=False))
