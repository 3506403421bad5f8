"""POST and PATCH of a stand-in: a write starts from memory, and is guarded by the mod revision."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tests.support.apiserver.answers import Answer, Refusal, already_exists, conflict, json_line, not_found
from tests.support.apiserver.kinds import Resource
from tests.support.apiserver.objects import Object
from tests.support.apiserver.process import Process
from tests.support.apiserver.reading import Reading
from tests.support.apiserver.requests import Request, Target

MERGE = "application/merge-patch+json"

Update = Callable[[Object | None], Object]


class _Origin(NamedTuple):
    """What a write starts from: the object, and where its key stood; None and 0 for none."""

    value: Object | None
    mod_revision: int
    stale: bool


class Writing:
    """Writes for one process."""

    def __init__(self, process: Process, reading: Reading) -> None:
        self._process = process
        self._reading = reading

    def write(self, verb: str, resource: Resource, target: Target, request: Request) -> Answer:
        """Answer a request that changes something, or might."""
        if verb == "create" and not target.name:
            return self._create(resource, target, request)
        if verb == "patch" and target.name:
            return self._patch(resource, target, request)
        text = "the server does not allow this method on the requested resource"
        raise Refusal(405, "MethodNotAllowed", text)

    def _create(self, resource: Resource, target: Target, request: Request) -> Answer:
        new = self._made(resource, target, dict(request.body))
        name = new["metadata"]["name"]
        written = self._put(resource, resource.key(self._process.prefix, target.namespace, name), new, 0)
        if written is None:
            raise already_exists(resource.words, name)
        return Answer(201, json_line(written))

    def _made(self, resource: Resource, target: Target, value: Object) -> Object:
        """Return a new object with what the server and its type set."""
        new = {"kind": resource.kind, "apiVersion": resource.api_version, **copy.deepcopy(value)}
        metadata = new["metadata"]
        if resource.words == "secrets":
            new.setdefault("type", "Opaque")
        if resource.words == "namespaces":
            metadata.setdefault("labels", {})["kubernetes.io/metadata.name"] = metadata["name"]
            new.setdefault("spec", {"finalizers": ["kubernetes"]})
            new["status"] = {"phase": "Active"}
        if resource.namespaced:
            metadata["namespace"] = target.namespace
        metadata |= {"uid": self._process.new_uid(), "creationTimestamp": self._process.now()}
        if resource.crd is not None or resource.group == "apiextensions.k8s.io":
            metadata["generation"] = 1
        return _cleaned(new)

    def _patch(self, resource: Resource, target: Target, request: Request) -> Answer:
        def update(old: Object | None) -> Object:
            if old is None:
                raise not_found(resource.words, target.name)
            if request.body is None:
                raise Refusal(400, "BadRequest", "error decoding patch: unexpected end of JSON input")
            return self._checked(resource, target, old, _cleaned(_merge(old, request.body)))

        if request.content_type != MERGE:
            raise Refusal(415, "UnsupportedMediaType", "415: Unsupported Media Type", details={})
        key = resource.key(self._process.prefix, target.namespace, target.name)
        if request.query.get("dryRun") == "All":
            # A dry run reads etcd first, whatever is in memory.
            return Answer(200, json_line(update(self._reading.from_etcd(resource, key))))
        return Answer(200, json_line(self._guarded(resource, key, update)))

    def _checked(self, resource: Resource, target: Target, old: Object, new: Object) -> Object:
        """Check an update and admit it.

        Raises:
            Refusal: It is not allowed.
        """
        before, after = old["metadata"], new["metadata"]
        if after.get("uid") != before["uid"]:
            why = f"Precondition failed: UID in precondition: {after.get('uid')}, UID in object meta: {before['uid']}"
            raise conflict(resource.words, target.name, why)
        if after.get("resourceVersion", before["resourceVersion"]) != before["resourceVersion"]:
            why = (
                "the object has been modified; please apply your changes to the latest version and try again"
            )
            raise conflict(resource.words, target.name, why)
        behaviour = self._process.behaviour
        if target.namespace in behaviour.refuse:
            text = "ValidatingAdmissionPolicy of the test denied request: no changes here"
            raise Refusal(422, "Invalid", f'{resource.words} "{target.name}" is forbidden: {text}')
        if old.get("immutable") and new.get("data") != old.get("data"):
            raise Refusal(422, "Invalid", "data: Forbidden: field is immutable when `immutable` is set")
        stamp = behaviour.stamp.get(target.namespace)
        if stamp and new != old:
            after["labels"] = {**after.get("labels", {}), **stamp}
        counts = resource.crd is not None or resource.group == "apiextensions.k8s.io"
        if counts and new.get("spec") != old.get("spec"):
            after["generation"] = before.get("generation", 0) + 1
        return new

    def _guarded(self, resource: Resource, key: bytes, update: Update) -> Object:
        """Update as ``GuaranteedUpdate`` does (``apiserver/pkg/storage/etcd3/store.go``).

        The object in memory is tried first. Where that is refused, or its key has moved, etcd is read, and what it
        holds may not be readable: then that is the answer.
        """
        cached = self._process.cache(resource).memory.get(key)
        is_current = cached is None
        if cached is None:
            origin = self._read(resource, key)
        else:
            origin = _Origin(cached.value, cached.mod_revision, stale=False)
        while True:
            try:
                new = update(copy.deepcopy(origin.value))
            except Refusal:
                if is_current:
                    raise
                new = None
            if new is not None and (new != origin.value or origin.stale):
                written = self._put(resource, key, new, origin.mod_revision)
                if written is not None:
                    return written
            elif new is not None and is_current:
                return new
            origin, is_current = self._read(resource, key), True

    def _read(self, resource: Resource, key: bytes) -> _Origin:
        entry = self._process.store.get(key)
        if entry is None:
            return _Origin(None, 0, stale=False)
        value = self._reading.read(resource, entry)
        return _Origin(value, entry.mod_revision, self._process.codec.is_stale(resource, entry))

    def _put(self, resource: Resource, key: bytes, value: Object, mod_revision: int) -> Object | None:
        codec = self._process.codec
        data = codec.seal(resource, key, codec.plaintext(resource, value))
        revision = self._process.store.put(key, data, mod_revision=mod_revision)
        if revision is None:
            return None
        self._process.catch_up(revision)
        written = copy.deepcopy(value)
        written["metadata"]["resourceVersion"] = str(revision)
        return written


def _merge(target: Any, patch: Any) -> Any:
    """Apply a JSON merge patch (RFC 7386)."""
    if not isinstance(patch, Mapping):
        return copy.deepcopy(patch)
    found = dict(target) if isinstance(target, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            found.pop(name, None)
        else:
            found[name] = _merge(found.get(name), value)
    return found


def _cleaned(value: Object) -> Object:
    """Return an object without the empty maps and lists that its type leaves out."""
    empty = {"labels", "annotations", "finalizers", "ownerReferences"}
    metadata = {n: v for n, v in value["metadata"].items() if v not in ({}, []) or n not in empty}
    kept = {n: v for n, v in value.items() if v != {} or n not in {"data", "binaryData"}}
    return {**kept, "metadata": metadata}
