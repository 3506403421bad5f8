"""What a stand-in API server answers: reviews, a group, its metrics; and whom it lets through to what is stored."""

from __future__ import annotations

from etcdfix.model.model import GroupResource
from tests.support.apiserver.answers import (
    NO_SUCH_RESOURCE,
    OVERLOADED,
    PAGE_NOT_FOUND,
    UNAUTHORIZED,
    Answer,
    Refusal,
    forbidden,
    json_line,
    text,
)
from tests.support.apiserver.kinds import builtins
from tests.support.apiserver.process import Process
from tests.support.apiserver.reading import Reading
from tests.support.apiserver.requests import Request, Target, target_of
from tests.support.apiserver.writing import Writing

USER = "alice@example.org"
_ACCESS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_SUBJECT = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
_VERBS = {"POST": "create", "PATCH": "patch"}


class Serving:
    """Answers the requests to one process."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._reading = Reading(process)
        self._writing = Writing(process, self._reading)

    def answer(self, request: Request) -> Answer:
        process = self._process
        behaviour = process.behaviour
        with process.lock:
            process.catch_up()
            if request.path in behaviour.instead:
                return behaviour.instead[request.path]
            try:
                if request.authorization != f"Bearer {behaviour.token}":
                    raise UNAUTHORIZED
                if behaviour.overloaded > 0:
                    behaviour.overloaded -= 1
                    return OVERLOADED
                return self._open(request) or self._stored(request)
            except Refusal as refusal:
                return refusal.answer()

    def _open(self, request: Request) -> Answer | None:
        """Answer what needs no object; None for what is stored."""
        place = request.place
        if request.method == "POST" and place in {_SUBJECT, _ACCESS}:
            body = request.body
            status: dict[str, object] = {"userInfo": {"username": USER}}
            if place == _ACCESS:
                wanted = body["spec"]["resourceAttributes"]
                status = {"allowed": self._process.behaviour.allows(wanted["verb"], wanted["resource"])}
            return Answer(201, json_line({**body, "metadata": {}, "status": status}))
        if request.method == "GET" and place == "/metrics":
            return self._metrics()
        if target_of(place) is not None:
            return None
        parts = [part for part in place.split("/") if part]
        versions = {r.version for r in self._process.resources.values() if parts[1:] == [r.group]}
        if parts[:1] != ["apis"] or not versions:
            return PAGE_NOT_FOUND
        known = [{"groupVersion": f"{parts[1]}/{version}", "version": version} for version in versions]
        found = {"kind": "APIGroup", "apiVersion": "v1", "name": parts[1]}
        return Answer(200, json_line({**found, "versions": known, "preferredVersion": known[0]}))

    def _metrics(self) -> Answer:
        configuration = self._process.codec.configuration
        if configuration is None:
            return text("")
        name = "apiserver_encryption_config_controller_last_config_info"
        return text(f'{name}{{apiserver_id_hash="sha256:0",hash="{configuration.sha256}"}} 1\n')

    def _stored(self, request: Request) -> Answer:
        target = target_of(request.place)
        assert target is not None
        verb = _VERBS.get(request.method, "get" if target.name else "list")
        if not self._process.behaviour.allows(verb, target.resource):
            raise _access_denied(verb, target)
        resource = self._process.resources.get(GroupResource(target.group, target.resource))
        known = resource is not None and resource.version == target.version
        if resource is None or not known or (target.namespace and not resource.namespaced):
            if target.group and not any(r.group == target.group for r in builtins().values()):
                return PAGE_NOT_FOUND
            raise NO_SUCH_RESOURCE
        if verb == "list":
            return self._reading.listed(resource, target, request)
        if verb == "get":
            return self._reading.get(resource, target, request)
        return self._writing.write(verb, resource, target, request)


def _access_denied(verb: str, target: Target) -> Refusal:
    where = f'in the namespace "{target.namespace}"' if target.namespace else "at the cluster scope"
    resource = f"{target.resource}.{target.group}" if target.group else target.resource
    why = f'User "{USER}" cannot {verb} resource "{target.resource}" in API group "{target.group}" {where}'
    return forbidden(resource, target.name, why)
