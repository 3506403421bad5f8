"""What was done with one value, for its report: its layout, the attempts, the look without tag or padding."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from etcdfix.decoding.layout import plaintext_layout
from etcdfix.encryption.layout import envelope_layout
from etcdfix.encryption.transformer import ConfiguredKey
from etcdfix.errors import DecodeError
from etcdfix.examine import Examiner
from etcdfix.model import Attempt, Confidence, FailureReason, Outcome, Part
from etcdfix.repair import NO_REPAIR, unasked
from etcdfix.report.explain import AttemptResult, KeyAttempt, LayoutPart, RepairShown, Where
from etcdfix.storagekey import StorageCodec
from etcdfix.verdicts.causes import Cause
from etcdfix.verdicts.deletability import FAILED, IDENTITY
from etcdfix.verdicts.examination import Examination
from etcdfix.verdicts.observation import Observation
from etcdfix.verdicts.plaintext import describe_failure

_ENCRYPTED = b"k8s:enc:"


def layout_of(examiner: Examiner, found: Examination) -> list[LayoutPart]:
    """Return the parts of a stored value, then those of what it decrypts to; of other programs' keys the size alone."""
    value = found.stored.value
    if found.directory.codec is StorageCodec.NOT_AN_OBJECT:
        return _told(Where.STORED, [Part(0, len(value), "bytes", "not of an object of the API")])
    if not value.startswith(_ENCRYPTED):
        return _told(Where.STORED, plaintext_layout(value))
    names = examiner.transformers.names if examiner.transformers is not None else ()
    stored = _told(Where.STORED, envelope_layout(value, names))
    plaintext = examiner.plaintext(found)
    return stored + (_told(Where.DECRYPTED, plaintext_layout(plaintext)) if plaintext is not None else [])


def _told(where: Where, parts: Iterable[Part]) -> list[LayoutPart]:
    return [LayoutPart(where, *part) for part in parts]


def damage_of(examiner: Examiner, found: Examination) -> tuple[int | None, str]:
    """Return at which byte of the plaintext decoding breaks, and in which field; None and "" where it is not known."""
    plaintext = examiner.plaintext(found) if found.verdict.outcome is Outcome.DECODE_FAILURE else None
    if plaintext is None:
        return None, ""
    try:
        examiner.readers.reader_for(found.stored.key).decode(plaintext)
    except DecodeError as problem:
        failure = describe_failure(problem)
        return failure.offset, failure.field_path
    return None, ""


def attempts_on(examiner: Examiner, found: Examination, seen: Observation | None) -> list[KeyAttempt]:
    """Return what became of every encryption key of the rule that holds for a value, in the API server's order."""
    transformers = examiner.readers.reader_for(found.stored.key).transformers
    if transformers is None:
        return []
    failure = seen.transform_failure if seen is not None else None
    failed = {(one.transformer, one.key_fingerprint): one for one in failure.attempts} if failure else {}
    told = []
    opened = False
    for key in transformers.keys:
        place = (key.transformer, key.key_fingerprint)
        result, detail = _result(key, found, failed.get(place), opened=opened)
        opened = opened or result is AttemptResult.OPENED
        told.append(
            KeyAttempt(
                rule=transformers.rule or "",
                transformer=key.transformer,
                key_fingerprint=key.key_fingerprint or None,
                result=result,
                detail=detail,
            )
        )
    return told


def _result(
    key: ConfiguredKey, found: Examination, failed: Attempt | None, *, opened: bool
) -> tuple[AttemptResult, str]:
    value = found.stored.value
    if value.startswith(_ENCRYPTED) != bool(key.prefix):
        plain = "the value is encrypted" if not key.prefix else "the value is not encrypted"
        return AttemptResult.NOT_TRIED, plain
    if not value.startswith(key.prefix):
        return AttemptResult.NOT_TRIED, "the value does not name it"
    if opened:
        return AttemptResult.NOT_TRIED, "another key before it opened the value"
    if failed is not None:
        silent = failed.reason is FailureReason.KMS_UNREACHABLE
        return AttemptResult.NO_ANSWER if silent else AttemptResult.FAILED, failed.error
    fingerprints = found.key_fingerprints
    its = found.transformer == key.transformer and (not fingerprints or key.key_fingerprint in fingerprints)
    return AttemptResult.OPENED if found.opened and its else AttemptResult.FAILED, ""


_ELSEWHERE = "its bytes are whole; it stands under another etcd key than the one it was written under"
_WHY_NONE = {
    Cause.VALUE_MOVED: _ELSEWHERE,
    Cause.STORAGE_PREFIX_CHANGED: _ELSEWHERE,
    Cause.ASSOCIATED_DATA_UNKNOWN: _ELSEWHERE,
    Cause.KEY_RENAMED: "its bytes are whole; the configuration has the key that wrote it under another name or place",
    Cause.KEY_NAME_MISSING: f"{NO_REPAIR.why_not}; with the key that it names, which is missing, it might",
    Cause.PROVIDER_MISSING: f"{NO_REPAIR.why_not}; with the provider that it names, which is missing, it might",
    Cause.RESOURCE_NOT_CONFIGURED: f"{NO_REPAIR.why_not}; with an entry for its resource it might",
}


def _why_none(found: Examination) -> str:
    """Return why there is nothing to put right in a value; where it is known what else is wrong, that."""
    if found.verdict.holds_whole:
        return "a whole object may be found in it, and nothing says what surrounds it"
    if found.transformer == IDENTITY:
        return "none of the changes that can be undone in an unencrypted value makes it readable"
    cause = found.verdict.cause
    return _WHY_NONE.get(cause, NO_REPAIR.why_not) if cause is not None else NO_REPAIR.why_not


def with_repair(examiner: Examiner, found: Examination) -> tuple[Examination, str]:
    """Return a value with the only repair that there is, proven or not; or as it is, and why there is none."""
    if found.verdict.outcome not in FAILED or found.repair is not None:
        return found, ""
    search = unasked(examiner.search_repair(found), found.verdict.cause)
    if search.repair is None:
        return found, _why_none(found) if search.why_not == NO_REPAIR.why_not else search.why_not
    return msgspec.structs.replace(found, repair=search.repair), ""


def repair_shown(found: Examination) -> RepairShown | None:
    """Return how the bytes of a value that cannot be read read again; None where there is no way."""
    repair = found.repair
    if repair is None or found.verdict.outcome not in FAILED:
        return None
    sure = Confidence.CERTAIN if repair.proven else Confidence.POSSIBLE
    return RepairShown(repair.kind, repair.words, repair.proof, sure)
