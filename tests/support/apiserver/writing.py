"""POST, PUT, PATCH and DELETE of a stand-in: a write starts from memory, and is guarded by the mod revision."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

import yaml

from tests.support.apiserver.answers import (
    Answer,
    Refusal,
    about,
    already_exists,
    conflict,
    forbidden,
    invalid,
    json_line,
    not_found,
)
from tests.support.apiserver.changes import (
    APPLY,
    JSON_PATCH,
    PatchFailed,
    cleaned,
    conflicts,
    defaulted,
    json_patch,
    merge,
    record_apply,
    record_update,
)
from tests.support.apiserver.kinds import Resource
from tests.support.apiserver.objects import Object, Unreadable
from tests.support.apiserver.patching import check_fits, check_patch_type, pruned
from tests.support.apiserver.process import Process
from tests.support.apiserver.reading import Reading
from tests.support.apiserver.requests import Request, Target
from tests.support.apiserver.rights import Question, User
from tests.support.apiserver.store import Entry

_UNSAFE = "ignoreStoreReadErrorWithClusterBreakingPotential"
_UNSAFE_VERB = "unsafe-delete-ignore-read-errors"
_ALL = "All"


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

    def write(self, verb: str, resource: Resource, target: Target, request: Request, user: User) -> Answer:
        """Answer a request that changes something, or might."""
        if verb == "create" and not target.name:
            return self._create(resource, target, request)
        if verb == "patch" and target.name:
            return self._patch(resource, target, request, user)
        if verb == "update" and target.name:
            return self._replace(resource, target, request)
        if verb in {"delete", "deletecollection"}:
            return self._delete(resource, target, request, user)
        raise Refusal(
            405, "MethodNotAllowed", "the server does not allow this method on the requested resource"
        )

    # -- create

    def _create(self, resource: Resource, target: Target, request: Request) -> Answer:
        value: Object = dict(request.body)
        name = value["metadata"]["name"]
        key = resource.key(self._process.prefix, target.namespace, name)
        dry = request.query.get("dryRun") == _ALL
        new = self._made(resource, target, value)
        record_update(resource, None, new, manager=request.manager, now=self._process.now())
        if dry:
            entry = self._process.store.get(key)
            if entry is not None and self._readable(resource, entry):
                raise already_exists(resource.words, name)
            return Answer(201, json_line(new))
        written = self._put(resource, key, new, 0)
        if written is None:
            raise already_exists(resource.words, name)
        return Answer(201, json_line(written))

    def _made(self, resource: Resource, target: Target, value: Object) -> Object:
        new = {"kind": resource.kind, "apiVersion": resource.api_version, **defaulted(resource, value)}
        metadata = dict(new["metadata"])
        for name in ("resourceVersion", "managedFields"):
            metadata.pop(name, None)
        if resource.namespaced:
            metadata["namespace"] = target.namespace
        metadata["uid"] = self._process.new_uid()
        metadata["creationTimestamp"] = self._process.now()
        if resource.crd is not None or resource.group == "apiextensions.k8s.io":
            metadata["generation"] = 1
        new["metadata"] = metadata
        return cleaned(new)

    def _readable(self, resource: Resource, entry: Entry) -> bool:
        try:
            self._process.codec.read(resource, entry)
        except Unreadable:
            return False
        return True

    # -- update

    def _replace(self, resource: Resource, target: Target, request: Request) -> Answer:
        wanted: Object = dict(request.body)

        def update(old: Object | None) -> Object:
            if old is None:
                raise not_found(resource.words, target.name)
            new = cleaned(
                copy.deepcopy({"kind": resource.kind, "apiVersion": resource.api_version, **wanted})
            )
            self._keep_system_fields(old, new)
            return self._checked(resource, target, old, new, request)

        return self._updated(resource, target, request, update, Answer(200))

    @staticmethod
    def _keep_system_fields(old: Object, new: Object) -> None:
        before = old["metadata"]
        for name in ("creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds"):
            new["metadata"].pop(name, None)
            if name in before:
                new["metadata"][name] = before[name]
        new["metadata"].setdefault("uid", before["uid"])
        new["metadata"].pop("managedFields", None)
        if "managedFields" in before:
            new["metadata"]["managedFields"] = before["managedFields"]

    def _patch(self, resource: Resource, target: Target, request: Request, user: User) -> Answer:
        kind = request.content_type.partition(";")[0].strip()
        check_patch_type(resource, kind, request)
        created = False

        def update(old: Object | None) -> Object:
            nonlocal created
            created = old is None
            if kind == APPLY:
                return self._applied(resource, target, old, request, user)
            if old is None:
                raise not_found(resource.words, target.name)
            body = request.body
            if body is None:
                raise Refusal(400, "BadRequest", "error decoding patch: unexpected end of JSON input")
            new = json_patch(old, body) if kind == JSON_PATCH else merge(old, body)
            if new["metadata"].get("name") != target.name:
                raise Refusal(
                    400,
                    "BadRequest",
                    f"the name of the object ({new['metadata'].get('name')}) does not match the name on the URL "
                    f"({target.name})",
                )
            check_fits(resource, new, target.name)
            new = pruned(resource, new, strict=request.query.get("fieldValidation") == "Strict")
            return self._checked(resource, target, old, cleaned(new), request)

        answer = self._updated(resource, target, request, update, Answer(200))
        return answer._replace(status=201) if created else answer

    def _applied(
        self, resource: Resource, target: Target, old: Object | None, request: Request, user: User
    ) -> Object:
        wanted: Object = yaml.safe_load(request.raw)
        manager = request.manager
        now = self._process.now()
        if old is None:
            if "uid" in wanted["metadata"]:
                uid = wanted["metadata"]["uid"]
                why = (
                    f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
                )
                raise conflict(resource.words, target.name, why)
            asked = Question("create", resource.group, resource.name, target.namespace, target.name)
            if not self._process.may(user, asked).allowed:
                why = (
                    f'User "{user.name}" cannot create resource "{asked.resource}" in API group "{asked.group}" '
                    f'in the namespace "{asked.namespace}"'
                )
                raise forbidden(resource.words, target.name, why)
            new = self._made(resource, target, wanted)
            record_apply(resource, None, new, wanted, manager=manager, now=now)
            return new
        taken = conflicts(resource, old, wanted, manager)
        if taken:
            causes = [
                {"reason": "FieldManagerConflict", "message": f'conflict with "{who}" using {resource.api_version}',
                 "field": where}
                for who, where in taken
            ]  # fmt: skip
            count = f"{len(taken)} conflict" + ("s" if len(taken) != 1 else "")
            who, where = taken[0]
            text = f'Apply failed with {count}: conflict with "{who}" using {resource.api_version}: {where}'
            raise Refusal(409, "Conflict", text, details={"causes": causes})
        return self._checked(resource, target, old, merge(old, wanted), request, applied=wanted)

    def _checked(
        self,
        resource: Resource,
        target: Target,
        old: Object,
        new: Object,
        request: Request,
        *,
        applied: Object | None = None,
    ) -> Object:
        """Check an update, admit it, and note who made it.

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
        after["resourceVersion"] = before["resourceVersion"]
        if target.namespace in self._process.behaviour.refuse:
            text = "ValidatingAdmissionPolicy of the test denied request: no changes here"
            raise Refusal(422, "Invalid", f'{resource.words} "{target.name}" is forbidden: {text}')
        if old.get("immutable") and new.get("data") != old.get("data"):
            message = "Forbidden: field is immutable when `immutable` is set"
            raise invalid(
                f'{resource.kind} "{target.name}"',
                [("FieldValueForbidden", message, "data")],
                details=about(resource.words, target.name),
            )
        if applied is not None:
            record_apply(resource, old, new, applied, manager=request.manager, now=self._process.now())
        elif _without_managers(new) != _without_managers(old):
            record_update(resource, old, new, manager=request.manager, now=self._process.now())
        if _without_managers(new) != _without_managers(old) or applied is not None:
            stamp = self._process.behaviour.stamp.get(target.namespace)
            if stamp:
                new["metadata"]["labels"] = {**new["metadata"].get("labels", {}), **stamp}
        counts = resource.crd is not None or resource.group == "apiextensions.k8s.io"
        if counts and new.get("spec") != old.get("spec"):
            new["metadata"]["generation"] = before.get("generation", 0) + 1
        return new

    def _updated(
        self, resource: Resource, target: Target, request: Request, update: Update, answer: Answer
    ) -> Answer:
        key = resource.key(self._process.prefix, target.namespace, target.name)
        if request.query.get("dryRun") == _ALL:
            # A dry run reads etcd first, whatever is in memory.
            return answer._replace(body=json_line(update(self._reading.from_etcd(resource, key))))
        return answer._replace(body=json_line(self._guarded(resource, key, update)))

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
            except (Refusal, PatchFailed) as refused:
                if is_current:
                    raise self._as_refusal(refused) from refused
                origin, is_current = self._read(resource, key), True
                continue
            if new == origin.value and not origin.stale:
                if is_current:
                    return new
                origin, is_current = self._read(resource, key), True
                continue
            written = self._put(resource, key, new, origin.mod_revision)
            if written is not None:
                return written
            origin, is_current = self._read(resource, key), True

    @staticmethod
    def _as_refusal(refused: Refusal | PatchFailed) -> Refusal:
        if isinstance(refused, Refusal):
            return refused
        return Refusal(
            422, "Invalid", f"the server rejected our request due to an error in our request ({refused})"
        )

    def _read(self, resource: Resource, key: bytes) -> _Origin:
        entry = self._process.store.get(key)
        if entry is None:
            return _Origin(None, 0, stale=False)
        value = self._reading.read(resource, entry, plain=True)
        return _Origin(value, entry.mod_revision, self._process.codec.is_stale(resource, entry))

    def _put(self, resource: Resource, key: bytes, value: Object, mod_revision: int) -> Object | None:
        plaintext = self._process.codec.plaintext(resource, value)
        data = self._process.codec.seal(resource, key, plaintext)
        revision = self._process.store.put(key, data, mod_revision=mod_revision)
        if revision is None:
            return None
        self._process.catch_up(revision)
        written = copy.deepcopy(value)
        written["metadata"]["resourceVersion"] = str(revision)
        return written

    # -- delete

    def _delete(self, resource: Resource, target: Target, request: Request, user: User) -> Answer:
        options: dict[str, Any] = {**(request.body or {})}
        unsafe = bool(options.get(_UNSAFE)) or request.query.get(_UNSAFE) == "true"
        dry = _ALL in (request.query.get("dryRun"), *options.get("dryRun", []))
        if unsafe and self._process.gate:
            return self._delete_unsafely(resource, target, options, user)
        if not target.name:
            raise Refusal(405, "MethodNotAllowed", "a stand-in deletes no collections")
        key = resource.key(self._process.prefix, target.namespace, target.name)
        entry = self._process.store.get(key)
        if entry is None:
            raise not_found(resource.words, target.name)
        value = self._reading.read(resource, entry)
        uid = value["metadata"]["uid"]
        if value["metadata"].get("finalizers") or resource.words == "namespaces":
            if "deletionTimestamp" not in value["metadata"]:
                value["metadata"]["deletionTimestamp"] = self._process.now()
                if resource.words != "namespaces":
                    value["metadata"]["deletionGracePeriodSeconds"] = 0
                else:
                    value["status"]["phase"] = "Terminating"
                written = None if dry else self._put(resource, key, value, entry.mod_revision)
                value = written or value
            return Answer(200, json_line(value))
        if not dry:
            self._remove(key, entry)
        return Answer(200, _deleted(resource, target, uid))

    def _delete_unsafely(
        self, resource: Resource, target: Target, options: dict[str, Any], user: User
    ) -> Answer:
        for name in ("dryRun", "propagationPolicy", "gracePeriodSeconds", "preconditions"):
            if options.get(name) not in (None, [], {}):
                raise _unsafe_refused(f"cannot be set together with .{name}")
        if not target.name:
            raise _unsafe_refused("is not allowed with DELETECOLLECTION, try again after removing the option")
        asked = Question(_UNSAFE_VERB, resource.group, resource.name, target.namespace, target.name)
        if not self._process.may(user, asked).allowed:
            raise forbidden(resource.words, target.name, f'not permitted to do "{_UNSAFE_VERB}", reason: ')
        key = resource.key(self._process.prefix, target.namespace, target.name)
        entry = self._process.store.get(key)
        if entry is None or self._readable(resource, entry):
            message = (
                "Invalid value: true: is exclusively used to delete corrupt object(s), try again by removing "
                "this option"
            )
            raise invalid(
                f'{resource.words} "{target.name}"',
                [("FieldValueInvalid", message, _UNSAFE)],
                details=about(resource.words, target.name),
            )
        self._remove(key, entry)
        return Answer(200, _deleted(resource, target, "", kind=resource.kind))

    def _remove(self, key: bytes, entry: Entry) -> None:
        revision = self._process.store.delete(key, mod_revision=entry.mod_revision)
        if revision is None:
            raise Refusal(409, "Conflict", "the object has been modified")
        self._process.catch_up(revision)


def _deleted(resource: Resource, target: Target, uid: str, *, kind: str = "") -> bytes:
    details = about(resource.words, target.name, **({"uid": uid} if uid else {}))
    found: Object = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": details,
    }
    if kind:
        details["kind"] = kind
        found["code"] = 200
    return json_line(found)


def _unsafe_refused(why: str) -> Refusal:
    message = f"Invalid value: true: {why}"
    return invalid(
        'DeleteOptions.meta.k8s.io ""',
        [("FieldValueInvalid", message, _UNSAFE)],
        details={"group": "meta.k8s.io", "kind": "DeleteOptions"},
    )


def _without_managers(value: Object) -> Object:
    metadata = {n: v for n, v in value["metadata"].items() if n not in {"managedFields", "resourceVersion"}}
    return {**value, "metadata": metadata}
