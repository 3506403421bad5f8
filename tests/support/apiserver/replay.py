"""Plays a recorded scenario against the stand-in, with the recording's clock, and compares every exchange."""

from __future__ import annotations

import base64
import datetime as dt
import json
import random
import re
from collections.abc import Mapping
from typing import Any, NamedTuple
from unittest import mock

from etcdfix.model.model import GroupResource
from etcdfix.model.storagekey import StorageLayout
from tests.support.apiserver.answers import Answer
from tests.support.apiserver.comparing import difference_of, where, without_chance, without_managers
from tests.support.apiserver.kinds import Resource, builtins, custom
from tests.support.apiserver.objects import Codec, Unreadable
from tests.support.apiserver.process import Behaviour, Process, configuration_of
from tests.support.apiserver.recording import Known, Record, is_played, objects_in
from tests.support.apiserver.requests import Request, target_of
from tests.support.apiserver.serving import Serving
from tests.support.apiserver.store import Entry, MemoryStore

_BEGAN = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)  # after everything that is recorded
_ON_THE_WAY = 0.05  # seconds until a request is answered; what took longer has waited inside
SHIFT_SECONDS = 1.6
"""A change of state may come so much earlier or later than recorded."""
STARTING_SECONDS = 5.5
"""So long a server that starts may not be as far as the recorded one."""


class Compared(NamedTuple):
    """One exchange that was compared, and how it differs: "" where it is equal."""

    record: Record
    difference: str


class Replay:
    """One scenario under way.

    What the recording knows and nobody can guess is taken from it: uids that servers draw, revisions (of the etcd that
    other writers use too), the time of day, and when a cache was given up.
    """

    def __init__(self, records: list[Record]) -> None:
        self.records = records
        self.store = MemoryStore()
        self.behaviour = Behaviour(patience=0.0, token="of-the-recording", listed=None, given_up_after=30.1)
        self.processes: dict[str, Process] = {}
        self.serving: dict[str, Serving] = {}
        self.time = min(record["t"] for record in records if "t" in record)
        self.compared: list[Compared] = []
        self.stored: list[Compared] = []
        self.shifted = 0
        self._responses: dict[int, Record] = {}
        self._all = {record["step"]: record["response"] for record in records if "response" in record}
        self._pending: dict[str, Any] = {}
        self._uid = ""
        self._known = Known(records)
        self._own = self._known.own()
        self._resources: dict[GroupResource, Resource] = dict(builtins())

    def play(self) -> None:
        """Play all of it; nothing in it is left to chance."""
        with mock.patch("secrets.token_bytes", random.Random(1).randbytes):
            self._play()

    def _play(self) -> None:
        for record in self.records:
            self.time = max(self.time, record.get("t", self.time) + min(record.get("took", 0.0), _ON_THE_WAY))
            for process in self.processes.values():
                process.catch_up()
            if record["kind"] == "action":
                self._act(record)
            elif record["kind"] == "exchange":
                self._exchange(record)

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
            clock=lambda: self.time,
            now=self._now,
            new_uid=lambda: self._uid,
            sleep=lambda _seconds: None,
        )
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

    def _exchange(self, record: Record) -> None:
        response = record["response"]
        if "same_as" in record:
            response = self._responses[record["same_as"]]
        else:
            self._responses[record["step"]] = response
        if "error" in response:
            return  # the server is not up
        self._foresee(record, response)
        if not is_played(record):
            self._set_scene(record, response)
            return
        content_type = response["headers"].get("Content-Type", "")
        self.behaviour.overloaded = int("text/plain" in content_type and response["status"] == 429)
        asked, headers = record["request"], record["request"].get("headers") or {}
        request = Request(
            asked["method"],
            asked["path"],
            (asked.get("body") or "").encode(),
            f"Bearer {self.behaviour.token}",
            headers.get("Accept", "application/json"),
            headers.get("Content-Type", ""),
        )
        self._compare(record, self.serving[record["server"]].answer(request), response)
        if record.get("etcd"):
            self._compare_stored(record)

    def _compare_stored(self, record: Record) -> None:
        """Compare what stands in etcd afterwards: the object, how often it was written, and what can read it."""
        stored, key = record["etcd"], record["etcd"]["key"].encode()
        if stored["after"] is None:
            return
        revisions = (stored["after"][name] for name in ("create_revision", "mod_revision", "version"))
        theirs = Entry(key, base64.b64decode(stored["after"]["value"]), *revisions)
        ours = self.store.get(key)
        if ours is None:
            self.stored.append(Compared(record, "it is not there"))
            return
        seen = [self._seen(record["server"], entry) for entry in (ours, theirs)]
        difference = "" if seen[0] == seen[1] else where(*seen)
        if ours[2:] != theirs[2:]:
            difference += f"; revisions {ours[2:]}, recorded {theirs[2:]}"
        self.stored.append(Compared(record, difference))

    def _seen(self, server: str, entry: Entry) -> Any:
        """Return a stored value as a server reads it: the object, or why not."""
        process = self.processes[server]
        directory, _ = StorageLayout("/registry").locate(entry.key)
        resource = process.resources[directory.group_resource]
        try:
            value = process.codec.read(resource, entry)
        except Unreadable as problem:
            return without_chance(problem.text)
        return without_managers(json.loads(without_chance(json.dumps(value))))

    def _compare(self, record: Record, answer: Answer, response: Record) -> None:
        difference = difference_of(answer, response)
        starts = record["scenario"].startswith("B-") and 0 <= record["t"] < STARTING_SECONDS
        may_shift = difference and record["request"]["method"] == "GET"
        if may_shift and (starts or self._soon_or_lately(record, answer)):
            self.shifted += 1
            return
        self.compared.append(Compared(record, difference))

    def _soon_or_lately(self, record: Record, answer: Answer) -> bool:
        """Tell whether the recorded server gave this answer to the same request just before or after."""
        asked = record["server"], record["user"], record["request"]
        for other in self.records:
            near = other["kind"] == "exchange" and abs(other["t"] - record["t"]) <= SHIFT_SECONDS
            if not near or (other["server"], other["user"], other["request"]) != asked:
                continue
            response = self._all[other["same_as"] if "same_as" in other else other["step"]]
            if "error" not in response and not difference_of(answer, response, of_cache=True):
                return True
        return False

    def _set_scene(self, record: Record, response: Record) -> None:
        """Do what an exchange did that is not compared."""
        place = record["request"]["path"]
        if place.endswith("validatingadmissionpolicybindings"):
            self.behaviour.refuse.add("guarded")
        if place.endswith("mutatingadmissionpolicybindings"):
            self.behaviour.stamp["other"] = {"stamped": "yes"}
        if record["request"]["method"] == "GET" or "dryRun" in record["request"]["path"]:
            return
        for value in objects_in(response):
            self._write(value)
        target = target_of(place.partition("?")[0])
        if target is None or record["request"]["method"] != "DELETE" or response["status"] != 200:
            return
        resource = self._resources.get(GroupResource(target.group, target.resource))
        key = resource.key("/registry", target.namespace, target.name) if resource else b""
        held = self.store.get(key)
        if held is not None and json.loads(response["body"])["kind"] == "Status":
            self.store.delete(key, mod_revision=held.mod_revision)

    def _foresee(self, record: Record, response: Record) -> None:
        """Take from the recording what nobody can guess: the uid and the revision of what is written."""
        self._catch_up(
            max((int(v["metadata"].get("resourceVersion") or 0) for v in objects_in(response)), default=0)
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
