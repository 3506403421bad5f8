"""Objects as the API gives them, in files."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from tests.support.objects import UID

PASSWORD = "never-to-be-shown"


def json_secret(
    name: str = "broken", *, uid: str = UID.decode(), resource_version: int | str = 7, **metadata: Any
) -> dict[str, Any]:
    """Return a Secret of namespace shop."""
    return {
        "kind": "Secret",
        "apiVersion": "v1",
        "metadata": {
            "name": name,
            "namespace": "shop",
            "uid": uid,
            "resourceVersion": str(resource_version),
            "creationTimestamp": "2026-01-02T03:04:05Z",
            **metadata,
        },
        "data": {"password": base64.b64encode(PASSWORD.encode()).decode()},
        "type": "Opaque",
    }


def managed(time: str) -> list[dict[str, Any]]:
    """Return managedFields that were written last at a time."""
    return [
        {
            "manager": "kubectl",
            "operation": "Update",
            "apiVersion": "v1",
            "time": time,
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:data": {".": {}, "f:password": {}}},
        }
    ]


def saved(folder: Path, value: Any, name: str = "object.json") -> Path:
    """Write a file, JSON unless it is bytes already; return its path."""
    path = folder / name
    path.write_bytes(value if isinstance(value, bytes) else json.dumps(value, indent=1).encode())
    return path
