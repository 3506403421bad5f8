"""Plays a recorded scenario against the stand-in, with the recording's clock, and compares every exchange."""

from __future__ import annotations

import base64
import copy
import datetime as dt
import gzip
import json
import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import yaml

from etcdfix.model import GroupResource
from etcdfix.storagekey import StorageLayout
from tests.support.apiserver.answers import Answer
from tests.support.apiserver.kinds import CRDS, Resource, builtins, custom
from tests.support.apiserver.objects import Codec, Unreadable
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
_BEGAN = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)  # after everything that is recorded
# What noise looks like that a wrong key made depends on the noise.
_PADDING = re.compile(r"invalid padding on input|invalid PKCS7 data \(empty or not padded\)")
_ON_THE_WAY = 0.05  # seconds until a request is answered; what took longer has waited inside
_FAILED_TRY = re.compile(rb"(?<=storage is \(re\)initializing): failed to list .*(?=\",\"reason\")")
_GATE = "--feature-gates=AllowUnsafeMalformedObjectDeletion=true"


def load(path: Path) -> dict[str, list[Record]]:
    """Return the records of each scenario, in their order."""
    scenarios: dict[str, list[Record]] = {}
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            record = json.loads(line)
            scenarios.setdefault(record["scenario"], []).append(record)
    return scenarios


_WORDS = "a 422 in the server's own words, which quotes the object in an order of its own"
_REASONS = {
    ("F-discovery-and-rights", 78): "RBAC's reason for a path",
    ("F-discovery-and-rights", 134): _WORDS,
    ("F-discovery-and-rights", 136): _WORDS,
    ("F-discovery-and-rights", 138): _WORDS,
}
STARTING_SECONDS = 5.5
SHIFT_SECONDS = 1.6
SHIFTED = "a change of state comes up to 1.6 s earlier or later"


# Seconds from the moment when all lists are well until the server's own informers have tried again.
READY_AFTER = {"B-restart-secrets": 14.4, "B-restart-secrets-gate-on": 10.0, "B-restart-crd": 12.4}


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
            given_up_after=30.1,
            ready_after=READY_AFTER.get(records[0]["scenario"], 0.0),
            paths_after=3.1 if records[0]["scenario"] == "B-restart-widgets" else 0.0,
        )
        self.processes: dict[str, Process] = {}
        self.serving: dict[str, Serving] = {}
        self.time = min(record["t"] for record in records if "t" in record)
        self.watching: list[Watching] = []
        self.compared: list[Compared] = []
        self.stored: list[Compared] = []
        self._responses: dict[int, Record] = {}
        self._all = {record["step"]: record["response"] for record in records if "response" in record}
        self._pending: dict[str, Any] = {}
        self._uid = ""
        self._flags: dict[str, bool] = {}
        self._known = _Known(records)
        self._own = self._known.own()
        self._resources: dict[GroupResource, Resource] = dict(builtins())

    def play(self) -> None:
        """Play all of it; nothing in it is left to chance."""
        with mock.patch("etcdfix.encryption.encrypt.secrets.token_bytes", random.Random(1).randbytes):
            self._play()

    def _play(self) -> None:
        for record in self.records:
            self.time = max(self.time, record.get("t", self.time) + min(record.get("took", 0.0), _ON_THE_WAY))
            for process in self.processes.values():
                process.catch_up()
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
            self._start(server, record)
        elif what == "server stopped":
            self.processes.pop(server).close()
        elif what.startswith("server reloaded"):
            process = self.processes[server]
            process.reload(configuration_of(self._pending[server]))
            # It was reloaded a while before somebody saw it.
            for cache in process.caches.values():
                if not cache.ready:
                    cache.relist()
        elif isinstance(record.get("etcd"), dict):
            self._change_etcd(record["etcd"])

    def _start(self, server: str, record: Record) -> None:
        first = not self.processes and not self.store.revision() > 1
        if first:
            self._furnish(self._pending[server])
        process = Process(
            self.store,
            configuration_of(self._pending[server]),
            self.behaviour,
            gate=_GATE in record["flags"],
            clock=lambda: self.time,
            now=self._now,
            new_uid=lambda: self._uid,
            sleep=lambda _seconds: None,
        )
        if first:
            # It has known everything from the beginning of this etcd.
            for cache in process.caches.values():
                cache.began = 1
        self.behaviour.fairness = "--enable-priority-and-fairness=false" not in record["flags"]
        self.behaviour.anonymous = "--anonymous-auth=true" in record["flags"]
        self.processes[server] = process
        self.serving[server] = Serving(process)

    def _now(self) -> str:
        return (_BEGAN + dt.timedelta(seconds=self.time)).strftime("%Y-%m-%dT%H:%M:%SZ")

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
        for entry in self._known.stored_before():
            if self.store.get(entry.key) is None:
                self.store.place(entry)

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

    def request(self, record: Record) -> Request:
        """Return the request of a record as it arrives."""
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
        self.behaviour.overloaded = int(
            "text/plain" in response["headers"].get("Content-Type", "") and response["status"] == 429
        )
        request = self.request(record)
        why = left_out(record)
        if why:
            self._set_scene(record, response)
            self.compared.append(Compared(record, "", why))
            return
        answer = self.serving[record["server"]].answer(request)
        body = answer.body
        if answer.lines is not None:
            body = b"".join(_until_nothing(answer.lines))
        self._compare(record, request, answer, body, response)
        if record.get("etcd"):
            self._compare_stored(record)

    def _compare_stored(self, record: Record) -> None:
        """Compare what stands in etcd afterwards: the object, how often it was written, and what can read it."""
        stored, key = record["etcd"], record["etcd"]["key"].encode()
        if CRDS.resource in stored["key"]:
            return  # stored as v1beta1, which the stand-in does not convert to
        if stored["after"] is None:
            self.stored.append(
                Compared(record, "" if self.store.get(key) is None else "it is still there", "")
            )
            return
        revisions = (stored["after"][name] for name in ("create_revision", "mod_revision", "version"))
        theirs = Entry(key, base64.b64decode(stored["after"]["value"]), *revisions)
        ours = self.store.get(key)
        if ours is None:
            self.stored.append(Compared(record, "it is not there", ""))
            return
        seen = [self._seen(record["server"], entry) for entry in (ours, theirs)]
        difference = "" if seen[0] == seen[1] else _where(*seen)
        if ours[2:] != theirs[2:]:
            difference += f"; revisions {ours[2:]}, recorded {theirs[2:]}"
        self.stored.append(Compared(record, difference, ""))

    def _seen(self, server: str, entry: Entry) -> Any:
        """Return a stored value as a server reads it: the object, or why not."""
        process = self.processes[server]
        directory, _ = StorageLayout("/registry").locate(entry.key)
        resource = process.resources[directory.group_resource]
        try:
            value = process.codec.read(resource, entry)
        except Unreadable as problem:
            return _PADDING.sub("PADDING", problem.text)
        return json.loads(_TIME.sub("TIME", json.dumps(value)))

    def _compare(
        self, record: Record, request: Request, answer: Answer, body: bytes, response: Record
    ) -> None:
        difference = _difference(request, answer, body, response)
        if difference and request.method == "GET" and self._soon_or_lately(record, request, answer, body):
            self.compared.append(Compared(record, "", SHIFTED))
            return
        self.compared.append(Compared(record, difference, ""))

    def _soon_or_lately(self, record: Record, request: Request, answer: Answer, body: bytes) -> bool:
        """Tell whether the recorded server gave this answer to the same request just before or after."""
        asked = record["server"], record["user"], request.method, request.path
        for other in self.records:
            if other["kind"] not in {"exchange", "watch"} or abs(other["t"] - record["t"]) > SHIFT_SECONDS:
                continue
            if (
                other["server"],
                other["user"],
                other["request"]["method"],
                other["request"]["path"],
            ) != asked:
                continue
            response = self._all[other["same_as"] if "same_as" in other else other["step"]]
            if "error" not in response and not _difference(request, answer, body, response, of_cache=True):
                return True
        return False

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
        self._catch_up(
            max((int(v["metadata"].get("resourceVersion") or 0) for v in _objects_in(response)), default=0)
        )
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
            self._catch_up(int(found[1]))
            self.store.advance(int(found[1]))

    def _catch_up(self, revision: int) -> None:
        """Write what the servers themselves have written up to a revision."""
        while self._own and int(self._own[0]["metadata"]["resourceVersion"]) <= revision:
            self._write(self._own.pop(0))

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
        request = self.request(record)
        answer = self.serving[record["server"]].answer(request)
        response = record["response"]
        if answer.lines is None or response["status"] != 200:
            self._compare(record, request, answer, answer.body, response)
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
        self._written: set[tuple[str, str]] = set()  # uid and resourceVersion, by an exchange
        self._made: set[str] = set()
        self._first: dict[str, Record] = {}
        self._versions: dict[tuple[str, str], Record] = {}
        self._stored: dict[bytes, Entry] = {}
        self._begins = 0  # the first revision that the scenario writes
        for record in records:
            if record["kind"] != "exchange" or "body" not in record["response"]:
                continue
            found = list(_objects_in(record["response"]))
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
        """Yield the CustomResourceDefinitions."""
        for value in self._first.values():
            if value["kind"] == "CustomResourceDefinition":
                yield value

    def own(self) -> list[Record]:
        """Return the versions of objects that nobody wrote but the servers themselves, in their order."""
        found = [value for key, value in self._versions.items() if key not in self._written]
        found = [v for v in found if int(v["metadata"]["resourceVersion"]) > self._begins]
        return sorted(found, key=lambda value: int(value["metadata"]["resourceVersion"]))


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


def _difference(
    request: Request, answer: Answer, body: bytes, response: Record, *, of_cache: bool = False
) -> str:
    """Return how an answer differs from the recorded one, "" where it does not.

    ``of_cache``: the 429 of a lost cache may name one second more or less, and the reason of the try before or after.
    """
    if answer.status != response["status"]:
        return f"status {answer.status}, recorded {response['status']}: {body[:300]!r}"
    recorded = response["headers"]
    headers = {"Content-Type": answer.content_type, **dict(answer.headers)}
    wait, recorded_wait = headers.get("Retry-After"), recorded.get("Retry-After")
    if of_cache and wait and recorded_wait and abs(int(wait) - int(recorded_wait)) <= 1:
        headers["Retry-After"] = recorded_wait
        body = re.sub(rb'"retryAfterSeconds":\d+', f'"retryAfterSeconds":{recorded_wait}'.encode(), body)
    # A write may warn of what is in the object; the stand-in looks at no certificates.
    for name in (*HEADERS, *(["Warning"] if request.method == "GET" else [])):
        if headers.get(name) != recorded.get(name):
            return f"{name}: {headers.get(name)!r}, recorded {recorded.get(name)!r}"
    if (_PRIORITY in headers) != (_PRIORITY in recorded):
        return f"{_PRIORITY}: {_PRIORITY in headers}, recorded {_PRIORITY in recorded}"
    text = response["body"].encode() if "body" in response else base64.b64decode(response["body_base64"])
    if of_cache and answer.status == 429:
        body, text = (_FAILED_TRY.sub(b"", each) for each in (body, text))
    ours, theirs = normalised(request, body), normalised(request, text)
    if ours != theirs:
        return f"body: {_where(ours, theirs)}"
    return ""


def normalised(request: Request, body: bytes) -> Any:
    """Return a body as it is compared.

    JSON is parsed, a watch line by line. Left out of it: times, a list's own resourceVersion (other writers use the
    same etcd) and its continue token (which carries it).
    """
    try:
        text = _PADDING.sub("PADDING", _TIME.sub("TIME", body.decode()))
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
    if isinstance(value, dict) and value.get("type") == "ERROR":
        value["object"]["message"] = re.sub(r"\(\d+\)$", "", value["object"]["message"])
    if isinstance(value, dict) and value.get("type") == "BOOKMARK":
        value["object"]["metadata"].pop("resourceVersion")
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
    if 0 <= record["t"] < STARTING_SECONDS and record["scenario"].startswith("B-"):
        return "a server is starting"
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
