"""The only module that changes anything through the Kubernetes API: one merge PATCH, one annotation, sent once.

An API server that still has an object in memory which it can no longer read from etcd writes the whole object anew,
under today's write key, when a change of it comes in: from its memory, guarded by the mod revision that it has there.
uid and resourceVersion in the PATCH have it refuse any other object, and any other write of this one.

The answer is the object, and a refusal (422) may quote it: neither is shown, kept in an error, or recorded.

Format:
    RFC 7386; ``k8s.io/apiserver/pkg/endpoints/handlers/patch.go``. Recorded with kube-apiserver 1.36.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from etcdfix.apiserver.client import NoReply, Reply, Server

FIXED_AT: Final = "etcdfix.io/fixed-at"
"""The annotation: a server leaves an object alone that a change does not change."""

ANSWER_SECONDS: Final = 40.0
"""How long an answer is waited for: API servers give a request 34 s at most for its admission and its write."""

LONGEST_ANSWER: Final = 16 << 20
_FIELD_MANAGER: Final = "etcdfix"


def now_text() -> str:
    """Return the time as the annotation has it: RFC 3339, UTC, so fine that no two are alike."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def patch_annotation(
    server: Server, path: str, *, uid: str, resource_version: int, at: str
) -> Reply | NoReply:
    """Have a server write an object anew.

    ``resource_version`` is the mod revision of its etcd key. Raises ValueError.
    """
    if not (path and uid and resource_version):
        raise ValueError("path, uid and resourceVersion must not be empty")
    metadata = {"uid": uid, "resourceVersion": str(resource_version), "annotations": {FIXED_AT: at}}
    return server.merge_patch(
        f"{path}?fieldManager={_FIELD_MANAGER}",
        {"metadata": metadata},
        longest=LONGEST_ANSWER,
        seconds=ANSWER_SECONDS,
    )
