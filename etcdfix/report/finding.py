"""From an examination to the finding that a report shows."""

from __future__ import annotations

from collections.abc import Iterable

from etcdfix.examine.verdicts.examination import Examination
from etcdfix.examine.verdicts.plaintext import bounded
from etcdfix.examine.verdicts.severity import stake_of
from etcdfix.model.model import Outcome, ServerBehaviour, digest_of
from etcdfix.model.storagekey import display
from etcdfix.report.advice.finding import ways_out
from etcdfix.report.model import Finding, FindingEvidence, Remedy, StatusCause, ValueKind
from etcdfix.text.safetext import key_base64


def is_finding(found: Examination) -> bool:
    """Say whether there is anything to say: plainly readable keys and bookkeeping without warnings make no finding."""
    if found.verdict.outcome is Outcome.NOT_AN_OBJECT:
        return bool(found.verdict.evidence)
    return not found.verdict.is_plain


def finding_from(
    found: Examination, ways: Iterable[Remedy] | None = None, *, baseline: bool = False
) -> Finding:
    """Return the published form of an examination; without ``ways``, with those that the value alone leads to."""
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
        value_size=len(stored.value),
        value_sha256=digest_of(stored.value),
        evidence=[FindingEvidence(e.check, e.result, e.detail) for e in verdict.evidence],
        remedies=[*(ways_out(found) if ways is None else ways)],
        baseline=baseline,
        severity=stake.severity.value if stake is not None else None,
        rule=found.rule or None,
        key_fingerprint=found.key_fingerprints[0] if len(found.key_fingerprints) == 1 else None,
        stale=found.stale and verdict.outcome is Outcome.READABLE,
    )


def shown_lease(lease: int) -> str | None:
    """Return the id of a lease as reports have it; None for none."""
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
