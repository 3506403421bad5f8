"""GET and LIST of a stand-in API server: from its watch cache, or from etcd."""

from __future__ import annotations

from typing import Any

from tests.support.apiserver.answers import Answer, Refusal, internal_error, json_line, not_found
from tests.support.apiserver.cache import WatchCache
from tests.support.apiserver.kinds import Resource
from tests.support.apiserver.objects import Object, Unreadable
from tests.support.apiserver.process import Process
from tests.support.apiserver.requests import Request, Target
from tests.support.apiserver.store import Entry

_SERVICE = ("endpoints", "default", "kubernetes")
_METADATA = "PartialObjectMetadata"


class Reading:
    """Reads for one process."""

    def __init__(self, process: Process) -> None:
        self._process = process

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
        if found is None:
            raise not_found(resource.words, target.name)
        return Answer(200, json_line(_formed(found, request.accept)))

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

    def from_etcd(self, resource: Resource, key: bytes) -> Object | None:
        """Read one object from etcd; None where there is none.

        Raises:
            Refusal: It cannot be read.
        """
        entry = self._process.store.get(key)
        return None if entry is None else self.read(resource, entry)

    def read(self, resource: Resource, entry: Entry) -> Object:
        """Read what etcd holds; as :meth:`from_etcd`."""
        try:
            return self._process.codec.read(resource, entry)
        except Unreadable as problem:
            raise (
                _failure(problem.text) if problem.transformed else internal_error(problem.text)
            ) from problem

    def _wait_for(self, cache: WatchCache, revision: int) -> None:
        if revision <= cache.revision:
            return
        self._process.catch_up(min(revision, self._process.store.revision()))
        if revision > cache.revision:
            self._process.sleep(self._process.behaviour.patience)
            current = max(cache.revision, self._process.store.revision())
            cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
            raise Refusal(
                504,
                "Timeout",
                f"Timeout: Too large resource version: {revision}, current: {current}",
                details={"causes": [cause], "retryAfterSeconds": 1},
                headers=(("Retry-After", "1"),),
            )

    def listed(self, resource: Resource, target: Target, request: Request) -> Answer:
        version, limit = request.query.get("resourceVersion", ""), int(request.query.get("limit") or 0)
        cache = self._process.cache(resource)
        below = cache.prefix + (f"{target.namespace}/".encode() if target.namespace else b"")
        from_cache = self._wait_to_list(cache, version, limited=bool(limit))
        if version == "0" and cache.ready:
            limit = 0
        if from_cache:
            items, revision = cache.below(below), cache.revision
        else:
            items, revision = self._list_etcd(resource, below, limit)
        chosen = items[:limit] if limit else items
        metadata: dict[str, Any] = {"resourceVersion": str(revision)}
        if len(items) > len(chosen):
            metadata |= {"continue": "more", "remainingItemCount": len(items) - len(chosen)}
        return Answer(200, json_line(_as_list(resource, chosen, metadata, request.accept)))

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

    def _list_etcd(self, resource: Resource, below: bytes, limit: int) -> tuple[list[Object], int]:
        entries, revision = self._process.store.range(below)
        items: list[Object] = []
        for entry in entries:
            if limit and len(items) == limit:
                break
            try:
                items.append(self._process.codec.read(resource, entry))
            except Unreadable as problem:
                if problem.transformed:
                    raise _failure(problem.text) from problem
                raise internal_error(f'unable to transform key "{problem.key}": {problem.text}') from problem
        # What is left is counted, and not read.
        return items + [{}] * (len(entries) - len(items)), revision


def _failure(text: str) -> Refusal:
    return Refusal(500, "", text)


def _formed(item: Object, accept: str) -> Object:
    """Return an object in the form that was asked for: whole, or its metadata."""
    if f"as={_METADATA}" not in accept.split(",", maxsplit=1)[0]:
        return item
    return {"kind": _METADATA, "apiVersion": "meta.k8s.io/v1", "metadata": item["metadata"]}


def _as_list(resource: Resource, items: list[Object], metadata: dict[str, Any], accept: str) -> Object:
    if f"as={_METADATA}List" in accept.split(",", maxsplit=1)[0]:
        found = [_formed(item, f"as={_METADATA}") for item in items]
        kind, version = f"{_METADATA}List", "meta.k8s.io/v1"
        return {"kind": kind, "apiVersion": version, "metadata": metadata, "items": found}
    if resource.crd is None:
        names = {"kind", "apiVersion"}
        items = [{name: value for name, value in item.items() if name not in names} for item in items]
    else:
        metadata = {"continue": "", **metadata}
    kind = f"{resource.kind}List"
    return {"kind": kind, "apiVersion": resource.api_version, "metadata": metadata, "items": items}
