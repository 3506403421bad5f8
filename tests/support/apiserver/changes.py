"""What a kube-apiserver makes of an object that is created or patched: patches, defaults, managedFields."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from typing import Any

from tests.support.apiserver.kinds import Resource
from tests.support.apiserver.objects import Object

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"

Fields = dict[str, Any]

# The server's own: nobody manages them.
_UNMANAGED = {
    "name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp",
    "deletionGracePeriodSeconds", "managedFields", "selfLink", "generateName",
}  # fmt: skip
# Maps whose entries are managed one by one; what else is an object in a built-in is a struct.
_MAPS = {"labels", "annotations", "data", "binaryData", "stringData", "nodeSelector", "matchLabels"}
_POINTERS = {"conversion"}
_ATOMIC = {"roleRef"}
# Set by the server before anybody manages them.
_NOT_MANAGED = {("namespaces", "spec"), ("namespaces", "status")}


class PatchFailed(Exception):
    """A JSON patch whose test fails, or whose path is not there."""


def merge(target: Any, patch: Any) -> Any:
    """Apply a JSON merge patch (RFC 7386)."""
    if not isinstance(patch, Mapping):
        return copy.deepcopy(patch)
    found = dict(target) if isinstance(target, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            found.pop(name, None)
        else:
            found[name] = merge(found.get(name), value)
    return found


def json_patch(target: Object, operations: list[dict[str, Any]]) -> Object:
    """Apply a JSON patch (RFC 6902): test, add, replace and remove, in objects.

    Raises:
        PatchFailed: A test fails, or a path is not there.
    """
    found = copy.deepcopy(target)
    for operation in operations:
        *way, last = [part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]]
        place: Any = found
        for part in way:
            if not isinstance(place, dict) or part not in place:
                raise PatchFailed(operation["path"])
            place = place[part]
        kind = operation["op"]
        if kind in {"test", "replace", "remove"} and last not in place:
            raise PatchFailed(operation["path"])
        if kind == "test":
            if place[last] != operation["value"]:
                raise PatchFailed(operation["path"])
        elif kind == "remove":
            del place[last]
        else:
            place[last] = operation["value"]
    return found


def cleaned(value: Object) -> Object:
    """Return an object without the empty maps and lists that its type leaves out."""
    metadata = {
        name: item
        for name, item in value["metadata"].items()
        if item not in ({}, []) or name not in {"labels", "annotations", "finalizers", "ownerReferences"}
    }
    return {
        **{n: v for n, v in value.items() if not (v == {} and n in {"data", "binaryData"})},
        "metadata": metadata,
    }


# -- who manages what


def fields_of(resource: Resource, value: Mapping[str, Any], *, applied: bool = False) -> Fields:
    """Return the fields that an object sets, as ``fieldsV1`` has them; ``applied``: those of an apply."""
    found: Fields = {}
    for name, item in value.items():
        if name in {"apiVersion", "kind"} or (resource.words, name) in _NOT_MANAGED:
            continue
        if name == "metadata":
            inner = {
                f"f:{word}": _fields(word, entry, custom=False, applied=applied)
                for word, entry in item.items()
                if word not in _UNMANAGED and entry not in ({}, [])
            }
            if inner:
                found["f:metadata"] = inner
        elif item not in ({}, []):
            found[f"f:{name}"] = _fields(name, item, custom=resource.crd is not None, applied=applied)
    return found


def _fields(name: str, value: Any, *, custom: bool, applied: bool) -> Fields:
    if name == "finalizers":
        entries: Fields = {f"v:{json.dumps(item)}": {} for item in value}
        return entries if applied else {".": {}, **entries}
    if name == "ownerReferences":
        owners: Fields = {f'k:{{"uid":{json.dumps(item["uid"])}}}': {} for item in value}
        return owners if applied else {".": {}, **owners}
    if not isinstance(value, Mapping) or name in _ATOMIC:
        return {}
    inner = {f"f:{k}": _fields(k, v, custom=custom, applied=applied) for k, v in value.items()}
    if (custom or name in _MAPS or name in _POINTERS) and not applied:
        return {".": {}, **inner}
    return inner


def _minus(fields: Fields, other: Fields) -> Fields:
    found = {}
    for name, inner in fields.items():
        if name not in other:
            found[name] = inner
            continue
        rest = _minus(inner, other[name])
        if rest:
            found[name] = rest
    return found


def _plus(fields: Fields, other: Fields) -> Fields:
    found = dict(fields)
    for name, inner in other.items():
        found[name] = _plus(found[name], inner) if name in found else inner
    return found


def _without(fields: Fields, gone: Fields) -> Fields:
    """Return the fields without those that are gone; what they leave empty goes with them."""
    found = {}
    for name, inner in fields.items():
        if name not in gone:
            found[name] = inner
            continue
        rest = _without(inner, gone[name])
        if (rest and rest != {".": {}}) or (rest == {".": {}} and "." not in gone[name]):
            found[name] = rest
    return found


def _changed(resource: Resource, old: Mapping[str, Any], new: Mapping[str, Any]) -> Fields:
    """Return the fields whose values differ."""
    found: Fields = {}
    for name, inner in fields_of(resource, new).items():
        below = _differing(name, inner, old, new)
        if below is not None:
            found[name] = below
    return found


def _differing(name: str, inner: Fields, old: Any, new: Any) -> Fields | None:
    word = name[2:]
    if not name.startswith("f:"):
        return inner
    before = old.get(word) if isinstance(old, Mapping) else None
    after = new.get(word) if isinstance(new, Mapping) else None
    if before == after:
        return None
    if not any(part.startswith("f:") for part in inner) or not isinstance(after, Mapping):
        return inner
    found: Fields = {} if isinstance(before, Mapping) else {part: {} for part in inner if part == "."}
    for part, deeper in inner.items():
        if part.startswith("f:"):
            below = _differing(part, deeper, before or {}, after)
            if below is not None:
                found[part] = below
    return found


def record_update(
    resource: Resource, old: Mapping[str, Any] | None, new: Object, *, manager: str, now: str
) -> None:
    entries: list[dict[str, Any]] = copy.deepcopy((old or {}).get("metadata", {}).get("managedFields", []))
    have = fields_of(resource, new)
    changed = _changed(resource, old, new) if old is not None else have
    removed = _minus(fields_of(resource, old), have) if old is not None else {}
    version = resource.api_version
    mine = None
    for entry in entries:
        is_mine = (entry["manager"], entry["operation"]) == (manager, "Update") and "subresource" not in entry
        before = entry["fieldsV1"]
        after = _without(before, removed)
        if is_mine:
            mine = entry
            after = _plus(after, changed)
        elif entry["operation"] == "Update":
            after = _without(after, changed)
        if after != before:
            entry["fieldsV1"] = after
            if is_mine:
                entry["time"] = now
    if mine is None and changed:
        entries.append(_entry(manager, "Update", version, now, changed))
    _store(new, entries)


def record_apply(
    resource: Resource, old: Mapping[str, Any] | None, new: Object, applied: Object, *, manager: str, now: str
) -> None:
    entries: list[dict[str, Any]] = copy.deepcopy((old or {}).get("metadata", {}).get("managedFields", []))
    fields = fields_of(resource, applied, applied=True)
    entries = [e for e in entries if (e["manager"], e["operation"]) != (manager, "Apply")]
    entries.append(_entry(manager, "Apply", resource.api_version, now, fields))
    _store(new, entries)


def _entry(manager: str, operation: str, version: str, now: str, fields: Fields) -> dict[str, Any]:
    return {
        "manager": manager,
        "operation": operation,
        "apiVersion": version,
        "time": now,
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    }


def _store(value: Object, entries: list[dict[str, Any]]) -> None:
    kept = [entry for entry in entries if entry["fieldsV1"]]
    kept.sort(key=lambda entry: (entry["operation"], entry.get("time", ""), entry["manager"]))
    value["metadata"].pop("managedFields", None)
    if kept:
        value["metadata"]["managedFields"] = kept


def conflicts(
    resource: Resource, old: Mapping[str, Any], applied: Object, manager: str
) -> list[tuple[str, str]]:
    """Return what an apply would take from other managers: their names, and the fields."""
    found = []
    wanted = fields_of(resource, applied, applied=True)
    for entry in old["metadata"].get("managedFields", []):
        if (entry["manager"], entry["operation"]) == (manager, "Apply"):
            continue
        found += [(entry["manager"], path) for path in _shared(wanted, entry["fieldsV1"], "", applied, old)]
    return found


def _shared(wanted: Fields, owned: Fields, path: str, new: Any, old: Any) -> list[str]:
    found: list[str] = []
    for name, inner in wanted.items():
        word = name[2:]
        if name not in owned or not isinstance(new, Mapping):
            continue
        before = old.get(word) if isinstance(old, Mapping) else None
        if inner:
            found += _shared(inner, owned[name], f"{path}.{word}", new.get(word), before)
        elif new.get(word) != before:
            found.append(f"{path}.{word}")
    return found


# -- what the server adds when an object is made


def defaulted(resource: Resource, value: Object) -> Object:
    """Return a new object with what its type sets by default."""
    found = copy.deepcopy(value)
    if resource.words == "secrets":
        found.setdefault("type", "Opaque")
    if resource.words == "namespaces":
        found["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = found["metadata"]["name"]
        found.setdefault("spec", {"finalizers": ["kubernetes"]})
        found["status"] = {"phase": "Active"}
    return found
