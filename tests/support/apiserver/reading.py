"""GET, LIST and WATCH of a stand-in API server: from its watch cache, or from etcd."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tests.support.apiserver.answers import Answer, Refusal, internal_error, json_line, not_found, rendered
from tests.support.apiserver.cache import WatchCache
from tests.support.apiserver.kinds import Resource
from tests.support.apiserver.listing import check_list_options, continued, relative, selected, token_of
from tests.support.apiserver.objects import Object, Unreadable
from tests.support.apiserver.process import Process
from tests.support.apiserver.requests import Request, Target
from tests.support.apiserver.store import Entry

_SERVICE = ("endpoints", "default", "kubernetes")
_META = "meta.k8s.io/v1"
_METADATA = "PartialObjectMetadata"
_MOST_WATCHED_SECONDS = 600.0


class Reading:
    """Reads for one process."""

    def __init__(self, process: Process) -> None:
        self._process = process

    # -- single objects

    def get(self, resource: Resource, target: Target, request: Request) -> Answer:
        key = resource.key(self._process.prefix, target.namespace, target.name)
        version = request.query.get("resourceVersion", "")
        cache = self._process.cache(resource)
        if version and cache.ready:
            self._wait_for(cache, int(version))
            found = cache.get(key)
        else:
            found = self.from_etcd(resource, key)
        if found is None and (resource.words, target.namespace, target.name) == _SERVICE:
            found = self._service()
        warnings = _warnings(resource)
        if found is None:
            refusal = not_found(resource.words, target.name)
            refusal.headers = warnings
            raise refusal
        body, content_type = rendered(_formed(found, request.accept), request.accept)
        return Answer(200, body, content_type, warnings)

    def _service(self) -> Object | None:
        """Return the Endpoints of service default/kubernetes as the behaviour has them."""
        listed = self._process.behaviour.listed
        if listed is None:
            return None
        subsets = [
            {"addresses": [{"ip": ip}], "ports": [{"name": "https", "port": port, "protocol": "TCP"}]}
            for ip, port in listed
        ]
        metadata = {"name": "kubernetes", "namespace": "default", "resourceVersion": "1"}
        return {"kind": "Endpoints", "apiVersion": "v1", "metadata": metadata, "subsets": subsets}

    def from_etcd(self, resource: Resource, key: bytes, *, plain: bool = False) -> Object | None:
        """Read one object from etcd; None where there is none.

        Args:
            plain: Report what cannot be read as a write does.

        Raises:
            Refusal: It cannot be read.
        """
        entry = self._process.store.get(key)
        return None if entry is None else self.read(resource, entry, plain=plain)

    def read(self, resource: Resource, entry: Entry, *, plain: bool = False) -> Object:
        """Read what etcd holds; as :meth:`from_etcd`."""
        try:
            return self._process.codec.read(resource, entry)
        except Unreadable as problem:
            raise self._read_error(problem, plain=plain) from problem

    def _read_error(self, problem: Unreadable, *, plain: bool) -> Refusal:
        if not self._process.gate:
            return _failure(problem.text) if problem.transformed else internal_error(problem.text)
        what = "decodable" if problem.transformed else "transformable"
        text = f"data from the storage is not {what} revision=0: {problem.text}"
        return internal_error(
            text if plain else self._corrupt(problem.key.removeprefix(self._process.prefix), text)
        )

    @staticmethod
    def _corrupt(key: str, text: str) -> str:
        return f"StorageError: corrupt object, Code: 7, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: {text}"

    def _wait_for(self, cache: WatchCache, revision: int) -> None:
        if revision <= cache.revision:
            return
        self._process.catch_up(min(revision, self._process.store.revision()))
        if revision > cache.revision:
            self._process.sleep(self._process.behaviour.patience)
            current = max(cache.revision, self._process.store.revision())
            raise Refusal(
                504,
                "Timeout",
                f"Timeout: Too large resource version: {revision}, current: {current}",
                details={
                    "causes": [
                        {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
                    ],
                    "retryAfterSeconds": 1,
                },
                headers=(("Retry-After", "1"),),
            )

    # -- lists

    def listed(self, resource: Resource, target: Target, request: Request) -> Answer:
        query = request.query
        version, token = query.get("resourceVersion", ""), query.get("continue", "")
        check_list_options(version, query.get("resourceVersionMatch", ""), token)
        cache = self._process.cache(resource)
        below = cache.prefix + (f"{target.namespace}/".encode() if target.namespace else b"")
        limit = int(query.get("limit") or 0)
        selects = bool(query.get("labelSelector") or query.get("fieldSelector"))
        at, after = continued(token, below)
        from_cache = self._wait_to_list(cache, version, limited=bool(limit) and not selects)
        if version == "0" and cache.ready:
            limit = 0
        if from_cache:
            if query.get("resourceVersionMatch") == "Exact":
                at = int(version)
            if at > 0:
                self._check_known(cache, at, after, below, token)
            memory = cache.at(at) if at > 0 else cache.objects()
            keys = [key for key in sorted(memory) if key.startswith(below) and key > after]
            chosen = keys[:limit] if limit else keys
            items = [memory[key] for key in chosen]
            revision, left = at if at > 0 else cache.revision, len(keys) - len(chosen)
        else:
            items, revision, left, chosen = self._list_etcd(resource, below, after, limit)
        items = [item for item in items if selected(item, query)]
        metadata: dict[str, Any] = {"resourceVersion": str(revision)}
        if left:
            metadata["continue"] = token_of(revision, "/" + relative(chosen[-1], below))
            if not selects:
                metadata["remainingItemCount"] = left
        body, content_type = rendered(_as_list(resource, items, metadata, request.accept), request.accept)
        return Answer(200, body, content_type, _warnings(resource))

    def _wait_to_list(self, cache: WatchCache, version: str, *, limited: bool) -> bool:
        """Return whether the cache serves a list; wait for it as long as the server does.

        Raises:
            Refusal: It is lost, or does not come to the version.
        """
        if not cache.ready:
            if limited:
                return False
            raise cache.refusal()
        if version not in {"", "0"}:
            self._wait_for(cache, int(version))
        elif version == "":
            self._process.catch_up(self._process.store.revision())
            if cache.stuck:
                self._process.sleep(self._process.behaviour.patience)
                return False
        return True

    @staticmethod
    def _check_known(cache: WatchCache, revision: int, after: bytes, below: bytes, token: str) -> None:
        if revision >= cache.began:
            return
        if not token:
            raise Refusal(410, "Expired", "The resourceVersion for the provided list is too old.")
        raise Refusal(
            410,
            "Expired",
            "The provided continue parameter is too old to display a consistent list result. You can start a new list "
            "without the continue parameter, or use the continue token in this response to retrieve the remainder of "
            "the results. Continuing with the provided token results in an inconsistent list - objects that were "
            "created, modified, or deleted between the time the first chunk was returned and now may show up in the "
            "list.",
            metadata={"continue": token_of(-1, relative(after, below))},
        )

    def _list_etcd(
        self, resource: Resource, below: bytes, after: bytes, limit: int
    ) -> tuple[list[Object], int, int, list[bytes]]:
        entries, revision = self._process.store.range(below)
        entries = [entry for entry in entries if entry.key > after]
        items: list[Object] = []
        broken: list[Unreadable] = []
        scanned: list[bytes] = []
        for entry in entries:
            if limit and len(items) == limit:
                break
            scanned.append(entry.key)
            try:
                items.append(self._process.codec.read(resource, entry))
            except Unreadable as problem:
                if not self._process.gate:
                    if problem.transformed:
                        raise _failure(problem.text) from problem
                    text = f'unable to transform key "{problem.key}": {problem.text}'
                    raise internal_error(text) from problem
                broken.append(problem)
        if broken:
            raise self._storage_read_error(resource, broken)
        return items, revision, len(entries) - len(scanned), scanned

    def _storage_read_error(self, resource: Resource, broken: list[Unreadable]) -> Refusal:
        causes = []
        for problem in broken[:100]:
            what = "decodable" if problem.transformed else "transformable"
            text = f"data from the storage is not {what} revision=0: {problem.text}"
            cause = {"reason": "UnexpectedServerResponse", "message": self._corrupt(problem.key, text)}
            causes.append({**cause, "field": problem.key})
        group = {"group": resource.group} if resource.group else {}
        return Refusal(
            500,
            "StorageReadError",
            f"failed to read one or more {resource.words} from the storage",
            details={"name": "list", **group, "kind": resource.name, "causes": causes},
        )

    # -- watches

    def watch(self, resource: Resource, target: Target, request: Request) -> Answer:
        """Answer a WATCH; its lines come while it lasts."""
        cache = self._process.cache(resource)
        if not cache.ready:
            raise cache.refusal()
        query = request.query
        version = query.get("resourceVersion", "") or "0"
        below = cache.prefix + (f"{target.namespace}/".encode() if target.namespace else b"")
        if version != "0" and int(version) < cache.began:
            return Answer(
                200, lines=iter([json_line({"type": "ERROR", "object": _expired(version, cache.began)})])
            )
        start = int(version) if version != "0" else cache.revision
        initial = cache.below(below) if version == "0" else []
        asked_for_all = query.get("sendInitialEvents") == "true"
        first = [
            json_line({"type": "ADDED", "object": _formed(item, request.accept)})
            for item in initial
            if selected(item, query)
        ]
        if asked_for_all:
            first.append(json_line({"type": "BOOKMARK", "object": _initial_end(resource, cache.revision)}))
        seconds = float(query.get("timeoutSeconds") or _MOST_WATCHED_SECONDS)
        return Answer(200, lines=self._follow(cache, below, start, first, query, seconds))

    def _follow(
        self,
        cache: WatchCache,
        below: bytes,
        start: int,
        first: list[bytes],
        query: Mapping[str, str],
        seconds: float,
    ) -> Iterator[bytes]:
        """Yield lines until the time is over or the cache is lost; an empty one means: nothing yet."""
        yield from first
        ends = self._process.clock() + seconds
        generation = cache.generation
        while self._process.clock() < ends:
            with self._process.lock:
                self._process.catch_up()
                if not cache.ready or cache.generation != generation:
                    return
                news = [change for change in cache.changes if change.revision > start]
            for change in news:
                start = change.revision
                where = change.value["metadata"].get("namespace", "")
                if not (cache.prefix + f"{where}/".encode()).startswith(below):
                    continue
                kind = _seen_as(change.kind, change.value, change.before, query)
                if kind:
                    yield json_line({"type": kind, "object": change.value})
            yield b""


def _seen_as(kind: str, value: Object, before: Object | None, query: Mapping[str, str]) -> str:
    """Return what a change is to a watcher with selectors; "" where it sees nothing of it."""
    now = kind != "DELETED" and selected(value, query)
    then = before is not None and selected(before, query)
    if now:
        return "MODIFIED" if then else "ADDED"
    return "DELETED" if then else ""


def _failure(text: str) -> Refusal:
    return Refusal(500, "", text)


def _expired(version: str, began: int) -> dict[str, Any]:
    message = f"too old resource version: {version} ({began})"
    return Refusal(410, "Expired", message).status


def _initial_end(resource: Resource, revision: int) -> Object:
    metadata = {"resourceVersion": str(revision), "annotations": {"k8s.io/initial-events-end": "true"}}
    return {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata}


def _warnings(resource: Resource) -> tuple[tuple[str, str], ...]:
    if resource.words == "endpoints":
        text = '299 - "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"'
        return (("Warning", text),)
    return ()


def _formed(item: Object, accept: str) -> Object:
    """Return an object in the form that was asked for: whole, or its metadata."""
    if f"as={_METADATA}" not in accept.split(",", maxsplit=1)[0]:
        return item
    return {"kind": _METADATA, "apiVersion": _META, "metadata": item["metadata"]}


def _as_list(resource: Resource, items: list[Object], metadata: dict[str, Any], accept: str) -> Object:
    if f"as={_METADATA}List" in accept.split(",", maxsplit=1)[0]:
        found = [_formed(item, f"as={_METADATA}") for item in items]
        return {"kind": f"{_METADATA}List", "apiVersion": _META, "metadata": metadata, "items": found}
    if resource.crd is not None:
        return {
            "apiVersion": resource.api_version,
            "items": items,
            "kind": resource.list_kind,
            "metadata": {"continue": "", **metadata},
        }
    bare = [
        {name: value for name, value in item.items() if name not in {"kind", "apiVersion"}} for item in items
    ]
    return {
        "kind": resource.list_kind,
        "apiVersion": resource.api_version,
        "metadata": metadata,
        "items": bare,
    }
