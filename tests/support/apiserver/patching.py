"""What a stand-in refuses of a patch before it looks at the object: its type, its fit, unknown fields."""

from __future__ import annotations

import json
import re

from tests.support.apiserver.answers import Refusal, about, invalid
from tests.support.apiserver.changes import APPLY, JSON_PATCH, MERGE, STRATEGIC
from tests.support.apiserver.kinds import Resource
from tests.support.apiserver.objects import Object, known_fields
from tests.support.apiserver.requests import Request

_NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_NAME_RULE = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)


def check_patch_type(resource: Resource, kind: str, request: Request) -> None:
    """Refuse a content type that is no patch of this resource, and an apply without a manager."""
    known = {JSON_PATCH, MERGE, APPLY} | ({STRATEGIC} if resource.crd is None else set())
    if kind not in known:
        if resource.crd is None:
            raise Refusal(415, "UnsupportedMediaType", "415: Unsupported Media Type", details={})
        accepted = f"{JSON_PATCH}, {MERGE}, {APPLY}"
        text = f"the body of the request was in an unknown format - accepted media types include: {accepted}"
        raise Refusal(415, "UnsupportedMediaType", text)
    if kind == APPLY and not request.query.get("fieldManager"):
        raise invalid(
            'PatchOptions.meta.k8s.io ""',
            [("FieldValueRequired", "Required value: is required for apply patch", "fieldManager")],
            details={"group": "meta.k8s.io", "kind": "PatchOptions"},
        )


def check_fits(resource: Resource, new: Object, name: str) -> None:
    """Refuse what does not fit the type; the server quotes the whole object, and so does this."""
    metadata = new["metadata"]
    texts = [*metadata.get("annotations", {}).values(), *metadata.get("labels", {}).values()]
    if resource.words == "secrets":
        texts += new.get("data", {}).values()
    if not all(isinstance(text, str) for text in texts):
        raise _quoting(new, "unrecognized type: string")
    for word in metadata.get("annotations", {}):
        if not _NAME.fullmatch(word.rpartition("/")[2]):
            message = f'Invalid value: "{word}": {_NAME_RULE}'
            raise invalid(
                f'{resource.kind} "{name}"',
                [("FieldValueInvalid", message, "metadata.annotations")],
                details={**about(resource.words, name), "kind": resource.kind},
            )


def pruned(resource: Resource, new: Object, *, strict: bool) -> Object:
    """Return an object without the fields that its type does not have, or refuse it for them."""
    if resource.crd is not None:
        return new
    known = known_fields(resource)
    unknown = [name for name in new if name not in known]
    if unknown and strict:
        raise _quoting(new, f'strict decoding error: unknown field "{unknown[0]}"')
    return {name: value for name, value in new.items() if name in known}


def _quoting(new: Object, why: str) -> Refusal:
    quoted = json.dumps(json.dumps(new, separators=(",", ":"), ensure_ascii=False), ensure_ascii=False)
    return invalid(' ""', [("FieldValueInvalid", f"Invalid value: {quoted}: {why}", "patch")], details={})
