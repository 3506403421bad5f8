"""From an examination to the finding that a report shows, and to the Status of its resource."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from etcdfix.examine.verdicts.examination import Examination
from etcdfix.examine.verdicts.plaintext import bounded
from etcdfix.examine.verdicts.severity import stake_of
from etcdfix.model.model import GroupResource, Outcome, ServerBehaviour, digest_of
from etcdfix.model.storagekey import ResourcePrefix, StorageLayout, display
from etcdfix.report.advice.finding import ways_out
from etcdfix.report.document import CAP
from etcdfix.report.model import Finding, Remedy, Status, StatusCause, StatusDetails, ValueKind
from etcdfix.text.safetext import key_base64


def is_finding(found: Examination) -> bool:
    """Say whether there is anything to say: plainly readable keys and bookkeeping without warnings make no finding."""
    if found.verdict.outcome is Outcome.NOT_AN_OBJECT:
        return bool(found.verdict.evidence)
    return not found.verdict.is_plain


def finding_from(
    found: Examination,
    ways: Iterable[Remedy] | None = None,
    *,
    baseline: bool = False,
    size: int | None = None,
    digest: str = "",
) -> Finding:
    """Return the published form of an examination; without ``ways``, with those that the value alone leads to.

    ``size`` and ``digest`` are those of the stored value, where the examination holds it no more.
    """
    stored, verdict = found.stored, found.verdict
    gvk, stake = found.gvk, stake_of(found)
    return Finding(
        key=display(stored.key),
        key_base64=key_base64(stored.key),
        group=found.directory.group,
        resource=found.directory.resource,
        namespace=found.namespace,
        name=found.name,
        outcome=verdict.outcome.value,
        cause=verdict.cause.value if verdict.cause is not None else None,
        confidence=verdict.confidence.value,
        transient=verdict.transient,
        breaks_responses=verdict.breaks_responses,
        apiserver=verdict.apiserver.value,
        message=verdict.message,
        upstream_message=verdict.upstream_message,
        transformer=found.transformer,
        kms_key_id_sha256=found.kms_key_id_sha256 or None,
        group_version_kind=ValueKind(*map(bounded, gvk)) if gvk is not None else None,
        readable_until=verdict.readable_until or None,
        mod_revision=stored.mod_revision,
        create_revision=stored.create_revision,
        version=stored.version,
        lease=shown_lease(stored.lease),
        value_size=len(stored.value) if size is None else size,
        value_sha256=digest or digest_of(stored.value),
        evidence=[*verdict.evidence],
        remedies=[*(ways_out(found) if ways is None else ways)],
        baseline=baseline,
        severity=stake.severity.value if stake is not None else None,
        rule=found.rule or None,
        key_fingerprint=found.key_fingerprints[0] if len(found.key_fingerprints) == 1 else None,
        stale=found.stale and verdict.outcome is Outcome.READABLE,
    )


def shown_lease(lease: int) -> str | None:
    """Return the id of a lease as reports have it; None where there is no lease."""
    return f"{lease & 0xFFFFFFFFFFFFFFFF:x}" if lease else None


def status_cause(finding: Finding) -> StatusCause | None:
    """Return the cause that the API server's LIST would show for a key, None where it would show none.

    Wording: ``apiserver/pkg/storage/errors.go`` and ``storage/etcd3/corrupt_obj_deleter.go``; the revision
    is 0 for transformer errors and the mod_revision for decoder errors. What follows them is left out where its
    words are not known.
    """
    if finding.apiserver != ServerBehaviour.CORRUPT:
        return None
    if finding.outcome == Outcome.DECRYPT_FAILURE:
        inner = "data from the storage is not transformable revision=0"
    else:
        inner = f"object not decodable revision={finding.mod_revision}"
    return StatusCause(
        reason="UnexpectedServerResponse",
        message=(
            f"StorageError: corrupt object, Code: 7, Key: {finding.key}, ResourceVersion: 0, "
            f"AdditionalErrorMsg: {inner}"
            + (f": {finding.upstream_message}" if finding.upstream_message else "")
        ),
        field=finding.key,
    )


_TRUNCATED: Final = StatusCause(reason="FieldValueTooMany", message="too many errors, the list is truncated")


class _Listed(msgspec.Struct):
    prefix: str
    causes: list[StatusCause] = []
    truncated: bool = False


class Statuses:
    """The Status of each resource that has objects which the API server itself calls corrupt.

    Each has at most :data:`CAP` causes, and another one that says where there are more.

    Args:
        layout: Where the resources lie.
        namespaces: The scope: a LIST of a single namespace reads a part of the resource.
    """

    def __init__(self, layout: StorageLayout, namespaces: Sequence[str] = ()) -> None:
        self._layout = layout
        self._below = f"{namespaces[0]}/" if len(namespaces) == 1 else ""
        self._listed: dict[GroupResource, _Listed] = {}

    def add(self, directory: ResourcePrefix, finding: Finding) -> None:
        """Take one finding; they come in the order of the etcd keys."""
        if finding.apiserver != ServerBehaviour.CORRUPT:
            return
        listed = self._listed.get(directory.group_resource)
        if listed is None:
            below = self._below if directory.namespaced is not False else ""
            prefix = display(self._layout.directory_prefix(directory)) + below
            listed = self._listed[directory.group_resource] = _Listed(prefix)
        if len(listed.causes) >= CAP:
            listed.truncated = True
        elif cause := status_cause(finding):
            listed.causes.append(cause)

    def published(self) -> list[Status]:
        """Return them in the order in which their resources came."""
        return [
            Status(
                kind="Status",
                api_version="v1",
                metadata={},
                status="Failure",
                message=f"failed to read one or more {resource} from the storage",
                reason="StorageReadError",
                details=StatusDetails(
                    name=listed.prefix,
                    group=resource.group,
                    kind=resource.resource,
                    causes=[*listed.causes, *([_TRUNCATED] if listed.truncated else ())],
                ),
                code=500,
            )
            for resource, listed in self._listed.items()
        ]
