"""A file that people write, read as Kubernetes components do: JSON where it begins with ``{``, else YAML.

Format: ``k8s.io/apimachinery/pkg/runtime/serializer/json``; ``sigs.k8s.io/yaml`` turns YAML into JSON first.
"""

from __future__ import annotations

from typing import Any

from etcdfix.golang import gojson, goyaml
from etcdfix.golang.errors import JSONMalformed
from etcdfix.golang.goyaml import Field

_MAX_REPEATED = 100
_SPACE = b" \t\n\v\f\r"


def read_document(data: bytes) -> tuple[Any, list[Field]]:
    """Return the file as JSON values, and the keys that their object already has; the last of them counts.

    Raises:
        JSONMalformed: Neither JSON nor YAML; names and values are withheld.
    """
    if not data.lstrip(_SPACE).startswith(b"{"):
        fields: list[Field] = []
        return gojson.loads(goyaml.to_json(data, fields)), fields
    error = gojson.check_json(data)
    if error is not None:
        raise JSONMalformed(f"line {_line(data, error.offset)}: {error.message}", offset=error.offset)
    tokens: list[gojson.Token] = []
    root = gojson.build(data, repeated=tokens)
    return root, [
        Field(gojson.string_text(data, token), _line(data, token.start)) for token in tokens[:_MAX_REPEATED]
    ]


def _line(data: bytes, offset: int) -> int:
    return data.count(b"\n", 0, offset) + 1
