"""``-o json`` of a plan: one document, one entry per line, in the shape that ``etcdfix delete --plan`` takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, BinaryIO, Final

import msgspec

from etcdfix.reports.plan_model import DeletionPlan
from etcdfix.text.safetext import safe_json

_LISTS: Final = frozenset({"incomplete_reasons", "groups", "recreated_by", "steps", "left_out", "entries"})


def write_plan_json(stream: BinaryIO, plan: DeletionPlan) -> None:
    """Write the plan."""
    encoder = msgspec.json.Encoder()
    before = b"{\n"
    for field in msgspec.structs.fields(DeletionPlan):
        value: Any = getattr(plan, field.name)
        stream.write(before + b'  "%s": ' % field.encode_name.encode())
        if field.name in _LISTS:
            _write_list(stream, encoder, value)
        else:
            stream.write(safe_json(encoder.encode(value)))
        before = b",\n"
    stream.write(b"\n}\n")


def _write_list(stream: BinaryIO, encoder: msgspec.json.Encoder, items: Sequence[Any]) -> None:
    before = b"[\n    "
    for item in items:
        stream.write(before + safe_json(encoder.encode(item)))
        before = b",\n    "
    stream.write(b"\n  ]" if items else b"[]")
