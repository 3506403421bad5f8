"""Recorded exchanges with API servers: reading them, and what they show of the objects behind them."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.apiserver.requests import Target, target_of
from tests.support.apiserver.store import Entry

Record = dict[str, Any]

CRD_COLLECTION = Target("apiextensions.k8s.io", "v1", "customresourcedefinitions")
_WORDS = "a 422 in the server's own words, which quotes the object in an order of its own"
_REASONS = {
    ("F-discovery-and-rights", 78): "RBAC's reason for a path",
    ("F-discovery-and-rights", 134): _WORDS,
    ("F-discovery-and-rights", 136): _WORDS,
    ("F-discovery-and-rights", 138): _WORDS,
}


def load(path: Path) -> dict[str, list[Record]]:
    """Return the records of each scenario, in their order."""
    scenarios: dict[str, list[Record]] = {}
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            record = json.loads(line)
            scenarios.setdefault(record["scenario"], []).append(record)
    return scenarios


def left_out(record: Record) -> str:
    """Return why an exchange is not compared, "" where it is."""
    target = target_of(record["request"]["path"].partition("?")[0])
    if (
        record["scenario"] == "E-two-servers"
        and record["step"] < 6
        and target is not None
        and "endpoint" in target.resource
    ):
        return "Endpoints before a server has written them"
    if target is not None and target.group == "admissionregistration.k8s.io":
        return "an admission policy that sets the scene"
    place = record["request"]["path"].partition("?")[0]
    if place == "/" or (
        target is None and place.split("/")[1] in {"api", "apis"} and record["response"].get("status") == 200
    ):
        return "a discovery document"
    if target is not None and target.group == "flowcontrol.apiserver.k8s.io":
        return "a rule of priority and fairness that sets the scene"
    if (record["scenario"], record["step"]) in _REASONS:
        return _REASONS[record["scenario"], record["step"]]
    if place.endswith("/selfsubjectrulesreviews"):
        return "a SelfSubjectRulesReview"
    accept = (record["request"].get("headers") or {}).get("Accept", "")
    if "as=Table" in accept:
        return "a Table"
    if accept.startswith("application/vnd.kubernetes.protobuf"):
        return "protobuf"
    writes = record["request"]["method"] != "GET"
    if target is not None and target[:3] == CRD_COLLECTION[:3] and writes and record["t"] < 0:
        return "a CustomResourceDefinition that sets the scene, with the status that the server gives it"
    return ""


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
