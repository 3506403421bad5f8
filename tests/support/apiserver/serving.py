"""What a stand-in API server answers: discovery, health, reviews, and who is let through to what is stored."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from etcdfix.model.model import GroupResource
from tests.support.apiserver.answers import (
    NO_SNIFFING,
    NO_SUCH_RESOURCE,
    NOT_CACHED,
    OVERLOADED,
    PAGE_NOT_FOUND,
    UNAUTHORIZED,
    Answer,
    Refusal,
    forbidden,
    invalid,
    json_line,
    text,
)
from tests.support.apiserver.checks import checks
from tests.support.apiserver.kinds import builtins
from tests.support.apiserver.process import Process
from tests.support.apiserver.reading import Reading
from tests.support.apiserver.requests import Request, Target, target_of
from tests.support.apiserver.rights import ADMINS, ANONYMOUS, Question, User
from tests.support.apiserver.writing import Writing

_PRIORITY = (
    ("X-Kubernetes-Pf-Flowschema-Uid", "5a2a6c3d-0000-4000-8000-00000000f10c"),
    ("X-Kubernetes-Pf-Prioritylevel-Uid", "5a2a6c3d-0000-4000-8000-00000000f10d"),
)
_HEALTH = {"/readyz", "/livez", "/healthz"}
_OPEN = {"/version", "/api", "/apis", *_HEALTH}
_ACCESS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_SUBJECT = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_VERSION = {
    "major": "1",
    "minor": "36",
    "emulationMajor": "1",
    "emulationMinor": "36",
    "minCompatibilityMajor": "1",
    "minCompatibilityMinor": "35",
    "gitVersion": "v1.36.2",
    "gitCommit": "98b35193b2ac7a23a673325f5e9b830ecd5ba406",
    "gitTreeState": "clean",
    "buildDate": "2026-08-21T11:29:11Z",
    "goVersion": "go1.26.6",
    "compiler": "gc",
    "platform": "linux/amd64",
}


class Serving:
    """Answers the requests to one process."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._reading = Reading(process)
        self._writing = Writing(process, self._reading)

    def answer(self, request: Request) -> Answer:
        process = self._process
        with process.lock:
            process.catch_up()
            instead = process.behaviour.instead.get(request.path)
            if instead is not None:
                return instead
            user = self._user(request)
            if user is None:
                found = UNAUTHORIZED.answer(request.accept)
                return found._replace(headers=(*NOT_CACHED, *found.headers))
            found = self._for(user, request)
        fairness = _PRIORITY if process.behaviour.fairness else ()
        return found._replace(headers=(*NOT_CACHED, *fairness, *found.headers))

    def _for(self, user: User, request: Request) -> Answer:
        behaviour = self._process.behaviour
        if behaviour.overloaded > 0:
            behaviour.overloaded -= 1
            return OVERLOADED
        try:
            return self._open(user, request) or self._stored(user, request)
        except Refusal as refusal:
            return refusal.answer(request.accept)

    def _user(self, request: Request) -> User | None:
        scheme, _, token = (request.authorization or "").partition(" ")
        behaviour = self._process.behaviour
        if not request.authorization and behaviour.anonymous:
            return ANONYMOUS
        return behaviour.users.get(token) if scheme == "Bearer" else None

    # -- what needs no object

    def _open(self, user: User, request: Request) -> Answer | None:
        place = request.place
        first = "/" + place.split("/")[1]
        if request.method == "GET":
            if first in _HEALTH:
                return self._health(place, verbose="verbose" in request.query)
            if place == "/version":
                return Answer(200, json.dumps(_VERSION, indent=2).encode())
            if place == "/metrics":
                return self._metrics(user)
        elif request.method == "POST" and place == _SUBJECT:
            return self._subject(user, request.body)
        elif request.method == "POST" and place == _ACCESS:
            return self._access(user, request)
        if target_of(place) is not None:
            return None
        if user is ANONYMOUS:
            raise _path_forbidden(user, place)
        if request.method == "GET" and first in _OPEN:
            return self._discovery([part for part in place.split("/") if part])
        if ADMINS not in user.groups and first not in _OPEN:
            raise _path_forbidden(user, place)
        return PAGE_NOT_FOUND

    def _health(self, place: str, *, verbose: bool) -> Answer:
        which, _, single = place.strip("/").partition("/")
        failing = self._process.failing_checks(which != "readyz")
        known = checks(which, fairness=self._process.behaviour.fairness)
        if single:
            if single not in known:
                return PAGE_NOT_FOUND
            # The path of one check has no such header.
            found = text("ok") if single not in failing else text("internal server error\n", 500)
            return found._replace(headers=())
        if not failing and not verbose:
            return text("ok")
        lines = [
            f"[-]{check} failed: reason withheld" if check in failing else f"[+]{check} ok" for check in known
        ]
        result = "failed" if failing else "passed"
        return text("\n".join([*lines, f"{which} check {result}", ""]), 500 if failing else 200)

    def _metrics(self, user: User) -> Answer:
        if ADMINS not in user.groups:
            raise _path_forbidden(user, "/metrics")
        configuration = self._process.codec.configuration
        if configuration is None:
            return text("")
        name = "apiserver_encryption_config_controller_last_config_info"
        return text(f'{name}{{apiserver_id_hash="sha256:0",hash="{configuration.sha256}"}} 1\n')

    def _subject(self, user: User, body: Any) -> Answer:
        found = {
            "kind": "SelfSubjectReview",
            "apiVersion": body["apiVersion"],
            "metadata": {"creationTimestamp": self._process.now()},
            "status": {"userInfo": user.info},
        }
        return Answer(201, json_line(found))

    def _access(self, user: User, request: Request) -> Answer:
        body = request.body
        spec = body["spec"]
        wanted = spec.get("resourceAttributes")
        if wanted is None and "nonResourceAttributes" not in spec:
            why = "Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified"
            raise invalid(
                '.authorization.k8s.io ""',
                [("FieldValueInvalid", why, "spec.resourceAttributes")],
                details={"group": "authorization.k8s.io"},
            )
        if wanted is None:
            path = spec["nonResourceAttributes"]["path"]
            allowed, reason = ADMINS in user.groups or path in _OPEN, ""
        else:
            asked = Question(
                wanted["verb"],
                wanted.get("group", ""),
                wanted["resource"],
                wanted.get("namespace", ""),
                wanted.get("name", ""),
            )
            allowed, reason = self._process.may(user, asked)
        status = {"allowed": allowed, **({"reason": reason} if reason else {})}
        kind = "resourceAttributes" if wanted is not None else "nonResourceAttributes"
        entry = {
            "manager": request.manager,
            "operation": "Update",
            "apiVersion": body["apiVersion"],
            "time": self._process.now(),
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:spec": {f"f:{kind}": {".": {}, **{f"f:{name}": {} for name in spec[kind]}}}},
        }
        found = {
            "kind": body["kind"],
            "apiVersion": body["apiVersion"],
            "metadata": {"managedFields": [entry]},
            "spec": spec,
            "status": status,
        }
        return Answer(201, json_line(found))

    def _discovery(self, parts: list[str]) -> Answer:
        groups: dict[str, str] = {}
        for resource in self._process.resources.values():
            groups.setdefault(resource.group, resource.version)
        if parts == ["api"]:
            return Answer(200, json_line({"kind": "APIVersions", "versions": ["v1"]}))
        if parts == ["apis"]:
            listed = [_group(group, version) for group, version in groups.items() if group]
            return Answer(200, json_line({"kind": "APIGroupList", "apiVersion": "v1", "groups": listed}))
        if parts == ["api", "v1"]:
            return self._resources("", "v1")
        if len(parts) == 2 and parts[1] in groups:
            found = {"kind": "APIGroup", "apiVersion": "v1", **_group(parts[1], groups[parts[1]])}
            return Answer(200, json_line(found))
        if len(parts) == 3 and groups.get(parts[1]) == parts[2]:
            return self._resources(parts[1], parts[2])
        return self._no_such_path(parts[1] if len(parts) > 1 else "")

    def _resources(self, group: str, version: str) -> Answer:
        verbs = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
        listed = [
            {
                "name": r.name,
                "singularName": r.kind.lower(),
                "namespaced": r.namespaced,
                "kind": r.kind,
                "verbs": verbs,
            }
            for r in self._process.resources.values()
            if (r.group, r.version) == (group, version)
        ]
        found: dict[str, Any] = {"kind": "APIResourceList", "groupVersion": f"{group}/{version}".strip("/")}
        if group:
            found["apiVersion"] = "v1"
        return Answer(200, json_line({**found, "resources": listed}))

    def _no_such_path(self, group: str) -> Answer:
        known = any(r.group == group for r in builtins().values())
        if not known and not self._process.paths_known:
            raise Refusal(
                503,
                "ServiceUnavailable",
                "the request has been made before all known HTTP paths have been installed, please try again",
                details={"retryAfterSeconds": 5},
                headers=(("Retry-After", "5"),),
            )
        return PAGE_NOT_FOUND

    # -- what is stored

    def _stored(self, user: User, request: Request) -> Answer:
        target = target_of(request.place)
        assert target is not None
        verb = self._verb(request, target)
        place = target.name if (target.group, target.resource) == ("", "namespaces") else target.namespace
        asked = Question(verb, target.group, target.resource, place, target.name)
        if not self._process.may(user, asked).allowed:
            raise access_denied(user, asked)
        resource = self._process.resources.get(GroupResource(target.group, target.resource))
        if (
            resource is None
            or resource.version != target.version
            or (target.namespace and not resource.namespaced)
        ):
            if target.group and target.group not in {r.group for r in builtins().values()}:
                return self._no_such_path(target.group)
            raise NO_SUCH_RESOURCE
        if target.subresource:
            raise NO_SUCH_RESOURCE
        if verb == "watch":
            return self._reading.watch(resource, target, request)
        if verb == "list":
            return self._reading.listed(resource, target, request)
        if verb == "get":
            return self._reading.get(resource, target, request)
        return self._writing.write(verb, resource, target, request, user)

    @staticmethod
    def _verb(request: Request, target: Target) -> str:
        if request.method == "GET":
            if request.query.get("watch") in {"1", "true"}:
                return "watch"
            return "get" if target.name else "list"
        if request.method == "DELETE" and not target.name:
            return "deletecollection"
        return _VERBS.get(request.method, request.method.lower())


def access_denied(user: User, asked: Question) -> Refusal:
    """Return the 403 for somebody who may not do something."""
    where = f'in the namespace "{asked.namespace}"' if asked.namespace else "at the cluster scope"
    resource = f"{asked.resource}.{asked.group}" if asked.group else asked.resource
    why = f'User "{user.name}" cannot {asked.verb} resource "{asked.resource}" in API group "{asked.group}" {where}'
    refusal = forbidden(resource, asked.name, why)
    refusal.headers = NO_SNIFFING
    return refusal


def _path_forbidden(user: User, place: str) -> Refusal:
    why = f'forbidden: User "{user.name}" cannot get path "{place}"'
    return Refusal(403, "Forbidden", why, details={}, headers=NO_SNIFFING)


def _group(group: str, version: str) -> Mapping[str, Any]:
    known = {"groupVersion": f"{group}/{version}", "version": version}
    return {"name": group, "versions": [known], "preferredVersion": known}
