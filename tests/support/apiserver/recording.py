"""Recorded exchanges with API servers: reading them, and what they show of the objects behind them."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from tests.support.apiserver.requests import target_of
from tests.support.apiserver.store import Entry

Record = dict[str, Any]

PLAYED = {"resourceVersion", "limit", "dryRun", "fieldManager"}
"""Options of requests that the stand-in knows: those of etcdfix."""


_SCENERY = {"apiextensions.k8s.io", "admissionregistration.k8s.io", "flowcontrol.apiserver.k8s.io"}


def load(path: Path) -> dict[str, list[Record]]:
    """Return the records of each scenario, in their order."""
    scenarios: dict[str, list[Record]] = {}
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            record = json.loads(line)
            scenarios.setdefault(record["scenario"], []).append(record)
    return scenarios


def is_played(record: Record) -> bool:
    """Tell whether a stand-in answers such a request: what etcdfix asks, and the POST of an object."""
    asked = record["request"]
    place, _, query = asked["path"].partition("?")
    headers = asked.get("headers") or {}
    target = target_of(place)
    if target is None or record.get("user") != "admin" or not set(dict(parse_qsl(query))) <= PLAYED:
        return False
    if headers.get("Accept", "application/json").partition(";as=PartialObject")[0] != "application/json":
        return False
    if target.group in _SCENERY and asked["method"] != "GET":
        return False
    # What does not fit its type is refused in words of its own, and what servers write by themselves comes in its time.
    refused = record["response"].get("status") in {400, 415, 422} and "admission" not in str(
        record["response"]
    )
    if refused or target.resource.startswith("endpoint"):
        return False
    created = asked["method"] == "POST" and target.resource[:11] != "selfsubject"
    patched = asked["method"] == "PATCH" and headers.get("Content-Type") == "application/merge-patch+json"
    return (created and "dryRun" not in query) or patched or asked["method"] == "GET"


class Known:
    """Every object that a scenario's answers show, and who wrote each of its versions."""

    def __init__(self, records: list[Record]) -> None:
        self._written: set[tuple[str, str]] = set()  # uid and resourceVersion, by an exchange
        self._made: set[str] = set()
        self._first: dict[str, Record] = {}
        self._versions: dict[tuple[str, str], Record] = {}
        self._stored: dict[bytes, Entry] = {}
        self._begins = 0  # the first revision that the scenario writes
        for record in records:
            if record["kind"] != "exchange" or "body" not in record["response"]:
                continue
            found = list(objects_in(record["response"]))
            if record["request"]["method"] != "GET":
                self._note_writes(record, found)
            for value in found:
                metadata = value["metadata"]
                self._first.setdefault(metadata.get("uid", ""), value)
                if metadata.get("uid") and "resourceVersion" in metadata:
                    self._versions.setdefault((metadata["uid"], metadata["resourceVersion"]), value)

    def _note_writes(self, record: Record, found: list[Record]) -> None:
        for value in found:
            uid, version = (value["metadata"].get(name, "") for name in ("uid", "resourceVersion"))
            self._written.add((uid, version))
            if record["request"]["method"] == "POST" or record["response"]["status"] == 201:
                self._made.add(uid)
            self._begins = self._begins or int(version or 0)
        before = (record.get("etcd") or {}).get("before")
        if before is not None and before["mod_revision"] < self._begins:
            key = record["etcd"]["key"].encode()
            revisions = before["create_revision"], before["mod_revision"], before["version"]
            self._stored.setdefault(key, Entry(key, base64.b64decode(before["value"]), *revisions))

    def before(self) -> Iterator[Record]:
        """Yield what is first shown as it stood before the scenario wrote anything."""
        for uid, value in self._first.items():
            version = int(value["metadata"].get("resourceVersion") or 0)
            if uid and uid not in self._made and 0 < version < self._begins:
                yield value

    def stored_before(self) -> Iterator[Entry]:
        """Yield keys whose bytes are recorded as they stood before the scenario wrote anything."""
        yield from self._stored.values()

    def crds(self) -> Iterator[Record]:
        for value in self._first.values():
            if value["kind"] == "CustomResourceDefinition":
                yield value

    def own(self) -> list[Record]:
        """Return the versions of objects that nobody wrote but the servers themselves, in their order."""
        found = [value for key, value in self._versions.items() if key not in self._written]
        found = [v for v in found if int(v["metadata"]["resourceVersion"]) > self._begins]
        return sorted(found, key=lambda value: int(value["metadata"]["resourceVersion"]))


def objects_in(response: Record) -> Iterator[Record]:
    """Yield the whole objects of an answer; items of a list get its apiVersion and kind."""
    if response.get("status") not in {200, 201} or "body" not in response:
        return
    if response["headers"].get("Content-Type", "").partition(";")[0] != "application/json":
        return
    try:
        value = json.loads(response["body"])
    except ValueError:
        return
    if not isinstance(value, dict) or "apiVersion" not in value:
        return
    kind = str(value.get("kind", ""))
    if kind.startswith(("PartialObjectMetadata", "Table", "Status", "SelfSubject", "API")):
        return
    if "items" not in value:
        if "metadata" in value:
            yield value
        return
    for item in value["items"] or []:
        yield {"apiVersion": value["apiVersion"], "kind": kind.removesuffix("List"), **item}
