"""Plays a recorded scenario against the stand-in, with the recording's clock, and compares every exchange."""

from __future__ import annotations

import base64
import copy
import gzip
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from etcdfix.model import GroupResource
from etcdfix.storagekey import StorageLayout
from tests.support.apiserver.answers import Answer
from tests.support.apiserver.kinds import Resource, builtins, custom
from tests.support.apiserver.objects import Codec
from tests.support.apiserver.process import Behaviour, Process, configuration_of
from tests.support.apiserver.requests import Request, Target, target_of
from tests.support.apiserver.rights import ADMINS, User
from tests.support.apiserver.serving import Serving
from tests.support.apiserver.store import Entry, MemoryStore

Record = dict[str, Any]

HEADERS = ("Content-Type", "Retry-After", "Cache-Control", "X-Content-Type-Options")
_PRIORITY = "X-Kubernetes-Pf-Flowschema-Uid"
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
CRD_COLLECTION = Target("apiextensions.k8s.io", "v1", "customresourcedefinitions")
_GATE = "--feature-gates=AllowUnsafeMalformedObjectDeletion=true"


def load(path: Path) -> dict[str, list[Record]]:
    """Return the records of each scenario, in their order."""
    scenarios: dict[str, list[Record]] = {}
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            record = json.loads(line)
            scenarios.setdefault(record["scenario"], []).append(record)
    return scenarios


class Difference(NamedTuple):
    """One exchange that the stand-in answers otherwise."""

    step: int
    request: str
    what: str


class Compared(NamedTuple):
    """One exchange, and what came of comparing it: "" where it is equal, else the difference."""

    record: Record
    difference: str
    left_out: str


@dataclass
class Watching:
    """A stream that is held open."""

    record: Record
    lines: Iterator[bytes]
    seen: list[tuple[float, bytes]] = field(default_factory=list)
    ended: float | None = None


class Replay:
    """One scenario under way.

    What the recording knows and nobody can guess is taken from it: uids that servers draw, revisions (of the etcd that
    other writers use too), the time of day, and when a cache was given up.
    """

    def __init__(self, records: list[Record]) -> None:
        self.records = records
        self.store = MemoryStore()
        self.behaviour = Behaviour(
            patience=0.0,
            users={
                f"recording-token-of-{name}": User(
                    name, (ADMINS,) if name == "admin" else (), f"uid-of-{name}"
                )
                for name in ("admin", "nobody", "doctor", "surgeon", "deleter")
            },
            listed=None,
        )
        self.processes: dict[str, Process] = {}
        self.serving: dict[str, Serving] = {}
        self.time = records[0]["t"] if "t" in records[0] else 0.0
        self.watching: list[Watching] = []
        self.compared: list[Compared] = []
        self._responses: dict[int, Record] = {}
        self._pending: dict[str, Any] = {}
        self._uid = ""
        self._flags: dict[str, bool] = {}
        self._known = _Known(records)
        self._resources: dict[GroupResource, Resource] = dict(builtins())

    def play(self) -> None:
        """Play all of it."""
        for record in self.records:
            self.time = max(self.time, record.get("t", self.time))
            self._drain()
            if record["kind"] == "action":
                self._act(record)
            elif record["kind"] == "exchange":
                self._exchange(record)
            elif record["kind"] == "watch":
                self._watch(record)
        self._drain()

    # -- what is done

    def _act(self, record: Record) -> None:
        what, server = record["what"], record.get("server", "")
        if "encryption" in record:
            self._pending[server] = record["encryption"]
        if what == "server started":
            self._start(server, gate=_GATE in record["flags"])
        elif what == "server stopped":
            self.processes.pop(server).close()
        elif what.startswith("server reloaded"):
            self.processes[server].reload(configuration_of(self._pending[server]))
        elif isinstance(record.get("etcd"), dict):
            self._change_etcd(record["etcd"])

    def _start(self, server: str, *, gate: bool) -> None:
        if not self.processes and not self.store.revision() > 1:
            self._furnish(self._pending[server])
        process = Process(
            self.store,
            configuration_of(self._pending[server]),
            self.behaviour,
            gate=gate,
            clock=lambda: self.time,
            now=lambda: "2026-01-01T00:00:00Z",
            new_uid=lambda: self._uid,
            sleep=lambda _seconds: None,
        )
        self.processes[server] = process
        self.serving[server] = Serving(process)

    def _furnish(self, configuration: Any) -> None:
        """Place what stood in etcd before the scenario began, as far as anybody looks at it."""
        codec = Codec(configuration_of(configuration))
        for value in self._known.before():
            resource = self._resource_of(value)
            metadata = value["metadata"]
            key = resource.key("/registry", metadata.get("namespace", ""), metadata["name"])
            revision = int(metadata["resourceVersion"])
            data = codec.seal(resource, key, codec.plaintext(resource, value))
            self.store.place(Entry(key, data, revision, revision, 1))

    def _resource_of(self, value: Mapping[str, Any]) -> Resource:
        group = value["apiVersion"].rpartition("/")[0]
        for resource in self._resources.values():
            if (resource.group, resource.kind) == (group, value["kind"]):
                return resource
        for crd in self._known.crds():
            resource = custom(crd)
            if (resource.group, resource.kind) == (group, value["kind"]):
                return resource
        raise AssertionError(f"no resource for {value['kind']}")

    def _change_etcd(self, change: Record) -> None:
        key, after = change["key"].encode(), change["after"]
        now = self.store.get(key)
        assert now is not None, key
        if after is None:
            self.store.delete(key, mod_revision=now.mod_revision)
            return
        self.store.advance(after["mod_revision"] - 1)
        self.store.put(key, base64.b64decode(after["value"]), mod_revision=now.mod_revision)

    # -- what is asked

    def _request(self, record: Record) -> Request:
        asked = record["request"]
        headers = asked.get("headers") or {}
        user = record.get("user")
        body = asked.get("body")
        return Request(
            asked["method"],
            asked["path"],
            body.encode() if isinstance(body, str) else b"",
            f"Bearer recording-token-of-{user}" if user else None,
            headers.get("Accept", "application/json"),
            headers.get("Content-Type", ""),
            headers.get("User-Agent", "etcdfix"),
        )

    def _exchange(self, record: Record) -> None:
        response = record["response"]
        if "same_as" in record:
            response = self._responses[record["same_as"]]
        else:
            self._responses[record["step"]] = response
        if "error" in response:
            self.compared.append(Compared(record, "", "no HTTP answer: the server is not up"))
            return
        self._foresee(record, response)
        request = self._request(record)
        why = left_out(record)
        if why:
            self._set_scene(record, response)
            self.compared.append(Compared(record, "", why))
            return
        answer = self.serving[record["server"]].answer(request)
        body = answer.body
        if answer.lines is not None:
            body = b"".join(_until_nothing(answer.lines))
        difference = _difference(request, answer, body, response)
        self.compared.append(Compared(record, difference, ""))

    def _set_scene(self, record: Record, response: Record) -> None:
        """Do what an exchange did that is not compared."""
        place = record["request"]["path"]
        if place.endswith("validatingadmissionpolicybindings"):
            self.behaviour.refuse.add("guarded")
        if place.endswith("mutatingadmissionpolicybindings"):
            self.behaviour.stamp["other"] = {"stamped": "yes"}
        if record["request"]["method"] == "GET":
            return
        for value in _objects_in(response):
            self._write(value)

    def _foresee(self, record: Record, response: Record) -> None:
        """Take from the recording what nobody can guess: the uid and the revision of what is written."""
        self._know(response)
        self._advance(response)
        if record["request"]["method"] == "GET" or response["status"] not in {200, 201}:
            return
        try:
            metadata = json.loads(response["body"])["metadata"]
        except (ValueError, KeyError, TypeError):
            return
        self._uid = metadata.get("uid", "")
        if "resourceVersion" in metadata:
            self.store.advance(int(metadata["resourceVersion"]) - 1)

    def _advance(self, response: Record) -> None:
        """Let the etcd be as far as an answer shows it to be: others write to it too."""
        found = re.search(
            r'List","apiVersion":"[^"]*","metadata":{"resourceVersion":"(\d+)"', response.get("body", "")
        )
        found = found or re.search(r"current: (\d+)", response.get("body", ""))
        if found:
            self.store.advance(int(found[1]))

    def _know(self, response: Record) -> None:
        """Write what the servers themselves have written since, as the recording shows it."""
        for value in self._known.own(response):
            self._write(value)

    def _write(self, value: Record) -> None:
        """Write a version of an object as the recording shows it, unless a newer one is there."""
        resource = self._resource_of(value)
        metadata = value["metadata"]
        key = resource.key("/registry", metadata.get("namespace", ""), metadata["name"])
        now = self.store.get(key)
        process = next(iter(self.processes.values()))
        revision = int(metadata["resourceVersion"])
        if now is not None and now.mod_revision >= revision:
            return
        self.store.advance(revision - 1)
        data = process.codec.seal(resource, key, process.codec.plaintext(resource, value))
        self.store.put(key, data, mod_revision=now.mod_revision if now else 0)

    # -- watches

    def _watch(self, record: Record) -> None:
        request = self._request(record)
        answer = self.serving[record["server"]].answer(request)
        response = record["response"]
        if answer.lines is None or response["status"] != 200:
            self.compared.append(Compared(record, _difference(request, answer, answer.body, response), ""))
            return
        self.watching.append(Watching(record, answer.lines))
        self._drain()

    def _drain(self) -> None:
        for watching in self.watching:
            while watching.ended is None:
                line = next(watching.lines, None)
                if line is None:
                    watching.ended = self.time
                elif not line:
                    break
                else:
                    watching.seen.append((self.time, line))


class _Known:
    """Every object that a scenario's answers show, and who wrote each of its versions."""

    def __init__(self, records: list[Record]) -> None:
        self._written: set[tuple[str, str]] = set()  # uid and resourceVersion, by an exchange or in etcd
        self._made: set[str] = set()
        self._first: dict[str, Record] = {}
        for record in records:
            if record["kind"] != "exchange" or "body" not in record["response"]:
                continue
            found = list(_objects_in(record["response"]))
            if record["request"]["method"] != "GET":
                for value in found:
                    uid = value["metadata"].get("uid", "")
                    self._written.add((uid, value["metadata"].get("resourceVersion", "")))
                    if record["request"]["method"] == "POST" or record["response"]["status"] == 201:
                        self._made.add(uid)
            for value in found:
                self._first.setdefault(value["metadata"].get("uid", ""), value)

    def before(self) -> Iterator[Record]:
        """Yield what is first shown without having been made in the scenario."""
        for uid, value in self._first.items():
            if uid and uid not in self._made and "resourceVersion" in value["metadata"]:
                yield value

    def crds(self) -> Iterator[Record]:
        """Yield the CustomResourceDefinitions."""
        for value in self._first.values():
            if value["kind"] == "CustomResourceDefinition":
                yield value

    def own(self, response: Record) -> Iterator[Record]:
        """Yield objects of an answer in versions that nobody wrote but the servers themselves."""
        for value in _objects_in(response):
            metadata = value["metadata"]
            if not metadata.get("uid") or "resourceVersion" not in metadata:
                continue
            if (metadata["uid"], metadata["resourceVersion"]) not in self._written:
                yield value


def _objects_in(response: Record) -> Iterator[Record]:
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


def _until_nothing(lines: Iterator[bytes]) -> Iterator[bytes]:
    for line in lines:
        if not line:
            return
        yield line


# -- comparing


def _difference(request: Request, answer: Answer, body: bytes, response: Record) -> str:
    """Return how an answer differs from the recorded one, "" where it does not."""
    if answer.status != response["status"]:
        return f"status {answer.status}, recorded {response['status']}: {body[:300]!r}"
    recorded = response["headers"]
    headers = {"Content-Type": answer.content_type, **dict(answer.headers)}
    # A write may warn of what is in the object; the stand-in looks at no certificates.
    for name in (*HEADERS, *(["Warning"] if request.method == "GET" else [])):
        if headers.get(name) != recorded.get(name):
            return f"{name}: {headers.get(name)!r}, recorded {recorded.get(name)!r}"
    if (_PRIORITY in headers) != (_PRIORITY in recorded):
        return f"{_PRIORITY}: {_PRIORITY in headers}, recorded {_PRIORITY in recorded}"
    text = response["body"] if "body" in response else base64.b64decode(response["body_base64"])
    ours, theirs = (
        normalised(request, body),
        normalised(request, text if isinstance(text, bytes) else text.encode()),
    )
    if ours != theirs:
        return f"body: {_where(ours, theirs)}"
    return ""


def normalised(request: Request, body: bytes) -> Any:
    """Return a body as it is compared.

    JSON is parsed, a watch line by line. Left out of it: times, a list's own resourceVersion (other writers use the
    same etcd) and its continue token (which carries it).
    """
    try:
        text = _TIME.sub("TIME", body.decode())
    except UnicodeDecodeError:
        return body
    if request.query.get("watch"):
        lines = [line for line in text.split("\n") if line]
        return [_plain(json.loads(line)) for line in lines]
    if request.accept.startswith("application/yaml"):
        return yaml.safe_load(text)
    try:
        return _plain(json.loads(text))
    except ValueError:
        return text


def _plain(value: Any) -> Any:
    if isinstance(value, dict) and isinstance(value.get("metadata"), dict) and "items" in value:
        found = copy.copy(value)
        found["metadata"] = {
            name: ("TOKEN" if item else "") if name == "continue" else item
            for name, item in value["metadata"].items()
            if name != "resourceVersion"
        }
        return found
    return value


def _where(ours: Any, theirs: Any, path: str = "") -> str:
    """Return the first place where two values differ."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for name in [*theirs, *ours]:
            if name not in ours:
                return f"{path}.{name} is missing: {str(theirs[name])[:200]}"
            if name not in theirs:
                return f"{path}.{name} is too much: {str(ours[name])[:200]}"
            if ours[name] != theirs[name]:
                return _where(ours[name], theirs[name], f"{path}.{name}")
    if isinstance(ours, list) and isinstance(theirs, list):
        if len(ours) != len(theirs):
            return f"{path}: {len(ours)} items, recorded {len(theirs)}"
        for index, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            if one != other:
                return _where(one, other, f"{path}[{index}]")
    return f"{path}: {str(ours)[:300]} recorded {str(theirs)[:300]}"


def left_out(record: Record) -> str:
    """Return why an exchange is not compared, "" where it is."""
    target = target_of(record["request"]["path"].partition("?")[0])
    if target is not None and target.group == "admissionregistration.k8s.io":
        return "an admission policy that sets the scene"
    accept = (record["request"].get("headers") or {}).get("Accept", "")
    if "as=Table" in accept:
        return "a Table"
    if accept.startswith("application/vnd.kubernetes.protobuf"):
        return "protobuf"
    if target is not None and target[:3] == CRD_COLLECTION[:3] and record["request"]["method"] != "GET":
        if record["t"] < 0:
            return "a CustomResourceDefinition that sets the scene, with the status that the server gives it"
    return ""


def layout() -> StorageLayout:
    """Return where the recorded servers keep their objects."""
    return StorageLayout("/registry")
